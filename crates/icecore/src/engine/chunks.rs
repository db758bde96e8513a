//! Chunks of the location map in the ledger, in segments of their own. They are written when a picture of
//! everything is, before it.

use super::space::{Filling, available};
use super::{Engine, Purpose};
use crate::error::{Error, Result};
use crate::format::superblock::LedgerPointer;
use crate::location::{Absent, Chunk, ChunkStore, ChunkedMap, Consolidated, PlacedRun, SharedChunk};
use crate::units::{SegmentId, Stream};
use std::collections::BTreeSet;

/// A segment is emptied of chunks when they take less than this part of it.
const THIN_PART: u64 = 4;
/// Segments that are free, beside the reserve of a writer that adds something, when chunks are written before
/// a picture of everything is due.
const SEGMENTS_TO_SPARE: u64 = 2;

/// The ledger, as a place of chunks.
pub(super) struct Chunks<'a> {
    pub(super) engine: &'a Engine,
    /// The segment that chunks were written to last.
    filling: Option<SegmentId>,
    /// Segments that were written to.
    touched: BTreeSet<SegmentId>,
    /// Why a chunk could not be read.
    unread: Option<Error>,
}

impl Chunks<'_> {
    /// Writes a chunk. Not flushed.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<LedgerPointer> {
        // Nothing needs it to be written now, and the reserve is for what does.
        self.engine.ensure_free(&mut self.engine.state(), 1, Purpose::Data)?;
        let place = self.engine.write_to_ledger(Filling::Chunks, bytes)?;
        self.touched.insert(place.segment);
        Ok(place)
    }

    /// Whether so little of a segment is chunks that it should be emptied of them.
    pub(super) fn is_thin(&self, segment: SegmentId) -> bool {
        let slots = u64::from(self.engine.geometry.slots());
        self.filling != Some(segment) && self.engine.state().segments.live(segment) < slots / THIN_PART
    }
}

impl ChunkStore for Chunks<'_> {
    fn load(&mut self, absent: &Absent) -> Result<SharedChunk> {
        let chunk = self.engine.blocks.chunk(absent).and_then(|chunk| {
            let gone = || Error::damaged("the location map", "a chunk is not the one that the ledger has");
            chunk.ok_or_else(gone)
        });
        chunk.inspect_err(|error| self.unread = Some(Error::damaged("the location map", error.to_string())))
    }

    fn write(&mut self, stream: Stream, runs: &[PlacedRun]) -> Result<LedgerPointer> {
        let bytes = Chunk::encode(self.engine.pool, stream, runs);
        self.put(&bytes)
    }

    /// Chunks of sets lie in the same segments.
    fn is_thin(&self, segment: SegmentId, _: u64) -> bool {
        Chunks::is_thin(self, segment)
    }
}

impl Engine {
    /// Writes the chunks that a map changes, and flushes them. `None` if the map stays as it is: there is
    /// little in it, a chunk cannot be read, or there is no room. Then the picture of everything names the
    /// chunks that there were, and says what changed.
    pub(super) fn write_chunks(&self, map: &ChunkedMap) -> Result<Option<Box<Consolidated>>> {
        if map.is_small() {
            return Ok(None);
        }
        let written = self.with_chunks(|chunks, written| map.consolidate(chunks, written))?;
        Ok(written.map(Box::new))
    }

    /// Calls `body` with a place for chunks, and flushes what it wrote there. `None` if that is of no use: a
    /// chunk cannot be read, or there is no room.
    pub(super) fn with_chunks<T>(
        &self,
        body: impl FnOnce(&mut Chunks<'_>, &mut Vec<LedgerPointer>) -> Result<T>,
    ) -> Result<Option<T>> {
        let filling = self.state().chunk_cursor.map(|cursor| cursor.segment);
        let mut ledger = Chunks { engine: self, filling, touched: BTreeSet::new(), unread: None };
        let mut written = Vec::new();
        let outcome = body(&mut ledger, &mut written);
        let (touched, unread) = (ledger.touched, ledger.unread);
        match outcome {
            Ok(chunks) => {
                for segment in touched {
                    self.blocks.files().sync(segment)?;
                    self.counters.flushes.add(1);
                }
                Ok(Some(chunks))
            }
            Err(error)
                if unread.is_some() || matches!(error, Error::NoSpace { .. } | Error::Damaged { .. }) =>
            {
                let mut state = self.state();
                written
                    .iter()
                    .for_each(|place| state.segments.remove_live(place.segment, place.blocks.into()));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the map or sets changed so much that chunks should be written, and there is room for them.
    pub(super) fn chunks_are_due(&self) -> bool {
        let map_is_due = self.blocks.map().read().is_due();
        let state = self.state();
        (map_is_due || state.history.is_due()) && {
            available(&state) > self.reserve(&state, Purpose::Data) as u64 + SEGMENTS_TO_SPARE
        }
    }

    /// Where chunks lie, and how many blocks each takes.
    pub(super) fn chunk_places(&self) -> Vec<(SegmentId, u32)> {
        let map = self.blocks.map().read();
        let sets = self.blocks.sets().read();
        let places = map.directory().all().map(|(_, row)| row.place).chain(sets.places());
        places.map(|place| (place.segment, place.blocks)).collect()
    }

    /// The ledger that names these chunks is durable.
    pub(super) fn go_on_with_chunks(&self, chunks: Consolidated) {
        let mut state = self.state();
        for place in &chunks.replaced {
            state.segments.remove_live(place.segment, place.blocks.into());
        }
        let mut map = self.blocks.map().write();
        let tail = map.recent_within(state.tail_mapped);
        map.go_on_with(chunks.directory);
        tail.iter().for_each(|placed| map.keep_at_hand(placed));
    }
}
