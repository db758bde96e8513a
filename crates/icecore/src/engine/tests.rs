//! What a review found, kept found: each of these went wrong once.

use super::space::Filling;
use super::{Purpose, superblocks};
use crate::format::crc32c;
use crate::format::superblock::NAMES;
use crate::log::tail::Payload;
use crate::operation::{BlockPatch, Operation, Part, Patch, Scatter, Stretch, Target, Write};
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::state::Placement;
use crate::storage::memory::{Flushes, MemoryStorage, POISON};
use crate::storage::{AlignedBuffer, Kind, Storage};
use crate::units::{
    BLOCK_BYTES, ByteLength, DatasetId, FileBlock, InodeNumber, LogAddress, SegmentId, Slot, Timestamp,
    VersionId,
};
use crate::{Creation, Dataset, Error};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn options() -> OpenOptions {
    OpenOptions { background: false, ..OpenOptions::default() }
}

fn make(size_limit: Option<u64>) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::default());
    let size_limit = size_limit.map(ByteLength);
    Pool::init(storage.clone(), &InitOptions { size_limit, ..InitOptions::small() }).unwrap();
    storage
}

fn open(storage: &Arc<MemoryStorage>) -> Pool {
    Pool::open(storage.clone(), &options()).unwrap()
}

/// A pool with dataset `db`, and a file in it.
fn with_file(storage: &Arc<MemoryStorage>) -> (Pool, Dataset, InodeNumber) {
    let pool = open(storage);
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    (pool, db, file)
}

fn assert_sound(pool: &Pool) {
    let report = pool.scrub(&mut |_| true).unwrap();
    assert_eq!((report.damaged, report.complete), (0, true), "{report:?}");
}

/// Once a full ledger has gone to a new segment, the log may take the old one. A recovery must not go on
/// filling it with ledgers because the checkpoint noted its cursor before the blob was placed.
#[test]
fn a_recovery_does_not_write_ledgers_over_the_log() {
    let storage = make(None);
    let (pool, db, file) = with_file(&storage);
    // So that a full ledger is much longer than the changes between two.
    for index in 0..40 {
        pool.set_property("db", &format!("user:p{index}"), &"x".repeat(4000)).unwrap();
    }
    let mut moved = 0;
    let mut before = None;
    for round in 0_u64..600 {
        db.write(file, round % 64 * 4096, &[round as u8; 4096]).unwrap();
        pool.checkpoint().unwrap();
        let now = pool.engine().state().ledger_cursor.map(|cursor| cursor.segment);
        if now != before && before.is_some() {
            moved += 1;
            // The log goes on until it has taken the segment that ledgers were in, if it does.
            for piece in 0..80 {
                db.write(file, (1 << 20) + (piece << 16), &[7; 1 << 16]).unwrap();
            }
            db.sync().unwrap();
            let crashed = storage.copy();
            let pool = open(&crashed);
            let db = pool.dataset("db").unwrap();
            for byte in 0..4 {
                db.write(file, 0, &[byte; 4096]).unwrap();
                pool.checkpoint().unwrap();
            }
            assert_sound(&pool);
            let mut bytes = vec![0; 5 << 20];
            db.view().unwrap().read(file, 1 << 20, &mut bytes).unwrap();
            assert!(bytes.iter().all(|byte| *byte == 7));
        }
        before = now;
    }
    assert!(moved >= 2, "ledgers stayed in one segment");
}

/// A process that is killed again and again after a few writes must not lock its pool for ever.
#[test]
fn a_hundred_crashes_in_a_row_leave_a_pool_that_opens() {
    let mut storage = make(None);
    let (pool, ..) = with_file(&storage);
    pool.close().unwrap();
    for round in 0..100_u8 {
        let background = OpenOptions { background: true, ..OpenOptions::default() };
        let pool = Pool::open(storage.clone(), &background).unwrap();
        let db = pool.dataset("db").unwrap();
        let file = db.open_or_create(b"a", &Creation::file()).unwrap();
        let mut byte = [0];
        db.view().unwrap().read(file, 0, &mut byte).unwrap();
        assert_eq!(byte[0], round);
        db.write_durable(file, 0, &[round + 1]).unwrap();
        storage = storage.copy();
    }
}

