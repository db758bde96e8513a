//! The superblock: who this pool is, and where its last checkpoint lies. Two files hold the same block.

use super::copies::{CopyMode, CopySettings};
use super::drawn::Drawn;
use super::{block_is_sealed, get_16, get_u32, get_u64, put, seal_block};
use crate::error::{Error, Result};
use crate::units::{BLOCK_BYTES, COUNTER_LIMIT, PoolId, RecordSequence, RecoveryEpoch, SegmentId, Slot};

/// Names of the two files that hold a superblock each.
pub const NAMES: [&str; 2] = ["superblock.0", "superblock.1"];
/// The format that this program writes, and the newest that it reads.
pub const FORMAT_VERSION: u32 = 1;
/// Features without which a pool must not even be read, as far as this program knows them. Every pool has
/// them.
pub const FEATURES_REQUIRED: u64 = 0x1f;
/// Second copies are kept: a program that does not know of them would leave them behind.
pub const FEATURE_COPIES: u64 = 1;
/// Features without which a pool may be read but not written, as far as this program knows them.
pub const FEATURES_TO_WRITE: u64 = FEATURE_COPIES;
/// Lives whose records may still be in the part of the log that would be replayed.
pub const LIVES_MAX: usize = 64;

const MAGIC: &[u8; 8] = b"ICECORE\n";
const LIVES_AT: usize = 256;

/// Where a ledger blob lies.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct LedgerPointer {
    /// Segment that holds it.
    pub segment: SegmentId,
    /// Its first block there.
    pub slot: Slot,
    /// Length in blocks, its header included.
    pub blocks: u32,
    /// CRC32C of all of it.
    pub crc: u32,
}

/// A checkpoint that is not the newest one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Former {
    /// Its ledger blob.
    pub ledger: LedgerPointer,
    /// As [`Superblock::taken`].
    pub taken: u64,
}

/// The life of a pool that wrote the records from `first` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Life {
    /// Epoch in its record headers.
    pub epoch: RecoveryEpoch,
    /// Sequence number of its first record.
    pub first: RecordSequence,
}

/// Contents of a superblock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    /// Identity of the pool.
    pub pool: PoolId,
    /// Grows by one with every superblock written; the higher of two valid ones counts.
    pub generation: u64,
    /// Features that a writer has to know.
    pub features_to_write: u64,
    /// Size of every segment file.
    pub segment_bytes: u64,
    /// Most bytes that the segments together may take; 0 for no limit.
    pub size_limit: u64,
    /// Whether the pool was closed cleanly: nothing is to be replayed.
    pub clean: bool,
    /// The newest ledger blob.
    pub ledger: LedgerPointer,
    /// The highest number of a use of a segment that had been given out when that checkpoint was frozen.
    pub taken: u64,
    /// The checkpoint before, for when that one is lost.
    pub former: Option<Former>,
    /// Which addresses the present life does not draw.
    pub drawn: Drawn,
    /// When the pool was made, nanoseconds since 1970.
    pub created: i64,
    /// What is written twice, and where to. Changes with [`Superblock::set_copies`].
    pub copies: CopySettings,
    /// Lives since the checkpoint, oldest first; the last one is the present.
    pub lives: Vec<Life>,
}

impl Superblock {
    /// A newer checkpoint has its blob here; `taken` as in [`Superblock::taken`]. Remembers the one before.
    pub fn go_on(&mut self, ledger: LedgerPointer, taken: u64) {
        let former = Former { ledger: self.ledger, taken: self.taken };
        self.former = Some(former).filter(|former| former.ledger.blocks > 0);
        self.ledger = ledger;
        self.taken = taken;
    }

    /// Says something else about copies.
    pub fn set_copies(&mut self, copies: CopySettings) {
        self.features_to_write &= !FEATURE_COPIES;
        if copies.mode != CopyMode::None {
            self.features_to_write |= FEATURE_COPIES;
        }
        self.copies = copies;
    }

    /// The present epoch.
    #[must_use]
    pub fn epoch(&self) -> RecoveryEpoch {
        self.lives.last().map_or(RecoveryEpoch(0), |life| life.epoch)
    }

