//! The location map of a pool: chunks on disk, some of them in memory, and over them what changed since they
//! were written. Changes never need a chunk. A lookup may: it then answers which one, to be asked again with
//! it.

use super::chunk::{Absent, Chunk, SharedChunk};
use super::directory::{Directory, Entered};
use super::map::{LocationMap, PlacedRun};
use crate::liveness::{BlockSet, Span};
use crate::units::{BlockCount, LogAddress, Run, SegmentId, Slot, Stream};
use std::collections::BTreeSet;

/// Memory that an entry of the changes takes, about.
const CHANGE_BYTES: u64 = 128;
/// Memory for changes, however little is allowed: a ledger of changes is worth something.
const CHANGES_BYTES_MIN: u64 = 8 << 10;
/// Entries of a chunk, as far as the memory allows for several: one that is thin is read and decoded in some
/// hundred microseconds.
const CHUNK_ENTRIES_MAX: u64 = 128;
const CHUNK_ENTRIES_MIN: u64 = 4;
/// Chunks that there should be room for in memory.
const CHUNKS_KEPT_MIN: u64 = 64;

/// How much of a map is kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapLimits {
    /// For chunks that were read: one is kept in any case.
    pub chunk_bytes: u64,
    /// For what changed since chunks were written: beyond that they are due to be written.
    pub change_bytes: u64,
    /// Entries of a chunk that is written.
    pub chunk_entries: usize,
}

impl MapLimits {
    /// Half of the memory for chunks, half for changes.
    pub fn of(bytes: u64) -> Self {
        let half = bytes / 2;
        let entries = half / CHUNKS_KEPT_MIN / CHANGE_BYTES;
        Self {
            chunk_bytes: half,
            change_bytes: half.max(CHANGES_BYTES_MIN),
            chunk_entries: entries.clamp(CHUNK_ENTRIES_MIN, CHUNK_ENTRIES_MAX) as usize,
        }
    }
}

/// What a map has for an address.
#[derive(Clone, Debug)]
pub enum Lookup {
    /// The place of the block, and how many blocks from there on are known to lie one after the other.
    At(SegmentId, Slot, BlockCount),
    /// It has no place.
    Nowhere,
    /// That is in a chunk that is not in memory.
    Absent(Absent),
}

/// A location map in chunks.
#[derive(Debug)]
pub struct ChunkedMap {
    /// What got a place since the chunks were written, and the journal since the last checkpoint.
    pub(super) recent: LocationMap,
    /// Of these addresses the chunks say what was.
    pub(super) void: [BlockSet; 3],
    /// What chunks say to lie in these segments is gone.
    pub(super) retired: BTreeSet<SegmentId>,
    /// Those retired since the last checkpoint.
    pub(super) retired_since: BTreeSet<SegmentId>,
    pub(super) directory: Directory,
    /// Runs of addresses that became void, about.
    forgotten: u64,
    pub(super) limits: MapLimits,
}

impl ChunkedMap {
    /// An empty map.
    pub fn new(limits: MapLimits) -> Self {
        Self {
            recent: LocationMap::new(),
            void: Default::default(),
            retired: BTreeSet::new(),
            retired_since: BTreeSet::new(),
            directory: Directory::default(),
            forgotten: 0,
            limits,
        }
    }

    /// How much of it is kept in memory.
    pub const fn limits(&self) -> MapLimits {
        self.limits
    }

    /// Which chunks there are.
    pub const fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The place of a block.
    pub fn lookup(&self, stream: Stream, address: LogAddress) -> Lookup {
        if let Some((segment, slot, together)) = self.recent.lookup(stream, address) {
            return Lookup::At(segment, slot, together);
        }
        match self.directory.enter(stream, address) {
            Entered::Nothing => Lookup::Nowhere,
            Entered::Absent(_) if self.void[stream as usize].contains(address) => Lookup::Nowhere,
            Entered::Absent(absent) => Lookup::Absent(absent),
            Entered::Chunk(chunk) => self.lookup_in(chunk, stream, address),
        }
    }

    fn lookup_in(&self, chunk: &Chunk, stream: Stream, address: LogAddress) -> Lookup {
        let Some((segment, slot, together)) = chunk.lookup(address) else { return Lookup::Nowhere };
        if self.retired.contains(&segment) {
            return Lookup::Nowhere;
        }
        let span = address..address.plus(together);
        match self.void[stream as usize].runs_within(&span).next() {
            None => Lookup::At(segment, slot, together),
            Some(void) if void.start > address => {
                Lookup::At(segment, slot, BlockCount(void.start.0 - address.0))
            }
            Some(_) => Lookup::Nowhere,
        }
    }

    /// As [`ChunkedMap::lookup`], with a chunk that was absent and has been read meanwhile; it is kept.
    /// `None` if the map has done without it since: look again.
    pub fn lookup_with(
        &mut self,
        loaded: &Absent,
        chunk: &SharedChunk,
        stream: Stream,
        address: LogAddress,
    ) -> Option<Lookup> {
        let limit = self.limits.chunk_bytes;
        self.directory.keep(loaded, chunk, limit);
        if !self.directory.has(loaded) {
            return None;
        }
        if let Some((segment, slot, together)) = self.recent.lookup(stream, address) {
            return Some(Lookup::At(segment, slot, together));
        }
        Some(self.lookup_in(chunk, stream, address))
    }

