//! Data that collection leaves behind, because it died since the last checkpoint.

use super::*;
use crate::check::{RepairOptions, repair};
use crate::format::segment::file_name;
use crate::units::BLOCK_BYTES;

/// Three quarters of 600 thinned pieces are overwritten once more, without a checkpoint.
fn thin_again(db: &Dataset, file: InodeNumber) {
    (0..600).filter(|piece| piece % 4 != 0).for_each(|piece| write(db, file, piece, 2));
}

fn assert_thinned_again(pool: &Pool, file: InodeNumber) {
    for piece in 0..600 {
        let round = if piece % 4 != 0 { 2 } else { u64::from(piece % 3 != 0) };
        assert!(read(pool, "db", file, piece) == content(piece, round), "piece {piece}");
    }
    assert_sound(pool);
}

/// Data that died since the last checkpoint stays behind, though no caller made the log durable that says so:
/// the record does.
#[test]
fn what_died_since_the_last_checkpoint_stays_behind() {
    let storage = make(None);
    let pool = open_as(&storage, false, 0);
    pool.engine().collector.hush();
    let (db, file) = thinned(&pool, 600);
    thin_again(&db, file);
    let moved = pool.statistics().moved_data_bytes;
    gather(&pool);
    assert!(has_forsaken(&pool));
    // Of what the checkpoint knew, a quarter lives.
    assert!(pool.statistics().moved_data_bytes - moved <= 150 * PIECE);
    let assert_there = |pool: &Pool| assert_thinned_again(pool, file);
    // The log takes what became free, and crashes follow each other.
    for round in 3..5 {
        (700..900).for_each(|piece| write(&db, file, piece, round));
        db.sync().unwrap();
        let crashed = open_as(&storage.copy(), false, 0);
        assert_there(&crashed);
        gather(&crashed);
        assert_there(&crashed);
        drop(crashed);
        gather(&pool);
        assert_there(&open_as(&storage.copy(), false, 0));
    }
    pool.checkpoint().unwrap();
    assert_there(&open_as(&storage.copy(), false, 0));
    assert_there(&pool);
}

/// What destroyed snapshots held is freed without a word in the log: a replay does not find dead what dies of
/// it.
#[test]
fn what_was_freed_without_the_log_is_moved_with_the_rest() {
    let storage = make(None);
    let pool = open_as(&storage, false, 0);
    pool.engine().collector.hush();
    let (db, file) = thinned(&pool, 600);
    pool.snapshot(&["db@a".to_owned()], false, &[]).unwrap();
    pool.checkpoint().unwrap();
    pool.destroy(&crate::names::parse_target("db@a", true).unwrap()).unwrap();
    pool.engine().finish_freeing().unwrap();
    thin_again(&db, file);
    db.sync().unwrap();
    gather(&pool);
    assert!(!has_forsaken(&pool));
    for pool in [&open_as(&storage.copy(), false, 0), &pool] {
        assert_thinned_again(pool, file);
    }
}

/// What a reader can reach is not left behind while it reads, and is afterwards.
#[test]
fn what_a_reader_reaches_stays_until_it_is_gone() {
    let storage = make(None);
    let pool = open_as(&storage, false, 0);
    pool.engine().collector.hush();
    let (db, file) = thinned(&pool, 600);
    let view = pool.view("db").unwrap();
    (0..600).filter(|piece| piece % 3 == 0).for_each(|piece| write(&db, file, piece, 1));
    gather(&pool);
    assert!(!has_forsaken(&pool));
    (700..900).for_each(|piece| write(&db, file, piece, 2));
    let mut bytes = vec![0; PIECE as usize];
    for piece in 0..600 {
        view.read(file, piece * PIECE, &mut bytes).unwrap();
        assert!(bytes == content(piece, u64::from(piece % 3 != 0)), "piece {piece}");
    }
    drop(view);
    // Also the segments of which the collector does not know yet that much in them is dead.
    let replay_from = pool.engine().state().replay_from;
    let all: Vec<Candidate> = pool.engine().state().segments.candidates(replay_from).collect();
    gather_from(&pool, &all);
    assert!(has_forsaken(&pool));
    for pool in [&open_as(&storage.copy(), false, 0), &pool] {
        (0..600)
            .for_each(|piece| assert!(read(pool, "db", file, piece) == content(piece, 1), "piece {piece}"));
        assert_sound(pool);
    }
}