    /// The epoch of the life that opens the pool next.
    #[must_use]
    pub fn next_epoch(&self) -> RecoveryEpoch {
        RecoveryEpoch(self.epoch().0 + 1)
    }

    /// Whether this program may write to the pool.
    ///
    /// # Errors
    /// [`Error::NewerFormat`] if it does not know a feature that writers have to know.
    pub fn check_writable(&self, path: &str) -> Result<()> {
        if self.features_to_write & !FEATURES_TO_WRITE == 0 {
            return Ok(());
        }
        Err(Error::NewerFormat {
            path: path.to_owned(),
            found: format!("features {:#x} for writers (it can be opened read-only)", self.features_to_write),
            supported: format!("features {FEATURES_TO_WRITE:#x}"),
        })
    }

    /// The block to write.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.lives.len() <= LIVES_MAX);
        let mut block = vec![0; BLOCK_BYTES];
        put(&mut block, 0, MAGIC);
        put(&mut block, 8, &FORMAT_VERSION.to_le_bytes());
        put(&mut block, 16, &FEATURES_REQUIRED.to_le_bytes());
        put(&mut block, 24, &self.features_to_write.to_le_bytes());
        put(&mut block, 40, &self.pool.0);
        put(&mut block, 56, &self.generation.to_le_bytes());
        put(&mut block, 64, &self.segment_bytes.to_le_bytes());
        put(&mut block, 72, &self.size_limit.to_le_bytes());
        block[80] = u8::from(self.clean);
        put_pointer(&mut block, 88, &self.ledger);
        put(&mut block, 104, &self.created.to_le_bytes());
        put(&mut block, 112, &(self.lives.len() as u32).to_le_bytes());
        put(&mut block, 120, &self.taken.to_le_bytes());
        if let Some(Former { ledger, taken }) = self.former {
            put_pointer(&mut block, 128, &ledger);
            put(&mut block, 144, &taken.to_le_bytes());
        }
        self.drawn.encode(&mut block);
        if self.features_to_write & FEATURE_COPIES != 0 {
            self.copies.encode(&mut block);
        }
        for (index, life) in self.lives.iter().enumerate() {
            put(&mut block, LIVES_AT + index * 16, &life.epoch.0.to_le_bytes());
            put(&mut block, LIVES_AT + index * 16 + 8, &life.first.0.to_le_bytes());
        }
        seal_block(&mut block);
        block
    }

    /// Reads a block. `path` names the pool in errors.
    ///
    /// # Errors
    /// [`Error::NewerFormat`] for a format or feature unknown here, [`Error::Damaged`] for anything else.
    pub fn decode(block: &[u8], path: &str, place: &str) -> Result<Self> {
        let damaged = |detail: &str| Error::damaged(place, detail);
        if block.len() != BLOCK_BYTES || &block[..8] != MAGIC {
            return Err(damaged("the superblock does not begin as one"));
        }
        if !block_is_sealed(block) {
            return Err(damaged("the checksum of the superblock does not fit"));
        }
        let version = get_u32(block, 8);
        let required = get_u64(block, 16);
        if version > FORMAT_VERSION || required & !FEATURES_REQUIRED != 0 {
            return Err(Error::NewerFormat {
                path: path.to_owned(),
                found: format!("version {version}, features {required:#x}"),
                supported: format!("version {FORMAT_VERSION}, features {FEATURES_REQUIRED:#x}"),
            });
        }
        let lives = get_u32(block, 112) as usize;
        let segment_bytes = get_u64(block, 64);
        if version == 0
            || lives == 0
            || lives > LIVES_MAX
            || !segment_bytes_usable(segment_bytes)
            || block[80] > 1
        {
            return Err(damaged("a field of the superblock is out of range"));
        }
        let generation = get_u64(block, 56);
        let life = |index: usize| Life {
            epoch: RecoveryEpoch(get_u64(block, LIVES_AT + index * 16)),
            first: RecordSequence(get_u64(block, LIVES_AT + index * 16 + 8)),
        };
        let lives: Vec<Life> = (0..lives).map(life).collect();
        // Epochs are the upper half of the numbers that distinguish uses of segments.
        let ordered = lives.is_sorted_by(|a, b| a.epoch < b.epoch && a.first < b.first);
        if !ordered || lives.iter().any(|life| life.epoch.0 >= 1 << 32) || generation >= COUNTER_LIMIT {
            return Err(damaged("the lives in the superblock make no sense"));
        }
        let features_to_write = get_u64(block, 24);
        let has_copies = features_to_write & FEATURE_COPIES != 0;
        Ok(Self {
            pool: PoolId(get_16(block, 40)),
            generation,
            features_to_write,
            segment_bytes,
            size_limit: get_u64(block, 72),
            clean: block[80] == 1,
            ledger: get_pointer(block, 88),
            taken: get_u64(block, 120),
            former: Some(Former { ledger: get_pointer(block, 128), taken: get_u64(block, 144) })
                .filter(|former| former.ledger.blocks > 0),
            drawn: Drawn::decode(block)
                .ok_or_else(|| damaged("addresses in the superblock make no sense"))?,
            created: get_u64(block, 104) as i64,
            copies: if has_copies { CopySettings::decode(block, place)? } else { CopySettings::none() },
            lives,
        })
    }
}

