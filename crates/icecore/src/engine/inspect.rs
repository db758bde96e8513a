//! What holds a pool together beside its blocks, read for its own sake: superblocks and ledger, and copies of
//! what vouches for blocks.

use super::{Engine, absent, superblocks};
use crate::blocks::Blocks;
use crate::copies::SUPERBLOCK_NAMES;
use crate::error::{Error, Result};
use crate::format::segment::{SegmentKind, decode_table};
use crate::format::superblock::{LedgerPointer, NAMES};
use crate::units::{BLOCK_BYTES, SegmentId, Slot};

/// Stretches of a ledger segment that a checkpoint and what it names are made of. `blobs`: those of its
/// ledger.
pub(super) fn stretches(blocks: &Blocks, blobs: &[LedgerPointer], segment: SegmentId) -> Vec<LedgerPointer> {
    let chunks = blocks.map().read().directory().all().map(|(_, row)| row.place).collect::<Vec<_>>();
    let sets: Vec<_> = blocks.sets().read().places().collect();
    let all = blobs.iter().copied().chain(chunks).chain(sets);
    all.filter(|place| place.segment == segment).collect()
}

impl Engine {
    /// Compares both superblocks with what was written last. Each is an error of its own.
    pub(crate) fn inspect_superblocks(&self) -> Vec<Error> {
        let superblock = self.superblock.lock();
        let path = self.storage.describe();
        let look = |name: &str| match superblocks::read_one(&*self.storage, name, &path) {
            Ok(found) if found == *superblock => None,
            Ok(_) => Some(Error::damaged(name, "it is not the superblock that was written last")),
            Err(error @ Error::Damaged { .. }) => Some(error),
            Err(error) => Some(Error::damaged(name, error.to_string())),
        };
        let mut errors: Vec<Error> = NAMES.into_iter().filter_map(look).collect();
        let copies = self.blocks.files().copies();
        if let Some(place) = copies.place_of_superblocks().filter(|_| copies.report().is_whole()) {
            let path = place.storage.describe();
            let read = |name: &&str| superblocks::read_one(&*place.storage, name, &path).err();
            errors.extend(SUPERBLOCK_NAMES.iter().filter_map(read));
        }
        errors
    }

    /// Compares the ledger with its checksums, while no checkpoint is on its way. If it is damaged, the next
    /// checkpoint writes all of it anew from memory.
    pub(crate) fn inspect_ledger(&self) -> Vec<Error> {
        let mut line = self.checkpoint.lock();
        let blobs = line.blobs.iter();
        let found: Vec<_> = blobs
            .filter_map(|blob| self.inspect_stretch(blob, "a ledger blob does not match its checksum"))
            .collect();
        line.corrupt |= !found.is_empty();
        found
    }

    /// Compares the copy of blocks with what was read, and verified, where they lie, and mends it. The
    /// segment must not be used for anything else meanwhile.
    fn inspect_copy(&self, segment: SegmentId, slot: Slot, bytes: &[u8]) {
        let files = self.blocks.files();
        let differs = || {
            let mut copy = vec![0; bytes.len()];
            files.copies().has(segment) && (!files.read_copy(segment, slot, &mut copy) || copy != bytes)
        };
        // Looked at again when no thread writes: it may have been on its way.
        if differs() {
            files.mend_copy(segment, slot, bytes, differs);
        }
    }

