//! Looking around in a pool at little cost: names by number, and room. A front end asks this with every other
//! request.

use super::Pool;
use crate::dataset::Dataset;
use crate::error::{Error, Result};
use crate::units::{ByteLength, DatasetId, InodeNumber, VersionId};
use crate::view::View;
use std::collections::BTreeMap;

/// Room in a dataset, or in the pool, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// What the head of the dataset refers to; of a pool, what all its live data takes.
    pub used: ByteLength,
    /// What can still be written, quotas and the filesystem under the pool included.
    pub available: ByteLength,
}

impl Pool {
    /// The head of the dataset with this number.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was destroyed.
    pub fn dataset_by_id(&self, id: DatasetId) -> Result<Dataset> {
        self.engine().check_open()?;
        let dataset = Dataset::new(self.clone(), id);
        dataset.name()?;
        Ok(dataset)
    }

    /// The dataset of this last component right below another one, or at the top.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the dataset above was destroyed.
    pub fn child(&self, above: Option<DatasetId>, leaf: &str) -> Result<Option<DatasetId>> {
        self.engine().check_open()?;
        let state = self.engine().state();
        let name = match above {
            Some(id) => format!("{}/{leaf}", state.catalogue.existing(id)?.name),
            None => leaf.to_owned(),
        };
        Ok(state.catalogue.find(&name).ok())
    }

    /// Last components and numbers of the datasets right below another one, or at the top, by name.
    ///
    /// # Errors
    /// As for [`Pool::child`].
    pub fn children(&self, above: Option<DatasetId>) -> Result<Vec<(String, DatasetId)>> {
        self.engine().check_open()?;
        let state = self.engine().state();
        let prefix = match above {
            Some(id) => format!("{}/", state.catalogue.existing(id)?.name),
            None => String::new(),
        };
        let below = state.catalogue.names().filter_map(|(name, id)| {
            let leaf = name.strip_prefix(prefix.as_str()).filter(|rest| !rest.contains('/'))?;
            Some((leaf.to_owned(), id))
        });
        Ok(below.collect())
    }

    /// Short names and numbers of the snapshots of a dataset, in order of age.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the dataset was destroyed.
    pub fn snapshots_of(&self, dataset: DatasetId) -> Result<Vec<(String, VersionId)>> {
        self.engine().check_open()?;
        let state = self.engine().state();
        state.catalogue.existing(dataset)?;
        let rows = state.catalogue.snapshots_of(dataset).filter(|(_, row)| !row.hidden);
        Ok(rows.map(|(version, row)| (row.name.clone(), version)).collect())
    }

    /// The number of a snapshot of a dataset, by its short name. A number is never used again.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the dataset was destroyed.
    pub fn snapshot_of(&self, dataset: DatasetId, short: &str) -> Result<Option<VersionId>> {
        self.engine().check_open()?;
        let state = self.engine().state();
        state.catalogue.existing(dataset)?;
        Ok(state.catalogue.find_snapshot(dataset, short).ok())
    }

    /// The snapshot with this number, pinned: if it is destroyed, it stays for this view alone.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the snapshot was destroyed.
    pub fn snapshot_view(&self, snapshot: VersionId) -> Result<View> {
        self.engine().check_open()?;
        let mut state = self.engine().state();
        let there = state.catalogue.snapshot(snapshot).is_some_and(|row| !row.hidden);
        if !there {
            return Err(Error::NotFound { what: "the snapshot (it was destroyed)".to_owned() });
        }
        let name = state.catalogue.full_name(snapshot);
        Ok(View::pin(self, &mut state, snapshot, name))
    }

    /// How much room there is: for a dataset, or in the pool. Costs a look at the filesystem under the pool.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the dataset was destroyed; [`Error::Io`].
    pub fn room(&self, dataset: Option<DatasetId>) -> Result<Room> {
        let engine = self.engine();
        engine.check_open()?;
        let available = self.available()?;
        let state = engine.state();
        match dataset {
            Some(id) => {
                let head = state.head(id)?;
                let used = state.history.referenced(head)?.bytes();
                Ok(Room { used, available: engine.available_to(&state, id, available) })
            }
            None => {
                let heads = state.catalogue.datasets().map(|(_, row)| row.head);
                let used = heads.map(|head| state.history.referenced(head).map(|blocks| blocks.bytes().0));
                let used = used.sum::<std::result::Result<u64, _>>()?;
                Ok(Room { used: ByteLength(used), available })
            }
        }
    }
}

impl View {
    /// The paths of some files, one for each of those that have a name. Walks the whole tree: for messages.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Io`].
    pub fn paths_of(&self, inodes: &[InodeNumber]) -> Result<BTreeMap<InodeNumber, Vec<u8>>> {
        let mut found = BTreeMap::new();
        crate::pool::walk_paths(&self.reader(), &mut |inode, path| {
            if inodes.contains(&inode) {
                found.entry(inode).or_insert(path);
            }
            found.len() < inodes.len()
        })?;
        Ok(found)
    }
}
