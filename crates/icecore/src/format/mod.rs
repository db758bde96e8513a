//! Byte layouts of everything on disk that is not a tree node. Drawn in `docs/format.md`.
//!
//! All numbers are little-endian. Every structure carries a magic, and a CRC32C that covers it whole.

pub mod copies;
pub mod drawn;
#[cfg(test)]
mod layout_tests;
pub mod ledger;
pub mod record;
pub mod segment;
pub mod superblock;
pub(crate) mod varint;

use crate::units::BLOCK_BYTES;

/// CRC32C (Castagnoli), as in RFC 3720, of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// Where the CRC of a one-block structure lies: its last four bytes.
pub(crate) const BLOCK_CRC_AT: usize = BLOCK_BYTES - 4;

/// Writes the CRC of a one-block structure into its last four bytes.
pub(crate) fn seal_block(block: &mut [u8]) {
    debug_assert_eq!(block.len(), BLOCK_BYTES);
    let crc = crc32c(&block[..BLOCK_CRC_AT]);
    block[BLOCK_CRC_AT..].copy_from_slice(&crc.to_le_bytes());
}

/// Whether the CRC in the last four bytes of a one-block structure fits.
pub(crate) fn block_is_sealed(block: &[u8]) -> bool {
    block.len() == BLOCK_BYTES && crc32c(&block[..BLOCK_CRC_AT]) == get_u32(block, BLOCK_CRC_AT)
}

pub(crate) fn get_u16(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

pub(crate) fn get_u32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

pub(crate) fn get_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

pub(crate) fn get_16(bytes: &[u8], at: usize) -> [u8; 16] {
    bytes[at..at + 16].try_into().expect("sixteen bytes")
}

pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}
