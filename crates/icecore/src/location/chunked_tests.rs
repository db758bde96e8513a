//! The map in chunks against the map in memory. One chunk is in memory at a time, whatever happens in
//! between.

use super::chunked::{ChunkedMap, Lookup, MapLimits};
use super::map::LocationMap;
use super::{Absent, Chunk, ChunkRow, ChunkStore, MapChanges, PlacedRun, SharedChunk};
use crate::format::superblock::LedgerPointer;
use crate::liveness::DecodeLimits;
use crate::units::{
    BLOCK_BYTES, BlockCount, LOG_ADDRESS_LIMIT, LogAddress, Marks, PoolId, Run, SegmentId, Slot, Stream,
};
use crate::{Error, Result};
use proptest::prelude::*;
use std::sync::Arc;

const POOL: PoolId = PoolId([7; 16]);
const TINY: MapLimits = MapLimits { chunk_bytes: 0, change_bytes: 0, chunk_entries: 4 };
const SEGMENTS: u32 = 5;

fn limits() -> DecodeLimits {
    DecodeLimits::new(Marks([LogAddress(LOG_ADDRESS_LIMIT); 3]))
}

fn run(stream: Stream, start: u64, length: u64) -> Run {
    Run { stream, start: LogAddress(start), length: BlockCount(length) }
}

/// A disk for chunks, of which some can be lost.
#[derive(Default)]
struct Shelf {
    chunks: Vec<Vec<u8>>,
    thin: bool,
    /// Reads from now on until one fails.
    fails_in: Option<usize>,
}

impl Shelf {
    fn read(&mut self, absent: &Absent) -> Result<SharedChunk> {
        if let Some(left) = &mut self.fails_in {
            *left = left.checked_sub(1).ok_or_else(|| Error::damaged("a chunk", "as ordered"))?;
        }
        let bytes = &self.chunks[absent.place.slot.0 as usize];
        assert_eq!(bytes.len(), absent.place.blocks as usize * BLOCK_BYTES);
        Chunk::decode(bytes, POOL, absent.stream, &absent.span).map(Arc::new)
    }
}

impl ChunkStore for Shelf {
    fn load(&mut self, absent: &Absent) -> Result<SharedChunk> {
        self.read(absent)
    }

    fn write(&mut self, stream: Stream, runs: &[PlacedRun]) -> Result<LedgerPointer> {
        let bytes = Chunk::encode(POOL, stream, runs);
        let blocks = (bytes.len() / BLOCK_BYTES) as u32;
        self.chunks.push(bytes);
        let slot = Slot(self.chunks.len() as u32 - 1);
        Ok(LedgerPointer { segment: SegmentId(99), slot, blocks, crc: 0 })
    }

    fn is_thin(&self, _: SegmentId, _: u64) -> bool {
        self.thin
    }
}

/// As a reader does it.
fn lookup(
    map: &mut ChunkedMap,
    shelf: &mut Shelf,
    stream: Stream,
    at: LogAddress,
) -> Result<Option<(SegmentId, Slot, BlockCount)>> {
    let mut found = map.lookup(stream, at);
    loop {
        match found {
            Lookup::At(segment, slot, together) => return Ok(Some((segment, slot, together))),
            Lookup::Nowhere => return Ok(None),
            Lookup::Absent(absent) => {
                let chunk = shelf.read(&absent)?;
                found = map.lookup_with(&absent, &chunk, stream, at).expect("nothing else happens");
                assert!(map.directory().resident() <= 1);
            }
        }
    }
}

fn of_segment(map: &ChunkedMap, shelf: &mut Shelf, segment: SegmentId) -> Vec<PlacedRun> {
    let mut runs: Vec<PlacedRun> = map.recent_of_segment(segment).collect();
    for absent in map.naming(segment) {
        let chunk = shelf.read(&absent).unwrap();
        runs.extend(
            map.holding(absent.stream, &chunk).into_iter().filter(|placed| placed.segment == segment),
        );
    }
    runs
}

/// One place per block: runs may be cut where chunks end.
fn blocks(runs: &[PlacedRun]) -> Vec<(u32, u8, u64)> {
    let mut blocks = Vec::new();
    for placed in runs {
        for index in 0..placed.run.length.0 {
            blocks.push((placed.slot.0 + index as u32, placed.run.stream as u8, placed.run.start.0 + index));
        }
    }
    blocks.sort_unstable();
    blocks
}

