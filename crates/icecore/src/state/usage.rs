//! What datasets with a quota or a reservation use: counted with every change, so that a write is judged by
//! looking at a few numbers.
//!
//! A dataset uses what its versions own, and what those of the datasets below it own: the same sum as `USED`
//! in a list. Nothing is counted while no dataset has a limit. What moves versions from one dataset to
//! another, or datasets to another place, is rare: then everything is counted anew.

use super::State;
use crate::error::{Error, Result};
use crate::limits::DatasetLimits;
use crate::units::{BLOCK_BYTES, BlockCount, ByteLength, DatasetId, VersionId};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Datasets with limits, and what they use.
#[derive(Default, Clone, PartialEq, Eq, Debug)]
pub(crate) struct Usage {
    /// Ordered by name: what lies above another comes before it.
    tracked: Vec<Tracked>,
    /// Of each dataset, which of the tracked ones are it or lie above it, the topmost first.
    above: HashMap<DatasetId, Vec<usize>>,
}

/// A dataset that has a limit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Tracked {
    pub dataset: DatasetId,
    pub limits: DatasetLimits,
    /// What it uses, with all below it.
    pub used: BlockCount,
    /// The next tracked one above it.
    parent: Option<usize>,
}

/// What is about to happen to datasets.
#[derive(Default)]
pub(crate) struct Change {
    /// By how many blocks they grow.
    pub grown: BTreeMap<DatasetId, u64>,
    /// What comes back of destroyed versions that are counted for them.
    pub freed: BTreeMap<DatasetId, u64>,
    /// Those of which a snapshot is taken: their heads share everything then.
    pub snapshotted: BTreeSet<DatasetId>,
}

impl Change {
    fn owned_by_head(&self, state: &State, dataset: DatasetId) -> u64 {
        if self.snapshotted.contains(&dataset) {
            return 0;
        }
        let owned = state.catalogue.dataset(dataset).map_or(0, |row| state.owned(row.head));
        owned.saturating_add(self.grown.get(&dataset).copied().unwrap_or_default())
    }
}

/// What deleting a version takes from datasets and gives to others.
pub(super) struct Shares(Vec<(DatasetId, VersionId, u64)>);

impl Usage {
    /// Whether no dataset has a limit.
    pub(crate) fn is_empty(&self) -> bool {
        self.tracked.is_empty()
    }

    /// Those that limit what `dataset` uses, the topmost first.
    pub(crate) fn above(&self, dataset: DatasetId) -> impl Iterator<Item = &Tracked> {
        self.above.get(&dataset).into_iter().flatten().map(|index| &self.tracked[*index])
    }

    /// By how much datasets with a limit grow, the topmost first. `growths`: by how many blocks each dataset
    /// grows.
    pub(crate) fn totals(&self, growths: impl Iterator<Item = (DatasetId, i64)>) -> Vec<(&Tracked, i64)> {
        let mut totals: BTreeMap<usize, i64> = BTreeMap::new();
        for (dataset, more) in growths {
            for index in self.above.get(&dataset).into_iter().flatten() {
                let total = totals.entry(*index).or_default();
                *total = total.saturating_add(more);
            }
        }
        totals.into_iter().map(|(index, total)| (&self.tracked[index], total)).collect()
    }

    /// The limits of a dataset itself.
    pub(crate) fn of(&self, dataset: DatasetId) -> Option<&Tracked> {
        self.above(dataset).last().filter(|tracked| tracked.dataset == dataset)
    }

    /// Whether anything is reserved for any dataset.
    pub(crate) fn has_reservations(&self) -> bool {
        self.tracked.iter().any(|one| one.limits.reservation.or(one.limits.refreservation).is_some())
    }

    /// Counts a block that is not there.
    #[cfg(test)]
    pub(crate) fn miscount(&mut self, dataset: DatasetId) {
        self.changed(dataset, 0, 1);
    }

    /// The versions of `dataset` own more, or less, than before.
    pub(super) fn changed(&mut self, dataset: DatasetId, before: u64, after: u64) {
        for index in self.above.get(&dataset).into_iter().flatten() {
            let used = &mut self.tracked[*index].used.0;
            *used = (*used + after).checked_sub(before).expect("a dataset uses what its versions own");
        }
    }
}

impl State {
    fn owned(&self, version: VersionId) -> u64 {
        self.history.version(version).map_or(0, |node| node.owned().len().0)
    }

    /// Blocks that the versions of a dataset own, without the datasets below it.
    pub(crate) fn owned_by(&self, dataset: DatasetId) -> u64 {
        let head = self.catalogue.dataset(dataset).map(|row| row.head);
        let snapshots = self.catalogue.snapshots_of(dataset).map(|(version, _)| version);
        snapshots.chain(head).map(|version| self.owned(version)).sum()
    }

    /// Counts everything anew.
    pub(crate) fn count_usage(&self) -> Usage {
        let mut usage = Usage::default();
        for (name, dataset) in self.catalogue.names() {
            let row = self.catalogue.dataset(dataset).expect("named");
            let limits = DatasetLimits::of_properties(&row.properties);
            if limits.is_empty() {
                continue;
            }
            let subtree = self.catalogue.subtree(name);
            let used = subtree.iter().map(|inner| self.owned_by(*inner)).sum();
            let index = usage.tracked.len();
            let parent = usage.above.get(&dataset).and_then(|above| above.last().copied());
            usage.tracked.push(Tracked { dataset, limits, used: BlockCount(used), parent });
            for inner in subtree {
                usage.above.entry(inner).or_default().push(index);
            }
        }
        usage
    }

