//! Open segment files, a bounded number of them.

use crate::copies::{Copies, Mended};
use crate::error::{Error, Result};
use crate::format::segment::{Geometry, SegmentHeader, SegmentKind, file_name, from_file_name};
use crate::format::superblock::LedgerPointer;
use crate::incidents::Incidents;
use crate::numbers::NumberMap;
use crate::storage::{AlignedBuffer, Kind, Storage, StorageFile};
use crate::sync::{Mutex, RwLock};
use crate::units::{BLOCK_BYTES, BlockCount, SegmentId, Slot};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Files kept open at most, beside those in use at the moment. With segments of 8 MiB, 32 GiB can be read
/// without opening any.
const OPEN_MAX: usize = 4096;
/// When there are too many, this part of them is closed together, so that no single opening looks through all
/// of them.
const CLOSED_TOGETHER: usize = 8;
/// Of the files that a process may have open, this part is kept open here, and as many again for direct
/// writes.
const SHARE_OF_OPEN_FILES: usize = 4;

/// How a file is read.
type Read = fn(&Arc<dyn StorageFile>, &mut [u8], u64) -> std::io::Result<()>;
const READ: Read = |file, buffer, offset| file.read_at(buffer, offset);
const READ_DIRECT: Read = |file, buffer, offset| file.read_direct(buffer, offset);

/// Opens segment files on demand and keeps the handles that were used last. What is written to them is
/// copied, where it shall be.
pub(crate) struct SegmentFiles {
    storage: Arc<dyn Storage>,
    geometry: Geometry,
    writable: bool,
    clock: AtomicU64,
    open: RwLock<NumberMap<SegmentId, Entry>>,
    incidents: Arc<Incidents>,
    copies: Copies,
    /// Where something was healed that is not flushed yet: until then its copy must not go.
    healed: Mutex<BTreeSet<SegmentId>>,
    /// Segments whose files were removed because they held nothing.
    removed: RwLock<BTreeSet<SegmentId>>,
}

struct Entry {
    file: Arc<dyn StorageFile>,
    used: AtomicU64,
    /// Its length when it was opened, where that is less than a segment's. What is there can be read.
    cut_to: Option<u64>,
}

impl SegmentFiles {
    /// `copies`: those of the segments in this storage.
    pub(crate) fn new(
        storage: Arc<dyn Storage>,
        geometry: Geometry,
        writable: bool,
        incidents: Arc<Incidents>,
        copies: Copies,
    ) -> Self {
        let clock = AtomicU64::new(0);
        Self {
            storage,
            geometry,
            writable,
            clock,
            open: RwLock::default(),
            incidents,
            copies,
            healed: Mutex::default(),
            removed: RwLock::default(),
        }
    }

