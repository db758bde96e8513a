//! The directory: what it shows, what is durable of it, and what lies between.

use super::survival::Survival;
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};

/// Names, each with the number of its file.
pub(super) type Entries = BTreeMap<String, u64>;

/// The entries of the disk.
#[derive(Clone, Default)]
pub(super) struct Directory {
    entries: Entries,
    durable: Entries,
    pending: Vec<Change>,
}

/// One creation, removal or renaming: the names it touches, each with its file from then on. All of it
/// happens or nothing.
#[derive(Clone)]
struct Change {
    order: u64,
    names: Vec<(String, Option<u64>)>,
}

impl Change {
    fn apply(&self, entries: &mut Entries) {
        for (name, file) in &self.names {
            match file {
                Some(file) => entries.insert(name.clone(), *file),
                None => entries.remove(name),
            };
        }
    }
}

impl Directory {
    /// The file of this name.
    pub(super) fn get(&self, name: &str) -> Option<u64> {
        self.entries.get(name).copied()
    }

    /// Everything as it shows now.
    pub(super) const fn entries(&self) -> &Entries {
        &self.entries
    }

    /// The files that a name leads to, or could after a crash.
    pub(super) fn reachable(&self) -> BTreeSet<u64> {
        let pending = self.pending.iter().flat_map(|change| &change.names).filter_map(|(_, file)| *file);
        self.entries.values().chain(self.durable.values()).copied().chain(pending).collect()
    }

    /// Order of the oldest change that is not durable.
    pub(super) fn first_pending(&self) -> Option<u64> {
        self.pending.first().map(|change| change.order)
    }

    pub(super) fn create(&mut self, order: u64, name: &str, file: u64) {
        self.change(order, vec![(name.to_owned(), Some(file))]);
    }

    pub(super) fn remove(&mut self, order: u64, name: &str) {
        self.change(order, vec![(name.to_owned(), None)]);
    }

    pub(super) fn rename(&mut self, order: u64, from: &str, to: &str, file: u64) {
        self.change(order, vec![(from.to_owned(), None), (to.to_owned(), Some(file))]);
    }

    fn change(&mut self, order: u64, names: Vec<(String, Option<u64>)>) {
        let change = Change { order, names };
        change.apply(&mut self.entries);
        self.pending.push(change);
    }

    /// Makes what shows now durable.
    pub(super) fn sync(&mut self) {
        for change in self.pending.drain(..) {
            change.apply(&mut self.durable);
        }
    }

    /// A name vanishes, now and for good.
    pub(super) fn lose(&mut self, name: &str) {
        self.sync();
        self.entries.remove(name);
        self.durable.remove(name);
    }

    /// Keeps the changes that survive. Changes of different names are independent of each other; those that
    /// share a name take effect in order, so a change needs all the earlier ones of its names.
    pub(super) fn crash(&mut self, survival: &Survival, random: &mut Random) {
        let mut needed = BTreeSet::new();
        let mut kept = Vec::new();
        for change in self.pending.drain(..).rev() {
            let is_needed = change.names.iter().any(|(name, _)| needed.contains(name));
            if survival.keeps(change.order, random) || is_needed {
                needed.extend(change.names.iter().map(|(name, _)| name.clone()));
                kept.push(change);
            }
        }
        for change in kept.iter().rev() {
            change.apply(&mut self.durable);
        }
        self.entries = self.durable.clone();
    }
}