/// A group whose file is gone is refused; that is no reason to give up the pool.
#[test]
fn a_group_on_a_deleted_file_is_refused_and_nothing_else() {
    let storage = make(None);
    let (pool, db, file) = with_file(&storage);
    let mut group = db.begin().unwrap();
    group.write(file, 0, &[1; 4096]).unwrap();
    group.write(file, 1 << 20, &[1; 4096]).unwrap();
    db.unlink(InodeNumber::ROOT, b"a").unwrap();
    assert!(pool.commit(vec![group]).is_err());
    let other = db.open_or_create(b"b", &Creation::file()).unwrap();
    db.write_durable(other, 0, b"still writable").unwrap();
    pool.close().unwrap();
    assert_sound(&open(&storage));
}

/// Filling a pool up ends with "no space" for a caller that adds something, and deleting makes it writable
/// again.
fn fill_and_free(write: impl Fn(&Dataset, u64) -> crate::Result<()>) {
    let storage = make(Some(24 << 20));
    let (pool, db, _) = with_file(&storage);
    for round in 0..3 {
        let mut made = 0;
        let refusal = loop {
            match write(&db, round << 32 | made) {
                Ok(()) => made += 1,
                Err(error) => break error,
            }
            assert!(made < 1 << 20, "the pool is never full");
        };
        assert!(matches!(refusal, Error::NoSpace { .. }), "after {made} writes: {refusal}");
        pool.checkpoint().unwrap();
        // In the order in which they were made: what dies all over the place empties no segment for long, and
        // nothing moves what lives out of the way yet.
        let mut entries = db.view().unwrap().read_directory(InodeNumber::ROOT, 0, usize::MAX).unwrap();
        entries.sort_unstable_by_key(|entry| entry.inode);
        for entry in entries {
            db.unlink(InodeNumber::ROOT, &entry.name).unwrap();
        }
        pool.checkpoint().unwrap();
        pool.checkpoint().unwrap();
    }
    db.sync().unwrap();
    pool.close().unwrap();
    assert_sound(&open(&storage));
}

#[test]
fn a_pool_full_of_small_files_can_be_emptied() {
    fill_and_free(|db, number| {
        db.create(InodeNumber::ROOT, &number.to_le_bytes().map(|byte| byte | 0x80), &Creation::file())
            .map(drop)
            .or_else(|error| match error {
                Error::File(crate::FileFault::Exists) => Ok(()),
                other => Err(other),
            })?;
        let name = format!("{number:016}");
        let file = db.open_or_create(name.as_bytes(), &Creation::file())?;
        db.write(file, 0, b"little")
    });
}

#[test]
fn a_pool_full_of_large_writes_can_be_emptied() {
    fill_and_free(|db, number| {
        let file = db.open_or_create(format!("{number}").as_bytes(), &Creation::file())?;
        db.write(file, 0, &vec![1; 300_000])
    });
}

#[test]
fn a_pool_full_of_groups_can_be_emptied() {
    fill_and_free(|db, number| {
        let file = db.open_or_create(format!("{}", number % 3).as_bytes(), &Creation::file())?;
        let mut group = db.begin()?;
        for index in 0..600 {
            group.write(file, (number * 600 + index * 7) % 3000 * 8192, &[number as u8; 4096])?;
        }
        db.pool().commit(vec![group]).map(|_| ())
    });
}

