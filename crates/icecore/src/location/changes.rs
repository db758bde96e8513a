//! The location map on disk: a full image, and changes since the last one, in the same form. The layout is
//! in `docs/format/location.md`.

use super::directory::{ChunkRow, encode_rows, take_rows};
use super::map::{LocationMap, MapJournal, PlacedRun};
use crate::format::varint::{put_varint, take_varint, unzigzag, zigzag};
use crate::liveness::{BlockSet, DecodeLimits, encode_set, take_set};
use crate::units::{BlockCount, LOG_ADDRESS_LIMIT, LogAddress, Marks, Run, SegmentId, Slot, Stream};
use crate::{Error, Result};

/// First byte of the encoding: without chunks, and with them.
const FORMAT: u8 = 1;
const FORMAT_CHUNKS: u8 = 2;
/// A row of the directory takes as many bytes as so many runs.
const RUNS_PER_ROW: usize = 16;
/// Second byte: builds on nothing, or on what came before.
const DELTA: u8 = 0;
const FULL: u8 = 1;

/// What changed in the map of one stream.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct StreamMapChanges {
    /// Addresses that had a place, and have another or none now.
    pub cleared: BlockSet,
    /// Runs that have a place they did not have, by address; none has a place once `cleared` is taken out.
    pub placed: Vec<PlacedRun>,
}

/// What turns one stored map into the next.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MapChanges {
    /// Whether this builds on nothing.
    pub full: bool,
    /// Chunks that hold the rest of the map, of each stream by address: only in a full image. All that
    /// follows goes on from them.
    pub chunks: [Vec<ChunkRow>; 3],
    /// What lay in these segments before has no place any more.
    pub retired: Vec<SegmentId>,
    /// Changes of each stream.
    pub streams: [StreamMapChanges; 3],
}

impl LocationMap {
    /// What changed since the last call (or since the map was loaded). The caller must store it: it is not
    /// reported again.
    pub fn take_changes(&mut self) -> MapChanges {
        let journals = std::mem::take(&mut self.journals);
        self.changes_of(journals)
    }

    /// Of what changed since the last call, what has an address below these marks. The rest is reported
    /// later.
    pub fn take_changes_below(&mut self, marks: &Marks) -> MapChanges {
        let mut journals: [MapJournal; 3] = Default::default();
        for stream in Stream::ALL {
            let (all, below) = (&mut self.journals[stream as usize], LogAddress(0)..marks.of(stream));
            let (cleared, written) = (all.cleared.extract(&below), all.written.extract(&below));
            journals[stream as usize] = MapJournal { cleared, written };
        }
        self.changes_of(journals)
    }

    /// Runs that changed since the last call, about: what lies in pieces counts once.
    pub(crate) fn changed_runs(&self) -> usize {
        let runs = |journal: &MapJournal| journal.cleared.runs().count() + journal.written.runs().count();
        self.journals.iter().map(runs).sum()
    }

    /// Takes back changes that could not be stored: they are reported again, with what changed since. They
    /// have to be the last ones that were taken.
    pub fn put_back(&mut self, changes: MapChanges) {
        for (journal, changes) in self.journals.iter_mut().zip(changes.streams) {
            let runs = changes.placed.iter().map(|placed| placed.run.start..placed.run.end());
            let mut placed: BlockSet = runs.collect();
            // What got a place and lost it again leaves no trace.
            let mut gone = placed.clone();
            gone.intersect(&journal.cleared);
            placed.subtract(&gone);
            journal.cleared.subtract(&gone);
            journal.cleared.unite(changes.cleared);
            journal.written.unite(placed);
        }
    }

    fn changes_of(&self, journals: [MapJournal; 3]) -> MapChanges {
        let mut changes = MapChanges::default();
        for (stream, journal) in Stream::ALL.into_iter().zip(journals) {
            let runs = journal.written.runs();
            let placed = runs.flat_map(|span| self.entries_within(Run::of(stream, &span)));
            changes.streams[stream as usize].placed = placed.collect();
            changes.streams[stream as usize].cleared = journal.cleared;
        }
        changes
    }

    /// The whole map as changes of an empty one. Does not touch the journal: after storing this, call
    /// [`LocationMap::take_changes`] under the same lock and drop what it answers.
    pub fn full_changes(&self) -> MapChanges {
        let placed =
            |stream| StreamMapChanges { cleared: BlockSet::new(), placed: self.entries(stream).collect() };
        MapChanges { full: true, streams: Stream::ALL.map(placed), ..MapChanges::default() }
    }
}

impl MapChanges {
    /// Whether part of the map is in chunks.
    pub fn has_chunks(&self) -> bool {
        self.chunks.iter().any(|rows| !rows.is_empty())
    }

    /// These changes in parts of so many runs at most, or as long, to be applied in order: chunks come first,
    /// then what is retired, then everything that is cleared.
    pub fn split(self, runs_max: usize) -> Vec<Self> {
        let full = self.full;
        let mut parts = vec![Self { full, ..Self::default() }];
        let mut left = runs_max;
        let mut next_of = |parts: &mut Vec<Self>, runs: usize| {
            if left == 0 {
                parts.push(Self::default());
                left = runs_max;
            }
            left = left.saturating_sub(runs);
            parts.len() - 1
        };
        for (stream, rows) in self.chunks.into_iter().enumerate() {
            for row in rows {
                let part = next_of(&mut parts, RUNS_PER_ROW);
                parts[part].chunks[stream].push(row);
            }
        }
        let mut next = |parts: &mut Vec<Self>| next_of(parts, 1);
        for segment in self.retired {
            let part = next(&mut parts);
            parts[part].retired.push(segment);
        }
        for (stream, changes) in self.streams.iter().enumerate() {
            for span in changes.cleared.runs() {
                let part = next(&mut parts);
                parts[part].streams[stream].cleared.insert(span);
            }
        }
        for (stream, changes) in self.streams.into_iter().enumerate() {
            for placed in changes.placed {
                let part = next(&mut parts);
                parts[part].streams[stream].placed.push(placed);
            }
        }
        parts
    }

