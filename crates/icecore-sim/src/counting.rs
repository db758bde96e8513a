//! A storage that counts what passes through it.

use crate::passing::{PassingStorage, Watch};
use icecore::storage::{Kind, Storage};
use std::io;
use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters that many threads add to. Calls are counted when they are made, whether or not they succeed.
#[derive(Default, Debug)]
pub struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    fetches: AtomicU64,
    fetched_bytes: AtomicU64,
    writes: AtomicU64,
    parts: [AtomicU64; Kind::COUNT],
    bytes: [AtomicU64; Kind::COUNT],
    syncs: AtomicU64,
    directory_syncs: AtomicU64,
    creates: AtomicU64,
    created_bytes: AtomicU64,
    opens: AtomicU64,
    removes: AtomicU64,
    renames: AtomicU64,
}

/// What [`Counters`] stood at, at one moment. Subtract two for what happened in between.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Calls of `read_at` and `read_direct`.
    pub reads: u64,
    /// Bytes asked for by them.
    pub read_bytes: u64,
    /// Calls of `will_read`.
    pub fetches: u64,
    /// Bytes announced by them.
    pub fetched_bytes: u64,
    /// Calls of `write_at`.
    pub writes: u64,
    /// Parts handed to them, by kind (index with `Kind as usize`).
    pub parts: [u64; Kind::COUNT],
    /// Bytes handed to them, by kind.
    pub bytes: [u64; Kind::COUNT],
    /// Calls of `sync`.
    pub syncs: u64,
    /// Calls of `sync_directory`.
    pub directory_syncs: u64,
    /// Calls of `create`.
    pub creates: u64,
    /// Bytes asked for by them.
    pub created_bytes: u64,
    /// Calls of `open`.
    pub opens: u64,
    /// Calls of `remove`.
    pub removes: u64,
    /// Calls of `rename`.
    pub renames: u64,
}

impl Counts {
    /// Bytes written of one kind.
    #[must_use]
    pub const fn bytes_of(&self, kind: Kind) -> u64 {
        self.bytes[kind as usize]
    }

    /// Bytes written, all kinds together.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.bytes.iter().sum()
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes - earlier.read_bytes,
            fetches: self.fetches - earlier.fetches,
            fetched_bytes: self.fetched_bytes - earlier.fetched_bytes,
            writes: self.writes - earlier.writes,
            parts: std::array::from_fn(|kind| self.parts[kind] - earlier.parts[kind]),
            bytes: std::array::from_fn(|kind| self.bytes[kind] - earlier.bytes[kind]),
            syncs: self.syncs - earlier.syncs,
            directory_syncs: self.directory_syncs - earlier.directory_syncs,
            creates: self.creates - earlier.creates,
            created_bytes: self.created_bytes - earlier.created_bytes,
            opens: self.opens - earlier.opens,
            removes: self.removes - earlier.removes,
            renames: self.renames - earlier.renames,
        }
    }
}

impl Counters {
    /// All counters. While others count on, the numbers need not be of the very same moment.
    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts {
            reads: self.reads.load(Relaxed),
            read_bytes: self.read_bytes.load(Relaxed),
            fetches: self.fetches.load(Relaxed),
            fetched_bytes: self.fetched_bytes.load(Relaxed),
            writes: self.writes.load(Relaxed),
            parts: std::array::from_fn(|kind| self.parts[kind].load(Relaxed)),
            bytes: std::array::from_fn(|kind| self.bytes[kind].load(Relaxed)),
            syncs: self.syncs.load(Relaxed),
            directory_syncs: self.directory_syncs.load(Relaxed),
            creates: self.creates.load(Relaxed),
            created_bytes: self.created_bytes.load(Relaxed),
            opens: self.opens.load(Relaxed),
            removes: self.removes.load(Relaxed),
            renames: self.renames.load(Relaxed),
        }
    }
}

impl Watch for Counters {
    fn read(&self, bytes: usize) {
        self.reads.fetch_add(1, Relaxed);
        self.read_bytes.fetch_add(bytes as u64, Relaxed);
    }

    fn will_read(&self, bytes: u64) {
        self.fetches.fetch_add(1, Relaxed);
        self.fetched_bytes.fetch_add(bytes, Relaxed);
    }

    fn write(&self, parts: &[(Kind, &[u8])]) {
        self.writes.fetch_add(1, Relaxed);
        for (kind, bytes) in parts {
            self.parts[*kind as usize].fetch_add(1, Relaxed);
            self.bytes[*kind as usize].fetch_add(bytes.len() as u64, Relaxed);
        }
    }

    fn sync(&self, flush: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.syncs.fetch_add(1, Relaxed);
        flush()
    }

    fn directory_sync(&self, flush: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        self.directory_syncs.fetch_add(1, Relaxed);
        flush()
    }

    fn create(&self, bytes: u64) {
        self.creates.fetch_add(1, Relaxed);
        self.created_bytes.fetch_add(bytes, Relaxed);
    }

    fn open(&self) {
        self.opens.fetch_add(1, Relaxed);
    }

    fn remove(&self) {
        self.removes.fetch_add(1, Relaxed);
    }

    fn rename(&self) {
        self.renames.fetch_add(1, Relaxed);
    }
}

/// Counts everything that is asked of another storage.
pub type CountingStorage<S> = PassingStorage<S, Counters>;

impl<S: Storage + ?Sized> CountingStorage<S> {
    /// Counts what is asked of `inner`.
    pub fn new(inner: Arc<S>) -> Self {
        Self::watched(inner, Arc::default())
    }

    /// The counters, to keep.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(self.watch())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore::storage::RealStorage;

    #[test]
    fn everything_is_counted_and_passed_on() {
        let folder = tempfile::tempdir().unwrap();
        let real: Arc<dyn Storage> = Arc::new(RealStorage::new(folder.path()).unwrap());
        let storage = CountingStorage::new(real);
        let counters = storage.counters();
        let file = storage.create("a", 8192).unwrap();
        file.write_at(&[(Kind::Data, &[1; 100]), (Kind::Node, &[2; 10]), (Kind::Data, &[3; 1])], 7).unwrap();
        let before = counters.counts();
        assert_eq!(before.bytes, [101, 0, 10, 0, 0, 0, 0]);
        assert_eq!(before.parts, [2, 0, 1, 0, 0, 0, 0]);
        assert_eq!((before.creates, before.created_bytes, before.writes), (1, 8192, 1));
        file.write_at(&[(Kind::Frame, &[4; 5])], 8000).unwrap();
        assert!(file.is_written().is_ok());

        let mut buffer = [0; 3];
        file.read_at(&mut buffer, 106).unwrap();
        assert_eq!(buffer, [1, 2, 2]);
        file.sync().unwrap();
        storage.rename("a", "b").unwrap();
        storage.sync_directory().unwrap();
        assert!(storage.open("a", false).is_err());
        storage.remove("b").unwrap();
        let since = counters.counts() - before;
        let expected = Counts {
            reads: 1,
            read_bytes: 3,
            writes: 1,
            parts: [0, 0, 0, 0, 1, 0, 0],
            bytes: [0, 0, 0, 0, 5, 0, 0],
            syncs: 1,
            directory_syncs: 1,
            opens: 1,
            removes: 1,
            renames: 1,
            ..Counts::default()
        };
        assert_eq!(since, expected);
        assert_eq!(since.written_bytes(), 5);
        assert_eq!(storage.directory(), Some(folder.path().canonicalize().unwrap()));
    }
}