/// Operations that a damaged or forged log could hold are refused, each of them, and nothing panics.
#[test]
fn hostile_operations_are_refused() {
    let storage = make(None);
    let (pool, db, file) = with_file(&storage);
    db.write(file, 0, &[1; 8192]).unwrap();
    pool.snapshot(&["db@s".to_owned()], false, &[]).unwrap();
    let engine = pool.engine();
    let mut state = engine.state();
    let (dataset, time) = (db.id(), Timestamp(1));
    let at = Placement { address: state.tail.next_address(), segment: state.tail.segment() };
    let write = Write { dataset, inode: file, block: FileBlock(0), blocks: 1, end: 0, time };
    let a_patch = |blocks: &[(u64, u16, usize)]| {
        let of_block = |(block, at, length): &(u64, u16, usize)| BlockPatch {
            block: FileBlock(*block),
            stretches: [Stretch { at: *at, bytes: &vec![1; *length] }].into_iter().collect(),
        };
        Patch { dataset, inode: file, end: 0, time, blocks: blocks.iter().map(of_block).collect() }
    };
    let patch = |blocks: &[(u64, u16, usize)]| Operation::Patch(a_patch(blocks));
    let scatter = |blocks, parts: &[(u32, u64, u32)]| Scatter {
        dataset,
        inode: file,
        blocks,
        end: 0,
        time,
        parts: parts
            .iter()
            .map(|&(at, block, blocks)| Part { at, block: FileBlock(block), blocks })
            .collect(),
    };
    let scattered =
        |scatter, address| Operation::MapScattered { scatter, address, segment: SegmentId(0), slot: Slot(1) };
    let nowhere = DatasetId(u64::MAX);
    let name = |name: &str| name.to_owned();
    let hostile = [
        Operation::Write(Write { blocks: 0, ..write }),
        Operation::Write(Write { block: FileBlock(u64::MAX), ..write }),
        Operation::Write(Write { block: FileBlock(1 << 32), ..write }),
        Operation::Write(Write { end: u64::MAX, ..write }),
        Operation::Write(Write { inode: InodeNumber(0), ..write }),
        Operation::Write(Write { inode: InodeNumber(u64::MAX), ..write }),
        Operation::Write(Write { inode: InodeNumber::ROOT, ..write }),
        Operation::Write(Write { dataset: nowhere, ..write }),
        Operation::Reserved,
        scattered(scatter(0, &[]), LogAddress(5)),
        scattered(scatter(1, &[(0, 0, 1)]), LogAddress(1)),
        Operation::WriteScattered(scatter(0, &[])),
        Operation::WriteScattered(scatter(1, &[])),
        Operation::WriteScattered(scatter(1, &[(0, 0, 2)])),
        Operation::WriteScattered(scatter(1, &[(1, 0, 1)])),
        Operation::WriteScattered(scatter(1, &[(u32::MAX, 0, 2)])),
        Operation::WriteScattered(scatter(2, &[(0, 0, 0), (0, 0, 1)])),
        Operation::WriteScattered(scatter(2, &[(0, 5, 1), (0, 6, 1)])),
        Operation::WriteScattered(scatter(2, &[(0, 5, 1), (1, 5, 1)])),
        Operation::WriteScattered(scatter(2, &[(0, 6, 1), (1, 5, 1)])),
        Operation::WriteScattered(scatter(1, &[(0, u64::MAX, 1)])),
        Operation::WriteScattered(scatter(1, &[(0, 1 << 32, 1)])),
        Operation::WriteInline { dataset, inode: file, offset: u64::MAX, bytes: vec![1; 9], time },
        Operation::WriteInline { dataset, inode: file, offset: 1 << 44, bytes: vec![1], time },
        Operation::WriteInline { dataset, inode: InodeNumber(0), offset: 0, bytes: vec![1], time },
        patch(&[]),
        patch(&[(1 << 32, 0, 1)]),
        patch(&[(1, 0, 1), (1, 8, 1)]),
        patch(&[(1, 0, 1), (0, 8, 1)]),
        patch(&[(1, 4090, 7)]),
        patch(&[(1, u16::MAX, 7)]),
        Operation::Patch(Patch { end: u64::MAX, ..a_patch(&[(1, 0, 1)]) }),
        Operation::Patch(Patch { inode: InodeNumber(0), ..a_patch(&[(1, 0, 1)]) }),
        Operation::Truncate { dataset, inode: file, size: u64::MAX, time },
        Operation::Truncate { dataset, inode: InodeNumber(77), size: 0, time },
        Operation::PunchHole { dataset, inode: InodeNumber(0), offset: 0, length: u64::MAX, time },
        Operation::ReleaseOrphan { dataset, inode: file, items_max: 0 },
        Operation::CreateDataset { name: name("db"), time, properties: Vec::new() },
        Operation::Snapshot { snapshots: vec![(nowhere, name("x"))], time, properties: Vec::new() },
        Operation::Snapshot { snapshots: vec![(dataset, name("s"))], time, properties: Vec::new() },
        Operation::DestroySnapshots { versions: vec![VersionId(1)] },
        Operation::DestroySnapshots { versions: vec![VersionId(u64::MAX)] },
        Operation::DestroyDatasets { datasets: vec![nowhere] },
        Operation::Clone { origin: VersionId(1), name: name("c"), time },
        Operation::Clone { origin: VersionId(2), name: name("db"), time },
        Operation::Rollback { dataset, snapshot: VersionId(9), saved: name("r"), time },
        Operation::Rollback { dataset, snapshot: VersionId(2), saved: name("s"), time },
        Operation::RenameDatasets { names: vec![(dataset, name("db"))] },
        Operation::RenameSnapshots { names: vec![(VersionId(2), name("s"))] },
        Operation::Hold { version: VersionId(1), tag: name("t"), since: None },
        Operation::SetProperty { target: Target::Dataset(nowhere), key: name("k"), value: None },
    ];
    for operation in hostile {
        let outcome = state.apply(&operation, at, &engine.environment());
        assert!(outcome.is_err(), "{operation:?}");
    }
    // A hole as long as there are numbers is only as long as the file.
    let punch = Operation::PunchHole { dataset, inode: file, offset: 4095, length: u64::MAX, time };
    state.apply(&punch, at, &engine.environment()).unwrap();
    drop(state);
    let view = db.view().unwrap();
    let mut bytes = [1; 8192];
    view.read(file, 0, &mut bytes).unwrap();
    assert!(bytes[..4095].iter().all(|byte| *byte == 1) && bytes[4095..].iter().all(|byte| *byte == 0));
}

