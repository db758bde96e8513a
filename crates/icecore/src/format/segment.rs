//! Segment files: a header block, slots for blocks, and in data segments a checksum table at the end.

use super::{block_is_sealed, get_16, get_u32, get_u64, put, seal_block};
use crate::error::Error;
use crate::units::{BLOCK_BYTES, LogAddress, PoolId, RecordSequence, RecoveryEpoch, SegmentId, Slot, Stream};
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"ICESEGM\n";
/// Checksums in one block of a checksum table.
pub const TABLE_SUMS: usize = 1013;
const TABLE_MAGIC: &[u8; 8] = b"ICESUMS\n";
/// Where the sums of a block of a table end.
const TABLE_MAGIC_AT: usize = 4 * TABLE_SUMS;
const TABLE_OWNER_AT: usize = TABLE_MAGIC_AT + TABLE_MAGIC.len();

/// What a segment holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum SegmentKind {
    /// A stretch of the log.
    Log = 1,
    /// Runs of data written outside the log: spilled groups, merged blocks, and what collection relocated.
    Run = 2,
    /// Tree nodes.
    Node = 3,
    /// Ledger blobs, and chunks of the location map.
    Ledger = 4,
}

impl SegmentKind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Log),
            2 => Some(Self::Run),
            3 => Some(Self::Node),
            4 => Some(Self::Ledger),
            _ => None,
        }
    }

    /// The kind of the segments that a stream is written to first.
    pub(crate) const fn of(stream: Stream) -> Self {
        match stream {
            Stream::Data => Self::Log,
            Stream::Merged => Self::Run,
            Stream::Node => Self::Node,
        }
    }

    /// Whether the last slots hold a checksum table.
    #[must_use]
    pub const fn has_table(self) -> bool {
        matches!(self, Self::Log | Self::Run)
    }
}

/// Name of the file of a segment.
#[must_use]
pub fn file_name(segment: SegmentId) -> String {
    format!("segment.{:08}", segment.0)
}

/// The segment that a file name stands for.
#[must_use]
pub fn from_file_name(name: &str) -> Option<SegmentId> {
    let digits = name.strip_prefix("segment.")?;
    let segment = SegmentId(digits.parse().ok()?);
    (file_name(segment) == name).then_some(segment)
}

/// Sizes that follow from the size of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Size of the file.
    pub bytes: u64,
}

impl Geometry {
    /// Blocks in the file.
    #[must_use]
    pub const fn slots(self) -> u32 {
        (self.bytes / BLOCK_BYTES as u64) as u32
    }

    /// Blocks that the checksum table takes up at the end of a data segment.
    #[must_use]
    pub const fn table_blocks(self) -> u32 {
        self.slots().div_ceil(TABLE_SUMS as u32)
    }

    /// The first slot that may not hold content.
    #[must_use]
    pub const fn end(self, kind: SegmentKind) -> Slot {
        if kind.has_table() { Slot(self.slots() - self.table_blocks()) } else { Slot(self.slots()) }
    }

    /// Byte offset of a slot.
    #[must_use]
    pub const fn offset(self, slot: Slot) -> u64 {
        slot.0 as u64 * BLOCK_BYTES as u64
    }

    /// A slot of a segment, as messages have it.
    pub(crate) fn place(self, segment: SegmentId, slot: Slot) -> String {
        format!("{} at offset {}", file_name(segment), self.offset(slot))
    }

    /// What lies in a slot of a segment is not what was written.
    pub(crate) fn damaged(self, segment: SegmentId, slot: Slot, detail: impl Into<String>) -> Error {
        Error::damaged(self.place(segment, slot), detail)
    }
}

/// The first block of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// The pool it belongs to.
    pub pool: PoolId,
    /// What it holds.
    pub kind: SegmentKind,
    /// Its number.
    pub segment: SegmentId,
    /// Counts uses of any segment in the pool: distinguishes this use from earlier ones.
    pub incarnation: u64,
    /// Log segments: address of slot 1.
    pub first_address: LogAddress,
    /// Log segments: sequence number of the first record.
    pub first_sequence: RecordSequence,
    /// Life in which this use began.
    pub epoch: RecoveryEpoch,
}

impl SegmentHeader {
    /// Writes the block.
    pub fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        put(block, 0, MAGIC);
        put(block, 8, &1_u32.to_le_bytes());
        block[12] = self.kind as u8;
        put(block, 16, &self.pool.0);
        put(block, 32, &self.segment.0.to_le_bytes());
        put(block, 40, &self.incarnation.to_le_bytes());
        put(block, 48, &self.first_address.0.to_le_bytes());
        put(block, 56, &self.first_sequence.0.to_le_bytes());
        put(block, 64, &self.epoch.0.to_le_bytes());
        seal_block(block);
    }

    /// The header of a segment of a pool, if the block is that.
    pub(crate) fn of(pool: PoolId, segment: SegmentId, block: &[u8]) -> Option<Self> {
        Self::decode(block).filter(|header| (header.pool, header.segment) == (pool, segment))
    }

    /// Reads the block; `None` if it is not a header.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        if !block_is_sealed(block) || &block[..8] != MAGIC || get_u32(block, 8) != 1 {
            return None;
        }
        Some(Self {
            pool: PoolId(get_16(block, 16)),
            kind: SegmentKind::from_number(block[12])?,
            segment: SegmentId(get_u32(block, 32)),
            incarnation: get_u64(block, 40),
            first_address: LogAddress(get_u64(block, 48)),
            first_sequence: RecordSequence(get_u64(block, 56)),
            epoch: RecoveryEpoch(get_u64(block, 64)),
        })
    }
}