fn assert_same(map: &mut ChunkedMap, shelf: &mut Shelf, model: &LocationMap) {
    for stream in Stream::ALL {
        let end = model.end(stream).map_or(0, |end| end.0) + 3;
        for at in (0..end).map(LogAddress) {
            let expected = model.lookup(stream, at);
            let found = lookup(map, shelf, stream, at).unwrap();
            let places = |found: Option<(SegmentId, Slot, BlockCount)>| {
                found.map(|(segment, slot, _)| (segment, slot))
            };
            assert_eq!(places(found), places(expected), "{stream:?} {at}");
            assert!(found.is_none_or(|found| found.2.0 >= 1 && found.2 <= expected.unwrap().2));
        }
    }
    for segment in (0..SEGMENTS).map(SegmentId) {
        let expected: Vec<PlacedRun> = model.entries_of_segment(segment).collect();
        assert_eq!(blocks(&of_segment(map, shelf, segment)), blocks(&expected), "{segment}");
    }
}

struct Trial {
    map: ChunkedMap,
    model: LocationMap,
    /// What a ledger has said so far.
    stored: ChunkedMap,
    /// The model as it was then.
    stored_model: LocationMap,
    shelf: Shelf,
    next: [(u64, u32, u32); 3],
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

impl Trial {
    fn new() -> Self {
        Self {
            map: ChunkedMap::new(TINY),
            model: LocationMap::new(),
            stored: ChunkedMap::new(TINY),
            stored_model: LocationMap::new(),
            shelf: Shelf::default(),
            next: [(1, 0, 1), (1, 1, 1), (1, 2, 1)],
        }
    }

    fn take(&mut self, step: &Step) {
        let stream = Stream::from_number(step.stream).unwrap();
        match step.kind {
            0..=4 => {
                let (start, segment, slot) = self.next[step.stream as usize];
                self.insert(run(stream, start + step.start % 3, step.length), segment, slot);
            }
            5..=7 => self.insert(run(stream, step.start, step.length), step.segment, step.slot),
            8 => {
                self.map.remove_segment(SegmentId(step.segment));
                self.model.remove_segment(SegmentId(step.segment));
            }
            9..=12 => self.remap(stream, step),
            13 => self.remove_within(stream, step),
            14 => self.moves(step),
            15 => self.checkpoint(),
            16 => self.reopen(),
            _ => self.consolidate(step),
        }
    }

    fn insert(&mut self, run: Run, segment: u32, slot: u32) {
        let segment = SegmentId(segment);
        if self.model.try_insert(run, segment, Slot(slot)) {
            self.map.insert(run, segment, Slot(slot));
            self.next[run.stream as usize] = (run.end().0, segment.0, slot + run.length.0 as u32);
        }
    }

    fn remap(&mut self, stream: Stream, step: &Step) {
        let Some((_, _, together)) = self.model.lookup(stream, LogAddress(step.start)) else { return };
        let run = run(stream, step.start, step.length.min(together.0));
        let mut after = self.model.clone();
        after.trim(run);
        if after.is_free(&PlacedRun { run, segment: SegmentId(step.segment), slot: Slot(step.slot) }) {
            self.model.remap(run, SegmentId(step.segment), Slot(step.slot));
            self.map.remap(run, SegmentId(step.segment), Slot(step.slot));
        }
    }

    fn remove_within(&mut self, stream: Stream, step: &Step) {
        let Some((segment, _, together)) = self.model.lookup(stream, LogAddress(step.start)) else { return };
        let run = run(stream, step.start, step.length.min(together.0));
        self.model.remap(run, SegmentId(77), Slot(0));
        self.model.remove_segment(SegmentId(77));
        self.map.remove_within(segment, run);
    }

    fn coded(changes: &MapChanges) -> MapChanges {
        let decoded = MapChanges::decode(&changes.encode(), &mut limits()).unwrap();
        assert_eq!(&decoded, changes);
        decoded
    }

    /// A part of the changes is stored, or could not be.
    fn moves(&mut self, step: &Step) {
        let marks = Marks([LogAddress(step.start); 3]);
        let changes = self.map.take_changes_below(&marks);
        if step.slot.is_multiple_of(2) {
            self.map.put_back(changes);
        } else {
            self.stored.apply_changes(&Self::coded(&changes)).unwrap();
            // What the ledger says now is neither the one nor the other: the next checkpoint says the rest.
            self.checkpoint();
        }
    }

    fn checkpoint(&mut self) {
        let changes = self.map.take_changes();
        for part in Self::coded(&changes).split(3) {
            self.stored.apply_changes(&Self::coded(&part)).unwrap();
        }
        drop(self.model.take_changes());
        self.stored_model = self.model.clone();
        assert_same(&mut self.stored, &mut self.shelf, &self.stored_model);
        self.load_full();
    }

    /// What is stored is said in full, without a look at the chunks.
    fn load_full(&mut self) {
        let mut again = ChunkedMap::new(TINY);
        for part in self.stored.full_changes().split(2) {
            again.apply_changes(&Self::coded(&part)).unwrap();
        }
        assert_same(&mut again, &mut self.shelf, &self.stored_model);
        self.stored = again;
    }

