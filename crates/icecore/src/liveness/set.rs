//! A set of log addresses that remembers what changed since the last checkpoint.

use super::blocks::{BlockSet, Runs, Span};
use crate::units::{BlockCount, LogAddress};
use crate::{Error, Result};

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
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }

    /// Notes that `fresh`, which was not in the set, now is.
    fn note_added(&mut self, mut fresh: BlockSet) {
        if self.removed.is_empty() {
            self.added.unite(fresh);
            return;
        }
        let mut back = fresh.clone();
        back.intersect(&self.removed);
        self.removed.subtract(&back);
        fresh.subtract(&back);
        self.added.unite(fresh);
    }

    /// Notes that `gone`, which was in the set, no longer is.
    fn note_removed(&mut self, mut gone: BlockSet) {
        if self.added.is_empty() {
            self.removed.unite(gone);
            return;
        }
        let mut never = gone.clone();
        never.intersect(&self.added);
        self.added.subtract(&never);
        gone.subtract(&never);
        self.removed.unite(gone);
    }
}

/// A set of log addresses of one stream, with a journal of its changes.
///
/// The journal is relative to the state at the last [`AddressSet::take_changes`], and minimal: what was
/// added and removed again in between leaves no trace.
#[derive(Clone, Debug, Default)]
pub struct AddressSet {
    blocks: BlockSet,
    /// None while there are no changes: most sets of a long history have not changed for ages.
    journal: Option<Box<SetChanges>>,
}

/// Equal when they hold the same addresses, whatever their journals say.
impl PartialEq for AddressSet {
    fn eq(&self, other: &Self) -> bool {
        self.blocks == other.blocks
    }
}

impl AddressSet {
    /// The empty set, with nothing to report.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A set as it came from a checkpoint: nothing to report.
    #[must_use]
    pub fn from_stored(blocks: BlockSet, journal: SetChanges) -> Self {
        Self { blocks, journal: (!journal.is_empty()).then(|| Box::new(journal)) }
    }

    fn journal(&mut self) -> &mut SetChanges {
        self.journal.get_or_insert_default()
    }

    /// Puts the set into a form that takes little memory.
    pub(super) fn tidy(&mut self) {
        self.blocks.tidy();
    }

    /// The addresses, without the journal.
    #[must_use]
    pub const fn blocks(&self) -> &BlockSet {
        &self.blocks
    }

    /// Number of addresses.
    #[must_use]
    pub fn len(&self) -> BlockCount {
        self.blocks.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Whether `address` is in the set.
    #[must_use]
    pub fn contains(&self, address: LogAddress) -> bool {
        self.blocks.contains(address)
    }

    /// Number of addresses within `span`.
    #[must_use]
    pub fn count(&self, span: &Span) -> BlockCount {
        self.blocks.count(span)
    }

    /// Maximal runs, ascending.
    #[must_use]
    pub fn runs(&self) -> Runs<'_> {
        self.blocks.runs()
    }

    /// The part within `span`.
    #[must_use]
    pub fn part(&self, span: &Span) -> BlockSet {
        self.blocks.part(span)
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

    /// Takes the part within `span` out and answers with it.
    pub fn extract(&mut self, span: &Span) -> BlockSet {
        let part = self.blocks.extract(span);
        if !part.is_empty() {
            self.journal().note_removed(part.clone());
        }
        part
    }

    /// Takes some of the part within `span` out, so many runs at most. `None`: there is none.
    pub(super) fn take_piece(&mut self, span: &Span, runs: usize) -> Option<BlockSet> {
        if self.blocks.count(span).0 == 0 {
            return None;
        }
        let last = if runs == usize::MAX { None } else { self.blocks.runs_within(span).nth(runs - 1) };
        Some(self.extract(&(span.start..last.map_or(span.end, |last| last.end))))
    }

    /// Adds all of `other` and answers how many were new.
    pub fn unite(&mut self, mut other: BlockSet) -> BlockCount {
        other.subtract(&self.blocks);
        let count = other.len();
        self.journal().note_added(other.clone());
        self.blocks.unite(other);
        count
    }

    /// Takes all of `other` out and answers how many were in.
    pub fn subtract(&mut self, other: &BlockSet) -> BlockCount {
        let mut gone = other.clone();
        gone.intersect(&self.blocks);
        let count = gone.len();
        self.blocks.subtract(&gone);
        self.journal().note_removed(gone);
        count
    }

    /// Takes in a set that shares no address with this one, journal and all: the journal is from now on
    /// relative to the union of what the two were at the last checkpoint. Panics if they overlap.
    pub fn absorb(&mut self, other: Self) {
        let (expected, was_empty) =
            (other.len(), self.blocks.is_empty() && self.journal.as_ref().is_none_or(|one| one.is_empty()));
        if was_empty {
            *self = other;
            return;
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
    ///
    /// # Errors
    ///
    /// `Damaged` when they add what is there or remove what is not; the set is then in between.
    pub fn apply(&mut self, changes: SetChanges) -> Result<()> {
        let (add, remove) = (changes.added.len(), changes.removed.len());
        if self.blocks.subtract(&changes.removed) != remove || self.blocks.unite(changes.added) != add {
            return Err(Error::damaged("address set", "stored changes do not fit the state they belong to"));
        }
        Ok(())
    }

    /// The addresses, giving up the journal.
    #[must_use]
    pub fn into_blocks(self) -> BlockSet {
        self.blocks
    }
}
