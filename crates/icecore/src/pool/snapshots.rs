//! Taking snapshots, and going back to them.

use super::Pool;
use super::observe::{Obstacle, PoolChange};
use super::properties::check_property;
use crate::dataset::User;
use crate::engine::Purpose;
use crate::error::{Error, Result};
use crate::names::SnapshotName;
use crate::operation::Operation;
use crate::retention::ROLLBACK_PREFIX;
use crate::state::State;
use crate::units::DatasetId;
use std::time::Instant;

/// What a rollback did.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct RollbackReport {
    /// Full name of the snapshot that keeps the former head: rolling back to it undoes the rollback.
    pub saved_as: String,
}

impl Pool {
    /// Takes snapshots, all of one moment. `recursive`: also of every dataset below those named. Durable on
    /// return; costs one flush however much the datasets hold.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`], [`Error::BadName`]: then none is taken.
    pub fn snapshot(
        &self,
        names: &[String],
        recursive: bool,
        properties: &[(String, String)],
    ) -> Result<Vec<String>> {
        let taken = self.engine().with_room(|| self.try_snapshot(names, recursive, properties));
        self.telling(&PoolChange::Snapshots, taken)
    }

    fn try_snapshot(
        &self,
        names: &[String],
        recursive: bool,
        properties: &[(String, String)],
    ) -> Result<Vec<String>> {
        let began = Instant::now();
        for (key, value) in properties {
            check_property(key, value)?;
        }
        let engine = self.engine();
        engine.admit()?;
        let mut state = engine.state();
        let snapshots = collect(&state, names, recursive)?;
        let full = snapshots
            .iter()
            .map(|(id, name)| format!("{}@{name}", state.catalogue.dataset(*id).expect("found").name))
            .collect();
        engine.check_snapshot(&state, snapshots.iter().map(|(id, _)| *id))?;
        let operation =
            Operation::Snapshot { snapshots, time: self.engine().now(), properties: properties.to_vec() };
        engine.append(&mut state, &operation, None, Purpose::Data)?;
        self.finish(state)?;
        engine.counters.snapshot(began.elapsed());
        Ok(full)
    }

    /// Puts a dataset back to one of its snapshots. Newer snapshots stay; the former head is kept as a
    /// snapshot, so that this can be undone by rolling back to that. `force`: also while handles are open,
    /// which then answer [`Error::StaleHandle`]. Durable on return. Works on a full pool.
    ///
    /// # Errors
    /// [`Error::Busy`] naming who has the dataset open, [`Error::NotFound`].
    pub fn rollback(&self, snapshot: &str, force: bool) -> Result<RollbackReport> {
        self.engine().check_open()?;
        let (dataset, name) = {
            let state = self.engine().state();
            let (dataset, _) = self.find_snapshot(&state, snapshot)?;
            (dataset, Self::name_of(&state, dataset))
        };
        let done = self.holding_still(dataset, || {
            if !force {
                let way_out = "close it, or force the rollback (-f)";
                self.refuse_observed(dataset, &name, Obstacle::ToRollback, way_out)?;
            }
            self.engine().with_room(|| self.try_rollback(snapshot, force))
        });
        self.telling(&PoolChange::Snapshots, done)
    }

    fn try_rollback(&self, snapshot: &str, force: bool) -> Result<RollbackReport> {
        let engine = self.engine();
        engine.admit()?;
        let mut state = engine.state();
        let (dataset, version) = self.find_snapshot(&state, snapshot)?;
        if !force {
            self.refuse_users(&state, dataset)?;
        }
        let time = self.engine().now();
        let saved = free_name(&state, dataset, &format!("{ROLLBACK_PREFIX}{}", time.to_rfc3339()));
        let name = state.catalogue.dataset(dataset).expect("found").name.clone();
        let operation = Operation::Rollback { dataset, snapshot: version, saved: saved.clone(), time };
        // Whoever has filled a pool by mistake must be able to go back: it costs a row, and no block of any file.
        engine.append(&mut state, &operation, None, Purpose::Freeing)?;
        self.finish(state)?;
        Ok(RollbackReport { saved_as: format!("{name}@{saved}") })
    }

    fn refuse_users(&self, state: &State, dataset: DatasetId) -> Result<()> {
        let users = self.engine().users.lock();
        let Some(open) = users.get(&dataset).filter(|open| !open.is_empty()) else { return Ok(()) };
        let what = state.catalogue.dataset(dataset).expect("found").name.clone();
        let blockers = format!("{} is open; close it, or force the rollback (-f)", User::list(open));
        Err(Error::Busy { what, blockers })
    }
}

/// A name that no snapshot of the dataset has.
fn free_name(state: &State, dataset: DatasetId, wish: &str) -> String {
    let mut name = wish.to_owned();
    let mut attempt = 1;
    while state.catalogue.has_snapshot(dataset, &name) {
        attempt += 1;
        name = format!("{wish}-{attempt}");
    }
    name
}

/// The snapshots that a request comes to, each once.
fn collect(state: &State, names: &[String], recursive: bool) -> Result<Vec<(DatasetId, String)>> {
    let mut snapshots: Vec<(DatasetId, String)> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    for name in names {
        let parsed = SnapshotName::parse(name)?;
        let top = state.catalogue.find(parsed.dataset_str())?;
        let datasets = if recursive { state.catalogue.subtree(parsed.dataset_str()) } else { vec![top] };
        for id in datasets {
            let dataset = &state.catalogue.dataset(id).expect("found").name;
            // A longer dataset below may leave no room for the name.
            SnapshotName::parse(&format!("{dataset}@{}", parsed.short()))?;
            let twice = !seen.insert((id, parsed.short().to_owned()));
            if twice || state.catalogue.has_snapshot(id, parsed.short()) {
                return Err(Error::Exists { what: format!("snapshot {dataset}@{}", parsed.short()) });
            }
            snapshots.push((id, parsed.short().to_owned()));
        }
    }
    if snapshots.is_empty() {
        return Err(Error::Invalid("name one snapshot at least".to_owned()));
    }
    Ok(snapshots)
}
