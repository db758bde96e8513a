//! A set of log addresses of one stream: a compressed bitmap, or a short list of runs.

use super::few::FewRuns;
use crate::units::{BlockCount, LogAddress};
use roaring::{RoaringBitmap, RoaringTreemap};
use std::ops::Range;
use std::slice;

/// Addresses from `start` up to, not including, `end`.
pub type Span = Range<LogAddress>;

/// Changes after which the containers of the bitmap are put into their smallest form again. A container
/// that began as a list of runs stays one however many there get to be, at 4 bytes each; this bounds what
/// such lists take beyond the optimum to a few hundred KiB a set, at a small cost spread over the changes.
const EDITS_BETWEEN_OPTIMIZING: u32 = 1 << 16;

/// Spans up to this length are counted by asking for each address: counting by rank adds up the containers
/// that they lie in from their beginning.
const COUNTED_ONE_BY_ONE: u64 = 64;

/// What a container takes beside its addresses, about.
const CONTAINER_BYTES: u64 = 64;

/// A set of up to so many runs is a list of them. A bitmap takes half a KiB however little is in it. Nearly
/// all versions of a pool with a long history own a few runs and lost a few. As bytes, such a list is never
/// longer than a bitmap.
const LISTED_RUNS_MAX: usize = 8;

/// A set of log addresses of one stream.
///
/// Operations on a span cost in proportion to the 65,536-address chunks they touch, not to the blocks.
#[derive(Clone, Debug)]
pub struct BlockSet(Form);

#[derive(Clone, Debug)]
enum Form {
    Few(FewRuns),
    Many(Box<Bitmap>),
}

/// A set of many runs.
#[derive(Clone, Debug, Default)]
struct Bitmap {
    map: RoaringTreemap,
    /// Kept beside the bitmap, which would have to add up its containers.
    length: u64,
    /// Changes since the bitmap was last optimized.
    edits: u32,
}

impl Bitmap {
    fn insert(&mut self, span: &Span) -> u64 {
        let added = self.map.insert_range(span.start.0..span.end.0);
        self.length += added;
        self.edited();
        added
    }

    fn remove(&mut self, span: &Span) -> u64 {
        let removed = self.map.remove_range(span.start.0..span.end.0);
        self.length -= removed;
        self.edited();
        removed
    }

    fn count(&self, span: &Span) -> u64 {
        if span.end.0 - span.start.0 <= COUNTED_ONE_BY_ONE {
            return (span.start.0..span.end.0).filter(|address| self.map.contains(*address)).count() as u64;
        }
        self.map.range_cardinality(span.start.0..span.end.0)
    }

    /// Costs in proportion to the chunks of the smaller set, besides a look at those of the larger.
    fn unite(&mut self, mut other: Self) -> u64 {
        let added = other.length - self.map.intersection_len(&other.map);
        let length = self.length + added;
        // By reference, because the bitmap's own way to find the smaller side counts all blocks of both.
        if self.length < other.length {
            std::mem::swap(&mut self.map, &mut other.map);
        }
        self.map |= &other.map;
        self.length = length;
        self.edited();
        added
    }

    fn subtract(&mut self, other: &Self) -> u64 {
        let removed = self.map.intersection_len(&other.map);
        if removed > 0 {
            self.map -= &other.map;
            self.length -= removed;
            self.edited();
        }
        removed
    }

    fn intersect(&mut self, other: &Self) {
        self.map &= &other.map;
        self.length = self.map.len();
        self.edited();
    }

    fn optimize(&mut self) {
        self.map.optimize();
        self.edits = 0;
    }

    fn edited(&mut self) {
        self.edits += 1;
        if self.edits >= EDITS_BETWEEN_OPTIMIZING {
            self.optimize();
        }
    }
}

impl Default for BlockSet {
    fn default() -> Self {
        Self::new()
    }
}

/// Equal when they hold the same addresses, in whatever form.
impl PartialEq for BlockSet {
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Few(mine), Form::Few(theirs)) => mine == theirs,
            (Form::Many(mine), Form::Many(theirs)) => mine.map == theirs.map,
            _ => self.runs().eq(other.runs()),
        }
    }
}

