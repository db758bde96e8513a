//! A short list of runs: how a set is kept that has no more of them.

use super::blocks::Span;
use crate::units::LogAddress;

/// Maximal runs, ascending. Short: everything here takes time with their number.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct FewRuns(Vec<Span>);

/// Blocks that two spans have in common.
fn overlap(one: &Span, other: &Span) -> u64 {
    one.end.min(other.end).0.saturating_sub(one.start.max(other.start).0)
}

impl FewRuns {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn runs(&self) -> &[Span] {
        &self.0
    }

    /// Number of addresses.
    pub(super) fn length(&self) -> u64 {
        self.0.iter().map(|run| run.end.0 - run.start.0).sum()
    }

    pub(super) fn contains(&self, address: LogAddress) -> bool {
        self.0.iter().any(|run| run.contains(&address))
    }

    /// Number of addresses within `span`.
    pub(super) fn count(&self, span: &Span) -> u64 {
        self.0.iter().map(|run| overlap(run, span)).sum()
    }

    /// Adds `span`, which is not empty, and answers how many of its addresses were new.
    pub(super) fn insert(&mut self, span: &Span) -> u64 {
        let first = self.0.partition_point(|run| run.end < span.start);
        let after = self.0.partition_point(|run| run.start <= span.end);
        let touched = &self.0[first..after];
        let known: u64 = touched.iter().map(|run| overlap(run, span)).sum();
        let start = touched.first().map_or(span.start, |run| run.start.min(span.start));
        let end = touched.last().map_or(span.end, |run| run.end.max(span.end));
        if self.0.capacity() == 0 {
            // Most sets stay as small as that.
            self.0.reserve_exact(1);
        }
        self.0.splice(first..after, [start..end]);
        span.end.0 - span.start.0 - known
    }

    /// Takes `span` out and answers how many of its addresses were in.
    pub(super) fn remove(&mut self, span: &Span) -> u64 {
        let first = self.0.partition_point(|run| run.end <= span.start);
        let after = self.0.partition_point(|run| run.start < span.end);
        if first >= after {
            return 0;
        }
        let touched = &self.0[first..after];
        let removed = touched.iter().map(|run| overlap(run, span)).sum();
        let (below, above) = (touched[0].start..span.start, span.end..touched[touched.len() - 1].end);
        let rest = [below, above].into_iter().filter(|run| run.start < run.end);
        self.0.splice(first..after, rest);
        removed
    }

    /// Gives back room that is not needed.
    pub(super) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }
}

impl FromIterator<Span> for FewRuns {
    /// Of maximal runs in ascending order.
    fn from_iter<I: IntoIterator<Item = Span>>(runs: I) -> Self {
        Self(runs.into_iter().collect())
    }
}
