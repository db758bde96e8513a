//! The head of a dataset: files and directories, to be changed.

use crate::error::Result;
#[cfg(doc)]
use crate::error::{Error, FileFault};
use crate::group::Group;
use crate::pool::Pool;
use crate::units::{DatasetId, InodeNumber};
use crate::view::View;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use target::Target;

mod file;
#[cfg(test)]
mod file_tests;
mod names;
#[cfg(test)]
mod race_tests;
mod target;
mod write;

pub use file::File;
pub use names::Creation;

/// Bytes of one write that are certain to be atomic.
pub const ATOMIC_WRITE_BYTES: usize = 1 << 20;

/// A handle on the head of a dataset. Cheap to clone; keeps the pool open.
#[derive(Clone)]
pub struct Dataset {
    pool: Pool,
    id: DatasetId,
}

impl Dataset {
    pub(crate) fn new(pool: Pool, id: DatasetId) -> Self {
        Self { pool, id }
    }

    /// The pool it belongs to.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Its number: stays the same when it is renamed.
    #[must_use]
    pub fn id(&self) -> DatasetId {
        self.id
    }

    /// Its name now.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was destroyed.
    pub fn name(&self) -> Result<String> {
        let state = self.pool.engine().state();
        state.catalogue.existing(self.id).map(|row| row.name.clone())
    }

    /// Grows with every rollback: what was opened before belongs to a state that is gone.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was destroyed.
    pub fn generation(&self) -> Result<u64> {
        let state = self.pool.engine().state();
        state.catalogue.existing(self.id).map(|row| row.generation)
    }

    /// The head as it is now, pinned.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was destroyed.
    pub fn view(&self) -> Result<View> {
        let engine = self.pool.engine();
        engine.check_open()?;
        let mut state = engine.state();
        let row = state.catalogue.existing(self.id)?;
        let (head, name) = (row.head, row.name.clone());
        Ok(View::pin(&self.pool, &mut state, head, name))
    }

    /// Whether nothing was changed since a view of the head was taken, in this dataset or any other.
    ///
    /// # Errors
    /// As for [`Dataset::view`].
    pub fn is_unchanged_since(&self, view: &View) -> Result<bool> {
        let engine = self.pool.engine();
        engine.check_open()?;
        let state = engine.state();
        let row = state.catalogue.existing(self.id)?;
        Ok(view.is_of(row.head, &state))
    }

    /// A file of the head, whichever that is.
    fn target(&self, inode: InodeNumber) -> Target<'_> {
        Target { engine: self.pool.engine(), dataset: self.id, inode, opened_in: None }
    }

    /// Writes at `offset`, growing the file if need be. Visible at once, to everybody. A call of up to 1 MiB
    /// is there whole after a crash or not at all; durable after [`Dataset::sync`].
    ///
    /// # Errors
    /// [`Error::NoSpace`] before anything changed, [`FileFault::TooLarge`] beyond 16 TiB,
    /// [`FileFault::Stale`] if there is no such inode, [`Error::ReadOnlyAfterFailure`].
    pub fn write(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        self.target(inode).write(offset, data).map(|_| ())
    }

    /// As [`Dataset::write`], and durable on return: costs one flush, shared with others that wait.
    ///
    /// # Errors
    /// As there.
    pub fn write_durable(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        let last = self.target(inode).write(offset, data)?;
        self.pool.engine().make_durable(last)
    }

    /// Sets the size of a file: what lies behind is dropped, what is new reads as zeros.
    ///
    /// # Errors
    /// [`FileFault::TooLarge`], [`FileFault::Stale`], [`FileFault::IsADirectory`].
    pub fn truncate(&self, inode: InodeNumber, size: u64) -> Result<()> {
        self.target(inode).truncate(size)
    }

    /// Makes a range read as zeros, and frees its blocks.
    ///
    /// # Errors
    /// [`FileFault::Stale`], [`FileFault::IsADirectory`].
    pub fn punch_hole(&self, inode: InodeNumber, offset: u64, length: u64) -> Result<()> {
        self.target(inode).punch_hole(offset, length)
    }

    /// Everything done so far, in every dataset, is durable on return. Callers that wait together share a
    /// flush.
    ///
    /// # Errors
    /// [`Error::ReadOnlyAfterFailure`].
    pub fn sync(&self) -> Result<()> {
        self.pool.sync()
    }

    /// Begins an atomic group of writes.
    ///
    /// # Errors
    /// [`Error::ReadOnly`], [`Error::ReadOnlyAfterFailure`].
    pub fn begin(&self) -> Result<Group> {
        self.pool.engine().check_writable()?;
        Group::new(self.clone(), self.view()?)
    }

    /// As [`Dataset::begin`], where the caller has a view of this dataset, and knows that the files that it
    /// is going to write have not changed since: blocks that are written in part are completed from it.
    ///
    /// # Errors
    /// As there.
    pub fn begin_from(&self, view: &View) -> Result<Group> {
        self.pool.engine().check_writable()?;
        Group::new(self.clone(), view.clone())
    }

    /// Announces that something has the dataset open: rolling it back and destroying it are refused while it
    /// has, naming `what`.
    #[must_use]
    pub fn register_user(&self, what: &str) -> UserGuard {
        let user = User { what: what.to_owned(), writing: Arc::default() };
        self.pool.engine().users.lock().entry(self.id).or_default().push(user.clone());
        UserGuard { dataset: self.clone(), user }
    }
}

/// Something that has a dataset open.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) what: String,
    writing: Arc<AtomicBool>,
}

impl User {
    /// All of them, for a sentence.
    pub(crate) fn list(users: &[Self]) -> String {
        users.iter().map(|user| user.what.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Those in the middle of a transaction.
    pub(crate) fn writing(users: &[Self]) -> Vec<Self> {
        users.iter().filter(|user| user.writing.load(Ordering::Acquire)).cloned().collect()
    }
}

/// See [`Dataset::register_user`].
pub struct UserGuard {
    dataset: Dataset,
    user: User,
}

impl UserGuard {
    /// Announces that the user is in the middle of a transaction, or is no longer: renaming the dataset is
    /// refused meanwhile.
    pub fn set_writing(&self, writing: bool) {
        self.user.writing.store(writing, Ordering::Release);
    }
}

impl Drop for UserGuard {
    fn drop(&mut self) {
        let mut users = self.dataset.pool.engine().users.lock();
        if let Some(open) = users.get_mut(&self.dataset.id)
            && let Some(index) = open.iter().position(|user| Arc::ptr_eq(&user.writing, &self.user.writing))
        {
            open.swap_remove(index);
        }
    }
}