    fn reopen(&mut self) {
        let mut map = ChunkedMap::new(TINY);
        map.apply_changes(&Self::coded(&self.stored.full_changes())).unwrap();
        self.map = map;
        self.model = self.stored_model.clone();
        // Nothing may have an address again that had one, in this model.
        self.next = [(200, 0, 200), (200, 1, 200), (200, 2, 200)];
    }

    /// A checkpoint whose picture is in chunks, and that others do not wait for.
    fn consolidate(&mut self, step: &Step) {
        self.checkpoint();
        self.shelf.thin = step.slot.is_multiple_of(5);
        self.shelf.fails_in = (step.segment == 0).then_some(step.slot as usize % 4);
        let meanwhile = Step { kind: step.kind % 14, ..step.clone() };
        self.take(&meanwhile);
        let outcome = self.stored.consolidate(&mut self.shelf, &mut Vec::new());
        self.shelf.fails_in = None;
        let Ok(chunks) = outcome else { return };
        let mut again = ChunkedMap::new(TINY);
        again.apply_changes(&Self::coded(&chunks.full_changes())).unwrap();
        assert_same(&mut again, &mut self.shelf, &self.stored_model);
        for (stream, row) in again.directory().all() {
            let absent = Absent { stream, span: row.span.clone(), place: row.place };
            let chunk = self.shelf.read(&absent).unwrap();
            assert!(chunk.fits(row) && (1..=2 * TINY.chunk_entries).contains(&chunk.len()));
        }
        self.stored = again;
        self.map.go_on_with(chunks.directory);
    }
}

impl LocationMap {
    fn trim(&mut self, run: Run) {
        drop(self.displace(run));
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = (0u8..20, 0u8..3, 1u64..200, 1u64..12, 0u32..SEGMENTS, 1u32..200).prop_map(
        |(kind, stream, start, length, segment, slot)| Step { kind, stream, start, length, segment, slot },
    );
    prop::collection::vec(step, 1..90)
}

fn cases() -> u32 {
    std::env::var("ICECORE_TEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(192)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn a_map_in_chunks_is_the_map_in_memory(steps in steps()) {
        let mut trial = Trial::new();
        for step in &steps {
            trial.take(step);
            assert_same(&mut trial.map, &mut trial.shelf, &trial.model);
        }
    }

    /// Whatever the bytes: an error, or a chunk within its span.
    #[test]
    fn bytes_that_are_no_chunk_are_refused(at in 0usize..300, byte in 0u8.., runs in 1u64..20) {
        let placed: Vec<PlacedRun> = (0..runs)
            .map(|index| PlacedRun { run: run(Stream::Data, 10 + 7 * index, 3), segment: SegmentId(1), slot: Slot(1 + 5 * index as u32) })
            .collect();
        let span = LogAddress(10)..LogAddress(10 + 7 * (runs - 1) + 3);
        let mut bytes = Chunk::encode(POOL, Stream::Data, &placed);
        bytes[at] ^= byte;
        if let Ok(chunk) = Chunk::decode(&bytes, POOL, Stream::Data, &span) {
            assert!(chunk.runs().all(|placed| span.contains(&placed.run.start) && placed.run.end() <= span.end));
        }
        for length in [0, 10, 40, 60] {
            drop(Chunk::decode(&bytes[..length], POOL, Stream::Data, &span));
        }
    }
}

/// As `docs/format/location.md` draws them.
#[test]
fn chunks_and_rows_are_these_bytes() {
    let placed = |start, length, segment, slot| PlacedRun {
        run: run(Stream::Merged, start, length),
        segment: SegmentId(segment),
        slot: Slot(slot),
    };
    let runs = [placed(300, 2, 5, 9), placed(310, 1, 4, 200)];
    let bytes = Chunk::encode(POOL, Stream::Merged, &runs);
    let mut expected = b"ICECHNK\n".to_vec();
    expected.extend([1, 0, 0, 0, 1, 0, 0, 0]);
    expected.extend([7; 16]);
    expected.extend([11, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend([2, 0xac, 2, 1, 10, 9, 8, 0, 1, 0xc8, 1]);
    assert_eq!(bytes[..expected.len()], expected);
    assert!(bytes.len() == BLOCK_BYTES && bytes[expected.len()..].iter().all(|byte| *byte == 0));

    let place = LedgerPointer { segment: SegmentId(8), slot: Slot(3), blocks: 1, crc: 0x0403_0201 };
    let mut changes = MapChanges { full: true, ..MapChanges::default() };
    changes.chunks[Stream::Merged as usize] = vec![ChunkRow::of(Stream::Merged, &runs, place)];
    changes.retired = vec![SegmentId(6)];
    let row = [0xac, 2, 10, 8, 3, 1, 2, 1, 2, 3, 4, 2, 4, 1];
    let expected: Vec<u8> = [&[2, 1, 0, 1][..], &row, &[0, 1, 6], &[0; 6]].concat();
    assert_eq!(changes.encode(), expected);
}
