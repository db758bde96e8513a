//! What versions hold: counts that are exact and cheap, and walks over what is alive.

use super::blocks::{Runs, Span};
use super::fault::HistoryFault;
use super::streams::{StreamSets, run_of};
use super::versions::{History, VersionNode};
use crate::units::{BlockCount, LogAddress, Marks, Run, Stream, VersionId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

impl History {
    /// USED: blocks that this version alone reaches, which is what deleting it would free if it can be deleted.
    ///
    /// # Errors
    ///
    /// [`HistoryFault::Unknown`].
    pub fn used(&self, version: VersionId) -> Result<BlockCount, HistoryFault> {
        let node = self.version(version)?;
        if let Some(used) = node.cached_used() {
            return Ok(BlockCount(used));
        }
        let used = self.count_used(node);
        node.cache_used(used.0);
        Ok(used)
    }

    fn count_used(&self, node: &VersionNode) -> BlockCount {
        let (low, high) = (self.low_mark(node), node.mark.unwrap_or_default());
        match &node.children[..] {
            [] => node.owned.len(),
            [child] => self.versions[child].dead.count_between(&low, &high),
            several => {
                let dead: Vec<&StreamSets> = several.iter().map(|child| &self.versions[child].dead).collect();
                let count = |stream| count_dead_in_all(&dead, stream, &(low.of(stream)..high.of(stream)));
                BlockCount(Stream::ALL.into_iter().map(count).sum())
            }
        }
    }

    /// REFER: blocks that the version reaches.
    ///
    /// # Errors
    ///
    /// [`HistoryFault::Unknown`].
    pub fn referenced(&self, version: VersionId) -> Result<BlockCount, HistoryFault> {
        Ok(BlockCount(self.version(version)?.referenced))
    }

    /// WRITTEN: blocks that the version reaches and that were born since its parent in the tree.
    ///
    /// # Errors
    ///
    /// [`HistoryFault::Unknown`].
    pub fn written(&self, version: VersionId) -> Result<BlockCount, HistoryFault> {
        Ok(self.version(version)?.owned.len())
    }

    /// Live blocks of one stream.
    #[must_use]
    pub const fn live(&self, stream: Stream) -> BlockCount {
        BlockCount(self.live[stream as usize])
    }

    /// Live blocks of all streams.
    #[must_use]
    pub fn live_in_all(&self) -> BlockCount {
        BlockCount(self.live.iter().sum())
    }

    /// Whether `ancestor` is `descendant` or above it in the tree. Takes time with the steps in between.
    ///
    /// # Errors
    ///
    /// [`HistoryFault::Unknown`] for either.
    pub fn is_ancestor(&self, ancestor: VersionId, descendant: VersionId) -> Result<bool, HistoryFault> {
        self.version(ancestor)?;
        let mut node = self.version(descendant)?;
        while node.id != ancestor {
            let Some(parent) = node.parent else { return Ok(false) };
            node = &self.versions[&parent];
        }
        Ok(true)
    }

    /// The versions from `first` down to `last`, both included.
    ///
    /// # Errors
    ///
    /// Either does not exist, or `first` is not above `last`.
    pub fn path(&self, first: VersionId, last: VersionId) -> Result<Vec<VersionId>, HistoryFault> {
        self.version(first)?;
        let mut path = vec![last];
        let mut node = self.version(last)?;
        while node.id != first {
            let fault = HistoryFault::NotAnAncestor { ancestor: first, descendant: last };
            let parent = node.parent.ok_or(fault)?;
            path.push(parent);
            node = &self.versions[&parent];
        }
        path.reverse();
        Ok(path)
    }

    /// What deleting every version from `first` down to `last` would free, without doing it.
    ///
    /// # Errors
    ///
    /// As [`History::path`] and [`History::freed_by_deleting_set`].
    pub fn freed_by_deleting(&self, first: VersionId, last: VersionId) -> Result<BlockCount, HistoryFault> {
        self.freed_by_deleting_set(&self.path(first, last)?)
    }

    /// What deleting all of these versions would free, in whatever order they are named, without doing it.
    /// Counts ranges of the sets as they are; nothing is copied.
    ///
    /// # Errors
    ///
    /// One does not exist, or could not be deleted because several branches below it stay.
    pub fn freed_by_deleting_set(&self, versions: &[VersionId]) -> Result<BlockCount, HistoryFault> {
        let mut doomed = BTreeMap::new();
        for &version in versions {
            doomed.insert(version, self.version(version)?);
        }
        let tops =
            doomed.values().filter(|node| node.parent.is_none_or(|parent| !doomed.contains_key(&parent)));
        let freed: Result<Vec<u64>, _> = tops.map(|top| self.freed_by_deleting_tree(top, &doomed)).collect();
        Ok(BlockCount(freed?.into_iter().sum()))
    }

    /// The part of [`History::freed_by_deleting_set`] that hangs together below `top`.
    ///
    /// At most one version that stays, the survivor, can be next below. With none, everything owned goes.
    /// With one, versions beside the path to it free what they own; those on it free what was born since
    /// the parent of `top` and died on some step of the path down to the survivor.
    fn freed_by_deleting_tree(
        &self,
        top: &VersionNode,
        doomed: &BTreeMap<VersionId, &VersionNode>,
    ) -> Result<u64, HistoryFault> {
        let mut downwards = vec![top];
        let mut index = 0;
        while let Some(node) = downwards.get(index) {
            downwards.extend(node.children.iter().filter_map(|child| doomed.get(child)));
            index += 1;
        }

        let low = self.low_mark(top);
        let mut survivors: BTreeMap<VersionId, VersionId> = BTreeMap::new();
        let mut freed = 0;
        for node in downwards.into_iter().rev() {
            let below = node.children.iter().filter_map(|child| {
                if doomed.contains_key(child) { survivors.get(child).copied() } else { Some(*child) }
            });
            let below: Vec<VersionId> = below.collect();
            match below[..] {
                [] => freed += node.owned.len().0,
                [survivor] => {
                    freed += self.freed_on_step_down(node, &survivors, doomed, &low);
                    survivors.insert(node.id, survivor);
                }
                _ => return Err(HistoryFault::HasBranches { version: node.id, children: below }),
            }
        }
        Ok(freed)
    }

    /// What died, of blocks born since `low`, on the step from `node` towards the survivor below it.
    fn freed_on_step_down(
        &self,
        node: &VersionNode,
        survivors: &BTreeMap<VersionId, VersionId>,
        doomed: &BTreeMap<VersionId, &VersionNode>,
        low: &Marks,
    ) -> u64 {
        let leads_on = |child: &&VersionId| survivors.contains_key(child) || !doomed.contains_key(child);
        let next = node.children.iter().find(leads_on).expect("a step leads to the survivor");
        self.versions[next].dead.count_from(low).0
    }

    /// Whether `version` reaches a block. Walks up the tree: for checking, not for the path of a read.
    ///
    /// # Errors
    ///
    /// [`HistoryFault::Unknown`].
    pub fn reaches(
        &self,
        version: VersionId,
        stream: Stream,
        address: LogAddress,
    ) -> Result<bool, HistoryFault> {
        let mut node = self.version(version)?;
        loop {
            if address >= self.low_mark(node).of(stream) {
                return Ok(node.owned.of(stream).contains(address));
            }
            if node.dead.of(stream).contains(address) {
                return Ok(false);
            }
            let Some(parent) = node.parent else { return Ok(false) };
            node = &self.versions[&parent];
        }
    }

    /// All live blocks of one stream as maximal runs, ascending. Owned sets of different branches lie
    /// interleaved; they are merged on the fly.
    #[must_use]
    pub fn live_runs(&self, stream: Stream) -> LiveRuns<'_> {
        let mut runs = LiveRuns { stream, sets: Vec::new(), heads: BinaryHeap::new() };
        for node in self.versions.values() {
            let mut set = node.owned.of(stream).runs();
            if let Some(span) = set.next() {
                runs.heads.push(Reverse((span.start, span.end, runs.sets.len())));
                runs.sets.push(set);
            }
        }
        runs
    }
}

