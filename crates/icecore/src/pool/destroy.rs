//! Destroying snapshots, ranges of them and datasets: first what would go, then the act.

use super::Pool;
use super::observe::{Obstacle, PoolChange};
use crate::engine::Purpose;
use crate::error::{Error, Result, listed};
use crate::names::{DestroyTarget, SnapshotName};
use crate::operation::Operation;
use crate::state::State;
use crate::units::{BlockCount, ByteLength, DatasetId, VersionId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Snapshots that one record destroys at most; a longer range takes several.
const VERSIONS_PER_RECORD: usize = 100_000;

/// What destroying something comes to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DestroyPlan {
    /// Full names of everything that goes.
    pub names: Vec<String>,
    /// Bytes that nothing else refers to, and that come back. Exact. What is being read is not among them: it
    /// comes back when its readers have gone.
    pub frees: ByteLength,
}

struct Selection {
    versions: Vec<VersionId>,
    datasets: Vec<DatasetId>,
    names: Vec<String>,
}

impl Pool {
    /// What destroying `target` would do, without doing it.
    ///
    /// # Errors
    /// As for [`Pool::destroy`].
    pub fn plan_destroy(&self, target: &DestroyTarget) -> Result<DestroyPlan> {
        self.plan(target, Holds::Refuse)
    }

    /// What destroying `target` would give back if nothing held it: for a caller that means to release holds
    /// first.
    ///
    /// # Errors
    /// As for [`Pool::destroy`], but for holds.
    pub fn plan_destroy_unheld(&self, target: &DestroyTarget) -> Result<DestroyPlan> {
        self.plan(target, Holds::Ignored)
    }

    fn plan(&self, target: &DestroyTarget, holds: Holds) -> Result<DestroyPlan> {
        self.engine().check_open()?;
        target.check()?;
        let state = self.engine().settled_state()?;
        let selection = select(&state, target, holds)?;
        let frees = frees(&state, &selection, &state.graveyard.pins().versions())?;
        drop(state);
        Ok(DestroyPlan { names: selection.names, frees: frees.bytes() })
    }

    /// Destroys snapshots or datasets. Durable on return, and no caller finds them any more. Their blocks are
    /// freed in the background, and the space is reused once a checkpoint is durable that records it. Works
    /// on a full pool. If it cannot read what shows how many bytes come back, it answers that 0 bytes are
    /// freed. It frees what was planned as soon as that can be read.
    ///
    /// # Errors
    /// [`Error::Busy`] naming holds, snapshots or handles in the way; [`Error::NotFound`]. Then
    /// nothing is destroyed.
    pub fn destroy(&self, target: &DestroyTarget) -> Result<DestroyPlan> {
        self.refuse_mounted(target)?;
        let destroyed = self.engine().with_room(|| self.try_destroy(target));
        let change = match target {
            DestroyTarget::Dataset { .. } => PoolChange::Datasets,
            _ => PoolChange::Snapshots,
        };
        self.telling(&change, destroyed)
    }

    /// Refuses to destroy a dataset or a snapshot in which an observer has something open.
    fn refuse_mounted(&self, target: &DestroyTarget) -> Result<()> {
        if !self.is_observed() {
            return Ok(());
        }
        // No observer is asked with the state locked.
        let (datasets, snapshots) = {
            let state = self.engine().state();
            // The attempt itself refuses what cannot be selected, and says why.
            let Ok(selection) = select(&state, target, Holds::Ignored) else { return Ok(()) };
            let named = |id: &DatasetId| (*id, Self::name_of(&state, *id));
            let datasets: Vec<_> = selection.datasets.iter().map(named).collect();
            let row = |version: &VersionId| {
                let row = state.catalogue.snapshot(*version)?;
                Some((row.dataset, *version, state.catalogue.full_name(*version)))
            };
            (datasets, selection.versions.iter().filter_map(row).collect::<Vec<_>>())
        };
        for (id, name) in &datasets {
            self.refuse_observed(*id, name, Obstacle::ToDestroy, "close it first")?;
        }
        snapshots.iter().try_for_each(|(dataset, version, name)| self.refuse_read(*dataset, *version, name))
    }

