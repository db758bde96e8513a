//! Second copies: what is written to a segment goes, byte for byte and to the same offset, to a file beside
//! it, from which reads are healed.
//!
//! A copy never stands in the way of what it is a copy of. It is written after it, it is not flushed until a
//! superblock is about to rely on it, and when it cannot be written the pool goes on without. What must hold:
//! *for everything that the durable superblock leads to, its copy is the same, or there is none, or the
//! superblock says that copies were left behind*. So a copy that could not be written is removed, and its
//! removal durable, before the next superblock; where not even that can be done, that superblock says so, and
//! no copy counts from then on until all are made again.
//!
//! Nothing that comes from a copy is taken for what it should be without its own proof: nodes have their
//! address and a checksum, ledger blobs are compared with the checksum in the pointer to them, blocks with
//! that in the table of their segment.

mod aside;
mod flush;
mod mends;
mod place;
mod report;
mod restore;
mod room;
mod vanished;

pub(crate) use aside::Aside;
pub(crate) use mends::{MendCounts, Mended, MendsSince};
pub(crate) use place::{Place, SUPERBLOCK_NAMES, copy_name, is_copy_name, is_name_of_pool};
pub use report::CopiesReport;

use crate::error::Error;
use crate::files::with_others_closed;
use crate::format::copies::{CopyMode, CopySettings, Reason};
use crate::format::segment::{Geometry, SegmentKind};
use crate::incidents::Incidents;
use crate::statistics::Statistics;
use crate::storage::{Kind, StorageFile};
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering, RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::units::{BLOCK_BYTES, SegmentId, Timestamp};
use mends::Mends;
use place::unfinished_name;
use report::CopyCounters;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// What stands before the reason that there was before.
const BEFORE: &str = "; before that: ";

/// Copies that are kept open at most.
const OPEN_MAX: usize = 64;
/// Of the files that a process may have open, this part is kept open here, and as many again for direct
/// writes.
const SHARE_OF_OPEN_FILES: usize = 16;

type File = Arc<dyn StorageFile>;

/// See the module.
pub(crate) struct Copies {
    geometry: Geometry,
    writable: bool,
    incidents: Arc<Incidents>,
    /// Shared by threads that write both of something. A thread that writes one of them from the other holds
    /// it alone. Its value: whether it is shut for good.
    gate: RwLock<bool>,
    /// Held while copies are flushed, before anything else of this.
    flushing: Mutex<()>,
    /// Something has a copy, or will have one: else nothing here takes a lock.
    is_on: AtomicBool,
    inner: Mutex<Inner>,
    aside: Arc<Aside>,
    counters: CopyCounters,
}

#[derive(Default)]
struct Inner {
    /// As they are at this moment: the superblock has what they were when it was written.
    settings: CopySettings,
    place: Option<Place>,
    /// Copies of what is in use, with the file if it is open.
    files: BTreeMap<SegmentId, Option<File>>,
    /// Segments in use without the copy that they should have.
    missing: BTreeSet<SegmentId>,
    /// Those of which there was a copy before: it lies aside, does not count, and is what the new one is made
    /// over.
    aside: BTreeSet<SegmentId>,
    /// Segments with a copy in which something is damaged as it is in the segment, and what.
    flawed: BTreeMap<SegmentId, String>,
    /// The copy that is being made of what was there before.
    filling: Option<(SegmentId, File)>,
    /// Copies were left behind, and all are being made again: they are written, and not read.
    catching_up: bool,
    unsynced: BTreeSet<SegmentId>,
    /// Copies that may not have room on the medium for all that can be written to them.
    sparse: BTreeSet<SegmentId>,
    brought_back: BTreeSet<SegmentId>,
    /// Missing ones that were there when the pool was last open, by all that is known.
    vanished: BTreeSet<SegmentId>,
    /// Files were made or removed since the directory was flushed.
    directory_changed: bool,
    mends: Mends,
}

impl Inner {
    /// Makes room for another open file.
    fn limit_files(&mut self, place: &Place) {
        let most = (place.storage.open_files_max() / SHARE_OF_OPEN_FILES).clamp(1, OPEN_MAX);
        if self.files.values().flatten().count() >= most {
            self.close_files();
        }
    }

