//! Operations on datasets and snapshots. What they may do was checked before they were logged.

use super::{Environment, Placement, State};
use crate::catalogue::SnapshotRow;
use crate::error::{Error, Result};
use crate::limits::Limit;
use crate::liveness::{HistoryFault, Pace};
use crate::namespace::{InodeKind, NewInode};
use crate::operation::{Operation, Target};
use crate::pins::{Hold, Pin, Readers};
use crate::tree::Tree;
use crate::units::{DatasetId, LogAddress, Marks, Stream, Timestamp, VersionId};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

impl State {
    pub(super) fn apply_administration(
        &mut self,
        operation: &Operation,
        at: Placement,
        env: &Environment<'_>,
    ) -> Result<()> {
        self.administer(operation, at, env)?;
        let sets_limit = match operation {
            Operation::SetProperty { target: Target::Dataset(_), key, .. } => Limit::from_name(key).is_some(),
            Operation::CreateDataset { properties, .. } => {
                properties.iter().any(|(key, _)| Limit::from_name(key).is_some())
            }
            _ => false,
        };
        let moves = matches!(
            operation,
            Operation::CreateDataset { .. }
                | Operation::DestroyDatasets { .. }
                | Operation::Clone { .. }
                | Operation::Promote { .. }
                | Operation::RenameDatasets { .. }
        );
        if sets_limit || (moves && !self.usage.is_empty()) {
            self.usage = self.count_usage();
        }
        Ok(())
    }

    fn administer(&mut self, operation: &Operation, at: Placement, env: &Environment<'_>) -> Result<()> {
        match operation {
            Operation::CreateDataset { name, time, properties } => {
                self.create_dataset(name, *time, properties, env)
            }
            Operation::Snapshot { snapshots, time, properties } => {
                for (dataset, name) in snapshots {
                    let head = self.head(*dataset)?;
                    self.require_free_snapshot(*dataset, name)?;
                    let version = self.seal(head, at.address)?;
                    self.label(version, *dataset, name, *time, properties);
                }
                Ok(())
            }
            Operation::DestroySnapshots { versions } => {
                versions.iter().try_for_each(|version| self.require_snapshot(*version))?;
                versions.iter().try_for_each(|version| self.destroy_snapshot(*version))
            }
            Operation::DestroyDatasets { datasets } => self.destroy_datasets(datasets),
            Operation::Clone { origin, name, time } => {
                self.require_free_name(name)?;
                let head = self.fork(*origin)?;
                self.catalogue.add_dataset(name, head, *time);
                Ok(())
            }
            Operation::Rollback { dataset, snapshot, saved, time } => {
                self.rollback(*dataset, *snapshot, saved, *time, at.address)
            }
            Operation::Promote { dataset } => self.promote(*dataset),
            Operation::RenameDatasets { names } => {
                for (dataset, name) in names {
                    self.require_dataset(*dataset)?;
                    self.require_free_name(name)?;
                    self.catalogue.edit_dataset(*dataset, |row| row.name.clone_from(name));
                }
                Ok(())
            }
            Operation::RenameSnapshots { names } => {
                for (version, name) in names {
                    self.require_snapshot(*version)?;
                    let dataset = self.catalogue.snapshot(*version).map(|row| row.dataset);
                    dataset.map_or(Ok(()), |dataset| self.require_free_snapshot(dataset, name))?;
                    self.catalogue.edit_snapshot(*version, |row| row.name.clone_from(name));
                }
                Ok(())
            }
            Operation::Hold { version, tag, since } => {
                self.require_snapshot(*version)?;
                self.catalogue.edit_snapshot(*version, |row| match since {
                    Some(time) => drop(row.holds.insert(tag.clone(), *time)),
                    None => drop(row.holds.remove(tag)),
                });
                Ok(())
            }
            Operation::SetProperty { target, key, value } => {
                self.set_property(*target, key, value.as_deref())
            }
            _ => Err(Error::Invalid("an operation on files is not one on versions".to_owned())),
        }
    }

    fn require_dataset(&self, dataset: DatasetId) -> Result<()> {
        self.head(dataset).map(|_| ())
    }

    fn require_snapshot(&self, version: VersionId) -> Result<()> {
        let found = self.catalogue.snapshot(version);
        found.map(|_| ()).ok_or_else(|| Error::NotFound { what: format!("the snapshot (version {version})") })
    }

    /// Of two rows with one name, lookups would find only one.
    fn require_free_name(&self, name: &str) -> Result<()> {
        if self.catalogue.has_dataset(name) {
            return Err(Error::Exists { what: format!("dataset {name}") });
        }
        Ok(())
    }

