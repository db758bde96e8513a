//! Versions that were destroyed and are still in the tree: doomed.
//!
//! A destruction dooms its versions, all in one step that costs little. Taking them out costs what their sets
//! cost to merge: that is done afterwards, one version at a time. In between, every rule of the algebra
//! holds: a doomed version is a version like any other, only that no caller finds it. One below which several
//! branches hang waits until one is left. Until then it is *thinned*, so that it owns nothing but what is
//! reached below it. In which order they go, and what else happens meanwhile, makes no difference to what is
//! freed in the end.
//!
//! A destroyed version that a reader holds is not doomed before its last reader has gone. Until then it is a
//! version like any other, which uses what it reaches.

use super::blocks::Span;
use super::fault::HistoryFault;
use super::thinning::Suspects;
use super::versions::{History, VersionNode};
use crate::units::{BlockCount, Stream, VersionId};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};

/// Stands in [`Doomed::freeing`] for "not known".
const UNKNOWN: u64 = u64::MAX;

/// Which versions are doomed.
#[derive(Debug, Default)]
pub(super) struct Doomed {
    /// All of them.
    all: BTreeSet<VersionId>,
    /// Destroyed versions that are read. None of them is doomed yet.
    read: BTreeSet<VersionId>,
    /// Those below which one branch at most hangs.
    deletable: BTreeSet<VersionId>,
    /// Those below which several hang, and which may own what no version below reaches: where that may be.
    thinnable: BTreeMap<VersionId, Box<Suspects>>,
    /// Those that cannot be deleted or thinned for now: part of a set cannot be read.
    stuck: BTreeSet<VersionId>,
    /// What deleting and thinning them will free, or [`UNKNOWN`]. Atomic: reporting it needs no exclusive
    /// access.
    freeing: AtomicU64,
    /// What the versions next to doomed ones alone reach, as far as it is known. It depends on more than
    /// their neighbours.
    used: Mutex<BTreeMap<VersionId, u64>>,
    /// Grows with every piece that was freed, or looked at.
    pieces: u64,
}

impl Doomed {
    pub(super) fn contains(&self, version: VersionId) -> bool {
        !self.all.is_empty() && self.all.contains(&version)
    }

    /// Where a version may own what no version below it reaches.
    pub(super) fn suspects(&self, version: VersionId) -> Option<&Suspects> {
        self.thinnable.get(&version).map(|suspects| &**suspects)
    }

    pub(super) fn suspects_mut(&mut self, version: VersionId) -> Option<&mut Suspects> {
        self.thinnable.get_mut(&version).map(|suspects| &mut **suspects)
    }

    pub(super) fn cached_used(&self, version: VersionId) -> Option<u64> {
        self.used.lock().get(&version).copied()
    }

    pub(super) fn cache_used(&self, version: VersionId, used: u64) {
        self.used.lock().insert(version, used);
    }

    pub(super) fn forget_used(&mut self, version: VersionId) {
        self.used.get_mut().remove(&version);
    }

    /// A piece of the work on a version is done, which freed so many blocks.
    pub(super) fn freed(&mut self, version: VersionId, blocks: u64) {
        self.pieces += 1;
        self.used.get_mut().clear();
        let doomed = self.all.contains(&version);
        let freeing = self.freeing.get_mut();
        if !doomed {
            *freeing = UNKNOWN;
        } else if *freeing != UNKNOWN {
            // The count may lack what could not be read because of damage.
            *freeing = freeing.checked_sub(blocks).unwrap_or(UNKNOWN);
        }
    }

    /// The version is gone.
    pub(super) fn deleted(&mut self, version: VersionId) {
        self.used.get_mut().clear();
        let doomed = self.all.remove(&version);
        self.deletable.remove(&version);
        self.stuck.remove(&version);
        self.thinnable.remove(&version);
        if !doomed {
            *self.freeing.get_mut() = UNKNOWN;
        }
        self.settle();
    }

    /// The version owns nothing but what is reached below it.
    pub(super) fn thinned(&mut self, version: VersionId) {
        self.thinnable.remove(&version);
        self.settle();
    }

    fn settle(&mut self) {
        if self.deletable.is_empty() && self.thinnable.is_empty() {
            *self.freeing.get_mut() = 0;
        }
    }

    /// Blocks that the version owns died below it, and perhaps no other version reaches them now. False if
    /// the version is going to be deleted anyway.
    fn died(&mut self, version: VersionId, stream: Stream, span: &Span) -> bool {
        *self.freeing.get_mut() = UNKNOWN;
        self.used.get_mut().clear();
        let waits = !self.deletable.contains(&version);
        if waits && !span.is_empty() {
            let suspects = self.thinnable.entry(version).or_insert_with(|| Box::new(Suspects::none()));
            suspects.note(stream, span);
        }
        waits
    }