    fn try_destroy(&self, target: &DestroyTarget) -> Result<DestroyPlan> {
        let engine = self.engine();
        engine.admit()?;
        target.check()?;
        // What earlier destructions left to be done would be part of what this one frees.
        let mut state = engine.settled_state()?;
        let selection = select(&state, target, Holds::Refuse)?;
        // Damage that hides what comes back is no reason not to go: that is freed when it can be read.
        let read = state.graveyard.pins().versions();
        let known = match frees(&state, &selection, &read) {
            Err(Error::Damaged { .. } | Error::Io { .. }) => None,
            frees => Some(frees?),
        };
        let is_settled = state.history.doomed_count() == 0;
        if selection.datasets.is_empty() {
            for part in selection.versions.chunks(VERSIONS_PER_RECORD) {
                let operation = Operation::DestroySnapshots { versions: part.to_vec() };
                engine.append(&mut state, &operation, None, Purpose::Freeing)?;
            }
            // A reader may have gone since.
            let is_as_planned =
                |version: &VersionId| read.contains(version) == state.history.is_read(*version);
            if let Some(frees) = known.filter(|_| is_settled && selection.versions.iter().all(is_as_planned))
            {
                state.history.know_freeing(frees);
            }
        } else {
            self.refuse_users(&state, &selection.datasets, "close it first")?;
            let operation = Operation::DestroyDatasets { datasets: selection.datasets };
            engine.append(&mut state, &operation, None, Purpose::Freeing)?;
        }
        let judged = !state.usage.is_empty();
        let is_room_wanted = engine.is_room_wanted(&state, known);
        self.finish(state)?;
        engine.begin_freeing();
        if judged {
            // Quotas count what is there: what was destroyed must not stand in a writer's way any more.
            engine.finish_freeing()?;
        }
        if is_room_wanted {
            // The next caller finds the room, and none of its readers is older than these deaths.
            match engine.reclaim() {
                Ok(_) | Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(DestroyPlan { names: selection.names, frees: known.unwrap_or_default().bytes() })
    }
}

/// What no version reaches but those that are selected and not read.
fn frees(state: &State, selection: &Selection, read: &BTreeSet<VersionId>) -> Result<BlockCount> {
    let unread = selection.versions.iter().copied().filter(|version| !read.contains(version));
    let unread: Vec<VersionId> = unread.collect();
    Ok(state.history.freed_by_deleting_set(&state.history.going(&unread))?)
}

/// What holds are to a selection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Holds {
    Refuse,
    Ignored,
}

fn select(state: &State, target: &DestroyTarget, holds: Holds) -> Result<Selection> {
    match target {
        DestroyTarget::Snapshot(name) => {
            let name = SnapshotName::parse(name)?;
            let id = state.catalogue.find(name.dataset_str())?;
            let version = state.catalogue.find_snapshot(id, name.short())?;
            select_snapshots(state, vec![version], holds)
        }
        DestroyTarget::Range { dataset, first, last } => {
            let id = state.catalogue.find(dataset)?;
            select_snapshots(state, range(state, id, first, last)?, holds)
        }
        DestroyTarget::Snapshots { of } => select_snapshots(state, named(state, of)?, holds),
        DestroyTarget::Dataset { name, recursive } => select_datasets(state, name, *recursive, holds),
    }
}

/// Snapshots by name, each once.
fn named(state: &State, of: &[(String, Vec<String>)]) -> Result<Vec<VersionId>> {
    let mut versions = Vec::new();
    let mut seen = BTreeSet::new();
    for (dataset, snapshots) in of {
        let id = state.catalogue.find(dataset)?;
        for short in snapshots {
            let version = state.catalogue.find_snapshot(id, short)?;
            if seen.insert(version) {
                versions.push(version);
            }
        }
    }
    if versions.is_empty() {
        return Err(Error::Invalid("name one snapshot at least".to_owned()));
    }
    Ok(versions)
}

/// The snapshots of a dataset from `first` to `last`, which must lie on one branch. Where promotions went
/// back and forth, there may be those of others between them: they are none of its business.
fn range(state: &State, id: DatasetId, first: &str, last: &str) -> Result<Vec<VersionId>> {
    let first = state.catalogue.find_snapshot(id, first)?;
    let last = state.catalogue.find_snapshot(id, last)?;
    let mut versions = Vec::new();
    for version in std::iter::once(last).chain(state.above(last)) {
        let Some(row) = state.catalogue.snapshot(version) else { break };
        if !row.hidden && row.dataset == id {
            versions.push(version);
        }
        if version == first {
            versions.reverse();
            return Ok(versions);
        }
    }
    let (first, last) = (state.catalogue.full_name(first), state.catalogue.full_name(last));
    Err(Error::Invalid(format!("{first} is not an ancestor of {last}: they do not make a range")))
}

fn select_snapshots(state: &State, versions: Vec<VersionId>, holds: Holds) -> Result<Selection> {
    let mut blockers = Vec::new();
    for version in &versions {
        let row = state.catalogue.snapshot(*version).expect("found");
        let name = || state.catalogue.full_name(*version);
        for tag in row.holds.keys().filter(|_| holds == Holds::Refuse) {
            blockers.push(format!("{} has hold {tag:?} (release it first)", name()));
        }
    }
    if !blockers.is_empty() {
        let what = state.catalogue.full_name(versions[0]);
        return Err(Error::Busy { what, blockers: listed(&blockers, "; ") });
    }
    let names = versions.iter().map(|version| state.catalogue.full_name(*version)).collect();
    Ok(Selection { versions, datasets: Vec::new(), names })
}

fn select_datasets(state: &State, name: &str, recursive: bool, holds: Holds) -> Result<Selection> {
    let top = state.catalogue.find(name)?;
    let datasets = state.catalogue.subtree(name);
    let mut versions = Vec::new();
    let mut names = Vec::new();
    let mut blockers = Vec::new();
    for id in &datasets {
        let row = state.catalogue.dataset(*id).expect("listed");
        versions.push(row.head);
        names.push(row.name.clone());
        if *id != top && !recursive {
            blockers.push(format!("{} lies below it", row.name));
        }
        for (version, snapshot) in state.catalogue.snapshots_of(*id) {
            versions.push(version);
            let full = format!("{}@{}", row.name, snapshot.name);
            if !recursive && !snapshot.hidden {
                blockers.push(format!("it has snapshot {full}"));
            }
            for tag in snapshot.holds.keys().filter(|_| holds == Holds::Refuse) {
                blockers.push(format!("{full} has hold {tag:?} (release it first)"));
            }
            if !snapshot.hidden {
                names.push(full);
            }
        }
    }
    if !blockers.is_empty() {
        let mut text = listed(&blockers, "; ");
        if !recursive {
            text.push_str(" (-r destroys what belongs to it)");
        }
        return Err(Error::Busy { what: name.to_owned(), blockers: text });
    }
    Ok(Selection { versions, datasets, names })
}
