//! The map against one plain place per block, its journal, and its bytes.

use super::map::LocationMap;
use super::{ChunkedMap, MapChanges, MapLimits, PlacedRun};
use crate::liveness::DecodeLimits;
use crate::units::{BlockCount, LOG_ADDRESS_LIMIT, LogAddress, Marks, Run, SegmentId, Slot, Stream};
use proptest::prelude::*;
use std::collections::{BTreeSet, HashMap};

type Block = (Stream, u64);
type Model = HashMap<Block, (u32, u32)>;

fn limits() -> DecodeLimits {
    DecodeLimits::new(Marks([LogAddress(LOG_ADDRESS_LIMIT); 3]))
}

fn run(stream: Stream, start: u64, length: u64) -> Run {
    Run { stream, start: LogAddress(start), length: BlockCount(length) }
}

/// A map as a ledger says it, with nothing in chunks.
fn stored() -> ChunkedMap {
    ChunkedMap::new(MapLimits::of(0))
}

impl LocationMap {
    /// Moves a run, all of which has a place, to another, and answers with the places it leaves in the order
    /// of addresses.
    pub(super) fn remap(&mut self, run: Run, segment: SegmentId, slot: Slot) -> Vec<PlacedRun> {
        let left = self.forget(run);
        self.insert(run, segment, slot);
        left
    }
}

#[derive(Clone, Debug)]
struct Step {
    kind: u8,
    stream: u8,
    start: u64,
    length: u64,
    segment: u32,
    slot: u32,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..16, 0u8..3, 0u64..200, 1u64..24, 0u32..4, 0u32..100).prop_map(
        |(kind, stream, start, length, segment, slot)| Step { kind, stream, start, length, segment, slot },
    );
    prop::collection::vec(step, 1..80)
}

struct Trial {
    map: LocationMap,
    model: Model,
    stored: ChunkedMap,
    /// Where the last insertion ended, so that the next may continue it.
    next: [(u64, u32, u32); 3],
}

impl Trial {
    fn take(&mut self, step: &Step) {
        let stream = Stream::from_number(step.stream).unwrap();
        match step.kind {
            0..=5 => {
                let (start, segment, slot) = self.next[step.stream as usize];
                self.insert(run(stream, start, step.length), segment, slot);
            }
            6..=8 => self.insert(run(stream, step.start, step.length), step.segment, step.slot),
            9 => self.trim(stream, step),
            10 => self.remove_segment(SegmentId(step.segment)),
            11..=13 => self.remap(stream, step),
            14 => self.fail_to_store(stream, step),
            _ => self.checkpoint(),
        }
    }

    fn is_free(&self, run: Run, segment: u32, slot: u32) -> bool {
        let slots: BTreeSet<(u32, u32)> =
            (slot..slot + run.length.0 as u32).map(|slot| (segment, slot)).collect();
        (run.start.0..run.end().0).all(|address| !self.model.contains_key(&(run.stream, address)))
            && self.model.values().all(|place| !slots.contains(place))
    }

    fn enter(&mut self, run: Run, segment: u32, slot: u32) {
        for offset in 0..run.length.0 {
            self.model.insert((run.stream, run.start.0 + offset), (segment, slot + offset as u32));
        }
    }

    fn insert(&mut self, run: Run, segment: u32, slot: u32) {
        if !self.is_free(run, segment, slot) {
            return;
        }
        self.map.insert(run, SegmentId(segment), Slot(slot));
        self.enter(run, segment, slot);
        self.next[run.stream as usize] = (run.end().0, segment, slot + run.length.0 as u32);
    }

    fn trim(&mut self, stream: Stream, step: &Step) {
        let runs: Vec<_> = self.map.entries(stream).collect();
        let Some(entry) = runs.get(step.start as usize % runs.len().max(1)) else { return };
        let length = step.length.min(entry.run.length.0);
        let tail = run(stream, entry.run.end().0 - length, length);
        self.map.forget(tail);
        self.model.retain(|block, _| block.0 != stream || !(tail.start.0..tail.end().0).contains(&block.1));
    }

    fn remove_segment(&mut self, segment: SegmentId) {
        let removed = self.map.remove_segment(segment);
        let count: u64 = removed.iter().map(|placed| placed.run.length.0).sum();
        let before = self.model.len();
        self.model.retain(|_, place| place.0 != segment.0);
        assert_eq!(count, (before - self.model.len()) as u64);
        assert!(removed.windows(2).all(|pair| pair[0].slot < pair[1].slot));
    }

