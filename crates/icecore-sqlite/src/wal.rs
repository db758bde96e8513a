//! Reading a write-ahead log that came with a database file.
//!
//! Format: <https://sqlite.org/fileformat2.html#the_write_ahead_log>. Only frames up to the last commit
//! count, and the first frame that does not fit ends the log.

use crate::errors::Result;
use crate::overlay::Overlay;
use crate::store::View;
use icecore::units::InodeNumber;
use std::collections::BTreeMap;

const HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;
/// The last bit says in which byte order the checksums were computed.
const MAGIC: u32 = 0x377f_0682;
const FORMAT: u32 = 3_007_000;

struct Header {
    page_bytes: usize,
    salts: [u8; 8],
    checksum: Checksum,
}

/// The two running sums, and how to read the words that go into them.
#[derive(Clone, Copy)]
struct Checksum {
    big_endian: bool,
    sums: [u32; 2],
}

impl Checksum {
    fn update(&mut self, bytes: &[u8]) {
        for pair in bytes.chunks_exact(8) {
            let word = |at: usize| {
                let bytes = [pair[at], pair[at + 1], pair[at + 2], pair[at + 3]];
                if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
            };
            let [first, second] = self.sums;
            let first = first.wrapping_add(word(0)).wrapping_add(second);
            let second = second.wrapping_add(word(4)).wrapping_add(first);
            self.sums = [first, second];
        }
    }

    fn matches(&self, stored: &[u8]) -> bool {
        self.sums == [number(stored, 0), number(stored, 4)]
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn read_header(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
    let magic = number(bytes, 0);
    let page_bytes = number(bytes, 8);
    if magic & !1 != MAGIC || number(bytes, 4) != FORMAT {
        return None;
    }
    if !page_bytes.is_power_of_two() || !(512..=65536).contains(&page_bytes) {
        return None;
    }
    let mut checksum = Checksum { big_endian: magic & 1 == 1, sums: [0, 0] };
    checksum.update(&bytes[..24]);
    if !checksum.matches(&bytes[24..]) {
        return None;
    }
    let mut salts = [0; 8];
    salts.copy_from_slice(&bytes[16..24]);
    Some(Header { page_bytes: page_bytes as usize, salts, checksum })
}

/// The committed content of a write-ahead log, to be laid over its database. `None` if nothing in it is
/// committed.
pub fn read(view: &View, log: InodeNumber) -> Result<Option<Overlay>> {
    let mut bytes = [0; HEADER_BYTES];
    if view.read(log, 0, &mut bytes)? < HEADER_BYTES {
        return Ok(None);
    }
    let Some(Header { page_bytes, salts, mut checksum }) = read_header(&bytes) else { return Ok(None) };
    let mut frame = vec![0; FRAME_HEADER_BYTES + page_bytes];
    let mut offset = HEADER_BYTES as u64;
    let mut pending = Vec::new();
    let mut pages = BTreeMap::new();
    let mut committed = None;
    while view.read(log, offset, &mut frame)? == frame.len() {
        let page = number(&frame, 0);
        checksum.update(&frame[..8]);
        checksum.update(&frame[FRAME_HEADER_BYTES..]);
        if page == 0 || frame[8..16] != salts || !checksum.matches(&frame[16..24]) {
            break;
        }
        pending.push((u64::from(page) - 1, offset + FRAME_HEADER_BYTES as u64));
        let pages_after_commit = number(&frame, 4);
        if pages_after_commit != 0 {
            pages.extend(pending.drain(..));
            committed = Some(u64::from(pages_after_commit));
        }
        offset += frame.len() as u64;
    }
    Ok(committed.map(|count| {
        pages.retain(|&page, _| page < count);
        Overlay::new(page_bytes as u64, count * page_bytes as u64, log, pages)
    }))
}
