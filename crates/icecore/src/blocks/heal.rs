//! Blocks that are not what was written, from their second copies.

use super::Blocks;
use crate::error::{Error, Result};
use crate::units::{BLOCK_BYTES, SegmentId, Slot};

impl Blocks {
    /// Reads blocks one by one, each from its copy if need be. `uses`: as it was before they were read for the first time.
    ///
    /// # Errors
    /// `error`, if that is no matter of the medium, or a block of a segment without a copy; else that of the first block
    /// of which no copy is right.
    pub(super) fn read_with_copies(
        &self,
        segment: SegmentId,
        slot: Slot,
        into: &mut [u8],
        uses: u64,
        error: Error,
    ) -> Result<()> {
        let medium = matches!(error, Error::Damaged { .. } | Error::Io { .. });
        if !medium || !self.files.read_copy(segment, slot, &mut [0; BLOCK_BYTES]) {
            return Err(error);
        }
        for (index, block) in into.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            let slot = Slot(slot.0 + index as u32);
            let outcome =
                self.files.read(segment, slot, block).and_then(|()| self.verify(segment, slot, block));
            if let Err(error) = outcome
                && !self.take_copy(segment, slot, block, uses, &error)
            {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Fills a block of a data segment from its copy, and writes it again; `false` if the copy is not what was written
    /// either.
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

    /// Reads the copy of a block of a data segment: whether there is one, and it matches its checksum.
    pub(crate) fn copy_is_right(&self, segment: SegmentId, slot: Slot, block: &mut [u8]) -> bool {
        self.files.read_copy(segment, slot, block) && self.matches(segment, slot, block).unwrap_or(false)
    }

    /// As [`Blocks::read_verified`], of both copies where there are two: a copy that is not what was written is written again.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn read_both(&self, segment: SegmentId, slot: Slot, into: &mut [u8]) -> Result<()> {
        let uses = self.sums.uses();
        self.read_verified(segment, slot, into)?;
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
}
