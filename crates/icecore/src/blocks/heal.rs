//! Blocks that are not what was written, from their second copies.

use super::{Blocks, Doubts, Flaw, Sums, Use};
use crate::error::{Error, Result};
use crate::format::crc32c;
use crate::format::record::RecordView;
use crate::format::segment::{Geometry, SegmentHeader, SegmentKind, decode_table};
use crate::units::{BLOCK_BYTES, SegmentId, Slot};

impl Blocks {
    /// Reads blocks one by one, each from its copy if need be. `first`: the uses as they were before the
    /// first read, and what came of that read.
    ///
    /// # Errors
    /// That of `first`, if it is no matter of the medium, or a block of a segment without a copy; else that
    /// of the first block of which no copy is right.
    pub(super) fn read_with_copies(
        &self,
        segment: SegmentId,
        slot: Slot,
        into: &mut [u8],
        (uses, error): (u64, Error),
        doubts: &mut Doubts,
    ) -> Result<()> {
        let medium = matches!(error, Error::Damaged { .. } | Error::Io { .. });
        if !medium || !self.files.read_copy(segment, slot, &mut [0; BLOCK_BYTES]) {
            return Err(error);
        }
        for (index, block) in into.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            let slot = Slot(slot.0 + index as u32);
            let read = self.files.read(segment, slot, block);
            let outcome = read.and_then(|()| self.compare(segment, slot, block, doubts));
            if let Err(error) = outcome {
                if !self.take_copy(segment, slot, block, uses, &error) {
                    return Err(error);
                }
                doubts.made_good(&error.to_string());
            }
        }
        Ok(())
    }

    /// Reads a block that an open group has written ahead. The group alone knows its checksum.
    ///
    /// # Errors
    /// The block cannot be read or does not match, and neither does its copy.
    pub(crate) fn read_unsealed(
        &self,
        segment: SegmentId,
        slot: Slot,
        sum: u32,
        into: &mut [u8],
    ) -> Result<()> {
        let read = self.files.read(segment, slot, into);
        if read.is_ok() && crc32c(into) == sum {
            return Ok(());
        }
        if self.files.read_copy(segment, slot, into) && crc32c(into) == sum {
            return Ok(());
        }
        read?;
        let detail = "a block of an open transaction does not match its checksum";
        let error = self.files.geometry().damaged(segment, slot, detail);
        self.files.incidents().note(&error);
        Err(error)
    }

    /// Fills a block of a data segment from its copy, and writes it again; `false` if the copy is not what
    /// was written either.
    pub(crate) fn take_copy(
        &self,
        segment: SegmentId,
        slot: Slot,
        block: &mut [u8],
        uses: u64,
        why: &Error,
    ) -> bool {
        if !self.copy_is_right(segment, slot, block) {
            return false;
        }
        // A segment that found a new use since has nothing to do with this block any more.
        self.files.heal(segment, slot, block, why, || self.sums.uses() == uses);
        true
    }

    /// Looks at everything in a data segment before a slot, and heals what is not what was written and has a
    /// copy that is. The segment must not be used for anything else meanwhile. `is_full`: as for
    /// [`Sums::inspect`]. A later reader meets what cannot be healed.
    pub(crate) fn heal_all(&self, segment: SegmentId, end: Slot, is_full: bool) {
        if !self.files.copies().has(segment) {
            return;
        }
        let Ok(table) = self.sums.whole(segment, &self.files) else { return };
        let slots = (1..end.0).map(Slot).zip(table.iter().skip(1));
        let mut block = [0; BLOCK_BYTES];
        for (slot, sum) in slots.filter(|(_, sum)| **sum != 0) {
            let read = self.files.read(segment, slot, &mut block);
            if read.is_ok() && crc32c(&block) == *sum {
                continue;
            }
            if self.files.read_copy(segment, slot, &mut block) && crc32c(&block) == *sum {
                let detail = "a data block does not match its checksum";
                let why = self.files.geometry().damaged(segment, slot, detail);
                self.files.heal(segment, slot, &block, &why, || true);
            }
        }
        self.heal_headers(segment, table.iter().take(end.0 as usize));
        for flaw in self.sums.inspect(segment, end, is_full, &self.files).unwrap_or_default() {
            self.heal_flaw(segment, &flaw);
        }
    }

    /// Heals the headers of records that only the copy of a segment has. What lies behind a header is not
    /// found without it, and that may be the next damaged header. `sums`: those of the segment; a header has
    /// none.
    fn heal_headers<'s>(&self, segment: SegmentId, sums: impl Iterator<Item = &'s u32>) {
        let files = &self.files;
        let Ok(use_) = self.sums.use_of(segment, files) else { return };
        let mut block = [0; BLOCK_BYTES];
        let headers = (0..).map(Slot).zip(sums).skip(1).filter(|(_, sum)| **sum == 0);
        for (slot, _) in headers {
            let is_whole =
                files.read(segment, slot, &mut block).is_ok() && self.sums.is_record_of(use_, slot, &block);
            let is_healed = !is_whole
                && files.read_copy(segment, slot, &mut block)
                && self.sums.is_record_of(use_, slot, &block);
            if is_healed {
                let why =
                    files.geometry().damaged(segment, slot, "the record header is not what was written");
                files.heal(segment, slot, &block, &why, || true);
            }
        }
    }

    /// Checksums of a data segment, by slot: 0 where nothing is known to have been written.
    ///
    /// # Errors
    /// Nothing is left that says so.
    pub(crate) fn checksums(&self, segment: SegmentId) -> Result<Vec<u32>> {
        self.sums.whole(segment, &self.files)
    }

    /// Reads the copy of a block of a data segment: whether there is one, and it matches its checksum.
    pub(crate) fn copy_is_right(&self, segment: SegmentId, slot: Slot, block: &mut [u8]) -> bool {
        self.files.read_copy(segment, slot, block) && self.matches(segment, slot, block).unwrap_or(false)
    }

    /// As [`Blocks::read_verified`], of both copies where there are two: a copy that is not what was written
    /// is written again. The segment may be used for something else meanwhile.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn read_both(
        &self,
        segment: SegmentId,
        slot: Slot,
        into: &mut [u8],
        doubts: &mut Doubts,
    ) -> Result<()> {
        let uses = self.sums.uses();
        self.read_doubted(segment, slot, into, false, doubts)?;
        if !self.files.copies().has(segment) {
            return Ok(());
        }
        let mut copy = [0; BLOCK_BYTES];
        for (index, block) in into.chunks_exact(BLOCK_BYTES).enumerate() {
            let slot = Slot(slot.0 + index as u32);
            if !self.copy_is_right(segment, slot, &mut copy) {
                self.files.mend_copy(segment, slot, block, || self.sums.uses() == uses);
            }
        }
        Ok(())
    }

    /// Writes what vouches for blocks again from its copy, if the copy is what belongs there; `false` if it
    /// is not, or there is none. The segment must not be used for anything else meanwhile.
    pub(crate) fn heal_flaw(&self, segment: SegmentId, flaw: &Flaw) -> bool {
        let files = &self.files;
        let Some(use_) = self.sums.use_of(segment, files).ok().filter(|_| files.copies().has(segment)) else {
            return false;
        };
        let geometry = files.geometry();
        let (slot, blocks) = if flaw.is_of_table() {
            (geometry.end(use_.kind), geometry.table_blocks())
        } else {
            (flaw.slot, 1)
        };
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        let mut present = bytes.clone();
        let copied = files.read_copy(segment, slot, &mut bytes);
        if !copied || !self.sums.belongs_there(segment, use_, flaw, &bytes, geometry) {
            return false;
        }
        // One that is the same is a flaw for another reason.
        if files.read(segment, slot, &mut present).is_ok() && present == bytes {
            return false;
        }
        if flaw.slot == Slot(0) {
            // Once there is a header, the table beside it is believed. The table may be as foreign as the
            // header was.
            self.heal_table(segment, use_);
        }
        let detail = format!("the {} is not what was written", flaw.what);
        let why = geometry.damaged(segment, flaw.slot, detail);
        files.heal(segment, slot, &bytes, &why, || true);
        true
    }

    /// Writes the table of a segment again from its copy, if that has one and another one.
    fn heal_table(&self, segment: SegmentId, use_: Use) {
        let files = &self.files;
        let geometry = files.geometry();
        let at = geometry.end(use_.kind);
        let mut bytes = vec![0; geometry.table_blocks() as usize * BLOCK_BYTES];
        let mut present = bytes.clone();
        let copied = files.read_copy(segment, at, &mut bytes);
        let is_table =
            copied && decode_table(geometry, self.sums.owner(segment, use_.incarnation), &bytes).is_some();
        if is_table && !(files.read(segment, at, &mut present).is_ok() && present == bytes) {
            let why = geometry.damaged(segment, at, "the checksum table is not what was written");
            files.heal(segment, at, &bytes, &why, || true);
        }
    }
}