/// Two runs were on their way when the pool crashed, and only the later one arrived. It is found behind the
/// hole.
#[test]
fn checksums_of_runs_are_found_behind_a_hole() {
    let storage = make(None);
    let (pool, ..) = with_file(&storage);
    let engine = pool.engine();
    let content = AlignedBuffer::zeroed(3 * BLOCK_BYTES);
    let sums: Vec<u32> = content.chunks_exact(BLOCK_BYTES).map(crc32c).collect();
    let payload = Payload { buffer: Arc::new(content), first: 0, sums };
    let (segment, first, _) = engine.write_run(Filling::Runs, &payload, &[], Purpose::Data).unwrap();
    let (same, second, _) = engine.write_run(Filling::Runs, &payload, &[], Purpose::Data).unwrap();
    assert_eq!(segment, same);
    let blank = AlignedBuffer::zeroed(4 * BLOCK_BYTES);
    let files = engine.blocks.files();
    files.write(segment, Slot(first.0 - 1), &[(Kind::Data, &blank)]).unwrap();
    engine.blocks.sums().forget(segment);
    let mut bytes = vec![1; 3 * BLOCK_BYTES];
    engine.blocks.read_verified(segment, second, &mut bytes).unwrap();
    assert!(engine.blocks.read_verified(segment, first, &mut bytes).is_err());
}

