//! Files in memory, for tests: a copy of it at any moment is what a killed process leaves behind.

use super::{Kind, Space, Storage, StorageFile, StorageLock};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::Arc;

type Bytes = Arc<Mutex<Vec<u8>>>;
/// Names of files, and bytes of them.
type Stretches = Vec<(String, Range<u64>)>;
/// What is called around each read, with the file and the place.
type Watch = dyn Fn(When, &str, u64) + Send + Sync;

/// A thread that writes a stretch that begins so panics.
pub(crate) const POISON: &[u8] = b"a thread that writes this panics";

/// A folder in memory.
#[derive(Default)]
pub(crate) struct MemoryStorage {
    files: Mutex<BTreeMap<String, Bytes>>,
    flushes: Arc<Mutex<Flushes>>,
    unreadable: Arc<Mutex<Stretches>>,
    forbidden: Mutex<BTreeSet<String>>,
    watch: Arc<Mutex<Option<Arc<Watch>>>>,
}

/// On which side of a read it is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    Before,
    After,
}

/// What becomes of flushes of files.
#[derive(Clone, Copy, Default)]
pub(crate) enum Flushes {
    #[default]
    Done,
    Refused,
    /// A thread that flushes panics.
    Broken,
}

impl MemoryStorage {
    /// What is there now, unlocked and with no process at work on it.
    pub(crate) fn copy(&self) -> Arc<Self> {
        let files = self.files.lock();
        let copied =
            |(name, bytes): (&String, &Bytes)| (name.clone(), Arc::new(Mutex::new(bytes.lock().clone())));
        Arc::new(Self { files: Mutex::new(files.iter().map(copied).collect()), ..Self::default() })
    }

    /// What becomes of flushes of files from now on.
    pub(crate) fn set_flushes(&self, flushes: Flushes) {
        *self.flushes.lock() = flushes;
    }

    /// Bytes of a file cannot be read from now on.
    pub(crate) fn make_unreadable(&self, name: &str, bytes: Range<u64>) {
        self.unreadable.lock().push((name.to_owned(), bytes));
    }

    /// The user of this process has no right to open a file from now on.
    pub(crate) fn forbid(&self, name: &str) {
        self.forbidden.lock().insert(name.to_owned());
    }

    /// Calls this around each read from now on.
    pub(crate) fn watch_reads(&self, watch: impl Fn(When, &str, u64) + Send + Sync + 'static) {
        *self.watch.lock() = Some(Arc::new(watch));
    }

    /// Calls nothing any more.
    pub(crate) fn unwatch(&self) {
        *self.watch.lock() = None;
    }

    fn file(&self, name: &str, bytes: &Bytes) -> Box<dyn StorageFile> {
        let (bytes, name) = (Arc::clone(bytes), name.to_owned());
        let (flushes, unreadable) = (Arc::clone(&self.flushes), Arc::clone(&self.unreadable));
        Box::new(MemoryFile { name, bytes, flushes, unreadable, watch: Arc::clone(&self.watch) })
    }
}

struct NoLock;

impl StorageLock for NoLock {}

struct MemoryFile {
    name: String,
    bytes: Bytes,
    flushes: Arc<Mutex<Flushes>>,
    unreadable: Arc<Mutex<Stretches>>,
    watch: Arc<Mutex<Option<Arc<Watch>>>>,
}

impl MemoryFile {
    fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset + buffer.len() as u64;
        let bad = |(name, range): &(String, Range<u64>)| {
            *name == self.name && range.start < end && offset < range.end
        };
        if self.unreadable.lock().iter().any(bad) {
            return Err(io::Error::other("bad sector"));
        }
        let bytes = self.bytes.lock();
        let from = bytes.get(offset as usize..).and_then(|rest| rest.get(..buffer.len()));
        buffer.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl Storage for MemoryStorage {
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        let bytes: Bytes = Arc::new(Mutex::new(vec![0; length as usize]));
        let mut files = self.files.lock();
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        files.insert(name.to_owned(), Arc::clone(&bytes));
        Ok(self.file(name, &bytes))
    }

    fn open(&self, name: &str, _writable: bool) -> io::Result<Box<dyn StorageFile>> {
        if self.forbidden.lock().contains(name) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let files = self.files.lock();
        let bytes = files.get(name).ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(name, bytes))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().remove(name).map(|_| ()).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.files.lock();
        let bytes = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let files = self.files.lock();
        Ok(files.iter().map(|(name, bytes)| (name.clone(), bytes.lock().len() as u64)).collect())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space { total: 1 << 40, free: 1 << 40 })
    }

    fn lock(&self, _exclusive: bool) -> io::Result<Box<dyn StorageLock>> {
        Ok(Box::new(NoLock))
    }

    fn describe(&self) -> String {
        "a pool in memory".to_owned()
    }
}

impl StorageFile for MemoryFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        // It may read, too, and is not called under a lock.
        let Some(watch) = self.watch.lock().clone() else { return self.read(buffer, offset) };
        watch(When::Before, &self.name, offset);
        self.read(buffer, offset)?;
        watch(When::After, &self.name, offset);
        Ok(())
    }

    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        assert!(
            parts.iter().all(|(_, part)| !part.starts_with(POISON)),
            "writing is broken, as it is meant to be"
        );
        let mut bytes = self.bytes.lock();
        let mut at = offset as usize;
        for (_, part) in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let flushes = *self.flushes.lock();
        match flushes {
            Flushes::Done => Ok(()),
            Flushes::Refused => Err(io::Error::other("refused")),
            Flushes::Broken => panic!("flushing is broken, as it is meant to be"),
        }
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }
}
