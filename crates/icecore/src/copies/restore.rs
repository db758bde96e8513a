//! Making copies of what was there before: of everything, where copies were left behind or shall lie
//! somewhere else, or of segments that lack one.

use super::place::unfinished_name;
use super::{Copies, File, Place, copy_name, room};
use crate::format::copies::{CopyMode, CopySettings};
use crate::format::segment::SegmentKind;
use crate::storage::{AlignedBuffer, Kind};
use crate::units::{BLOCK_BYTES, SegmentId};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

/// Blocks copied while no other thread may write.
const PIECE_BLOCKS: usize = 256;

impl Copies {
    /// What is to be copied changes within the same place: nothing that counts now counts less.
    pub(crate) fn set_mode(&self, mode: CopyMode) {
        self.change(|inner| inner.settings.mode = mode);
    }

    /// From here on copies go to this place, where there are none yet, and do not count.
    pub(crate) fn catch_up(&self, place: Place, mode: CopyMode, folder: Option<String>) {
        self.change(|inner| {
            inner.fall_behind("copies are not all made again yet".to_owned());
            let CopySettings { since, why, .. } = inner.settings.clone();
            inner.settings = CopySettings { mode, behind: true, ahead: false, since, why, folder };
            inner.aside = place.list_aside(self.geometry).unwrap_or_default();
            inner.place = Some(place);
            inner.catching_up = true;
        });
    }

    /// There are no copies from here on.
    pub(crate) fn give_up(&self) {
        self.change(|inner| {
            inner.fall_behind(String::new());
            inner.settings = CopySettings::none();
        });
    }

    /// What was copied is durable, and counts, unless something came between.
    pub(crate) fn caught_up(&self) {
        self.change(|inner| {
            if inner.catching_up {
                inner.settings.behind = false;
                inner.catching_up = false;
            }
        });
    }

    /// Copies have no place for the moment, and the lock on it is free for the next caller.
    pub(crate) fn leave_place(&self) {
        self.change(|inner| {
            inner.fall_behind("copies are not all made again yet".to_owned());
            inner.place = None;
        });
    }

    /// Where copies are, if that can be reached.
    pub(crate) fn place(&self) -> Option<Place> {
        self.inner.lock().place.clone()
    }

    /// As they are at this moment.
    pub(crate) fn settings(&self) -> CopySettings {
        self.inner.lock().settings.clone()
    }

    /// Segments in use that should have a copy and have none.
    pub(crate) fn lacking(&self, in_use: &BTreeMap<SegmentId, SegmentKind>) -> Vec<SegmentId> {
        self.change(|inner| {
            let mode = inner.settings.mode;
            let lacks = |(segment, kind): &(&SegmentId, &SegmentKind)| {
                mode.covers(**kind) && !inner.files.contains_key(segment)
            };
            let lacking: Vec<SegmentId> = in_use.iter().filter(lacks).map(|(segment, _)| *segment).collect();
            inner.missing = lacking.iter().copied().collect();
            if !lacking.is_empty() && inner.settings.since.is_none() {
                // A superblock that is written meanwhile must not say that everything has its copy.
                inner.trouble("copies are not all made yet".to_owned());
            }
            lacking
        })
    }

    /// Removes copies of segments that this mode does not cover, for good.
    pub(crate) fn shrink(&self, in_use: &BTreeMap<SegmentId, SegmentKind>) {
        let mode = self.settings().mode;
        self.release(|segment| !in_use.get(&segment).is_some_and(|kind| mode.covers(*kind)));
    }

    /// One of the segments that should have a copy and have none: the next after this one, around the end.
    pub(crate) fn next_missing(&self, after: Option<SegmentId>) -> Option<SegmentId> {
        let inner = self.inner.lock();
        if !inner.is_copying() || inner.settings.behind {
            return None;
        }
        let next = after.and_then(|after| inner.missing.range(SegmentId(after.0 + 1)..).next());
        next.or_else(|| inner.missing.first()).copied()
    }

    /// Whether this segment, used for this, should have a copy and has none.
    pub(crate) fn is_missing(&self, segment: SegmentId, kind: SegmentKind) -> bool {
        let inner = self.inner.lock();
        inner.is_copying() && inner.settings.mode.covers(kind) && inner.missing.contains(&segment)
    }

    /// A copy of a segment that does not count: what was there when copies were left behind, or is in the
    /// place that they leave. It may be of another use of the segment.
    pub(crate) fn former(&self, segment: SegmentId, left: Option<&Place>) -> Option<File> {
        let place = {
            let inner = self.inner.lock();
            inner.place.clone().filter(|_| inner.aside.contains(&segment))
        };
        let aside = place.and_then(|place| self.open_former(&place, &unfinished_name(segment), false));
        aside.or_else(|| self.open_former(left?, &copy_name(segment), false))
    }

    fn open_former(&self, place: &Place, name: &str, writable: bool) -> Option<File> {
        let file = place.storage.open(name, writable).ok()?;
        let is_whole = file.length().is_ok_and(|length| length >= self.geometry.bytes);
        is_whole.then(|| Arc::from(file))
    }