impl BlockSet {
    /// The empty set.
    pub const fn new() -> Self {
        Self(Form::Few(FewRuns::new()))
    }

    /// All addresses of `span`.
    pub fn of(span: Span) -> Self {
        let mut set = Self::new();
        set.insert(span);
        set
    }

    /// Wraps a bitmap that was read from disk and checked.
    pub(super) fn from_bitmap(map: RoaringTreemap) -> Self {
        let length = map.len();
        Self(Form::Many(Box::new(Bitmap { map, length, edits: 0 })))
    }

    /// The bitmap within, if the set is more than a short list of runs.
    pub(super) fn bitmap(&self) -> Option<&RoaringTreemap> {
        match &self.0 {
            Form::Few(_) => None,
            Form::Many(bitmap) => Some(&bitmap.map),
        }
    }

    /// Number of addresses.
    pub fn len(&self) -> BlockCount {
        BlockCount(match &self.0 {
            Form::Few(runs) => runs.length(),
            Form::Many(bitmap) => bitmap.length,
        })
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        match &self.0 {
            Form::Few(runs) => runs.runs().is_empty(),
            Form::Many(bitmap) => bitmap.length == 0,
        }
    }

    /// Whether `address` is in the set.
    pub fn contains(&self, address: LogAddress) -> bool {
        match &self.0 {
            Form::Few(runs) => runs.contains(address),
            Form::Many(bitmap) => bitmap.map.contains(address.0),
        }
    }

    /// Smallest address.
    pub fn first(&self) -> Option<LogAddress> {
        match &self.0 {
            Form::Few(runs) => runs.runs().first().map(|run| run.start),
            Form::Many(bitmap) => bitmap.map.min().map(LogAddress),
        }
    }

    /// Largest address.
    pub fn last(&self) -> Option<LogAddress> {
        match &self.0 {
            Form::Few(runs) => runs.runs().last().map(|run| LogAddress(run.end.0 - 1)),
            Form::Many(bitmap) => bitmap.map.max().map(LogAddress),
        }
    }

    /// Whether every address lies within `span`.
    pub fn is_within(&self, span: &Span) -> bool {
        self.first().is_none_or(|first| first >= span.start) && self.last().is_none_or(|last| last < span.end)
    }