    /// A new branch, which reaches all that the version does: so many there are now.
    pub(super) fn branched(&mut self, version: VersionId, branches: usize) {
        if !self.contains(version) {
            return;
        }
        *self.freeing.get_mut() = UNKNOWN;
        self.used.get_mut().clear();
        self.thinnable.remove(&version);
        if branches > 1 {
            self.deletable.remove(&version);
        } else {
            self.deletable.insert(version);
        }
    }

    /// So many branches hang below the version now, which may reach less than those before. Answers whether
    /// it has to stay.
    fn review(&mut self, version: VersionId, branches: usize) -> bool {
        self.used.get_mut().clear();
        let waits = branches > 1;
        let changed = if waits {
            self.thinnable.insert(version, Box::new(Suspects::all()));
            self.deletable.remove(&version)
        } else {
            self.thinnable.remove(&version);
            self.deletable.insert(version)
        };
        if changed {
            *self.freeing.get_mut() = UNKNOWN;
        }
        waits
    }
}

impl History {
    /// Dooms a version: it is to be deleted once at most one branch hangs below it, and thinned until then.
    pub fn doom(&mut self, version: VersionId) -> Result<(), HistoryFault> {
        let branches = self.version(version)?.children().len();
        self.doomed.read.remove(&version);
        self.doomed.all.insert(version);
        self.doomed.branched(version, branches);
        self.review(version);
        Ok(())
    }

    /// A version was destroyed, and is read: [`History::doom_unread`] dooms it.
    pub(crate) fn doom_when_unread(&mut self, version: VersionId) -> Result<(), HistoryFault> {
        self.version(version)?;
        self.doomed.read.insert(version);
        Ok(())
    }

    /// Dooms the destroyed versions that are not read any more.
    pub(crate) fn doom_unread(&mut self, is_read: impl Fn(VersionId) -> bool) -> Result<(), HistoryFault> {
        let unread: Vec<VersionId> = self.read().filter(|version| !is_read(*version)).collect();
        unread.into_iter().try_for_each(|version| self.doom(version))
    }

    /// Destroyed versions that were read when [`History::doom_unread`] looked last.
    pub(crate) fn read(&self) -> impl Iterator<Item = VersionId> {
        self.doomed.read.iter().copied()
    }

    /// Whether a version is one of [`History::read`].
    pub(crate) fn is_read(&self, version: VersionId) -> bool {
        self.doomed.read.contains(&version)
    }

    /// Whether a version was destroyed: it is doomed, or will be when its readers have gone.
    pub(crate) fn is_destroyed(&self, version: VersionId) -> bool {
        self.is_doomed(version) || self.is_read(version)
    }

    /// Less may be reached below a version than before, or there are other branches. If it is doomed, it can
    /// perhaps be deleted or thinned now, and so can those above it.
    pub(super) fn review(&mut self, version: VersionId) {
        let mut at = Some(version);
        while let Some(version) = at
            && self.doomed.contains(version)
        {
            let node = self.node_mut(version);
            let (branches, parent) = (node.children.len(), node.parent);
            // When one is deleted, those above it are reviewed.
            if !self.doomed.review(version, branches) {
                return;
            }
            at = parent;
        }
    }

    /// Blocks died in a head right below this version. Their owner may be thinned if it is doomed and only
    /// doomed versions lie in between.
    pub(super) fn died_below(&mut self, version: VersionId, stream: Stream, span: &Span) {
        let (mut at, mut span) = (Some(version), span.clone());
        while let Some(version) = at
            && self.doomed.contains(version)
            && !span.is_empty()
        {
            let node = &self.versions[&version];
            let (low, parent) = (self.low_mark(node).of(stream), node.parent);
            if !self.doomed.died(version, stream, &(span.start.max(low)..span.end)) {
                return;
            }
            span.end = span.end.min(low);
            at = parent;
        }
    }

    /// The next doomed version that can be deleted, or if there is none, thinned. A deletion may be the end
    /// of what had to be thinned. The newest comes first. Where a whole branch goes, that is a leaf, whose
    /// sets need not be merged with others.
    pub fn next_doomed(&self) -> Option<VersionId> {
        let free = |version: &&VersionId| !self.doomed.stuck.contains(version);
        let deletable = self.doomed.deletable.iter().rev().find(free);
        deletable.or_else(|| self.doomed.thinnable.keys().rev().find(free)).copied()
    }

