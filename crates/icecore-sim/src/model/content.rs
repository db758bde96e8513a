//! The bytes of files, sparse, and the bytes that steps write.

use crate::pages::{PAGE_BYTES, Pages, pieces, zero_page};
use crate::random::Random;
use std::fmt;

/// Bytes to write, drawn from a seed so that a step stays short when printed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Data {
    /// What the bytes are drawn from; 0 means zeros.
    pub seed: u64,
    /// How many.
    pub length: u32,
}

impl Data {
    /// The bytes themselves.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.length as usize];
        if self.seed != 0 {
            Random::new(self.seed).fill(&mut bytes);
        }
        bytes
    }
}

/// The content of a file. Equal contents are equal values, however they came about.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Content {
    size: u64,
    /// Never a page of zeros, and zeros behind the end of the file.
    pages: Pages,
}

impl fmt::Debug for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Content({} bytes, {} pages)", self.size, self.pages.count())
    }
}

impl Content {
    /// Size in bytes.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Fills the buffer from `offset`; what lies behind the end reads as zeros.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        for piece in pieces(offset, buffer.len()) {
            let target = &mut buffer[piece.start..piece.start + piece.length];
            match self.pages.get(piece.page) {
                Some(page) => target.copy_from_slice(&page[piece.within..piece.within + piece.length]),
                None => target.fill(0),
            }
        }
    }

    /// The places where there may be something but zeros: offset and length of runs of whole pages.
    #[must_use]
    pub fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for page in self.pages.numbers() {
            let start = page * PAGE_BYTES as u64;
            match runs.last_mut() {
                Some((from, length)) if *from + *length == start => *length += PAGE_BYTES as u64,
                _ => runs.push((start, PAGE_BYTES as u64)),
            }
        }
        runs
    }

    /// Writes bytes; the file grows as needed.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.change(offset, bytes.len(), |target, start| {
            target.copy_from_slice(&bytes[start..start + target.len()]);
        });
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    /// Cuts the file, or makes it longer with zeros.
    pub fn truncate(&mut self, size: u64) {
        if size < self.size {
            self.zero(size, self.size);
        }
        self.size = size;
    }

    /// Makes zeros of a range; the size stays.
    pub fn punch(&mut self, offset: u64, length: u64) {
        let end = offset.saturating_add(length).min(self.size);
        if offset < end {
            self.zero(offset, end);
        }
    }

    fn zero(&mut self, start: u64, end: u64) {
        let page_bytes = PAGE_BYTES as u64;
        let (first_whole, end_whole) = (start.div_ceil(page_bytes), end / page_bytes);
        if first_whole > end_whole {
            return self.change(start, (end - start) as usize, |target, _| target.fill(0));
        }
        self.pages.remove_range(first_whole, end_whole);
        let head = first_whole * page_bytes - start;
        self.change(start, head as usize, |target, _| target.fill(0));
        let tail = end_whole * page_bytes;
        self.change(tail, (end - tail) as usize, |target, _| target.fill(0));
    }

    fn change(&mut self, offset: u64, length: usize, change: impl Fn(&mut [u8], usize)) {
        for piece in pieces(offset, length) {
            let page = self.pages.get_mut(piece.page, zero_page);
            change(&mut page[piece.within..piece.within + piece.length], piece.start);
            if page.iter().all(|byte| *byte == 0) {
                self.pages.remove(piece.page);
            }
        }
    }
}
