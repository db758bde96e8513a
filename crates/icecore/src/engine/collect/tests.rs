//! What collection promises, case by case.

use super::super::reserve_tests::leave_free;
use super::super::trim::Keep;
use super::super::{Purpose, load};
use crate::format::segment::{Geometry, SegmentKind};
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::segments::{Candidate, Cursor};
use crate::storage::memory::{Flushes, MemoryStorage};
use crate::storage::{Kind, Storage};
use crate::units::{BlockCount, ByteLength, InodeNumber, LogAddress, SegmentId, Slot, Stream};
use crate::{Creation, Dataset, Error};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

mod grown;
mod idle;
mod left_behind;
mod why;

const SEGMENT: u64 = 2 << 20;
const PIECE: u64 = 16 << 10;

fn make(size_limit: Option<u64>) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::default());
    let size_limit = size_limit.map(ByteLength);
    Pool::init(storage.clone(), &InitOptions { segment_bytes: SEGMENT, size_limit, ..InitOptions::small() })
        .unwrap();
    storage
}

fn open_as(storage: &Arc<MemoryStorage>, background: bool, cache: u64) -> Pool {
    let options = OpenOptions {
        background,
        block_cache_bytes: cache,
        node_cache_bytes: cache,
        control_socket: false,
        ..OpenOptions::default()
    };
    Pool::open(storage.clone(), &options).unwrap()
}

fn open(storage: &Arc<MemoryStorage>) -> Pool {
    open_as(storage, false, 1 << 20)
}

fn with_file(pool: &Pool) -> (Dataset, InodeNumber) {
    if pool.dataset("db").is_err() {
        pool.create_dataset("db", false, &[]).unwrap();
    }
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    (db, file)
}

/// What a piece of the file holds after so many rounds.
fn content(piece: u64, round: u64) -> Vec<u8> {
    let word = (piece << 32 | round).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..PIECE / 8).flat_map(|index| word.wrapping_add(index).to_le_bytes()).collect()
}

fn write(db: &Dataset, file: InodeNumber, piece: u64, round: u64) {
    db.write(file, piece * PIECE, &content(piece, round)).unwrap();
}

fn read(pool: &Pool, version: &str, file: InodeNumber, piece: u64) -> Vec<u8> {
    let mut bytes = vec![0; PIECE as usize];
    pool.view(version).unwrap().read(file, piece * PIECE, &mut bytes).unwrap();
    bytes
}

fn assert_sound(pool: &Pool) {
    pool.verify().unwrap();
    let report = pool.scrub(&mut |_| true).unwrap();
    assert_eq!((report.damaged, report.complete), (0, true), "{report:?}");
}

/// Two thirds of what was written first, scattered, are overwritten.
fn thinned(pool: &Pool, pieces: u64) -> (Dataset, InodeNumber) {
    let (db, file) = with_file(pool);
    (0..pieces).for_each(|piece| write(&db, file, piece, 0));
    pool.checkpoint().unwrap();
    (0..pieces).filter(|piece| piece % 3 != 0).for_each(|piece| write(&db, file, piece, 1));
    pool.checkpoint().unwrap();
    (db, file)
}

fn assert_thinned(pool: &Pool, version: &str, file: InodeNumber, pieces: u64) {
    for piece in 0..pieces {
        let round = u64::from(piece % 3 != 0);
        assert!(read(pool, version, file, piece) == content(piece, round), "piece {piece} of {version}");
    }
}

#[test]
fn what_lives_is_moved_and_the_rest_is_free() {
    let storage = make(None);
    let pool = open(&storage);
    let (_, file) = thinned(&pool, 1000);
    let before = pool.statistics();
    let report = pool.collect(100).unwrap();
    let after = pool.statistics();
    assert!(report.segments >= 6, "{report:?}");
    assert!(after.segments_free >= before.segments_free + report.segments / 2, "{before:?} {after:?}");
    assert_eq!(after.segments_vacated, 0);
    assert_thinned(&pool, "db", file, 1000);
    assert_sound(&pool);
    pool.close().unwrap();
    // Nothing from a cache.
    let pool = open_as(&storage, false, 0);
    assert_thinned(&pool, "db", file, 1000);
    assert_sound(&pool);
}

