//! Segment files: a header block, slots for blocks, and in data segments a checksum table at the end.

use super::{block_is_sealed, crc32c, get_16, get_u32, get_u64, put, seal_block};
use crate::units::{BLOCK_BYTES, LogAddress, PoolId, RecordSequence, RecoveryEpoch, SegmentId, Slot};
use serde::{Deserialize, Serialize};

const MAGIC: &[u8; 8] = b"ICESEGM\n";
const TABLE_MAGIC: &[u8; 8] = b"ICESUMS\n";
pub(crate) const TABLE_TRAILER: usize = 32;

/// What a segment holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum SegmentKind {
    /// A stretch of the log.
    Log = 1,
    /// Runs of data written outside the log: spilled groups and merged blocks.
    Run = 2,
    /// Tree nodes.
    Node = 3,
    /// Ledger blobs.
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
        (self.slots() * 4 + TABLE_TRAILER as u32).div_ceil(BLOCK_BYTES as u32)
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
    /// Counts uses of any segment in the pool: tells this use from earlier ones.
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

/// Encodes the checksum table of a sealed data segment: one CRC32C per slot (0 where there is none),
/// then a trailer.
#[must_use]
pub fn encode_table(geometry: Geometry, incarnation: u64, sums: &[u32]) -> Vec<u8> {
    assert_eq!(sums.len(), geometry.slots() as usize);
    let mut bytes = vec![0; geometry.table_blocks() as usize * BLOCK_BYTES];
    for (index, sum) in sums.iter().enumerate() {
        put(&mut bytes, index * 4, &sum.to_le_bytes());
    }
    let trailer = bytes.len() - TABLE_TRAILER;
    put(&mut bytes, trailer, TABLE_MAGIC);
    put(&mut bytes, trailer + 8, &incarnation.to_le_bytes());
    let crc = crc32c(&bytes[..bytes.len() - 4]);
    let end = bytes.len() - 4;
    put(&mut bytes, end, &crc.to_le_bytes());
    bytes
}

/// Reads a checksum table; `None` if it is not the one of this incarnation.
#[must_use]
pub fn decode_table(geometry: Geometry, incarnation: u64, bytes: &[u8]) -> Option<Vec<u32>> {
    let end = bytes.len().checked_sub(4)?;
    let trailer = bytes.len().checked_sub(TABLE_TRAILER)?;
    if bytes.len() != geometry.table_blocks() as usize * BLOCK_BYTES
        || &bytes[trailer..trailer + 8] != TABLE_MAGIC
        || get_u64(bytes, trailer + 8) != incarnation
        || get_u32(bytes, end) != crc32c(&bytes[..end])
    {
        return None;
    }
    Some((0..geometry.slots() as usize).map(|index| get_u32(bytes, index * 4)).collect())
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

        for bytes in [2 << 20, 64 << 20] {
            let geometry = Geometry { bytes };
            let sums: Vec<u32> = (0..geometry.slots()).map(|slot| slot * 3).collect();
            let table = encode_table(geometry, 4, &sums);
            assert_eq!(decode_table(geometry, 4, &table).as_deref(), Some(&sums[..]));
            assert_eq!(decode_table(geometry, 5, &table), None);
        }
    }

    #[test]
    fn file_names_are_taken_only_as_written() {
        assert_eq!(from_file_name(&file_name(SegmentId(7))), Some(SegmentId(7)));
        assert_eq!(from_file_name("segment.7"), None);
        assert_eq!(from_file_name("segment.+0000007"), None);
    }
}
