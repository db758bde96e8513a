//! Transactions that write their blocks again and again.

use super::Group;
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, ByteLength, InodeNumber, SegmentId};
use crate::{Creation, Dataset};
use std::sync::Arc;

/// Blocks of the file that is written.
const BLOCKS: u64 = 600;

fn made(size_limit: Option<u64>) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::default());
    let size_limit = size_limit.map(ByteLength);
    Pool::init(storage.clone(), &InitOptions { size_limit, ..InitOptions::small() }).unwrap();
    storage
}

/// With so many blocks that wait in memory at most.
fn open(storage: &Arc<MemoryStorage>, rewritten: u64, background: bool) -> Pool {
    let options = OpenOptions {
        group_memory_bytes: 64 << 10,
        group_rewrite_bytes: rewritten * BLOCK_BYTES as u64,
        background,
        control_socket: false,
        ..OpenOptions::default()
    };
    Pool::open(storage.clone(), &options).unwrap()
}

fn with_file(pool: &Pool) -> (Dataset, InodeNumber) {
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    (db, file)
}

fn content(block: u64, round: u64) -> [u8; BLOCK_BYTES] {
    let mut bytes = [round as u8; BLOCK_BYTES];
    bytes[..8].copy_from_slice(&block.to_le_bytes());
    bytes[8..16].copy_from_slice(&round.to_le_bytes());
    bytes
}

/// Writes every block, and in each of the rounds after that every third one, in another order than that of
/// the file.
fn fill(group: &mut Group, file: InodeNumber, rounds: u64) {
    for block in 0..BLOCKS {
        group.write(file, block * BLOCK_BYTES as u64, &content(block, 0)).unwrap();
    }
    for round in 1..=rounds {
        for number in 0..BLOCKS / 3 {
            let block = number * 77 % (BLOCKS / 3) * 3;
            group.write(file, block * BLOCK_BYTES as u64, &content(block, round)).unwrap();
        }
    }
}

fn assert_filled(read: impl Fn(u64, &mut [u8]) -> usize, rounds: u64) {
    let mut bytes = [0; BLOCK_BYTES];
    for block in 0..BLOCKS {
        assert_eq!(read(block * BLOCK_BYTES as u64, &mut bytes), BLOCK_BYTES);
        let round = if block % 3 == 0 { rounds } else { 0 };
        assert!(bytes == content(block, round), "block {block}");
    }
}

fn assert_committed(pool: &Pool, file: InodeNumber, rounds: u64) {
    let view = pool.view("db").unwrap();
    assert_filled(|at, bytes| view.read(file, at, bytes).unwrap(), rounds);
    pool.verify().unwrap();
    let report = pool.scrub(&mut |_| true).unwrap();
    assert_eq!((report.damaged, report.complete), (0, true), "{report:?}");
}

/// Until it was mended, each time was logged: forty times as much.
#[test]
fn a_block_that_is_written_again_is_logged_once_more_at_most() {
    let storage = made(None);
    let pool = open(&storage, BLOCKS, false);
    let (db, file) = with_file(&pool);
    let before = pool.statistics().logged_data_bytes;
    let mut group = db.begin().unwrap();
    fill(&mut group, file, 120);
    pool.make_durable(pool.commit(vec![group]).unwrap()).unwrap();
    let logged = pool.statistics().logged_data_bytes - before;
    let changed = BLOCKS * BLOCK_BYTES as u64;
    assert!(logged <= changed * 4 / 3, "{logged} bytes of log for {changed} bytes");
    assert_committed(&pool, file, 120);
    assert_committed(&open(&storage.copy(), 1, false), file, 120);
    pool.close().unwrap();
    assert_committed(&open(&storage, 1, false), file, 120);
}

/// What does not fit in memory replaces what was written ahead: the transaction takes no more room with each
/// time.
#[test]
fn a_transaction_takes_the_room_of_what_it_changes() {
    let storage = made(Some(24 << 20));
    let pool = open(&storage, 16, false);
    let (db, file) = with_file(&pool);
    let mut group = db.begin().unwrap();
    fill(&mut group, file, 40);
    let base = pool.view("db").unwrap();
    assert_filled(|at, bytes| group.read(&base, file, at, bytes).unwrap(), 40);
    assert_eq!(base.attributes(file).unwrap().size, 0, "no one else sees it");
    pool.make_durable(pool.commit(vec![group]).unwrap()).unwrap();
    assert_committed(&pool, file, 40);
    assert_committed(&open(&storage.copy(), 16, false), file, 40);
}

/// As with a pool of its own thread for writing ahead.
#[test]
fn what_is_written_again_while_it_is_written_ahead_comes_after_it() {
    let storage = made(None);
    let pool = open(&storage, 3, true);
    let (db, file) = with_file(&pool);
    let mut group = db.begin().unwrap();
    fill(&mut group, file, 5);
    pool.make_durable(pool.commit(vec![group]).unwrap()).unwrap();
    assert_committed(&pool, file, 5);
    pool.close().unwrap();
    assert_committed(&open(&storage, 3, false), file, 5);
}

