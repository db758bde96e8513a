//! What holds a pool together beside its blocks, read for its own sake: superblocks and ledger.

use super::{Engine, superblocks};
use crate::error::{Error, Result};
use crate::format::crc32c;
use crate::format::segment::{SegmentHeader, SegmentKind, file_name};
use crate::format::superblock::NAMES;
use crate::units::{BLOCK_BYTES, SegmentId, Slot};

/// Ledger read at once.
const PIECE_BLOCKS: u32 = 256;

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
        NAMES.into_iter().filter_map(look).collect()
    }

    /// Compares the ledger with its checksums, while no checkpoint is on its way. If it is hurt, the next checkpoint
    /// writes all of it anew from memory.
    pub(crate) fn inspect_ledger(&self) -> Vec<Error> {
        let mut line = self.checkpoint.lock();
        let mut found = Vec::new();
        for blob in line.blobs.clone() {
            let damaged = |detail: &str| {
                let offset = self.geometry.offset(blob.slot);
                Error::damaged(format!("{} at offset {offset}", file_name(blob.segment)), detail)
            };
            match self.ledger_crc(blob.segment, blob.slot, blob.blocks) {
                Ok(crc) if crc == blob.crc => {}
                Ok(_) => found.push(damaged("a ledger blob does not match its checksum")),
                Err(error) => found.push(damaged(&error.to_string())),
            }
        }
        line.hurt |= !found.is_empty();
        found
    }

    /// Compares chunks of the location map with their checksums, while no checkpoint is on its way.
    pub(crate) fn inspect_chunks(&self) -> Vec<Error> {
        let _line = self.checkpoint.lock();
        let places: Vec<_> = self.blocks.map().read().directory().all().map(|(_, row)| row.place).collect();
        let mut found = Vec::new();
        for place in places {
            let detail = match self.ledger_crc(place.segment, place.slot, place.blocks) {
                Ok(crc) if crc == place.crc => continue,
                Ok(_) => "a chunk of the location map does not match its checksum".to_owned(),
                Err(error) => error.to_string(),
            };
            let offset = self.geometry.offset(place.slot);
            found.push(Error::damaged(format!("{} at offset {offset}", file_name(place.segment)), detail));
        }
        found
    }

    fn ledger_crc(&self, segment: SegmentId, slot: Slot, blocks: u32) -> Result<u32> {
        let mut bytes = vec![0; blocks as usize * BLOCK_BYTES];
        let mut at = 0;
        for piece in bytes.chunks_mut(PIECE_BLOCKS as usize * BLOCK_BYTES) {
            self.blocks.files().read(segment, Slot(slot.0 + at), piece)?;
            at += PIECE_BLOCKS;
        }
        self.counters.read_bytes_scrub.add(bytes.len() as u64);
        Ok(crc32c(&bytes))
    }

    /// Whether the header of a segment without data is what it should be.
    pub(crate) fn inspect_header(&self, segment: SegmentId, kind: SegmentKind) -> Result<bool> {
        let mut block = vec![0; BLOCK_BYTES];
        self.blocks.files().read(segment, Slot(0), &mut block)?;
        Ok(SegmentHeader::decode(&block).is_some_and(|header| {
            header.pool == self.pool && header.segment == segment && header.kind == kind
        }))
    }
}