/// Data lies side by side. What took the place of something old goes elsewhere than what was overwritten
/// soon.
#[test]
fn what_is_likely_to_live_on_is_moved_apart() {
    let storage = make(None);
    let pool = open(&storage);
    pool.engine().collector.hush();
    let (db, file) = with_file(&pool);
    let overwrite = |piece: u64, round: u64| {
        write(&db, file, piece, round);
        LogAddress(pool.engine().state().tail.next_address().0 - 1)
    };
    (0..1000).for_each(|piece| write(&db, file, piece, 0));
    for round in 1..40 {
        (0..100).for_each(|piece| write(&db, file, piece, round));
        pool.checkpoint().unwrap();
        pool.collect(100).unwrap();
    }
    let written: Vec<_> =
        (0..100).map(|number| (overwrite(number, 40), overwrite(500 + number, 40))).collect();
    // So that nothing of this lies in the segment that the log is growing into.
    (200..400).for_each(|piece| write(&db, file, piece, 40));
    pool.checkpoint().unwrap();
    let place = |address| pool.engine().blocks.locate(Stream::Data, address).unwrap().0;
    let victims: Vec<Candidate> = {
        let state = pool.engine().state();
        state.segments.candidates(state.replay_from).filter(|found| found.kind == SegmentKind::Log).collect()
    };
    gather_from(&pool, &victims);
    let segments = |of: &dyn Fn(&(LogAddress, LogAddress)) -> LogAddress| {
        written.iter().map(|pair| place(of(pair))).collect::<BTreeSet<SegmentId>>()
    };
    let (soon, late) = (segments(&|pair| pair.0), segments(&|pair| pair.1));
    assert!(soon.is_disjoint(&late), "{soon:?} {late:?}");
    assert_sound(&pool);
}

/// Whether a round of the test below changes a piece.
fn is_changed(piece: u64, round: u64) -> bool {
    round == 0 || (piece * 7 + round * 13).is_multiple_of(5)
}

#[test]
fn snapshots_stay_what_they_are_and_are_not_in_the_way() {
    let storage = make(None);
    let pool = open_as(&storage, false, 0);
    let (db, file) = with_file(&pool);
    for round in 0..20 {
        for piece in (0..400).filter(|piece| is_changed(*piece, round)) {
            write(&db, file, piece, 1000 + round);
        }
        pool.checkpoint().unwrap();
        for piece in (0..400).filter(|piece| is_changed(*piece, round)) {
            write(&db, file, piece, round);
        }
        pool.snapshot(&[format!("db@{round}")], false, &[]).unwrap();
        if round > 3 && round % 3 == 0 {
            pool.destroy(&crate::names::parse_target(&format!("db@{}", round - 2), true).unwrap()).unwrap();
        }
        pool.collect(3).unwrap();
    }
    pool.collect(1000).unwrap();
    assert!(pool.statistics().moved_data_bytes > 4 << 20);
    let expected =
        |piece: u64, until: u64| (0..=until).rev().find(|round| is_changed(piece, *round)).unwrap();
    for round in (0..20).filter(|round| pool.view(&format!("db@{round}")).is_ok()) {
        for piece in 0..400 {
            let found = read(&pool, &format!("db@{round}"), file, piece);
            assert!(found == content(piece, expected(piece, round)), "piece {piece} of db@{round}");
        }
    }
    assert_sound(&pool);
}

