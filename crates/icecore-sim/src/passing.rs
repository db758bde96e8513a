//! A storage that passes on what is asked of it, while a watcher looks on.

use icecore::storage::{Kind, Space, Storage, StorageFile, StorageLock};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// Sees calls before they are passed on, and has a say in when flushes return.
pub trait Watch: Send + Sync + 'static {
    /// So many bytes are to be read.
    fn read(&self, _bytes: usize) {}

    /// So many bytes are announced as read soon.
    fn will_read(&self, _bytes: u64) {}

    /// These parts are to be written.
    fn write(&self, _parts: &[(Kind, &[u8])]) {}

    /// A file is to be flushed, by `flush`.
    ///
    /// # Errors
    /// Those of `flush`.
    fn sync(&self, flush: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        flush()
    }

    /// The folder is to be flushed, by `flush`.
    ///
    /// # Errors
    /// Those of `flush`.
    fn directory_sync(&self, flush: &mut dyn FnMut() -> io::Result<()>) -> io::Result<()> {
        flush()
    }

    /// A file of so many bytes is to be made.
    fn create(&self, _bytes: u64) {}

    /// A file is to be opened.
    fn open(&self) {}

    /// A file is to be removed.
    fn remove(&self) {}

    /// A file is to be renamed.
    fn rename(&self) {}
}

/// Another storage that is watched, with all of its files, and with the folders beside it.
pub struct PassingStorage<S: Storage + ?Sized, W: Watch> {
    watch: Arc<W>,
    inner: Arc<S>,
}

impl<S: Storage + ?Sized, W: Watch> PassingStorage<S, W> {
    /// Watches `inner`.
    pub(crate) const fn watched(inner: Arc<S>, watch: Arc<W>) -> Self {
        Self { watch, inner }
    }

    /// Who watches.
    pub(crate) const fn watch(&self) -> &Arc<W> {
        &self.watch
    }

    fn wrap(&self, inner: Box<dyn StorageFile>) -> Box<dyn StorageFile> {
        Box::new(PassingFile { watch: Arc::clone(&self.watch), inner })
    }
}

impl<S: Storage + ?Sized, W: Watch> Storage for PassingStorage<S, W> {
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        self.watch.create(length);
        self.inner.create(name, length).map(|file| self.wrap(file))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn StorageFile>> {
        self.watch.open();
        self.inner.open(name, writable).map(|file| self.wrap(file))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.watch.remove();
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.watch.rename();
        self.inner.rename(from, to)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        self.inner.list()
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.watch.directory_sync(&mut || self.inner.sync_directory())
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
        Ok(Arc::new(PassingStorage::watched(inner, Arc::clone(&self.watch))))
    }

    fn directory(&self) -> Option<PathBuf> {
        self.inner.directory()
    }
}

struct PassingFile<W: Watch> {
    watch: Arc<W>,
    inner: Box<dyn StorageFile>,
}

impl<W: Watch> StorageFile for PassingFile<W> {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.watch.read(buffer.len());
        self.inner.read_at(buffer, offset)
    }

    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.watch.read(buffer.len());
        self.inner.read_direct(buffer, offset)
    }

    fn will_read(&self, offset: u64, length: u64) {
        self.watch.will_read(length);
        self.inner.will_read(offset, length);
    }

    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        self.watch.write(parts);
        self.inner.write_at(parts, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.watch.sync(&mut || self.inner.sync())
    }

    fn is_written(&self) -> io::Result<bool> {
        self.inner.is_written()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }
}