    /// Second copies.
    pub(crate) fn copies(&self) -> &Copies {
        &self.copies
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

    /// The file of a segment, all of it.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is missing or cut short; [`Error::Io`].
    pub(crate) fn get(&self, segment: SegmentId) -> Result<Arc<dyn StorageFile>> {
        match self.open(segment)? {
            (file, None) => Ok(file),
            (_, Some(length)) => Err(self.cut_short(segment, length)),
        }
    }

    fn cut_short(&self, segment: SegmentId, length: u64) -> Error {
        let detail = format!("it is cut short: it has {length} bytes instead of {}", self.geometry.bytes);
        Error::damaged(file_name(segment), detail)
    }

    /// The file of a segment, or what is left of it, and how long that is.
    fn open(&self, segment: SegmentId) -> Result<(Arc<dyn StorageFile>, Option<u64>)> {
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        if let Some(entry) = self.open.read().get(&segment) {
            entry.used.store(now, Ordering::Relaxed);
            return Ok((Arc::clone(&entry.file), entry.cut_to));
        }
        let name = file_name(segment);
        let opened = self.letting_go(|| self.storage.open(&name, self.writable));
        let file = opened.map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::damaged(&name, "it is missing"),
            _ => Error::io("open", &name, error),
        })?;
        let length = file.length().map_err(|error| Error::io("measure", &name, error))?;
        let file: Arc<dyn StorageFile> = Arc::from(file);
        let cut_to = Some(length).filter(|length| *length < self.geometry.bytes);
        self.keep(segment, &file, cut_to, now);
        Ok((file, cut_to))
    }

    /// What is wrong with the file of a segment, if it is missing or cut short.
    pub(crate) fn what_is_absent(&self, segment: SegmentId) -> Option<Error> {
        match self.open(segment) {
            Ok((_, None)) => None,
            Ok((_, Some(length))) => Some(self.cut_short(segment, length)),
            Err(error) => Some(error),
        }
    }

    /// The first slot that is not in the file of a segment any more, if that is cut short.
    pub(crate) fn cut(&self, segment: SegmentId) -> Option<Slot> {
        let (_, cut_to) = self.open(segment).ok()?;
        cut_to.map(|length| Slot((length / BLOCK_BYTES as u64) as u32))
    }

    /// The file of a segment is not the one that was opened any more.
    pub(crate) fn forget(&self, segment: SegmentId) {
        self.open.write().remove(&segment);
    }

    /// Makes the file of a new segment.
    pub(crate) fn create(&self, segment: SegmentId) -> Result<()> {
        let name = file_name(segment);
        let made = self.letting_go(|| self.storage.create(&name, self.geometry.bytes));
        let file = self.noted(made.map_err(|error| match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::NoSpace {
                detail: format!(
                    "the filesystem under {} has no room for another segment of {} bytes",
                    self.storage.describe(),
                    self.geometry.bytes
                ),
            },
            _ => Error::io("create", &name, error),
        }))?;
        self.removed.write().remove(&segment);
        let now = self.clock.fetch_add(1, Ordering::Relaxed);
        self.keep(segment, &Arc::from(file), None, now);
        Ok(())
    }

    /// Removes the file of a segment that holds nothing. That is durable with the next flush of the
    /// directory.
    ///
    /// # Errors
    /// [`Error::Io`]: the file is still there.
    pub(crate) fn remove(&self, segment: SegmentId) -> Result<()> {
        let name = file_name(segment);
        self.healed.lock().remove(&segment);
        self.removed.write().insert(segment);
        let removed = self.storage.remove(&name).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        self.forget(segment);
        self.noted(removed.map_err(|error| {
            self.removed.write().remove(&segment);
            Error::io("remove", &name, error)
        }))
    }

    /// Opens a file, with all others closed if there may be no more of them.
    fn letting_go<T>(&self, open: impl Fn() -> std::io::Result<T>) -> std::io::Result<T> {
        with_others_closed(open, || {
            self.open.write().clear();
            self.copies.close_files();
        })
    }

    fn keep(&self, segment: SegmentId, file: &Arc<dyn StorageFile>, cut_to: Option<u64>, now: u64) {
        let most = (self.storage.open_files_max() / SHARE_OF_OPEN_FILES).clamp(1, OPEN_MAX);
        let mut open = self.open.write();
        if open.len() >= most {
            close_oldest(&mut open, most.div_ceil(CLOSED_TOGETHER));
        }
        open.insert(segment, Entry { file: Arc::clone(file), used: AtomicU64::new(now), cut_to });
    }

    /// Reads whole blocks, also of what is left of a segment that is cut short.
    pub(crate) fn read(&self, segment: SegmentId, slot: Slot, buffer: &mut [u8]) -> Result<()> {
        self.read_or(segment, slot, buffer, READ, |cut_off| self.incidents.note(cut_off))
    }

    /// As [`SegmentFiles::read`], around the page cache of the operating system.
    pub(crate) fn read_direct(&self, segment: SegmentId, slot: Slot, buffer: &mut [u8]) -> Result<()> {
        self.read_or(segment, slot, buffer, READ_DIRECT, |cut_off| self.incidents.note(cut_off))
    }

    /// As [`SegmentFiles::read`], of what can be done without: that it is cut off with the end of its file is
    /// no incident by itself. Opening reports what is cut short, and whether something is lost by that.
    pub(crate) fn read_if_there(&self, segment: SegmentId, slot: Slot, buffer: &mut [u8]) -> Result<()> {
        self.read_or(segment, slot, buffer, READ, |_| ())
    }

    /// As [`SegmentFiles::read`]. Calls `tell` if not all of it is in what is left of the file.
    fn read_or(
        &self,
        segment: SegmentId,
        slot: Slot,
        buffer: &mut [u8],
        read: Read,
        tell: impl FnOnce(&Error),
    ) -> Result<()> {
        let offset = self.geometry.offset(slot);
        let opened = self.open(segment);
        // A reader with a stale place looks it up again: nothing is missing.
        let is_stale = opened.is_err() && self.removed.read().contains(&segment);
        let (file, cut_to) = if is_stale { opened } else { self.noted(opened) }?;
        if let Some(length) = cut_to.filter(|length| offset + buffer.len() as u64 > *length) {
            return Err(self.cut_short(segment, length)).inspect_err(tell);
        }
        self.noted(read(&file, buffer, offset).map_err(|error| {
            let what = format!("{} bytes at {offset} of {}", buffer.len(), file_name(segment));
            Error::io("read", what, error)
        }))
    }

    /// Blocks are read soon. A hint: an error is met by the read.
    pub(crate) fn will_read(&self, segment: SegmentId, slot: Slot, blocks: BlockCount) {
        if let Ok((file, _)) = self.open(segment) {
            file.will_read(self.geometry.offset(slot), blocks.bytes().0);
        }
    }

    /// Reads whole blocks, with zeros for those that cannot be read; answers why, then. As
    /// [`SegmentFiles::read_if_there`].
    pub(crate) fn read_around(&self, segment: SegmentId, first: Slot, buffer: &mut [u8]) -> Option<Error> {
        self.read_if_there(segment, first, buffer).err()?;
        let mut failure = None;
        for (slot, block) in (first.0..).map(Slot).zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
            if let Err(error) = self.read_if_there(segment, slot, block) {
                block.fill(0);
                failure = Some(error);
            }
        }
        failure
    }

    /// Writes parts one after the other, the first at `slot`.
    pub(crate) fn write(&self, segment: SegmentId, slot: Slot, parts: &[(Kind, &[u8])]) -> Result<()> {
        self.write_with(segment, slot, parts, |file, offset| file.write_at(parts, offset))
    }

    /// Writes the header of the segment that it names.
    pub(crate) fn write_header(&self, header: &SegmentHeader) -> Result<()> {
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        header.encode(&mut block);
        self.write(header.segment, Slot(0), &[(Kind::Frame, &block)])
    }

    /// As [`SegmentFiles::write`], for short writes that many others follow before the flush.
    pub(crate) fn write_lazily(&self, segment: SegmentId, slot: Slot, parts: &[(Kind, &[u8])]) -> Result<()> {
        self.write_with(segment, slot, parts, |file, offset| file.write_lazily(parts, offset))
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
        let closed = || Error::Invalid(format!("pool {} was closed", self.storage.describe()));
        let _writing = self.copies.writing().ok_or_else(closed)?;
        let file = self.noted(self.get(segment))?;
        self.noted(write(&*file, offset).map_err(|error| {
            Error::io("write", format!("{bytes} bytes at {offset} of {}", file_name(segment)), error)
        }))?;
        self.copies.write(segment, offset, parts);
        Ok(())
    }

    /// A segment is going to be used for this: its header comes next.
    pub(crate) fn begin(&self, segment: SegmentId, kind: SegmentKind) {
        self.copies.begin(segment, kind);
    }

    /// Reads whole blocks from the copy of a segment; `false` if there is none, or it cannot be read. What
    /// was read has to be proved.
    pub(crate) fn read_copy(&self, segment: SegmentId, slot: Slot, buffer: &mut [u8]) -> bool {
        self.copies.read(segment, self.geometry.offset(slot), buffer)
    }

    /// Reads a stretch of a ledger segment as a whole, from its copy if need be, and writes it again then.
    /// `damaged`: what to say if it is not what was written; `still`: whether it lies there at this moment.
    ///
    /// # Errors
    /// Those of reading, or `damaged`, if the copy is no better.
    pub(crate) fn read_stretch(
        &self,
        pointer: &LedgerPointer,
        damaged: impl FnOnce() -> Error,
        still: impl FnOnce() -> bool,
    ) -> Result<Vec<u8>> {
        let LedgerPointer { segment, slot, blocks, .. } = *pointer;
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        let read = self.read(segment, slot, &mut bytes);
        let Err(error) = read.and_then(|()| if pointer.leads_to(&bytes) { Ok(()) } else { Err(damaged()) })
        else {
            return Ok(bytes);
        };
        if !self.read_copy(segment, slot, &mut bytes) || !pointer.leads_to(&bytes) {
            return Err(error);
        }
        self.heal(segment, slot, &bytes, &error, still);
        Ok(bytes)
    }

    /// Writes blocks again that were found not to be what was written, from their copy, which was. `still`:
    /// whether they lie there at this moment. `why`: what was found. Failing is no error. It is durable with
    /// the next checkpoint: see [`SegmentFiles::sync_healed`].
    pub(crate) fn heal(
        &self,
        segment: SegmentId,
        slot: Slot,
        bytes: &[u8],
        why: &Error,
        still: impl FnOnce() -> bool,
    ) {
        let mut done = !self.writable;
        if self.writable {
            let alone = self.copies.alone();
            if alone.is_none() || !still() {
                return;
            }
            let aligned = AlignedBuffer::copied(bytes);
            let offset = self.geometry.offset(slot);
            let outcome = self.get(segment).and_then(|file| {
                let written = file.write_at(&[(Kind::Copy, &aligned)], offset);
                written.map_err(|error| Error::io("write", file_name(segment), error))
            });
            done = self.noted(outcome).is_ok();
            if done {
                self.healed.lock().insert(segment);
            }
        }
        self.incidents.note_healed(why, self.writable.then_some(done));
        self.copies.mended(why.to_string(), Mended::Original, done);
    }

    /// Writes blocks of a copy again that were found not to be what was written, from what they are a copy
    /// of. As [`SegmentFiles::heal`].
    pub(crate) fn mend_copy(
        &self,
        segment: SegmentId,
        slot: Slot,
        bytes: &[u8],
        still: impl FnOnce() -> bool,
    ) {
        let offset = self.geometry.offset(slot);
        let name = crate::copies::copy_name(segment);
        let why = Error::damaged(format!("{name} at offset {offset}"), "the copy is not what was written");
        if self.writable {
            let alone = self.copies.alone();
            if alone.is_none() || !still() {
                return;
            }
            let aligned = AlignedBuffer::copied(bytes);
            self.copies.write(segment, offset, &[(Kind::Copy, &aligned)]);
        }
        self.incidents.note_harmless(&why);
        self.copies.mended(why.to_string(), Mended::Copy, true);
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

    /// Whether anything was healed that need not be durable yet.
    pub(crate) fn has_healed(&self) -> bool {
        !self.healed.lock().is_empty()
    }

    /// Makes durable what was healed so far. Answers how many segments that was in.
    ///
    /// # Errors
    /// As of every flush: the pool must not go on after it.
    pub(crate) fn sync_healed(&self) -> Result<u64> {
        let healed = std::mem::take(&mut *self.healed.lock());
        healed.iter().try_for_each(|segment| self.sync(*segment))?;
        Ok(healed.len() as u64)
    }
}