/// A crash before the checkpoint that has the new places finds everything at the old ones.
#[test]
fn a_crash_before_the_checkpoint_finds_the_old_places() {
    let storage = make(None);
    let pool = open(&storage);
    pool.engine().collector.hush();
    let (db, file) = thinned(&pool, 600);
    let engine = pool.engine();
    let victims = engine.victims(&engine.state());
    assert!(victims.len() > 3);
    for victim in &victims {
        engine.empty(victim, Purpose::Collecting, &|| ()).unwrap();
        // It waits for the checkpoint, however little is left in it.
        assert!(engine.state().segments.kind(victim.segment).is_some());
    }
    // The log goes on meanwhile, and takes segments.
    for round in 2..8 {
        (600..700).for_each(|piece| write(&db, file, piece, round));
    }
    db.sync().unwrap();
    let crashed = open_as(&storage.copy(), false, 0);
    assert_thinned(&crashed, "db", file, 600);
    assert_sound(&crashed);
    pool.checkpoint().unwrap();
    for victim in &victims {
        assert_eq!(pool.engine().state().segments.kind(victim.segment), None);
    }
    let crashed = open_as(&storage.copy(), false, 0);
    assert_thinned(&crashed, "db", file, 600);
    assert_sound(&crashed);
}

/// What is moved becomes durable without a checkpoint: replay goes on from the last one, and finds everything
/// elsewhere.
#[test]
fn moves_recorded_alone_free_segments_and_outlive_a_crash() {
    let storage = make(None);
    let pool = open_as(&storage, false, 0);
    let (db, file) = thinned(&pool, 600);
    // What died since the last checkpoint is there for replay to read: the ends of what is written in part.
    (0..600).step_by(6).for_each(|piece| write(&db, file, piece, 2));
    (3..600).step_by(6).for_each(|piece| db.write(file, piece * PIECE + 100, &[7; 50]).unwrap());
    db.sync().unwrap();
    let expected = |piece: u64| {
        let mut bytes =
            content(piece, if piece.is_multiple_of(6) { 2 } else { u64::from(!piece.is_multiple_of(3)) });
        if piece % 6 == 3 {
            bytes[100..150].fill(7);
        }
        bytes
    };
    let assert_there = |pool: &Pool| {
        (0..600).for_each(|piece| assert!(read(pool, "db", file, piece) == expected(piece), "piece {piece}"));
        assert_sound(pool);
    };
    let engine = pool.engine();
    let (checkpoints, recycled) = (pool.statistics().checkpoints, pool.statistics().segments_recycled);
    for round in 3..7 {
        let victims = engine.victims(&engine.state());
        assert!(round > 3 || victims.len() > 3);
        for victim in &victims {
            engine.empty(victim, Purpose::Collecting, &|| ()).unwrap();
        }
        // No record of the moves is on disk yet.
        assert_there(&open_as(&storage.copy(), false, 0));
        assert!(engine.record_moves().unwrap());
        for victim in &victims {
            assert_eq!(engine.state().segments.kind(victim.segment), None);
        }
        // The log takes what became free.
        (600..900).for_each(|piece| write(&db, file, piece, round));
        db.sync().unwrap();
        let crashed = open_as(&storage.copy(), false, 0);
        assert_there(&crashed);
        crashed.collect(1000).unwrap();
        assert_there(&crashed);
    }
    assert_eq!(pool.statistics().checkpoints, checkpoints);
    assert!(pool.statistics().segments_recycled > recycled + 3);
    assert!(has_forsaken(&pool));
    assert_there(&pool);
    pool.close().unwrap();
    assert_there(&open_as(&storage, false, 0));
}