impl Sums {
    /// Whether these bytes are what belongs in the place of a flaw, in this use of the segment.
    fn belongs_there(
        &self,
        segment: SegmentId,
        use_: Use,
        flaw: &Flaw,
        bytes: &[u8],
        geometry: Geometry,
    ) -> bool {
        if flaw.is_of_table() {
            return decode_table(geometry, self.owner(segment, use_.incarnation), bytes).is_some();
        }
        if flaw.slot == Slot(0) {
            return self.is_header_of(use_, segment, bytes);
        }
        self.is_record_of(use_, flaw.slot, bytes)
    }

    /// Whether a block is the header of a segment in this use.
    pub(crate) fn is_header_of(&self, use_: Use, segment: SegmentId, block: &[u8]) -> bool {
        SegmentHeader::of(self.pool, segment, block)
            .is_some_and(|header| (header.kind, header.incarnation) == (use_.kind, use_.incarnation))
    }

    /// Whether a block is the header of a record, or of a run, of this use of its segment.
    pub(crate) fn is_record_of(&self, use_: Use, slot: Slot, block: &[u8]) -> bool {
        RecordView::decode(block).is_some_and(|record| {
            let header = &record.header;
            let is_run = use_.kind == SegmentKind::Run;
            header.pool == self.pool
                && header.incarnation == use_.incarnation
                && header.run == is_run
                && (!is_run || header.address.0 == u64::from(slot.0))
        })
    }

    /// Whether more comes to a segment in its present use.
    pub(crate) fn is_being_filled(&self, segment: SegmentId) -> bool {
        self.tables.filling(segment).is_some()
    }
}