    fn require_free_snapshot(&self, dataset: DatasetId, name: &str) -> Result<()> {
        if self.catalogue.has_snapshot(dataset, name) {
            return Err(Error::Exists { what: format!("snapshot {name}") });
        }
        Ok(())
    }

    fn create_dataset(
        &mut self,
        name: &str,
        time: Timestamp,
        properties: &[(String, String)],
        env: &Environment<'_>,
    ) -> Result<()> {
        self.require_free_name(name)?;
        let head = self.history.new_head(None)?;
        let root = NewInode {
            kind: InodeKind::Directory,
            mode: 0o755,
            uid: 0,
            gid: 0,
            rdev: 0,
            generation: time.0 as u64,
            time,
        };
        // Drawing the first node needs the rest of the state: the tree proper takes the place at once.
        self.trees.insert(head, Tree::at(LogAddress(0)));
        let (tree, mut effects) = self.effects(head, env.blocks);
        *tree = Tree::new(&mut effects);
        self.changed_roots.insert(head);
        self.change_version(head, env, |head| head.writer().format(&root))?;
        let id = self.catalogue.add_dataset(name, head, time);
        self.catalogue.edit_dataset(id, |row| row.properties.extend(properties.iter().cloned()));
        Ok(())
    }

    /// Freezes a head as a snapshot: remembers where every stream is, and shares the tree.
    fn seal(&mut self, head: VersionId, data: LogAddress) -> Result<VersionId> {
        let marks = self.marks_at(data);
        let version = self.history.seal(head, marks)?;
        let tree = self.trees[&head].clone();
        self.trees.insert(version, tree);
        self.changed_roots.insert(version);
        Ok(version)
    }

    fn label(
        &mut self,
        version: VersionId,
        dataset: DatasetId,
        name: &str,
        created: Timestamp,
        properties: &[(String, String)],
    ) {
        let properties: BTreeMap<String, String> = properties.iter().cloned().collect();
        let row = SnapshotRow {
            dataset,
            name: name.to_owned(),
            created,
            properties,
            holds: BTreeMap::new(),
            hidden: false,
        };
        self.catalogue.add_snapshot(version, row);
    }

    /// A new head below a snapshot.
    fn fork(&mut self, snapshot: VersionId) -> Result<VersionId> {
        self.require_snapshot(snapshot)?;
        let head = self.history.new_head(Some(snapshot))?;
        let tree = self.trees[&snapshot].clone();
        self.trees.insert(head, tree);
        self.changed_roots.insert(head);
        Ok(head)
    }

    fn rollback(
        &mut self,
        dataset: DatasetId,
        snapshot: VersionId,
        saved: &str,
        time: Timestamp,
        data: LogAddress,
    ) -> Result<()> {
        let former = self.head(dataset)?;
        self.require_free_snapshot(dataset, saved)?;
        let head = self.fork(snapshot)?;
        let kept = self.seal(former, data)?;
        self.label(kept, dataset, saved, time, &[]);
        // What is left of the former head is an empty leaf below the snapshot that kept its content.
        self.let_go_of_head(former)?;
        self.catalogue.edit_dataset(dataset, |row| {
            row.head = head;
            row.generation += 1;
        });
        Ok(())
    }

    /// Takes a version out of the history and frees what only it held.
    fn delete(&mut self, version: VersionId) -> Result<()> {
        let mut never = || false;
        self.delete_some(version, &mut Pace { runs: usize::MAX, held: None, enough: &mut never })?;
        Ok(())
    }

    /// The same until it is enough: whether the version is gone.
    fn delete_some(
        &mut self,
        version: VersionId,
        pace: &mut Pace<'_>,
    ) -> std::result::Result<bool, HistoryFault> {
        let shares = self.shares(version);
        let readers = self.readers_of(version);
        let gone = self.history.delete_some(version, self.graveyard.sink(readers), pace);
        self.shares_changed(shares);
        let gone = gone?;
        if gone {
            self.trees.remove(&version);
            self.changed_roots.insert(version);
        }
        Ok(gone)
    }

    /// Takes out a head that no dataset has any more. One that is read, or has parts of its sets on disk,
    /// waits for [`State::free_doomed`], without a name.
    fn let_go_of_head(&mut self, head: VersionId) -> Result<()> {
        // Who reads it has pinned it by now.
        self.retire_present(head);
        let is_small = self.history.version(head)?.owned().all().all(|set| set.rows().is_empty());
        if is_small && !self.graveyard.pins().holds(head) {
            return self.delete(head);
        }
        self.doom(head)
    }

