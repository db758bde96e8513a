//! The commit of a transaction over several attached files.
//!
//! SQLite writes a super-journal, syncs each file naming it, and commits by deleting it. Ours is no file: each
//! sync parks that file's writes here, and the deletion commits them all in one record.

use crate::bindings::code;
use crate::errors::{Fault, Result};
use crate::locks::HandleId;
use crate::prepared::{self, Prepared};
use crate::registry::OpenPool;
use parking_lot::Mutex;

/// One transaction over several files.
#[derive(Default)]
pub struct SuperJournal {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// What SQLite wrote: the names of the files' journals.
    bytes: Vec<u8>,
    parked: Vec<(HandleId, Prepared)>,
    outcome: Outcome,
}

/// How far the transaction is.
#[derive(Clone, Debug, Default)]
pub enum Outcome {
    /// Not committed.
    #[default]
    Waiting,
    /// Committed, durable and published.
    Committed,
    /// It could not be committed, and never will be.
    Failed(Fault),
}

impl SuperJournal {
    /// Parks the writes of one file.
    pub fn park(&self, handle: HandleId, prepared: Prepared) {
        self.inner.lock().parked.push((handle, prepared));
    }

    /// Takes a file's writes out again: it was rolled back, or SQLite writes on.
    pub fn take_back(&self, handle: HandleId) -> Option<Prepared> {
        let mut inner = self.inner.lock();
        let index = inner.parked.iter().position(|(parked, _)| *parked == handle)?;
        Some(inner.parked.swap_remove(index).1)
    }

    /// Runs `work` on a file's parked writes.
    pub fn with_parked<T>(&self, handle: HandleId, work: impl FnOnce(&Prepared) -> T) -> Option<T> {
        let inner = self.inner.lock();
        inner.parked.iter().find(|(parked, _)| *parked == handle).map(|(_, prepared)| work(prepared))
    }

    /// Commits all that is parked.
    pub fn commit(&self, pool: &OpenPool) -> Result<()> {
        let mut inner = self.inner.lock();
        let parked = std::mem::take(&mut inner.parked);
        let parked: Vec<Prepared> = parked.into_iter().map(|(_, prepared)| prepared).collect();
        // There is a super-journal only where the files are to be durable.
        let result = if parked.is_empty() { Ok(()) } else { prepared::commit(pool, parked, true).map(drop) };
        inner.outcome = match &result {
            Ok(()) => Outcome::Committed,
            Err(fault) => Outcome::Failed(fault.clone()),
        };
        result
    }

    /// How far the transaction is.
    pub fn outcome(&self) -> Outcome {
        self.inner.lock().outcome.clone()
    }

    /// Length of what was written.
    pub fn size(&self) -> u64 {
        self.inner.lock().bytes.len() as u64
    }

    /// Reads what was written; returns how much there was.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let inner = self.inner.lock();
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(inner.bytes.len());
        let length = buffer.len().min(inner.bytes.len() - start);
        buffer[..length].copy_from_slice(&inner.bytes[start..start + length]);
        length
    }

    /// Takes in the names of journals. SQLite writes them one after the other.
    pub fn append(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut inner = self.inner.lock();
        if offset != inner.bytes.len() as u64 {
            return Err(Fault::new(code::IOERR_WRITE, "a super-journal is only appended to"));
        }
        inner.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Cuts off what was written.
    pub fn truncate(&self, size: u64) {
        self.inner.lock().bytes.truncate(usize::try_from(size).unwrap_or(usize::MAX));
    }
}
