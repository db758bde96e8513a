//! Segments that are not what they seem: less full than their table says, of another pool or another time, or
//! damaged where the log is.

use crate::format::segment::{SegmentKind, file_name};
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::storage::{Kind, Storage};
use crate::units::{BLOCK_BYTES, ByteLength, InodeNumber, SegmentId};
use crate::{CopyMode, Creation, Dataset};
use std::sync::Arc;

fn options(read_only: bool) -> OpenOptions {
    OpenOptions {
        read_only,
        background: false,
        control_socket: false,
        block_cache_bytes: 0,
        node_cache_bytes: 0,
        ..OpenOptions::default()
    }
}

fn open(storage: &Arc<MemoryStorage>, read_only: bool) -> Pool {
    Pool::open(storage.clone(), &options(read_only)).unwrap()
}

/// A new pool with an open file.
fn with_file(init: &InitOptions, options: &OpenOptions) -> (Arc<MemoryStorage>, Pool, Dataset, InodeNumber) {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), init).unwrap();
    let pool = Pool::open(storage.clone(), options).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let inode = db.open_or_create(b"a", &Creation::file()).unwrap();
    (storage, pool, db, inode)
}

fn with_copies(copies: CopyMode) -> InitOptions {
    InitOptions { copies, ..InitOptions::small() }
}

/// So small that segments are used again soon, and without copies.
fn crowded() -> InitOptions {
    InitOptions { size_limit: Some(ByteLength(40 << 20)), ..with_copies(CopyMode::None) }
}

fn read(pool: &Pool, inode: InodeNumber, bytes: usize) -> Vec<u8> {
    let mut buffer = vec![0; bytes];
    pool.view("db").unwrap().read(inode, 0, &mut buffer).unwrap();
    buffer
}

/// A commit in two steps, of which the second lies in the next segment. A crash tears that off, so that none
/// of it counts. The log goes on in the segment before, which was full when the crash came.
#[test]
fn a_segment_of_which_the_end_was_torn_off_has_no_table() {
    for copies in [CopyMode::None, CopyMode::All] {
        let storage = Arc::new(MemoryStorage::default());
        Pool::init(storage.clone(), &with_copies(copies)).unwrap();
        let pool = open(&storage, false);
        pool.create_dataset("db", false, &[]).unwrap();
        let db = pool.dataset("db").unwrap();
        let files = [&b"a"[..], b"b", b"c"].map(|name| db.open_or_create(name, &Creation::file()).unwrap());
        let segment = |pool: &Pool| pool.engine().state().tail.segment();
        let first = segment(&pool);
        while pool.engine().state().tail.room() > 150 {
            db.write(files[0], 0, &[1; 16 * BLOCK_BYTES]).unwrap();
        }
        db.sync().unwrap();
        let mut group = db.begin().unwrap();
        for file in &files[..2] {
            group.write(*file, 0, &[2; 100 * BLOCK_BYTES]).unwrap();
        }
        pool.commit(vec![group]).unwrap();
        db.sync().unwrap();
        let last = segment(&pool);
        assert!(first != last, "the step lies in two segments");
        let crashed = storage.copy();
        drop((db, pool));
        for name in [file_name(last), crate::copies::copy_name(last)] {
            if let Ok(file) = crashed.open(&name, true) {
                file.write_at(&[(Kind::Data, &[0; 200 * BLOCK_BYTES])], 0).unwrap();
            }
        }
        let pool = open(&crashed, false);
        assert_eq!(segment(&pool), first);
        assert_eq!(read(&pool, files[0], BLOCK_BYTES), [1; BLOCK_BYTES]);
        let db = pool.dataset("db").unwrap();
        db.write(files[2], 0, &[3; 16 * BLOCK_BYTES]).unwrap();
        db.sync().unwrap();
        // As it is after another crash, too.
        let killed = crashed.copy();
        drop(db);
        pool.close().unwrap();
        assert_eq!(read(&open(&crashed, true), files[2], 16 * BLOCK_BYTES), [3; 16 * BLOCK_BYTES]);
        assert_eq!(read(&open(&killed, false), files[2], 16 * BLOCK_BYTES), [3; 16 * BLOCK_BYTES]);
    }
}

/// Stretches of the file in the next test.
const BATCHES: u64 = 15;

