//! The directory: which chunks there are, where each lies, and those of them that are in memory.

use super::changes::damaged;
use super::chunk::{Absent, Chunk, SharedChunk};
use super::map::PlacedRun;
use crate::error::Result;
use crate::format::superblock::LedgerPointer;
use crate::format::varint::{put_varint, take_varint};
use crate::liveness::{DecodeLimits, Span};
use crate::units::{LogAddress, SegmentId, Slot, Stream};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Segments that a row names at most: a chunk with blocks in more of them may have some anywhere.
pub const NAMED_MAX: usize = 64;

/// What the directory says of one chunk.
#[derive(Clone, PartialEq, Debug)]
pub struct ChunkRow {
    /// Its addresses, from the first to the last. Those of different chunks do not overlap.
    pub span: Span,
    /// Where it lies: a stretch of a ledger segment.
    pub place: LedgerPointer,
    /// Number of entries in it.
    pub entries: u32,
    /// The segments in which its blocks lie, ascending; `None` if they are many.
    pub segments: Option<Box<[SegmentId]>>,
}

impl ChunkRow {
    /// The row of a chunk of these runs, which are not none, at a place.
    pub(super) fn of(stream: Stream, runs: &[PlacedRun], place: LedgerPointer) -> Self {
        let chunk = Chunk::of(stream, runs);
        let span = runs[0].run.start..runs[runs.len() - 1].run.end();
        let segments = Some(chunk.segments()).filter(|segments| segments.len() <= NAMED_MAX);
        Self { span, place, entries: chunk.len() as u32, segments: segments.map(Into::into) }
    }

    /// Whether some of its blocks may lie in a segment.
    pub fn may_name(&self, segment: SegmentId) -> bool {
        self.segments.as_ref().is_none_or(|segments| segments.binary_search(&segment).is_ok())
    }

    fn encode(&self, end: LogAddress, out: &mut Vec<u8>) {
        put_varint(out, self.span.start.0 - end.0);
        put_varint(out, self.span.end.0 - self.span.start.0 - 1);
        for number in [self.place.segment.0, self.place.slot.0, self.place.blocks, self.entries] {
            put_varint(out, u64::from(number));
        }
        out.extend_from_slice(&self.place.crc.to_le_bytes());
        let segments = self.segments.as_deref().unwrap_or_default();
        put_varint(out, segments.len() as u64);
        let mut before = 0;
        for segment in segments {
            put_varint(out, u64::from(segment.0 - before));
            before = segment.0;
        }
    }

    /// `None` if it is cut short, or a number is out of range.
    fn take(bytes: &mut &[u8], end: LogAddress) -> Option<Self> {
        let start = end.0.checked_add(take_varint(bytes)?)?;
        let last = start.checked_add(take_varint(bytes)?)?.checked_add(1)?;
        let mut number = || u32::try_from(take_varint(bytes)?).ok();
        let (segment, slot, blocks, entries) = (number()?, number()?, number()?, number()?);
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        let place = LedgerPointer {
            segment: SegmentId(segment),
            slot: Slot(slot),
            blocks,
            crc: u32::from_le_bytes(*crc),
        };
        let count = usize::try_from(take_varint(bytes)?).ok().filter(|count| *count <= NAMED_MAX)?;
        let mut segments = Vec::with_capacity(count);
        for index in 0..count {
            let step = u32::try_from(take_varint(bytes)?).ok()?;
            let before = segments.last().map_or(0, |segment: &SegmentId| segment.0);
            if index > 0 && step == 0 {
                return None;
            }
            segments.push(SegmentId(before.checked_add(step)?));
        }
        let segments = Some(segments).filter(|segments| !segments.is_empty()).map(Into::into);
        Some(Self { span: LogAddress(start)..LogAddress(last), place, entries, segments })
    }
}

/// Appends rows of one stream.
pub(super) fn encode_rows(rows: &[ChunkRow], out: &mut Vec<u8>) {
    put_varint(out, rows.len() as u64);
    let mut end = LogAddress(0);
    for row in rows {
        row.encode(end, out);
        end = row.span.end;
    }
}

