//! Records: one header block that chains to the one before it, then the data blocks it vouches for.

use super::{BLOCK_CRC_AT, block_is_sealed, get_16, get_u16, get_u32, get_u64, put, seal_block};
use crate::units::{BLOCK_BYTES, LogAddress, PoolId, RecordSequence, RecoveryEpoch};

const MAGIC: &[u8; 8] = b"ICERECD\n";
/// Where the checksums of the data blocks begin; the operations follow them.
const SUMS_AT: usize = 96;

/// Bytes of a header that data block checksums and operations share.
pub const HEADER_ROOM: usize = BLOCK_CRC_AT - SUMS_AT;

/// The atomic step that this record is part of goes on in the next record.
const FLAG_MORE: u8 = 1;
/// The operations lie in the first data blocks rather than in the header.
const FLAG_OPERATIONS_IN_BLOCKS: u8 = 2;
/// A run outside the log: chains to nothing, has no addresses.
const FLAG_RUN: u8 = 4;
/// Every header has it.
const FLAG_ALWAYS: u8 = 32;
/// Flags that a header may have besides.
const FLAGS: u8 = FLAG_MORE | FLAG_OPERATIONS_IN_BLOCKS | FLAG_RUN;

/// Everything in a record header but the checksums and the operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordHeader {
    /// The pool.
    pub pool: PoolId,
    /// The life that wrote it.
    pub epoch: RecoveryEpoch,
    /// Its place in the log; 0 in a run outside the log.
    pub sequence: RecordSequence,
    /// Hash of the header before.
    pub previous: [u8; 16],
    /// Log address of the header block itself; the data blocks follow.
    pub address: LogAddress,
    /// Every record up to this one was durable when this header was written.
    pub durable: RecordSequence,
    /// Use of the segment that this record lies in.
    pub incarnation: u64,
    /// The atomic step goes on in the next record.
    pub more: bool,
    /// The operations lie in the first data blocks.
    pub operations_in_blocks: bool,
    /// A run outside the log.
    pub run: bool,
    /// Length of the encoded operations.
    pub operations_length: u32,
    /// How many operations.
    pub operations: u16,
}

impl RecordHeader {
    /// Of the header of a run outside the log: whether it was placed before a record of the log was written.
    #[must_use]
    pub fn was_placed_before(&self, record: &Self) -> bool {
        self.durable < record.sequence
    }

    /// Writes the header block into `block`, which is all zeros. The block gets the CRC32C of every data
    /// block, and `operations` unless they lie in blocks.
    ///
    /// # Panics
    /// If it does not fit: callers keep within [`HEADER_ROOM`].
    pub fn encode(&self, block: &mut [u8], sums: &[u32], operations: &[u8]) {
        put(block, 0, MAGIC);
        put(block, 8, &self.pool.0);
        put(block, 24, &self.epoch.0.to_le_bytes());
        put(block, 32, &self.sequence.0.to_le_bytes());
        put(block, 40, &self.previous);
        put(block, 56, &self.address.0.to_le_bytes());
        put(block, 64, &self.durable.0.to_le_bytes());
        put(block, 72, &self.incarnation.to_le_bytes());
        put(block, 80, &u16::try_from(sums.len()).expect("checksums fit a header").to_le_bytes());
        block[82] = u8::from(self.more) * FLAG_MORE
            + u8::from(self.operations_in_blocks) * FLAG_OPERATIONS_IN_BLOCKS
            + u8::from(self.run) * FLAG_RUN
            + FLAG_ALWAYS;
        put(block, 84, &self.operations_length.to_le_bytes());
        put(block, 88, &self.operations.to_le_bytes());
        for (index, sum) in sums.iter().enumerate() {
            put(block, SUMS_AT + index * 4, &sum.to_le_bytes());
        }
        let operations_at = SUMS_AT + sums.len() * 4;
        assert!(operations_at + operations.len() <= BLOCK_CRC_AT, "operations fit the header");
        put(block, operations_at, operations);
        seal_block(block);
    }
}

/// A header block that was read, and found to be one.
#[derive(Clone, Debug)]
pub struct RecordView {
    /// The fixed fields.
    pub header: RecordHeader,
    /// CRC32C of each data block.
    pub sums: Vec<u32>,
    /// Operations in the header; empty when they lie in blocks.
    pub operations: Vec<u8>,
    /// Hash for the next record's `previous`.
    pub hash: [u8; 16],
}