    fn remap(&mut self, stream: Stream, step: &Step) {
        let mapped = |address| self.model.contains_key(&(stream, address));
        let length = (0..step.length).take_while(|offset| mapped(step.start + offset)).count() as u64;
        // Segments that insertions do not use.
        let segment = step.segment + 100;
        let moved = run(stream, step.start, length);
        if length == 0 || !self.is_free(run(stream, u64::MAX / 2, length), segment, step.slot) {
            return;
        }
        let mut left = moved.start;
        for placed in self.map.remap(moved, SegmentId(segment), Slot(step.slot)) {
            assert_eq!(placed.run.start, left);
            assert_eq!(self.model[&(stream, left.0)], (placed.segment.0, placed.slot.0));
            left = placed.run.end();
        }
        assert_eq!(left, moved.end());
        self.enter(moved, segment, step.slot);
    }

    fn checkpoint(&mut self) {
        let changes = self.map.take_changes();
        let decoded = MapChanges::decode(&changes.encode(), &mut limits()).unwrap();
        assert_eq!(decoded, changes);
        for part in decoded.split(5) {
            self.stored.apply_changes(&part).unwrap();
        }
        assert_eq!(self.stored.recent, self.map);
        assert_eq!(self.stored.take_changes(), MapChanges::default());
        let mut fresh = stored();
        for part in self.map.full_changes().split(3) {
            assert!(part.encode().len() < 100);
            fresh.apply_changes(&part).unwrap();
        }
        assert_eq!(fresh.recent, self.map);
        let full = MapChanges::decode(&self.map.full_changes().encode(), &mut limits()).unwrap();
        let mut fresh = stored();
        fresh.apply_changes(&full).unwrap();
        assert_eq!(fresh.recent, self.map);
    }

    /// What could not be stored is stored next time, with what came after it.
    fn fail_to_store(&mut self, stream: Stream, step: &Step) {
        let marks = Marks([LogAddress(step.start), LogAddress(step.length * 8), LogAddress(100)]);
        let taken = self.map.take_changes_below(&marks);
        for stream in Stream::ALL {
            let changes = &taken.streams[stream as usize];
            assert!(changes.cleared.last().is_none_or(|last| last < marks.of(stream)));
            assert!(changes.placed.iter().all(|placed| placed.run.end() <= marks.of(stream)));
        }
        self.trim(stream, step);
        self.remap(stream, step);
        self.insert(run(stream, step.start, step.length), step.segment, step.slot);
        self.map.put_back(taken);
    }

    fn compare(&self) {
        let mut entries = 0;
        for stream in Stream::ALL {
            let placed: Vec<_> = self.map.entries(stream).collect();
            entries += placed.len();
            for entry in &placed {
                for offset in 0..entry.run.length.0 {
                    let place = (entry.segment.0, entry.slot.0 + offset as u32);
                    assert_eq!(self.model.get(&(stream, entry.run.start.0 + offset)), Some(&place));
                }
            }
            for pair in placed.windows(2) {
                let continues = pair[0].run.end() == pair[1].run.start
                    && pair[0].segment == pair[1].segment
                    && u64::from(pair[0].slot.0) + pair[0].run.length.0 == u64::from(pair[1].slot.0);
                assert!(!continues, "two entries that are one");
            }
        }
        assert!(self.map.len() <= entries);
        for (&(stream, address), &(segment, slot)) in &self.model {
            let (found, found_slot, length) = self.map.lookup(stream, LogAddress(address)).unwrap();
            assert_eq!((found.0, found_slot.0), (segment, slot));
            let next = self.model.get(&(stream, address + length.0));
            assert_ne!(next, Some(&(segment, slot + length.0 as u32)), "ends too early");
            assert_eq!(self.model[&(stream, address + length.0 - 1)], (segment, slot + length.0 as u32 - 1));
        }
        let blocks: u64 =
            Stream::ALL.into_iter().flat_map(|s| self.map.entries(s)).map(|e| e.run.length.0).sum();
        assert_eq!(blocks, self.model.len() as u64);
    }
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("ICECORE_TEST_CASES").ok().and_then(|cases| cases.parse().ok());
    ProptestConfig::with_cases(cases.unwrap_or(96))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_map_agrees_with_one_place_per_block(steps in steps()) {
        let mut trial = Trial {
            map: LocationMap::new(),
            model: Model::new(),
            stored: stored(),
            next: [(0, 10, 0), (0, 11, 0), (0, 12, 0)],
        };
        for step in &steps {
            trial.take(step);
            trial.compare();
        }
        trial.checkpoint();
    }

