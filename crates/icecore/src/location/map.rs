//! The location map in memory.

use super::entry::Entry;
use crate::liveness::BlockSet;
use crate::units::{BlockCount, LOG_ADDRESS_LIMIT, LogAddress, Run, SegmentId, Slot, Stream};
use std::collections::BTreeMap;

/// A run of addresses, and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlacedRun {
    /// The addresses.
    pub run: Run,
    /// The segment.
    pub segment: SegmentId,
    /// The slot of the first block.
    pub slot: Slot,
}

impl PlacedRun {
    /// The part of it within a span; `None` if there is none.
    pub fn within(&self, span: &crate::liveness::Span) -> Option<Self> {
        let (start, end) = (self.run.start.max(span.start), self.run.end().min(span.end));
        let run = Run {
            start,
            length: BlockCount(end.0.checked_sub(start.0).filter(|length| *length > 0)?),
            ..self.run
        };
        Some(Self { run, slot: Slot(self.slot.0 + (start.0 - self.run.start.0) as u32), ..*self })
    }
}

/// A segment and a slot in it, ordered.
type Place = (SegmentId, Slot);

/// Maps log addresses to segments and slots. No address has two places, and no place two addresses.
///
/// An entry is a run, or what lies in consecutive slots in the order of addresses that have gaps between
/// them: what is left of a stretch of addresses after collection takes a bit for each address, however many
/// runs it is. Entries are joined with those that continue them, also when what lay between them goes.
#[derive(Clone, Debug, Default)]
pub struct LocationMap {
    /// Entries of each stream by their first address. Their spans do not overlap.
    streams: [BTreeMap<u64, Entry>; 3],
    /// The first address of the entry that begins at a place.
    places: BTreeMap<Place, PackedAddress>,
    pub(super) journals: [MapJournal; 3],
}

/// Equal when they map the same, whatever their journals say.
impl PartialEq for LocationMap {
    fn eq(&self, other: &Self) -> bool {
        Stream::ALL.into_iter().all(|stream| self.entries(stream).eq(other.entries(stream)))
    }
}

/// What changed since the last checkpoint.
#[derive(Clone, Debug, Default)]
pub(super) struct MapJournal {
    /// Had a place at the last checkpoint, and has another or none now.
    pub(super) cleared: BlockSet,
    /// Has a place now that it did not have at the last checkpoint.
    pub(super) written: BlockSet,
}

impl MapJournal {
    /// A run has no place any more.
    pub(super) fn forgotten(&mut self, run: &Run) {
        let span = run.start..run.end();
        let written = self.written.count(&span);
        if written.0 == 0 {
            self.cleared.insert(span);
            return;
        }
        if written < run.length {
            let mut known = BlockSet::of(span.clone());
            known.subtract(&self.written);
            self.cleared.unite(known);
        }
        self.written.remove(&span);
    }
}

/// A stream and an address in it, in 8 bytes: addresses have 48 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PackedAddress(u64);

impl PackedAddress {
    fn new(stream: Stream, address: u64) -> Self {
        debug_assert!(address < LOG_ADDRESS_LIMIT);
        Self((stream as u64) * LOG_ADDRESS_LIMIT + address)
    }

    fn unpack(self) -> (Stream, u64) {
        let number = (self.0 / LOG_ADDRESS_LIMIT) as u8;
        (Stream::from_number(number).expect("packed from a stream"), self.0 % LOG_ADDRESS_LIMIT)
    }
}

impl LocationMap {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// Places a run. Panics if part of it has a place, or part of the place is taken: code that appends or
    /// moves data hands out both.
    pub fn insert(&mut self, run: Run, segment: SegmentId, slot: Slot) {
        let done = self.try_insert(run, segment, slot);
        assert!(done, "cannot place {run:?} at {segment}:{slot}: the addresses or the slots are in use");
    }

