//! Writing chunks anew: those that changes fall into, a piece at a time, and no others.

use super::changes::damaged;
use super::chunk::{Absent, Chunk, SharedChunk};
use super::chunked::{ChunkedMap, span_of};
use super::directory::{ChunkRow, Directory, absent, blocks_by_segment};
use super::map::{LocationMap, PlacedRun};
use crate::error::Result;
use crate::format::superblock::LedgerPointer;
use crate::liveness::Span;
use crate::units::{LogAddress, Run, SegmentId, Stream};
use std::collections::BTreeMap;

/// Where chunks are read from and written to.
pub trait ChunkStore {
    /// Reads a chunk.
    fn load(&mut self, absent: &Absent) -> Result<SharedChunk>;

    /// Writes these runs as a chunk.
    fn write(&mut self, stream: Stream, runs: &[PlacedRun]) -> Result<LedgerPointer>;

    /// Whether a segment is worth being emptied, with so many blocks of chunks in it.
    fn is_thin(&self, segment: SegmentId, blocks: u64) -> bool;
}

/// The chunks of a map that has no other changes.
#[derive(Debug, Default)]
pub struct Consolidated {
    /// All of them.
    pub directory: Directory,
    /// Those that were written.
    pub written: Vec<LedgerPointer>,
    /// Those that are not needed any more.
    pub replaced: Vec<LedgerPointer>,
}

impl ChunkedMap {
    /// Writes what changed since the chunks were written to chunks. The map stays as it is. What it takes of
    /// memory is a few chunks. At an error `written` has chunks that no map needs.
    pub fn consolidate(
        &self,
        store: &mut dyn ChunkStore,
        written: &mut Vec<LedgerPointer>,
    ) -> Result<Consolidated> {
        let thin = blocks_by_segment(&self.directory);
        let thin =
            thin.into_iter().map(|(segment, blocks)| (segment, store.is_thin(segment, blocks))).collect();
        let mut work = Work { map: self, store, thin, written, outcome: Consolidated::default() };
        Stream::ALL.into_iter().try_for_each(|stream| work.stream(stream))?;
        let mut outcome = work.outcome;
        outcome.written.clone_from(written);
        Ok(outcome)
    }
}

struct Work<'a> {
    map: &'a ChunkedMap,
    store: &'a mut dyn ChunkStore,
    thin: BTreeMap<SegmentId, bool>,
    written: &'a mut Vec<LedgerPointer>,
    outcome: Consolidated,
}

impl Work<'_> {
    fn stream(&mut self, stream: Stream) -> Result<()> {
        let map = self.map;
        let rows = map.directory.rows(stream);
        // What is to be in the next chunks. They are in order: nothing that comes later has a lower address.
        let mut gathered = LocationMap::new();
        let start_of = |index: usize| rows.get(index).map_or(LogAddress(u64::MAX), |row| row.span.start);
        self.gather(&mut gathered, stream, LogAddress(0)..start_of(0))?;
        for (index, row) in rows.iter().enumerate() {
            let span = row.span.start..start_of(index + 1);
            let joins =
                !gathered.is_empty() && gathered.len() + row.entries as usize <= map.limits.chunk_entries / 2;
            if !self.is_touched(stream, row, &span) && !joins {
                self.put_away(&mut gathered, stream, 0)?;
                self.keep(stream, row)?;
                continue;
            }
            let chunk = self.store.load(&absent(stream, row))?;
            for placed in map.holding(stream, &chunk) {
                place(&mut gathered, &placed)?;
            }
            self.outcome.replaced.push(row.place);
            self.gather(&mut gathered, stream, span)?;
            self.put_away(&mut gathered, stream, 2 * map.limits.chunk_entries)?;
        }
        self.put_away(&mut gathered, stream, 0)
    }

    /// Whether a chunk is not all there is to be said of the addresses up to the next one.
    fn is_touched(&self, stream: Stream, row: &ChunkRow, span: &Span) -> bool {
        let map = self.map;
        map.recent.entries_within(Run::of(stream, span)).next().is_some()
            || map.void[stream as usize].runs_within(&row.span).next().is_some()
            || map.retired.iter().any(|segment| row.may_name(*segment))
            || self.thin.get(&row.place.segment).copied().unwrap_or(false)
    }

    fn keep(&mut self, stream: Stream, row: &ChunkRow) -> Result<()> {
        if self.outcome.directory.add(stream, row.clone()) { Ok(()) } else { Err(damaged("chunks overlap")) }
    }

    /// Adds what changed within a span.
    fn gather(&mut self, gathered: &mut LocationMap, stream: Stream, span: Span) -> Result<()> {
        let run = Run::of(stream, &span);
        let recent = &self.map.recent;
        for placed in recent.entries_within(run) {
            place(gathered, &placed)?;
            // Chunks of what lies before the span were read already: there is nothing more to come in
            // between.
            if gathered.len() >= 4 * self.map.limits.chunk_entries
                && gathered.end(stream) == Some(placed.run.end())
            {
                self.put_away(gathered, stream, 2 * self.map.limits.chunk_entries)?;
            }
        }
        Ok(())
    }

    /// Writes chunks of the first of what was gathered, until no more than so many entries are left.
    fn put_away(&mut self, gathered: &mut LocationMap, stream: Stream, left: usize) -> Result<()> {
        while gathered.len() > left {
            let most = self.map.limits.chunk_entries;
            let count = gathered.len();
            // The last two are about as long as each other.
            let entries = if count > most && count < 2 * most { count.div_ceil(2) } else { most };
            let runs = gathered.take_first(stream, entries);
            let place = self.store.write(stream, &runs)?;
            self.written.push(place);
            self.keep(stream, &ChunkRow::of(stream, &runs, place))?;
        }
        Ok(())
    }
}

fn place(gathered: &mut LocationMap, placed: &PlacedRun) -> Result<()> {
    if !gathered.is_free(placed) {
        return Err(damaged("two runs share an address or a slot"));
    }
    gathered.place(placed);
    Ok(())
}

impl Consolidated {
    /// As changes of an empty map.
    pub fn full_changes(&self) -> super::MapChanges {
        let chunks = Stream::ALL.map(|stream| self.directory.rows(stream).to_vec());
        super::MapChanges { full: true, chunks, ..super::MapChanges::default() }
    }
}

impl Chunk {
    /// Whether these are the addresses and segments that a directory has for it.
    pub fn fits(&self, row: &ChunkRow) -> bool {
        let runs: Vec<PlacedRun> = self.runs().collect();
        let (Some(first), Some(last)) = (runs.first(), runs.last()) else { return false };
        let segments = self.segments().into_iter().all(|segment| row.may_name(segment));
        span_of(&first.run).start == row.span.start && last.run.end() == row.span.end && segments
    }
}
