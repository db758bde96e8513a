//! Chunks of sets: where they lie, and those of them that are in memory.

use super::Blocks;
use crate::error::Result;
use crate::format::superblock::LedgerPointer;
use crate::liveness::{Part, PartRow, PartSource, SetChunk};
use crate::numbers::{NumberHash, number_cache};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::collections::BTreeSet;
use std::sync::Arc;

/// So few that the cache is not divided: each chunk may take up all of it.
const CHUNKS_EXPECTED: usize = 32;

/// By bytes, up to so many.
#[derive(Clone)]
struct ByBytes(u64);

impl Weighter<LedgerPointer, Arc<SetChunk>> for ByBytes {
    fn weight(&self, _place: &LedgerPointer, chunk: &Arc<SetChunk>) -> u64 {
        chunk.bytes().clamp(1, self.0)
    }
}

/// The chunks of sets that the ledger names, and those that are in memory.
pub(crate) struct Shelf {
    named: BTreeSet<LedgerPointer>,
    resident: Cache<LedgerPointer, Arc<SetChunk>, ByBytes, NumberHash>,
}

impl Shelf {
    /// An empty one, for so many bytes of chunks; one is kept in any case.
    pub(super) fn new(limit: u64) -> Self {
        // The cache takes nothing in that nearly fills it. What counts for so much is in it alone.
        let limit = limit.max(100);
        let resident = number_cache(CHUNKS_EXPECTED, limit, ByBytes(limit / 100 * 90));
        Self { named: BTreeSet::new(), resident }
    }

    /// The chunks that the ledger names.
    pub(crate) fn places(&self) -> impl Iterator<Item = LedgerPointer> {
        self.named.iter().copied()
    }

    /// Memory that chunks take.
    #[cfg(test)]
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.resident.iter().map(|(_, chunk)| chunk.bytes()).sum()
    }

    /// Number of chunks in memory.
    #[cfg(test)]
    pub(crate) fn resident(&self) -> usize {
        self.resident.len()
    }

    /// The ledger names these from now on: which it named before and does not any more.
    pub(crate) fn name(&mut self, places: impl Iterator<Item = LedgerPointer>) -> Vec<LedgerPointer> {
        let former = std::mem::replace(&mut self.named, places.collect());
        let gone: Vec<LedgerPointer> = former.difference(&self.named).copied().collect();
        for place in &gone {
            self.resident.remove(place);
        }
        gone
    }
}

impl Blocks {
    /// Reads a chunk of sets, which does not stay in memory beyond that.
    ///
    /// # Errors
    /// It cannot be read, or is not what was written.
    pub(crate) fn read_set_chunk(&self, place: &LedgerPointer) -> Result<Arc<SetChunk>> {
        let is_named = || self.sets.read().named.contains(place);
        let decode = |bytes: &[u8]| SetChunk::decode(bytes, self.pool);
        let read = self.read_decoded(place, "a chunk of sets", is_named, decode);
        read.map(Arc::new).inspect_err(|error| {
            if self.sets.read().named.contains(place) {
                self.files.incidents().note(error);
            }
        })
    }
}

impl PartSource for Blocks {
    fn resident(&self, row: &PartRow) -> Option<Part> {
        let chunk = self.sets.read().resident.get(&row.place)?;
        Part::of(&chunk, row).ok()
    }

    fn read(&self, row: &PartRow) -> Result<Part> {
        let found = self.sets.read().resident.get(&row.place);
        if let Some(chunk) = found {
            return Part::of(&chunk, row);
        }
        let chunk = self.read_set_chunk(&row.place)?;
        let part = Part::of(&chunk, row)?;
        self.sets.read().resident.insert(row.place, chunk);
        Ok(part)
    }
}