    /// Compares the copy of what vouches for the blocks of a data segment, where that is what was written,
    /// and mends it. Everything before `written` is on disk. The segment must not be used for anything else
    /// meanwhile.
    ///
    /// # Errors
    /// Reading failed; or nothing says any more what the segment is used for.
    pub(crate) fn inspect_frames(&self, segment: SegmentId, written: Slot) -> Result<()> {
        let (files, sums) = (self.blocks.files(), self.blocks.sums());
        if !files.copies().has(segment) {
            return Ok(());
        }
        let mut headers = Vec::new();
        let use_ = sums.survey(segment, written, files, &mut |slot, _| headers.push(slot))?;
        let mut block = vec![0; BLOCK_BYTES];
        for slot in headers {
            files.read(segment, slot, &mut block)?;
            if sums.is_record_of(use_, slot, &block) {
                self.inspect_copy(segment, slot, &block);
            }
        }
        files.read(segment, Slot(0), &mut block)?;
        if sums.is_header_of(use_, segment, &block) {
            self.inspect_copy(segment, Slot(0), &block);
        }
        let mut table = vec![0; self.geometry.table_blocks() as usize * BLOCK_BYTES];
        let at = self.geometry.end(use_.kind);
        files.read(segment, at, &mut table)?;
        if decode_table(self.geometry, sums.owner(segment, use_.incarnation), &table).is_some() {
            self.inspect_copy(segment, at, &table);
        }
        Ok(())
    }

    /// Compares chunks of the location map, and those of sets, with their checksums, while no checkpoint is
    /// on its way.
    pub(crate) fn inspect_chunks(&self) -> [Vec<Error>; 2] {
        let _line = self.checkpoint.lock();
        let map: Vec<_> = self.blocks.map().read().directory().all().map(|(_, row)| row.place).collect();
        let sets: Vec<_> = self.blocks.sets().read().places().collect();
        let of_map = "a chunk of the location map does not match its checksum";
        [(map, of_map), (sets, "a chunk of sets does not match its checksum")].map(|(places, detail)| {
            places.iter().filter_map(|place| self.inspect_stretch(place, detail)).collect()
        })
    }

    /// Stretches of a ledger segment that the last checkpoint and what it names are made of.
    pub(super) fn stretches_in(&self, segment: SegmentId) -> Vec<LedgerPointer> {
        stretches(&self.blocks, &self.checkpoint.lock().blobs, segment)
    }

    /// What is wrong with a segment that is cut short, if nothing is lost by that.
    pub(crate) fn harmless_cut(&self, segment: SegmentId) -> Option<Error> {
        let files = self.blocks.files();
        // Nearly all are whole, and what the ledger is made of is long.
        let cut = files.cut(segment)?;
        files.what_is_absent(segment).filter(|_| self.needs_none_of(segment, cut))
    }

    /// Whether nothing in a segment is needed from a slot on.
    pub(crate) fn needs_none_of(&self, segment: SegmentId, from: Slot) -> bool {
        let stretches = self.stretches_in(segment);
        absent::is_harmless(&self.blocks, &self.state(), &stretches, segment, from)
    }

    /// Compares a stretch of a ledger segment, and its copy, with its checksum: what is wrong with it. What
    /// is read from the copy is reported among what was mended. `mismatch`: what to say if neither is right.
    fn inspect_stretch(&self, place: &LedgerPointer, mismatch: &str) -> Option<Error> {
        let read = super::copies::read_blob(self.blocks.files(), place);
        self.counters.disk_read_bytes_scrub.add(u64::from(place.blocks) * BLOCK_BYTES as u64);
        let detail = match read {
            Ok(bytes) => {
                self.inspect_copy(place.segment, place.slot, &bytes);
                return None;
            }
            Err(Error::Damaged { .. }) => mismatch.to_owned(),
            Err(error) => error.to_string(),
        };
        Some(self.geometry.damaged(place.segment, place.slot, detail))
    }

    /// Reads and checks both copies of the header of a segment without data, which must not be used for
    /// anything else meanwhile: whether one of them is what it should be.
    pub(crate) fn inspect_header(&self, segment: SegmentId, kind: SegmentKind) -> bool {
        let files = self.blocks.files();
        let found = super::copies::read_header(files, self.pool, segment, kind);
        let mut block = vec![0; BLOCK_BYTES];
        if found.is_some() && files.read(segment, Slot(0), &mut block).is_ok() {
            self.inspect_copy(segment, Slot(0), &block);
        }
        found.is_some()
    }
}