    /// Runs a change to the head of a dataset, and counts what it comes to.
    pub(super) fn counted<T>(
        &mut self,
        dataset: DatasetId,
        head: VersionId,
        body: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        if self.usage.is_empty() {
            return body(self);
        }
        let before = self.owned(head);
        let outcome = body(self);
        let after = self.owned(head);
        self.usage.changed(dataset, before, after);
        outcome
    }

    /// What a version and those below it own, before it is deleted.
    pub(super) fn shares(&self, version: VersionId) -> Shares {
        if self.usage.is_empty() {
            return Shares(Vec::new());
        }
        let versions = std::iter::once(&version).chain(self.children(version));
        let labelled = versions.filter_map(|one| Some((self.catalogue.label(*one)?, *one, self.owned(*one))));
        Shares(labelled.collect())
    }

    /// The version is deleted.
    pub(super) fn shares_changed(&mut self, shares: Shares) {
        for (dataset, version, before) in shares.0 {
            let after = self.owned(version);
            self.usage.changed(dataset, before, after);
        }
    }

    /// What is reserved and not yet used: for all datasets, or for all but `writer`. Reservations of those
    /// above it are for `writer` too; those for their heads are not.
    pub(crate) fn reserved_from(&self, writer: Option<DatasetId>) -> BlockCount {
        self.reserved_after(writer, &Change::default())
    }

    /// What is reserved and not yet used, and `writer` may use.
    pub(crate) fn reserved_for(&self, writer: DatasetId) -> BlockCount {
        BlockCount(self.reserved_from(None).0.saturating_sub(self.reserved_from(Some(writer)).0))
    }

    /// [`State::reserved_from`] as it is going to be after a change. A reservation within another is part of
    /// it. A reservation for a head is used by what the head shares with no other version: after a snapshot,
    /// all of it may be needed again.
    pub(crate) fn reserved_after(&self, writer: Option<DatasetId>, change: &Change) -> BlockCount {
        let own: &[usize] = writer.and_then(|id| self.usage.above.get(&id)).map_or(&[], Vec::as_slice);
        let tracked = &self.usage.tracked;
        let blocks = |bytes: Option<ByteLength>| bytes.map_or(0, |bytes| BlockCount::holding(bytes).0);
        let mut grown = vec![0; tracked.len()];
        for (dataset, more) in &change.grown {
            for index in self.usage.above.get(dataset).into_iter().flatten() {
                grown[*index] = more.saturating_add(grown[*index]);
            }
        }
        let mut below = vec![0; tracked.len()];
        let mut total = 0;
        for (index, one) in tracked.iter().enumerate().rev() {
            let all = blocks(one.limits.reservation).saturating_sub(one.used.0.saturating_add(grown[index]));
            let all = if own.contains(&index) { 0 } else { all };
            let head =
                blocks(one.limits.refreservation).saturating_sub(change.owned_by_head(self, one.dataset));
            let head = if writer == Some(one.dataset) { 0 } else { head };
            let needed = all.max(head + below[index]);
            match one.parent {
                Some(parent) => below[parent] += needed,
                None => total += needed,
            }
        }
        BlockCount(total)
    }

    /// By how much a snapshot of these datasets raises what is reserved.
    pub(crate) fn reserved_anew(&self, datasets: impl Iterator<Item = DatasetId>) -> BlockCount {
        let change = Change { snapshotted: datasets.collect(), ..Change::default() };
        let now = self.reserved_from(None).0;
        BlockCount(self.reserved_after(None, &change).0.saturating_sub(now))
    }

    /// As many of these bytes as quotas let `dataset` use.
    pub(crate) fn within_quotas(&self, dataset: DatasetId, bytes: ByteLength) -> ByteLength {
        let mut bytes = bytes.0;
        for tracked in self.usage.above(dataset) {
            if let Some(quota) = tracked.limits.quota {
                bytes = bytes.min(quota.0.saturating_sub(tracked.used.bytes().0));
            }
        }
        let row = self.catalogue.dataset(dataset);
        if let (Some(row), Some(refquota)) = (row, self.usage.of(dataset).and_then(|one| one.limits.refquota))
        {
            let referenced = self.history.referenced(row.head).map_or(0, |blocks| blocks.bytes().0);
            bytes = bytes.min(refquota.0.saturating_sub(referenced));
        }
        ByteLength(bytes / BLOCK_BYTES as u64 * BLOCK_BYTES as u64)
    }

    /// Whether what was counted along the way is what there is.
    pub(crate) fn check_usage(&self) -> Result<()> {
        let found = self.count_usage();
        if self.usage == found {
            return Ok(());
        }
        let differs = |(known, found): &(&Tracked, &Tracked)| {
            known.dataset == found.dataset && known.used != found.used
        };
        let wrong = self.usage.tracked.iter().zip(&found.tracked).find(differs);
        let detail = wrong.map_or_else(
            || "those that have limits are not those that are counted".to_owned(),
            |(known, found)| {
                let name = self.catalogue.dataset(known.dataset).map_or("", |row| row.name.as_str());
                format!("{name} uses {} blocks, and {} are counted", found.used.0, known.used.0)
            },
        );
        Err(Error::damaged("the figures of quotas", detail))
    }
}
