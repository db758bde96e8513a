//! Datasets, their snapshots, and the tree of versions that both are part of.

use super::step::{FileChange, Outcome, Step};
use super::tree::Tree;
use icecore::names::{DatasetName, SnapshotName};
use icecore::{Error, FileFault};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The number of a snapshot in the model.
pub type SnapshotId = u64;

pub(super) type Result<T, E = ModelError> = std::result::Result<T, E>;

/// Why a step cannot be done. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModelError {
    /// A name breaks the rules.
    BadName,
    /// Something named is not there.
    NotFound,
    /// The name is taken.
    Exists,
    /// Something is in the way.
    Busy,
    /// It makes no sense.
    Invalid,
    /// A file operation fails as POSIX says.
    File(FileFault),
}

impl ModelError {
    /// Whether an error of the store means the same.
    #[must_use]
    pub fn is_like(self, error: &Error) -> bool {
        match self {
            Self::BadName => matches!(error, Error::BadName { .. }),
            Self::NotFound => matches!(error, Error::NotFound { .. }),
            Self::Exists => matches!(error, Error::Exists { .. }),
            Self::Busy => matches!(error, Error::Busy { .. }),
            Self::Invalid => matches!(error, Error::Invalid(_)),
            Self::File(fault) => matches!(error, Error::File(other) if *other == fault),
        }
    }
}

impl From<FileFault> for ModelError {
    fn from(fault: FileFault) -> Self {
        Self::File(fault)
    }
}

/// A pool.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ModelPool {
    pub(super) datasets: BTreeMap<String, Dataset>,
    pub(super) snapshots: BTreeMap<SnapshotId, Snapshot>,
    pub(super) next: SnapshotId,
}

/// A dataset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dataset {
    /// Its files as they are now.
    pub head: Arc<Tree>,
    /// The snapshot from which the head goes on.
    pub parent: Option<SnapshotId>,
}

/// A snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// The dataset it belongs to; nothing if that was destroyed.
    pub dataset: String,
    /// What follows the `@`; `None` for a former head whose name the store has chosen and not reported.
    pub short: Option<String>,
    /// Destroyed, and kept only because several branches go on from it.
    pub hidden: bool,
    /// Its files.
    pub tree: Arc<Tree>,
    /// The snapshot that it goes on from.
    pub parent: Option<SnapshotId>,
    /// Tags of the holds on it.
    pub holds: BTreeSet<String>,
}

/// What a snapshot is called, as far as the model knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FullName {
    dataset: String,
    /// Unknown until a caller looks, of one that the store has named itself.
    short: Option<String>,
}

impl FullName {
    /// Whether a name that the store reports may be this one.
    #[must_use]
    pub fn is_like(&self, name: &str) -> bool {
        let Some((dataset, short)) = name.split_once('@') else { return false };
        dataset == self.dataset && self.short.as_deref().is_none_or(|own| own == short)
    }
}

impl ModelPool {
    /// Datasets by name.
    #[must_use]
    pub const fn datasets(&self) -> &BTreeMap<String, Dataset> {
        &self.datasets
    }

    /// Snapshots of a dataset that have not been destroyed, oldest first.
    pub fn snapshots_of(&self, dataset: &str) -> impl Iterator<Item = (SnapshotId, &Snapshot)> {
        let of_dataset = move |snapshot: &Snapshot| snapshot.dataset == dataset && !snapshot.hidden;
        self.snapshots.iter().filter(move |(_, snapshot)| of_dataset(snapshot)).map(|(id, one)| (*id, one))
    }

    /// Snapshots whose name is known, by full name, oldest first.
    pub fn named_snapshots(&self) -> impl Iterator<Item = (String, &Snapshot)> {
        let visible = self.snapshots.values().filter(|snapshot| !snapshot.hidden);
        visible.filter_map(|one| one.short.as_ref().map(|short| (format!("{}@{short}", one.dataset), one)))
    }

    /// The snapshot from which a clone goes on, if the dataset is one, and that was not destroyed.
    #[must_use]
    pub fn origin(&self, dataset: &str) -> Option<SnapshotId> {
        let mut next = self.datasets.get(dataset)?.parent;
        while let Some(id) = next {
            let snapshot = self.snapshots.get(&id)?;
            if snapshot.dataset != dataset {
                return (!snapshot.hidden).then_some(id);
            }
            next = snapshot.parent;
        }
        None
    }

