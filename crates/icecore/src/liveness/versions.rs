//! The tree of versions, and the rules by which blocks are born, die and are freed.
//!
//! Every version has an *owned* set (live blocks born on the edge from its parent to it) and a *dead* set
//! (blocks that its parent reaches and it does not). What must hold at all times:
//!
//! - The owned sets of all versions partition the live blocks of the pool.
//! - A version reaches `owned ∪ (what its parent reaches − dead)`; `dead` is part of what the parent reaches.
//! - `owned` lies at or above the parent's mark and below the version's own; `dead` lies below the parent's.
//!
//! "Parent" always means the tree, never the order of names in a dataset: after a rollback the two differ.

use super::blocks::Span;
use super::consolidate::SetLimits;
use super::doomed::Doomed;
use super::fault::HistoryFault;
use super::part::{PartSource, Parts};
use super::streams::{FreedSink, StreamSets, span_of};
use crate::units::{LogAddress, Marks, Run, Stream, VersionId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Stands in [`VersionNode::used`] for "not known".
const UNKNOWN: u64 = u64::MAX;

/// One version: a snapshot if it has a mark, else a head.
#[derive(Debug)]
pub struct VersionNode {
    pub(super) id: VersionId,
    pub(super) parent: Option<VersionId>,
    pub(super) children: Vec<VersionId>,
    pub(super) mark: Option<Marks>,
    pub(super) owned: StreamSets,
    pub(super) dead: StreamSets,
    /// Blocks that the version reaches.
    pub(super) referenced: u64,
    /// Blocks that only this version reaches, or [`UNKNOWN`]. Atomic so that listing needs no exclusive
    /// access.
    used: AtomicU64,
    /// The versions of the last checkpoint whose sets, united, are what the journals of these sets build on.
    pub(super) sources: Vec<VersionId>,
    /// Whether the last checkpoint knows this version.
    pub(super) stored: bool,
    /// Memory for what of the sets could be in parts on disk and was not at the last checkpoint.
    pub(super) heavy: u64,
}

impl VersionNode {
    pub(super) fn new(id: VersionId, parent: Option<VersionId>, mark: Option<Marks>) -> Self {
        Self {
            id,
            parent,
            children: Vec::new(),
            mark,
            owned: StreamSets::default(),
            dead: StreamSets::default(),
            referenced: 0,
            used: AtomicU64::new(UNKNOWN),
            sources: Vec::new(),
            stored: false,
            heavy: 0,
        }
    }

    /// Its number.
    pub const fn id(&self) -> VersionId {
        self.id
    }

    /// The snapshot it descends from.
    pub const fn parent(&self) -> Option<VersionId> {
        self.parent
    }

    /// The versions that descend from it directly.
    pub fn children(&self) -> &[VersionId] {
        &self.children
    }

    /// The position of every stream when the snapshot was taken. None for a head.
    pub const fn mark(&self) -> Option<Marks> {
        self.mark
    }

    /// Whether it can still be written.
    pub const fn is_head(&self) -> bool {
        self.mark.is_none()
    }

    /// Live blocks born on the edge from the parent.
    pub const fn owned(&self) -> &StreamSets {
        &self.owned
    }

    /// Blocks that the parent reaches and this version does not.
    pub const fn dead(&self) -> &StreamSets {
        &self.dead
    }

    pub(super) fn weigh(&mut self, limits: &SetLimits) {
        let sets = [&self.owned, &self.dead].into_iter().flat_map(StreamSets::all);
        self.heavy = sets.map(|set| set.heavy(limits)).sum();
    }

    /// The cached count of blocks that only this version reaches.
    pub(super) fn cached_used(&self) -> Option<u64> {
        Some(self.used.load(Ordering::Relaxed)).filter(|&used| used != UNKNOWN)
    }

    pub(super) fn cache_used(&self, used: u64) {
        self.used.store(used, Ordering::Relaxed);
    }

    pub(super) fn forget_used(&self) {
        self.cache_used(UNKNOWN);
    }
}

/// The tree of versions of a pool. Reading needs shared access, everything else exclusive access; no
/// operation on the path of a write or a snapshot depends on how many versions there are, except by the
/// logarithm of finding one.
#[derive(Debug, Default)]
pub struct History {
    /// Each in its own place: the nodes of a map that grows at its end are half empty.
    pub(super) versions: BTreeMap<VersionId, Box<VersionNode>>,
    /// The number of the next version.
    pub(super) next: VersionId,
    /// Live blocks in each stream.
    pub(super) live: [u64; 3],
    /// Versions that differ from the last checkpoint.
    pub(super) changed: BTreeSet<VersionId>,
    /// Versions of the last checkpoint that are gone.
    pub(super) removed: Vec<VersionId>,
    /// Destroyed versions that are still here.
    pub(super) doomed: Doomed,
    /// How parts of sets are read that lie on disk.
    pub(super) parts: Parts,
    /// How much of sets is kept in memory.
    pub(super) limits: SetLimits,
    /// The sum of [`VersionNode::heavy`].
    pub(super) heavy: u64,
}

/// What of a run was born before a version's parent was sealed, at `mark`, and since: dropped by the version,
/// the first part is dead, and the second gone.
pub(crate) fn parted(run: &Run, mark: &Marks) -> (Span, Span) {
    let middle = mark.of(run.stream).clamp(run.start, run.end());
    (run.start..middle, middle..run.end())
}

impl History {
    /// A history without versions.
    pub fn new() -> Self {
        Self::default()
    }

    /// Where parts of sets are read from, and how much of sets is kept in memory.
    pub fn keep_in(&mut self, source: Arc<dyn PartSource>, limits: SetLimits) {
        self.parts = Parts(Some(source));
        self.limits = limits;
        self.versions.values_mut().for_each(|node| node.weigh(&limits));
        self.heavy = self.versions.values().map(|node| node.heavy).sum();
    }

    /// How much of sets is kept in memory.
    pub const fn limits(&self) -> SetLimits {
        self.limits
    }

    /// Memory for what of sets could be in parts on disk and is not, as of the last checkpoint.
    #[cfg(test)]
    pub(crate) const fn in_memory(&self) -> u64 {
        self.heavy
    }

    /// Whether so much of sets is in memory that it should be written to parts on disk, as of the last
    /// checkpoint.
    pub const fn is_due(&self) -> bool {
        self.heavy > self.limits.change_bytes
    }

    /// The version with this number.
    pub fn version(&self, version: VersionId) -> Result<&VersionNode, HistoryFault> {
        self.versions.get(&version).map(|node| &**node).ok_or(HistoryFault::Unknown(version))
    }

    /// All versions, by number.
    pub fn versions(&self) -> impl ExactSizeIterator<Item = &VersionNode> {
        self.versions.values().map(|node| &**node)
    }

    /// Starts a head that sees exactly what `parent` sees: a fresh dataset (no parent), a clone and a
    /// rollback are all this.
    /// The parent must be a snapshot.
    pub fn new_head(&mut self, parent: Option<VersionId>) -> Result<VersionId, HistoryFault> {
        let referenced = match parent {
            None => 0,
            Some(parent) => {
                let node = self.version(parent)?;
                if node.is_head() {
                    return Err(HistoryFault::NotASnapshot(parent));
                }
                node.referenced
            }
        };
        let id = self.draw_number();
        let mut node = VersionNode::new(id, parent, None);
        node.referenced = referenced;
        node.cache_used(0);
        self.versions.insert(id, Box::new(node));
        self.changed.insert(id);
        if let Some(parent) = parent {
            // A block has to be dead in the new head too to be the parent's alone: none is.
            let node = self.node_mut(parent);
            node.children.push(id);
            node.cache_used(0);
            let branches = node.children.len();
            self.doomed.forget_used(parent);
            self.doomed.branched(parent, branches);
        }
        Ok(id)
    }

    /// Blocks written by `head`. Tree nodes that a snapshot has yet to write are born, all at once, before
    /// it is sealed: their addresses are reserved below its mark.
    ///
    /// Panics if an address is below the parent's mark or was born before.
    pub fn born(&mut self, head: VersionId, run: Run) -> Result<(), HistoryFault> {
        let low = self.low_mark(self.head(head)?);
        assert!(run.start >= low.of(run.stream), "{run:?} is born below the mark of its head's parent");
        let node = self.node_mut(head);
        let added = node.owned.of_mut(run.stream).insert_run(span_of(&run));
        assert_eq!(added, run.length, "born twice: {run:?}");
        node.referenced += run.length.0;
        node.forget_used();
        self.doomed.forget_used(head);
        self.live[run.stream as usize] += run.length.0;
        self.changed.insert(head);
        Ok(())
    }

    /// Blocks that `head` reached and no longer does (overwritten, truncated, deleted). What its parent sees
    /// too stays, as part of the head's dead set; the rest goes to `freed`.
    ///
    /// Panics if the head had dropped one of them before, or never wrote it.
    pub fn dropped(&mut self, head: VersionId, run: Run, freed: &mut FreedSink) -> Result<(), HistoryFault> {
        let node = self.head(head)?;
        let parent = node.parent;
        let (below, above) = parted(&run, &self.low_mark(node));

        let node = self.node_mut(head);
        let died = node.dead.of_mut(run.stream).insert_run(below.clone());
        assert_eq!(died.0, below.end.0 - below.start.0, "dropped twice: {run:?}");
        let left = node.owned.of_mut(run.stream).remove_run(&above);
        assert_eq!(left.0, above.end.0 - above.start.0, "dropped but not owned: {run:?}");
        node.referenced = node.referenced.checked_sub(run.length.0).expect("drops more than it references");
        node.forget_used();
        self.doomed.forget_used(head);
        if died.0 > 0 {
            let parent = parent.expect("nothing lies below the mark of no parent");
            self.node_mut(parent).forget_used();
            self.doomed.forget_used(parent);
            self.died_below(parent, run.stream, &below);
        }
        if left.0 > 0 {
            freed.push(Run::of(run.stream, &above));
            self.live[run.stream as usize] -= left.0;
        }
        self.changed.insert(head);
        Ok(())
    }

    /// Takes a snapshot: what the head owns and what died in it becomes the new snapshot's, and the head
    /// goes on below it with empty sets. Moves the sets and copies nothing.
    ///
    /// Panics if the head owns a block at or above `marks`.
    pub fn seal(&mut self, head: VersionId, marks: Marks) -> Result<VersionId, HistoryFault> {
        let node = self.head(head)?;
        let low = self.low_mark(node);
        if Stream::ALL.into_iter().any(|stream| marks.of(stream) < low.of(stream)) {
            return Err(HistoryFault::MarksWentBack(head));
        }
        assert!(node.owned.is_below(&marks), "version {head} owns blocks above the mark of its snapshot");

        let id = self.draw_number();
        let node = self.node_mut(head);
        let parent = node.parent.replace(id);
        let mut snapshot = VersionNode::new(id, parent, Some(marks));
        snapshot.children.push(head);
        snapshot.owned = std::mem::take(&mut node.owned);
        snapshot.dead = std::mem::take(&mut node.dead);
        snapshot.sources = std::mem::take(&mut node.sources);
        snapshot.referenced = node.referenced;
        snapshot.heavy = std::mem::take(&mut node.heavy);
        // All it reaches, the head reaches too.
        snapshot.cache_used(0);
        node.cache_used(0);
        self.versions.insert(id, Box::new(snapshot));
        self.doomed.forget_used(head);
        self.replace_child(parent, head, id);
        self.changed.extend([head, id]);
        Ok(id)
    }

    /// The mark of the parent: everything from there on was born on the edge to `node`. Zero without a
    /// parent.
    pub(super) fn low_mark(&self, node: &VersionNode) -> Marks {
        let Some(parent) = node.parent else { return Marks([LogAddress(0); 3]) };
        self.versions[&parent].mark.expect("a parent is a snapshot")
    }

    /// A version that exists because the tree says so.
    pub(super) fn node_mut(&mut self, version: VersionId) -> &mut VersionNode {
        self.versions.get_mut(&version).expect("the tree names only versions that exist")
    }

    fn head(&self, version: VersionId) -> Result<&VersionNode, HistoryFault> {
        let node = self.version(version)?;
        if node.is_head() { Ok(node) } else { Err(HistoryFault::NotAHead(version)) }
    }

    pub(super) fn replace_child(&mut self, parent: Option<VersionId>, old: VersionId, new: VersionId) {
        let Some(parent) = parent else { return };
        let place = self.node_mut(parent).children.iter_mut().find(|child| **child == old);
        *place.expect("a parent knows its children") = new;
    }

    /// Version numbers start at 1 and are never used again.
    fn draw_number(&mut self) -> VersionId {
        self.next.0 += 1;
        self.next
    }
}