/// A segment file is put back as it was some time ago, or another pool's takes its place. It says nothing of
/// this pool's blocks, and its copy has them.
#[test]
fn a_segment_of_another_time_or_pool_is_healed_from_its_copy() {
    let made = |mark: u8| {
        let (storage, pool, db, inode) = with_file(&with_copies(CopyMode::All), &options(false));
        let write = |offset: u64, mark: u8| {
            db.write(inode, offset, &[mark; 100 * BLOCK_BYTES]).unwrap();
            db.sync().unwrap();
            pool.checkpoint().unwrap();
        };
        (0..40).for_each(|_| write(0, 1));
        let old = storage.copy();
        (0..BATCHES).for_each(|index| write(index * 100 * BLOCK_BYTES as u64, mark + index as u8));
        let segment = {
            let state = pool.engine().state();
            let of_log = |segment: &SegmentId| {
                let kind = state.segments.kind(*segment);
                kind == Some(SegmentKind::Log) && state.segments.live(*segment) > 300
            };
            state.segments.all().into_iter().find(of_log).unwrap()
        };
        assert_ne!(segment, pool.engine().state().tail.segment());
        pool.close().unwrap();
        (storage, old, inode, segment)
    };
    let (storage, old, inode, segment) = made(100);
    let (other, ..) = made(200);
    let bytes = BATCHES as usize * 100 * BLOCK_BYTES;
    let expected = read(&open(&storage, true), inode, bytes);
    let bytes_of = |storage: &MemoryStorage, name: &str| {
        let mut bytes = vec![0; 2 << 20];
        storage.open(name, false).unwrap().read_at(&mut bytes, 0).map(|()| bytes)
    };
    let name = file_name(segment);
    for foreign in [bytes_of(&other, &name), bytes_of(&old, &name)] {
        let Ok(foreign) = foreign else { panic!("both have a segment of that number") };
        let corrupt = storage.copy();
        corrupt.open(&name, true).unwrap().write_at(&[(Kind::Data, &foreign)], 0).unwrap();
        for read_only in [true, false] {
            assert!(read(&open(&corrupt, read_only), inode, bytes) == expected);
        }
        let pool = open(&corrupt, false);
        let report = pool.scrub(&mut |_| true).unwrap();
        assert_eq!(report.damaged, 0, "{report:?}");
        assert!(read(&pool, inode, bytes) == expected);
        let copy = crate::copies::copy_name(segment);
        // Its header may be made again from the log.
        let blocks = |storage: &MemoryStorage| bytes_of(storage, &copy).unwrap().split_off(BLOCK_BYTES);
        assert!(blocks(&corrupt) == blocks(&storage), "the copy was whole");
    }
}

/// A process is killed. After that the beginning of the segment that the log is in turns out to be gone. The
/// copy has all of it, and is given up with the recovery. The recovery has to take everything from it before:
/// also headers that lie one behind the other.
#[test]
fn what_is_corrupt_in_the_log_is_healed_from_the_copy_before_that_is_given_up() {
    for blocks in [1, 4, 60] {
        let (storage, pool, db, inode) = with_file(&with_copies(CopyMode::All), &options(false));
        for index in 0..30 {
            db.write(inode, index * 3 * BLOCK_BYTES as u64, &[7; 3 * BLOCK_BYTES]).unwrap();
            db.sync().unwrap();
            if index == 20 {
                pool.checkpoint().unwrap();
            }
        }
        let segment = file_name(pool.engine().state().tail.segment());
        let killed = storage.copy();
        drop((db, pool));
        let zeros = vec![0; blocks * BLOCK_BYTES];
        let file = killed.open(&segment, true).unwrap();
        file.write_at(&[(Kind::Data, &zeros)], BLOCK_BYTES as u64).unwrap();
        let pool = open(&killed, false);
        let report = pool.scrub(&mut |_| true).unwrap();
        assert_eq!((report.damaged, report.spare), (0, 0), "{blocks}: {report:?}");
        pool.close().unwrap();
        let pool = open(&killed, true);
        assert!(read(&pool, inode, 90 * BLOCK_BYTES).iter().all(|byte| *byte == 7), "{blocks}");
        assert_eq!(pool.scrub(&mut |_| true).unwrap().damaged, 0);
    }
}

/// A process is killed. The end of the segment that the log is in turns out never to have been written, from
/// here or there on. Nothing in the pool says that there was more; the copy does, and has it.
#[test]
fn the_end_of_the_log_is_found_in_the_copy() {
    for (records, lost) in [(1, 1), (12, 1), (12, 2), (12, 30), (60, 600)] {
        let (storage, pool, db, inode) = with_file(&with_copies(CopyMode::All), &options(false));
        pool.checkpoint().unwrap();
        for index in 0..records {
            db.write(inode, index * 7 * BLOCK_BYTES as u64, &[7; 7 * BLOCK_BYTES]).unwrap();
            db.sync().unwrap();
        }
        let (segment, room, end) = {
            let state = pool.engine().state();
            let geometry = pool.engine().geometry;
            (state.tail.segment(), state.tail.room(), u64::from(geometry.end(SegmentKind::Log).0))
        };
        let killed = storage.copy();
        drop((db, pool));
        let from = (end - room).saturating_sub(lost).max(1);
        let file = killed.open(&file_name(segment), true).unwrap();
        let zeros = vec![0; (end - from) as usize * BLOCK_BYTES];
        file.write_at(&[(Kind::Data, &zeros)], from * BLOCK_BYTES as u64).unwrap();
        let bytes = records as usize * 7 * BLOCK_BYTES;
        let pool = open(&killed, false);
        assert!(read(&pool, inode, bytes).iter().all(|byte| *byte == 7), "{lost} of {records}");
        // The copy has gone with the recovery, and a crash comes before anything else is written.
        let killed = killed.copy();
        drop(pool);
        let pool = open(&killed, false);
        assert!(read(&pool, inode, bytes).iter().all(|byte| *byte == 7), "{lost} of {records}");
        assert_eq!(pool.scrub(&mut |_| true).unwrap().damaged, 0);
        pool.verify().unwrap();
    }
}

