//! Copies that are not there although nothing says that they went: another process has removed them, or the
//! medium has lost them. They are made again like others that are missing, and their loss is reported.

use super::{Copies, Inner, Mended, Place, copy_name};
use crate::error::Error;
use crate::format::copies::CopyMode;
use crate::format::segment::SegmentKind;
use crate::units::SegmentId;
use std::collections::BTreeMap;

impl Copies {
    /// These segments have been in use since before the last superblock was written, which says that
    /// everything had its copy. To be asked before anything else happens to copies; [`Copies::adopt`] reports
    /// which have vanished.
    pub(crate) fn expect(&self, in_use: &BTreeMap<SegmentId, SegmentKind>) {
        let mut inner = self.inner.lock();
        let mode = inner.settings.mode;
        if mode == CopyMode::None || inner.settings.behind || inner.settings.since.is_some() {
            return;
        }
        let is_gone = |(segment, kind): &(&SegmentId, &SegmentKind)| {
            mode.covers(**kind) && !inner.files.contains_key(segment)
        };
        inner.vanished = in_use.iter().filter(is_gone).map(|(segment, _)| *segment).collect();
    }

    /// Whether a copy that counts is not where it should be. One that just comes or goes may seem so.
    pub(crate) fn seems_to_lack(&self) -> bool {
        let (place, known) = {
            let inner = self.inner.lock();
            let place = inner.place.clone().filter(|_| inner.is_copying());
            (place, inner.files.keys().copied().collect::<Vec<_>>())
        };
        // Long folders take their time. No writer has to wait for that.
        place.is_some_and(|place| !self.not_in(&place, known.into_iter()).is_empty())
    }

    /// Copies of which the file is gone, though it may be open here, count no more. Meanwhile no segment may
    /// find a use or lose it, and no writer may write.
    pub(crate) fn miss(&self) {
        self.change(|inner| {
            let Some(place) = inner.place.clone().filter(|_| inner.is_copying()) else { return };
            for segment in self.not_in(&place, inner.files.keys().copied()) {
                inner.files.remove(&segment);
                inner.unsynced.remove(&segment);
                inner.flawed.remove(&segment);
                inner.missing.insert(segment);
                inner.vanished.insert(segment);
                inner.directory_changed = true;
                inner.trouble(loss(segment).to_string());
                self.incidents.note_harmless(&loss(segment));
            }
        });
    }

    /// Those of these copies that are not among the files of a folder, if that can be asked.
    fn not_in(&self, place: &Place, copies: impl Iterator<Item = SegmentId>) -> Vec<SegmentId> {
        let Ok(there) = place.list(self.geometry) else { return Vec::new() };
        copies.filter(|segment| !there.contains_key(segment)).collect()
    }

    /// What had been given up before its loss was noticed is not missed. The rest is noted.
    pub(super) fn note_vanished(&self, inner: &mut Inner) {
        inner.vanished.retain(|segment| inner.missing.contains(segment));
        inner.vanished.iter().for_each(|segment| self.incidents.note_harmless(&loss(*segment)));
    }

    /// A copy was made: whether in place of one that had vanished.
    pub(super) fn made_again(&self, segment: SegmentId) {
        let had_vanished = self.inner.lock().vanished.remove(&segment);
        if had_vanished {
            self.mended(loss(segment).to_string(), Mended::Copy, true);
        }
    }
}

fn loss(segment: SegmentId) -> Error {
    Error::damaged(copy_name(segment), "it is missing or cut short")
}