fn put_pointer(block: &mut [u8], at: usize, pointer: &LedgerPointer) {
    put(block, at, &pointer.segment.0.to_le_bytes());
    put(block, at + 4, &pointer.slot.0.to_le_bytes());
    put(block, at + 8, &pointer.blocks.to_le_bytes());
    put(block, at + 12, &pointer.crc.to_le_bytes());
}

fn get_pointer(block: &[u8], at: usize) -> LedgerPointer {
    LedgerPointer {
        segment: SegmentId(get_u32(block, at)),
        slot: Slot(get_u32(block, at + 4)),
        blocks: get_u32(block, at + 8),
        crc: get_u32(block, at + 12),
    }
}

/// Least size of a segment.
pub const SEGMENT_BYTES_MIN: u64 = 2 << 20;
/// Largest size of a segment.
pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Whether segments may have this size: a power of two from 2 MiB to 1 GiB.
#[must_use]
pub const fn segment_bytes_usable(bytes: u64) -> bool {
    bytes.is_power_of_two() && bytes >= SEGMENT_BYTES_MIN && bytes <= SEGMENT_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{LogAddress, Marks};

    fn example() -> Superblock {
        Superblock {
            pool: PoolId([7; 16]),
            generation: 3,
            features_to_write: FEATURE_COPIES,
            segment_bytes: 64 << 20,
            size_limit: 0,
            clean: true,
            ledger: LedgerPointer { segment: SegmentId(1), slot: Slot(2), blocks: 3, crc: 4 },
            taken: 8,
            former: Some(Former {
                ledger: LedgerPointer { segment: SegmentId(9), slot: Slot(10), blocks: 11, crc: 12 },
                taken: 13,
            }),
            drawn: Drawn { floor: Marks([0, 16, 17].map(LogAddress)) },
            created: 5,
            copies: CopySettings {
                mode: CopyMode::All,
                behind: true,
                ahead: true,
                since: Some(crate::units::Timestamp(6)),
                why: crate::format::copies::Reason::of("it is full".to_owned()),
                folder: Some("/mnt/other".to_owned()),
            },
            lives: vec![Life { epoch: RecoveryEpoch(6), first: RecordSequence(7) }],
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let block = example().encode();
        assert_eq!(Superblock::decode(&block, "p", "s").unwrap(), example());
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let block = example().encode();
        for bit in 0..BLOCK_BYTES * 8 {
            let mut corrupt = block.clone();
            corrupt[bit / 8] ^= 1 << (bit % 8);
            assert!(Superblock::decode(&corrupt, "p", "s").is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_newer_format_is_named_as_such() {
        // The version, and a feature that this program does not know.
        for (at, byte) in [(8, 9), (16, 0x3f)] {
            let mut block = example().encode();
            block[at] = byte;
            seal_block(&mut block);
            let error = Superblock::decode(&block, "p", "s").unwrap_err();
            assert!(matches!(error, Error::NewerFormat { .. }), "{error}");
        }
    }
}
