//! Freeing files that have no name and that no handle has open.

use super::{Engine, Purpose};
use crate::error::{Error, FileFault, Result};
use crate::namespace::{Read, Release, TreeReader};
use crate::operation::Operation;
use crate::state::{Changed, HeadInode};
use crate::units::DatasetId;

/// Items freed in one step, so that a large file does not hold up others.
const ITEMS_PER_STEP: u32 = 4096;

impl Engine {
    /// A handle on a file is gone; if it was the last and the file has no name, its space is freed.
    pub(crate) fn close_file(&self, dataset: DatasetId, file: HeadInode) -> Result<()> {
        if self.open_files.close(file) { self.free_orphan(dataset, file) } else { Ok(()) }
    }

    /// Frees an orphan, for which [`super::OpenFiles`] has chosen the caller.
    pub(crate) fn free_orphan(&self, dataset: DatasetId, file: HeadInode) -> Result<()> {
        let outcome = match self.check_writable() {
            Ok(()) => self.release_orphan(dataset, file),
            // The next opening for writing finds it in the durable list of orphans.
            Err(_) => Ok(()),
        };
        self.open_files.freed(file);
        match outcome {
            // It is gone already; or a rollback was faster, and it is part of the snapshot that keeps the
            // former head.
            Err(Error::File(FileFault::Stale)) => Ok(()),
            outcome => outcome,
        }
    }

    /// Frees an orphan in steps.
    fn release_orphan(&self, dataset: DatasetId, (head, inode): HeadInode) -> Result<()> {
        let operation = Operation::ReleaseOrphan { dataset, inode, items_max: ITEMS_PER_STEP };
        loop {
            let (_, outcome) = self.execute(Some((dataset, head)), &operation, None, Purpose::Freeing)?;
            if !matches!(outcome.changed, Changed::Released(Release::Unfinished)) {
                return Ok(());
            }
        }
    }

    /// Frees every unlinked file that no handle has open, as far as there is room for the log to say so: what
    /// stays is in the durable list of orphans.
    pub(super) fn release_orphans_if_room(&self) -> Result<()> {
        match self.release_orphans() {
            Err(Error::NoSpace { .. }) if self.check_writable().is_ok() => Ok(()),
            outcome => outcome,
        }
    }

    /// Frees every unlinked file that no handle has open. Damage in one dataset is no reason not to open the
    /// others: there they stay, and are met again the next time.
    fn release_orphans(&self) -> Result<()> {
        let (trees, _pin): (Vec<_>, _) = {
            let state = self.state();
            let heads = state.catalogue.datasets().map(|(id, row)| (id, row.head));
            let trees = heads.map(|(id, head)| (id, head, state.trees[&head].clone()));
            (trees.collect(), self.pin(&state))
        };
        for (dataset, head, tree) in trees {
            let mut orphans = Vec::new();
            let read = TreeReader::new(&tree, &*self.nodes).orphans(&mut |inode| {
                orphans.push(inode);
                Ok(true)
            });
            self.unless_damaged(read)?;
            for inode in orphans {
                if self.open_files.orphaned((head, inode)) {
                    self.unless_damaged(self.free_orphan(dataset, (head, inode)))?;
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
