//! What the administrative steps do to datasets and snapshots.

use super::pool::{
    Dataset, ModelError, ModelPool, Result, Snapshot, SnapshotId, is_within, parse_dataset, parse_snapshot,
};
use super::tree::Tree;
use icecore::names::DestroyTarget;
use std::collections::BTreeSet;
use std::sync::Arc;

impl ModelPool {
    pub(super) fn create_dataset(&mut self, name: &str, parents: bool) -> Result<()> {
        self.insert_dataset(name, parents, Dataset { head: Arc::new(Tree::default()), parent: None })
    }

    fn insert_dataset(&mut self, name: &str, parents: bool, dataset: Dataset) -> Result<()> {
        let parent = parse_dataset(name)?.parent();
        if self.datasets.contains_key(name) {
            return Err(ModelError::Exists);
        }
        if let Some(parent) = parent
            && !self.datasets.contains_key(parent.as_str())
        {
            if !parents {
                return Err(ModelError::NotFound);
            }
            self.create_dataset(parent.as_str(), true)?;
        }
        self.datasets.insert(name.to_owned(), dataset);
        Ok(())
    }

    pub(super) fn snapshot(&mut self, names: &[String], recursive: bool) -> Result<()> {
        let mut wanted = Vec::new();
        for name in names {
            let name = parse_snapshot(name)?;
            self.dataset(name.dataset_str())?;
            let of =
                if recursive { self.within(name.dataset_str()) } else { vec![name.dataset_str().to_owned()] };
            wanted.extend(of.into_iter().map(|dataset| (dataset, name.short().to_owned())));
        }
        let is_taken = |(dataset, short): &(String, String)| self.find_short(dataset, short).is_some();
        if wanted.iter().any(is_taken) || wanted.iter().collect::<BTreeSet<_>>().len() < wanted.len() {
            return Err(ModelError::Exists);
        }
        if names.is_empty() {
            return Err(ModelError::Invalid);
        }
        for (dataset, short) in wanted {
            self.seal_head(&dataset, Some(short));
        }
        Ok(())
    }

    /// Makes a snapshot of the head of a dataset, from which the head goes on.
    fn seal_head(&mut self, dataset: &str, short: Option<String>) -> SnapshotId {
        self.next += 1;
        let id = self.next;
        if let Some(head) = self.datasets.get_mut(dataset) {
            let snapshot = Snapshot {
                dataset: dataset.to_owned(),
                short,
                hidden: false,
                tree: Arc::clone(&head.head),
                parent: head.parent,
                holds: BTreeSet::new(),
            };
            head.parent = Some(id);
            self.snapshots.insert(id, snapshot);
        }
        id
    }

    pub(super) fn clone_snapshot(&mut self, snapshot: &str, target: &str) -> Result<()> {
        let id = self.find_snapshot(snapshot)?;
        let head = Arc::clone(&self.snapshots[&id].tree);
        self.insert_dataset(target, false, Dataset { head, parent: Some(id) })
    }

    pub(super) fn rollback(&mut self, snapshot: &str) -> Result<SnapshotId> {
        let id = self.find_snapshot(snapshot)?;
        let Snapshot { dataset, tree, .. } = self.snapshots[&id].clone();
        let saved = self.seal_head(&dataset, None);
        self.datasets.insert(dataset, Dataset { head: tree, parent: Some(id) });
        Ok(saved)
    }

    pub(super) fn promote(&mut self, dataset: &str) -> Result<()> {
        self.dataset(dataset)?;
        let origin = self.origin(dataset).ok_or(ModelError::Invalid)?;
        let former = self.snapshots[&origin].dataset.clone();
        let mut moving = Vec::new();
        let mut next = Some(origin);
        while let Some(id) = next.filter(|id| self.snapshots[id].dataset == former) {
            moving.push(id);
            next = self.snapshots[&id].parent;
        }
        let collides = |id: &SnapshotId| {
            let snapshot = &self.snapshots[id];
            let short = snapshot.short.as_ref().filter(|_| !snapshot.hidden);
            short.is_some_and(|short| self.find_short(dataset, short).is_some())
        };
        if moving.iter().any(collides) {
            return Err(ModelError::Exists);
        }
        for id in moving {
            if let Some(snapshot) = self.snapshots.get_mut(&id) {
                dataset.clone_into(&mut snapshot.dataset);
            }
        }
        Ok(())
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, recursive: bool) -> Result<()> {
        if from.contains('@') {
            self.rename_snapshot(from, to, recursive)
        } else {
            self.rename_dataset(from, to)
        }
    }

    fn rename_dataset(&mut self, from: &str, to: &str) -> Result<()> {
        self.dataset(from)?;
        let parent = parse_dataset(to)?.parent();
        if self.datasets.contains_key(to) {
            return Err(ModelError::Exists);
        }
        if is_within(to, from) {
            return Err(ModelError::Invalid);
        }
        if parent.is_some_and(|parent| !self.datasets.contains_key(parent.as_str())) {
            return Err(ModelError::NotFound);
        }
        for old in self.within(from) {
            let new = format!("{to}{}", &old[from.len()..]);
            parse_dataset(&new)?;
            if let Some(dataset) = self.datasets.remove(&old) {
                self.datasets.insert(new.clone(), dataset);
            }
            for snapshot in self.snapshots.values_mut().filter(|snapshot| snapshot.dataset == old) {
                new.clone_into(&mut snapshot.dataset);
            }
        }
        Ok(())
    }

