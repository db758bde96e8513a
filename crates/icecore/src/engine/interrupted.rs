//! A storage for tests that watch reads, or interrupt one.

use crate::format::segment::file_name;
use crate::storage::memory::MemoryStorage;
use crate::storage::{Kind, Space, Storage, StorageFile, StorageLock};
use crate::units::{BLOCK_BYTES, SegmentId};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// What happens in the middle of one read.
pub(super) type Deed = Box<dyn FnOnce() + Send>;

/// A read in the middle of which something happens: the file, where, and whether the bytes were read before.
pub(super) struct Moment {
    pub name: String,
    pub offset: u64,
    pub read_before: bool,
    pub deed: Deed,
}

type Awaited = Arc<Mutex<Option<Moment>>>;

/// Called before each read.
type Watch = Arc<Mutex<Option<Box<dyn Fn() + Send>>>>;

/// Files in memory, one read of which takes long.
#[derive(Default)]
pub(super) struct Interrupted {
    inner: Arc<MemoryStorage>,
    pub awaited: Awaited,
    pub watch: Watch,
}

struct InterruptedFile {
    name: String,
    inner: Box<dyn StorageFile>,
    awaited: Awaited,
    watch: Watch,
}

impl Interrupted {
    fn file(&self, name: &str, inner: Box<dyn StorageFile>) -> Box<dyn StorageFile> {
        let (awaited, watch) = (Arc::clone(&self.awaited), Arc::clone(&self.watch));
        Box::new(InterruptedFile { name: name.to_owned(), inner, awaited, watch })
    }

    /// A block as it is on disk.
    pub fn block(&self, segment: SegmentId, offset: u64) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        self.inner.open(&file_name(segment), false).unwrap().read_at(&mut block, offset).unwrap();
        block
    }
}

impl Storage for Interrupted {
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        Ok(self.file(name, self.inner.create(name, length)?))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn StorageFile>> {
        Ok(self.file(name, self.inner.open(name, writable)?))
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
        self.inner.sync_directory()
    }

    fn space(&self) -> io::Result<Space> {
        self.inner.space()
    }

    fn lock(&self, exclusive: bool) -> io::Result<Box<dyn StorageLock>> {
        self.inner.lock(exclusive)
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

impl StorageFile for InterruptedFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if let Some(watch) = &*self.watch.lock() {
            watch();
        }
        let is_it = |moment: &mut Moment| moment.name == self.name && moment.offset == offset;
        let moment = self.awaited.lock().take_if(is_it);
        let Some(Moment { read_before, deed, .. }) = moment else {
            return self.inner.read_at(buffer, offset);
        };
        if read_before {
            self.inner.read_at(buffer, offset)?;
            deed();
            return Ok(());
        }
        deed();
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        self.inner.write_at(parts, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn length(&self) -> io::Result<u64> {
        self.inner.length()
    }
}
