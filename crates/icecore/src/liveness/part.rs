//! Parts of sets on disk: each a stretch of one set, several in a chunk. They are written once and never
//! change.

use super::blocks::{BlockSet, Span};
use super::codec::{DecodeLimits, damaged, encode_set, take_set};
use super::fault::HistoryFault;
use crate::Result;
use crate::format::superblock::LedgerPointer;
use crate::format::varint::{put_varint, take_varint};
use crate::units::{
    BLOCK_BYTES, BlockCount, LOG_ADDRESS_LIMIT, LogAddress, Marks, PoolId, SegmentId, Slot, Stream,
};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"ICESETS\n";
const VERSION: u32 = 1;
/// Bytes before the parts.
const HEADER_BYTES: usize = 40;

/// Addresses of a stretch that takes up some memory, however few bytes name it.
const STRETCH_BITS: u32 = 16;
/// Stretches that the parts of a chunk touch at most, each counted for each run. That is about 50 MiB of
/// memory, and 256 TiB of blocks. In tests it is less.
pub(super) const STRETCHES_MAX: u64 = if cfg!(test) { 1 << 14 } else { 1 << 20 };

/// How many stretches a run touches.
pub(super) const fn stretches(span: &Span) -> u64 {
    ((span.end.0 - 1) >> STRETCH_BITS) - (span.start.0 >> STRETCH_BITS) + 1
}

/// What is known of one part: a stretch of a set that lies in a chunk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PartRow {
    /// Its addresses, from the first to the last. Other parts of the set may lie in between.
    pub span: Span,
    /// Number of addresses in it.
    pub count: u64,
    /// Where the chunk lies: a stretch of a ledger segment.
    pub place: LedgerPointer,
    /// Which part of the chunk it is.
    pub part: u32,
    /// What it takes of the chunk.
    pub bytes: u32,
}

impl PartRow {
    pub(super) fn encode(&self, before: LogAddress, out: &mut Vec<u8>) {
        put_varint(out, self.span.start.0 - before.0);
        put_varint(out, self.span.end.0 - self.span.start.0 - 1);
        put_varint(out, self.count);
        for number in [self.place.segment.0, self.place.slot.0, self.place.blocks, self.part, self.bytes] {
            put_varint(out, u64::from(number));
        }
        out.extend_from_slice(&self.place.crc.to_le_bytes());
    }

    /// `None` if it is cut short, or a number is out of range.
    fn take(bytes: &mut &[u8], before: LogAddress) -> Option<Self> {
        let start = before.0.checked_add(take_varint(bytes)?)?;
        let end = start.checked_add(take_varint(bytes)?)?.checked_add(1)?;
        let count = take_varint(bytes).filter(|count| (1..=end - start).contains(count))?;
        let mut number = || u32::try_from(take_varint(bytes)?).ok();
        let (segment, slot, blocks) = (number()?, number()?, number()?);
        let (part, length) = (number()?, number()?);
        let (crc, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        let crc = u32::from_le_bytes(*crc);
        let place = LedgerPointer { segment: SegmentId(segment), slot: Slot(slot), blocks, crc };
        Some(Self { span: LogAddress(start)..LogAddress(end), count, place, part, bytes: length })
    }
}

/// Reads rows of one set, by first address.
pub(super) fn take_rows(bytes: &mut &[u8], stream: Stream, limits: &DecodeLimits) -> Result<Vec<PartRow>> {
    let count = take_varint(bytes).ok_or_else(|| damaged("number of parts"))?;
    let mut rows: Vec<PartRow> = Vec::new();
    let mut total = 0_u64;
    for _ in 0..count {
        let before = rows.last().map_or(LogAddress(0), |row| row.span.start);
        let row = PartRow::take(bytes, before).ok_or_else(|| damaged("a part makes no sense"))?;
        // No address is in two of them.
        total = total.saturating_add(row.count);
        if row.span.end.max(LogAddress(total)) > limits.positions.of(stream) {
            return Err(damaged("a part of addresses that were never given out"));
        }
        rows.push(row);
    }
    Ok(rows)
}

/// A chunk in memory.
#[derive(Debug)]
pub struct SetChunk {
    parts: Box<[BlockSet]>,
    bytes: u64,
}

impl SetChunk {
    /// As it is written: whole blocks. `parts` are as `encode_part` makes them.
    pub fn encode(pool: PoolId, parts: &[Vec<u8>]) -> Vec<u8> {
        let length: usize = parts.iter().map(Vec::len).sum();
        let mut bytes = Vec::with_capacity((HEADER_BYTES + length).next_multiple_of(BLOCK_BYTES));
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(parts.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&pool.0);
        bytes.extend_from_slice(&(length as u64).to_le_bytes());
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }

