//! Listing datasets and snapshots.

use super::Pool;
use crate::engine::Engine;
use crate::error::Result;
use crate::limits::DatasetLimits;
use crate::liveness::HistoryFault;
use crate::state::State;
use crate::units::{BLOCK_BYTES, BlockCount, ByteLength, DatasetId, Timestamp, VersionId};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// What to list.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ListFilter {
    /// Only this dataset (or snapshot), and with `depth` what lies below it.
    pub root: Option<String>,
    /// How many levels below the root, or below the top: `Some(0)` for itself alone, `None` for all.
    pub depth: Option<usize>,
    /// Datasets.
    pub datasets: bool,
    /// Snapshots.
    pub snapshots: bool,
}

/// What an entry is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum EntryKind {
    /// A dataset.
    Dataset,
    /// A snapshot.
    Snapshot,
}

/// A dataset or snapshot with its figures, in bytes, all exact.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ListEntry {
    /// Full name.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
    /// A snapshot: what destroying it alone would free. A dataset: all that its head and snapshots hold
    /// beside what they share with other datasets, and what lies below it.
    pub used: ByteLength,
    /// A dataset: what can still be written.
    pub available: Option<ByteLength>,
    /// What it refers to, shared or not.
    pub referenced: ByteLength,
    /// What was written since the version before.
    pub written: ByteLength,
    /// When it was made.
    pub created: Timestamp,
    /// A clone: the snapshot it was made from.
    pub origin: Option<String>,
    /// A dataset: its quotas and reservations.
    pub limits: DatasetLimits,
    /// A snapshot: number of holds.
    pub holds: u32,
    /// A snapshot: the clones made from it, and snapshots of other datasets that hang on it, as promotions
    /// and rollbacks in turn may have it. It cannot be destroyed before these are.
    pub clones: Vec<String>,
}

impl Pool {
    /// Datasets and snapshots, datasets by name, snapshots behind their dataset in order of age.
    ///
    /// # Errors
    /// [`crate::Error::NotFound`] for the root.
    pub fn list(&self, filter: &ListFilter) -> Result<Vec<ListEntry>> {
        self.engine().check_open()?;
        let available = self.available()?;
        // What is destroyed and not yet freed would be part of the figures of its neighbours.
        self.engine().finish_freeing()?;
        if filter.snapshots {
            let unlearned = self.engine().state().history.unlearned();
            self.engine().learn_used(&unlearned);
        }
        let state = self.engine().settled_state()?;
        let lister = Lister::new(self.engine(), &state, available);
        if let Some(root) = filter.root.as_deref().filter(|root| root.contains('@')) {
            let (dataset, version) = self.find_snapshot(&state, root)?;
            return Ok(vec![lister.snapshot(dataset, version)?]);
        }
        if let Some(root) = &filter.root {
            state.catalogue.find(root)?;
        }
        let base = filter.root.as_ref().map_or(0, |root| root.matches('/').count());
        let mut entries = Vec::new();
        for (name, id) in state.catalogue.names() {
            let below = filter.root.as_ref().is_none_or(|root| {
                name == root || name.strip_prefix(root.as_str()).is_some_and(|rest| rest.starts_with('/'))
            });
            let level = name.matches('/').count().saturating_sub(base);
            if !below || filter.depth.is_some_and(|depth| level > depth) {
                continue;
            }
            if filter.datasets {
                entries.push(lister.dataset(id)?);
            }
            if filter.snapshots {
                for (version, row) in state.catalogue.snapshots_of(id) {
                    if !row.hidden {
                        entries.push(lister.snapshot(id, version)?);
                    }
                }
            }
        }
        Ok(entries)
    }

    /// Bytes that can still be written beside the reserve.
    pub(super) fn available(&self) -> Result<ByteLength> {
        let engine = self.engine();
        let space = engine.storage.space();
        let space = space.map_err(|error| crate::Error::io("measure", engine.storage.describe(), error))?;
        let state = engine.state();
        Ok(engine.writable(&state, space.free / engine.geometry.bytes))
    }
}

struct Lister<'a> {
    engine: &'a Engine,
    state: &'a State,
    available: ByteLength,
    /// Names of clones by the snapshot they were made from.
    clones: HashMap<VersionId, Vec<String>>,
    origins: HashMap<DatasetId, VersionId>,
}

impl<'a> Lister<'a> {
    fn new(engine: &'a Engine, state: &'a State, available: ByteLength) -> Self {
        let mut clones: HashMap<VersionId, Vec<String>> = HashMap::new();
        let mut origins = HashMap::new();
        for (name, id) in state.catalogue.names() {
            if let Some(origin) = state.origin(id) {
                clones.entry(origin).or_default().push(name.to_owned());
                origins.insert(id, origin);
            }
        }
        Self { engine, state, available, clones, origins }
    }

    fn dataset(&self, id: DatasetId) -> Result<ListEntry> {
        let row = self.state.catalogue.dataset(id).expect("listed");
        let subtree = self.state.catalogue.subtree(&row.name);
        let used: u64 = subtree.into_iter().map(|inner| self.state.owned_by(inner)).sum();
        Ok(ListEntry {
            name: row.name.clone(),
            kind: EntryKind::Dataset,
            used: ByteLength(used * BLOCK_BYTES as u64),
            available: Some(self.engine.available_to(self.state, id, self.available)),
            referenced: self.state.history.referenced(row.head)?.bytes(),
            written: self.state.history.written(row.head)?.bytes(),
            created: row.created,
            origin: self.origins.get(&id).map(|origin| self.state.catalogue.full_name(*origin)),
            limits: DatasetLimits::of_properties(&row.properties),
            holds: 0,
            clones: Vec::new(),
        })
    }

    /// What only a version reaches. Where damage keeps that from being known it is nothing: the incidents say
    /// so.
    fn used(&self, version: VersionId) -> Result<BlockCount> {
        match self.state.history.used(version) {
            Err(HistoryFault::Unread(_) | HistoryFault::Refused(_)) => Ok(BlockCount(0)),
            used => Ok(used?),
        }
    }

    fn snapshot(&self, dataset: DatasetId, version: VersionId) -> Result<ListEntry> {
        let row = self.state.catalogue.snapshot(version).expect("listed");
        let name = &self.state.catalogue.dataset(dataset).expect("listed").name;
        Ok(ListEntry {
            name: format!("{name}@{}", row.name),
            kind: EntryKind::Snapshot,
            used: self.used(version)?.bytes(),
            available: None,
            referenced: self.state.history.referenced(version)?.bytes(),
            written: self.state.history.written(version)?.bytes(),
            created: row.created,
            origin: None,
            limits: DatasetLimits::default(),
            holds: row.holds.len() as u32,
            clones: self.clones.get(&version).cloned().unwrap_or_default(),
        })
    }
}
