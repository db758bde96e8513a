//! A storage that keeps what holds the pool together and forgets what the user put into it.
//!
//! Measuring the tree of a 100 GiB file needs the tree, not the file. Such a pool lives as long as its
//! process: after a reopening there is no log to replay.

use crate::counting::{Counters, Counts};
use crate::lock::LockTable;
use crate::pages::{PAGE_BYTES, Pages, pieces, zero_page};
use crate::passing::Watch;
use icecore::storage::{Kind, Space, Storage, StorageFile, StorageLock};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Keeps nodes, checkpoints and frames in memory, in sparse files; data, record headers and zeros written
/// ahead read back as zeros. Counts everything by kind.
pub struct ForgetfulStorage {
    capacity: u64,
    counters: Arc<Counters>,
    files: Mutex<BTreeMap<String, Arc<RwLock<Contents>>>>,
    lock: LockTable,
}

/// One file.
struct Contents {
    length: u64,
    kept: Pages,
}

impl ForgetfulStorage {
    /// An empty storage that says it has room for `capacity` bytes.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self { capacity, counters: Arc::default(), files: Mutex::default(), lock: LockTable::default() }
    }

    /// The counters, to keep.
    #[must_use]
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// What the counters stand at.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counters.counts()
    }

    /// Bytes of memory that the kept pages take up.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.files.lock().values().map(|file| (file.read().kept.count() * PAGE_BYTES) as u64).sum()
    }

    fn free(&self, files: &BTreeMap<String, Arc<RwLock<Contents>>>) -> u64 {
        let used = files.values().map(|file| file.read().length).sum();
        self.capacity.saturating_sub(used)
    }

    fn handle(&self, contents: Arc<RwLock<Contents>>, writable: bool) -> Box<dyn StorageFile> {
        Box::new(ForgetfulFile { contents, counters: self.counters(), writable })
    }
}

impl Storage for ForgetfulStorage {
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        self.counters.create(length);
        let mut files = self.files.lock();
        if files.contains_key(name) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if length > self.free(&files) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let contents = Arc::new(RwLock::new(Contents { length, kept: Pages::default() }));
        files.insert(name.to_owned(), Arc::clone(&contents));
        Ok(self.handle(contents, true))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn StorageFile>> {
        self.counters.open();
        let contents = self.files.lock().get(name).cloned().ok_or(io::ErrorKind::NotFound)?;
        Ok(self.handle(contents, writable))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.counters.remove();
        self.files.lock().remove(name).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.counters.rename();
        let mut files = self.files.lock();
        let contents = files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.insert(to.to_owned(), contents);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(self.files.lock().iter().map(|(name, file)| (name.clone(), file.read().length)).collect())
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.counters.directory_sync(&mut || Ok(()))
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space { total: self.capacity, free: self.free(&self.files.lock()) })
    }

    fn lock(&self, exclusive: bool) -> io::Result<Box<dyn StorageLock>> {
        Ok(Box::new(self.lock.lock(exclusive)?))
    }

    fn describe(&self) -> String {
        "memory that forgets data".to_owned()
    }
}

struct ForgetfulFile {
    contents: Arc<RwLock<Contents>>,
    counters: Arc<Counters>,
    writable: bool,
}

impl StorageFile for ForgetfulFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.counters.read(buffer.len());
        let contents = self.contents.read();
        if offset.checked_add(buffer.len() as u64).is_none_or(|end| end > contents.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        for piece in pieces(offset, buffer.len()) {
            let target = &mut buffer[piece.start..piece.start + piece.length];
            match contents.kept.get(piece.page) {
                Some(page) => target.copy_from_slice(&page[piece.within..piece.within + piece.length]),
                None => target.fill(0),
            }
        }
        Ok(())
    }

    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.counters.write(parts);
        let mut contents = self.contents.write();
        let mut position = offset;
        for (kind, bytes) in parts {
            match kind {
                Kind::Node | Kind::Checkpoint | Kind::Frame => contents.keep(bytes, position),
                Kind::Data | Kind::RecordHeader | Kind::Ahead | Kind::Copy => {
                    contents.forget(bytes.len(), position)
                }
            }
            position += bytes.len() as u64;
        }
        contents.length = contents.length.max(position);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.counters.sync(&mut || Ok(()))
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.contents.read().length)
    }
}