    /// Dooms a destroyed version, at once or when its readers have gone.
    fn doom(&mut self, version: VersionId) -> Result<()> {
        if self.graveyard.pins().holds(version) {
            return Ok(self.history.doom_when_unread(version)?);
        }
        Ok(self.history.doom(version)?)
    }

    /// Dooms the destroyed versions whose readers have gone.
    pub(crate) fn doom_unread(&mut self) -> std::result::Result<(), HistoryFault> {
        let pins = self.graveyard.pins();
        self.history.doom_unread(|version| pins.holds(version))
    }

    /// Pins a version.
    pub(crate) fn pin(&mut self, version: VersionId) -> Pin {
        let is_head = self.history.version(version).is_ok_and(|node| node.is_head());
        if is_head {
            self.graveyard.will_be_read(version);
            return self.graveyard.pins().pin(Hold::Head(version), self.clock, self.marks_now());
        }
        // A snapshot does not change: all pins on it are one.
        self.graveyard.pins().pin(Hold::Snapshot(version), 0, Marks::default())
    }

    /// Which pins may reach what deleting a version frees: what the version owns, and is dead in the version
    /// below it.
    ///
    /// A pin on a head has its place in the tree above all that was sealed after it on the way down to the
    /// head. It reaches nothing that is dead above its place. What is owned below its place was born later,
    /// or is owned by the version that was sealed next and may be reached. That leaves the deletions right
    /// above its place and right below it. Both have something below them that is on the way. A leaf frees
    /// what no version below it reaches, and it is not deleted while it is read.
    fn readers_of(&self, version: VersionId) -> Readers {
        let &[child] = self.children(version) else { return Readers::None };
        let is_on_way = |(head, oldest): &(VersionId, Marks)| {
            let mut way = std::iter::successors(Some(*head), |version| {
                self.parent(*version).filter(|above| self.is_sealed_after(*above, oldest))
            });
            way.any(|below| below == child)
        };
        let mut readers = self.graveyard.pins().heads().into_iter().filter(is_on_way).map(|(head, _)| head);
        match (readers.next(), readers.next()) {
            (None, _) => Readers::None,
            (Some(head), None) => Readers::Of(head),
            _ => Readers::Any,
        }
    }

    /// Whether a snapshot may have been taken when the streams had come to `marks`, or later.
    fn is_sealed_after(&self, snapshot: VersionId, marks: &Marks) -> bool {
        let mark = self.history.version(snapshot).ok().and_then(|node| node.mark()).unwrap_or_default();
        Stream::ALL.into_iter().all(|stream| mark.of(stream) >= marks.of(stream))
    }

    /// Destroys a snapshot: lookups do not find it from now on. [`State::free_doomed`] deletes it later.
    fn destroy_snapshot(&mut self, snapshot: VersionId) -> Result<()> {
        self.catalogue.hide_snapshot(snapshot);
        self.doom(snapshot)
    }

    /// Frees what a destroyed version owns and no version below it reaches, until it is enough. Answers
    /// whether all of that is free. The version stays in the tree, and leads to what is not there any more.
    fn thin_some(
        &mut self,
        version: VersionId,
        pace: &mut Pace<'_>,
    ) -> std::result::Result<bool, HistoryFault> {
        let shares = self.shares(version);
        let before = self.graveyard.pending_blocks();
        let thin = self.history.thin_some(version, self.graveyard.sink(Readers::Any), pace);
        self.shares_changed(shares);
        if self.graveyard.pending_blocks() != before {
            self.graveyard.is_uncertain_from_here();
        }
        thin
    }

    /// Dooms the snapshots that a ledger has as destroyed, and heads of datasets that are.
    pub(crate) fn doom_hidden(&mut self) -> Result<()> {
        let hidden = self.catalogue.snapshots().filter(|(_, row)| row.hidden);
        let mut hidden: Vec<VersionId> = hidden.map(|(version, _)| version).collect();
        // Of datasets that were destroyed.
        let named: BTreeSet<VersionId> = self.catalogue.datasets().map(|(_, row)| row.head).collect();
        let heads = self.history.versions().filter(|node| node.is_head()).map(|node| node.id());
        hidden.extend(heads.filter(|head| !named.contains(head)));
        hidden.into_iter().try_for_each(|version| self.doom(version))
    }

