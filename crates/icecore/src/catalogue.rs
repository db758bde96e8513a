//! Names: which datasets there are, which snapshots they have, holds and user properties.
//!
//! A dataset is a label on versions. The tree of versions itself, and what each of them owns, is the
//! business of [`crate::liveness`].

use crate::error::{Error, Result};
use crate::units::{COUNTER_LIMIT, DatasetId, Timestamp, VersionId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A dataset.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct DatasetRow {
    pub name: String,
    pub head: VersionId,
    pub created: Timestamp,
    pub properties: BTreeMap<String, String>,
    /// Grows with every rollback: handles of an earlier generation are stale.
    pub generation: u64,
}

/// A snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotRow {
    pub dataset: DatasetId,
    /// Name behind the `@`.
    pub name: String,
    pub created: Timestamp,
    pub properties: BTreeMap<String, String>,
    pub holds: BTreeMap<String, Timestamp>,
    /// Destroyed, and still in the tree of versions: goes when one fork at most hangs below it, some time
    /// later. Its dataset may be gone before.
    pub hidden: bool,
}

/// All rows, and what changed since the last checkpoint took it.
#[derive(Default)]
pub(crate) struct Catalogue {
    datasets: BTreeMap<DatasetId, DatasetRow>,
    by_name: BTreeMap<String, DatasetId>,
    snapshots: BTreeMap<VersionId, SnapshotRow>,
    by_snapshot_name: HashMap<(DatasetId, String), VersionId>,
    of_dataset: BTreeSet<(DatasetId, VersionId)>,
    next_dataset: u64,
    changed_datasets: BTreeSet<DatasetId>,
    changed_snapshots: BTreeSet<VersionId>,
}

/// Rows that differ from the checkpoint before; `None` where a row is gone.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct CatalogueChanges {
    next_dataset: u64,
    datasets: Vec<(DatasetId, Option<DatasetRow>)>,
    snapshots: Vec<(VersionId, Option<SnapshotRow>)>,
}

impl Catalogue {
    pub(crate) fn dataset(&self, id: DatasetId) -> Option<&DatasetRow> {
        self.datasets.get(&id)
    }

    /// The same, for a handle that may have outlived the dataset.
    pub(crate) fn existing(&self, id: DatasetId) -> Result<&DatasetRow> {
        let destroyed = || Error::NotFound { what: "the dataset (it was destroyed)".to_owned() };
        self.dataset(id).ok_or_else(destroyed)
    }

    pub(crate) fn snapshot(&self, version: VersionId) -> Option<&SnapshotRow> {
        self.snapshots.get(&version)
    }

    pub(crate) fn datasets(&self) -> impl Iterator<Item = (DatasetId, &DatasetRow)> {
        self.datasets.iter().map(|(id, row)| (*id, row))
    }

