//! What of a set lies in parts on disk, and what is no longer true of them.

use super::blocks::{BlockSet, Span};
use super::part::PartRow;
use crate::units::LogAddress;

/// Parts that may lie over each other before they are written anew: those of a deleted version lie over those
/// of the one below.
const LAYERS_MAX: usize = 4;

/// Parts of a set, and what left the set since they were written. Parts share no address; their spans may
/// overlap.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Cold {
    /// By first address.
    rows: Vec<PartRow>,
    /// Addresses in all of them.
    count: u64,
    /// In a part, and not in the set.
    removed: BlockSet,
}

impl Cold {
    pub(super) fn of(mut rows: Vec<PartRow>) -> Self {
        rows.sort_by_key(|row| row.span.start);
        let count = rows.iter().map(|row| row.count).sum();
        Self { rows, count, removed: BlockSet::new() }
    }

    pub(super) fn rows(&self) -> &[PartRow] {
        &self.rows
    }

    pub(super) const fn removed(&self) -> &BlockSet {
        &self.removed
    }

    /// Number of addresses that are still in the set.
    pub(super) fn len(&self) -> u64 {
        self.count.saturating_sub(self.removed.len().0)
    }

    /// Takes in the parts of a set that shares no address with this one.
    pub(super) fn absorb(&mut self, other: Self) {
        self.rows.extend(other.rows);
        // Two ascending runs, which this finds.
        self.rows.sort_by_key(|row| row.span.start);
        self.count = self.count.saturating_add(other.count);
        self.removed.unite(other.removed);
    }

    /// Takes out of `span` what may be in parts, and answers what that is. As far as the caller knows,
    /// nothing of `span` was taken out before.
    pub(super) fn remove(&mut self, mut span: BlockSet) -> BlockSet {
        span.subtract(&self.removed);
        let strange: Vec<Span> = span.runs().filter(|run| !self.covers(run)).collect();
        for run in &strange {
            span.remove(run);
        }
        self.removed.unite(span.clone());
        span
    }

    /// Whether parts are known that may have all of a run.
    fn covers(&self, run: &Span) -> bool {
        let mut at = run.start;
        while at < run.end {
            let after = self.rows.partition_point(|row| row.span.start <= at);
            // The nearest one, unless spans overlap.
            let row = self.rows[..after].iter().rev().find(|row| row.span.end > at);
            let Some(row) = row else { return false };
            at = row.span.end;
        }
        true
    }

    /// The last part with addresses in a span.
    pub(super) fn last_within(&self, span: &Span, before: usize) -> Option<usize> {
        self.rows[..before].iter().rposition(|row| row.span.start < span.end && row.span.end > span.start)
    }

    /// Parts with addresses in a span.
    pub(super) fn within<'a>(&'a self, span: &Span) -> impl Iterator<Item = &'a PartRow> {
        let span = span.clone();
        let end = self.rows.partition_point(|row| row.span.start < span.end);
        self.rows[..end].iter().filter(move |row| row.span.end > span.start)
    }

    /// Takes a part out as a whole, and with it what was no longer true of it.
    pub(super) fn drop_row(&mut self, index: usize, content: &BlockSet) {
        let row = self.rows.remove(index);
        self.count -= row.count;
        self.removed.subtract(content);
    }

    /// Whether nothing of it is in the set.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a part of which no more than half may be left: its chunk is kept for little.
    pub(super) fn is_worn(&self) -> bool {
        !self.removed.is_empty()
            && self.rows.iter().any(|row| self.removed.count(&row.span).0.saturating_mul(2) >= row.count)
    }

    /// Whether so many parts lie over each other that looking for an address takes too long.
    pub(super) fn is_entangled(&self) -> bool {
        let mut ends: Vec<LogAddress> = Vec::new();
        let mut deepest = 0;
        for row in &self.rows {
            ends.retain(|end| *end > row.span.start);
            ends.push(row.span.end);
            deepest = deepest.max(ends.len());
        }
        deepest > LAYERS_MAX
    }

    pub(super) fn into_pieces(self) -> (Vec<PartRow>, BlockSet) {
        (self.rows, self.removed)
    }

    pub(super) fn tidy(&mut self) {
        self.removed.tidy();
    }

    /// Bounds of what may be in the set.
    pub(super) fn first(&self) -> Option<LogAddress> {
        self.rows.first().map(|row| row.span.start)
    }

    pub(super) fn end(&self) -> Option<LogAddress> {
        self.rows.iter().map(|row| row.span.end).max()
    }
}
