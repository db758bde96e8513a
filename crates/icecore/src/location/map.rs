//! The location map in memory.

use crate::liveness::BlockSet;
use crate::units::{BlockCount, LOG_ADDRESS_LIMIT, LogAddress, Run, SegmentId, Slot, Stream};
use std::collections::BTreeMap;

/// Where a run lies. With its key, the first address, 20 bytes of payload; the index by place has 16 more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapEntry {
    /// Number of blocks; they are consecutive in the segment too.
    pub length: u32,
    /// The segment.
    pub segment: SegmentId,
    /// The first slot in it.
    pub slot: Slot,
}

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

/// A segment and a slot in it, ordered.
type Place = (SegmentId, Slot);

/// Maps log addresses to segments and slots. No address has two places, and no place two addresses.
///
/// Entries are maximal: neighbours that continue each other in address, segment and slot are one entry.
#[derive(Clone, Debug, Default)]
pub struct LocationMap {
    /// Entries of each stream by their first address.
    streams: [BTreeMap<u64, MapEntry>; 3],
    /// The first address of the entry that begins at a place.
    places: BTreeMap<Place, PackedAddress>,
    pub(super) journals: [MapJournal; 3],
}

/// Equal when they map the same, whatever their journals say.
impl PartialEq for LocationMap {
    fn eq(&self, other: &Self) -> bool {
        self.streams == other.streams && self.places == other.places
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
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Places a run. Panics if part of it has a place, or part of the place is taken: whoever appends or
    /// moves data hands out both.
    pub fn insert(&mut self, run: Run, segment: SegmentId, slot: Slot) {
        let done = self.try_insert(run, segment, slot);
        assert!(done, "cannot place {run:?} at {segment}:{slot}: the addresses or the slots are in use");
    }

    /// As [`LocationMap::insert`], for a run that came from disk: `false` if its addresses or slots are in use.
    #[must_use]
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
    #[must_use]
    pub fn lookup(&self, stream: Stream, address: LogAddress) -> Option<(SegmentId, Slot, BlockCount)> {
        let (start, entry) = self.entry_at(stream, address.0)?;
        let offset = (address.0 - start) as u32;
        Some((entry.segment, Slot(entry.slot.0 + offset), BlockCount(u64::from(entry.length - offset))))
    }

    /// Gives up the places of addresses that were set aside at the end of an entry and never used. Panics if
    /// the run is not the end of one entry.
    pub fn trim_end(&mut self, run: Run) {
        let (start, entry) = self.entry_at(run.stream, run.start.0).expect("trims what has no place");
        assert_eq!(
            start + u64::from(entry.length),
            run.end().0,
            "trims {run:?} out of the middle of an entry"
        );
        self.forget(run);
    }

    /// Gives up all places in a segment, and answers with the runs that had them, in the order of slots.
    pub fn remove_segment(&mut self, segment: SegmentId) -> Vec<PlacedRun> {
        let removed: Vec<PlacedRun> = self.entries_of_segment(segment).collect();
        for placed in &removed {
            self.forget(placed.run);
        }
        removed
    }

    /// Moves a run, all of which has a place, to another, and answers with the places it leaves in the order
    /// of addresses. Entries are split as needed. Panics if part of it has no place, or the new place is taken.
    pub fn remap(&mut self, run: Run, segment: SegmentId, slot: Slot) -> Vec<PlacedRun> {
        let left = self.forget(run);
        self.insert(run, segment, slot);
        left
    }

    /// All entries of one stream, by address.
    pub fn entries(&self, stream: Stream) -> impl DoubleEndedIterator<Item = PlacedRun> {
        self.streams[stream as usize].iter().map(move |(&start, entry)| placed_run(stream, start, entry))
    }

    /// All entries that lie in one segment, by slot.
    pub fn entries_of_segment(&self, segment: SegmentId) -> impl Iterator<Item = PlacedRun> {
        self.places.range((segment, Slot(0))..=(segment, Slot(u32::MAX))).map(|(_, packed)| {
            let (stream, start) = packed.unpack();
            placed_run(stream, start, &self.streams[stream as usize][&start])
        })
    }

    /// The parts of entries that lie within `run`, by address.
    pub fn entries_within(&self, run: Run) -> impl Iterator<Item = PlacedRun> {
        let first = self.entry_at(run.stream, run.start.0).map_or(run.start.0, |(start, _)| start);
        self.streams[run.stream as usize]
            .range(first..run.end().0)
            .map(move |(&start, entry)| clip(&placed_run(run.stream, start, entry), &run))
    }

    /// Number of entries in all streams.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nothing has a place.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether neither the addresses nor the slots are in use.
    pub(crate) fn is_free(&self, placed: &PlacedRun) -> bool {
        let run = &placed.run;
        let entries = &self.streams[run.stream as usize];
        let before = entries.range(..run.end().0).next_back();
        if before.is_some_and(|(&start, entry)| start + u64::from(entry.length) > run.start.0) {
            return false;
        }
        let Ok(slots_end) = u32::try_from(u64::from(placed.slot.0) + run.length.0) else { return false };
        let before = self.places.range(..(placed.segment, Slot(slots_end))).next_back();
        before.is_none_or(|(place, packed)| {
            let (stream, start) = packed.unpack();
            let length = self.streams[stream as usize][&start].length;
            place.0 != placed.segment || place.1.0 + length <= placed.slot.0
        })
    }

    /// Enters a run that is free, joined with the entries that it continues and that continue it.
    pub(super) fn place(&mut self, placed: &PlacedRun) {
        let stream = placed.run.stream;
        let (mut start, end) = (placed.run.start.0, placed.run.end().0);
        let length = u32::try_from(placed.run.length.0).expect("a segment has fewer than 2^32 slots");
        assert!(length > 0, "an entry has at least one block");
        let mut entry = MapEntry { length, segment: placed.segment, slot: placed.slot };
        let continues = |first: &MapEntry, second: &MapEntry| {
            first.segment == second.segment && first.slot.0 + first.length == second.slot.0
        };

        let after = self.streams[stream as usize].get(&end).copied();
        if let Some(after) = after.filter(|after| continues(&entry, after)) {
            self.remove_entry(stream, end, &after);
            entry.length += after.length;
        }
        let before =
            self.streams[stream as usize].range(..start).next_back().map(|(&key, &entry)| (key, entry));
        if let Some((key, before)) = before
            && key + u64::from(before.length) == start
            && continues(&before, &entry)
        {
            self.remove_entry(stream, key, &before);
            (start, entry) = (key, MapEntry { length: before.length + entry.length, ..before });
        }
        self.add_entry(stream, start, entry);
    }

    /// Gives up the places of a run, all of which has one, and notes that.
    fn forget(&mut self, run: Run) -> Vec<PlacedRun> {
        let left = self.displace(run);
        let covered: u64 = left.iter().map(|piece| piece.run.length.0).sum();
        assert_eq!(covered, run.length.0, "part of {run:?} has no place");
        let journal = &mut self.journals[run.stream as usize];
        let mut known = BlockSet::of(run.start..run.end());
        known.subtract(&journal.written);
        journal.cleared.unite(known);
        journal.written.remove(&(run.start..run.end()));
        left
    }

    /// Takes what lies within `run` out of the map and answers with it. The journal is not told.
    pub(super) fn displace(&mut self, run: Run) -> Vec<PlacedRun> {
        let pieces: Vec<PlacedRun> = self.entries_within(run).collect();
        for piece in &pieces {
            let (start, entry) = self.entry_at(run.stream, piece.run.start.0).expect("just found");
            self.remove_entry(run.stream, start, &entry);
            let before = piece.run.start.0 - start;
            if before > 0 {
                self.add_entry(run.stream, start, MapEntry { length: before as u32, ..entry });
            }
            let after = start + u64::from(entry.length) - piece.run.end().0;
            if after > 0 {
                let slot = Slot(entry.slot.0 + entry.length - after as u32);
                let rest = MapEntry { length: after as u32, slot, ..entry };
                self.add_entry(run.stream, piece.run.end().0, rest);
            }
        }
        pieces
    }

    fn add_entry(&mut self, stream: Stream, start: u64, entry: MapEntry) {
        let replaced = self.streams[stream as usize].insert(start, entry);
        let place = (entry.segment, entry.slot);
        let occupied = self.places.insert(place, PackedAddress::new(stream, start));
        assert!(replaced.is_none() && occupied.is_none(), "entry {start} is in the map already");
    }

    fn remove_entry(&mut self, stream: Stream, start: u64, entry: &MapEntry) {
        let removed = self.streams[stream as usize].remove(&start);
        let place = self.places.remove(&(entry.segment, entry.slot));
        assert!(removed.is_some() && place.is_some(), "entry {start} is in one index only");
    }

    /// The entry that covers `address`, with its first address.
    fn entry_at(&self, stream: Stream, address: u64) -> Option<(u64, MapEntry)> {
        let (&start, &entry) = self.streams[stream as usize].range(..=address).next_back()?;
        (address < start + u64::from(entry.length)).then_some((start, entry))
    }
}

fn placed_run(stream: Stream, start: u64, entry: &MapEntry) -> PlacedRun {
    let run = Run { stream, start: LogAddress(start), length: BlockCount(u64::from(entry.length)) };
    PlacedRun { run, segment: entry.segment, slot: entry.slot }
}

/// The part of `placed` within `run`, which overlap.
fn clip(placed: &PlacedRun, run: &Run) -> PlacedRun {
    let start = placed.run.start.max(run.start);
    let end = placed.run.end().min(run.end());
    let skipped = (start.0 - placed.run.start.0) as u32;
    let clipped = Run { start, length: BlockCount(end.0 - start.0), ..placed.run };
    PlacedRun { run: clipped, segment: placed.segment, slot: Slot(placed.slot.0 + skipped) }
}