    /// These changes as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let kind = if self.full { FULL } else { DELTA };
        let mut out = vec![FORMAT, kind];
        if self.has_chunks() || !self.retired.is_empty() {
            out[0] = FORMAT_CHUNKS;
            self.chunks.iter().for_each(|rows| encode_rows(rows, &mut out));
            put_varint(&mut out, self.retired.len() as u64);
            self.retired.iter().for_each(|segment| put_varint(&mut out, u64::from(segment.0)));
        }
        for stream in &self.streams {
            out.push(u8::from(!stream.cleared.is_empty()));
            if !stream.cleared.is_empty() {
                encode_set(&stream.cleared, &mut out);
            }
            encode_placed(&stream.placed, &mut out);
        }
        out
    }

    /// Reads what [`MapChanges::encode`] wrote.
    /// Whether the changes make sense is checked when they are applied.
    pub fn decode(bytes: &[u8], limits: &mut DecodeLimits) -> Result<Self> {
        let &[format @ (FORMAT | FORMAT_CHUNKS), kind @ (DELTA | FULL), ref rest @ ..] = bytes else {
            return Err(damaged("not a map, or one of an unknown format"));
        };
        let mut rest = rest;
        let mut changes = Self { full: kind == FULL, ..Self::default() };
        if format == FORMAT_CHUNKS {
            for stream in Stream::ALL {
                changes.chunks[stream as usize] = take_rows(&mut rest, stream, limits)?;
            }
            changes.retired = take_segments(&mut rest).ok_or_else(|| damaged("a segment makes no sense"))?;
        }
        for stream in Stream::ALL {
            let (&has_cleared, after) = rest.split_first().ok_or_else(|| damaged("cut short"))?;
            rest = after;
            match has_cleared {
                0 => {}
                1 => changes.streams[stream as usize].cleared = take_set(&mut rest, stream, limits)?,
                _ => return Err(damaged("unknown kind of change")),
            }
            changes.streams[stream as usize].placed = take_placed(&mut rest, stream, limits)?;
        }
        if rest.is_empty() { Ok(changes) } else { Err(damaged("bytes left over")) }
    }
}

pub(super) fn damaged(detail: &str) -> Error {
    Error::damaged("location map", detail)
}

fn take_segments(bytes: &mut &[u8]) -> Option<Vec<SegmentId>> {
    let mut segments = Vec::new();
    for _ in 0..take_varint(bytes)? {
        segments.push(SegmentId(u32::try_from(take_varint(bytes)?).ok()?));
    }
    Some(segments)
}

pub(super) fn encode_placed(placed: &[PlacedRun], out: &mut Vec<u8>) {
    put_varint(out, placed.len() as u64);
    let (mut end, mut segment) = (LogAddress(0), SegmentId(0));
    for entry in placed {
        put_varint(out, entry.run.start.0 - end.0);
        put_varint(out, entry.run.length.0 - 1);
        let step = i64::from(entry.segment.0) - i64::from(segment.0);
        put_varint(out, zigzag(step));
        put_varint(out, u64::from(entry.slot.0));
        (end, segment) = (entry.run.end(), entry.segment);
    }
}

pub(super) fn take_placed(
    bytes: &mut &[u8],
    stream: Stream,
    limits: &DecodeLimits,
) -> Result<Vec<PlacedRun>> {
    let count = take_varint(bytes).ok_or_else(|| damaged("number of entries"))?;
    let mut placed = Vec::new();
    let (mut end, mut segment) = (LogAddress(0), SegmentId(0));
    for _ in 0..count {
        let entry =
            take_entry(bytes, stream, end, segment).ok_or_else(|| damaged("an entry makes no sense"))?;
        (end, segment) = (entry.run.end(), entry.segment);
        if end > limits.positions.of(stream) || end.0 > LOG_ADDRESS_LIMIT {
            return Err(damaged("an address that was never given out"));
        }
        placed.push(entry);
    }
    Ok(placed)
}

/// One entry that comes after address `end` and an entry in `segment`. None when it is cut short or a number
/// in it is out of bounds.
fn take_entry(bytes: &mut &[u8], stream: Stream, end: LogAddress, segment: SegmentId) -> Option<PlacedRun> {
    let start = end.0.checked_add(take_varint(bytes)?)?;
    let length = u64::from(u32::try_from(take_varint(bytes)?.checked_add(1)?).ok()?);
    let step = unzigzag(take_varint(bytes)?);
    let segment = SegmentId(u32::try_from(i64::from(segment.0).checked_add(step)?).ok()?);
    let slot = Slot(u32::try_from(take_varint(bytes)?).ok()?);
    start.checked_add(length)?;
    slot.0.checked_add(length as u32)?;
    let run = Run { stream, start: LogAddress(start), length: BlockCount(length) };
    Some(PlacedRun { run, segment, slot })
}