/// A checkpoint that fails, or panics, leaves a map behind that no longer says what changed since the
/// checkpoint before. A caller that waited for its end, with moves to be recorded, must not record them as if
/// nothing had happened. The ledger would have no place for what the last checkpoint wrote.
#[test]
fn no_moves_are_recorded_after_a_checkpoint_failed() {
    for flushes in [Flushes::Refused, Flushes::Broken] {
        let storage = make(None);
        let pool = open_as(&storage, false, 0);
        let (_, file) = thinned(&pool, 600);
        let engine = pool.engine();
        let victim = engine.victims(&engine.state())[0];
        engine.empty(&victim, Purpose::Collecting, &|| ()).unwrap();
        storage.set_flushes(flushes);
        let failed = catch_unwind(AssertUnwindSafe(|| pool.checkpoint()));
        assert!(!matches!(failed, Ok(Ok(_))));
        storage.set_flushes(Flushes::Done);
        let recorded = engine.with_line(|line| engine.record_moves_locked(line));
        let crashed = open_as(&storage.copy(), false, 0);
        assert_thinned(&crashed, "db", file, 600);
        assert_sound(&crashed);
        assert!(matches!(recorded, Err(Error::ReadOnlyAfterFailure { .. })), "{recorded:?}");
    }
}

/// Parts of a group are written ahead, and the group is given up.
fn give_up_a_group(db: &Dataset, file: InodeNumber) {
    let mut group = db.begin().unwrap();
    for piece in 0..80 {
        group.write(file, piece * PIECE, &content(piece, 9)).unwrap();
    }
}

/// A ledger of moves repeats where runs went on as of the last checkpoint. Groups that were given up may have
/// spent that segment since, and collection may have moved to it what lives. Nothing is written over that,
/// and its checksums are those of the use that it is in.
#[test]
fn what_runs_went_on_in_may_have_found_another_use() {
    let storage = make(Some(16 * SEGMENT));
    let pool = open_as(&storage, false, 0);
    let engine = pool.engine();
    engine.collector.hush();
    let (db, file) = thinned(&pool, 600);
    give_up_a_group(&db, file);
    pool.checkpoint().unwrap();
    let spent = engine.state().run_cursor.unwrap().segment;
    while engine.state().run_cursor.unwrap().segment == spent {
        give_up_a_group(&db, file);
    }
    let victim = engine.victims(&engine.state())[0];
    let others: Vec<SegmentId> = {
        let mut state = engine.state();
        let mut taken: Vec<SegmentId> =
            std::iter::from_fn(|| state.segments.take(SegmentKind::Run)).collect();
        taken.retain(|segment| *segment != spent);
        state.segments.let_go(spent);
        let replay_from = state.replay_from;
        assert_eq!(state.segments.release(replay_from), [spent]);
        taken
    };
    engine.empty(&victim, Purpose::Checkpoint, &|| ()).unwrap();
    assert!(engine.state().segments.live(spent) > 0, "it was moved there");
    others.into_iter().for_each(|segment| engine.state().segments.let_go(segment));
    assert!(engine.record_moves().unwrap());
    let storage = storage.copy();
    for round in 0..3 {
        let crashed = open_as(&storage, false, 0);
        assert_thinned(&crashed, "db", file, 600);
        // Merged blocks go where runs go on.
        let db = crashed.dataset("db").unwrap();
        db.write(file, 700 * PIECE + round, &[7; 50]).unwrap();
        crashed.checkpoint().unwrap();
        assert_thinned(&crashed, "db", file, 600);
        assert_sound(&crashed);
    }
}

/// Whether something was left behind that lives as of the last checkpoint.
fn has_forsaken(pool: &Pool) -> bool {
    let engine = pool.engine();
    let ledger = engine.superblock.lock().ledger;
    !load::checkpoint(&engine.blocks, engine.pool, ledger).unwrap().forsaken.is_empty()
}

/// Empties what is worth it, and records that without a checkpoint.
fn gather(pool: &Pool) {
    let victims = pool.engine().victims(&pool.engine().state());
    gather_from(pool, &victims);
}

fn gather_from(pool: &Pool, victims: &[Candidate]) {
    let engine = pool.engine();
    let checkpoints = pool.statistics().checkpoints;
    for victim in victims {
        engine.empty(victim, Purpose::Collecting, &|| ()).unwrap();
    }
    assert!(engine.record_moves().unwrap());
    assert_eq!(pool.statistics().checkpoints, checkpoints);
}