    #[test]
    fn flipped_bytes_load_as_a_sound_map_or_are_refused(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..5),
        noise in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut map = LocationMap::new();
        map.insert(run(Stream::Data, 0, 50), SegmentId(3), Slot(1));
        map.insert(run(Stream::Node, 7, 10), SegmentId(2), Slot(0));
        map.take_changes();
        map.remap(run(Stream::Data, 10, 5), SegmentId(4), Slot(9));
        let mut bytes = map.take_changes().encode();
        for (place, value) in flips {
            let place = place.index(bytes.len());
            bytes[place] ^= value;
        }
        bytes.extend(noise);
        let mut limits = DecodeLimits { chunks: 1 << 12, ..limits() };
        if let Ok(changes) = MapChanges::decode(&bytes, &mut limits) {
            let mut known = stored();
            known.apply_changes(&map.full_changes()).unwrap();
            let _ = known.apply_changes(&changes);
            let _ = stored().apply_changes(&changes);
        }
    }
}

#[test]
fn a_fresh_stream_is_one_entry_per_segment() {
    let mut map = LocationMap::new();
    for index in 0..1000u64 {
        let (segment, slot) = ((index / 100) as u32, (index % 100) as u32 * 16 + 1);
        map.insert(run(Stream::Data, index * 16, 16), SegmentId(segment), Slot(slot));
    }
    assert_eq!(map.len(), 10);
    assert!(map.take_changes().encode().len() < 100);
    assert_eq!(map.lookup(Stream::Data, LogAddress(1601)), Some((SegmentId(1), Slot(2), BlockCount(1599))));
    assert_eq!(map.lookup(Stream::Data, LogAddress(16_000)), None);
    assert_eq!(map.lookup(Stream::Node, LogAddress(0)), None);
}

/// Runs of 4 in every 40 addresses, side by side in address order: what collection leaves behind.
fn thinned(runs: u64) -> LocationMap {
    let mut map = LocationMap::new();
    for index in 0..runs {
        map.insert(run(Stream::Data, 1 + index * 40, 4), SegmentId(7), Slot(1 + 4 * index as u32));
    }
    map
}

#[test]
fn what_keeps_its_order_takes_a_bit_for_each_address() {
    let mut map = thinned(1300);
    // 512 addresses hold 13 runs.
    assert_eq!(map.len(), 100);
    assert_eq!(map.entries(Stream::Data).count(), 1300);
    for index in 0..1300_u64 {
        let found = map.lookup(Stream::Data, LogAddress(3 + index * 40));
        assert_eq!(found, Some((SegmentId(7), Slot(3 + 4 * index as u32), BlockCount(2))));
        assert_eq!(map.lookup(Stream::Data, LogAddress(5 + index * 40)), None);
    }
    // Moved once more, in part: what is left of an entry stays together as far as its slots do.
    for index in (0..1300_u64).step_by(2) {
        map.remap(run(Stream::Data, 1 + index * 40, 4), SegmentId(8), Slot(1 + 2 * index as u32));
    }
    assert_eq!(map.entries(Stream::Data).count(), 1300);
    // When the rest goes, too, its neighbours find each other.
    for index in (1..1300_u64).step_by(2) {
        map.remove_within(SegmentId(7), run(Stream::Data, index * 40, 40));
        map.remove_within(SegmentId(9), run(Stream::Data, index * 40, 80));
    }
    assert_eq!(map.entries(Stream::Data).count(), 650);
    assert!(map.len() < 140, "{}", map.len());
    assert_eq!(
        map.lookup(Stream::Data, LogAddress(1 + 80 * 20)),
        Some((SegmentId(8), Slot(81), BlockCount(4)))
    );
}

#[test]
fn moves_can_be_stored_without_what_came_after_a_mark() {
    let mut map = LocationMap::new();
    map.insert(run(Stream::Data, 1, 100), SegmentId(1), Slot(1));
    let mut stored = stored();
    stored.apply_changes(&map.take_changes()).unwrap();
    // The log goes on elsewhere from 50 on, and what it held before is moved.
    map.forget(run(Stream::Data, 50, 51));
    map.insert(run(Stream::Data, 50, 80), SegmentId(2), Slot(1));
    map.remap(run(Stream::Data, 10, 20), SegmentId(3), Slot(1));
    stored.apply_changes(&map.take_changes_below(&Marks([LogAddress(50); 3]))).unwrap();
    let place = |stored: &ChunkedMap, address| stored.recent.lookup(Stream::Data, LogAddress(address));
    assert_eq!(place(&stored, 10), Some((SegmentId(3), Slot(1), BlockCount(20))));
    assert_eq!(place(&stored, 50), Some((SegmentId(1), Slot(50), BlockCount(51))));
    stored.apply_changes(&map.take_changes()).unwrap();
    assert_eq!(stored.recent, map);
}