    fn rename_snapshot(&mut self, from: &str, to: &str, recursive: bool) -> Result<()> {
        let first = self.find_snapshot(from)?;
        let (from, to) = (parse_snapshot(from)?, parse_snapshot(to)?);
        if from.dataset_str() != to.dataset_str() {
            return Err(ModelError::Invalid);
        }
        let datasets =
            if recursive { self.within(from.dataset_str()) } else { vec![from.dataset_str().to_owned()] };
        if datasets.iter().any(|dataset| self.find_short(dataset, to.short()).is_some()) {
            return Err(ModelError::Exists);
        }
        let others: Vec<_> = datasets.iter().filter_map(|one| self.find_short(one, from.short())).collect();
        for id in others.into_iter().chain([first]) {
            if let Some(snapshot) = self.snapshots.get_mut(&id) {
                snapshot.short = Some(to.short().to_owned());
            }
        }
        Ok(())
    }

    pub(super) fn hold(&mut self, tag: &str, snapshot: &str) -> Result<()> {
        let id = self.find_snapshot(snapshot)?;
        let added = self.snapshots.get_mut(&id).is_some_and(|one| one.holds.insert(tag.to_owned()));
        if added { Ok(()) } else { Err(ModelError::Exists) }
    }

    pub(super) fn release(&mut self, tag: &str, snapshot: &str) -> Result<()> {
        let id = self.find_snapshot(snapshot)?;
        let removed = self.snapshots.get_mut(&id).is_some_and(|one| one.holds.remove(tag));
        if removed { Ok(()) } else { Err(ModelError::NotFound) }
    }

    pub(super) fn destroy(&mut self, target: &DestroyTarget) -> Result<()> {
        target.check().map_err(|_| ModelError::BadName)?;
        match target {
            DestroyTarget::Snapshot(name) => self.destroy_snapshots(&[self.find_snapshot(name)?]),
            DestroyTarget::Range { dataset, first, last } => {
                let path = self.range(dataset, first, last)?;
                self.destroy_snapshots(&path)
            }
            DestroyTarget::Snapshots { of } => {
                let names = of
                    .iter()
                    .flat_map(|(dataset, all)| all.iter().map(move |short| format!("{dataset}@{short}")));
                let found: Result<Vec<_>, _> = names.map(|name| self.find_snapshot(&name)).collect();
                self.destroy_snapshots(&found?)
            }
            DestroyTarget::Dataset { name, recursive } => self.destroy_dataset(name, *recursive),
        }
    }

    /// The dataset's snapshots that are not hidden on the way from `first` down to `last`.
    fn range(&self, dataset: &str, first: &str, last: &str) -> Result<Vec<SnapshotId>> {
        self.dataset(dataset)?;
        let first = self.find_short(dataset, first).ok_or(ModelError::NotFound)?;
        let last = self.find_short(dataset, last).ok_or(ModelError::NotFound)?;
        let mut path = vec![last];
        while let Some(id) = path.last().copied().filter(|id| *id != first) {
            path.push(self.snapshots[&id].parent.ok_or(ModelError::Invalid)?);
        }
        path.retain(|id| !self.snapshots[id].hidden && self.snapshots[id].dataset == dataset);
        Ok(path)
    }

    fn destroy_snapshots(&mut self, doomed: &[SnapshotId]) -> Result<()> {
        for id in doomed {
            if !self.snapshots[id].holds.is_empty() {
                return Err(ModelError::Busy);
            }
        }
        for id in doomed {
            if let Some(snapshot) = self.snapshots.get_mut(id) {
                snapshot.hidden = true;
            }
        }
        self.drop_hidden();
        Ok(())
    }

    /// How many snapshots and heads go on from a snapshot.
    fn branches(&self, id: SnapshotId) -> usize {
        let parents = self.snapshots.values().map(|one| one.parent);
        let parents = parents.chain(self.datasets.values().map(|one| one.parent));
        parents.filter(|parent| *parent == Some(id)).count()
    }

    /// Drops the destroyed snapshots that have no more than one branch left.
    fn drop_hidden(&mut self) {
        let is_idle = |(id, one): (&SnapshotId, &Snapshot)| {
            (one.hidden && self.branches(*id) <= 1).then_some((*id, one.parent))
        };
        let Some((id, parent)) = self.snapshots.iter().find_map(is_idle) else { return };
        self.snapshots.remove(&id);
        let snapshots = self.snapshots.values_mut().map(|one| &mut one.parent);
        for link in snapshots.chain(self.datasets.values_mut().map(|one| &mut one.parent)) {
            if *link == Some(id) {
                *link = parent;
            }
        }
        self.drop_hidden();
    }

    fn destroy_dataset(&mut self, name: &str, recursive: bool) -> Result<()> {
        self.dataset(name)?;
        let doomed = self.within(name);
        if !recursive && (doomed.len() > 1 || self.snapshots_of(name).next().is_some()) {
            return Err(ModelError::Busy);
        }
        let of_doomed = |snapshot: &Snapshot| is_within(&snapshot.dataset, name);
        for snapshot in self.snapshots.values_mut().filter(|snapshot| of_doomed(snapshot)) {
            if !snapshot.holds.is_empty() {
                return Err(ModelError::Busy);
            }
            snapshot.hidden = true;
            // Another dataset may get the name.
            snapshot.dataset.clear();
        }
        self.datasets.retain(|name, _| !doomed.contains(name));
        self.drop_hidden();
        Ok(())
    }
}