impl RecordView {
    /// Reads a header block; `None` if it is not one.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Self> {
        if block.len() != BLOCK_BYTES || &block[..8] != MAGIC || !block_is_sealed(block) {
            return None;
        }
        let count = usize::from(get_u16(block, 80));
        let operations_at = SUMS_AT + count * 4;
        let flags = block[82];
        let in_blocks = flags & FLAG_OPERATIONS_IN_BLOCKS != 0;
        let operations_length = get_u32(block, 84);
        let inline = if in_blocks { 0 } else { operations_length as usize };
        let in_blocks_fit = !in_blocks || operations_length as usize <= count * BLOCK_BYTES;
        if flags & !FLAGS != FLAG_ALWAYS
            || operations_at.checked_add(inline)? > BLOCK_CRC_AT
            || !in_blocks_fit
        {
            return None;
        }
        Some(Self {
            header: RecordHeader {
                pool: PoolId(get_16(block, 8)),
                epoch: RecoveryEpoch(get_u64(block, 24)),
                sequence: RecordSequence(get_u64(block, 32)),
                previous: get_16(block, 40),
                address: LogAddress(get_u64(block, 56)),
                durable: RecordSequence(get_u64(block, 64)),
                incarnation: get_u64(block, 72),
                more: flags & FLAG_MORE != 0,
                operations_in_blocks: in_blocks,
                run: flags & FLAG_RUN != 0,
                operations_length,
                operations: get_u16(block, 88),
            },
            sums: (0..count).map(|index| get_u32(block, SUMS_AT + index * 4)).collect(),
            operations: block[operations_at..operations_at + inline].to_vec(),
            hash: hash(block),
        })
    }
}

/// What the next record's header carries of this one: the first 16 bytes of the BLAKE3 hash of its fixed
/// fields and of its checksum, which vouches for the rest. That distinguishes records: no life writes two of
/// one number, and the fixed fields name the life. A hash of the whole block takes ten times as long. `block`
/// is a valid header.
#[must_use]
pub fn hash(block: &[u8]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&block[..SUMS_AT]).update(&block[BLOCK_CRC_AT..]);
    get_16(hasher.finalize().as_bytes(), 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_covers_what_makes_a_record_another_one() {
        let mut block = vec![0; BLOCK_BYTES];
        put(&mut block, 40, &[9; 16]);
        put(&mut block, 80, &1_u16.to_le_bytes());
        put(&mut block, 84, &5_u32.to_le_bytes());
        put(&mut block, SUMS_AT, b"sumsOPERA");
        let sealed_hash = |block: &mut [u8]| {
            seal_block(block);
            hash(block)
        };
        let former = sealed_hash(&mut block);
        let hashed = [&block[..SUMS_AT], &block[BLOCK_CRC_AT..]].concat();
        assert_eq!(former, get_16(blake3::hash(&hashed).as_bytes(), 0));
        for at in 8..SUMS_AT + 9 {
            block[at] ^= 1;
            assert_ne!(sealed_hash(&mut block), former, "byte {at}");
            block[at] ^= 1;
        }
    }

    #[test]
    fn header_round_trips_and_notices_flips() {
        let header = RecordHeader {
            pool: PoolId([3; 16]),
            epoch: RecoveryEpoch(1),
            sequence: RecordSequence(2),
            previous: [4; 16],
            address: LogAddress(5),
            durable: RecordSequence(1),
            incarnation: 6,
            more: true,
            operations_in_blocks: false,
            run: false,
            operations_length: 3,
            operations: 1,
        };
        let mut block = vec![0; BLOCK_BYTES];
        header.encode(&mut block, &[7, 8], b"abc");
        let view = RecordView::decode(&block).unwrap();
        assert_eq!((view.header, &view.sums[..], &view.operations[..]), (header, &[7, 8][..], &b"abc"[..]));
        for bit in 0..BLOCK_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(RecordView::decode(&block).is_none(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
        for flags in [FLAG_MORE, FLAG_ALWAYS | 8, FLAG_ALWAYS | 64] {
            block[82] = flags;
            seal_block(&mut block);
            assert!(RecordView::decode(&block).is_none(), "flags {flags}");
        }
    }
}
