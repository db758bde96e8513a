//! A set of log addresses of one stream, as a compressed bitmap.

use crate::units::{BlockCount, LogAddress};
use roaring::{RoaringBitmap, RoaringTreemap};
use std::ops::Range;

/// Addresses from `start` up to, not including, `end`.
pub type Span = Range<LogAddress>;

/// Changes after which the containers of the bitmap are put into their smallest form again. A container
/// that began as a list of runs stays one however many there get to be, at 4 bytes each; this bounds what
/// such lists take beyond the optimum to a few hundred KiB a set, at a small cost spread over the changes.
const EDITS_BETWEEN_OPTIMIZING: u32 = 1 << 16;

/// Spans up to this length are counted by asking for each address: counting by rank adds up the containers
/// that they lie in from their beginning.
const COUNTED_ONE_BY_ONE: u64 = 64;

/// A set of log addresses of one stream.
///
/// Operations on a span cost in proportion to the 65,536-address chunks they touch, not to the blocks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockSet {
    map: RoaringTreemap,
    /// Kept beside the bitmap, which would have to add up its containers.
    length: u64,
    edits: Edits,
}

/// Counts changes since the bitmap was last optimized. Says nothing about contents, so all are equal.
#[derive(Clone, Copy, Debug, Default)]
struct Edits(u32);

impl PartialEq for Edits {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl BlockSet {
    /// The empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// All addresses of `span`.
    #[must_use]
    pub fn of(span: Span) -> Self {
        let mut set = Self::new();
        set.insert(span);
        set
    }

    /// Wraps a bitmap that was read from disk and checked.
    pub(super) fn from_bitmap(map: RoaringTreemap) -> Self {
        let length = map.len();
        Self { map, length, edits: Edits::default() }
    }

    /// The bitmap within.
    pub(super) fn bitmap(&self) -> &RoaringTreemap {
        &self.map
    }

    /// Number of addresses.
    #[must_use]
    pub const fn len(&self) -> BlockCount {
        BlockCount(self.length)
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether `address` is in the set.
    #[must_use]
    pub fn contains(&self, address: LogAddress) -> bool {
        self.map.contains(address.0)
    }

    /// Smallest address.
    #[must_use]
    pub fn first(&self) -> Option<LogAddress> {
        self.map.min().map(LogAddress)
    }

    /// Largest address.
    #[must_use]
    pub fn last(&self) -> Option<LogAddress> {
        self.map.max().map(LogAddress)
    }

    /// Whether every address lies within `span`.
    #[must_use]
    pub fn is_within(&self, span: &Span) -> bool {
        self.first().is_none_or(|first| first >= span.start) && self.last().is_none_or(|last| last < span.end)
    }

    /// Number of addresses within `span`.
    #[must_use]
    pub fn count(&self, span: &Span) -> BlockCount {
        if span.is_empty() {
            return BlockCount(0);
        }
        if span.end.0 - span.start.0 <= COUNTED_ONE_BY_ONE {
            return BlockCount(
                (span.start.0..span.end.0).filter(|address| self.map.contains(*address)).count() as u64,
            );
        }
        BlockCount(self.map.range_cardinality(span.start.0..span.end.0))
    }

    /// Adds `span` and answers how many of its addresses were new.
    pub fn insert(&mut self, span: Span) -> BlockCount {
        if span.is_empty() {
            return BlockCount(0);
        }
        let added = self.map.insert_range(span.start.0..span.end.0);
        self.length += added;
        self.edited();
        BlockCount(added)
    }

    /// Takes `span` out and answers how many of its addresses were in.
    pub fn remove(&mut self, span: &Span) -> BlockCount {
        if span.is_empty() || self.is_empty() {
            return BlockCount(0);
        }
        let removed = self.map.remove_range(span.start.0..span.end.0);
        self.length -= removed;
        self.edited();
        BlockCount(removed)
    }

    /// Adds all of `other` and answers how many were new. Costs in proportion to the chunks of the smaller set,
    /// besides a look at those of the larger.
    pub fn unite(&mut self, mut other: Self) -> BlockCount {
        let mut added = other.length;
        if !self.is_empty() && !other.is_empty() {
            added -= self.map.intersection_len(&other.map);
        }
        let length = self.length + added;
        // By reference, because the bitmap's own way to find the smaller side counts all blocks of both.
        if self.length < other.length {
            std::mem::swap(&mut self.map, &mut other.map);
        }
        self.map |= &other.map;
        self.length = length;
        self.edited();
        BlockCount(added)
    }

    /// Takes all of `other` out and answers how many were in.
    pub fn subtract(&mut self, other: &Self) -> BlockCount {
        if self.is_empty() || other.is_empty() {
            return BlockCount(0);
        }
        let removed = self.map.intersection_len(&other.map);
        if removed > 0 {
            self.map -= &other.map;
            self.length -= removed;
            self.edited();
        }
        BlockCount(removed)
    }

    /// Keeps only what is also in `other`.
    pub fn intersect(&mut self, other: &Self) {
        self.map &= &other.map;
        self.length = self.map.len();
        self.edited();
    }

    /// The part within `span`, at a cost that depends on that part and not on the rest.
    #[must_use]
    pub fn part(&self, span: &Span) -> Self {
        let inside = self.count(span).0;
        if inside == self.length {
            return self.clone();
        }
        if inside > self.length / 2 {
            let mut part = self.clone();
            part.remove(&(LogAddress(0)..span.start));
            part.remove(&(span.end..LogAddress(u64::MAX)));
            return part;
        }
        let mut part = Self::new();
        for run in self.runs_within(span) {
            part.insert(run);
        }
        debug_assert_eq!(part.length, inside);
        part
    }

    /// Takes the part within `span` out and answers with it.
    pub fn extract(&mut self, span: &Span) -> Self {
        let inside = self.count(span).0;
        if inside == self.length {
            return std::mem::take(self);
        }
        if inside == 0 {
            return Self::new();
        }
        let part = self.part(span);
        let removed = self.remove(span);
        assert_eq!(removed, part.len(), "a set and its part disagree");
        part
    }

    /// Maximal runs, ascending.
    #[must_use]
    pub fn runs(&self) -> Runs<'_> {
        self.runs_within(&(LogAddress(0)..LogAddress(u64::MAX)))
    }

