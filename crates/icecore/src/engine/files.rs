//! Files that are open though unlinked, and what is left of those that are not.

use super::{Engine, Purpose};
use crate::error::{Error, FileFault, Result};
use crate::namespace::{Read, TreeReader};
use crate::operation::Operation;
use crate::tree::Tree;
use crate::units::{DatasetId, InodeNumber};

/// Items freed in one step, so that a large file does not hold up others.
const ITEMS_PER_STEP: u32 = 4096;

impl Engine {
    /// A file is open: it stays readable if it is unlinked.
    pub(crate) fn open_file(&self, dataset: DatasetId, inode: InodeNumber) {
        *self.open_files.lock().entry((dataset, inode)).or_default() += 1;
    }

    /// One handle on a file is gone; if it was the last and the file is unlinked, its space is freed.
    pub(crate) fn close_file(&self, dataset: DatasetId, inode: InodeNumber) -> Result<()> {
        let mut open_files = self.open_files.lock();
        if let Some(count) = open_files.get_mut(&(dataset, inode)) {
            *count -= 1;
            if *count > 0 {
                return Ok(());
            }
            open_files.remove(&(dataset, inode));
        }
        drop(open_files);
        if self.check_writable().is_err() {
            // The next opening for writing finds it in the durable list of orphans.
            return Ok(());
        }
        let is_orphan = {
            let state = self.state();
            let Ok(head) = state.head(dataset) else { return Ok(()) };
            let (tree, _pin) = (state.trees[&head].clone(), self.pin(&state));
            drop(state);
            self.is_orphan(&tree, inode)?
        };
        if is_orphan { self.release_orphan(dataset, inode) } else { Ok(()) }
    }

    /// Frees an unlinked file, in steps.
    fn release_orphan(&self, dataset: DatasetId, inode: InodeNumber) -> Result<()> {
        loop {
            let operation = Operation::ReleaseOrphan { dataset, inode, items_max: ITEMS_PER_STEP };
            self.execute(&operation, None, Purpose::Freeing)?;
            let state = self.state();
            let Ok(head) = state.head(dataset) else { return Ok(()) };
            let (tree, _pin) = (state.trees[&head].clone(), self.pin(&state));
            drop(state);
            if !self.is_orphan(&tree, inode)? {
                return Ok(());
            }
        }
    }

    fn is_orphan(&self, tree: &Tree, inode: InodeNumber) -> Result<bool> {
        match TreeReader::new(tree, &*self.nodes).inode(inode) {
            Ok(item) => Ok(item.links == 0),
            Err(Error::File(FileFault::Stale)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Frees every unlinked file that nobody has open, as far as there is room for the log to say so: what stays is
    /// in the durable list of orphans.
    pub(super) fn release_orphans_if_room(&self) -> Result<()> {
        match self.release_orphans() {
            Err(Error::NoSpace { .. }) if self.check_writable().is_ok() => Ok(()),
            outcome => outcome,
        }
    }

    /// Frees every unlinked file that nobody has open. What is hurt in one dataset is no reason not to open the others:
    /// there they stay, and are met again the next time.
    fn release_orphans(&self) -> Result<()> {
        let (trees, _pin): (Vec<_>, _) = {
            let state = self.state();
            let trees = state.catalogue.datasets().map(|(id, row)| (id, state.trees[&row.head].clone()));
            (trees.collect(), self.pin(&state))
        };
        for (dataset, tree) in trees {
            let mut orphans = Vec::new();
            let read = TreeReader::new(&tree, &*self.nodes).orphans(&mut |inode| {
                orphans.push(inode);
                Ok(true)
            });
            self.unless_damaged(read)?;
            for inode in orphans {
                if !self.open_files.lock().contains_key(&(dataset, inode)) {
                    self.unless_damaged(self.release_orphan(dataset, inode))?;
                }
            }
        }
        Ok(())
    }

    /// Passes over damage, which left the pool as it was.
    fn unless_damaged(&self, outcome: Result<()>) -> Result<()> {
        match outcome {
            Err(Error::Damaged { .. }) if self.check_writable().is_ok() => Ok(()),
            outcome => outcome,
        }
    }
}
