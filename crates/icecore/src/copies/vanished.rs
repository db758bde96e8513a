//! Copies that are not there although nothing says that they went: somebody has removed them, or the medium has lost them. They are made again
//! like others that are missing, and it is told.

use super::{Copies, Inner, Mended, copy_name};
use crate::error::Error;
use crate::format::copies::CopyMode;
use crate::format::segment::SegmentKind;
use crate::units::SegmentId;
use std::collections::BTreeMap;

impl Copies {
    /// These segments have been in use since before the last superblock was written, which says that everything had its copy. To be asked before
    /// anything else happens to copies; [`Copies::adopt`] tells which have vanished.
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
    Error::damaged(copy_name(segment), "it is missing")
}
