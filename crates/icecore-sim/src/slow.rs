//! A storage that takes its time to flush, as disks do that have no memory with a battery.

use icecore::storage::{Kind, Space, Storage, StorageFile, StorageLock};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Another storage, of which a flush takes at least so long. Nothing else is changed: what a flush has to do for another
/// goes on meanwhile, and so do reads and writes.
pub struct SlowStorage<S: Storage + ?Sized> {
    flush: Duration,
    inner: Arc<S>,
}

impl<S: Storage + ?Sized> SlowStorage<S> {
    /// Has each flush of `inner` take `flush` at least.
    pub const fn new(inner: Arc<S>, flush: Duration) -> Self {
        Self { flush, inner }
    }

    fn wrap(&self, inner: Box<dyn StorageFile>) -> Box<dyn StorageFile> {
        Box::new(SlowFile { flush: self.flush, inner })
    }
}

/// Does something that takes at least so long.
fn slowly<T>(time: Duration, body: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let result = body();
    thread::sleep(time.saturating_sub(begin.elapsed()));
    result
}

impl<S: Storage + ?Sized> Storage for SlowStorage<S> {
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        self.inner.create(name, length).map(|file| self.wrap(file))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn StorageFile>> {
        self.inner.open(name, writable).map(|file| self.wrap(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.inner.rename(from, to)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn sync_directory(&self) -> io::Result<()> {
        slowly(self.flush, || self.inner.sync_directory())
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    fn lock(&self, exclusive: bool) -> io::Result<Box<dyn StorageLock>> {
        self.inner.lock(exclusive)
    }

    fn lock_owner(&self) -> Option<String> {
        self.inner.lock_owner()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn sibling(&self, path: &str) -> io::Result<Arc<dyn Storage>> {
        let inner = self.inner.sibling(path)?;
        Ok(Arc::new(SlowStorage { flush: self.flush, inner }))
    }

    fn directory(&self) -> Option<PathBuf> {
        self.inner.directory()
    }
}

struct SlowFile {
    flush: Duration,
    inner: Box<dyn StorageFile>,
}

impl StorageFile for SlowFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        self.inner.write_at(parts, offset)
    }

    fn write_through(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        self.inner.write_through(parts, offset)
    }

    fn sync(&self) -> io::Result<()> {
        slowly(self.flush, || self.inner.sync())
    }

    fn is_written(&self) -> io::Result<bool> {
        self.inner.is_written()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use icecore::storage::RealStorage;

    #[test]
    fn flushes_take_their_time_and_everything_is_passed_on() {
        const FLUSH: Duration = Duration::from_millis(20);
        let folder = tempfile::tempdir().unwrap();
        let storage = SlowStorage::new(Arc::new(RealStorage::new(folder.path()).unwrap()), FLUSH);
        let file = storage.create("a", 8192).unwrap();
        file.write_at(&[(Kind::Data, &[1; 100])], 7).unwrap();
        file.write_through(&[(Kind::Data, &[2; 100])], 107).unwrap();
        let begin = Instant::now();
        file.sync().unwrap();
        assert!(begin.elapsed() >= FLUSH);
        let begin = Instant::now();
        storage.sync_directory().unwrap();
        assert!(begin.elapsed() >= FLUSH);
        let mut buffer = [0; 2];
        storage.open("a", false).unwrap().read_at(&mut buffer, 106).unwrap();
        assert_eq!((buffer, file.length().unwrap()), ([1, 2], 8192));
        assert_eq!(storage.list().unwrap(), [("a".to_owned(), 8192)]);
        assert_eq!(storage.directory(), Some(folder.path().canonicalize().unwrap()));
    }
}