/// Finds out whether the user of this process may read all segments. That they are not open to that user is no
/// damage, and would look like it.
///
/// # Errors
/// [`Error::Io`] for the first one that may not be read.
pub(crate) fn require_readable(storage: &dyn Storage) -> Result<()> {
    let files = storage.list().map_err(|error| Error::io("list", storage.describe(), error))?;
    for (name, _) in files.iter().filter(|(name, _)| from_file_name(name).is_some()) {
        match storage.open(name, false) {
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                return Err(Error::io("open", name, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Opens a file, and once more with others closed where there may be no more of them: the rest of the process
/// may need more than it did.
pub(crate) fn with_others_closed<T>(
    open: impl Fn() -> std::io::Result<T>,
    close: impl FnOnce(),
) -> std::io::Result<T> {
    match open() {
        // EMFILE and ENFILE: this process, or the system, has too many files open.
        Err(error) if matches!(error.raw_os_error(), Some(24 | 23)) => {
            close();
            open()
        }
        opened => opened,
    }
}

/// Closes so many files, those that were not used for the longest time.
fn close_oldest(open: &mut NumberMap<SegmentId, Entry>, count: usize) {
    let mut used: Vec<u64> = open.values().map(|entry| entry.used.load(Ordering::Relaxed)).collect();
    let Some(last) = count.min(used.len()).checked_sub(1) else { return };
    let (_, newest_closed, _) = used.select_nth_unstable(last);
    let newest_closed = *newest_closed;
    open.retain(|_, entry| entry.used.load(Ordering::Relaxed) > newest_closed);
}