    /// A chunk that is in memory.
    pub fn shared(&self, wanted: &Absent) -> Option<SharedChunk> {
        self.directory.shared(wanted)
    }

    /// Whether a chunk belongs to the map still.
    pub fn has(&self, wanted: &Absent) -> bool {
        self.directory.has(wanted)
    }

    /// Places a run. Panics if what is in memory shows that part of it has a place, or part of the place is
    /// taken.
    pub fn insert(&mut self, run: Run, segment: SegmentId, slot: Slot) {
        self.recent.insert(run, segment, slot);
    }

    /// As [`ChunkedMap::insert`], for a run that came from disk: `false` if it cannot be there.
    pub fn try_insert(&mut self, run: Run, segment: SegmentId, slot: Slot) -> bool {
        self.recent.try_insert(run, segment, slot)
    }

    /// Gives up the places of addresses that were set aside at the end of a run and never used.
    pub fn trim_end(&mut self, run: Run) {
        self.forget(run);
    }

    /// Moves a run, all of which has a place, to another. Panics if the new place is taken, as far as is
    /// known.
    pub fn remap(&mut self, run: Run, segment: SegmentId, slot: Slot) {
        self.forget(run);
        self.insert(run, segment, slot);
    }

    /// Gives up all places in a segment.
    pub fn remove_segment(&mut self, segment: SegmentId) {
        self.recent.remove_segment(segment);
        if self.directory.naming(segment).next().is_some() {
            self.retired.insert(segment);
            self.retired_since.insert(segment);
        }
    }

    /// Gives up the places of those of these addresses that lie in `segment`: what they held is dead. Of what
    /// the chunks say of them, all lies there.
    pub(crate) fn remove_within(&mut self, segment: SegmentId, run: Run) {
        let mut said = BlockSet::of(span_of(&run));
        for placed in self.recent.entries_within(run) {
            said.remove(&span_of(&placed.run));
        }
        said.subtract(&self.void[run.stream as usize]);
        // Of what has a place since, the chunks say nothing that is not void.
        self.recent.remove_within(segment, run);
        for span in said.runs().filter(|span| self.directory.overlaps(run.stream, span)).collect::<Vec<_>>() {
            self.forget(Run::of(run.stream, &span));
        }
    }

    /// The address behind the last one of a stream that may have a place.
    pub fn end(&self, stream: Stream) -> Option<LogAddress> {
        self.recent.end(stream).max(self.directory.end(stream))
    }

    /// What changed since the chunks were written, of a segment.
    pub(crate) fn recent_of_segment(&self, segment: SegmentId) -> impl Iterator<Item = PlacedRun> {
        self.recent.entries_of_segment(segment)
    }

    /// The chunks that may say that something lies in a segment.
    pub(crate) fn naming(&self, segment: SegmentId) -> Vec<Absent> {
        if self.retired.contains(&segment) { Vec::new() } else { self.directory.naming(segment).collect() }
    }

    /// The chunks with addresses in a span.
    pub(crate) fn spanning(&self, stream: Stream, span: &Span) -> Vec<Absent> {
        let rows = self.directory.rows(stream).iter();
        let spanning = rows.filter(|row| row.span.start < span.end && row.span.end > span.start);
        spanning.map(|row| super::directory::absent(stream, row)).collect()
    }

    /// The chunk with an address in its span, and the segments that it is known to name; none if they are
    /// many.
    pub(crate) fn chunk_at(&self, stream: Stream, address: LogAddress) -> Option<(Absent, Vec<SegmentId>)> {
        let row = self.directory.rows(stream).iter().find(|row| row.span.contains(&address))?;
        let segments = row.segments.as_deref().map(<[_]>::to_vec).unwrap_or_default();
        Some((super::directory::absent(stream, row), segments))
    }

    /// Of what a chunk says, what still holds.
    pub(crate) fn holding(&self, stream: Stream, chunk: &Chunk) -> Vec<PlacedRun> {
        let void = &self.void[stream as usize];
        let mut holding = Vec::new();
        for placed in chunk.runs().filter(|placed| !self.retired.contains(&placed.segment)) {
            let mut at = placed.run.start;
            let span = span_of(&placed.run);
            let end = span.end..span.end;
            for gone in void.runs_within(&span).chain([end]) {
                if at < gone.start {
                    let slot = Slot(placed.slot.0 + (at.0 - span.start.0) as u32);
                    let length = BlockCount(gone.start.0 - at.0);
                    holding.push(PlacedRun { run: Run { start: at, length, ..placed.run }, slot, ..placed });
                }
                at = gone.end;
            }
        }
        holding
    }

