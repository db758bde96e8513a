//! Versions that were destroyed and are still in the tree: doomed.
//!
//! A destruction dooms its versions, all in one step that costs little; taking them out, which costs what their sets
//! cost to merge, is done afterwards, one at a time. In between, every rule of the algebra holds: a doomed version is
//! a version like any other, only that nobody finds it. One below which several branches hang waits until one is
//! left. In which order they go, and what else happens meanwhile, makes no difference to what is freed in the end.

use super::fault::HistoryFault;
use super::versions::History;
use crate::units::{BlockCount, VersionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Stands in [`Doomed::freeing`] for "not known".
const UNKNOWN: u64 = u64::MAX;

/// Which versions are doomed.
#[derive(Debug, Default)]
pub(super) struct Doomed {
    /// All of them.
    all: BTreeSet<VersionId>,
    /// Those below which one branch at most hangs.
    deletable: BTreeSet<VersionId>,
    /// Those that cannot be deleted for now: part of a set cannot be read.
    stuck: BTreeSet<VersionId>,
    /// What deleting them will free, or [`UNKNOWN`]. Atomic so that telling it needs no exclusive access.
    freeing: AtomicU64,
}

impl Doomed {
    /// So many blocks that go with this version are free.
    pub(super) fn freed(&mut self, version: VersionId, blocks: u64) {
        let doomed = self.all.contains(&version);
        let freeing = self.freeing.get_mut();
        if !doomed {
            *freeing = UNKNOWN;
        } else if *freeing != UNKNOWN {
            // What could not be told because of damage may have been left out of the count.
            *freeing = freeing.checked_sub(blocks).unwrap_or(UNKNOWN);
        }
    }

    /// The version is gone.
    pub(super) fn deleted(&mut self, version: VersionId) {
        let doomed = self.all.remove(&version);
        self.deletable.remove(&version);
        self.stuck.remove(&version);
        let freeing = self.freeing.get_mut();
        if self.deletable.is_empty() {
            *freeing = 0;
        } else if !doomed {
            *freeing = UNKNOWN;
        }
    }

    /// Something directly below this version changed: it lost blocks that this one reaches, and that nobody else may reach
    /// now, or it is new.
    pub(super) fn changed_below(&mut self, version: VersionId) {
        if !self.all.is_empty() && self.all.contains(&version) {
            *self.freeing.get_mut() = UNKNOWN;
        }
    }

    /// So many branches hang below the version now.
    pub(super) fn review(&mut self, version: VersionId, branches: usize) {
        if !self.all.contains(&version) {
            return;
        }
        let changed = match branches {
            0 | 1 => self.deletable.insert(version),
            _ => self.deletable.remove(&version),
        };
        if changed {
            *self.freeing.get_mut() = UNKNOWN;
        }
    }
}

impl History {
    /// Dooms a version: it is to be deleted as soon as no more than one branch hangs below it.
    ///
    /// # Errors
    ///
    /// [`HistoryFault::Unknown`].
    pub fn doom(&mut self, version: VersionId) -> Result<(), HistoryFault> {
        let branches = self.version(version)?.children().len();
        self.doomed.all.insert(version);
        self.doomed.changed_below(version);
        self.doomed.review(version, branches);
        Ok(())
    }

    /// The next doomed version that can be deleted. The newest first: where a whole branch goes, that is a leaf,
    /// whose sets need not be merged with others.
    #[must_use]
    pub fn next_doomed(&self) -> Option<VersionId> {
        self.doomed.deletable.iter().rev().find(|version| !self.doomed.stuck.contains(version)).copied()
    }

    /// A version cannot be deleted for now: others are, until [`History::try_again`].
    pub(crate) fn set_aside(&mut self, version: VersionId) {
        self.doomed.stuck.insert(version);
    }

    /// One that was set aside.
    pub(crate) fn next_stuck(&self) -> Option<VersionId> {
        self.doomed.stuck.first().copied()
    }

    /// What was set aside may be deleted again.
    pub(crate) fn try_again(&mut self) {
        self.doomed.stuck.clear();
    }

    /// All doomed versions.
    pub(crate) fn doomed(&self) -> impl Iterator<Item = VersionId> {
        self.doomed.all.iter().copied()
    }

    /// Whether a version is doomed.
    #[must_use]
    pub fn is_doomed(&self, version: VersionId) -> bool {
        self.doomed.all.contains(&version)
    }

    /// Those of the doomed versions that will be gone when all is deleted that can be.
    pub(crate) fn vanishing(&self) -> BTreeSet<VersionId> {
        let deletable: Vec<VersionId> = self.doomed.deletable.iter().copied().collect();
        self.going(&deletable).into_iter().collect()
    }

    /// Doomed versions that can be deleted, in number.
    #[must_use]
    pub fn doomed_count(&self) -> usize {
        self.doomed.deletable.len()
    }

    /// What deleting the doomed versions will free: what nobody reaches but they.
    ///
    /// # Errors
    ///
    /// [`HistoryFault::Unread`].
    pub fn freeing(&self) -> Result<BlockCount, HistoryFault> {
        let known = self.doomed.freeing.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return Ok(BlockCount(known));
        }
        let deletable: Vec<VersionId> = self.doomed.deletable.iter().copied().collect();
        let going = self.going(&deletable);
        let freeing = self.freed_by_deleting_set(&going)?;
        self.doomed.freeing.store(freeing.0, Ordering::Relaxed);
        Ok(freeing)
    }

    /// Spares [`History::freeing`] the counting, for whoever has just doomed versions and knows what that comes to.
    pub(crate) fn know_freeing(&self, blocks: BlockCount) {
        // A read that fails just now says nothing about it.
        debug_assert!(
            self.freeing().map_or(true, |known| known == blocks),
            "what is being freed is not what was planned"
        );
        self.doomed.freeing.store(blocks.0, Ordering::Relaxed);
    }

    /// The versions that go when these are doomed: not those that have to stay because several branches are left below
    /// them; but also those that were doomed before and have only one branch left then.
    #[must_use]
    pub fn going(&self, chosen: &[VersionId]) -> Vec<VersionId> {
        let key = |version: VersionId| (self.version(version).is_ok_and(|node| node.is_head()), version);
        // From below: a version has a higher number than its parent unless it is a head, which is a leaf.
        let mut open: BTreeSet<(bool, VersionId)> = chosen.iter().map(|version| key(*version)).collect();
        // How many branches are left below each version that goes: one at most.
        let mut going: BTreeMap<VersionId, usize> = BTreeMap::new();
        while let Some((_, version)) = open.pop_last() {
            let Ok(node) = self.version(version) else { continue };
            let left: usize =
                node.children().iter().map(|child| going.get(child).copied().unwrap_or(1)).sum();
            if left > 1 {
                continue;
            }
            going.insert(version, left);
            let doomed = node.parent().filter(|parent| self.doomed.all.contains(parent));
            open.extend(doomed.map(|parent| (false, parent)));
        }
        going.into_keys().collect()
    }
}