    /// Deletes destroyed versions, and thins those that have to stay, until nothing is left to be done or it
    /// is enough. Answers whether something is left.
    ///
    /// [`HistoryFault::Absent`] and [`HistoryFault::Unread`] are about
    /// [`crate::liveness::History::next_doomed`].
    ///
    /// Not an operation: it changes nothing that an operation, or any other caller, could see, but for the
    /// blocks that it frees. The next checkpoint records them as dead; if there is a crash before that, they
    /// are freed anew.
    pub(crate) fn free_doomed(&mut self, pace: &mut Pace<'_>) -> std::result::Result<bool, HistoryFault> {
        self.doom_unread()?;
        while let Some(version) = self.history.next_doomed() {
            if (pace.enough)() {
                return Ok(true);
            }
            if self.history.is_thinnable(version) {
                if !self.thin_some(version, pace)? {
                    return Ok(true);
                }
                continue;
            }
            self.graveyard.is_uncertain_from_here();
            if !self.delete_some(version, pace)? {
                return Ok(true);
            }
            self.catalogue.remove_snapshot(version);
        }
        Ok(false)
    }

    /// Takes destroyed versions out of the tree of versions without a look at their sets: the caller makes
    /// all sets anew.
    pub(crate) fn forget_doomed(&mut self) {
        for version in self.history.forget_doomed() {
            self.trees.remove(&version);
            self.changed_roots.insert(version);
            self.catalogue.remove_snapshot(version);
        }
    }

    fn destroy_datasets(&mut self, datasets: &[DatasetId]) -> Result<()> {
        let mut heads = BTreeSet::new();
        let mut snapshots = BTreeSet::new();
        for dataset in datasets {
            heads.insert(self.head(*dataset)?);
            snapshots.extend(self.catalogue.snapshots_of(*dataset).map(|(version, _)| version));
        }
        heads.into_iter().try_for_each(|head| self.let_go_of_head(head))?;
        snapshots.into_iter().try_for_each(|snapshot| self.destroy_snapshot(snapshot))?;
        for dataset in datasets {
            self.catalogue.remove_dataset(*dataset);
        }
        Ok(())
    }

    /// What lies above a version, the nearest first, as if all were gone already that was destroyed and will
    /// go. Operations may not see when that happens, or replaying them would end elsewhere.
    pub(crate) fn above(&self, version: VersionId) -> impl Iterator<Item = VersionId> {
        let vanishing = OnceCell::new();
        let goes = move |version: &VersionId| {
            self.history.is_destroyed(*version)
                && vanishing.get_or_init(|| self.history.vanishing()).contains(version)
        };
        std::iter::successors(self.parent(version), |version| self.parent(*version))
            .filter(move |version| !goes(version))
    }

    /// The snapshot that a dataset was cloned from, if that was not destroyed.
    pub(crate) fn origin(&self, dataset: DatasetId) -> Option<VersionId> {
        let head = self.catalogue.dataset(dataset)?.head;
        let row = |version: &VersionId| self.catalogue.snapshot(*version);
        let foreign =
            self.above(head).find(|version| row(version).is_some_and(|row| row.dataset != dataset))?;
        row(&foreign).is_some_and(|row| !row.hidden).then_some(foreign)
    }

    /// Versions that promoting a clone relabels: its origin and what lies above it in the same dataset.
    pub(crate) fn promoted(&self, dataset: DatasetId) -> Vec<VersionId> {
        let Some(origin) = self.origin(dataset) else { return Vec::new() };
        let label = |version: &VersionId| self.catalogue.snapshot(*version).map(|row| row.dataset);
        let from = label(&origin);
        let above = self.above(origin).take_while(|version| label(version) == from);
        std::iter::once(origin).chain(above).collect()
    }

    fn promote(&mut self, dataset: DatasetId) -> Result<()> {
        for version in self.promoted(dataset) {
            self.catalogue.edit_snapshot(version, |row| row.dataset = dataset);
        }
        Ok(())
    }

    fn set_property(&mut self, target: Target, key: &str, value: Option<&str>) -> Result<()> {
        let edit = |properties: &mut BTreeMap<String, String>| match value {
            Some(value) => drop(properties.insert(key.to_owned(), value.to_owned())),
            None => drop(properties.remove(key)),
        };
        match target {
            Target::Dataset(dataset) => {
                self.require_dataset(dataset)?;
                self.catalogue.edit_dataset(dataset, |row| edit(&mut row.properties));
            }
            Target::Snapshot(version) => {
                self.require_snapshot(version)?;
                self.catalogue.edit_snapshot(version, |row| edit(&mut row.properties));
            }
        }
        Ok(())
    }
}
