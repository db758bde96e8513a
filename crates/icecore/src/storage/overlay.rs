//! A storage over another that keeps every change in memory. It shows what would happen, and nothing happens
//! until a caller wants it.

use super::{Kind, Space, Storage, StorageFile, StorageLock};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Bytes that change together: one block.
pub(crate) const PAGE_BYTES: usize = crate::units::BLOCK_BYTES;

type Page = Box<[u8; PAGE_BYTES]>;

/// One file, with what was changed in it.
pub(crate) struct Layer {
    /// The file below; none if it was made here.
    below: Option<Box<dyn StorageFile>>,
    length: u64,
    pages: Mutex<BTreeMap<u64, Page>>,
}

#[derive(Default)]
struct Files {
    open: BTreeMap<String, Arc<Layer>>,
    removed: BTreeSet<String>,
}

/// A change that an overlay keeps: a block of a file.
pub(crate) struct Change {
    pub file: String,
    /// Length of the file if it was made here.
    pub made: Option<u64>,
    pub offset: u64,
    pub bytes: Page,
}

/// See the module.
pub(crate) struct Overlay {
    below: Arc<dyn Storage>,
    files: Mutex<Files>,
    /// Other folders that were asked for: what is changed there stays in memory, too.
    siblings: Mutex<BTreeMap<String, Arc<Self>>>,
    /// Keeps writers out, where the caller does not.
    _lock: Option<Box<dyn StorageLock>>,
}

impl Overlay {
    /// Over a folder that the caller has locked.
    pub(crate) fn over(below: Arc<dyn Storage>) -> Arc<Self> {
        Self::with_lock(below, None)
    }

    /// Over a folder that it keeps others from writing to for as long as it lives.
    pub(crate) fn locked(below: Arc<dyn Storage>, lock: Box<dyn StorageLock>) -> Arc<Self> {
        Self::with_lock(below, Some(lock))
    }

    fn with_lock(below: Arc<dyn Storage>, lock: Option<Box<dyn StorageLock>>) -> Arc<Self> {
        Arc::new(Self { below, files: Mutex::default(), siblings: Mutex::default(), _lock: lock })
    }

    /// Everything that was changed, by file and offset. Files made and left empty are in it with their first
    /// block.
    pub(crate) fn changes(&self) -> Vec<Change> {
        let files = self.files.lock();
        let mut changes = Vec::new();
        for (file, layer) in &files.open {
            let made = layer.below.is_none().then_some(layer.length);
            let pages = layer.pages.lock();
            if made.is_some() && pages.is_empty() {
                let bytes = Box::new([0; PAGE_BYTES]);
                changes.push(Change { file: file.clone(), made, offset: 0, bytes });
            }
            changes.extend(pages.iter().map(|(page, bytes)| Change {
                file: file.clone(),
                made,
                offset: page * PAGE_BYTES as u64,
                bytes: bytes.clone(),
            }));
        }
        changes
    }

    /// Files that are not there any more, or others in their place.
    pub(crate) fn removed(&self) -> Vec<String> {
        self.files.lock().removed.iter().cloned().collect()
    }

    /// Other folders in which something may have been changed, by path.
    pub(crate) fn siblings(&self) -> Vec<(String, Arc<Self>)> {
        let siblings = self.siblings.lock();
        siblings.iter().map(|(path, sibling)| (path.clone(), Arc::clone(sibling))).collect()
    }

    fn layer(&self, name: &str) -> io::Result<Arc<Layer>> {
        let mut files = self.files.lock();
        if let Some(layer) = files.open.get(name) {
            return Ok(Arc::clone(layer));
        }
        if files.removed.contains(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let below = self.below.open(name, false)?;
        let length = below.length()?;
        let layer = Arc::new(Layer { below: Some(below), length, pages: Mutex::default() });
        files.open.insert(name.to_owned(), Arc::clone(&layer));
        Ok(layer)
    }
}

struct OverlayFile(Arc<Layer>);

/// The overlay, or its maker, holds the lock below.
struct NoLock;

impl StorageLock for NoLock {}

impl Layer {
    fn read_page(&self, page: u64) -> io::Result<Page> {
        let mut bytes = Box::new([0; PAGE_BYTES]);
        if let Some(below) = &self.below {
            let offset = page * PAGE_BYTES as u64;
            let length = (self.length - offset).min(PAGE_BYTES as u64) as usize;
            below.read_at(&mut bytes[..length], offset)?;
        }
        Ok(bytes)
    }

