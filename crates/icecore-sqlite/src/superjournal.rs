//! The commit of a transaction over several attached files of one pool.
//!
//! SQLite writes a super-journal, syncs each file naming it, and commits by deleting it. Ours is no file:
//! each sync parks that file's writes here, and the deletion commits them all in one record. SQLite makes no
//! super-journal where it does not need to survive a crash (`synchronous=OFF`, journal in memory). Such files
//! park their writes as well, and the first file that reaches phase two commits them all.
//!
//! SQLite deletes a super-journal also when it rolls back, once the journals that it names are gone. Ours are
//! in private memory, and look gone from the start. So only the deletion that makes the directory durable is
//! a commit, and until then the super-journal exists: SQLite rolls a file back only while it does.

use crate::bindings::code;
use crate::errors::{Fault, Result};
use crate::locks::HandleId;
use crate::prepared::{self, Prepared};
use crate::registry::OpenPool;
use parking_lot::Mutex;

/// The end of the sentence about a commit with files outside the pool. SQLite cannot pass it on: the code
/// that says most is `SQLITE_MISUSE`, as it is not the disk that failed.
pub const NOT_TOGETHER: &str = "a file outside its pool that has a rollback journal, as no crash-proof way exists: \
                                write to them in separate transactions, or put that file into WAL mode";

/// One transaction over several files.
#[derive(Default)]
pub struct SuperJournal {
    inner: Mutex<Inner>,
    /// SQLite has no file for it, and phase two commits.
    unnamed: bool,
}

#[derive(Default)]
struct Inner {
    /// What SQLite wrote: the names of the files' journals.
    bytes: Vec<u8>,
    parked: Vec<(HandleId, Prepared)>,
    /// Some file wants the commit to be durable.
    durable: bool,
    outcome: Outcome,
}

/// How far the transaction is.
#[derive(Clone, Debug, Default)]
pub enum Outcome {
    /// Not committed.
    #[default]
    Waiting,
    /// One of its files is being rolled back: it is never committed.
    GivenUp,
    /// Committed, durable and published.
    Committed,
    /// It could not be committed, and never will be.
    Failed(Fault),
}

impl SuperJournal {
    /// One that SQLite knows nothing of.
    pub fn unnamed() -> Self {
        Self { unnamed: true, ..Self::default() }
    }

    /// Whether phase two commits it, and not a deletion.
    pub fn is_unnamed(&self) -> bool {
        self.unnamed
    }

    /// Whether further files may join the transaction.
    pub fn is_waiting(&self) -> bool {
        matches!(self.inner.lock().outcome, Outcome::Waiting)
    }

    /// The commit has to survive a crash.
    pub fn make_durable(&self) {
        self.inner.lock().durable = true;
    }

    /// Parks the writes of one file.
    pub fn park(&self, handle: HandleId, prepared: Prepared, durable: bool) {
        let mut inner = self.inner.lock();
        inner.durable |= durable;
        inner.parked.push((handle, prepared));
    }

    /// Takes a file's writes out again, as the file is rolled back: no other file may be committed now.
    pub fn take_back(&self, handle: HandleId) -> Option<Prepared> {
        let mut inner = self.inner.lock();
        let index = inner.parked.iter().position(|(parked, _)| *parked == handle)?;
        if let Outcome::Waiting = inner.outcome {
            inner.outcome = Outcome::GivenUp;
        }
        Some(inner.parked.swap_remove(index).1)
    }

    /// Runs `work` on a file's parked writes.
    pub fn with_parked<T>(&self, handle: HandleId, work: impl FnOnce(&mut Prepared) -> T) -> Option<T> {
        let mut inner = self.inner.lock();
        inner.parked.iter_mut().find(|(parked, _)| *parked == handle).map(|(_, prepared)| work(prepared))
    }

    /// Commits all that is parked, if that did not happen yet.
    pub fn commit(&self, pool: &OpenPool) -> Result<()> {
        let mut inner = self.inner.lock();
        match &inner.outcome {
            Outcome::Waiting => {}
            Outcome::Committed => return Ok(()),
            Outcome::Failed(fault) => return Err(fault.clone()),
            Outcome::GivenUp => {
                let text =
                    "a transaction over several files cannot be committed after one of them was rolled back";
                return Err(Fault::new(code::IOERR, text));
            }
        }
        // A file that was opened with synchronous=OFF still joins the flush of the others.
        let durable = inner.durable;
        let parked = std::mem::take(&mut inner.parked);
        let parked: Vec<Prepared> = parked.into_iter().map(|(_, prepared)| prepared).collect();
        let result =
            if parked.is_empty() { Ok(()) } else { prepared::commit(pool, parked, durable).map(drop) };
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

    /// Whether it names one of these journals.
    pub fn names(&self, journals: &[u8]) -> bool {
        let inner = self.inner.lock();
        names_in(journals).any(|name| names_in(&inner.bytes).any(|known| known == name))
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

/// The names of journals, each of which ends in a zero byte.
pub fn names_in(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&byte| byte == 0).filter(|name| !name.is_empty())
}