    /// Whether this set and `other` have no address in common.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Form::Few(runs), _) => runs.runs().iter().all(|run| other.count(run).0 == 0),
            (_, Form::Few(runs)) => runs.runs().iter().all(|run| self.count(run).0 == 0),
            (Form::Many(mine), Form::Many(theirs)) => mine.map.is_disjoint(&theirs.map),
        }
    }

    /// Number of addresses within `span`.
    pub fn count(&self, span: &Span) -> BlockCount {
        if span.is_empty() {
            return BlockCount(0);
        }
        BlockCount(match &self.0 {
            Form::Few(runs) => runs.count(span),
            Form::Many(bitmap) => bitmap.count(span),
        })
    }

    /// Adds `span` and answers how many of its addresses were new.
    pub fn insert(&mut self, span: Span) -> BlockCount {
        if span.is_empty() {
            return BlockCount(0);
        }
        BlockCount(match &mut self.0 {
            Form::Few(runs) => {
                let added = runs.insert(&span);
                self.outgrow();
                added
            }
            Form::Many(bitmap) => bitmap.insert(&span),
        })
    }

    /// Takes `span` out and answers how many of its addresses were in.
    pub fn remove(&mut self, span: &Span) -> BlockCount {
        if span.is_empty() || self.is_empty() {
            return BlockCount(0);
        }
        BlockCount(match &mut self.0 {
            Form::Few(runs) => {
                let removed = runs.remove(span);
                self.outgrow();
                removed
            }
            Form::Many(bitmap) => bitmap.remove(span),
        })
    }

    /// Adds all of `other` and answers how many were new.
    pub fn unite(&mut self, other: Self) -> BlockCount {
        match (&mut self.0, other.0) {
            (_, Form::Few(runs)) => {
                BlockCount(runs.runs().iter().map(|run| self.insert(run.clone()).0).sum())
            }
            (Form::Few(own), Form::Many(mut theirs)) => {
                let before = own.length();
                for run in own.runs() {
                    theirs.insert(run);
                }
                let added = theirs.length - before;
                self.0 = Form::Many(theirs);
                BlockCount(added)
            }
            (Form::Many(mine), Form::Many(theirs)) => BlockCount(mine.unite(*theirs)),
        }
    }

    /// Takes all of `other` out and answers how many were in.
    pub fn subtract(&mut self, other: &Self) -> BlockCount {
        let common = match (&mut self.0, &other.0) {
            (Form::Many(mine), Form::Many(theirs)) => return BlockCount(mine.subtract(theirs)),
            (_, Form::Few(runs)) => {
                return BlockCount(runs.runs().iter().map(|run| self.remove(run).0).sum());
            }
            (Form::Few(runs), Form::Many(_)) => common_runs(runs, other),
        };
        BlockCount(common.iter().map(|run| self.remove(run).0).sum())
    }

    /// Keeps only what is also in `other`.
    pub fn intersect(&mut self, other: &Self) {
        let common = match (&mut self.0, &other.0) {
            (Form::Many(mine), Form::Many(theirs)) => return mine.intersect(theirs),
            (Form::Few(mine), _) => common_runs(mine, other),
            (_, Form::Few(theirs)) => common_runs(theirs, self),
        };
        *self = common.into_iter().collect();
    }

    /// The part within `span`, at a cost that depends on that part and not on the rest.
    pub fn part(&self, span: &Span) -> Self {
        let (inside, length) = (self.count(span), self.len());
        if inside == length {
            return self.clone();
        }
        if inside.0 > length.0 / 2 {
            let mut part = self.clone();
            part.remove(&(LogAddress(0)..span.start));
            part.remove(&(span.end..LogAddress(u64::MAX)));
            return part;
        }
        let part: Self = self.runs_within(span).collect();
        debug_assert_eq!(part.len(), inside);
        part
    }

    /// Takes the part within `span` out and answers with it.
    pub fn extract(&mut self, span: &Span) -> Self {
        let inside = self.count(span);
        if inside == self.len() {
            return std::mem::take(self);
        }
        if inside.0 == 0 {
            return Self::new();
        }
        let part = self.part(span);
        let removed = self.remove(span);
        assert_eq!(removed, part.len(), "a set and its part disagree");
        part
    }

    /// Maximal runs, ascending.
    pub fn runs(&self) -> Runs<'_> {
        self.runs_within(&(LogAddress(0)..LogAddress(u64::MAX)))
    }

    /// Maximal runs of the part within `span`, ascending.
    pub fn runs_within(&self, span: &Span) -> Runs<'_> {
        let source = match &self.0 {
            Form::Few(runs) => Source::Few(runs.runs().iter()),
            Form::Many(bitmap) => Source::Many { bitmaps: bitmap.map.bitmaps(), current: None },
        };
        Runs { source, ahead: None, within: span.clone() }
    }

    /// The memory it takes, about.
    pub fn memory(&self) -> u64 {
        match &self.0 {
            Form::Few(runs) => size_of_val(runs.runs()) as u64,
            Form::Many(bitmap) => bitmap.map.bitmaps().map(|(_, part)| memory_of(part)).sum(),
        }
    }

    /// Whether it is a list of so many runs at most.
    pub(super) fn is_list_of(&self, runs_max: usize) -> bool {
        match &self.0 {
            Form::Few(runs) => runs.runs().len() <= runs_max,
            Form::Many(bitmap) => bitmap.length == 0,
        }
    }

    /// Puts the set into its smallest form.
    pub(super) fn optimize(&mut self) {
        if let Form::Many(bitmap) = &mut self.0 {
            bitmap.optimize();
        }
        self.settle();
    }

    /// Optimizes if more than a few changes were made since the last time.
    pub(super) fn tidy(&mut self) {
        if let Form::Many(bitmap) = &mut self.0
            && bitmap.edits >= EDITS_BETWEEN_OPTIMIZING >> 6
        {
            bitmap.optimize();
        }
        self.settle();
    }

    /// What few runs are left become a list, with no room to spare.
    fn settle(&mut self) {
        if self.bitmap().is_some() && self.runs().nth(LISTED_RUNS_MAX).is_none() {
            self.0 = Form::Few(self.runs().collect());
        }
        if let Form::Few(runs) = &mut self.0 {
            runs.shrink();
        }
    }

    /// Too many runs for a list become a bitmap.
    fn outgrow(&mut self) {
        let Form::Few(runs) = &self.0 else { return };
        if runs.runs().len() > LISTED_RUNS_MAX {
            let mut bitmap = Box::<Bitmap>::default();
            for run in runs.runs() {
                bitmap.insert(run);
            }
            self.0 = Form::Many(bitmap);
        }
    }
}