    /// Something is damaged in a copy as it is in what it is a copy of; none if nothing is known to be.
    pub(crate) fn flawed(&self, segment: SegmentId, what: Option<String>) {
        self.change(|inner| match what {
            Some(what) if inner.files.contains_key(&segment) => {
                inner.trouble(what.clone());
                inner.flawed.insert(segment, what);
            }
            _ => drop(inner.flawed.remove(&segment)),
        });
    }

    /// Segments of which copies are known to be flawed.
    pub(crate) fn all_flawed(&self) -> Vec<SegmentId> {
        self.inner.lock().flawed.keys().copied().collect()
    }

    /// Makes the copy of a segment that no caller will use for anything else meanwhile. `read` reads so many
    /// blocks from a slot on; what it cannot read has no copy. `goes_on` is asked before each piece, with
    /// nothing locked; where it does not, there is no copy, as before.
    ///
    /// # Errors
    /// The copy cannot be written; `Interrupted` if it was not to go on.
    pub(crate) fn fill(
        &self,
        segment: SegmentId,
        mut read: impl FnMut(u32, &mut [u8]) -> bool,
        mut goes_on: impl FnMut() -> bool,
    ) -> io::Result<()> {
        let Some(place) = self.place() else { return Err(io::ErrorKind::NotFound.into()) };
        let name = unfinished_name(segment);
        let was_aside = self.inner.lock().aside.contains(&segment);
        let former = Some(()).filter(|()| was_aside).and_then(|()| self.open_former(&place, &name, true));
        // Over what was there before, which is as good wherever it is the same.
        let is_over_former = former.is_some();
        let file = match former {
            Some(file) => file,
            None if !self.aside.has_room() => {
                let text = "the size limit leaves no room for another copy";
                return Err(io::Error::new(io::ErrorKind::StorageFull, text));
            }
            None => room::create(&place, &name, self.geometry)?,
        };
        // What is written to the segment from here on goes there, too.
        self.change(|inner| inner.filling = Some((segment, Arc::clone(&file))));
        let filled = self.fill_file(segment, &mut read, &mut goes_on).and_then(|()| {
            self.counters.flushes.add(1);
            file.sync()
        });
        let outcome = self.change(|inner| {
            let is_whole = inner.filling.take().is_some_and(|(filling, _)| filling == segment);
            inner.directory_changed = true;
            // In the same moment in which it is known that all of it was written until now. From here on, a
            // writer that fails to write the copy removes it.
            let named = filled.and_then(|()| {
                let whole = is_whole.then_some(()).ok_or_else(given_up);
                whole.and_then(|()| place.storage.rename(&name, &copy_name(segment)))
            });
            if named.is_ok() || !is_over_former {
                inner.aside.remove(&segment);
            }
            if named.is_ok() {
                inner.files.insert(segment, Some(file));
                inner.missing.remove(&segment);
                inner.unsynced.insert(segment);
            }
            named
        });
        if outcome.is_ok() {
            self.made_again(segment);
        }
        if let Err(error) = &outcome {
            if error.kind() != io::ErrorKind::Interrupted {
                self.change(|inner| inner.trouble(format!("{} cannot be made: {error}", copy_name(segment))));
            }
            if !is_over_former {
                // It means nothing under its name.
                let _ = place.storage.remove(&name);
            }
        }
        outcome
    }

    fn fill_file(
        &self,
        segment: SegmentId,
        read: &mut impl FnMut(u32, &mut [u8]) -> bool,
        goes_on: &mut impl FnMut() -> bool,
    ) -> io::Result<()> {
        let mut piece = AlignedBuffer::zeroed(PIECE_BLOCKS * BLOCK_BYTES);
        let mut slot = 0;
        while slot < self.geometry.slots() {
            let blocks = (self.geometry.slots() - slot).min(PIECE_BLOCKS as u32);
            if !goes_on() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let _alone = self.alone().ok_or_else(given_up)?;
            let file = match self.file(segment) {
                Some(file) => file?,
                None => return Err(given_up()),
            };
            let piece = &mut piece[..blocks as usize * BLOCK_BYTES];
            let mut from = 0;
            if read(slot, piece) {
                file.write_at(&[(Kind::Copy, piece)], u64::from(slot) * BLOCK_BYTES as u64)?;
                from = blocks;
            }
            // Block by block, around those that cannot be read.
            for index in from..blocks {
                let block = &mut piece[..BLOCK_BYTES];
                if read(slot + index, block) {
                    file.write_at(&[(Kind::Copy, block)], u64::from(slot + index) * BLOCK_BYTES as u64)?;
                }
            }
            self.counters.wrote(Kind::Copy, blocks as usize * BLOCK_BYTES);
            slot += blocks;
        }
        Ok(())
    }
}

/// Something that belongs into a copy could not be written, or copies were left behind, or the pool was
/// closed.
fn given_up() -> io::Error {
    io::Error::other("it was given up")
}