    fn close_files(&mut self) {
        self.files.values_mut().for_each(|file| *file = None);
    }

    fn is_copying(&self) -> bool {
        self.place.is_some()
            && self.settings.mode != CopyMode::None
            && (!self.settings.behind || self.catching_up)
    }

    fn trouble(&mut self, why: String) {
        self.settings.since.get_or_insert_with(Timestamp::now);
        self.settings.why = Reason::of(why);
    }

    /// Why copies that had been left behind before cannot be reached, or do not count, either: what came of
    /// it need not be what it began with.
    fn why_still(&self, now: String) -> String {
        let known = self.settings.why.as_ref().filter(|_| self.settings.behind);
        let first = known.and_then(|known| known.text().rsplit(BEFORE).next()).filter(|first| *first != now);
        first.map_or(now.clone(), |first| format!("{now}{BEFORE}{first}"))
    }

    /// Forgets the trouble once everything has its copy.
    fn settle(&mut self) {
        if !self.missing.is_empty() || self.settings.behind {
            return;
        }
        self.settings.why = self.flawed.values().next().cloned().and_then(Reason::of);
        if self.settings.why.is_none() {
            self.settings.since = None;
        }
    }

    /// Files that copies are, whether they count or not.
    fn file_count(&self) -> usize {
        let made = self.filling.as_ref().is_some_and(|(segment, _)| !self.aside.contains(segment));
        self.files.len() + self.aside.len() + usize::from(made)
    }

    fn fall_behind(&mut self, why: String) {
        self.trouble(why);
        self.settings.behind = true;
        self.catching_up = false;
        self.files.clear();
        self.missing.clear();
        self.aside.clear();
        self.flawed.clear();
        self.vanished.clear();
        self.unsynced.clear();
        self.sparse.clear();
        self.filling = None;
        self.directory_changed = false;
    }
}

/// Why copies cannot be reached, or do not count.
pub(crate) struct Unusable {
    pub why: String,
    /// They are newer than the pool.
    pub ahead: bool,
}

impl From<String> for Unusable {
    fn from(why: String) -> Self {
        Self { why, ahead: false }
    }
}

impl Copies {
    /// The copies of a pool. `place`: where they are; none if that cannot be reached, for the reason given.
    /// Which of them are of what is in use is for [`Copies::adopt`] to say.
    pub(crate) fn new(
        geometry: Geometry,
        writable: bool,
        incidents: Arc<Incidents>,
        settings: CopySettings,
        place: Result<Place, Unusable>,
    ) -> Self {
        let mut inner = Inner { settings, ..Inner::default() };
        let found = place.and_then(|place| {
            let files = place.list(geometry);
            files.map(|files| (place, files)).map_err(|error| format!("it cannot be listed: {error}").into())
        });
        match found {
            Ok((place, files)) => {
                if !inner.settings.behind {
                    inner.files = files.into_keys().map(|segment| (segment, None)).collect();
                    inner.sparse = inner.files.keys().copied().collect();
                }
                inner.place = Some(place);
            }
            Err(Unusable { why, ahead }) => {
                let why = inner.why_still(why);
                inner.settings.ahead |= ahead;
                inner.fall_behind(why);
            }
        }
        let aside = Arc::default();
        let copies = Self {
            geometry,
            writable,
            incidents,
            gate: RwLock::new(false),
            flushing: Mutex::default(),
            is_on: AtomicBool::new(false),
            inner: Mutex::new(inner),
            aside,
            counters: CopyCounters::default(),
        };
        copies.refresh(&copies.inner.lock());
        copies
    }

    /// Brings what others look at without a lock up to date.
    fn refresh(&self, inner: &Inner) {
        self.is_on.store(inner.is_copying(), Ordering::Release);
        let within = inner.place.as_ref().is_some_and(|place| !place.elsewhere);
        self.aside.copying(if within { inner.settings.mode } else { CopyMode::None });
        self.aside.set_files(if within { inner.file_count() } else { 0 });
    }