/// The memory that a bitmap takes, about.
fn memory_of(bitmap: &RoaringBitmap) -> u64 {
    let found = bitmap.statistics();
    u64::from(found.n_containers) * CONTAINER_BYTES
        + found.n_bytes_array_containers
        + found.n_bytes_run_containers
        + found.n_bytes_bitset_containers
}

/// What a list of runs and a set have in common.
fn common_runs(runs: &FewRuns, set: &BlockSet) -> Vec<Span> {
    runs.runs().iter().flat_map(|run| set.runs_within(run)).collect()
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
    source: Source<'a>,
    /// A run already read that the next one may continue (across the border of two bitmaps).
    ahead: Option<Span>,
    within: Span,
}

/// What runs are read from.
enum Source<'a> {
    Few(slice::Iter<'a, Span>),
    Many {
        bitmaps: roaring::treemap::BitmapIter<'a>,
        /// The bitmap being read, and what its addresses count from.
        current: Option<(u64, roaring::bitmap::Iter<'a>)>,
    },
}

impl Source<'_> {
    /// The next run inside one bitmap, or of the list, from `start` on and below `end` as far as it begins
    /// there.
    fn next(&mut self, within: &Span) -> Option<Span> {
        match self {
            Self::Few(runs) => runs.find(|run| run.end > within.start).cloned(),
            Self::Many { bitmaps, current } => loop {
                if let Some((base, iterator)) = current
                    && let Some(range) = iterator.next_range()
                {
                    let start = LogAddress(*base + u64::from(*range.start()));
                    return Some(start..LogAddress(*base + u64::from(*range.end()) + 1));
                }
                *current = Some(enter_next_bitmap(bitmaps, within)?);
            },
        }
    }
}

/// The next bitmap that can hold addresses of the span, from where they begin. None when there is none.
fn enter_next_bitmap<'a>(
    bitmaps: &mut roaring::treemap::BitmapIter<'a>,
    within: &Span,
) -> Option<(u64, roaring::bitmap::Iter<'a>)> {
    loop {
        let (high, bitmap): (u32, &'a RoaringBitmap) = bitmaps.next()?;
        let base = u64::from(high) << 32;
        if base >= within.end.0 {
            return None;
        }
        if base + (1 << 32) <= within.start.0 {
            continue;
        }
        let mut iterator = bitmap.iter();
        if within.start.0 > base {
            // Fits: the start lies inside this bitmap.
            iterator.advance_to((within.start.0 - base) as u32);
        }
        return Some((base, iterator));
    }
}

impl Runs<'_> {
    /// The next piece of a run, clipped to the span asked for.
    fn next_piece(&mut self) -> Option<Span> {
        loop {
            let run = self.source.next(&self.within)?;
            if run.start >= self.within.end {
                return None;
            }
            let piece = run.start.max(self.within.start)..run.end.min(self.within.end);
            if piece.start < piece.end {
                return Some(piece);
            }
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
