//! Which use a segment is in, where a ledger is made that is not a checkpoint's. Nothing that is there is
//! taken for something of another use.

use super::tests::{corrupt_blob, line, open, repaired, with_file, within_sections};
use super::*;
use crate::Creation;
use crate::engine::Purpose;
use crate::format::ledger::SectionTag;
use crate::format::segment::file_name;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, InodeNumber};

/// Pieces of the file, and how often some of them are overwritten.
const PIECES: u64 = 600;
const ROUNDS: u8 = 8;
const PIECE: usize = 4 * BLOCK_BYTES;

/// The last round in which a piece was written.
fn last(piece: u64) -> u8 {
    let is_written = |round: &u8| *round == 1 || piece % 3 != u64::from(*round) % 3;
    (1..ROUNDS).rev().find(is_written).unwrap()
}

/// A pool in which most segments have been in several uses: each round is collected but the last.
fn made() -> (Arc<MemoryStorage>, Pool, InodeNumber) {
    let (storage, pool, db, file) = with_file();
    for round in 1..ROUNDS {
        for piece in (0..PIECES).filter(|piece| round == 1 || piece % 3 != u64::from(round) % 3) {
            db.write(file, piece * PIECE as u64, &[round; PIECE]).unwrap();
        }
        db.sync().unwrap();
        pool.checkpoint().unwrap();
        if round + 1 < ROUNDS {
            pool.collect(100).unwrap();
        }
    }
    drop(db);
    (storage, pool, file)
}

/// All pieces of a file are there.
fn assert_there(pool: &Pool, file: InodeNumber, pieces: u64, mark: impl Fn(u64) -> u8) {
    let view = pool.view("db").unwrap();
    let mut bytes = vec![0; PIECE];
    for piece in 0..pieces {
        view.read(file, piece * PIECE as u64, &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == mark(piece)), "{piece}");
    }
}

/// Blocks were moved after the last ledger, to segments that had another use before. The process was killed,
/// and the location map is lost. So what was moved is found twice.
#[test]
fn what_was_moved_when_a_process_was_killed_is_found_where_the_ledger_means_it() {
    for lives_on in [false, true] {
        let (storage, pool, file) = made();
        let engine = pool.engine();
        let victims = engine.victims(&engine.state());
        assert!(victims.len() > 2, "{}", victims.len());
        for victim in &victims {
            engine.empty(victim, Purpose::Collecting, &|| ()).unwrap();
        }
        let killed = storage.copy();
        if lives_on {
            let pool = open(&killed);
            let db = pool.dataset("db").unwrap();
            let other = db.open_or_create(b"b", &Creation::file()).unwrap();
            db.write(other, 0, &[1; 100]).unwrap();
            drop(db);
            pool.close().unwrap();
        }
        let line = line(&killed);
        let (pointer, blob) = line.last().unwrap();
        let sections = within_sections(blob);
        let (_, at) = sections.iter().find(|(tag, _)| *tag == SectionTag::Location).unwrap();
        corrupt_blob(&killed, pointer, *at);
        let report = repaired(&killed, false);
        assert!(report.steps[0].contains("headers of segments"), "{report:?}");
        let pool = open(&killed);
        assert_there(&pool, file, PIECES, last);
        pool.verify().unwrap();
        assert_eq!(pool.scrub(&mut |_| true).unwrap().damaged, 0);
    }
}

/// The segment that the log goes on in is gone, and so is one that was free: the log goes on in a new one
/// with that number.
#[test]
fn a_log_goes_on_in_a_segment_with_a_number_that_had_a_use() {
    let (storage, pool, file) = made();
    pool.collect(100).unwrap();
    let (free, end) = {
        let state = pool.engine().state();
        let all = state.segments.all().into_iter();
        let free: Vec<_> = all.filter(|segment| state.segments.kind(*segment).is_none()).collect();
        (free, state.tail.segment())
    };
    pool.close().unwrap();
    assert!(free.len() > 3, "{free:?}");
    for segment in free {
        let corrupt = storage.copy();
        corrupt.remove(&file_name(segment)).unwrap();
        corrupt.remove(&file_name(end)).unwrap();
        let pool = open(&corrupt);
        let db = pool.dataset("db").unwrap();
        let other = db.open_or_create(b"b", &Creation::file()).unwrap();
        for piece in 0..PIECES / 2 {
            db.write(other, piece * PIECE as u64, &[77; PIECE]).unwrap();
        }
        db.sync().unwrap();
        drop(db);
        pool.close().unwrap();
        let pool = open(&corrupt);
        assert_there(&pool, other, PIECES / 2, |_| 77);
        assert_eq!(pool.view("db").unwrap().attributes(file).unwrap().size, PIECES * PIECE as u64);
    }
}