    /// Grows with every piece of the work on doomed versions that is done, whether it frees anything or not.
    pub(crate) const fn pieces_done(&self) -> u64 {
        self.doomed.pieces
    }

    /// A version cannot be deleted or thinned for now: others are, until [`History::try_again`].
    pub(crate) fn set_aside(&mut self, version: VersionId) {
        self.doomed.stuck.insert(version);
    }

    /// One that was set aside.
    pub(crate) fn next_stuck(&self) -> Option<VersionId> {
        self.doomed.stuck.first().copied()
    }

    /// What was set aside is tried again.
    pub(crate) fn try_again(&mut self) {
        self.doomed.stuck.clear();
    }

    /// All doomed versions.
    pub(crate) fn doomed(&self) -> impl Iterator<Item = VersionId> {
        self.doomed.all.iter().copied()
    }

    /// Whether a version is doomed.
    pub fn is_doomed(&self, version: VersionId) -> bool {
        self.doomed.all.contains(&version)
    }

    /// The destroyed versions that will be gone when readers have gone and all that can be is deleted.
    pub(crate) fn vanishing(&self) -> BTreeSet<VersionId> {
        let key = |version: VersionId| (self.version(version).is_ok_and(|node| node.is_head()), version);
        // From below: a version has a higher number than its parent unless it is a head, which is a leaf.
        let mut open: BTreeSet<(bool, VersionId)> =
            self.doomed.deletable.iter().chain(&self.doomed.read).map(|version| key(*version)).collect();
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
            let above = node.parent().filter(|parent| self.is_destroyed(*parent));
            open.extend(above.map(|parent| (false, parent)));
        }
        going.into_keys().collect()
    }

    /// Takes out the doomed versions below which at most one branch hangs, as if they had never been,
    /// whatever their sets say. For a caller that makes all sets anew. Answers which they were.
    pub(crate) fn forget_doomed(&mut self) -> Vec<VersionId> {
        let mut gone = Vec::new();
        while let Some(version) = self.doomed.deletable.last().copied() {
            self.forget(version);
            gone.push(version);
        }
        gone
    }

    /// Doomed versions of which something may be freed, in number.
    pub fn doomed_count(&self) -> usize {
        self.doomed.deletable.len() + self.doomed.thinnable.len()
    }

    /// What deleting and thinning the doomed versions will free: what only they reach.
    pub fn freeing(&self) -> Result<BlockCount, HistoryFault> {
        let known = self.doomed.freeing.load(Ordering::Relaxed);
        if known != UNKNOWN {
            return Ok(BlockCount(known));
        }
        let freeing = self.count_freeing()?;
        self.doomed.freeing.store(freeing.0, Ordering::Relaxed);
        Ok(freeing)
    }

    fn count_freeing(&self) -> Result<BlockCount, HistoryFault> {
        let thinnable = self.doomed.thinnable.keys().copied();
        if self.doomed.deletable.is_empty() {
            let freed: Result<Vec<u64>, _> =
                thinnable.map(|version| self.freed_by_thinning(version)).collect();
            return Ok(BlockCount(freed?.into_iter().sum()));
        }
        let open: Vec<VersionId> = self.doomed.deletable.iter().copied().chain(thinnable).collect();
        self.freed_by_deleting_set(&self.going(&open))
    }

    /// Spares [`History::freeing`] the counting, for a caller that has just doomed versions and knows what
    /// that frees.
    pub(crate) fn know_freeing(&self, blocks: BlockCount) {
        // A read that fails just now says nothing about it.
        debug_assert!(
            self.freeing().map_or(true, |known| known == blocks),
            "what is being freed is not what was planned"
        );
        self.doomed.freeing.store(blocks.0, Ordering::Relaxed);
    }

    /// These versions, and all doomed ones that are connected with them through doomed ones alone: what
    /// depends on each other when these are doomed.
    pub fn going(&self, chosen: &[VersionId]) -> Vec<VersionId> {
        let mut going: BTreeSet<VersionId> = chosen.iter().copied().collect();
        let mut open = chosen.to_vec();
        while let Some(version) = open.pop() {
            let Ok(node) = self.version(version) else { continue };
            let next = node.children().iter().copied().chain(node.parent());
            open.extend(next.filter(|next| self.doomed.contains(*next) && going.insert(*next)));
        }
        going.into_iter().collect()
    }

    /// Whether a version right above or below is doomed.
    pub(super) fn is_next_to_doomed(&self, version: &VersionNode) -> bool {
        let is_doomed = |version: &VersionId| self.doomed.contains(*version);
        version.parent.as_ref().is_some_and(is_doomed) || version.children.iter().any(is_doomed)
    }
}
