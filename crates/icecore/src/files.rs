//! Open segment files, a bounded number of them.

use crate::error::{Error, Result};
use crate::format::segment::{Geometry, file_name};
use crate::incidents::Incidents;
use crate::numbers::NumberMap;
use crate::storage::{Kind, Storage, StorageFile};
use crate::units::{BLOCK_BYTES, SegmentId, Slot};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files kept open at most, beside those in use at the moment.
const OPEN_MAX: usize = 256;

/// Opens segment files on demand and keeps the handles that were used last.
pub(crate) struct SegmentFiles {
    storage: Arc<dyn Storage>,
    geometry: Geometry,
    writable: bool,
    clock: AtomicU64,
    open: RwLock<NumberMap<SegmentId, Entry>>,
    incidents: Incidents,
}

struct Entry {
    file: Arc<dyn StorageFile>,
    used: AtomicU64,
}

impl SegmentFiles {
    pub(crate) fn new(storage: Arc<dyn Storage>, geometry: Geometry, writable: bool) -> Self {
        let incidents = Incidents::new(storage.directory().filter(|_| writable));
        Self { storage, geometry, writable, clock: AtomicU64::new(0), open: RwLock::default(), incidents }
    }

    /// Where errors of the medium are noted.
    pub(crate) fn incidents(&self) -> &Incidents {
        &self.incidents
    }

    /// Notes what went wrong.
    fn noted<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|error| self.incidents.note(error))
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The file of a segment.
    pub(crate) fn get(&self, segment: SegmentId) -> Result<Arc<dyn StorageFile>> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = self.open.read().get(&segment) {
            entry.used.store(now, Ordering::Relaxed);
            return Ok(Arc::clone(&entry.file));
        }
        let name = file_name(segment);
        let file =
            self.storage.open(&name, self.writable).map_err(|error| Error::io("open", &name, error))?;
        let length = file.length().map_err(|error| Error::io("measure", &name, error))?;
        if length < self.geometry.bytes {
            let detail = format!("it has {length} bytes instead of {}", self.geometry.bytes);
            return Err(Error::damaged(name, detail));
        }
        let file: Arc<dyn StorageFile> = Arc::from(file);
        self.keep(segment, &file, now);
        Ok(file)
    }

    /// Makes the file of a new segment.
    pub(crate) fn create(&self, segment: SegmentId) -> Result<()> {
        let name = file_name(segment);
        let made = self.storage.create(&name, self.geometry.bytes);
        let file = made.map_err(|error| match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::NoSpace {
                detail: format!(
                    "the filesystem under {} has no room for another segment of {} bytes",
                    self.storage.describe(),
                    self.geometry.bytes
                ),
            },
            _ => Error::io("create", &name, error),
        })?;
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        self.keep(segment, &Arc::from(file), now);
        Ok(())
    }

    fn keep(&self, segment: SegmentId, file: &Arc<dyn StorageFile>, now: u64) {
        let mut open = self.open.write();
        if open.len() >= OPEN_MAX {
            let oldest = open.iter().min_by_key(|(_, entry)| entry.used.load(Ordering::Relaxed));
            if let Some(oldest) = oldest.map(|(segment, _)| *segment) {
                open.remove(&oldest);
            }
        }
        open.insert(segment, Entry { file: Arc::clone(file), used: AtomicU64::new(now) });
    }

    /// Reads whole blocks.
    pub(crate) fn read(&self, segment: SegmentId, slot: Slot, buffer: &mut [u8]) -> Result<()> {
        let offset = self.geometry.offset(slot);
        let file = self.noted(self.get(segment))?;
        self.noted(file.read_at(buffer, offset).map_err(|error| {
            let what = format!("{} bytes at {offset} of {}", buffer.len(), file_name(segment));
            Error::io("read", what, error)
        }))
    }

    /// Writes parts one after the other, the first at `slot`.
    pub(crate) fn write(&self, segment: SegmentId, slot: Slot, parts: &[(Kind, &[u8])]) -> Result<()> {
        self.write_with(segment, slot, parts, |file, offset| file.write_at(parts, offset))
    }

    /// As [`SegmentFiles::write`], for what is flushed next or not read soon.
    pub(crate) fn write_through(
        &self,
        segment: SegmentId,
        slot: Slot,
        parts: &[(Kind, &[u8])],
    ) -> Result<()> {
        self.write_with(segment, slot, parts, |file, offset| file.write_through(parts, offset))
    }

    fn write_with(
        &self,
        segment: SegmentId,
        slot: Slot,
        parts: &[(Kind, &[u8])],
        write: impl FnOnce(&dyn StorageFile, u64) -> std::io::Result<()>,
    ) -> Result<()> {
        let offset = self.geometry.offset(slot);
        let bytes: usize = parts.iter().map(|(_, part)| part.len()).sum();
        assert!(bytes.is_multiple_of(BLOCK_BYTES) && offset + bytes as u64 <= self.geometry.bytes);
        let file = self.noted(self.get(segment))?;
        self.noted(write(&*file, offset).map_err(|error| {
            Error::io("write", format!("{bytes} bytes at {offset} of {}", file_name(segment)), error)
        }))
    }

    /// Whether all of a segment was written before.
    pub(crate) fn is_written(&self, segment: SegmentId) -> Result<bool> {
        self.get(segment)?.is_written().map_err(|error| Error::io("examine", file_name(segment), error))
    }

    /// Makes what was written to a segment durable.
    pub(crate) fn sync(&self, segment: SegmentId) -> Result<()> {
        let file = self.noted(self.get(segment))?;
        self.noted(file.sync().map_err(|error| Error::io("flush", file_name(segment), error)))
    }
}