/// Whose a checksum table is. Every block of it says so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableOwner {
    /// The pool.
    pub pool: PoolId,
    /// The segment.
    pub segment: SegmentId,
    /// The use of the segment.
    pub incarnation: u64,
}

impl TableOwner {
    /// Writes what a block of a table says of its owner and its place in the table, and seals the block.
    pub(crate) fn seal(&self, index: usize, block: &mut [u8]) {
        put(block, TABLE_MAGIC_AT, TABLE_MAGIC);
        put(block, TABLE_OWNER_AT, &self.pool.0);
        put(block, TABLE_OWNER_AT + 16, &self.incarnation.to_le_bytes());
        put(block, TABLE_OWNER_AT + 24, &self.segment.0.to_le_bytes());
        put(block, TABLE_OWNER_AT + 28, &(index as u32).to_le_bytes());
        seal_block(block);
    }

    /// Whether a block says that it is this one of a table of this owner. The block need not be what was
    /// written.
    pub(crate) fn is_named(&self, index: usize, block: &[u8]) -> bool {
        &block[TABLE_MAGIC_AT..TABLE_OWNER_AT] == TABLE_MAGIC
            && get_16(block, TABLE_OWNER_AT) == self.pool.0
            && get_u64(block, TABLE_OWNER_AT + 16) == self.incarnation
            && get_u32(block, TABLE_OWNER_AT + 24) == self.segment.0
            && get_u32(block, TABLE_OWNER_AT + 28) as usize == index
    }
}

/// Encodes the checksum table of a sealed data segment: one CRC32C per slot (0 where there is none), in
/// blocks that prove themselves.
#[must_use]
pub fn encode_table(geometry: Geometry, owner: TableOwner, sums: &[u32]) -> Vec<u8> {
    assert_eq!(sums.len(), geometry.slots() as usize);
    let mut bytes = vec![0; geometry.table_blocks() as usize * BLOCK_BYTES];
    for (index, (block, sums)) in bytes.chunks_mut(BLOCK_BYTES).zip(sums.chunks(TABLE_SUMS)).enumerate() {
        for (at, sum) in sums.iter().enumerate() {
            put(block, at * 4, &sum.to_le_bytes());
        }
        owner.seal(index, block);
    }
    bytes
}

/// Reads one block of a checksum table; `None` if it is not this one of a table of this owner.
#[must_use]
pub fn decode_table_block(owner: TableOwner, index: usize, block: &[u8]) -> Option<Vec<u32>> {
    let is_it = block_is_sealed(block) && owner.is_named(index, block);
    is_it.then(|| (0..TABLE_SUMS).map(|at| get_u32(block, at * 4)).collect())
}

/// Reads a checksum table; `None` if any block of it is not of one of this owner.
#[must_use]
pub fn decode_table(geometry: Geometry, owner: TableOwner, bytes: &[u8]) -> Option<Vec<u32>> {
    if bytes.len() != geometry.table_blocks() as usize * BLOCK_BYTES {
        return None;
    }
    let mut sums = Vec::with_capacity(bytes.len() / 4);
    for (index, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        sums.extend(decode_table_block(owner, index, block)?);
    }
    sums.truncate(geometry.slots() as usize);
    Some(sums)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_table_round_trip() {
        let header = SegmentHeader {
            pool: PoolId([1; 16]),
            kind: SegmentKind::Run,
            segment: SegmentId(12),
            incarnation: 99,
            first_address: LogAddress(5),
            first_sequence: RecordSequence(6),
            epoch: RecoveryEpoch(7),
        };
        let mut block = vec![0; BLOCK_BYTES];
        header.encode(&mut block);
        assert_eq!(SegmentHeader::decode(&block), Some(header));
        block[100] ^= 1;
        assert_eq!(SegmentHeader::decode(&block), None);
    }

    #[test]
    fn a_table_is_believed_only_where_it_belongs() {
        let owner = TableOwner { pool: PoolId([1; 16]), segment: SegmentId(12), incarnation: 4 };
        for bytes in [2 << 20, 64 << 20] {
            let geometry = Geometry { bytes };
            let sums: Vec<u32> = (0..geometry.slots()).map(|slot| slot * 3).collect();
            let table = encode_table(geometry, owner, &sums);
            assert_eq!(table.len(), geometry.table_blocks() as usize * BLOCK_BYTES);
            assert_eq!(decode_table(geometry, owner, &table).as_deref(), Some(&sums[..]));
            let others = [
                TableOwner { incarnation: 5, ..owner },
                TableOwner { segment: SegmentId(13), ..owner },
                TableOwner { pool: PoolId([2; 16]), ..owner },
            ];
            for other in others {
                assert_eq!(decode_table(geometry, other, &table), None);
                assert_eq!(decode_table_block(other, 0, &table[..BLOCK_BYTES]), None);
            }
            assert_eq!(decode_table_block(owner, 1, &table[..BLOCK_BYTES]), None);
            for at in [0, 4059, 4060, 4090, table.len() - 1] {
                let mut damaged = table.clone();
                damaged[at] ^= 1;
                assert_eq!(decode_table(geometry, owner, &damaged), None);
            }
        }
    }

    #[test]
    fn file_names_are_taken_only_as_written() {
        assert_eq!(from_file_name(&file_name(SegmentId(7))), Some(SegmentId(7)));
        assert_eq!(from_file_name("segment.7"), None);
        assert_eq!(from_file_name("segment.+0000007"), None);
    }
}