/// A feature that only writers have to know leaves a pool that can be read.
#[test]
fn a_newer_pool_is_read_and_not_written() {
    let storage = make(None);
    let (pool, db, file) = with_file(&storage);
    db.write(file, 0, b"from the future").unwrap();
    pool.close().unwrap();
    let mut newer = pool.engine().superblock.lock().clone();
    newer.features_to_write = 1 << 40;
    for name in NAMES {
        let block = AlignedBuffer::copied(&newer.encode());
        storage.open(name, true).unwrap().write_at(&[(Kind::Frame, &block)], 0).unwrap();
    }
    let refused = Pool::open(storage.clone(), &options()).map(drop).unwrap_err();
    assert!(matches!(refused, Error::NewerFormat { .. }), "{refused}");
    let pool = Pool::open(storage, &OpenOptions { read_only: true, ..options() }).unwrap();
    let mut bytes = [0; 15];
    pool.view("db").unwrap().read(file, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"from the future");
}

/// A pool that is being closed takes nothing more: it would be durable behind a mark that says "nothing".
#[test]
fn nothing_slips_by_a_close() {
    let storage = make(None);
    let (pool, db, file) = with_file(&storage);
    pool.engine().state().closing = true;
    assert!(db.write(file, 0, b"late").is_err());
    pool.engine().state().closing = false;
    db.write(file, 0, b"early").unwrap();
    pool.close().unwrap();
    let pool = open(&storage);
    let mut bytes = [0; 5];
    pool.view("db").unwrap().read(file, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"early");
}

/// A thread that waited for the last checkpoint of a close to end finds the pool closed: another process may
/// open it.
#[test]
fn nothing_is_written_behind_a_close() {
    let storage = make(None);
    let (pool, db, file) = with_file(&storage);
    db.write(file, 0, b"early").unwrap();
    let engine = pool.engine();
    engine.checkpoint_to_close().unwrap();
    let closed = superblocks::read(&*storage).unwrap();
    assert!(closed.clean);
    assert!(engine.run_checkpoint().is_err());
    assert!(engine.say_of_copies().is_err());
    assert!(engine.record_moves().is_err());
    assert!(engine.state().closing);
    assert_eq!(superblocks::read(&*storage).unwrap(), closed);
    assert_eq!(engine.writer.failure(), None);
}

/// A panic in the middle of writing leaves no thread waiting for a turn that never comes.
#[test]
fn a_panic_while_writing_fails_the_pool() {
    let storage = make(None);
    let (pool, db, file) = with_file(&storage);
    db.write_durable(file, 0, b"safe").unwrap();
    storage.set_flushes(Flushes::Broken);
    assert!(catch_unwind(AssertUnwindSafe(|| db.write_durable(file, 0, b"lost"))).is_err());
    storage.set_flushes(Flushes::Done);
    for refused in [db.write_durable(file, 0, b"late"), db.sync(), pool.checkpoint().map(drop)] {
        assert!(matches!(refused, Err(Error::ReadOnlyAfterFailure { .. })), "{refused:?}");
    }
    assert!(pool.statistics().failure.is_some_and(|failure| failure.contains("panicked")));
    assert!(matches!(pool.close(), Err(Error::ReadOnlyAfterFailure { .. })));
}

/// Nor does one in the thread that writes ahead leave a committing thread waiting for word of it.
#[test]
fn a_panic_while_writing_ahead_fails_the_pool() {
    let storage = make(None);
    let (pool, db, file) = with_file(&storage);
    db.write_durable(file, 0, b"safe").unwrap();
    drop((pool, db));
    let options = OpenOptions { control_socket: false, ..OpenOptions::default() };
    let pool = Pool::open(storage.clone(), &options).unwrap();
    let db = pool.dataset("db").unwrap();
    let mut group = db.begin().unwrap();
    let mut piece = vec![7; 1 << 20];
    piece[..POISON.len()].copy_from_slice(POISON);
    let outcome = (0..8).try_for_each(|number| group.write(file, number << 20, &piece));
    let outcome = outcome.and_then(|()| pool.commit(vec![group]).map(drop));
    assert!(matches!(outcome, Err(Error::ReadOnlyAfterFailure { .. })), "{outcome:?}");
    assert!(pool.statistics().failure.is_some_and(|failure| failure.contains("icecore-staging panicked")));
    let mut bytes = [0; 4];
    pool.view("db").unwrap().read(file, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"safe");
}

