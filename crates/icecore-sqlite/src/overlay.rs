//! Pages that lie over a database file which must not be written: those of a journal or write-ahead log
//! that came with it, in a snapshot or for a reader.

use crate::errors::Result;
use crate::store::View;
use icecore::units::InodeNumber;
use std::collections::BTreeMap;

/// Pages of another file of the same version, by their place in the database.
pub struct Overlay {
    page_bytes: u64,
    size: u64,
    source: InodeNumber,
    /// Page index (from zero) to the offset of its content in the source.
    pages: BTreeMap<u64, u64>,
}

impl Overlay {
    /// Pages of `page_bytes` bytes out of `source`, for a database of `size` bytes.
    pub fn new(page_bytes: u64, size: u64, source: InodeNumber, pages: BTreeMap<u64, u64>) -> Self {
        Self { page_bytes, size, source, pages }
    }

    /// Length of the database with the overlay.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Bytes in a page.
    pub fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Pages from `first` on, in order, with the offsets of their contents in the source.
    pub fn pages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.pages.iter().map(|(&page, &offset)| (page, offset))
    }

    /// Reads like a file: returns how much there was.
    pub fn read(&self, view: &View, database: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let length =
            usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX).min(buffer.len());
        let mut done = 0;
        while done < length {
            let position = offset + done as u64;
            let within = position % self.page_bytes;
            let part = (length - done).min((self.page_bytes - within) as usize);
            let target = &mut buffer[done..done + part];
            let read = match self.pages.get(&(position / self.page_bytes)) {
                Some(content) => view.read(self.source, content + within, target)?,
                None => view.read(database, position, target)?,
            };
            // The file itself may be shorter than the database that it is to become.
            target[read..].fill(0);
            done += part;
        }
        Ok(length)
    }
}
