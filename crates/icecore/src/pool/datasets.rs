//! Making, cloning, renaming and promoting datasets.

use super::Pool;
use super::observe::PoolChange;
use super::properties::check_property;
use crate::dataset::User;
use crate::engine::{Making, Purpose};
use crate::error::{Error, Result};
use crate::limits::{DatasetLimits, Limit};
use crate::names::{DatasetName, SnapshotName, VersionName};
use crate::operation::Operation;
use crate::state::State;
use crate::units::{BlockCount, DatasetId, VersionId};

/// Nodes that making a dataset makes, usually fewer.
const NODES_PER_DATASET: usize = 8;
/// Blocks of log that it takes: a record with properties that do not fit into its header.
const RECORD_BLOCKS: usize = 8;

impl Pool {
    /// Makes a dataset. `parents`: also the datasets above it that do not exist. Durable on return.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::BadName`], [`Error::NotFound`] for a missing parent, [`Error::NoSpace`].
    pub fn create_dataset(&self, name: &str, parents: bool, properties: &[(String, String)]) -> Result<()> {
        let made = self.engine().with_room(|| self.try_create_dataset(name, parents, properties));
        self.telling(&PoolChange::Datasets, made)
    }

    fn try_create_dataset(&self, name: &str, parents: bool, properties: &[(String, String)]) -> Result<()> {
        let name = DatasetName::parse(name)?;
        let limits = DatasetLimits::of_properties(&properties.iter().cloned().collect());
        limits.check()?;
        for (key, value) in properties {
            match Limit::from_name(key) {
                Some(limit) => drop(limit.parse(value)?),
                None => check_property(key, value)?,
            }
        }
        let engine = self.engine();
        engine.admit()?;
        let mut state = engine.state();
        if let Some(reserved) = limits.reservation.max(limits.refreservation) {
            engine.check_reservable(&state, name.as_str(), BlockCount::holding(reserved))?;
        }
        self.prepare_place(&mut state, &name, parents, 1)?;
        let operation = Operation::CreateDataset {
            name: name.as_str().to_owned(),
            time: self.engine().now(),
            properties: properties.to_vec(),
        };
        engine.append(&mut state, &operation, None, Purpose::Data)?;
        self.finish(state)
    }

    /// Makes a dataset that begins as a copy of a snapshot, at no cost. Durable on return.
    ///
    /// # Errors
    /// As for [`Pool::create_dataset`]; [`Error::NotFound`] for the snapshot.
    pub fn clone_snapshot(&self, snapshot: &str, target: &str, parents: bool) -> Result<()> {
        let made = self.engine().with_room(|| self.try_clone_snapshot(snapshot, target, parents));
        self.telling(&PoolChange::Datasets, made)
    }

    fn try_clone_snapshot(&self, snapshot: &str, target: &str, parents: bool) -> Result<()> {
        let target = DatasetName::parse(target)?;
        let engine = self.engine();
        engine.admit()?;
        let mut state = engine.state();
        let (_, origin) = self.find_snapshot(&state, snapshot)?;
        self.prepare_place(&mut state, &target, parents, 0)?;
        let operation =
            Operation::Clone { origin, name: target.as_str().to_owned(), time: self.engine().now() };
        engine.append(&mut state, &operation, None, Purpose::Data)?;
        self.finish(state)
    }

    /// Checks that a dataset can be made, and makes what has to be above it. It is the last check before the
    /// dataset is made itself, so that nothing is left of one that is refused. `nodes`: what it is made of
    /// itself; a clone is made of nothing.
    fn prepare_place(
        &self,
        state: &mut State,
        name: &DatasetName,
        parents: bool,
        nodes: usize,
    ) -> Result<()> {
        if state.catalogue.has_dataset(name.as_str()) {
            return Err(Error::Exists { what: format!("dataset {name}") });
        }
        let mut missing = Vec::new();
        let mut above = name.parent();
        while let Some(parent) = above {
            if state.catalogue.has_dataset(parent.as_str()) {
                let above = state.catalogue.find(parent.as_str())?;
                self.engine().check_new_datasets(state, above, missing.len() + nodes)?;
                break;
            }
            above = parent.parent();
            missing.push(parent);
        }
        if let (Some(first), false) = (missing.last(), parents) {
            let what = format!("dataset {first}, above {name} (-p makes it)");
            return Err(Error::NotFound { what });
        }
        if !missing.is_empty() {
            let together = missing.len() + 1;
            let making = Making { nodes: (NODES_PER_DATASET * together) as u64, merged: 0 };
            let segments = usize::from(state.tail.room() < (RECORD_BLOCKS * together) as u64);
            self.engine().ensure_free_with(state, segments, Purpose::Data, making)?;
            self.engine().ensure_reserve(state, Purpose::Data, NODES_PER_DATASET * together)?;
        }
        for parent in missing.iter().rev() {
            let operation = Operation::CreateDataset {
                name: parent.as_str().to_owned(),
                time: self.engine().now(),
                properties: Vec::new(),
            };
            self.engine().append(state, &operation, None, Purpose::Data)?;
        }
        Ok(())
    }

    /// Lets go of the state, and makes what was appended durable.
    pub(super) fn finish(&self, state: parking_lot::MutexGuard<'_, State>) -> Result<()> {
        let last = state.tail.last_sequence();
        let pressure = self.engine().pressure(&state);
        drop(state);
        self.engine().make_durable(last)?;
        self.engine().after_append(pressure)
    }

    /// Lets a clone take over the snapshots of its origin, up to the one it was made from. Durable on return.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not a clone, [`Error::Exists`] if names would collide.
    pub fn promote(&self, dataset: &str) -> Result<()> {
        let promoted = self.engine().with_room(|| self.try_promote(dataset));
        self.telling(&PoolChange::Snapshots, promoted)
    }