    /// As [`LocationMap::insert`], for a run that came from disk: `false` if its addresses or slots are in
    /// use.
    pub fn try_insert(&mut self, run: Run, segment: SegmentId, slot: Slot) -> bool {
        let placed = PlacedRun { run, segment, slot };
        let free = self.is_free(&placed);
        if free {
            self.place(&placed);
            self.journals[run.stream as usize].written.insert(run.start..run.end());
        }
        free
    }

    /// The place of one block, and how many blocks from there on lie one after the other.
    pub fn lookup(&self, stream: Stream, address: LogAddress) -> Option<(SegmentId, Slot, BlockCount)> {
        let (start, entry) = self.entry_at(stream, address.0)?;
        let (slot, length) = entry.at((address.0 - start) as u32)?;
        let mut end = address.0 + u64::from(length);
        let mut last = (start, entry);
        // An entry with gaps may end where a run does not.
        while end == last.0 + u64::from(last.1.span())
            && let Some(after) = self.streams[stream as usize].get(&end)
            && (after.segment, after.slot.0) == (last.1.segment, last.1.slots_end())
        {
            last = (end, after);
            end += u64::from(after.at(0).map_or(0, |(_, length)| length));
        }
        Some((entry.segment, slot, BlockCount(end - address.0)))
    }

    /// Gives up all places in a segment, and answers with the runs that had them, in the order of slots.
    pub fn remove_segment(&mut self, segment: SegmentId) -> Vec<PlacedRun> {
        let removed: Vec<PlacedRun> = self.entries_of_segment(segment).collect();
        let range = (segment, Slot(0))..=(segment, Slot(u32::MAX));
        let starts: Vec<PackedAddress> = self.places.range(range).map(|(_, packed)| *packed).collect();
        let ends: Vec<(Stream, u64)> = starts
            .into_iter()
            .map(PackedAddress::unpack)
            .map(|(stream, start)| (stream, start + u64::from(self.remove_entry(stream, start).span())))
            .collect();
        // Only when all of them are gone: what has lost its neighbour might be joined with one that goes
        // next.
        for (stream, end) in ends {
            self.heal(stream, end);
        }
        for placed in &removed {
            self.journals[placed.run.stream as usize].forgotten(&placed.run);
        }
        removed
    }

    /// Gives up the places of those of these addresses that lie in `segment`: what they held is dead.
    pub(crate) fn remove_within(&mut self, segment: SegmentId, run: Run) {
        let there: Vec<Run> = self
            .entries_within(run)
            .filter(|placed| placed.segment == segment)
            .map(|placed| placed.run)
            .collect();
        for run in there {
            self.forget(run);
        }
    }

    /// All runs of one stream that have a place, by address: maximal ones.
    pub fn entries(&self, stream: Stream) -> impl Iterator<Item = PlacedRun> {
        let entries = self.streams[stream as usize].iter();
        Coalesced::new(entries.flat_map(move |(&start, entry)| {
            runs_of(stream, start, entry, LogAddress(0)..LogAddress(u64::MAX))
        }))
    }

    /// The address behind the last one of a stream that has a place.
    pub fn end(&self, stream: Stream) -> Option<LogAddress> {
        let (start, entry) = self.streams[stream as usize].last_key_value()?;
        Some(LogAddress(start + u64::from(entry.span())))
    }

    /// All runs that lie in one segment, by slot.
    pub fn entries_of_segment(&self, segment: SegmentId) -> impl Iterator<Item = PlacedRun> {
        self.places.range((segment, Slot(0))..=(segment, Slot(u32::MAX))).flat_map(|(_, packed)| {
            let (stream, start) = packed.unpack();
            let entry = &self.streams[stream as usize][&start];
            runs_of(stream, start, entry, LogAddress(0)..LogAddress(u64::MAX))
        })
    }