    /// Changes something of it.
    fn change<T>(&self, body: impl FnOnce(&mut Inner) -> T) -> T {
        let mut inner = self.inner.lock();
        let outcome = body(&mut inner);
        inner.settle();
        self.refresh(&inner);
        outcome
    }

    pub(crate) fn aside(&self) -> &Arc<Aside> {
        &self.aside
    }

    /// Segments of which there is a copy that can be relied on, as far as is known.
    pub(crate) fn known(&self) -> Vec<SegmentId> {
        self.inner.lock().files.keys().copied().collect()
    }

    /// What each segment in use is used for is known: other copies are of former uses, and mean nothing.
    pub(crate) fn adopt(&self, in_use: &BTreeMap<SegmentId, SegmentKind>) {
        self.change(|inner| {
            if inner.settings.behind {
                return;
            }
            let mode = inner.settings.mode;
            let covered = |segment: &SegmentId| in_use.get(segment).is_some_and(|kind| mode.covers(*kind));
            inner.files.retain(|segment, _| covered(segment));
            let lacking = |segment: &&SegmentId| covered(segment) && !inner.files.contains_key(segment);
            inner.missing = in_use.keys().filter(lacking).copied().collect();
            self.note_vanished(inner);
            if let Err(error) = self.clear_former(inner) {
                inner.fall_behind(format!("former copies cannot be removed: {error}"));
                return;
            }
            if !inner.missing.is_empty() && inner.settings.why.is_none() {
                inner.trouble("a segment was found without its copy".to_owned());
            }
        });
    }

    /// Removes copies of what is not in use as it was: they could be mistaken for copies of what finds a use
    /// from here on.
    fn clear_former(&self, inner: &mut Inner) -> io::Result<()> {
        let Some(place) = inner.place.clone().filter(|_| self.writable) else { return Ok(()) };
        inner.aside = place.list_aside(self.geometry)?;
        inner.aside.retain(|segment| inner.missing.contains(segment));
        let aside = inner.aside.iter().map(|segment| unfinished_name(*segment));
        let kept: BTreeSet<String> =
            inner.files.keys().map(|segment| copy_name(*segment)).chain(aside).collect();
        place.clear(|name| !kept.contains(name) && !SUPERBLOCK_NAMES.contains(&name))
    }

    /// A segment is going to be used for this: what it has as a copy is made ready. Failing is no error.
    pub(crate) fn begin(&self, segment: SegmentId, kind: SegmentKind) {
        if !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let (place, covers, has) = {
            let inner = self.inner.lock();
            let Some(place) = inner.place.clone() else { return };
            (place, inner.settings.mode.covers(kind), inner.files.contains_key(&segment))
        };
        self.forget_former(&place, segment);
        match (covers, has) {
            (true, true) => {}
            (true, false) => self.make(&place, segment),
            (false, true) => self.remove(&place, segment),
            (false, false) => drop(self.change(|inner| inner.missing.remove(&segment))),
        }
    }

    /// What was there of a former use of a segment is of no use any more.
    fn forget_former(&self, place: &Place, segment: SegmentId) {
        let was_aside = self.change(|inner| {
            inner.flawed.remove(&segment);
            inner.vanished.remove(&segment);
            inner.aside.remove(&segment)
        });
        if was_aside {
            // It means nothing under its name.
            let _ = place.storage.remove(&unfinished_name(segment));
        }
    }

    fn make(&self, place: &Place, segment: SegmentId) {
        let made = if self.aside.has_room() {
            let create = || room::begin(place, &copy_name(segment), self.geometry);
            with_others_closed(create, || self.close_files())
        } else {
            Err(io::Error::new(io::ErrorKind::StorageFull, "the size limit leaves no room for it"))
        };
        self.change(|inner| match made {
            Ok((file, is_sparse)) => {
                inner.missing.remove(&segment);
                if is_sparse {
                    inner.sparse.insert(segment);
                }
                inner.limit_files(place);
                inner.files.insert(segment, Some(file));
                inner.directory_changed = true;
            }
            Err(error) => {
                // There is none under this name: what was of a former use is removed when that ends.
                inner.missing.insert(segment);
                inner.directory_changed = true;
                inner.trouble(format!("{} cannot be made: {error}", copy_name(segment)));
            }
        });
    }