/// A segment of which there is no copy is put back as it was some time ago, whole and in order: a former use
/// of it. Its blocks are damaged, and reads and a scrub report that. Everything else is what it was.
#[test]
fn a_segment_of_another_time_is_damaged_and_not_believed() {
    for background in [false, true] {
        let options = OpenOptions { background, ..options(false) };
        let (storage, pool, db, inode) = with_file(&crowded(), &options);
        let write = |mark: u8| {
            for index in 0..30 {
                db.write(inode, index * 80 * BLOCK_BYTES as u64, &[mark; 80 * BLOCK_BYTES]).unwrap();
                db.sync().unwrap();
            }
        };
        (1..5).for_each(write);
        pool.checkpoint().unwrap();
        let old = storage.copy();
        (5..20).for_each(write);
        let in_use = {
            let state = pool.engine().state();
            let holds = |segment: &SegmentId| {
                let has_table = state.segments.kind(*segment).is_some_and(|kind| kind.has_table());
                has_table && state.segments.live(*segment) > 100 && *segment != state.tail.segment()
            };
            state.segments.all().into_iter().filter(holds).collect::<Vec<_>>()
        };
        drop(db);
        pool.close().unwrap();
        let bytes = 30 * 80 * BLOCK_BYTES;
        assert!(read(&open(&storage, true), inode, bytes).iter().all(|byte| *byte == 19));
        let mut of_another_time = 0;
        for segment in in_use {
            let mut former = vec![0; 2 << 20];
            let was_there = old.open(&file_name(segment), false).map(|file| file.read_at(&mut former, 0));
            if !matches!(was_there, Ok(Ok(()))) {
                continue;
            }
            let corrupt = storage.copy();
            corrupt.open(&file_name(segment), true).unwrap().write_at(&[(Kind::Data, &former)], 0).unwrap();
            let pool = open(&corrupt, true);
            let view = pool.view("db").unwrap();
            let mut buffer = vec![0; BLOCK_BYTES];
            let mut refused = 0;
            for block in 0..bytes / BLOCK_BYTES {
                match view.read(inode, (block * BLOCK_BYTES) as u64, &mut buffer) {
                    Ok(_) => {
                        assert!(buffer.iter().all(|byte| *byte == 19), "{segment:?}: {block}: {}", buffer[0])
                    }
                    Err(error) => {
                        assert!(error.to_string().contains(&file_name(segment)), "{error}");
                        refused += 1;
                    }
                }
            }
            if refused == 0 {
                // It was in the same use then, and has all that it has now, or nothing that is read.
                continue;
            }
            of_another_time += 1;
            let report = pool.scrub(&mut |_| true).unwrap();
            assert!(report.damaged > 0, "{report:?}");
        }
        assert!(of_another_time > 3, "{of_another_time}");
    }
}

/// After a kill the segment that the log is in turns out to be what it was some time ago. What was
/// acknowledged since the last checkpoint is gone, and the opening reports that.
#[test]
fn a_log_that_goes_on_in_a_segment_of_another_time_is_damaged() {
    let (storage, pool, db, inode) = with_file(&crowded(), &options(false));
    let write = |mark: u8| {
        db.write(inode, 0, &[mark; 30 * BLOCK_BYTES]).unwrap();
        db.sync().unwrap();
    };
    (1..90).for_each(write);
    pool.checkpoint().unwrap();
    let old = storage.copy();
    (90..200).for_each(write);
    pool.checkpoint().unwrap();
    (200..205).for_each(write);
    let segment = pool.engine().state().tail.segment();
    let killed = storage.copy();
    assert_eq!(read(&open(&killed.copy(), false), inode, BLOCK_BYTES), [204; BLOCK_BYTES]);
    let mut former = vec![0; 2 << 20];
    old.open(&file_name(segment), false).unwrap().read_at(&mut former, 0).unwrap();
    killed.open(&file_name(segment), true).unwrap().write_at(&[(Kind::Data, &former)], 0).unwrap();
    let Err(error) = Pool::open(killed, &options(false)) else { panic!("five transactions are gone") };
    assert!(matches!(&error, crate::Error::Damaged { .. }), "{error}");
    assert!(error.to_string().contains(&file_name(segment)), "{error}");
}
