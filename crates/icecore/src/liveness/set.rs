//! A set of log addresses that remembers what changed since the last checkpoint.

use super::blocks::{BlockSet, Span};
use super::cold::Cold;
use super::consolidate::SetLimits;
use super::fault::HistoryFault;
use super::part::{Look, PartRow};
use crate::units::{BlockCount, LogAddress};
use crate::{Error, Result};
use std::borrow::Cow;

/// What turns one state of a set into another. An address is in at most one of the two.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SetChanges {
    /// In the set now, and not before.
    pub added: BlockSet,
    /// In the set before, and not now.
    pub removed: BlockSet,
}

impl SetChanges {
    /// Whether nothing changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    /// Notes that `fresh`, which was not in the set, now is.
    fn note_added(&mut self, fresh: BlockSet) {
        note(&mut self.removed, &mut self.added, fresh);
    }

    /// Notes that `gone`, which was in the set, no longer is.
    fn note_removed(&mut self, gone: BlockSet) {
        note(&mut self.added, &mut self.removed, gone);
    }
}

/// Notes blocks in `changed`. Those that are in `back` are what they were at first: they leave it.
fn note(back: &mut BlockSet, changed: &mut BlockSet, mut blocks: BlockSet) {
    if !back.is_empty() {
        let mut restored = blocks.clone();
        restored.intersect(back);
        back.subtract(&restored);
        blocks.subtract(&restored);
    }
    changed.unite(blocks);
}

/// A set of log addresses of one stream, with a journal of its changes.
///
/// Part of it may lie on disk. No change needs to look there. What is added was not in the set. What is taken
/// out was, as far as memory shows: a check of the whole pool, which knows better, reports otherwise.
///
/// The journal is relative to the state at the last [`AddressSet::take_changes`], and minimal: what was
/// added and removed again in between leaves no trace.
#[derive(Clone, Debug, Default)]
pub struct AddressSet {
    /// What is in no part.
    blocks: BlockSet,
    /// None while all of it is in memory.
    cold: Option<Box<Cold>>,
    /// None while there are no changes: most sets of a long history have not changed for ages.
    journal: Option<Box<SetChanges>>,
}

/// Equal when they hold the same addresses in the same parts, whatever their journals say.
impl PartialEq for AddressSet {
    fn eq(&self, other: &Self) -> bool {
        self.blocks == other.blocks && self.cold == other.cold
    }
}

/// What looking into parts on disk answers.
type Looked<T> = std::result::Result<T, HistoryFault>;

impl AddressSet {
    /// The empty set, with nothing to report.
    pub fn new() -> Self {
        Self::default()
    }

    /// A set as it came from a checkpoint: nothing to report.
    pub fn from_stored(blocks: BlockSet, journal: SetChanges) -> Self {
        Self { blocks, cold: None, journal: (!journal.is_empty()).then(|| Box::new(journal)) }
    }

    /// A set that lies in these parts.
    pub(super) fn of_parts(rows: Vec<PartRow>) -> Self {
        let cold = (!rows.is_empty()).then(|| Box::new(Cold::of(rows)));
        Self { cold, ..Self::default() }
    }

    /// Adds parts that share no address with the set.
    pub(super) fn add_parts(&mut self, rows: Vec<PartRow>) {
        if !rows.is_empty() {
            self.cold.get_or_insert_default().absorb(Cold::of(rows));
        }
    }

    fn journal(&mut self) -> &mut SetChanges {
        self.journal.get_or_insert_default()
    }

    /// Puts the set into a form that takes little memory.
    pub(super) fn tidy(&mut self) {
        self.blocks.tidy();
        if let Some(cold) = &mut self.cold {
            cold.tidy();
        }
    }

    /// The addresses that are in no part on disk, without the journal.
    pub const fn at_hand(&self) -> &BlockSet {
        &self.blocks
    }

    /// What of it lies on disk.
    pub(super) fn cold(&self) -> Option<&Cold> {
        self.cold.as_deref()
    }

    /// Its parts on disk.
    pub fn rows(&self) -> &[PartRow] {
        self.cold.as_deref().map_or(&[], Cold::rows)
    }

    /// Memory for what could be in parts and is not.
    pub(super) fn heavy(&self, limits: &SetLimits) -> u64 {
        let removed = self.cold.as_deref().map(Cold::removed);
        let all = [Some(&self.blocks), removed].into_iter().flatten();
        all.filter(|set| !set.is_list_of(limits.listed_runs)).map(BlockSet::memory).sum()
    }

