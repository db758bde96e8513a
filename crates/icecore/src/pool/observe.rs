//! Observers of changes that come from elsewhere: a front end that caches what it has shown.

use super::Pool;
use crate::dataset::User;
use crate::error::{Error, Result, listed};
use crate::state::State;
use crate::units::{DatasetId, InodeNumber, VersionId};
use std::sync::{Arc, Weak};

/// A change that the observer did not make itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PoolChange {
    /// Datasets were made, renamed, promoted or destroyed.
    Datasets,
    /// Snapshots were taken, renamed or destroyed.
    Snapshots,
    /// A name in a directory leads to something else than before.
    Name {
        /// The dataset.
        dataset: DatasetId,
        /// The directory.
        directory: InodeNumber,
        /// The name.
        name: Vec<u8>,
    },
    /// A file has another content.
    Content {
        /// The dataset.
        dataset: DatasetId,
        /// The file.
        inode: InodeNumber,
    },
}

/// What an open file stands in the way of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// A rollback, which takes writers by surprise.
    ToRollback,
    /// The end of the dataset.
    ToDestroy,
}

/// A front end that wants to know what happens to the pool beside it. No method is called with a lock of the
/// store held.
pub trait PoolObserver: Send + Sync {
    /// A change is done, and durable.
    fn changed(&self, change: &PoolChange);

    /// A dataset is going to be rolled back by `act`, which answers whether it was. The observer calls `act`
    /// exactly once. While it runs, the observer makes no change to the dataset; after it, old handles are
    /// stale.
    fn roll_back(&self, dataset: DatasetId, act: &mut dyn FnMut() -> bool);

    /// What the observer has open in a dataset, in words for a message. Empty: nothing that is in the way.
    fn users(&self, dataset: DatasetId, obstacle: Obstacle) -> Vec<String>;

    /// What the observer has open in a snapshot of a dataset, in words for a message. Empty: nothing.
    fn readers(&self, dataset: DatasetId, snapshot: VersionId) -> Vec<String>;
}

impl Pool {
    /// Registers an observer, for as long as it lives.
    pub fn observe(&self, observer: &Arc<dyn PoolObserver>) {
        let mut observers = self.shared.observers.lock();
        observers.retain(|known| known.strong_count() > 0);
        observers.push(Arc::downgrade(observer));
    }

    fn observers(&self) -> Vec<Arc<dyn PoolObserver>> {
        self.shared.observers.lock().iter().filter_map(Weak::upgrade).collect()
    }

    pub(super) fn is_observed(&self) -> bool {
        !self.observers().is_empty()
    }

    /// Reports a change that is done to the observers.
    pub(crate) fn tell(&self, change: &PoolChange) {
        self.observers().iter().for_each(|observer| observer.changed(change));
    }

    /// Reports the change to the observers if the outcome is a success.
    pub(super) fn telling<T>(&self, change: &PoolChange, outcome: Result<T>) -> Result<T> {
        if outcome.is_ok() {
            self.tell(change);
        }
        outcome
    }

    /// Runs a rollback with every observer holding still.
    pub(super) fn holding_still<T>(&self, dataset: DatasetId, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let mut act = Some(act);
        let mut outcome = None;
        nested(&self.observers(), dataset, &mut || {
            outcome = act.take().map(|act| act());
            matches!(outcome, Some(Ok(_)))
        });
        outcome.unwrap_or_else(|| Err(Error::Invalid("an observer did not let the rollback run".to_owned())))
    }

    /// Refuses what observers have files open against.
    pub(super) fn refuse_observed(
        &self,
        dataset: DatasetId,
        name: &str,
        obstacle: Obstacle,
        way_out: &str,
    ) -> Result<()> {
        let users: Vec<String> =
            self.observers().iter().flat_map(|observer| observer.users(dataset, obstacle)).collect();
        refuse_if_any(&users, name, way_out)
    }

    /// Refuses what programs of the owner have datasets open against.
    pub(super) fn refuse_users(&self, state: &State, datasets: &[DatasetId], way_out: &str) -> Result<()> {
        let users = self.engine().users.lock();
        for id in datasets {
            if let Some(open) = users.get(id).filter(|open| !open.is_empty()) {
                refuse_if_any(&[User::list(open)], &Self::name_of(state, *id), way_out)?;
            }
        }
        Ok(())
    }

    /// Refuses to destroy a snapshot in which an observer has something open.
    pub(super) fn refuse_read(&self, dataset: DatasetId, snapshot: VersionId, name: &str) -> Result<()> {
        let readers: Vec<String> =
            self.observers().iter().flat_map(|observer| observer.readers(dataset, snapshot)).collect();
        refuse_if_any(&readers, name, "close it first")
    }

    /// The name of a dataset that is there.
    pub(super) fn name_of(state: &State, dataset: DatasetId) -> String {
        state.catalogue.dataset(dataset).map(|row| row.name.clone()).unwrap_or_default()
    }
}

fn refuse_if_any(users: &[String], name: &str, way_out: &str) -> Result<()> {
    if users.is_empty() {
        return Ok(());
    }
    let blockers = format!("{} is open; {way_out}", listed(users, ", "));
    Err(Error::Busy { what: name.to_owned(), blockers })
}

fn nested(observers: &[Arc<dyn PoolObserver>], dataset: DatasetId, act: &mut dyn FnMut() -> bool) {
    match observers.split_first() {
        None => {
            act();
        }
        Some((first, rest)) => first.roll_back(dataset, &mut || {
            let mut done = false;
            nested(rest, dataset, &mut || {
                done = act();
                done
            });
            done
        }),
    }
}