/// A reader of a version that is no snapshot keeps what it can reach, wherever that is moved.
#[test]
fn a_pinned_version_is_moved_with_the_rest() {
    let storage = make(None);
    let pool = open_as(&storage, false, 0);
    let (db, file) = with_file(&pool);
    for piece in 0..600 {
        write(&db, file, piece, 0);
        // What died before the pin is dead space.
        write(&db, file, 1000, piece);
    }
    pool.checkpoint().unwrap();
    let view = pool.view("db").unwrap();
    (0..600).filter(|piece| piece % 3 != 0).for_each(|piece| write(&db, file, piece, 1));
    let report = pool.collect(1000).unwrap();
    assert!(report.segments > 2, "{report:?}");
    let mut bytes = vec![0; PIECE as usize];
    for piece in 0..600 {
        view.read(file, piece * PIECE, &mut bytes).unwrap();
        assert!(bytes == content(piece, 0), "piece {piece}");
    }
    pool.verify().unwrap();
    drop(view);
    pool.collect(1000).unwrap();
    assert_thinned(&pool, "db", file, 600);
    assert_sound(&pool);
}

/// A block that is not what was written is never moved: what is moved would look sound.
#[test]
fn damage_is_left_where_it_is_and_reported() {
    let storage = make(None);
    let pool = open_as(&storage, false, 0);
    let (_, file) = thinned(&pool, 300);
    let engine = pool.engine();
    let run = {
        let state = engine.state();
        let victim = engine.victims(&state)[0];
        let entries: Vec<_> = engine.blocks.entries_of_segment(victim.segment).unwrap();
        let alive = |entry: &&crate::location::PlacedRun| {
            state
                .history
                .live_runs(entry.run.stream)
                .map(Result::unwrap)
                .any(|run| run.start <= entry.run.start && entry.run.start < run.end())
        };
        // Any block that lives.
        let entry = *entries.iter().find(alive).or(entries.first()).unwrap();
        let live = state
            .history
            .live_runs(entry.run.stream)
            .map(Result::unwrap)
            .find(|run| run.start < entry.run.end() && entry.run.start < run.end())
            .unwrap();
        let skipped = live.start.0.saturating_sub(entry.run.start.0);
        (entry.segment, entry.slot.0 + skipped as u32)
    };
    let name = crate::format::segment::file_name(run.0);
    let disk = storage.open(&name, true).unwrap();
    let offset = u64::from(run.1) * 4096;
    let mut block = vec![0; 4096];
    disk.read_at(&mut block, offset).unwrap();
    block[77] ^= 4;
    disk.write_at(&[(Kind::Data, &block)], offset).unwrap();
    let report = pool.collect(1000).unwrap();
    assert_eq!(report.corrupt, 1, "{report:?}");
    let statistics = pool.statistics();
    assert_eq!(statistics.segments_corrupt, 1);
    assert!(statistics.collector.contains(&name), "{}", statistics.collector);
    // It stays where it is, and the rest is well.
    let scrubbed = pool.scrub(&mut |_| true).unwrap();
    assert_eq!(scrubbed.damaged, 1, "{scrubbed:?}");
    assert!(scrubbed.findings[0].damage.contains(&name));
    let wrong = (0..300).filter(|piece| {
        let mut bytes = vec![0; PIECE as usize];
        pool.view("db").unwrap().read(file, piece * PIECE, &mut bytes).is_err()
    });
    assert_eq!(wrong.count(), 1);
}