    /// The runs within `run` that have a place, by address: maximal ones.
    pub fn entries_within(&self, run: Run) -> impl Iterator<Item = PlacedRun> {
        let entries = self.spans_over(run);
        Coalesced::new(
            entries.flat_map(move |(start, entry)| runs_of(run.stream, start, entry, run.start..run.end())),
        )
    }

    /// Number of entries in all streams: what the map's memory is in proportion to.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nothing has a place.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether neither the addresses nor the slots are in use.
    pub(crate) fn is_free(&self, placed: &PlacedRun) -> bool {
        let run = &placed.run;
        if self.spans_over(*run).any(|(start, entry)| entry.meets(offsets(start, entry, run))) {
            return false;
        }
        let Ok(slots_end) = u32::try_from(u64::from(placed.slot.0) + run.length.0) else { return false };
        let before = self.places.range(..(placed.segment, Slot(slots_end))).next_back();
        before.is_none_or(|(place, packed)| {
            let (stream, start) = packed.unpack();
            place.0 != placed.segment || self.streams[stream as usize][&start].slots_end() <= placed.slot.0
        })
    }

    /// Enters a run that is free, joined with the entries that it continues and that continue it.
    pub(super) fn place(&mut self, placed: &PlacedRun) {
        let Run { stream, start, .. } = placed.run;
        let length = u32::try_from(placed.run.length.0).expect("a segment has fewer than 2^32 slots");
        if let Some((around, entry)) = self.entry_at(stream, start.0) {
            // It lies in a gap.
            let offset = (start.0 - around) as u32;
            let parts = [entry.part(0..offset), entry.part(offset..entry.span())];
            self.remove_entry(stream, around);
            for (offset, part) in parts.into_iter().flatten() {
                self.add_entry(stream, around + u64::from(offset), part);
            }
        }
        self.add_entry(stream, start.0, Entry::run(length, placed.segment, placed.slot));
        self.heal(stream, placed.run.end().0);
        self.heal(stream, start.0);
    }

    /// Gives up the places of a run, all of which has one, and notes that.
    pub(super) fn forget(&mut self, run: Run) -> Vec<PlacedRun> {
        let left = self.displace(run);
        let covered: u64 = left.iter().map(|piece| piece.run.length.0).sum();
        assert_eq!(covered, run.length.0, "part of {run:?} has no place");
        self.journals[run.stream as usize].forgotten(&run);
        left
    }

    /// Takes what lies within `run` out of the map and answers with it. The journal does not note it.
    pub(super) fn displace(&mut self, run: Run) -> Vec<PlacedRun> {
        let pieces: Vec<PlacedRun> = self.entries_within(run).collect();
        let starts: Vec<u64> = self.spans_over(run).map(|(start, _)| start).collect();
        for start in starts {
            let entry = self.remove_entry(run.stream, start);
            let taken = offsets(start, &entry, &run);
            for (offset, part) in
                [entry.part(0..taken.start), entry.part(taken.end..entry.span())].into_iter().flatten()
            {
                self.add_entry(run.stream, start + u64::from(offset), part);
            }
        }
        self.heal(run.stream, run.end().0);
        pieces
    }

    /// What changed since the last checkpoint alone, journal and all.
    pub(super) fn changed(&mut self) -> Self {
        let mut changed = Self::new();
        for stream in Stream::ALL {
            for span in self.journals[stream as usize].written.runs() {
                self.entries_within(Run::of(stream, &span)).for_each(|placed| changed.place(&placed));
            }
        }
        changed.journals = std::mem::take(&mut self.journals);
        changed
    }

    /// Takes out the first entries of a stream, so many of them, and answers with their runs.
    pub(super) fn take_first(&mut self, stream: Stream, entries: usize) -> Vec<PlacedRun> {
        let bound = self.streams[stream as usize].keys().nth(entries).copied().unwrap_or(u64::MAX);
        self.displace(Run { stream, start: LogAddress(0), length: BlockCount(bound) })
    }

