//! Reading a database file, and telling SQLite when its page cache is out of date.

use crate::database::{Database, Source};
use crate::errors::Result;
use crate::locks::{FileVersion, Level};
use crate::store;
use crate::transaction::Transaction;

/// Where SQLite reads 16 bytes of the header, and only those, to see whether its page cache is valid.
const VALIDITY: (u64, usize) = (24, 16);
/// Offset of the read and write versions in the header.
const FORMAT_VERSIONS: u64 = 18;

impl Database {
    /// `xRead`. Returns false if the file ends before; the rest of the buffer is zero then.
    pub fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        let is_stale = self.seen.is_some_and(|seen| seen != self.pinned_version());
        loop {
            let complete = self.read_here(offset, buffer);
            // Afterwards: what came from a pool in whose place there is another one may be anything.
            if !self.follow_pool()? {
                return complete;
            }
            // SQLite was not answered yet: it has the page cache that it had.
            if is_stale {
                self.seen = Some(FileVersion::NONE);
            }
        }
    }

    fn read_here(&mut self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        self.notice_end_of_roll_back()?;
        let changeable = self.level >= Level::Shared && !matches!(self.source, Source::Fixed { .. });
        let validates = changeable && (offset, buffer.len()) == VALIDITY;
        if validates {
            self.begin_reading()?;
        }
        let length = self.read_version(offset, buffer)?;
        buffer[length..].fill(0);
        if offset < FORMAT_VERSIONS + 2 {
            hide_wal_mode(offset, buffer);
        }
        let mut complete = length == buffer.len();
        if changeable {
            if validates && self.seen.is_some_and(|seen| seen != self.pinned_version()) {
                buffer.copy_from_slice(&never_in_a_header(buffer));
                complete = true;
            }
            if validates || self.seen != Some(FileVersion::NONE) {
                self.seen = Some(self.pinned_version());
            }
        }
        Ok(complete)
    }

    /// SQLite looks at its page cache when it begins to read, with no transaction open. What is left of one
    /// failed, or was rolled back: in exclusive locking mode no unlock ends it.
    fn begin_reading(&mut self) -> Result<()> {
        match self.transaction {
            Transaction::Open { .. } | Transaction::Parked(_) | Transaction::Doomed { .. } => {
                self.discard_transaction()
            }
            Transaction::Idle | Transaction::RollingBack { .. } => Ok(()),
        }
    }

    fn read_version(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let inode = self.inode;
        let Some(pin) = &self.pin else {
            let (view, _) = self.unpinned()?;
            return Ok(view.read(inode, offset, buffer)?);
        };
        let view = &pin.pinned.view;
        if let Some(length) = self.with_open_group(|group| group.read(view, inode, offset, &mut *buffer)) {
            return Ok(length?);
        }
        match &pin.overlay {
            Some(overlay) => overlay.read(view, inode, offset, buffer),
            None => store::read(view, inode, pin.pinned.facts.size, offset, buffer),
        }
    }
}

/// A header that says WAL mode is shown as one that does not: there is no write-ahead log any more, or its
/// contents are part of what is read.
fn hide_wal_mode(offset: u64, buffer: &mut [u8]) {
    for position in [FORMAT_VERSIONS, FORMAT_VERSIONS + 1] {
        let index = position.checked_sub(offset).and_then(|index| usize::try_from(index).ok());
        if let Some(byte) = index.and_then(|index| buffer.get_mut(index))
            && *byte == 2
        {
            *byte = 1;
        }
    }
}

/// Sixteen bytes that differ from what any header holds there: a size of 2^32-1 pages is impossible, and the
/// rest follows the true bytes inverted, so it is not the all-ones that SQLite uses for "unknown" either.
fn never_in_a_header(truth: &[u8]) -> [u8; 16] {
    let mut answer = [0xff; 16];
    for (answer, truth) in answer[8..].iter_mut().zip(&truth[8..]) {
        *answer = !truth;
    }
    if answer == [0xff; 16] {
        answer[15] = 0;
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_stale_cache_differs_from_any_header() {
        for truth in [[0; 16], [0xff; 16], [7; 16]] {
            let answer = never_in_a_header(&truth);
            assert_ne!(answer, truth);
            assert_ne!(answer, [0xff; 16]);
            assert_eq!(answer[4..8], [0xff; 4], "a size that no database has");
        }
    }

    #[test]
    fn wal_mode_is_hidden_wherever_a_read_begins() {
        let header: Vec<u8> = (0..100).map(|at| if at == 18 || at == 19 { 2 } else { 2 + at }).collect();
        for (offset, length) in [(0, 100), (10, 9), (18, 1), (19, 4), (18, 2), (5, 5)] {
            let mut part = header[offset..offset + length].to_vec();
            hide_wal_mode(offset as u64, &mut part);
            for (index, byte) in part.iter().enumerate() {
                let at = offset + index;
                assert_eq!(*byte, if at == 18 || at == 19 { 1 } else { header[at] });
            }
        }
    }
}
