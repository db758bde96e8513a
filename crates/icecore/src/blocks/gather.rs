//! Checksum tables of segments, from where they stand or from the record headers.

use super::survey::{Beside, note_sums};
use super::{Sums, Use};
use crate::error::{Error, Result};
use crate::files::SegmentFiles;
use crate::format::record::RecordView;
use crate::format::segment::{SegmentKind, decode_table, decode_table_block};
use crate::units::{BLOCK_BYTES, SegmentId, Slot};

/// What is known of the checksums of a segment.
pub(super) struct Known {
    /// By slot; 0 where none is known.
    pub sums: Vec<u32>,
    /// Why some of what would say more could not be read.
    pub unread: Option<Error>,
}

impl Sums {
    /// The table of a segment that is not being filled: as it stands there, or as record headers have it.
    ///
    /// # Errors
    /// Nothing is left that says what the segment is.
    pub(super) fn read_table(&self, segment: SegmentId, files: &SegmentFiles) -> Result<Known> {
        let use_ = self.use_of(segment, files)?;
        let unread = match self.table_there(segment, use_, files) {
            Ok(Some(sums)) => return Ok(Known { sums, unread: None }),
            Ok(None) => None,
            Err(error) => Some(error),
        };
        let known = self.rebuild(segment, use_, Slot(u32::MAX), files);
        Ok(Known { unread: unread.or(known.unread), ..known })
    }

    /// The table of a segment in this use as it stands there, or in its copy; `None` if it does not.
    ///
    /// # Errors
    /// It cannot be read, or is gone with the end of the file, and the copy does not have it.
    pub(super) fn table_there(
        &self,
        segment: SegmentId,
        use_: Use,
        files: &SegmentFiles,
    ) -> Result<Option<Vec<u32>>> {
        let (geometry, owner) = (files.geometry(), self.owner(segment, use_.incarnation));
        let at = geometry.end(use_.kind);
        let mut bytes = vec![0; geometry.table_blocks() as usize * BLOCK_BYTES];
        let read = files.read_if_there(segment, at, &mut bytes);
        let own = read.as_ref().ok().and_then(|()| decode_table(geometry, owner, &bytes));
        let found = own.or_else(|| {
            let copied = files.read_copy(segment, at, &mut bytes);
            copied.then(|| decode_table(geometry, owner, &bytes)).flatten()
        });
        if found.is_some() { Ok(found) } else { read.map(|()| None) }
    }

    /// One piece of the table of a segment that is not being filled, if it stands there and proves itself.
    /// What the segment is for need not be read for that, where it is known which use it is in.
    pub(super) fn read_piece(
        &self,
        segment: SegmentId,
        piece: u32,
        files: &SegmentFiles,
    ) -> Option<Vec<u32>> {
        let incarnation = match self.known_use(segment) {
            Some(incarnation) => incarnation,
            None => self.use_of(segment, files).ok()?.incarnation,
        };
        let end = files.geometry().end(SegmentKind::Log).0;
        let mut block = [0; BLOCK_BYTES];
        files.read_if_there(segment, Slot(end + piece), &mut block).ok()?;
        decode_table_block(self.owner(segment, incarnation), piece as usize, &block)
    }

    /// Gathers the table from the record headers of a segment that has none.
    pub(super) fn rebuild(&self, segment: SegmentId, use_: Use, end: Slot, files: &SegmentFiles) -> Known {
        let mut sums = vec![0; files.geometry().slots() as usize];
        let beside = Beside { copies: true, table: None };
        let mut note = |slot: Slot, record: &RecordView| note_sums(&mut sums, slot, record);
        let unread = self.walk((segment, use_), end, files, &beside, &mut note);
        Known { sums, unread }
    }
}
