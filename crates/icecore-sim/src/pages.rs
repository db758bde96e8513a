//! The bytes of a file in memory: only pages that were written take up room, and copies share them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes in one page.
pub(crate) const PAGE_BYTES: usize = 4096;

/// The bytes of one page.
pub(crate) type Page = [u8; PAGE_BYTES];

/// Pages by number. What is missing is for the user to say.
#[derive(Clone, PartialEq, Eq, Default)]
pub(crate) struct Pages {
    pages: BTreeMap<u64, Arc<Page>>,
}

/// A piece of a range of bytes that lies within one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Number of the page.
    pub page: u64,
    /// First byte within the page.
    pub within: usize,
    /// First byte within the range.
    pub start: usize,
    /// Number of bytes.
    pub length: usize,
}

/// Cuts `length` bytes at `offset` at the borders of pages.
pub(crate) fn pieces(offset: u64, length: usize) -> impl Iterator<Item = Piece> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let position = offset + start as u64;
        let within = (position % PAGE_BYTES as u64) as usize;
        let piece = Piece {
            page: position / PAGE_BYTES as u64,
            within,
            start,
            length: (length - start).min(PAGE_BYTES - within),
        };
        start += piece.length;
        (piece.length > 0).then_some(piece)
    })
}

impl Pages {
    /// The page with this number, if it was ever written.
    pub(crate) fn get(&self, page: u64) -> Option<&Arc<Page>> {
        self.pages.get(&page)
    }

    /// The page with this number, to change; `missing` makes it where it is not there.
    pub(crate) fn get_mut(&mut self, page: u64, missing: impl FnOnce() -> Arc<Page>) -> &mut Page {
        Arc::make_mut(self.pages.entry(page).or_insert_with(missing))
    }

    /// Forgets one page.
    pub(crate) fn remove(&mut self, page: u64) {
        self.pages.remove(&page);
    }

    /// Numbers of the pages that are there, ascending.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.pages.keys().copied()
    }

    /// Forgets the pages from `first` up to and without `end`.
    pub(crate) fn remove_range(&mut self, first: u64, end: u64) {
        let gone: Vec<u64> = self.pages.range(first..end).map(|(page, _)| *page).collect();
        for page in gone {
            self.pages.remove(&page);
        }
    }

    /// Moves all pages of `other` here, over those of the same number.
    pub(crate) fn append(&mut self, other: &mut Self) {
        self.pages.append(&mut other.pages);
    }

    /// Forgets all pages.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
    }

    /// Number of pages that are there.
    pub(crate) fn count(&self) -> usize {
        self.pages.len()
    }
}

/// A page of zeros.
pub(crate) fn zero_page() -> Arc<Page> {
    Arc::new([0; PAGE_BYTES])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_page_borders() {
        let cut: Vec<_> = pieces(4090, 4106).map(|p| (p.page, p.within, p.start, p.length)).collect();
        assert_eq!(cut, [(0, 4090, 0, 6), (1, 0, 6, 4096), (2, 0, 4102, 4)]);
        assert_eq!(pieces(5, 0).count(), 0);
    }

    #[test]
    fn copies_share_until_written() {
        let mut one = Pages::default();
        one.get_mut(3, zero_page)[0] = 1;
        let mut two = one.clone();
        two.get_mut(3, zero_page)[0] = 2;
        assert_eq!((one.get(3).unwrap()[0], two.get(3).unwrap()[0]), (1, 2));
        two.remove_range(0, 3);
        assert_eq!(two.count(), 1);
        two.remove_range(3, 4);
        assert_eq!(two.count(), 0);
    }
}
