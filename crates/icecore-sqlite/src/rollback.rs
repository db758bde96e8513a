//! Reading a rollback journal that came with a database file, where SQLite cannot roll it back itself because
//! nothing may be written: in a snapshot, or for a reader.
//!
//! Format: <https://sqlite.org/fileformat2.html#the_rollback_journal>. Where a file can be written, SQLite
//! does this.

use crate::errors::Result;
use crate::overlay::Overlay;
use crate::store::View;
use icecore::units::InodeNumber;
use std::collections::BTreeMap;
use std::path::Path;

const MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
const HEADER_BYTES: usize = 28;
/// The number of records where the rest of the file is meant.
const ALL: u32 = u32::MAX;
/// Longest name of a super-journal that is believed.
const NAME_BYTES_MAX: u64 = 4096;

struct Header {
    records: u32,
    checksum: u32,
    pages: u64,
    sector_bytes: u64,
    page_bytes: u64,
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn read_header(view: &View, journal: InodeNumber, offset: u64) -> Result<Option<Header>> {
    let mut bytes = [0; HEADER_BYTES];
    if view.read(journal, offset, &mut bytes)? < HEADER_BYTES || bytes[..8] != MAGIC {
        return Ok(None);
    }
    let header = Header {
        records: number(&bytes, 8),
        checksum: number(&bytes, 12),
        pages: u64::from(number(&bytes, 16)),
        sector_bytes: u64::from(number(&bytes, 20)),
        page_bytes: u64::from(number(&bytes, 24)),
    };
    let fits = |bytes: u64, least: u64| bytes.is_power_of_two() && (least..=65536).contains(&bytes);
    Ok((fits(header.page_bytes, 512) && fits(header.sector_bytes, 32)).then_some(header))
}

/// The pages that a journal restores, to be laid over its database. `None` if it restores nothing.
pub fn read(view: &View, journal: InodeNumber) -> Result<Option<Overlay>> {
    let size = view.attributes(journal)?.size;
    if super_journal_is_gone(view, journal, size)? {
        return Ok(None);
    }
    let Some(first) = read_header(view, journal, 0)? else { return Ok(None) };
    let (page_bytes, sector_bytes, pages_before) = (first.page_bytes, first.sector_bytes, first.pages);
    let mut pages = BTreeMap::new();
    let mut offset = 0;
    let mut header = Some(first);
    while let Some(Header { records, checksum, .. }) = header {
        offset += sector_bytes;
        let records = match records {
            ALL => size.saturating_sub(offset) / (page_bytes + 8),
            count => u64::from(count),
        };
        if !read_records(view, journal, page_bytes, checksum, records, &mut offset, &mut pages)? {
            break;
        }
        offset = offset.next_multiple_of(sector_bytes);
        header = read_header(view, journal, offset)?;
    }
    pages.retain(|&page, _| page < pages_before);
    Ok(Some(Overlay::new(page_bytes, pages_before * page_bytes, journal, pages)))
}

/// Reads records from `offset` on. False if one does not fit, which ends the journal.
fn read_records(
    view: &View,
    journal: InodeNumber,
    page_bytes: u64,
    checksum: u32,
    records: u64,
    offset: &mut u64,
    pages: &mut BTreeMap<u64, u64>,
) -> Result<bool> {
    let mut record = vec![0; page_bytes as usize + 8];
    for _ in 0..records {
        if view.read(journal, *offset, &mut record)? < record.len() {
            return Ok(false);
        }
        let page = u64::from(number(&record, 0));
        let content = &record[4..record.len() - 4];
        if page == 0 || sum(checksum, content) != number(&record, record.len() - 4) {
            return Ok(false);
        }
        pages.insert(page - 1, *offset + 4);
        *offset += record.len() as u64;
    }
    Ok(true)
}

/// SQLite's check of a page: every two-hundredth byte, from the end.
fn sum(start: u32, page: &[u8]) -> u32 {
    let mut sum = start;
    let mut at = page.len().saturating_sub(200);
    while at > 0 {
        sum = sum.wrapping_add(u32::from(page[at]));
        at = at.saturating_sub(200);
    }
    sum
}

/// Whether the journal belongs to a transaction over several files that was committed: it names a
/// super-journal, and that does not exist any more.
fn super_journal_is_gone(view: &View, journal: InodeNumber, size: u64) -> Result<bool> {
    let mut tail = [0; 16];
    let Some(start) = size.checked_sub(16) else { return Ok(false) };
    if view.read(journal, start, &mut tail)? < tail.len() || tail[8..] != MAGIC {
        return Ok(false);
    }
    let length = u64::from(number(&tail, 0));
    let Some(start) = start.checked_sub(length).filter(|_| (1..=NAME_BYTES_MAX).contains(&length)) else {
        return Ok(false);
    };
    let mut name = vec![0; length as usize];
    if view.read(journal, start, &mut name)? < name.len() {
        return Ok(false);
    }
    let sum =
        name.iter().fold(0_u32, |sum, &byte| sum.wrapping_add(i32::from(byte.cast_signed()).cast_unsigned()));
    let Ok(name) = String::from_utf8(name) else { return Ok(false) };
    Ok(sum == number(&tail, 4) && !Path::new(&name).exists())
}
