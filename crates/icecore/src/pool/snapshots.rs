//! Taking snapshots, and going back to them.

use super::Pool;
use super::observe::{Obstacle, PoolChange};
use super::properties::check_property;
use crate::engine::Purpose;
use crate::error::{Error, Result};
use crate::names::SnapshotName;
use crate::operation::Operation;
use crate::retention::ROLLBACK_PREFIX;
use crate::state::State;
use crate::units::{DatasetId, Timestamp};
use std::time::Instant;

/// What ends a name that the moment completes.
const MOMENT: char = '*';

/// What a rollback did.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct RollbackReport {
    /// Full name of the snapshot that keeps the former head: rolling back to it undoes the rollback.
    pub saved_as: String,
}

impl Pool {
    /// Takes snapshots, all of one moment. `recursive`: also of every dataset below those named. Durable on
    /// return; costs one flush however much the datasets hold. In place of a `*` at the end of a name comes
    /// the moment, the same for all, and a number where a snapshot has that name: such a name is never taken.
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
        let time = engine.now();
        let snapshots = collect(&state, names, recursive, time)?;
        let full = snapshots
            .iter()
            .map(|(id, name)| format!("{}@{name}", state.catalogue.dataset(*id).expect("found").name))
            .collect();
        engine.check_snapshot(&state, snapshots.iter().map(|(id, _)| *id))?;
        let operation = Operation::Snapshot { snapshots, time, properties: properties.to_vec() };
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
        let refuse = || match force {
            true => Ok(()),
            false => {
                let way_out = "close it, or force the rollback (-f)";
                self.refuse_observed(dataset, &name, Obstacle::ToRollback, way_out)
            }
        };
        // An observer may wait for a file that is being closed: first where nothing waits for the observer.
        refuse()?;
        let done = self.holding_still(dataset, || {
            refuse()?;
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
            self.refuse_users(&state, &[dataset], "close it, or force the rollback (-f)")?;
        }
        let time = self.engine().now();
        let wish = format!("{ROLLBACK_PREFIX}{}", time.to_rfc3339());
        let saved = numbered(&wish, |name| state.catalogue.has_snapshot(dataset, name));
        let name = state.catalogue.dataset(dataset).expect("found").name.clone();
        let operation = Operation::Rollback { dataset, snapshot: version, saved: saved.clone(), time };
        // A user who has filled a pool by mistake must be able to go back: it costs a row, and no block of
        // any file.
        engine.append(&mut state, &operation, None, Purpose::Freeing)?;
        self.finish(state)?;
        Ok(RollbackReport { saved_as: format!("{name}@{saved}") })
    }
}

/// The snapshots that a request comes to, each once.
fn collect(
    state: &State,
    names: &[String],
    recursive: bool,
    time: Timestamp,
) -> Result<Vec<(DatasetId, String)>> {
    let mut snapshots: Vec<(DatasetId, String)> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    let moment = free_moment(state, names, recursive, time);
    for name in names {
        let name = name.strip_suffix(MOMENT).map_or_else(|| name.clone(), |begin| format!("{begin}{moment}"));
        let parsed = SnapshotName::parse(&name)?;
        state.catalogue.find(parsed.dataset_str())?;
        for id in meant(state, parsed.dataset_str(), recursive) {
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

/// The datasets that a name in a request stands for, none where there is no such dataset.
fn meant(state: &State, dataset: &str, recursive: bool) -> Vec<DatasetId> {
    if recursive {
        return state.catalogue.subtree(dataset);
    }
    state.catalogue.find(dataset).into_iter().collect()
}

/// The moment as text, with a number where it takes one for all names that it completes to be new.
fn free_moment(state: &State, names: &[String], recursive: bool, time: Timestamp) -> String {
    let open = names.iter().filter_map(|name| name.strip_suffix(MOMENT)?.split_once('@'));
    let wishes: Vec<(DatasetId, &str)> = open
        .flat_map(|(dataset, begin)| {
            meant(state, dataset, recursive).into_iter().map(move |dataset| (dataset, begin))
        })
        .collect();
    let is_taken = |moment: &str| {
        wishes
            .iter()
            .any(|(dataset, begin)| state.catalogue.has_snapshot(*dataset, &format!("{begin}{moment}")))
    };
    numbered(&time.to_rfc3339(), is_taken)
}

/// The text, or the first of it with `-2`, `-3`... that is not taken.
fn numbered(wish: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut name = wish.to_owned();
    let mut attempt = 1;
    while is_taken(&name) {
        attempt += 1;
        name = format!("{wish}-{attempt}");
    }
    name
}