    /// Calls `body` for each page that a stretch lies in: the page, where in it, where in the stretch, how
    /// much.
    fn each_page(
        &self,
        offset: u64,
        length: usize,
        mut body: impl FnMut(u64, usize, usize, usize) -> io::Result<()>,
    ) -> io::Result<()> {
        if offset.checked_add(length as u64).is_none_or(|end| end > self.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let within = (at % PAGE_BYTES as u64) as usize;
            let count = (PAGE_BYTES - within).min(length - done);
            body(at / PAGE_BYTES as u64, within, done, count)?;
            done += count;
        }
        Ok(())
    }
}

impl StorageFile for OverlayFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let layer = &*self.0;
        let pages = layer.pages.lock();
        match &layer.below {
            Some(below) => below.read_at(buffer, offset)?,
            None => buffer.fill(0),
        }
        if pages.is_empty() && layer.below.is_some() {
            return Ok(());
        }
        layer.each_page(offset, buffer.len(), |page, within, done, count| {
            if let Some(bytes) = pages.get(&page) {
                buffer[done..done + count].copy_from_slice(&bytes[within..within + count]);
            }
            Ok(())
        })
    }

    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        let layer = &*self.0;
        let mut at = offset;
        for (_, part) in parts {
            layer.each_page(at, part.len(), |page, within, done, count| {
                let mut pages = layer.pages.lock();
                let mut bytes = match pages.remove(&page) {
                    Some(bytes) => bytes,
                    // All of it is written.
                    None if count == PAGE_BYTES => Box::new([0; PAGE_BYTES]),
                    None => layer.read_page(page)?,
                };
                bytes[within..within + count].copy_from_slice(&part[done..done + count]);
                pages.insert(page, bytes);
                Ok(())
            })?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.length)
    }
}

impl Storage for Overlay {
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        if self.layer(name).is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let layer = Arc::new(Layer { below: None, length, pages: Mutex::default() });
        self.files.lock().open.insert(name.to_owned(), Arc::clone(&layer));
        Ok(Box::new(OverlayFile(layer)))
    }

    fn open(&self, name: &str, _writable: bool) -> io::Result<Box<dyn StorageFile>> {
        Ok(Box::new(OverlayFile(self.layer(name)?)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.layer(name)?;
        let mut files = self.files.lock();
        files.open.remove(name);
        files.removed.insert(name.to_owned());
        Ok(())
    }

    /// Only of files made here.
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let layer = self.layer(from)?;
        if layer.below.is_some() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let mut files = self.files.lock();
        files.open.remove(from);
        files.removed.insert(to.to_owned());
        files.open.insert(to.to_owned(), layer);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let files = self.files.lock();
        let mut all: BTreeMap<String, u64> = self.below.list()?.into_iter().collect();
        all.retain(|name, _| !files.removed.contains(name));
        all.extend(files.open.iter().map(|(name, layer)| (name.clone(), layer.length)));
        Ok(all.into_iter().collect())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        self.below.space()
    }

    fn lock(&self, _exclusive: bool) -> io::Result<Box<dyn StorageLock>> {
        Ok(Box::new(NoLock))
    }

    fn describe(&self) -> String {
        self.below.describe()
    }

    fn sibling(&self, path: &str) -> io::Result<Arc<dyn Storage>> {
        let mut siblings = self.siblings.lock();
        if let Some(known) = siblings.get(path) {
            return Ok(Arc::clone(known) as Arc<dyn Storage>);
        }
        let sibling = Self::over(self.below.sibling(path)?);
        siblings.insert(path.to_owned(), Arc::clone(&sibling));
        Ok(sibling)
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryStorage;
    use super::*;

    #[test]
    fn what_is_written_is_read_here_and_not_below() {
        let below = Arc::new(MemoryStorage::default());
        let file = below.create("a", 3 * PAGE_BYTES as u64).unwrap();
        file.write_at(&[(Kind::Data, &[1; 3 * PAGE_BYTES])], 0).unwrap();
        let overlay = Overlay::over(below.clone());
        let above = overlay.open("a", true).unwrap();
        above.write_at(&[(Kind::Data, &[2; 10]), (Kind::Data, &[3; PAGE_BYTES])], 4090).unwrap();
        let mut bytes = vec![0; 3 * PAGE_BYTES];
        above.read_at(&mut bytes, 0).unwrap();
        assert_eq!((bytes[4089], bytes[4090], bytes[4100], bytes[8195], bytes[8196]), (1, 2, 3, 3, 1));
        assert!(
            above.read_at(&mut bytes, 1).is_err() && above.write_at(&[(Kind::Data, &[0])], 12288).is_err()
        );
        overlay.create("b", 100).unwrap();
        assert!(overlay.create("a", 1).is_err());
        let offsets: Vec<_> =
            overlay.changes().iter().map(|change| (change.file.clone(), change.offset)).collect();
        assert_eq!(
            offsets,
            [("a".to_owned(), 0), ("a".to_owned(), 4096), ("a".to_owned(), 8192), ("b".to_owned(), 0)]
        );
        overlay.remove("a").unwrap();
        assert_eq!(overlay.list().unwrap(), [("b".to_owned(), 100)]);
        assert!(overlay.open("a", false).is_err());
        let mut bytes = vec![0; 3 * PAGE_BYTES];
        below.open("a", false).unwrap().read_at(&mut bytes, 0).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 1));
        assert_eq!(below.list().unwrap().len(), 1);
    }
}