    fn try_promote(&self, dataset: &str) -> Result<()> {
        let engine = self.engine();
        engine.admit()?;
        let mut state = engine.state();
        let id = state.catalogue.find(dataset)?;
        let versions = state.promoted(id);
        if versions.is_empty() {
            return Err(Error::Invalid(format!("{dataset} is not a clone: there is nothing to promote")));
        }
        let clashes: Vec<String> = versions
            .iter()
            .filter_map(|version| state.catalogue.snapshot(*version))
            .filter(|row| !row.hidden && state.catalogue.has_snapshot(id, &row.name))
            .map(|row| format!("{dataset}@{}", row.name))
            .collect();
        if !clashes.is_empty() {
            let what = format!("{} (rename one of the two first)", clashes.join(", "));
            return Err(Error::Exists { what });
        }
        let owned =
            |version: &VersionId| state.history.version(*version).map_or(0, |one| one.owned().len().0);
        let moved = BlockCount(versions.iter().map(owned).sum());
        let from = state.catalogue.snapshot(versions[0]).expect("promoted").dataset;
        engine.check_moved(&state, from, Some(id), moved)?;
        engine.append(&mut state, &Operation::Promote { dataset: id }, None, Purpose::Freeing)?;
        self.finish(state)
    }

    /// Renames a dataset with everything below it, or a snapshot within its dataset (`recursive`: the
    /// snapshots of that name in the datasets below, too). Durable on return.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Exists`], [`Error::BadName`]; [`Error::Busy`] while a transaction writes
    /// to a dataset that would get another name.
    pub fn rename(&self, from: &str, to: &str, recursive: bool) -> Result<()> {
        let renamed = self.engine().with_room(|| self.try_rename(from, to, recursive));
        let change = if from.contains('@') { PoolChange::Snapshots } else { PoolChange::Datasets };
        self.telling(&change, renamed)
    }

    fn try_rename(&self, from: &str, to: &str, recursive: bool) -> Result<()> {
        match (VersionName::parse(from)?, to.contains('@')) {
            (VersionName::Head(from), false) => self.rename_dataset(&from, &DatasetName::parse(to)?),
            (VersionName::Snapshot(from), _) => {
                let to =
                    if to.contains('@') { to.to_owned() } else { format!("{}@{to}", from.dataset_str()) };
                let to = SnapshotName::parse(&to)?;
                if to.dataset_str() != from.dataset_str() {
                    let message = format!("{from} can only be renamed within {}", from.dataset_str());
                    return Err(Error::Invalid(message));
                }
                self.rename_snapshot(&from, &to, recursive)
            }
            (VersionName::Head(from), true) => {
                Err(Error::Invalid(format!("dataset {from} cannot be renamed to a snapshot")))
            }
        }
    }

    fn rename_dataset(&self, from: &DatasetName, to: &DatasetName) -> Result<()> {
        let engine = self.engine();
        engine.admit()?;
        let mut state = engine.state();
        state.catalogue.find(from.as_str())?;
        if state.catalogue.has_dataset(to.as_str()) {
            return Err(Error::Exists { what: format!("dataset {to}") });
        }
        if to.is_within(from) {
            return Err(Error::Invalid(format!("{from} cannot be moved below itself")));
        }
        if let Some(parent) = to.parent() {
            state.catalogue.find(parent.as_str())?;
        }
        let subtree = state.catalogue.subtree(from.as_str());
        self.refuse_writers(&state, &subtree)?;
        let moved = BlockCount(subtree.iter().map(|id| state.owned_by(*id)).sum());
        let above = to.parent().and_then(|parent| state.catalogue.find(parent.as_str()).ok());
        engine.check_moved(&state, state.catalogue.find(from.as_str())?, above, moved)?;
        let mut names = Vec::new();
        for id in subtree {
            let old = &state.catalogue.dataset(id).expect("listed").name;
            let new = format!("{to}{}", &old[from.as_str().len()..]);
            DatasetName::parse(&new)?;
            names.push((id, new));
        }
        engine.append(&mut state, &Operation::RenameDatasets { names }, None, Purpose::Data)?;
        self.finish(state)
    }

    fn refuse_writers(&self, state: &State, datasets: &[DatasetId]) -> Result<()> {
        let users = self.engine().users.lock();
        for id in datasets {
            let writing = User::writing(users.get(id).map_or(&[], Vec::as_slice));
            if !writing.is_empty() {
                let what = state.catalogue.dataset(*id).expect("listed").name.clone();
                let list = User::list(&writing);
                let blockers = format!("a transaction writes to {list}; commit it or roll it back first");
                return Err(Error::Busy { what, blockers });
            }
        }
        Ok(())
    }

    fn rename_snapshot(&self, from: &SnapshotName, to: &SnapshotName, recursive: bool) -> Result<()> {
        let engine = self.engine();
        engine.admit()?;
        let mut state = engine.state();
        let top = state.catalogue.find(from.dataset_str())?;
        let datasets = if recursive { state.catalogue.subtree(from.dataset_str()) } else { vec![top] };
        let mut names = Vec::new();
        for id in datasets {
            let version = match state.catalogue.find_snapshot(id, from.short()) {
                Ok(version) => version,
                Err(error) if id == top => return Err(error),
                Err(_) => continue,
            };
            if state.catalogue.has_snapshot(id, to.short()) {
                let dataset = &state.catalogue.dataset(id).expect("listed").name;
                return Err(Error::Exists { what: format!("snapshot {dataset}@{}", to.short()) });
            }
            names.push((version, to.short().to_owned()));
        }
        engine.append(&mut state, &Operation::RenameSnapshots { names }, None, Purpose::Data)?;
        self.finish(state)
    }
}