    /// Number of addresses.
    pub fn len(&self) -> BlockCount {
        BlockCount(self.blocks.len().0.saturating_add(self.cold.as_deref().map_or(0, Cold::len)))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len().0 == 0
    }

    /// Whether every address lies within `span`, as far as memory shows: of a part that reaches beyond it,
    /// something was taken out there.
    pub(super) fn may_lie_in(&self, span: &Span) -> bool {
        let Some(cold) = self.cold.as_deref() else { return self.blocks.is_within(span) };
        let fits = |row: &PartRow| {
            let below = row.span.start..row.span.end.min(span.start);
            let above = row.span.start.max(span.end)..row.span.end;
            [below, above].iter().all(|beyond| beyond.is_empty() || cold.removed().count(beyond).0 > 0)
        };
        self.blocks.is_within(span) && cold.rows().iter().all(fits)
    }

    /// An address below which there are none.
    pub fn first(&self) -> Option<LogAddress> {
        let cold = self.cold.as_deref().and_then(Cold::first);
        self.blocks.first().into_iter().chain(cold).min()
    }

    /// An address above which there are none.
    pub fn last(&self) -> Option<LogAddress> {
        let cold = self.cold.as_deref().and_then(Cold::end).map(|end| LogAddress(end.0 - 1));
        self.blocks.last().max(cold)
    }