    /// Reads what [`SetChunk::encode`] wrote. What it takes of memory is bounded, whatever it claims.
    /// An error is without a place: the caller, which read the bytes, knows where they lie.
    pub fn decode(bytes: &[u8], pool: PoolId) -> Result<Self> {
        let header = bytes.get(..HEADER_BYTES).ok_or_else(|| damaged("a chunk is cut short"))?;
        let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        let count = u32::from_le_bytes(header[12..16].try_into().expect("four bytes"));
        let length = u64::from_le_bytes(header[32..40].try_into().expect("eight bytes"));
        if &header[..8] != MAGIC || version != VERSION || header[16..32] != pool.0 {
            return Err(damaged("a chunk does not begin as one of this pool"));
        }
        let end = usize::try_from(length).ok().and_then(|length| length.checked_add(HEADER_BYTES));
        let mut rest = end
            .and_then(|end| bytes.get(HEADER_BYTES..end))
            .ok_or_else(|| damaged("a chunk has no such length"))?;
        let positions = Marks([LogAddress(LOG_ADDRESS_LIMIT); 3]);
        let mut limits = DecodeLimits { positions, chunks: STRETCHES_MAX };
        let mut parts = Vec::new();
        for _ in 0..count {
            parts.push(take_set(&mut rest, Stream::Data, &mut limits)?);
        }
        if !rest.is_empty() {
            return Err(damaged("bytes after the parts of a chunk"));
        }
        let bytes = parts.iter().map(BlockSet::memory).sum();
        Ok(Self { parts: parts.into(), bytes })
    }

    /// The memory it takes, about.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A stretch of a set, as it goes into a chunk.
pub fn encode_part(set: &BlockSet) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_set(set, &mut bytes);
    bytes
}

/// A part in memory.
#[derive(Clone, Debug)]
pub struct Part {
    chunk: Arc<SetChunk>,
    index: usize,
}

impl Part {
    /// The part of a chunk that a row stands for.
    pub fn of(chunk: &Arc<SetChunk>, row: &PartRow) -> Result<Self> {
        let index = row.part as usize;
        let found = chunk.parts.get(index).filter(|set| {
            let last = set.last().map(|last| last.plus(BlockCount(1)));
            (set.first(), last, set.len().0) == (Some(row.span.start), Some(row.span.end), row.count)
        });
        found.ok_or_else(|| damaged("a part is not what the ledger says of it"))?;
        Ok(Self { chunk: Arc::clone(chunk), index })
    }
}

impl Deref for Part {
    type Target = BlockSet;

    fn deref(&self) -> &BlockSet {
        &self.chunk.parts[self.index]
    }
}

/// Where parts are read from.
pub trait PartSource: Send + Sync {
    /// A part that is in memory.
    fn resident(&self, row: &PartRow) -> Option<Part>;

    /// A part, read if need be.
    fn read(&self, row: &PartRow) -> Result<Part>;
}

/// Where a reader of sets gets their parts.
#[derive(Clone, Default)]
pub(super) struct Parts(pub(super) Option<Arc<dyn PartSource>>);

impl fmt::Debug for Parts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(if self.0.is_some() { "parts on disk" } else { "no parts" })
    }
}

/// A part, and what is known of it.
pub type HeldPart = (PartRow, Part);

/// How to come by parts this time.
#[derive(Clone, Copy, Default)]
pub(super) struct Look<'a> {
    source: Option<&'a dyn PartSource>,
    /// Parts that were read already, beside those in memory; `None`: they are read.
    held: Option<&'a [HeldPart]>,
}

impl Parts {
    /// Parts are read if need be.
    pub(super) fn patient(&self) -> Look<'_> {
        Look { source: self.0.as_deref(), held: None }
    }

    /// Of a part that is not in memory, and not among those held, the answer is [`HistoryFault::Absent`].
    pub(super) fn among<'a>(&'a self, held: &'a [HeldPart]) -> Look<'a> {
        Look { source: self.0.as_deref(), held: Some(held) }
    }
}

impl Look<'_> {
    /// A part.
    pub(super) fn get(&self, row: &PartRow) -> std::result::Result<Part, HistoryFault> {
        let unread = |why: String| HistoryFault::Unread(why);
        let source = self.source.ok_or_else(|| unread("there is nowhere to read from".to_owned()))?;
        let Some(held) = self.held else {
            return source.read(row).map_err(|error| match error {
                crate::Error::Io { .. } => HistoryFault::Refused(error.to_string()),
                other => unread(other.to_string()),
            });
        };
        let found = held.iter().find(|(other, _)| other == row).map(|(_, part)| part.clone());
        found.or_else(|| source.resident(row)).ok_or_else(|| HistoryFault::Absent(Box::new(row.clone())))
    }
}
