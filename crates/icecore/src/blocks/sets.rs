//! Chunks of sets: where they lie, and those of them that are in memory.

use super::Blocks;
use crate::error::Result;
use crate::format::superblock::LedgerPointer;
use crate::liveness::{Part, PartRow, PartSource, SetChunk};
use crate::units::{SegmentId, Slot};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A chunk, and whether somebody looked into it since its turn to go came last.
struct Resident {
    place: LedgerPointer,
    chunk: Arc<SetChunk>,
    used: AtomicBool,
}

/// The chunks of sets that the ledger names, and those that are in memory.
pub(crate) struct Shelf {
    named: BTreeMap<(SegmentId, Slot), LedgerPointer>,
    resident: BTreeMap<(SegmentId, Slot), Resident>,
    /// Those in memory, the one whose turn to go comes next in front.
    turns: VecDeque<(SegmentId, Slot)>,
    resident_bytes: u64,
    limit: u64,
}

const fn key(place: &LedgerPointer) -> (SegmentId, Slot) {
    (place.segment, place.slot)
}

impl Shelf {
    /// An empty one, for so many bytes of chunks; one is kept in any case.
    pub(super) const fn new(limit: u64) -> Self {
        Self {
            named: BTreeMap::new(),
            resident: BTreeMap::new(),
            turns: VecDeque::new(),
            resident_bytes: 0,
            limit,
        }
    }

    /// The chunks that the ledger names.
    pub(crate) fn places(&self) -> impl Iterator<Item = LedgerPointer> {
        self.named.values().copied()
    }

    /// Memory that chunks take.
    #[cfg(test)]
    pub(crate) const fn resident_bytes(&self) -> u64 {
        self.resident_bytes
    }

    /// Number of chunks in memory.
    #[cfg(test)]
    pub(crate) fn resident(&self) -> usize {
        self.resident.len()
    }

    /// The ledger names these from now on: which it named before and does not any more.
    pub(crate) fn name(&mut self, places: impl Iterator<Item = LedgerPointer>) -> Vec<LedgerPointer> {
        let named: BTreeMap<_, _> = places.map(|place| (key(&place), place)).collect();
        let former = std::mem::replace(&mut self.named, named);
        let gone: Vec<_> =
            former.into_iter().filter(|(at, place)| self.named.get(at) != Some(place)).collect();
        for (at, _) in &gone {
            self.leave(*at);
        }
        gone.into_iter().map(|(_, place)| place).collect()
    }

    fn is_named(&self, place: &LedgerPointer) -> bool {
        self.named.get(&key(place)) == Some(place)
    }

    fn find(&self, place: &LedgerPointer) -> Option<Arc<SetChunk>> {
        let found = self.resident.get(&key(place)).filter(|found| found.place == *place)?;
        if !found.used.load(Ordering::Relaxed) {
            found.used.store(true, Ordering::Relaxed);
        }
        Some(Arc::clone(&found.chunk))
    }

    fn leave(&mut self, at: (SegmentId, Slot)) {
        if let Some(gone) = self.resident.remove(&at) {
            self.resident_bytes -= gone.chunk.bytes();
        }
    }

    /// Keeps a chunk that was read; others leave memory until what is there takes no more than is allowed, or is this one alone.
    fn keep(&mut self, place: LedgerPointer, chunk: &Arc<SetChunk>) {
        let at = key(&place);
        self.leave(at);
        self.resident_bytes += chunk.bytes();
        while self.resident_bytes > self.limit
            && let Some(next) = self.turns.pop_front()
        {
            let Some(found) = self.resident.get_mut(&next) else { continue };
            if std::mem::take(found.used.get_mut()) {
                self.turns.push_back(next);
            } else {
                self.leave(next);
            }
        }
        self.resident.insert(at, Resident { place, chunk: Arc::clone(chunk), used: AtomicBool::new(false) });
        self.turns.push_back(at);
    }
}

impl Blocks {
    /// Reads a chunk of sets, which does not stay in memory beyond that.
    ///
    /// # Errors
    /// It cannot be read, or is not what was written.
    pub(crate) fn read_set_chunk(&self, place: &LedgerPointer) -> Result<Arc<SetChunk>> {
        let is_named = || self.sets.read().is_named(place);
        let decode = |bytes: &[u8]| SetChunk::decode(bytes, self.pool);
        let read = self.read_decoded(place, "a chunk of sets", is_named, decode);
        read.map(Arc::new).inspect_err(|error| {
            if self.sets.read().is_named(place) {
                self.files.incidents().note(error);
            }
        })
    }
}

impl PartSource for Blocks {
    fn resident(&self, row: &PartRow) -> Option<Part> {
        let chunk = self.sets.read().find(&row.place)?;
        Part::of(&chunk, row).ok()
    }

    fn read(&self, row: &PartRow) -> Result<Part> {
        let found = self.sets.read().find(&row.place);
        if let Some(chunk) = found {
            return Part::of(&chunk, row);
        }
        let chunk = self.read_set_chunk(&row.place)?;
        let part = Part::of(&chunk, row)?;
        self.sets.write().keep(row.place, &chunk);
        Ok(part)
    }
}