/// A ledger that leaves behind what lives is not believed.
#[test]
fn what_lives_cannot_have_been_left_behind() {
    let storage = make(None);
    let pool = open_as(&storage, false, 0);
    pool.engine().collector.hush();
    let _ = thinned(&pool, 600);
    let first = pool.engine().state().history.live_runs(Stream::Data).next().unwrap().unwrap();
    pool.engine().state().collection.forsaken.insert(first.start..first.start.plus(BlockCount(1)));
    gather(&pool);
    let options = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
    let refused = Pool::open(storage.copy(), &options).err().expect("it contradicts itself");
    assert!(matches!(refused, crate::Error::Damaged { .. }), "{refused}");
}

/// The log is damaged before it says that what was left behind is dead. Where the log is cut, that lives
/// again. It is found where it lay. Where that place has another use by now, it is gone, and nothing else is.
#[test]
fn what_was_left_behind_lives_again_where_the_log_is_cut() {
    for has_other_use in [false, true] {
        let storage = make(None);
        let pool = open_as(&storage, false, 0);
        pool.engine().collector.hush();
        let (db, file) = thinned(&pool, 600);
        let mut ends = Vec::new();
        for piece in 0..600 {
            if piece % 150 == 0 {
                db.sync().unwrap();
                let end = pool.engine().state().tail.position();
                ends.push((piece, end.segment, pool.engine().geometry.offset(end.slot)));
            }
            write(&db, file, piece, 2);
        }
        gather(&pool);
        assert!(has_forsaken(&pool));
        if has_other_use {
            (700..900).for_each(|piece| write(&db, file, piece, 3));
            db.sync().unwrap();
        }
        for (written, segment, offset) in ends {
            let storage = storage.copy();
            let corrupt = storage.open(&file_name(segment), true).unwrap();
            corrupt.write_at(&[(Kind::Data, &[0xee; BLOCK_BYTES])], offset).unwrap();
            assert_cut(&storage, file, written, has_other_use);
        }
    }
}

/// The log of a pool can be cut before a piece was overwritten.
fn assert_cut(storage: &Arc<MemoryStorage>, file: InodeNumber, written: u64, has_other_use: bool) {
    let options = RepairOptions { cut_log: true, data: true, ..RepairOptions::default() };
    let report = repair(storage.clone(), &options, &mut |_| {}).unwrap();
    assert!(report.after.opened && !report.given_up.is_empty(), "{report:?}");
    assert!(has_other_use || report.after.is_sound(), "{report:?}");
    let pool = open_as(storage, false, 0);
    let view = pool.view("db").unwrap();
    let (mut bytes, mut lost) = (vec![0; PIECE as usize], 0);
    for piece in 0..600 {
        match view.read(file, piece * PIECE, &mut bytes) {
            Ok(_) if piece < written => assert!(bytes == content(piece, 2), "piece {piece}"),
            Ok(_) => assert!(bytes == content(piece, u64::from(piece % 3 != 0)), "piece {piece}"),
            Err(error) => {
                assert!(matches!(error, Error::Damaged { .. }), "{error}");
                assert!(piece >= written, "piece {piece}: {error}");
                lost += 1;
            }
        }
    }
    assert!(has_other_use || lost == 0);
    assert_eq!(lost > 0, !report.after.is_sound(), "{report:?}");
    println!("cut at {written} of 600: {lost} lost");
}