/// Blocks of `span` that are in the dead set of every child.
fn count_dead_in_all(dead: &[&StreamSets], stream: Stream, span: &Span) -> u64 {
    let fewest = dead.iter().min_by_key(|sets| sets.of(stream).count(span)).expect("several children");
    let mut common = fewest.of(stream).part(span);
    for sets in dead {
        if common.is_empty() {
            break;
        }
        common.intersect(sets.of(stream).blocks());
    }
    common.len().0
}

/// Iterates over all live blocks of one stream.
pub struct LiveRuns<'a> {
    stream: Stream,
    sets: Vec<Runs<'a>>,
    /// The next run of each set: start, end, and the index of the set.
    heads: BinaryHeap<Reverse<(LogAddress, LogAddress, usize)>>,
}

impl LiveRuns<'_> {
    fn next_of_one_set(&mut self) -> Option<Span> {
        let Reverse((start, end, index)) = self.heads.pop()?;
        if let Some(span) = self.sets[index].next() {
            self.heads.push(Reverse((span.start, span.end, index)));
        }
        Some(start..end)
    }
}

impl Iterator for LiveRuns<'_> {
    type Item = Run;

    fn next(&mut self) -> Option<Run> {
        let mut run = self.next_of_one_set()?;
        while let Some(&Reverse((start, ..))) = self.heads.peek() {
            assert!(start >= run.end, "two versions own block {start} of stream {:?}", self.stream);
            if start > run.end {
                break;
            }
            run.end = self.next_of_one_set().expect("peeked").end;
        }
        Some(run_of(self.stream, &run))
    }
}