/// It may be that no caller met a failure in the background before the pool is closed. The close reports it
/// if something is lost.
#[test]
fn a_close_does_not_hide_that_something_is_lost() {
    for is_lost in [false, true] {
        let storage = make(None);
        let (pool, db, file) = with_file(&storage);
        db.write_durable(file, 0, b"safe").unwrap();
        if is_lost {
            db.write(file, 0, b"lost").unwrap();
        }
        pool.engine().writer.fail("the cable was pulled");
        let closed = pool.close();
        assert_eq!(matches!(closed, Err(Error::ReadOnlyAfterFailure { .. })), is_lost, "{closed:?}");
        let pool = open(&storage);
        let mut bytes = [0; 4];
        pool.view("db").unwrap().read(file, 0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"safe");
    }
}

/// A checkpoint writes what a reader holds of blocks that were merged from small writes, like everything
/// else. It does not stay in memory for as long as a reader might read it.
#[test]
fn merged_blocks_that_only_a_reader_holds_leave_the_memory() {
    let storage = make(None);
    let (pool, db, file) = with_file(&storage);
    let pending = || pool.engine().blocks.pending().count();
    db.write(file, 0, &[1; 8 * BLOCK_BYTES]).unwrap();
    let mut views = Vec::new();
    for round in 0..40_u8 {
        for block in 0..8 {
            db.write(file, block * BLOCK_BYTES as u64 + 100, &[round; 10]).unwrap();
        }
        if round % 3 == 0 {
            views.push((round, db.view().unwrap()));
        }
        if round % 5 == 4 {
            pool.checkpoint().unwrap();
            assert_eq!(pending(), 0, "after round {round}");
        }
    }
    let mut bytes = [0; 10];
    for (round, view) in &views {
        for block in 0..8 {
            assert_eq!(view.read(file, block * BLOCK_BYTES as u64 + 100, &mut bytes).unwrap(), 10);
            assert_eq!(bytes, [*round; 10]);
        }
    }
    pool.verify().unwrap();
    assert_sound(&open(&storage.copy()));
    drop(views);
    pool.checkpoint().unwrap();
    pool.checkpoint().unwrap();
    pool.close().unwrap();
    assert_sound(&open(&storage));
}

/// The first bytes of blocks of a file, as its dataset has them now.
fn beginnings(db: &Dataset, file: InodeNumber, blocks: u64) -> Vec<[u8; 4]> {
    let view = db.view().unwrap();
    let beginning = |block| {
        let mut bytes = [0; 4];
        view.read(file, block * BLOCK_BYTES as u64 + 100, &mut bytes).unwrap();
        bytes
    };
    (0..blocks).map(beginning).collect()
}

/// A group that changes little of blocks that are in memory logs what it changes.
#[test]
fn a_small_group_is_a_header_block() {
    let storage = make(None);
    let (pool, db, file) = with_file(&storage);
    db.write(file, 0, &[1; 3 * BLOCK_BYTES]).unwrap();
    pool.snapshot(&["db@before".to_owned()], false, &[]).unwrap();
    let logged = || (pool.statistics().logged_data_bytes, pool.statistics().logged_header_bytes);
    let before = logged();
    let mut group = db.begin().unwrap();
    group.write(file, 100, b"abcd").unwrap();
    group.write(file, 2 * BLOCK_BYTES as u64 + 100, b"efgh").unwrap();
    pool.make_durable(pool.commit(vec![group]).unwrap()).unwrap();
    assert_eq!(logged(), (before.0, before.1 + BLOCK_BYTES as u64));
    // New blocks are logged whole beside it, and the file may grow.
    let mut group = db.begin().unwrap();
    group.write(file, BLOCK_BYTES as u64 + 100, b"ijkl").unwrap();
    group.write(file, 3 * BLOCK_BYTES as u64, &[2; BLOCK_BYTES]).unwrap();
    pool.make_durable(pool.commit(vec![group]).unwrap()).unwrap();
    assert_eq!(logged(), (before.0 + BLOCK_BYTES as u64, before.1 + 2 * BLOCK_BYTES as u64));
    let expected = [*b"abcd", *b"ijkl", *b"efgh", [2; 4]];
    assert_eq!(beginnings(&db, file, 4), expected);
    let crashed = open(&storage.copy());
    assert_eq!(beginnings(&crashed.dataset("db").unwrap(), file, 4), expected);
    crashed.verify().unwrap();
    assert_sound(&crashed);
    pool.close().unwrap();
    let pool = open(&storage);
    assert_eq!(beginnings(&pool.dataset("db").unwrap(), file, 4), expected);
    let mut bytes = [0; 4];
    pool.view("db@before").unwrap().read(file, 100, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 4]);
    assert_sound(&pool);
}