/// A pool that is full of dead space in pieces goes on.
#[test]
fn scattered_dead_space_makes_room() {
    for background in [false, true] {
        let storage = make(Some(40 * SEGMENT));
        let pool = open_as(&storage, background, 1 << 20);
        let (db, file) = with_file(&pool);
        // 48 MiB of 80, in pieces that die one by one.
        let pieces = 3100;
        let mut last = vec![0; pieces as usize];
        for piece in 0..pieces {
            write(&db, file, piece, 0);
        }
        let mut random: u64 = 1;
        for round in 1..12_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let piece = (random >> 33) % pieces;
            write(&db, file, piece, round);
            last[piece as usize] = round;
        }
        for piece in 0..pieces {
            assert!(read(&pool, "db", file, piece) == content(piece, last[piece as usize]), "piece {piece}");
        }
        let statistics = pool.statistics();
        assert!(statistics.segments_collected > 50, "{statistics:?}");
        assert_sound(&pool);
        pool.close().unwrap();
        assert_sound(&open(&storage));
    }
}

/// The first operation that finds no room, a snapshot as well as a write, gets what can be had.
#[test]
fn snapshots_find_room_where_dead_space_is_scattered() {
    let storage = make(Some(40 * SEGMENT));
    let pool = open(&storage);
    let (db, file) = with_file(&pool);
    (0..2400).for_each(|piece| write(&db, file, piece, 0));
    pool.engine().collector.hush();
    let mut random: u64 = 1;
    for round in 1..2000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        write(&db, file, (random >> 33) % 2400, round);
        // Each takes the room of a record and of nodes, so that some are the first that find none.
        pool.snapshot(&[format!("db@{round}")], false, &[]).unwrap();
        if round > 20 {
            let oldest = crate::names::parse_target(&format!("db@{}", round - 20), true).unwrap();
            pool.destroy(&oldest).unwrap();
        }
    }
    assert!(pool.statistics().segments_collected > 3);
    assert_sound(&pool);
}

/// Readers see only what was written, while segments are emptied and used again under them.
#[test]
fn readers_meet_nothing_of_it() {
    let storage = make(Some(24 * SEGMENT));
    let pool = open_as(&storage, true, 0);
    let (db, file) = with_file(&pool);
    let pieces = 1200;
    (0..pieces).for_each(|piece| write(&db, file, piece, 0));
    pool.snapshot(&["db@still".to_owned()], false, &[]).unwrap();
    let done = AtomicBool::new(false);
    let looks = [AtomicU64::new(0), AtomicU64::new(0)];
    std::thread::scope(|scope| {
        for (start, looks) in looks.iter().enumerate() {
            let (pool, done) = (&pool, &done);
            scope.spawn(move || {
                let _finish = Finish(done);
                let mut bytes = vec![0; PIECE as usize];
                let mut piece = start as u64 * 7;
                while !done.load(Ordering::Relaxed) {
                    looks.fetch_add(1, Ordering::Relaxed);
                    piece = (piece + 37) % pieces;
                    // A new pin each time: an old one would keep everything that died since.
                    let view = pool.view("db@still").unwrap();
                    view.read(file, piece * PIECE, &mut bytes).unwrap();
                    assert!(bytes == content(piece, 0), "piece {piece}");
                }
            });
        }
        let finish = Finish(&done);
        for round in 1..40 {
            for piece in 0..150 {
                write(&db, file, 2000 + (piece * 7 + round) % 300, round);
            }
            pool.collect(6).unwrap();
            // On a busy machine a reader may sleep on its pin while the writer fills the pool.
            let before = looks.each_ref().map(|looks| looks.load(Ordering::Relaxed));
            for (looks, before) in looks.iter().zip(before) {
                while looks.load(Ordering::Relaxed) == before && !done.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            }
        }
        drop(finish);
    });
    assert!(pool.statistics().segments_recycled > 40);
    assert_sound(&pool);
}