    /// Whether `address` is in the set.
    pub(super) fn contains(&self, address: LogAddress, parts: Look<'_>) -> Looked<bool> {
        let Some(cold) = self.cold.as_deref().filter(|_| !self.blocks.contains(address)) else {
            return Ok(self.blocks.contains(address));
        };
        if cold.removed().contains(address) {
            return Ok(false);
        }
        for row in cold.within(&(address..address.plus(BlockCount(1)))) {
            if parts.get(row)?.contains(address) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Number of addresses within `span`. Of parts, those at the ends of the span are looked into.
    pub(super) fn count(&self, span: &Span, parts: Look<'_>) -> Looked<BlockCount> {
        let mut count = self.blocks.count(span).0;
        let Some(cold) = self.cold.as_deref() else { return Ok(BlockCount(count)) };
        let mut lies = 0;
        for row in cold.within(span) {
            let whole = span.start <= row.span.start && row.span.end <= span.end;
            lies += if whole { row.count } else { parts.get(row)?.count(span).0 };
        }
        count += lies.saturating_sub(cold.removed().count(span).0);
        Ok(BlockCount(count))
    }

    /// Calls `visit` with the part of the set within `span`, piece by piece, in no order.
    pub(super) fn pieces(
        &self,
        span: &Span,
        parts: Look<'_>,
        visit: &mut dyn FnMut(&BlockSet) -> Looked<()>,
    ) -> Looked<()> {
        if self.blocks.count(span).0 > 0 {
            visit(&self.blocks.part(span))?;
        }
        let Some(cold) = self.cold.as_deref() else { return Ok(()) };
        for row in cold.within(span) {
            let mut piece = parts.get(row)?.part(span);
            piece.subtract(cold.removed());
            if !piece.is_empty() {
                visit(&piece)?;
            }
        }
        Ok(())
    }

    /// What this set and `other` have in common.
    pub(super) fn common(&self, other: &BlockSet, parts: Look<'_>) -> Looked<BlockSet> {
        let mut common = other.clone();
        common.intersect(&self.blocks);
        let Some(cold) = self.cold.as_deref() else { return Ok(common) };
        let (Some(first), Some(last)) = (other.first(), other.last()) else { return Ok(common) };
        for row in cold.within(&(first..last.plus(BlockCount(1)))) {
            if other.count(&row.span).0 > 0 {
                let mut piece = other.part(&row.span);
                piece.intersect(&*parts.get(row)?);
                piece.subtract(cold.removed());
                common.unite(piece);
            }
        }
        Ok(common)
    }

    /// All addresses.
    pub(super) fn whole(&self, parts: Look<'_>) -> Looked<Cow<'_, BlockSet>> {
        if self.cold.is_none() {
            return Ok(Cow::Borrowed(&self.blocks));
        }
        let mut whole = BlockSet::new();
        let all = LogAddress(0)..LogAddress(u64::MAX);
        self.pieces(&all, parts, &mut |piece| {
            whole.unite(piece.clone());
            Ok(())
        })?;
        Ok(Cow::Owned(whole))
    }

    /// Where the beginning of `span` ends that has the first part in it, and so many runs at most of what is
    /// at hand. `None`: there is nothing in the span.
    pub(super) fn stretch(&self, span: &Span, runs: usize) -> Option<LogAddress> {
        if span.is_empty() {
            return None;
        }
        let part = self.cold.as_deref().and_then(|cold| cold.within(span).next()).map(|row| row.span.end);
        let end = part.map_or(span.end, |end| end.min(span.end));
        let mut at_hand = self.blocks.runs_within(&(span.start..end)).take(runs.saturating_add(1));
        let (mut count, mut last) = (0, None);
        while let Some(run) = at_hand.next().filter(|_| count < runs) {
            (count, last) = (count + 1, Some(run.end));
        }
        let has_more = count == runs && last.is_some_and(|last| self.blocks.count(&(last..end)).0 > 0);
        match last {
            Some(last) if has_more => Some(last),
            None if part.is_none() => None,
            _ => Some(end),
        }
    }

    /// The beginning of `span` with so many parts in it at most, and as many more as lie over the last of
    /// them.
    pub(super) fn within_parts(&self, span: Span, parts: usize) -> Span {
        let last = self.cold.as_deref().and_then(|cold| cold.within(&span).nth(parts.saturating_sub(1)));
        let end = last.map_or(span.end, |row| row.span.end.min(span.end));
        span.start..end
    }

    /// Adds `span` and answers how many of its addresses were new.
    pub fn insert_run(&mut self, span: Span) -> BlockCount {
        if self.blocks.count(&span).0 == 0 {
            return self.insert_absent_run(span);
        }
        let mut fresh = BlockSet::of(span.clone());
        fresh.subtract(&self.blocks);
        self.blocks.insert(span);
        let count = fresh.len();
        self.journal().note_added(fresh);
        count
    }

    /// Takes `span` out and answers how many of its addresses were in.
    pub fn remove_run(&mut self, span: &Span) -> BlockCount {
        if span.is_empty() {
            return BlockCount(0);
        }
        if self.blocks.count(span).0 == span.end.0 - span.start.0 {
            return self.remove_present_run(span);
        }
        if self.cold.is_some() {
            return self.subtract(&BlockSet::of(span.clone()));
        }
        self.extract(span).len()
    }

    /// The path of every write: a run that is all new needs no set arithmetic.
    fn insert_absent_run(&mut self, span: Span) -> BlockCount {
        let added = self.blocks.insert(span.clone());
        let journal = self.journal();
        if journal.removed.count(&span).0 == 0 {
            journal.added.insert(span);
        } else {
            journal.note_added(BlockSet::of(span));
        }
        added
    }

    /// The path of every overwrite: a run that is all there needs no set arithmetic.
    fn remove_present_run(&mut self, span: &Span) -> BlockCount {
        let removed = self.blocks.remove(span);
        let journal = self.journal();
        let never = journal.added.count(span);
        if never == removed {
            journal.added.remove(span);
        } else if never.0 == 0 {
            journal.removed.insert(span.clone());
        } else {
            journal.note_removed(BlockSet::of(span.clone()));
        }
        removed
    }

    /// Takes what is at hand within `span` out and answers with it.
    pub fn extract(&mut self, span: &Span) -> BlockSet {
        let part = self.blocks.extract(span);
        if !part.is_empty() {
            self.journal().note_removed(part.clone());
        }
        part
    }

    /// Takes some of the part within `span` out: so many runs at most of what is at hand, then part by part.
    /// `None`: there is none.
    pub(super) fn take_piece(
        &mut self,
        span: &Span,
        runs: usize,
        parts: Look<'_>,
    ) -> Looked<Option<BlockSet>> {
        if self.blocks.count(span).0 > 0 {
            let last = if runs == usize::MAX { None } else { self.blocks.runs_within(span).nth(runs - 1) };
            return Ok(Some(self.extract(&(span.start..last.map_or(span.end, |last| last.end)))));
        }
        let mut before = self.rows().len();
        while let Some(cold) = &mut self.cold
            && let Some(index) = cold.last_within(span, before)
        {
            before = index;
            let row = &cold.rows()[index];
            let part = parts.get(row)?;
            let is_within = span.start <= row.span.start && row.span.end <= span.end;
            let mut piece = part.part(span);
            piece.subtract(cold.removed());
            if is_within {
                cold.drop_row(index, &part);
            } else {
                cold.remove(piece.clone());
            }
            if cold.is_empty() {
                self.cold = None;
            }
            if !piece.is_empty() {
                self.journal().note_removed(piece.clone());
                return Ok(Some(piece));
            }
        }
        Ok(None)
    }

    /// Adds all of `other` and answers how many were new.
    pub fn unite(&mut self, mut other: BlockSet) -> BlockCount {
        other.subtract(&self.blocks);
        let count = other.len();
        self.journal().note_added(other.clone());
        self.blocks.unite(other);
        count
    }

    /// Takes all of `other` out and answers how many were in, as far as memory shows.
    pub fn subtract(&mut self, other: &BlockSet) -> BlockCount {
        let gone = self.leave(other);
        let count = gone.len();
        self.journal().note_removed(gone);
        count
    }

    /// Takes all of `other` out without a trace in the journal, and answers what was in.
    fn leave(&mut self, other: &BlockSet) -> BlockSet {
        let mut gone = other.clone();
        gone.intersect(&self.blocks);
        self.blocks.subtract(&gone);
        if let Some(cold) = &mut self.cold {
            let mut rest = other.clone();
            rest.subtract(&gone);
            gone.unite(cold.remove(rest));
            if cold.is_empty() {
                self.cold = None;
            }
        }
        gone
    }

    /// Takes in a set that shares no address with this one, journal and all: the journal is from now on
    /// relative to the union of what the two were at the last checkpoint. Panics if they overlap.
    pub fn absorb(&mut self, other: Self) {
        let (expected, was_empty) =
            (other.blocks.len(), self.is_empty() && self.journal.as_ref().is_none_or(|one| one.is_empty()));
        if was_empty {
            *self = other;
            return;
        }
        match (&mut self.cold, other.cold) {
            (_, None) => {}
            (Some(mine), Some(theirs)) => mine.absorb(*theirs),
            (none, theirs) => *none = theirs,
        }
        let added = self.blocks.unite(other.blocks);
        assert_eq!(added, expected, "two sets that partition something overlap");
        // An address may have left one set for good and been in the base of the other only if the bases
        // overlapped, which they cannot: so the two journals do not contradict each other.
        if let Some(theirs) = other.journal {
            let journal = self.journal();
            journal.added.unite(theirs.added);
            journal.removed.unite(theirs.removed);
        }
    }

    /// What changed since the last call. The caller must store it: it is not reported again.
    pub fn take_changes(&mut self) -> SetChanges {
        self.blocks.tidy();
        let mut changes = self.journal.take().map_or_else(SetChanges::default, |journal| *journal);
        changes.added.optimize();
        changes.removed.optimize();
        changes
    }

    /// Applies stored changes, which leave no trace in the journal.
    /// At an error the set is in between.
    pub fn apply(&mut self, changes: SetChanges) -> Result<()> {
        let (add, remove) = (changes.added.len(), changes.removed.len());
        if self.leave(&changes.removed).len() != remove || self.blocks.unite(changes.added) != add {
            return Err(Error::damaged("address set", "stored changes do not fit the state they belong to"));
        }
        Ok(())
    }

    /// At the last call of [`AddressSet::take_changes`] this was the union of these, which have nothing to
    /// report: what lies on disk is from now on what lies there of them.
    pub(super) fn rebase<'a>(&mut self, bases: impl Iterator<Item = &'a Self>) {
        let mut base = Self::new();
        bases.for_each(|one| base.absorb(one.clone()));
        if let Some(journal) = &self.journal {
            base.leave(&journal.removed);
            base.blocks.unite(journal.added.clone());
        }
        debug_assert_eq!(base.len(), self.len(), "a set is not what it was made from");
        base.journal = self.journal.take();
        *self = base;
        self.tidy();
    }

    /// The rows of its parts, what is in no part, and what of the parts is not in the set any more.
    pub(super) fn into_pieces(self) -> (Vec<PartRow>, SetChanges) {
        let (rows, removed) = self.cold.map_or_else(Default::default, |cold| cold.into_pieces());
        (rows, SetChanges { added: self.blocks, removed })
    }
}

#[cfg(test)]
impl AddressSet {
    /// All of the addresses, none of which lies on disk.
    pub(crate) fn blocks(&self) -> &BlockSet {
        assert!(self.cold.is_none(), "part of it lies on disk");
        &self.blocks
    }

    pub(super) fn runs(&self) -> super::blocks::Runs<'_> {
        self.blocks().runs()
    }

    pub(super) fn part(&self, span: &Span) -> BlockSet {
        self.blocks().part(span)
    }
}