    /// Gives a copy up.
    fn remove(&self, place: &Place, segment: SegmentId) {
        let removed = place.storage.remove(&copy_name(segment));
        self.change(|inner| {
            inner.files.remove(&segment);
            inner.missing.remove(&segment);
            inner.unsynced.remove(&segment);
            inner.sparse.remove(&segment);
            inner.flawed.remove(&segment);
            inner.directory_changed = true;
            match removed {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    inner.fall_behind(format!("{} cannot be removed: {error}", copy_name(segment)));
                }
                _ => {}
            }
        });
    }

    /// Removes copies of segments that are not in use any more.
    pub(crate) fn release(&self, is_free: impl Fn(SegmentId) -> bool) {
        if !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let (place, free, aside) = {
            let mut inner = self.inner.lock();
            inner.missing.retain(|segment| !is_free(*segment));
            let free: Vec<SegmentId> =
                inner.files.keys().copied().filter(|segment| is_free(*segment)).collect();
            let aside: Vec<SegmentId> =
                inner.aside.iter().copied().filter(|segment| is_free(*segment)).collect();
            (inner.place.clone(), free, aside)
        };
        if let Some(place) = place {
            aside.into_iter().for_each(|segment| self.forget_former(&place, segment));
            free.into_iter().for_each(|segment| self.remove(&place, segment));
        }
        self.change(|_| ());
    }

    /// Keeps everybody from writing one of two copies from the other. Held while something is written and
    /// then copied, also where nothing is copied yet: that may change at any time. `None` if nothing may be
    /// written any more.
    pub(crate) fn writing(&self) -> Option<RwLockReadGuard<'_, bool>> {
        Some(self.gate.read()).filter(|is_shut| !**is_shut)
    }

    /// Keeps everybody from writing anything that has a copy. `None` if nothing may be written any more.
    pub(crate) fn alone(&self) -> Option<RwLockWriteGuard<'_, bool>> {
        Some(self.gate.write()).filter(|is_shut| !**is_shut)
    }

    /// From here on nothing is written, to no segment and no copy: another engine may have the pool. Waits
    /// for those who write.
    pub(crate) fn shut(&self) {
        *self.gate.write() = true;
    }

    /// Writes to the copy of a segment what was written to the segment. Failing is no error.
    pub(crate) fn write(&self, segment: SegmentId, offset: u64, parts: &[(Kind, &[u8])]) {
        if !self.is_on.load(Ordering::Acquire) {
            return;
        }
        let Some(file) = self.file(segment) else { return };
        // Zeros written ahead are nothing to be kept.
        if parts.iter().any(|(kind, _)| *kind == Kind::Ahead) {
            return;
        }
        let copied: Vec<(Kind, &[u8])> = parts.iter().map(|(_, bytes)| (Kind::Copy, *bytes)).collect();
        let outcome = file.and_then(|file| file.write_at(&copied, offset));
        parts.iter().for_each(|(kind, bytes)| self.counters.wrote(*kind, bytes.len()));
        match outcome {
            Ok(()) => drop(self.inner.lock().unsynced.insert(segment)),
            Err(error) => self.contain(segment, "write", error),
        }
    }

    /// Closes what is not in use. Files are opened again when they are wanted.
    pub(crate) fn close_files(&self) {
        self.inner.lock().close_files();
    }

    /// The file of a copy, whether it may be read or not; `None` if there is none.
    fn file(&self, segment: SegmentId) -> Option<io::Result<File>> {
        let mut inner = self.inner.lock();
        if let Some((_, file)) = inner.filling.as_ref().filter(|(filling, _)| *filling == segment) {
            return Some(Ok(Arc::clone(file)));
        }
        match inner.files.get(&segment)? {
            Some(file) => Some(Ok(Arc::clone(file))),
            None => Some(self.open(&mut inner, segment)),
        }
    }

    fn open(&self, inner: &mut MutexGuard<'_, Inner>, segment: SegmentId) -> io::Result<File> {
        let place = inner.place.as_ref().expect("there are copies");
        let storage = Arc::clone(&place.storage);
        let open = || storage.open(&copy_name(segment), self.writable);
        let file: File = Arc::from(with_others_closed(open, || inner.close_files())?);
        if let Some(place) = inner.place.clone() {
            inner.limit_files(&place);
        }
        inner.files.insert(segment, Some(Arc::clone(&file)));
        Ok(file)
    }

    /// A copy cannot be relied on any more: it goes, before a reader mistakes it for one.
    fn contain(&self, segment: SegmentId, action: &'static str, error: io::Error) {
        let why = format!("{action} {}: {error}", copy_name(segment));
        // A full medium is no fault of it: the copy is made again when there is room.
        if !matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded) {
            self.incidents.note(&Error::io(action, copy_name(segment), error));
        }
        let place = self.change(|inner| {
            inner.trouble(why);
            if inner.filling.as_ref().is_some_and(|(filling, _)| *filling == segment) {
                // Under a name that means nothing.
                inner.filling = None;
                return None;
            }
            inner.place.clone().filter(|_| inner.files.contains_key(&segment))
        });
        if let Some(place) = place {
            self.remove(&place, segment);
            self.change(|inner| {
                if inner.is_copying() {
                    inner.missing.insert(segment);
                }
            });
        }
    }

    /// Whether there is a copy of a segment that counts.
    pub(crate) fn has(&self, segment: SegmentId) -> bool {
        let inner = self.inner.lock();
        !inner.settings.behind && inner.files.contains_key(&segment)
    }

    /// Fills `buffer` from the copy of a segment; `false` if there is none that counts, or it cannot be read.
    /// What was read has to be proved.
    pub(crate) fn read(&self, segment: SegmentId, offset: u64, buffer: &mut [u8]) -> bool {
        self.has(segment)
            && self.file(segment).is_some_and(|file| {
                let outcome = file.and_then(|file| file.read_at(buffer, offset));
                outcome
                    .map_err(|error| self.incidents.note(&Error::io("read", copy_name(segment), error)))
                    .is_ok()
            })
    }

    /// Where copies of the superblocks go: a folder of its own, that follows.
    pub(crate) fn place_of_superblocks(&self) -> Option<Place> {
        let inner = self.inner.lock();
        inner.place.clone().filter(|place| place.elsewhere && inner.is_copying())
    }

    /// Where it is noted what goes wrong with copies.
    pub(crate) fn incidents(&self) -> &Incidents {
        &self.incidents
    }

    /// One of the superblocks was copied.
    pub(crate) fn superblock_written(&self) {
        self.counters.wrote(Kind::Frame, BLOCK_BYTES);
        self.counters.flushes.add(1);
    }

    /// A segment that was gone was made again from its copy.
    pub(crate) fn brought_back(&self, segment: SegmentId, what: String) {
        self.mended(what, Mended::Original, true);
        self.inner.lock().brought_back.insert(segment);
    }

    /// Whether a segment was gone at opening, and made again from its copy. What the log has written to it
    /// since the last checkpoint need not be in there.
    pub(crate) fn is_brought_back(&self, segment: SegmentId) -> bool {
        self.inner.lock().brought_back.contains(&segment)
    }

    /// Copies were left behind, and why.
    pub(crate) fn fall_behind(&self, why: String) {
        self.change(|inner| inner.fall_behind(why));
    }

    /// Something was written to these segments after the last checkpoint of a life that was cut short: their
    /// copies may be behind it, and go.
    pub(crate) fn doubt(&self, segments: impl IntoIterator<Item = SegmentId>) {
        for segment in segments {
            self.inner.lock().vanished.remove(&segment);
            if let (true, Some(place)) = (self.has(segment), self.place()) {
                self.remove(&place, segment);
            }
        }
    }

    /// How copies stand.
    pub(crate) fn report(&self) -> CopiesReport {
        let inner = self.inner.lock();
        let mut report = CopiesReport::of(&inner.settings);
        report.missing = inner.missing.len() as u64;
        report
    }

    pub(crate) fn read_statistics(&self, into: &mut Statistics) {
        self.counters.read(into);
        let inner = self.inner.lock();
        into.copy_file_bytes = inner.file_count() as u64 * self.geometry.bytes;
        into.copies_missing = inner.missing.len() as u64;
    }
}