    /// Joins the last entry that begins before an address with the first from there on, if they continue each
    /// other.
    fn heal(&mut self, stream: Stream, at: u64) {
        let entries = &self.streams[stream as usize];
        let Some((&before, first)) = entries.range(..at).next_back() else { return };
        let Some((&after, second)) = entries.range(at..).next() else { return };
        let Ok(distance) = u32::try_from(after - before) else { return };
        let Some(joined) = first.joined(distance, second) else { return };
        self.remove_entry(stream, after);
        self.remove_entry(stream, before);
        self.add_entry(stream, before, joined);
    }

    fn add_entry(&mut self, stream: Stream, start: u64, entry: Entry) {
        let place = (entry.segment, entry.slot);
        let replaced = self.streams[stream as usize].insert(start, entry);
        let occupied = self.places.insert(place, PackedAddress::new(stream, start));
        assert!(replaced.is_none() && occupied.is_none(), "entry {start} is in the map already");
    }

    fn remove_entry(&mut self, stream: Stream, start: u64) -> Entry {
        let entry = self.streams[stream as usize].remove(&start).expect("the entry was found just now");
        let place = self.places.remove(&(entry.segment, entry.slot));
        assert!(place.is_some(), "entry {start} is in one index only");
        entry
    }

    /// The entry whose span covers `address`, with its first address.
    fn entry_at(&self, stream: Stream, address: u64) -> Option<(u64, &Entry)> {
        let (&start, entry) = self.streams[stream as usize].range(..=address).next_back()?;
        (address < start + u64::from(entry.span())).then_some((start, entry))
    }

    /// The entries whose spans overlap with a run, and where they begin.
    fn spans_over(&self, run: Run) -> impl Iterator<Item = (u64, &Entry)> {
        let first = self.entry_at(run.stream, run.start.0).map_or(run.start.0, |(start, _)| start);
        let entries = self.streams[run.stream as usize].range(first..run.end().0.max(first));
        entries.map(|(&start, entry)| (start, entry))
    }
}

/// The offsets of a run in an entry that it overlaps with.
fn offsets(start: u64, entry: &Entry, run: &Run) -> std::ops::Range<u32> {
    let first = run.start.0.saturating_sub(start) as u32;
    first..(run.end().0 - start).min(u64::from(entry.span())) as u32
}

/// The runs of an entry within a span.
pub(super) fn runs_of(
    stream: Stream,
    start: u64,
    entry: &Entry,
    within: std::ops::Range<LogAddress>,
) -> impl Iterator<Item = PlacedRun> + '_ {
    let first = within.start.0.saturating_sub(start).min(u64::from(entry.span())) as u32;
    let end = within.end.0.saturating_sub(start).min(u64::from(entry.span())) as u32;
    entry.runs_within(first..end).map(move |(offset, slot, length)| {
        let start = LogAddress(start + u64::from(offset));
        let run = Run { stream, start, length: BlockCount(u64::from(length)) };
        PlacedRun { run, segment: entry.segment, slot }
    })
}

/// Joins runs that continue each other, of entries that could not be joined.
struct Coalesced<I> {
    runs: I,
    ahead: Option<PlacedRun>,
}

impl<I: Iterator<Item = PlacedRun>> Coalesced<I> {
    fn new(runs: I) -> Self {
        Self { runs, ahead: None }
    }
}

impl<I: Iterator<Item = PlacedRun>> Iterator for Coalesced<I> {
    type Item = PlacedRun;

    fn next(&mut self) -> Option<PlacedRun> {
        let mut placed = self.ahead.take().or_else(|| self.runs.next())?;
        for after in self.runs.by_ref() {
            let continues = placed.run.end() == after.run.start
                && placed.segment == after.segment
                && u64::from(placed.slot.0) + placed.run.length.0 == u64::from(after.slot.0);
            if !continues {
                self.ahead = Some(after);
                break;
            }
            placed.run.length.0 += after.run.length.0;
        }
        Some(placed)
    }
}
