//! Files of a head that are open.

use super::Dataset;
use super::target::Target;
use crate::error::{FileFault, Result};
use crate::linear::ReadProgress;
use crate::namespace::{InodeItem, InodeKind};
use crate::present::Present;
use crate::reading::{Reading, VersionName};
use crate::state::HeadInode;
use crate::tree::Tree;
use crate::units::InodeNumber;
use std::sync::Arc;

/// An open file of a dataset's head, read and written by position, by any number of threads at once. It stays
/// when its last name goes, until the handle is closed or dropped.
///
/// A rollback of the dataset, which makes [`Dataset::generation`] grow, makes the handle useless: every call
/// answers [`FileFault::Stale`] from then on, and so it does when the dataset is destroyed. A call that was
/// under way has happened before.
pub struct File {
    dataset: Dataset,
    file: HeadInode,
    kind: InodeKind,
    present: Arc<Present<Tree>>,
    progress: ReadProgress,
    is_open: bool,
}

impl Dataset {
    /// Opens a file, or anything else that has an inode: a directory stays when it is removed, too.
    ///
    /// # Errors
    /// [`FileFault::Stale`] if there is none of this number, or it has no name any more and is being freed.
    pub fn file(&self, inode: InodeNumber) -> Result<File> {
        let engine = self.pool.engine();
        engine.check_open()?;
        // In one step: what is still there when the handle counts stays there.
        let mut state = engine.state();
        let head = state.head(self.id)?;
        if !engine.open_files.open((head, inode)) {
            return Err(FileFault::Stale.into());
        }
        let present = state.present(head);
        drop(state);
        let mut opened = File {
            dataset: self.clone(),
            file: (head, inode),
            kind: InodeKind::File,
            present,
            progress: ReadProgress::default(),
            is_open: true,
        };
        let found = opened.attributes()?;
        opened.kind = found.kind;
        if found.links == 0 {
            // It came with the snapshot that the dataset was rolled back to, or cloned from: closing this
            // handle may free it.
            let is_free = engine.open_files.orphaned((head, inode));
            debug_assert!(!is_free, "this handle has it open");
        }
        Ok(opened)
    }
}

impl File {
    /// The dataset that it is in.
    #[must_use]
    pub fn dataset(&self) -> &Dataset {
        &self.dataset
    }

    /// Its number in the dataset.
    #[must_use]
    pub fn inode(&self) -> InodeNumber {
        self.file.1
    }

    /// What it is, which never changes.
    #[must_use]
    pub fn kind(&self) -> InodeKind {
        self.kind
    }

    /// Counts what is done to the files of the head: as long as two answers are equal, a view of the head
    /// that was taken after the first is the head as it is now. `None` when the head is gone. Takes no lock.
    #[must_use]
    pub fn changes(&self) -> Option<u64> {
        self.present.changes()
    }

    fn target(&self) -> Target<'_> {
        let (head, inode) = self.file;
        let (engine, dataset) = (self.dataset.pool.engine(), self.dataset.id);
        Target { engine, dataset, inode, opened_in: Some((head, &self.present)) }
    }

    /// Reads the file as it is now.
    fn reading<T>(&self, read: impl FnOnce(&Reading<'_>) -> Result<T>) -> Result<T> {
        let target = self.target();
        self.present.count_read();
        let (tree, _pin) = target.now()?;
        read(&Reading { engine: target.engine, tree: &tree, name: VersionName::HeadOf(target.dataset) })
    }

    /// Size, kind, owner, times and so on.
    ///
    /// # Errors
    /// [`FileFault::Stale`]; [`crate::Error::Damaged`], [`crate::Error::Io`].
    pub fn attributes(&self) -> Result<InodeItem> {
        self.reading(|reading| reading.attributes(self.file.1))
    }

    /// Reads from `offset`, up to the end of the file or of the buffer; answers how many bytes. Holes read as
    /// zeros. One call sees the file as of one moment, and every write that returned before the call. For a
    /// handle that reads on where it was, the store fetches ahead.
    ///
    /// # Errors
    /// [`FileFault::Stale`], [`FileFault::IsADirectory`]; [`crate::Error::Damaged`] as for
    /// [`crate::View::read`].
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.reading(|reading| reading.read(self.file.1, offset, buffer, &self.progress))
    }

    /// The parts that hold data: offset and length in bytes, in order, neighbours joined.
    ///
    /// # Errors
    /// As for [`File::attributes`].
    pub fn data_ranges(&self) -> Result<Vec<(u64, u64)>> {
        self.reading(|reading| reading.data_ranges(self.file.1))
    }

    /// Writes at `offset`, as [`Dataset::write`].
    ///
    /// # Errors
    /// As there; [`FileFault::Stale`].
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        self.target().write(offset, data).map(|_| ())
    }

    /// Writes at `offset`, as [`Dataset::write_durable`].
    ///
    /// # Errors
    /// As there; [`FileFault::Stale`].
    pub fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        let target = self.target();
        target.engine.make_durable(target.write(offset, data)?)
    }

    /// Sets the size, as [`Dataset::truncate`].
    ///
    /// # Errors
    /// As there; [`FileFault::Stale`].
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.target().truncate(size)
    }

    /// Makes a range read as zeros and frees its blocks, as [`Dataset::punch_hole`].
    ///
    /// # Errors
    /// As there; [`FileFault::Stale`].
    pub fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.target().punch_hole(offset, length)
    }

    /// Everything done so far, in every dataset, is durable on return. Callers that wait together share a
    /// flush.
    ///
    /// # Errors
    /// [`FileFault::Stale`]; [`crate::Error::ReadOnlyAfterFailure`].
    pub fn sync(&self) -> Result<()> {
        drop(self.target().now()?);
        self.dataset.sync()
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