/// A group replaces blocks as a whole, whatever became of them since it began.
#[test]
fn what_a_group_did_not_see_is_not_merged_into_what_it_writes() {
    let storage = make(None);
    let (pool, db, file) = with_file(&storage);
    db.write(file, 0, &[1; 2 * BLOCK_BYTES]).unwrap();
    let mut group = db.begin().unwrap();
    group.write(file, 500, b"abcd").unwrap();
    group.write(file, BLOCK_BYTES as u64 + 500, b"abcd").unwrap();
    db.write(file, 100, b"lost").unwrap();
    pool.make_durable(pool.commit(vec![group]).unwrap()).unwrap();
    assert_eq!(beginnings(&db, file, 2), [[1; 4]; 2]);
    let crashed = open(&storage.copy());
    assert_eq!(beginnings(&crashed.dataset("db").unwrap(), file, 2), [[1; 4]; 2]);
    assert_sound(&crashed);
}

/// Another process may have opened it. A reader that was in the middle of healing, or a group that was
/// writing ahead, comes too late.
#[test]
fn nothing_is_written_to_segments_of_a_pool_that_was_closed() {
    let storage = make(None);
    let (pool, _db, _file) = with_file(&storage);
    let engine = pool.engine();
    pool.close().unwrap();
    let content = || {
        storage.open("segment.00000000", false).and_then(|file| {
            let mut block = vec![0; BLOCK_BYTES];
            file.read_at(&mut block, 0).map(|()| block)
        })
    };
    let before = content().unwrap();
    let other = AlignedBuffer::copied(&[7; BLOCK_BYTES]);
    let files = engine.blocks.files();
    let refused = files.write(SegmentId(0), Slot(0), &[(Kind::Data, &other)]);
    assert!(matches!(refused, Err(Error::Invalid(text)) if text.contains("was closed")));
    files.heal(SegmentId(0), Slot(0), &other, &Error::damaged("a place", "it was ordered"), || true);
    assert_eq!(content().unwrap(), before);
}

/// What a bulk load wrote between two flushes says nothing about the commits behind it.
#[test]
fn small_commits_behind_a_bulk_load_have_segments_written_ahead() {
    let storage = make(None);
    let options = OpenOptions { background: true, control_socket: false, ..OpenOptions::default() };
    let pool = Pool::open(storage, &options).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    let piece = vec![7; 1 << 20];
    (0..128).for_each(|number| {
        db.write(file, number << 20, &piece).unwrap();
    });
    db.sync().unwrap();
    // Segments that are made for the log are not written when it takes them.
    let is_written = || pool.engine().state().segments.free_written() > 0;
    assert!(!is_written());
    let is_ahead = (0_u64..200).any(|number| {
        db.write_durable(file, number << 14, &piece[..16 << 10]).unwrap();
        // The background has time to do it.
        std::thread::sleep(std::time::Duration::from_millis(2));
        is_written()
    });
    assert!(is_ahead);
}
