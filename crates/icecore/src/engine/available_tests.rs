//! What `available_bytes` says can be written, and it says nothing where a little is refused.

use crate::format::copies::CopyMode;
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, ByteLength, InodeNumber};
use crate::{Creation, Dataset, DestroyTarget, Error, Result};
use std::sync::Arc;

const SEGMENT: u64 = 2 << 20;
/// What a small transaction writes beside the first block of its file.
const SMALL: u64 = 20_000;

fn options(background: bool) -> OpenOptions {
    OpenOptions { background, control_socket: false, ..OpenOptions::default() }
}

/// A file that grows, as that of a database does: each transaction also changes some of its first block.
struct Growing {
    pool: Pool,
    db: Dataset,
    file: InodeNumber,
    length: u64,
}

impl Growing {
    fn open(storage: &Arc<MemoryStorage>, background: bool) -> Self {
        let pool = Pool::open(storage.clone(), &options(background)).unwrap();
        if pool.dataset("db").is_err() {
            pool.create_dataset("db", false, &[]).unwrap();
        }
        let db = pool.dataset("db").unwrap();
        let file = db.open_or_create(b"f", &Creation::file()).unwrap();
        let length = db.view().unwrap().attributes(file).unwrap().size;
        Self { pool, db, file, length }
    }

    fn add(&mut self, bytes: u64) -> Result<()> {
        let mut group = self.db.begin()?;
        group.write(self.file, 24, &self.length.to_le_bytes())?;
        let end = (self.length + bytes).next_multiple_of(BLOCK_BYTES as u64);
        let mut at = self.length.max(BLOCK_BYTES as u64);
        while at < end {
            group.write(self.file, at, &[at as u8; BLOCK_BYTES])?;
            at += BLOCK_BYTES as u64;
        }
        let point = self.pool.commit(vec![group])?;
        self.pool.make_durable(point)?;
        self.length = end;
        Ok(())
    }

    fn is_filling_up(&self) -> bool {
        let engine = self.pool.engine();
        engine.is_filling_up(&engine.state())
    }

    fn available(&self) -> u64 {
        self.pool.statistics().available_bytes
    }

    /// Adds so much again and again, until there is no room for it.
    fn fill(&mut self, bytes: u64) -> u32 {
        for times in 0.. {
            match self.add(bytes) {
                Ok(()) => {}
                Err(Error::NoSpace { .. }) => return times,
                Err(error) => panic!("{error}"),
            }
        }
        unreachable!("every pool is full some time")
    }
}

fn made(copies: CopyMode, files: u64) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::default());
    let size_limit = Some(ByteLength(files * SEGMENT));
    Pool::init(storage.clone(), &InitOptions { copies, size_limit, ..InitOptions::small() }).unwrap();
    storage
}

/// Pools of all sorts: how second copies are made, how many files of the size of a segment there may be, and
/// whether there are threads.
fn pools() -> impl Iterator<Item = (Arc<MemoryStorage>, bool)> {
    [(CopyMode::None, 20), (CopyMode::Metadata, 32), (CopyMode::All, 48)]
        .into_iter()
        .flat_map(|(copies, files)| [false, true].map(|background| (made(copies, files), background)))
}

#[test]
fn where_a_little_is_refused_nothing_is_available() {
    for (storage, background) in pools() {
        let mut growing = Growing::open(&storage, background);
        growing.fill(10 * SMALL);
        for life in 0..4 {
            growing.fill(SMALL);
            assert_eq!(growing.available(), 0, "in life {life}");
            growing.pool.close().unwrap();
            drop(growing);
            let read_only = OpenOptions { read_only: true, ..options(false) };
            let seen = Pool::open(storage.clone(), &read_only).unwrap().statistics().available_bytes;
            growing = Growing::open(&storage, background);
            let times = growing.fill(SMALL);
            assert!(seen == 0 || times > 0, "{seen} bytes are said to be there, and {SMALL} are refused");
        }
        growing.pool.verify().unwrap();
    }
}

/// What comes back is reported, and can be had.
#[test]
fn something_is_available_again_when_space_comes_back() {
    for (storage, background) in pools() {
        let mut growing = Growing::open(&storage, background);
        growing.fill(10 * SMALL);
        growing.fill(SMALL);
        let limit = growing.pool.statistics().size_limit_bytes;
        growing.pool.set_size_limit(Some(ByteLength(limit + 6 * SEGMENT))).unwrap();
        let available = growing.available();
        assert!(available > 0);
        growing.add(available / 2).unwrap();
        growing.fill(SMALL);
        assert_eq!(growing.available(), 0);
        growing.pool.verify().unwrap();
    }
}