impl Contents {
    fn keep(&mut self, bytes: &[u8], offset: u64) {
        for piece in pieces(offset, bytes.len()) {
            let source = &bytes[piece.start..piece.start + piece.length];
            let page = self.kept.get_mut(piece.page, zero_page);
            page[piece.within..piece.within + piece.length].copy_from_slice(source);
        }
    }

    /// Whole pages are dropped, so that segments used again give their memory back; of others the bytes are
    /// zeroed. Costs nothing where nothing was kept.
    fn forget(&mut self, length: usize, offset: u64) {
        if self.kept.count() == 0 || length == 0 {
            return;
        }
        let end = offset + length as u64;
        let first_whole = offset.div_ceil(PAGE_BYTES as u64);
        let end_whole = end / PAGE_BYTES as u64;
        if first_whole < end_whole {
            self.kept.remove_range(first_whole, end_whole);
        }
        let edges = [offset / PAGE_BYTES as u64, (end - 1) / PAGE_BYTES as u64];
        for page in edges {
            if self.kept.get(page).is_some() {
                let start = page * PAGE_BYTES as u64;
                let from = offset.saturating_sub(start) as usize;
                let to = (end - start).min(PAGE_BYTES as u64) as usize;
                self.kept.get_mut(page, zero_page)[from..to].fill(0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = 1 << 40;

    fn read(file: &dyn StorageFile, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![9; length];
        file.read_at(&mut bytes, offset).unwrap();
        bytes
    }

    #[test]
    fn nodes_stay_and_data_goes() {
        let storage = ForgetfulStorage::new(4 * TIB);
        let file = storage.create("segment.1", TIB).unwrap();
        let parts: [(Kind, &[u8]); 3] =
            [(Kind::Node, &[1; 5000]), (Kind::Data, &[2; 10_000]), (Kind::Frame, &[3; 8])];
        file.write_at(&parts, TIB / 2).unwrap();
        assert_eq!(read(&*file, TIB / 2, 5000), [1; 5000]);
        assert_eq!(read(&*file, TIB / 2 + 5000, 10_000), [0; 10_000]);
        assert_eq!(read(&*file, TIB / 2 + 15_000, 8), [3; 8]);
        assert_eq!(storage.counts().bytes, [10_000, 0, 5000, 0, 8, 0, 0]);
        assert_eq!(storage.space().unwrap(), Space { total: 4 * TIB, free: 3 * TIB });
    }

    #[test]
    fn data_over_nodes_gives_their_memory_back() {
        let storage = ForgetfulStorage::new(TIB);
        let file = storage.create("segment.1", 1 << 20).unwrap();
        file.write_at(&[(Kind::Node, &[1; 1 << 20])], 0).unwrap();
        assert_eq!(storage.kept_bytes(), 1 << 20);
        file.write_at(&[(Kind::Data, &[2; 20_000])], 1000).unwrap();
        assert_eq!(read(&*file, 0, 1000), [1; 1000]);
        assert_eq!(read(&*file, 1000, 20_000), [0; 20_000]);
        assert_eq!(read(&*file, 21_000, 5000), [1; 5000]);
        file.write_at(&[(Kind::RecordHeader, &[2; 100])], 30_000).unwrap();
        assert_eq!(read(&*file, 29_999, 102), [&[1][..], &[0; 100], &[1]].concat());
        file.write_at(&[(Kind::Ahead, &[0; 1 << 20])], 0).unwrap();
        assert_eq!(storage.kept_bytes(), 0);
    }

    #[test]
    fn a_full_storage_says_so() {
        let storage = ForgetfulStorage::new(10_000);
        drop(storage.create("a", 9000).unwrap());
        assert_eq!(storage.create("b", 1001).err().unwrap().kind(), io::ErrorKind::StorageFull);
        storage.remove("a").unwrap();
        drop(storage.create("b", 10_000).unwrap());
        assert_eq!(storage.list().unwrap(), [("b".to_owned(), 10_000)]);
        assert_eq!(storage.open("b", false).unwrap().length().unwrap(), 10_000);
    }
}