    /// Maximal runs of the part within `span`, ascending.
    #[must_use]
    pub fn runs_within(&self, span: &Span) -> Runs<'_> {
        Runs { bitmaps: self.map.bitmaps(), current: None, ahead: None, within: span.clone() }
    }

    /// Puts the bitmap into its smallest form.
    pub(super) fn optimize(&mut self) {
        self.map.optimize();
        self.edits = Edits::default();
    }

    /// Optimizes if more than a few changes were made since the last time.
    pub(super) fn tidy(&mut self) {
        if self.edits.0 >= EDITS_BETWEEN_OPTIMIZING >> 6 {
            self.optimize();
        }
    }

    fn edited(&mut self) {
        self.edits.0 += 1;
        if self.edits.0 >= EDITS_BETWEEN_OPTIMIZING {
            self.optimize();
        }
    }
}

impl FromIterator<Span> for BlockSet {
    fn from_iter<I: IntoIterator<Item = Span>>(spans: I) -> Self {
        let mut set = Self::new();
        for span in spans {
            set.insert(span);
        }
        set
    }
}

/// Iterates over the maximal runs of a set, ascending.
pub struct Runs<'a> {
    bitmaps: roaring::treemap::BitmapIter<'a>,
    /// The bitmap being read, and what its addresses count from.
    current: Option<(u64, roaring::bitmap::Iter<'a>)>,
    /// A run already read that the next one may continue (across the border of two bitmaps).
    ahead: Option<Span>,
    within: Span,
}

impl Runs<'_> {
    /// The next run inside one bitmap, clipped to the span asked for.
    fn next_piece(&mut self) -> Option<Span> {
        loop {
            if let Some((base, iterator)) = &mut self.current
                && let Some(range) = iterator.next_range()
            {
                let start = LogAddress(*base + u64::from(*range.start())).max(self.within.start);
                let end = LogAddress(*base + u64::from(*range.end()) + 1).min(self.within.end);
                if start >= self.within.end {
                    return None;
                }
                if start < end {
                    return Some(start..end);
                }
                continue;
            }
            self.enter_next_bitmap()?;
        }
    }

    /// Moves on to the next bitmap that can hold addresses of the span. None when there is none.
    fn enter_next_bitmap(&mut self) -> Option<()> {
        loop {
            let (high, bitmap): (u32, &RoaringBitmap) = self.bitmaps.next()?;
            let base = u64::from(high) << 32;
            if base >= self.within.end.0 {
                return None;
            }
            if base + (1 << 32) <= self.within.start.0 {
                continue;
            }
            let mut iterator = bitmap.iter();
            if self.within.start.0 > base {
                // Fits: the start lies inside this bitmap.
                iterator.advance_to((self.within.start.0 - base) as u32);
            }
            self.current = Some((base, iterator));
            return Some(());
        }
    }
}

impl Iterator for Runs<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let mut run = self.ahead.take().or_else(|| self.next_piece())?;
        while let Some(piece) = self.next_piece() {
            if piece.start == run.end {
                run.end = piece.end;
            } else {
                self.ahead = Some(piece);
                break;
            }
        }
        Some(run)
    }
}