#[test]
fn half_of_what_is_available_goes_in_at_once() {
    for (storage, background) in pools() {
        for begun in 0..6 {
            let storage = storage.copy();
            let mut growing = Growing::open(&storage, background);
            growing.add(1 + begun * SEGMENT / 6).unwrap();
            loop {
                let available = growing.available();
                if available == 0 {
                    break;
                }
                let outcome = growing.add(available / 2);
                assert!(outcome.is_ok(), "{begun}: of {available}, half is refused: {outcome:?}");
            }
            growing.pool.verify().unwrap();
        }
    }
}

/// A pool that is written to again and again grows to its limit. What is dead in it is room all the same.
#[test]
fn what_is_dead_is_available() {
    for background in [false, true] {
        let mut growing = Growing::open(&made(CopyMode::None, 80), background);
        growing.add(4 * SEGMENT).unwrap();
        while growing.pool.statistics().segments < 78 && growing.pool.statistics().segments_recycled < 100 {
            let end = growing.length;
            growing.length = BLOCK_BYTES as u64;
            growing.add(SEGMENT).unwrap();
            growing.length = end;
        }
        growing.pool.checkpoint().unwrap();
        let statistics = growing.pool.statistics();
        let available = statistics.available_bytes;
        assert!(available > 40 * SEGMENT && available < 76 * SEGMENT, "{background}: {statistics:?}");
        for _ in 0..available / 2 / SEGMENT {
            growing.add(SEGMENT).unwrap();
        }
        assert!(growing.available() > 0);
        growing.pool.verify().unwrap();
    }
}

/// What a large transaction has written is not dead, though nothing says yet that it lives.
#[test]
fn what_a_group_has_staged_is_not_available() {
    let mut growing = Growing::open(&made(CopyMode::None, 80), false);
    growing.add(4 * SEGMENT).unwrap();
    let before = growing.available();
    let mut group = growing.db.begin().unwrap();
    let (mut at, mut staged) = (growing.length, 0);
    while growing.available() > 0 {
        if let Err(error) = group.write(growing.file, at, &[7; BLOCK_BYTES]) {
            assert!(matches!(error, Error::NoSpace { .. }), "{error}");
            break;
        }
        at += BLOCK_BYTES as u64;
        staged += BLOCK_BYTES as u64;
    }
    assert!(staged > before / 2, "{staged} of {before}");
    assert_eq!(growing.available(), 0);
    drop(group);
    growing.pool.checkpoint().unwrap();
    assert!(growing.available() > before / 2);
}

/// Where room is getting scarce, a caller that destroys much finds it free at once. Snapshots that come and
/// go in such a pool, and keep little, do not cost a checkpoint each.
#[test]
fn a_checkpoint_is_made_for_what_is_destroyed_if_it_is_much() {
    let storage = made(CopyMode::None, 80);
    let mut growing = Growing::open(&storage, false);
    while !growing.is_filling_up() {
        growing.add(SEGMENT).unwrap();
    }
    assert!(growing.available() > 0, "it is not full yet");
    let rewrite = |growing: &Growing, bytes: u64| {
        for at in (0..bytes).step_by(BLOCK_BYTES) {
            growing.db.write(growing.file, BLOCK_BYTES as u64 + at, &[9; BLOCK_BYTES]).unwrap();
        }
        growing.db.sync().unwrap();
    };
    for (bytes, expected) in [(16 * BLOCK_BYTES as u64, 0), (2 * SEGMENT, 1)] {
        growing.pool.snapshot(&["db@s".to_owned()], false, &[]).unwrap();
        rewrite(&growing, bytes);
        growing.pool.checkpoint().unwrap();
        let checkpoints = || growing.pool.statistics().checkpoints;
        let before = checkpoints();
        let plan = growing.pool.destroy(&DestroyTarget::Snapshot("db@s".to_owned())).unwrap();
        assert!(plan.frees.0 >= bytes);
        assert_eq!(checkpoints() - before, expected, "{bytes}");
    }
}