/// Two entries of a segment continue each other once a third one between them is gone: and then they go
/// themselves.
#[test]
fn a_segment_is_removed_whose_entries_grow_together_meanwhile() {
    let mut map = LocationMap::new();
    map.insert(run(Stream::Data, 100, 4), SegmentId(1), Slot(1));
    map.insert(run(Stream::Data, 90, 4), SegmentId(1), Slot(5));
    map.insert(run(Stream::Data, 110, 4), SegmentId(1), Slot(9));
    map.insert(run(Stream::Data, 80, 4), SegmentId(2), Slot(1));
    map.insert(run(Stream::Data, 120, 4), SegmentId(2), Slot(5));
    assert_eq!(map.remove_segment(SegmentId(1)).len(), 3);
    assert_eq!(map.entries(Stream::Data).count(), 2);
    assert_eq!(map.len(), 1, "what is left is one entry");
}

#[test]
fn a_block_can_be_placed_in_a_gap() {
    let mut map = thinned(13);
    assert_eq!(map.len(), 1);
    map.insert(run(Stream::Data, 50, 10), SegmentId(3), Slot(5));
    assert_eq!(map.len(), 3);
    assert_eq!(map.lookup(Stream::Data, LogAddress(44)), Some((SegmentId(7), Slot(8), BlockCount(1))));
    assert_eq!(map.lookup(Stream::Data, LogAddress(81)), Some((SegmentId(7), Slot(9), BlockCount(4))));
    assert_eq!(map.entries_of_segment(SegmentId(7)).count(), 13);
    assert_eq!(map.remove_segment(SegmentId(3)).len(), 1);
    assert_eq!(map.len(), 1);
    // What is read back is joined in the same way.
    let mut read = stored();
    read.apply_changes(&map.full_changes()).unwrap();
    assert_eq!((read.recent.len(), &read.recent), (1, &map));
}

#[test]
fn what_comes_and_goes_between_checkpoints_leaves_no_trace() {
    let mut map = LocationMap::new();
    map.insert(run(Stream::Data, 0, 100), SegmentId(1), Slot(0));
    map.remap(run(Stream::Data, 10, 10), SegmentId(2), Slot(0));
    map.forget(run(Stream::Data, 90, 10));
    assert_eq!(map.remove_segment(SegmentId(1)).len(), 2);
    assert_eq!(map.remove_segment(SegmentId(2)).len(), 1);
    assert!(map.is_empty());
    assert_eq!(map.take_changes(), MapChanges::default());
}

#[test]
#[should_panic(expected = "in use")]
fn an_address_has_one_place() {
    let mut map = LocationMap::new();
    map.insert(run(Stream::Data, 0, 100), SegmentId(1), Slot(0));
    map.insert(run(Stream::Data, 99, 5), SegmentId(2), Slot(0));
}

#[test]
#[should_panic(expected = "in use")]
fn a_place_has_one_address() {
    let mut map = LocationMap::new();
    map.insert(run(Stream::Data, 0, 100), SegmentId(1), Slot(10));
    map.insert(run(Stream::Node, 0, 5), SegmentId(1), Slot(6));
}

#[test]
fn stored_maps_that_contradict_themselves_are_refused() {
    let mut map = LocationMap::new();
    map.insert(run(Stream::Data, 0, 100), SegmentId(1), Slot(0));
    let changes = map.take_changes();
    let mut twice = stored();
    twice.apply_changes(&changes).unwrap();
    let fault = twice.apply_changes(&changes).unwrap_err().to_string();
    assert!(fault.contains("share an address or a slot"), "{fault}");
    let mut full = stored();
    full.apply_changes(&changes).unwrap();
    let fault = full.apply_changes(&map.full_changes()).unwrap_err().to_string();
    assert!(fault.contains("full image"), "{fault}");
    map.forget(run(Stream::Data, 50, 50));
    let fault = stored().apply_changes(&map.take_changes()).unwrap_err().to_string();
    assert!(fault.contains("has none"), "{fault}");
}
