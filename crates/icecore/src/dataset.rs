//! The head of a dataset: files and directories, to be changed.

use crate::engine::Purpose;
use crate::error::{Error, FileFault, Result};
use crate::format::crc32c;
use crate::group::Group;
use crate::log::tail::Payload;
use crate::namespace::{Read, TreeReader};
use crate::operation::{Operation, Write};
use crate::pool::Pool;
use crate::storage::AlignedBuffer;
use crate::units::{
    BLOCK_BYTES, DatasetId, FILE_BYTES_MAX, FileBlock, InodeNumber, RecordSequence, Timestamp,
};
use crate::view::View;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

mod file;
mod names;
#[cfg(test)]
mod race_tests;

pub use file::File;
pub use names::Creation;

/// Bytes of one write that are certain to be atomic.
pub const ATOMIC_WRITE_BYTES: usize = 1 << 20;
/// Writes up to this size that do not cover whole blocks travel in the record header.
const INLINE_BYTES_MAX: usize = 2048;

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
        let row = state.catalogue.dataset(self.id);
        row.map(|row| row.name.clone()).ok_or_else(destroyed)
    }

    /// Grows with every rollback: what was opened before belongs to a state that is gone.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was destroyed.
    pub fn generation(&self) -> Result<u64> {
        let state = self.pool.engine().state();
        state.catalogue.dataset(self.id).map(|row| row.generation).ok_or_else(destroyed)
    }

    /// The head as it is now, pinned.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it was destroyed.
    pub fn view(&self) -> Result<View> {
        let engine = self.pool.engine();
        engine.check_open()?;
        let state = engine.state();
        let row = state.catalogue.dataset(self.id).ok_or_else(destroyed)?;
        Ok(View::pin(&self.pool, &state, row.head, row.name.clone()))
    }

    /// Whether nothing was changed since a view of the head was taken, in this dataset or any other.
    ///
    /// # Errors
    /// As for [`Dataset::view`].
    pub fn is_unchanged_since(&self, view: &View) -> Result<bool> {
        let engine = self.pool.engine();
        engine.check_open()?;
        let state = engine.state();
        let row = state.catalogue.dataset(self.id).ok_or_else(destroyed)?;
        Ok(view.is_of(row.head, &state))
    }

    /// Writes at `offset`, growing the file if need be. Visible at once, to everybody. A call of up to 1 MiB
    /// is there whole after a crash or not at all; durable after [`Dataset::sync`].
    ///
    /// # Errors
    /// [`Error::NoSpace`] before anything changed, [`FileFault::TooLarge`] beyond 16 TiB,
    /// [`FileFault::NotFound`], [`Error::ReadOnlyAfterFailure`].
    pub fn write(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        self.write_logged(inode, offset, data).map(|_| ())
    }

    /// As [`Dataset::write`], and durable on return: costs one flush, shared with others that wait.
    ///
    /// # Errors
    /// As there.
    pub fn write_durable(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        let last = self.write_logged(inode, offset, data)?;
        self.pool.engine().make_durable(last)
    }

    fn write_logged(&self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<RecordSequence> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        end.ok_or(FileFault::TooLarge)?;
        let engine = self.pool.engine();
        let time = engine.now();
        let mut last = RecordSequence(0);
        for (index, part) in data.chunks(ATOMIC_WRITE_BYTES).enumerate() {
            let at = offset + (index * ATOMIC_WRITE_BYTES) as u64;
            self.warm(inode, at);
            last = if at.is_multiple_of(BLOCK_BYTES as u64) && part.len().is_multiple_of(BLOCK_BYTES) {
                self.write_blocks(inode, at, part, time)?
            } else if part.len() <= INLINE_BYTES_MAX {
                let bytes = part.to_vec();
                let operation = Operation::WriteInline { dataset: self.id, inode, offset: at, bytes, time };
                engine.execute(None, &operation, None, Purpose::Data)?.0
            } else {
                self.write_unaligned(inode, at, part, time)?
            };
        }
        engine.counters.write_calls.add(1);
        engine.counters.write_bytes.add(data.len() as u64);
        Ok(last)
    }

    /// Brings the path to an extent into memory before the state is locked. Nothing is pinned, so what is read
    /// may be gone meanwhile: whoever needs it under the lock will say what is wrong, if anything is.
    fn warm(&self, inode: InodeNumber, at: u64) {
        let engine = self.pool.engine();
        let state = engine.state();
        let Ok(head) = state.head(self.id) else { return };
        let tree = state.trees[&head].clone();
        drop(state);
        let _ = TreeReader::new(&tree, &*engine.nodes).run_at(inode, FileBlock::containing(at));
    }

    fn write_operation(
        &self,
        inode: InodeNumber,
        block: FileBlock,
        blocks: usize,
        end: u64,
        time: Timestamp,
    ) -> Operation {
        Operation::Write(Write { dataset: self.id, inode, block, blocks: blocks as u32, end, time })
    }

    fn write_blocks(
        &self,
        inode: InodeNumber,
        at: u64,
        part: &[u8],
        time: Timestamp,
    ) -> Result<RecordSequence> {
        let buffer = AlignedBuffer::copied(part);
        let sums = buffer.chunks_exact(BLOCK_BYTES).map(crc32c).collect();
        let payload = Payload { buffer: Arc::new(buffer), first: 0, sums };
        let end = at + part.len() as u64;
        let operation = self.write_operation(inode, FileBlock::containing(at), payload.blocks(), end, time);
        let (last, _) = self.pool.engine().execute(None, &operation, Some(payload), Purpose::Data)?;
        Ok(last)
    }

    /// Whole blocks whose ends are made up from what is there: nothing may change in between.
    fn write_unaligned(
        &self,
        inode: InodeNumber,
        at: u64,
        part: &[u8],
        time: Timestamp,
    ) -> Result<RecordSequence> {
        self.pool.engine().with_room(|| self.try_write_unaligned(inode, at, part, time))
    }

    fn try_write_unaligned(
        &self,
        inode: InodeNumber,
        at: u64,
        part: &[u8],
        time: Timestamp,
    ) -> Result<RecordSequence> {
        let engine = self.pool.engine();
        engine.admit()?;
        let end = at + part.len() as u64;
        let first = FileBlock::containing(at);
        let blocks = (FileBlock::containing(end - 1).0 - first.0 + 1) as usize;
        let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK_BYTES);
        let mut state = engine.state();
        let head = state.head(self.id)?;
        let reader = TreeReader::new(&state.trees[&head], &*engine.nodes);
        let mut fill = |index: usize| -> Result<()> {
            let Some(run) = reader.run_at(inode, FileBlock(first.0 + index as u64))? else { return Ok(()) };
            let target = &mut buffer[index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES];
            target.copy_from_slice(&*engine.blocks.read(run.stream, run.start)?);
            Ok(())
        };
        if !at.is_multiple_of(BLOCK_BYTES as u64) {
            fill(0)?;
        }
        if !end.is_multiple_of(BLOCK_BYTES as u64) {
            fill(blocks - 1)?;
        }
        let within = (at - first.offset()) as usize;
        buffer[within..within + part.len()].copy_from_slice(part);
        let sums = buffer.chunks_exact(BLOCK_BYTES).map(crc32c).collect();
        let payload = Payload { buffer: Arc::new(buffer), first: 0, sums };
        let operation = self.write_operation(inode, first, blocks, end, time);
        engine.append(&mut state, &operation, Some(payload), Purpose::Data)?;
        let last = state.tail.last_sequence();
        let pressure = engine.pressure(&state);
        drop(state);
        engine.after_append(pressure)?;
        Ok(last)
    }

    /// Sets the size of a file: what lies behind is dropped, what is new reads as zeros.
    ///
    /// # Errors
    /// [`FileFault::TooLarge`], [`FileFault::NotFound`], [`FileFault::IsADirectory`].
    pub fn truncate(&self, inode: InodeNumber, size: u64) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(FileFault::TooLarge.into());
        }
        let operation = Operation::Truncate { dataset: self.id, inode, size, time: self.pool.engine().now() };
        self.pool.engine().execute(None, &operation, None, Purpose::Freeing).map(|_| ())
    }

    /// Makes a range read as zeros, and frees its blocks.
    ///
    /// # Errors
    /// [`FileFault::NotFound`], [`FileFault::IsADirectory`].
    pub fn punch_hole(&self, inode: InodeNumber, offset: u64, length: u64) -> Result<()> {
        let time = self.pool.engine().now();
        let operation = Operation::PunchHole { dataset: self.id, inode, offset, length, time };
        self.pool.engine().execute(None, &operation, None, Purpose::Freeing).map(|_| ())
    }

    /// Everything done so far, in every dataset, is durable on return. Callers that wait together share a flush.
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

    /// As [`Dataset::begin`], where the caller has a view of this dataset, and knows that the files that it is going to
    /// write have not changed since: blocks that are written in part are completed from it.
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

fn destroyed() -> Error {
    Error::NotFound { what: "the dataset (it was destroyed)".to_owned() }
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