/// So that readers end when the writer panics, too.
struct Finish<'a>(&'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A pool that may be as large as its disk does not become so for the sake of what is dead.
#[test]
fn a_pool_without_a_limit_grows_with_what_lives_in_it() {
    let segments_after = |collects: bool| {
        let pool = open(&make(None));
        if !collects {
            pool.engine().collector.hush();
        }
        let (db, file) = with_file(&pool);
        let pieces = 1000;
        (0..pieces).for_each(|piece| write(&db, file, piece, 0));
        // At random, so that hardly a segment dies as a whole.
        let mut random = 1_u64;
        for number in 1..12 * pieces {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            write(&db, file, (random >> 33) % pieces, number);
            if number % 200 == 0 {
                // What a recovery would replay stays where it is.
                pool.checkpoint().unwrap();
            }
        }
        assert_sound(&pool);
        let state = pool.engine().state();
        let live = (state.segments.live_total() as usize).div_ceil(pool.engine().geometry.slots() as usize);
        (state.segments.len(), live)
    };
    let (collected, live) = segments_after(true);
    let (left, _) = segments_after(false);
    // Some are taken before those that were emptied are free.
    assert!(collected <= 3 * live + 8 && left > 6 * live, "{collected} and {left} segments for {live}");
}

/// Segments of the log that a recovery would replay, and those of open groups, are not touched.
#[test]
fn what_is_needed_otherwise_is_no_candidate() {
    let storage = make(None);
    let pool = open(&storage);
    pool.engine().collector.hush();
    let (db, file) = thinned(&pool, 300);
    let mut group = db.begin().unwrap();
    for piece in 0..1200 {
        group.write(file, piece * PIECE, &content(piece, 5)).unwrap();
    }
    let first_new = pool.engine().state().tail.segment();
    for round in 6..10 {
        (300..500).for_each(|piece| write(&db, file, piece, round));
    }
    let state = pool.engine().state();
    let held: Vec<SegmentId> =
        state.segments.candidates(state.replay_from).map(|candidate| candidate.segment).collect();
    assert!(!held.contains(&first_new) && !held.contains(&state.tail.segment()));
    drop(state);
    pool.collect(1000).unwrap();
    pool.commit(vec![group]).unwrap();
    for piece in 0..300 {
        assert!(read(&pool, "db", file, piece) == content(piece, 5), "piece {piece}");
    }
    pool.collect(1000).unwrap();
    assert_sound(&pool);
}

/// What is being filled has room for hardly anything more.
fn fill_up(cursor: &mut Option<Cursor>, kind: SegmentKind, geometry: Geometry) {
    let cursor = cursor.as_mut().expect("something was written");
    cursor.slot = cursor.slot.max(Slot(geometry.end(kind).0 - 2));
}

/// The reserve is counted in whole segments. When the segments for nodes and merged blocks run short, the
/// reserve may come to more than is left, with dead space lying about in all others. Nothing that frees was
/// logged any more then, and nothing emptied.
#[test]
fn what_frees_finds_room_where_all_that_is_left_is_kept_back() {
    for free in [1, 2] {
        let storage = make(Some(20 * SEGMENT));
        let pool = open(&storage);
        let (db, file) = thinned(&pool, 600);
        // Merged blocks, so that runs are being filled.
        db.write(file, 100, &[7; 50]).unwrap();
        pool.snapshot(&["db@one".to_owned(), "db@two".to_owned()], false, &[]).unwrap();
        pool.checkpoint().unwrap();
        leave_free(&pool, free);
        {
            let engine = pool.engine();
            let state = &mut *engine.state();
            fill_up(&mut state.run_cursor, SegmentKind::Run, engine.geometry);
            fill_up(&mut state.node_cursor, SegmentKind::Node, engine.geometry);
            if free == 2 {
                // Nothing that collection fills has room either.
                state.collection.warm_cursor = None;
                fill_up(&mut state.ledger_cursor, SegmentKind::Ledger, engine.geometry);
            }
            assert!(state.segments.free() <= engine.reserve(state, Purpose::Freeing));
        }
        for name in ["db@one", "db@two"] {
            pool.destroy(&crate::names::parse_target(name, true).unwrap()).unwrap();
        }
        db.unlink(InodeNumber::ROOT, b"a").unwrap();
        pool.checkpoint().unwrap();
        let statistics = pool.statistics();
        assert!(statistics.segments_free > 3, "{statistics:?}");
        pool.verify().unwrap();
    }
}
