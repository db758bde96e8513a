//! Chunks of sets in the ledger: written with those of the location map, before a picture of everything.

use super::Engine;
use super::chunks::Chunks;
use crate::error::Result;
use crate::format::superblock::LedgerPointer;
use crate::liveness::{Part, PartRow, PartStore, SetChunk, StoredHistory, StoredSets};
use crate::units::{SegmentId, VersionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The sets of all versions as of a checkpoint, and of which versions they lie in other parts than before.
pub(super) struct Bases {
    sets: BTreeMap<VersionId, StoredSets>,
    changed: BTreeSet<VersionId>,
}

/// Chunks, as a place of parts of sets.
struct Shelves<'a, 'b> {
    chunks: &'a mut Chunks<'b>,
    /// The chunk that was read last: parts of a set lie side by side.
    last: Option<(LedgerPointer, Arc<SetChunk>)>,
}

impl PartStore for Shelves<'_, '_> {
    fn load(&mut self, row: &PartRow) -> Result<Part> {
        if let Some((place, chunk)) = &self.last
            && *place == row.place
        {
            return Part::of(chunk, row);
        }
        let chunk = self.chunks.engine.blocks.read_set_chunk(&row.place)?;
        self.last = Some((row.place, Arc::clone(&chunk)));
        Part::of(&chunk, row)
    }

    fn write(&mut self, parts: &[Vec<u8>]) -> Result<LedgerPointer> {
        let bytes = SetChunk::encode(self.chunks.engine.pool, parts);
        self.chunks.put(&bytes)
    }

    fn is_thin(&self, segment: SegmentId) -> bool {
        self.chunks.is_thin(segment)
    }
}

impl Engine {
    /// Writes what is in memory of large sets to chunks, and flushes them. Answers all sets, in the parts
    /// that they are in then. `None` if they stay as they are.
    pub(super) fn write_sets(&self, history: &mut StoredHistory) -> Result<Option<Bases>> {
        let limits = self.state().history.limits();
        let written = self.with_chunks(|chunks, written| {
            history.consolidate(&limits, &mut Shelves { chunks, last: None }, written)
        })?;
        let changed = written.unwrap_or_default();
        Ok((!changed.is_empty()).then(|| Bases { sets: history.bases(), changed }))
    }

    /// The ledger that names these chunks of sets, and no others, is durable. `bases`: the sets as it has
    /// them, if they are in other parts than before.
    pub(super) fn go_on_with_sets(&self, named: Vec<LedgerPointer>, bases: Option<&Bases>) {
        let mut state = self.state();
        if let Some(bases) = bases {
            state.history.go_on_with(&bases.sets, &bases.changed);
        }
        for place in self.blocks.sets().write().name(named.into_iter()) {
            state.segments.remove_live(place.segment, place.blocks.into());
        }
    }
}