/// Reads what [`encode_rows`] wrote.
pub(super) fn take_rows(bytes: &mut &[u8], stream: Stream, limits: &DecodeLimits) -> Result<Vec<ChunkRow>> {
    let count = take_varint(bytes).ok_or_else(|| damaged("number of chunks"))?;
    let mut rows: Vec<ChunkRow> = Vec::new();
    for _ in 0..count {
        let end = rows.last().map_or(LogAddress(0), |row| row.span.end);
        let row = ChunkRow::take(bytes, end).ok_or_else(|| damaged("a chunk makes no sense"))?;
        if row.span.end > limits.positions.of(stream) {
            return Err(damaged("a chunk of addresses that were never given out"));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// A chunk, and whether a lookup entered it since its turn to go came last.
#[derive(Debug, Default)]
struct Resident {
    chunk: Option<SharedChunk>,
    used: AtomicBool,
}

/// All chunks of a map.
#[derive(Debug, Default)]
pub struct Directory {
    rows: [Vec<ChunkRow>; 3],
    resident: [Vec<Resident>; 3],
    /// Chunks in memory by stream and first address, the one whose turn to go comes next in front.
    turns: VecDeque<(Stream, LogAddress)>,
    resident_bytes: u64,
}

/// What a directory has for an address.
pub(super) enum Entered<'a> {
    /// No chunk.
    Nothing,
    /// One that is in memory.
    Chunk(&'a Chunk),
    /// One that is not.
    Absent(Absent),
}

impl Directory {
    /// Whether there are no chunks.
    pub fn is_empty(&self) -> bool {
        self.rows.iter().all(Vec::is_empty)
    }

    /// The chunks of one stream, by address.
    pub fn rows(&self, stream: Stream) -> &[ChunkRow] {
        &self.rows[stream as usize]
    }

    /// All chunks.
    pub fn all(&self) -> impl Iterator<Item = (Stream, &ChunkRow)> {
        Stream::ALL.into_iter().flat_map(|stream| self.rows(stream).iter().map(move |row| (stream, row)))
    }

    /// Number of chunks in memory.
    #[cfg(test)]
    pub fn resident(&self) -> usize {
        self.turns.len()
    }

    /// Enters a chunk. `false` if it overlaps with another.
    pub(super) fn add(&mut self, stream: Stream, row: ChunkRow) -> bool {
        let rows = &mut self.rows[stream as usize];
        let at = rows.partition_point(|other| other.span.start < row.span.start);
        let fits = (at == 0 || rows[at - 1].span.end <= row.span.start)
            && rows.get(at).is_none_or(|after| row.span.end <= after.span.start);
        if fits {
            rows.insert(at, row);
            self.resident[stream as usize].insert(at, Resident::default());
        }
        fits
    }

    /// Takes a chunk out.
    pub(super) fn remove(&mut self, wanted: &Absent) {
        let Some(index) = self.index_of(wanted) else { return };
        self.rows[wanted.stream as usize].remove(index);
        if let Some(chunk) = self.resident[wanted.stream as usize].remove(index).chunk {
            self.resident_bytes -= chunk.bytes();
        }
        self.turns.retain(|turn| *turn != (wanted.stream, wanted.span.start));
    }

    fn index(&self, stream: Stream, address: LogAddress) -> Option<usize> {
        let rows = self.rows(stream);
        let index = rows.partition_point(|row| row.span.start <= address).checked_sub(1)?;
        rows[index].span.contains(&address).then_some(index)
    }

    /// The chunk with an address in its span.
    pub(super) fn enter(&self, stream: Stream, address: LogAddress) -> Entered<'_> {
        let Some(index) = self.index(stream, address) else { return Entered::Nothing };
        let resident = &self.resident[stream as usize][index];
        match &resident.chunk {
            Some(chunk) => {
                // A store into a line that all readers share, only where it changes something.
                if !resident.used.load(Ordering::Relaxed) {
                    resident.used.store(true, Ordering::Relaxed);
                }
                Entered::Chunk(chunk)
            }
            None => Entered::Absent(absent(stream, &self.rows(stream)[index])),
        }
    }

    /// A chunk that is in memory, to be held on to.
    pub(super) fn shared(&self, wanted: &Absent) -> Option<SharedChunk> {
        let index = self.index_of(wanted)?;
        self.resident[wanted.stream as usize][index].chunk.as_ref().map(Arc::clone)
    }

    /// Whether the chunk is still one of these.
    pub(super) fn has(&self, wanted: &Absent) -> bool {
        self.index_of(wanted).is_some()
    }

    fn index_of(&self, wanted: &Absent) -> Option<usize> {
        let index = self.index(wanted.stream, wanted.span.start)?;
        let row = &self.rows(wanted.stream)[index];
        (row.place == wanted.place && row.span == wanted.span).then_some(index)
    }

    /// Keeps a chunk that was read, if it is still one of these; others leave memory until what is there
    /// takes no more than `limit` bytes, or is this one alone.
    pub(super) fn keep(&mut self, loaded: &Absent, chunk: &SharedChunk, limit: u64) {
        let Some(index) = self.index_of(loaded) else { return };
        let resident = &mut self.resident[loaded.stream as usize][index];
        if resident.chunk.is_some() {
            return;
        }
        resident.chunk = Some(Arc::clone(chunk));
        resident.used = AtomicBool::new(false);
        self.resident_bytes += chunk.bytes();
        while self.resident_bytes > limit && !self.turns.is_empty() {
            self.pass_turn();
        }
        self.turns.push_back((loaded.stream, loaded.span.start));
    }

    /// The chunk whose turn it is leaves memory, unless a lookup entered it.
    fn pass_turn(&mut self) {
        let Some((stream, start)) = self.turns.pop_front() else { return };
        let Some(index) = self.index(stream, start) else { return };
        let resident = &mut self.resident[stream as usize][index];
        if std::mem::take(resident.used.get_mut()) {
            self.turns.push_back((stream, start));
        } else if let Some(chunk) = resident.chunk.take() {
            self.resident_bytes -= chunk.bytes();
        }
    }

    /// Chunks that may say that something lies in a segment.
    pub(super) fn naming(&self, segment: SegmentId) -> impl Iterator<Item = Absent> {
        let naming = self.all().filter(move |(_, row)| row.may_name(segment));
        naming.map(|(stream, row)| absent(stream, row))
    }

    /// Whether a chunk spans one of these addresses.
    pub(super) fn overlaps(&self, stream: Stream, span: &Span) -> bool {
        let rows = self.rows(stream);
        let index = rows.partition_point(|row| row.span.end <= span.start);
        rows.get(index).is_some_and(|row| row.span.start < span.end)
    }

    /// The address behind the last one of a stream.
    pub(super) fn end(&self, stream: Stream) -> Option<LogAddress> {
        self.rows(stream).last().map(|row| row.span.end)
    }

    /// What is in memory of chunks that are in both goes on being there.
    pub(super) fn take_over(&mut self, mut former: Self) {
        for (stream, start) in std::mem::take(&mut former.turns) {
            let Some(index) = former.index(stream, start) else { continue };
            let wanted = absent(stream, &former.rows(stream)[index]);
            if let (Some(chunk), true) = (former.shared(&wanted), self.has(&wanted)) {
                self.keep(&wanted, &chunk, u64::MAX);
            }
        }
    }
}

/// How to find a chunk.
pub(super) fn absent(stream: Stream, row: &ChunkRow) -> Absent {
    Absent { stream, span: row.span.clone(), place: row.place }
}

/// Blocks of chunks in each ledger segment.
pub(super) fn blocks_by_segment(directory: &Directory) -> BTreeMap<SegmentId, u64> {
    let mut blocks = BTreeMap::new();
    for (_, row) in directory.all() {
        *blocks.entry(row.place.segment).or_default() += u64::from(row.place.blocks);
    }
    blocks
}
