//! Files of a head that are open.

use super::{Dataset, destroyed};
use crate::error::{FileFault, Result};
use crate::state::HeadInode;
use crate::units::InodeNumber;
use crate::view::View;

/// An open file of a dataset's head: it stays when its last name goes, until the handle is closed or dropped.
pub struct File {
    dataset: Dataset,
    file: HeadInode,
    is_open: bool,
}

impl Dataset {
    /// Opens a file, or anything else that has an inode.
    ///
    /// # Errors
    /// [`FileFault::Stale`] if there is none of this number, or it has no name any more and is being freed.
    pub fn file(&self, inode: InodeNumber) -> Result<File> {
        let engine = self.pool.engine();
        engine.check_open()?;
        // In one step: what is still there when the handle counts stays there.
        let state = engine.state();
        let row = state.catalogue.dataset(self.id).ok_or_else(destroyed)?;
        let file = (row.head, inode);
        if !engine.open_files.open(file) {
            return Err(FileFault::Stale.into());
        }
        let opened = File { dataset: self.clone(), file, is_open: true };
        let view = View::pin(&self.pool, &state, row.head, row.name.clone());
        drop(state);
        if view.attributes(inode)?.links == 0 {
            // It came with the snapshot that the dataset was rolled back to, or cloned from: closing this handle may free it.
            let is_free = engine.open_files.orphaned(file);
            debug_assert!(!is_free, "this handle has it open");
        }
        Ok(opened)
    }
}

impl File {
    /// Its number in the dataset.
    #[must_use]
    pub fn inode(&self) -> InodeNumber {
        self.file.1
    }

    /// Closes the handle; frees the file if it has no name and this was the last handle.
    ///
    /// # Errors
    /// When freeing fails. The next opening of the pool frees the file then.
    pub fn close(mut self) -> Result<()> {
        self.close_once()
    }

    fn close_once(&mut self) -> Result<()> {
        let was_open = std::mem::take(&mut self.is_open);
        if was_open { self.dataset.pool.engine().close_file(self.dataset.id, self.file) } else { Ok(()) }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // What cannot be freed now is in the durable list of orphans.
        let _ = self.close_once();
    }
}
