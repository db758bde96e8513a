//! A chunk: a stretch of the location map, as it lies on disk and as it is in memory. It is written once and
//! never changes.

use super::changes::{encode_placed, take_placed};
use super::entry::Entry;
use super::map::{PlacedRun, runs_of};
use crate::error::{Error, Result};
use crate::liveness::{DecodeLimits, Span};
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, Marks, PoolId, SegmentId, Slot, Stream};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"ICECHNK\n";
const VERSION: u32 = 1;
/// Bytes before the entries.
const HEADER_BYTES: usize = 40;
/// Bytes that an entry with gaps takes beside what every entry takes.
const BITS_BYTES: usize = 80;

/// A chunk in memory.
#[derive(Debug)]
pub struct Chunk {
    stream: Stream,
    /// By first address; their spans do not overlap.
    entries: Box<[(u64, Entry)]>,
}

impl Chunk {
    /// Runs of one stream by address, none of which overlaps with the next.
    pub(super) fn of(stream: Stream, runs: &[PlacedRun]) -> Self {
        let mut entries: Vec<(u64, Entry)> = Vec::new();
        for placed in runs {
            let start = placed.run.start.0;
            let entry = Entry::run(placed.run.length.0 as u32, placed.segment, placed.slot);
            if let Some((first, last)) = entries.last_mut()
                && let Ok(distance) = u32::try_from(start - *first)
                && let Some(joined) = last.joined(distance, &entry)
            {
                *last = joined;
                continue;
            }
            entries.push((start, entry));
        }
        Self { stream, entries: entries.into() }
    }

    /// As it is written: whole blocks.
    pub fn encode(pool: PoolId, stream: Stream, runs: &[PlacedRun]) -> Vec<u8> {
        let mut entries = Vec::new();
        encode_placed(runs, &mut entries);
        let mut bytes = Vec::with_capacity((HEADER_BYTES + entries.len()).next_multiple_of(BLOCK_BYTES));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&[stream as u8, 0, 0, 0]);
        bytes.extend_from_slice(&pool.0);
        bytes.extend_from_slice(&(entries.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&entries);
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }

    /// Reads what [`Chunk::encode`] wrote, of addresses within `span`. Sizes in it are bounded by its own.
    /// An error is without a place: the caller, which read the bytes, knows where they lie.
    pub fn decode(bytes: &[u8], pool: PoolId, stream: Stream, span: &Span) -> Result<Self> {
        let damaged = |detail: &str| Error::damaged("a chunk of the location map", detail);
        let header = bytes.get(..HEADER_BYTES).ok_or_else(|| damaged("cut short"))?;
        let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        let length = u64::from_le_bytes(header[32..40].try_into().expect("eight bytes"));
        if &header[..8] != MAGIC
            || version != VERSION
            || header[12] != stream as u8
            || header[16..32] != pool.0
        {
            return Err(damaged("it does not begin as one of this stream and pool"));
        }
        let end = usize::try_from(length).ok().and_then(|length| length.checked_add(HEADER_BYTES));
        let mut entries = end
            .and_then(|end| bytes.get(HEADER_BYTES..end))
            .ok_or_else(|| damaged("it has no such length"))?;
        let limits = DecodeLimits::new(Marks([span.end; 3]));
        let runs = take_placed(&mut entries, stream, &limits)?;
        if !entries.is_empty() || runs.first().is_none_or(|first| first.run.start < span.start) {
            return Err(damaged("it is not of the addresses that it should be"));
        }
        Ok(Self::of(stream, &runs))
    }

    /// The place of one block, and how many blocks from there on lie one after the other in this chunk.
    pub(super) fn lookup(&self, address: LogAddress) -> Option<(SegmentId, Slot, BlockCount)> {
        let index = self.entries.partition_point(|(start, _)| *start <= address.0).checked_sub(1)?;
        let (start, entry) = &self.entries[index];
        let offset = u32::try_from(address.0 - start).ok()?;
        let (slot, length) = entry.at(offset)?;
        let mut end = address.0 + u64::from(length);
        let mut last = (*start, entry);
        // An entry with gaps may end where a run does not.
        for (start, after) in &self.entries[index + 1..] {
            let goes_on = end == last.0 + u64::from(last.1.span())
                && *start == end
                && (after.segment, after.slot.0) == (last.1.segment, last.1.slots_end());
            if !goes_on {
                break;
            }
            last = (end, after);
            end += u64::from(after.at(0).map_or(0, |(_, length)| length));
        }
        Some((entry.segment, slot, BlockCount(end - address.0)))
    }

    /// Its runs, by address.
    pub(super) fn runs(&self) -> impl Iterator<Item = PlacedRun> {
        let all = LogAddress(0)..LogAddress(u64::MAX);
        self.entries.iter().flat_map(move |(start, entry)| runs_of(self.stream, *start, entry, all.clone()))
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The memory it takes, about.
    pub(super) fn bytes(&self) -> u64 {
        let bits = self.entries.iter().filter(|(_, entry)| entry.has_gaps()).count() * BITS_BYTES;
        (size_of::<Self>() + self.entries.len() * size_of::<(u64, Entry)>() + bits) as u64
    }

    /// The segments that it names, ascending, each once.
    pub(super) fn segments(&self) -> Vec<SegmentId> {
        let mut segments: Vec<SegmentId> = self.entries.iter().map(|(_, entry)| entry.segment).collect();
        segments.sort_unstable();
        segments.dedup();
        segments
    }
}

/// A chunk that was looked for and is not in memory.
#[derive(Clone, Debug)]
pub struct Absent {
    /// Its stream.
    pub stream: Stream,
    /// The addresses from its first to its last.
    pub span: Span,
    /// Where it lies.
    pub place: crate::format::superblock::LedgerPointer,
}

/// A chunk in memory, shared with its readers.
pub type SharedChunk = Arc<Chunk>;