    /// Whether so much changed that chunks are due to be written.
    pub fn is_due(&self) -> bool {
        self.change_bytes() > self.limits.change_bytes
    }

    /// Memory that changes take, about.
    pub fn change_bytes(&self) -> u64 {
        (self.recent.len() as u64 + self.forgotten) * CHANGE_BYTES
    }

    /// Whether there is so little in the map that chunks are not worth it.
    pub fn is_small(&self) -> bool {
        self.directory.is_empty() && self.recent.len() <= self.limits.chunk_entries
    }

    /// The chunks were written anew, as of the last call of [`ChunkedMap::take_changes`]: what changed since
    /// is all that is to be kept beside them.
    pub fn go_on_with(&mut self, mut directory: Directory) {
        directory.take_over(std::mem::take(&mut self.directory));
        self.directory = directory;
        self.recent = self.recent.changed();
        self.void = self.recent.journals.each_ref().map(|journal| journal.cleared.clone());
        self.retired = self.retired_since.clone();
        self.forgotten = self.void.iter().map(|void| void.runs().count() as u64).sum();
    }

    /// What changed since the chunks were written, of a run.
    pub(crate) fn recent_within(&self, run: Run) -> Vec<PlacedRun> {
        self.recent.entries_within(run).collect()
    }

    /// Keeps the place of a run in memory that chunks have as well: what is written there must not depend on
    /// a chunk.
    pub(crate) fn keep_at_hand(&mut self, placed: &PlacedRun) {
        let span = span_of(&placed.run);
        if self.directory.overlaps(placed.run.stream, &span) && self.recent.is_free(placed) {
            self.avoid(placed.run.stream, span);
            self.recent.place(placed);
        }
    }

    /// A map that says the same, with no chunk in memory, in which nothing changed yet.
    pub(crate) fn copied(&self) -> crate::error::Result<Self> {
        let mut copy = Self::new(self.limits);
        copy.apply_changes(&self.full_changes())?;
        Ok(copy)
    }

    /// Enters where blocks lie that a chunk should say and does not any more. Answers those whose places are
    /// taken. Leaves no trace in the journal.
    pub(crate) fn restore(&mut self, found: &[PlacedRun]) -> Vec<Run> {
        let mut taken = Vec::new();
        for placed in found {
            if self.recent.is_free(placed) {
                if self.directory.overlaps(placed.run.stream, &span_of(&placed.run)) {
                    self.avoid(placed.run.stream, span_of(&placed.run));
                }
                self.recent.place(placed);
            } else {
                taken.push(placed.run);
            }
        }
        taken
    }

    /// A chunk has nothing to say any more: what it said is known otherwise.
    pub(crate) fn do_without(&mut self, absent: &Absent) {
        self.directory.remove(absent);
        self.void[absent.stream as usize].remove(&absent.span);
        if self.directory.is_empty() {
            // There is nothing left of which they could say that it holds no more.
            self.void = Default::default();
            self.retired.clear();
        }
    }

    /// Adds a chunk that has nothing to say but that what it is of is gone, as far as nothing else has a
    /// place for it. The map has no other.
    pub(crate) fn add_unreadable(&mut self, stream: Stream, row: super::ChunkRow) {
        let known = self.recent_within(Run::of(stream, &row.span));
        self.void[stream as usize] = known.iter().map(|placed| span_of(&placed.run)).collect();
        let added = self.directory.add(stream, row);
        debug_assert!(added, "the map had no chunks");
    }

    /// Enters those parts of a run of which no place is known, nor a chunk that may know one.
    pub(crate) fn keep_where_nothing_is(&mut self, placed: &PlacedRun) {
        let Run { stream, start, .. } = placed.run;
        let mut unknown = BlockSet::of(span_of(&placed.run));
        for known in self.recent_within(placed.run) {
            unknown.remove(&span_of(&known.run));
        }
        for row in self.directory.rows(stream) {
            unknown.remove(&row.span);
        }
        for span in unknown.runs() {
            let run = Run::of(stream, &span);
            let slot = Slot(placed.slot.0 + (span.start.0 - start.0) as u32);
            let part = PlacedRun { run, segment: placed.segment, slot };
            if self.recent.is_free(&part) {
                self.recent.place(&part);
            }
        }
    }

    fn forget(&mut self, run: Run) {
        let span = run.start..run.end();
        let left: u64 = self.recent.displace(run).iter().map(|piece| piece.run.length.0).sum();
        if self.directory.overlaps(run.stream, &span) {
            self.void[run.stream as usize].insert(span);
            self.forgotten += 1;
        } else {
            assert_eq!(left, run.length.0, "part of {run:?} has no place");
        }
        self.recent.journals[run.stream as usize].forgotten(&run);
    }

    /// What the chunks say of these addresses counts no more. Leaves no trace in the journal.
    pub(super) fn avoid(&mut self, stream: Stream, span: Span) {
        self.void[stream as usize].insert(span);
        self.forgotten += 1;
    }
}

pub(super) fn span_of(run: &Run) -> Span {
    run.start..run.end()
}