    /// Datasets ordered by name.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, DatasetId)> {
        self.by_name.iter().map(|(name, id)| (name.as_str(), *id))
    }

    /// Snapshots of a dataset in the order in which they were taken, hidden ones too.
    pub(crate) fn snapshots_of(&self, id: DatasetId) -> impl Iterator<Item = (VersionId, &SnapshotRow)> {
        let range = (id, VersionId(0))..=(id, VersionId(u64::MAX));
        self.of_dataset.range(range).map(|(_, version)| (*version, &self.snapshots[version]))
    }

    /// All snapshots by version, hidden ones and those of datasets that are gone too.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = (VersionId, &SnapshotRow)> {
        self.snapshots.iter().map(|(version, row)| (*version, row))
    }

    pub(crate) fn find(&self, name: &str) -> Result<DatasetId> {
        let found = self.by_name.get(name).copied();
        found.ok_or_else(|| Error::NotFound { what: format!("dataset {name}") })
    }

    pub(crate) fn find_snapshot(&self, dataset: DatasetId, name: &str) -> Result<VersionId> {
        let key = (dataset, name.to_owned());
        let found = self.by_snapshot_name.get(&key).copied();
        found.ok_or_else(|| Error::NotFound {
            what: format!("snapshot {}@{name}", self.datasets[&dataset].name),
        })
    }

    pub(crate) fn has_snapshot(&self, dataset: DatasetId, name: &str) -> bool {
        self.by_snapshot_name.contains_key(&(dataset, name.to_owned()))
    }

    pub(crate) fn has_dataset(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// `dataset@snapshot`, for messages.
    pub(crate) fn full_name(&self, version: VersionId) -> String {
        match self.snapshots.get(&version) {
            Some(row) => {
                let dataset = self.datasets.get(&row.dataset).map_or("?", |dataset| dataset.name.as_str());
                format!("{dataset}@{}", row.name)
            }
            None => self.head_of(version).map_or_else(|| format!("version {version}"), str::to_owned),
        }
    }

    fn head_of(&self, version: VersionId) -> Option<&str> {
        self.datasets.values().find(|row| row.head == version).map(|row| row.name.as_str())
    }

    /// The dataset that a version is labelled with.
    pub(crate) fn label(&self, version: VersionId) -> Option<DatasetId> {
        if let Some(row) = self.snapshots.get(&version) {
            return Some(row.dataset);
        }
        self.datasets.iter().find(|(_, row)| row.head == version).map(|(id, _)| *id)
    }

    /// Datasets whose name is `name` or lies below it, ordered by name.
    pub(crate) fn subtree(&self, name: &str) -> Vec<DatasetId> {
        let below = format!("{name}/");
        let named = self.by_name.get(name).copied();
        let inner = self.by_name.range(below.clone()..).take_while(|(key, _)| key.starts_with(&below));
        named.into_iter().chain(inner.map(|(_, id)| *id)).collect()
    }

    pub(crate) fn add_dataset(&mut self, name: &str, head: VersionId, created: Timestamp) -> DatasetId {
        let id = DatasetId(self.next_dataset);
        self.next_dataset += 1;
        let row =
            DatasetRow { name: name.to_owned(), head, created, properties: BTreeMap::new(), generation: 0 };
        self.put_dataset(id, row);
        id
    }

    /// Changes a dataset's row.
    pub(crate) fn edit_dataset(&mut self, id: DatasetId, edit: impl FnOnce(&mut DatasetRow)) {
        let mut row = self.datasets[&id].clone();
        self.by_name.remove(&row.name);
        edit(&mut row);
        self.put_dataset(id, row);
    }

    /// Changes a snapshot's row.
    pub(crate) fn edit_snapshot(&mut self, version: VersionId, edit: impl FnOnce(&mut SnapshotRow)) {
        let mut row = self.snapshots[&version].clone();
        self.unlink_snapshot(version, &row);
        edit(&mut row);
        self.add_snapshot(version, row);
    }

    /// No lookup finds a snapshot by its name from now on.
    pub(crate) fn hide_snapshot(&mut self, version: VersionId) {
        let Some(row) = self.snapshots.get_mut(&version).filter(|row| !row.hidden) else { return };
        row.hidden = true;
        let key = (row.dataset, row.name.clone());
        self.by_snapshot_name.remove(&key);
        self.changed_snapshots.insert(version);
    }

    pub(crate) fn remove_dataset(&mut self, id: DatasetId) {
        if let Some(row) = self.datasets.remove(&id) {
            // Where changes of a ledger are applied one by one, another may have the name already.
            if self.by_name.get(&row.name) == Some(&id) {
                self.by_name.remove(&row.name);
            }
            self.changed_datasets.insert(id);
        }
    }

    pub(crate) fn remove_snapshot(&mut self, version: VersionId) {
        if let Some(row) = self.snapshots.remove(&version) {
            self.unlink_snapshot(version, &row);
            self.changed_snapshots.insert(version);
        }
    }

    fn put_dataset(&mut self, id: DatasetId, row: DatasetRow) {
        self.by_name.insert(row.name.clone(), id);
        self.datasets.insert(id, row);
        self.changed_datasets.insert(id);
    }

    pub(crate) fn add_snapshot(&mut self, version: VersionId, row: SnapshotRow) {
        if !row.hidden {
            self.by_snapshot_name.insert((row.dataset, row.name.clone()), version);
        }
        self.of_dataset.insert((row.dataset, version));
        self.snapshots.insert(version, row);
        self.changed_snapshots.insert(version);
    }

    fn unlink_snapshot(&mut self, version: VersionId, row: &SnapshotRow) {
        let key = (row.dataset, row.name.clone());
        // As for datasets.
        if self.by_snapshot_name.get(&key) == Some(&version) {
            self.by_snapshot_name.remove(&key);
        }
        self.of_dataset.remove(&(row.dataset, version));
    }

    /// What changed since this was called last.
    pub(crate) fn take_changes(&mut self) -> CatalogueChanges {
        let datasets = std::mem::take(&mut self.changed_datasets);
        let snapshots = std::mem::take(&mut self.changed_snapshots);
        CatalogueChanges {
            next_dataset: self.next_dataset,
            datasets: datasets.into_iter().map(|id| (id, self.datasets.get(&id).cloned())).collect(),
            snapshots: snapshots.into_iter().map(|id| (id, self.snapshots.get(&id).cloned())).collect(),
        }
    }

    /// Everything, as changes to an empty catalogue.
    pub(crate) fn everything(&self) -> CatalogueChanges {
        CatalogueChanges {
            next_dataset: self.next_dataset,
            datasets: self.datasets.iter().map(|(id, row)| (*id, Some(row.clone()))).collect(),
            snapshots: self.snapshots.iter().map(|(id, row)| (*id, Some(row.clone()))).collect(),
        }
    }

    /// Applies changes read from a ledger.
    pub(crate) fn apply(&mut self, changes: CatalogueChanges) {
        self.next_dataset = changes.next_dataset;
        for (id, row) in changes.datasets {
            self.remove_dataset(id);
            if let Some(row) = row {
                self.put_dataset(id, row);
            }
        }
        for (version, row) in changes.snapshots {
            self.remove_snapshot(version);
            if let Some(row) = row {
                self.add_snapshot(version, row);
            }
        }
        self.changed_datasets.clear();
        self.changed_snapshots.clear();
    }

    /// What changes nothing here.
    pub(crate) fn nothing_more(&self) -> CatalogueChanges {
        CatalogueChanges { next_dataset: self.next_dataset, ..CatalogueChanges::default() }
    }

    /// Whether every row refers to rows that exist: a ledger that passed its checksum may still be wrong.
    pub(crate) fn check(&self) -> Result<()> {
        let last = self.datasets.keys().next_back().map_or(0, |id| id.0);
        let numbered = self.datasets.is_empty() || last < self.next_dataset;
        if !numbered || self.next_dataset >= COUNTER_LIMIT || self.by_name.len() != self.datasets.len() {
            return Err(Error::damaged("the catalogue", "numbers or names of datasets make no sense"));
        }
        for row in self.snapshots.values() {
            if !row.hidden && !self.datasets.contains_key(&row.dataset) {
                return Err(Error::damaged("the catalogue", format!("snapshot {} has no dataset", row.name)));
            }
        }
        Ok(())
    }
}

impl CatalogueChanges {
    /// These changes in parts of so many rows at most, to be applied in order.
    pub(crate) fn split(mut self, rows_max: usize) -> Vec<Self> {
        let mut parts = Vec::new();
        while self.datasets.len() + self.snapshots.len() > rows_max {
            let datasets = self.datasets.len().min(rows_max);
            let snapshots = self.snapshots.len().min(rows_max - datasets);
            let rest = Self {
                next_dataset: self.next_dataset,
                datasets: self.datasets.split_off(datasets),
                snapshots: self.snapshots.split_off(snapshots),
            };
            parts.push(std::mem::replace(&mut self, rest));
        }
        parts.push(self);
        parts
    }

    /// What changes nothing where these changes were applied.
    pub(crate) fn nothing_more(&self) -> Self {
        Self { next_dataset: self.next_dataset, datasets: Vec::new(), snapshots: Vec::new() }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("rows hold nothing that cannot be encoded")
    }

    pub(crate) fn decode(bytes: &[u8], place: &str) -> Result<Self> {
        postcard::from_bytes(bytes).map_err(|error| Error::damaged(place, format!("catalogue rows: {error}")))
    }
}