/// Blocks are written in part, and cut off, as if they had been written once.
#[test]
fn parts_and_truncations_see_what_was_written_again() {
    let storage = made(None);
    let pool = open(&storage, 2, false);
    let (db, file) = with_file(&pool);
    let mut group = db.begin().unwrap();
    fill(&mut group, file, 3);
    group.write(file, 100, b"part").unwrap();
    group.write(file, 6 * BLOCK_BYTES as u64 + 50, &[9; BLOCK_BYTES]).unwrap();
    group.truncate(file, 300 * BLOCK_BYTES as u64 + 10).unwrap();
    group.truncate(file, 301 * BLOCK_BYTES as u64).unwrap();
    pool.make_durable(pool.commit(vec![group]).unwrap()).unwrap();
    let mut first = content(0, 3);
    first[100..104].copy_from_slice(b"part");
    let mut expected = first.to_vec();
    (1..300).for_each(|block| expected.extend(content(block, if block % 3 == 0 { 3 } else { 0 })));
    expected[6 * BLOCK_BYTES + 50..][..BLOCK_BYTES].fill(9);
    expected.extend(&content(300, 3)[..10]);
    expected.resize(301 * BLOCK_BYTES, 0);
    for pool in [pool, open(&storage.copy(), 2, false)] {
        let mut bytes = vec![1; expected.len() + 1];
        let read = pool.view("db").unwrap().read(file, 0, &mut bytes).unwrap();
        assert!(read == expected.len() && bytes[..read] == expected);
        pool.verify().unwrap();
    }
}

/// Segments that groups have filled together get their checksum tables when the last group is over, whatever
/// became of it.
#[test]
fn segments_of_several_groups_are_finished_when_the_last_one_is_over() {
    let storage = made(None);
    let pool = open(&storage, 5, false);
    let (db, file) = with_file(&pool);
    pool.create_dataset("other", false, &[]).unwrap();
    let other = pool.dataset("other").unwrap();
    let second = other.open_or_create(b"b", &Creation::file()).unwrap();
    let (mut kept, mut dropped) = (db.begin().unwrap(), other.begin().unwrap());
    for block in 0..BLOCKS {
        kept.write(file, block * BLOCK_BYTES as u64, &content(block, 0)).unwrap();
        dropped.write(second, block * BLOCK_BYTES as u64, &content(block, 1)).unwrap();
    }
    for block in (0..BLOCKS).step_by(3) {
        kept.write(file, block * BLOCK_BYTES as u64, &content(block, 7)).unwrap();
        dropped.write(second, block * BLOCK_BYTES as u64, &content(block, 8)).unwrap();
    }
    pool.make_durable(pool.commit(vec![kept]).unwrap()).unwrap();
    assert_committed(&pool, file, 7);
    let filling = || {
        let segments = pool.engine().state().segments.len() as u32;
        let sums = pool.engine().blocks.sums();
        (0..segments).filter(|segment| sums.is_being_filled(SegmentId(*segment))).count()
    };
    assert!(filling() > 2, "the open group keeps tables from being written");
    drop(dropped);
    assert_eq!(filling(), 2, "the log and the segment of runs that is not full");
    assert_committed(&pool, file, 7);
    assert_committed(&open(&storage.copy(), 5, false), file, 7);
    pool.close().unwrap();
    assert_committed(&open(&storage, 5, false), file, 7);
}

/// A run that was never sealed lies where an earlier life sealed one that did not come to count: the header
/// of that must not say what lies behind.
#[test]
fn headers_of_an_earlier_life_do_not_hide_runs() {
    let storage = made(None);
    let pool = open(&storage, 5, false);
    let (db, file) = with_file(&pool);
    let mut group = db.begin().unwrap();
    fill(&mut group, file, 1);
    pool.make_durable(pool.commit(vec![group]).unwrap()).unwrap();
    pool.checkpoint().unwrap();
    let mut group = db.begin().unwrap();
    fill(&mut group, file, 2);
    pool.commit(vec![group]).unwrap();
    // The log of that is in memory alone.
    let storage = storage.copy();
    let options = OpenOptions {
        group_memory_bytes: 32 << 10,
        group_rewrite_bytes: 0,
        background: false,
        ..OpenOptions::default()
    };
    let pool = Pool::open(storage.clone(), &options).unwrap();
    assert_committed(&pool, file, 1);
    let db = pool.dataset("db").unwrap();
    let mut dropped = db.begin().unwrap();
    (0..9).for_each(|block| dropped.write(file, block * BLOCK_BYTES as u64, &content(block, 8)).unwrap());
    drop(dropped);
    let mut group = db.begin().unwrap();
    fill(&mut group, file, 3);
    pool.make_durable(pool.commit(vec![group]).unwrap()).unwrap();
    assert_committed(&pool, file, 3);
    assert_committed(&open(&storage.copy(), 5, false), file, 3);
}