    /// What a snapshot that is there, hidden or not, is called.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn full_name(&self, id: SnapshotId) -> FullName {
        let snapshot = &self.snapshots[&id];
        FullName { dataset: snapshot.dataset.clone(), short: snapshot.short.clone() }
    }

    /// Gives the model the name that the store has chosen for an automatic snapshot.
    pub fn name_automatic(&mut self, snapshot: SnapshotId, short: &str) {
        if let Some(snapshot) = self.snapshots.get_mut(&snapshot) {
            snapshot.short.get_or_insert_with(|| short.to_owned());
        }
    }

    /// Does what the step says, or says why not and changes nothing.
    pub fn apply(&mut self, step: &Step) -> Result<Outcome> {
        // On a copy, which is cheap: a step that fails halfway must leave nothing behind.
        let mut changed = self.clone();
        let outcome = changed.apply_in_place(step)?;
        *self = changed;
        Ok(outcome)
    }

    fn apply_in_place(&mut self, step: &Step) -> Result<Outcome> {
        match step {
            Step::Change { dataset, change } => self.change(dataset, change),
            Step::Group { writes, .. } => {
                writes.iter().try_for_each(|(dataset, write)| self.change(dataset, &write.clone().into()))
            }
            Step::Sync | Step::Checkpoint | Step::Collect { .. } | Step::Trim | Step::Reopen => Ok(()),
            Step::CreateDataset { name, parents } => self.create_dataset(name, *parents),
            Step::Snapshot { names, recursive } => self.snapshot(names, *recursive),
            Step::Clone { snapshot, target } => self.clone_snapshot(snapshot, target),
            Step::Rollback { snapshot } => return self.rollback(snapshot).map(Outcome::Saved),
            Step::Promote { dataset } => self.promote(dataset),
            Step::Rename { from, to, recursive } => self.rename(from, to, *recursive),
            Step::Destroy(target) => self.destroy(target),
            Step::Hold { tag, snapshot } => self.hold(tag, snapshot),
            Step::Release { tag, snapshot } => self.release(tag, snapshot),
        }
        .map(|()| Outcome::Done)
    }

    fn change(&mut self, dataset: &str, change: &FileChange) -> Result<()> {
        Ok(Arc::make_mut(&mut self.dataset_mut(dataset)?.head).apply(change)?)
    }

    pub(super) fn dataset(&self, name: &str) -> Result<&Dataset> {
        parse_dataset(name)?;
        self.datasets.get(name).ok_or(ModelError::NotFound)
    }

    pub(super) fn dataset_mut(&mut self, name: &str) -> Result<&mut Dataset> {
        parse_dataset(name)?;
        self.datasets.get_mut(name).ok_or(ModelError::NotFound)
    }

    /// The snapshot with this full name.
    pub fn find_snapshot(&self, name: &str) -> Result<SnapshotId> {
        let name = parse_snapshot(name)?;
        self.find_short(name.dataset_str(), name.short()).ok_or(ModelError::NotFound)
    }

    pub(super) fn find_short(&self, dataset: &str, short: &str) -> Option<SnapshotId> {
        let mut all = self.snapshots_of(dataset);
        all.find(|(_, snapshot)| snapshot.short.as_deref() == Some(short)).map(|(id, _)| id)
    }

    /// Names of a dataset and all below it.
    pub(super) fn within(&self, top: &str) -> Vec<String> {
        self.datasets.keys().filter(|name| is_within(name, top)).cloned().collect()
    }
}

/// Whether a dataset is `top` or lies below it.
pub(super) fn is_within(name: &str, top: &str) -> bool {
    name.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

pub(super) fn parse_dataset(name: &str) -> Result<DatasetName> {
    DatasetName::parse(name).map_err(|_| ModelError::BadName)
}

pub(super) fn parse_snapshot(name: &str) -> Result<SnapshotName> {
    SnapshotName::parse(name).map_err(|_| ModelError::BadName)
}
