//! Who may do what with one database file: the lock table of this process.
//!
//! Readers hold a version and never wait; one writer at a time prepares the next version. Only a connection
//! in `locking_mode=EXCLUSIVE` excludes others in the classic way, as it keeps its picture for good.

use crate::bindings::code;
use crate::errors::{Fault, Result};
use crate::prepared::Prepared;
use crate::store::{Facts, View};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// One open handle, unique within the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HandleId(u64);

impl HandleId {
    /// A new one.
    pub fn fresh() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// How much of a lock a handle holds. The order is the order in which SQLite takes them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Nothing.
    None,
    /// A pinned version.
    Shared,
    /// The right to write the next version.
    Reserved,
    /// The right to commit it.
    Exclusive,
}

/// Counts the contents that a file has had: equal numbers mean equal contents.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct FileVersion(u64);

impl FileVersion {
    /// No contents that a file has had.
    pub const NONE: Self = Self(u64::MAX);
}

/// A version that a reader holds.
#[derive(Clone)]
pub struct Pinned {
    /// The dataset as it was.
    pub view: View,
    /// The file's facts in it.
    pub facts: Facts,
    /// Which contents these are.
    pub version: FileVersion,
    /// No journal, write-ahead log or WAL header is waiting to be dealt with.
    pub settled: bool,
}

/// The lock table's entry for one file.
#[derive(Default)]
pub struct FileState {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    version: FileVersion,
    /// Facts of `version`; anything else in the head means that another door has written the file.
    facts: Option<Facts>,
    settled: bool,
    /// What readers get while a commit is on its way to the disk and not yet published.
    former: Option<(View, Facts)>,
    readers: u32,
    /// Those of the readers that are in exclusive locking mode: no commit may pass them.
    exclusive_readers: u32,
    writer: Option<HandleId>,
    /// The writer holds EXCLUSIVE: its commit may come at any moment.
    committing: bool,
    /// A handle in exclusive locking mode waits for the readers to go: no new ones.
    pending: Option<HandleId>,
    /// A handle in exclusive locking mode has the whole file.
    exclusive: Option<HandleId>,
    /// The writes of a journal's roll-back, waiting for the journal to be finalised.
    parked: Option<Prepared>,
}

const BUSY: Fault = Fault::quiet(code::BUSY);
/// SQLite itself turns this into a plain "busy", and calls the busy handler, where no transaction is open.
const STALE: Fault = Fault::quiet(code::BUSY_SNAPSHOT);

/// What a writer hears after a commit that could not be flushed: the pool takes no more writes.
const NOT_DURABLE: &str =
    "an earlier commit could not be made durable: close the pool, mend the disk and open it again";

impl Inner {
    /// Takes note of what the head looks like now.
    fn observe(&mut self, facts: Facts) {
        if self.facts != Some(facts) {
            // Unknown facts are those of a file that was not looked at yet.
            if self.facts.replace(facts).is_some() {
                self.version.0 += 1;
                self.settled = false;
            }
        }
    }

    fn pin(&mut self, now: impl FnOnce() -> Result<(View, Facts)>) -> Result<Pinned> {
        let (view, facts) = match &self.former {
            Some((view, facts)) => (view.clone(), *facts),
            None => {
                let (view, facts) = now()?;
                self.observe(facts);
                (view, facts)
            }
        };
        Ok(Pinned { view, facts, version: self.version, settled: self.settled })
    }

    fn blocked_for(&self, handle: HandleId) -> bool {
        let other = |holder: Option<HandleId>| holder.is_some_and(|holder| holder != handle);
        other(self.exclusive) || other(self.pending)
    }
}

impl FileState {
    /// Takes SHARED: pins what is published now. `now` looks at the head.
    pub fn share(
        &self,
        handle: HandleId,
        exclusive_mode: bool,
        now: impl FnOnce() -> Result<(View, Facts)>,
    ) -> Result<Pinned> {
        let mut inner = self.inner.lock();
        if inner.blocked_for(handle) || (exclusive_mode && inner.committing) {
            return Err(BUSY);
        }
        // Looked at under the lock: otherwise two readers could see the head in one order and the counter in another.
        let pinned = inner.pin(now)?;
        inner.readers += 1;
        inner.exclusive_readers += u32::from(exclusive_mode);
        Ok(pinned)
    }

    /// What whoever asks for SHARED would get, without taking it.
    pub fn published(&self, now: impl FnOnce() -> Result<(View, Facts)>) -> Result<(View, Facts)> {
        let former = self.inner.lock().former.clone();
        former.map_or_else(now, Ok)
    }

    /// Pins what is published now for a handle that holds at least SHARED already.
    pub fn pin_again(&self, now: impl FnOnce() -> Result<(View, Facts)>) -> Result<Pinned> {
        self.inner.lock().pin(now)
    }

    /// Takes RESERVED: there is one writer, and it starts from the version that is current.
    pub fn reserve(
        &self,
        handle: HandleId,
        pinned: FileVersion,
        now: impl FnOnce() -> Result<Facts>,
    ) -> Result<()> {
        let mut inner = self.inner.lock();
        if inner.writer.is_some_and(|writer| writer != handle) || inner.blocked_for(handle) {
            return Err(BUSY);
        }
        if inner.former.is_some() {
            return Err(Fault::new(code::IOERR, NOT_DURABLE));
        }
        inner.observe(now()?);
        if inner.version != pinned {
            return Err(STALE);
        }
        inner.writer = Some(handle);
        Ok(())
    }

    /// Takes EXCLUSIVE for the writer. Waits for nobody, unless somebody is in exclusive locking mode.
    /// `counted`: the handle itself is one of the readers in that mode, which it has left since.
    pub fn exclude(&self, handle: HandleId, exclusive_mode: bool, counted: bool) -> Result<()> {
        let mut inner = self.inner.lock();
        debug_assert_eq!(inner.writer, Some(handle));
        if exclusive_mode {
            if inner.readers > 1 {
                inner.pending = Some(handle);
                return Err(BUSY);
            }
            inner.pending = None;
            inner.exclusive = Some(handle);
        } else if inner.exclusive_readers > u32::from(counted) {
            return Err(BUSY);
        }
        inner.committing = true;
        Ok(())
    }

    /// A handle that holds `level` enters exclusive locking mode. Busy if it could be overtaken by a commit.
    pub fn enter_exclusive_mode(&self, handle: HandleId, level: Level, pinned: FileVersion) -> Result<()> {
        let mut inner = self.inner.lock();
        if level >= Level::Shared {
            let stale = inner.version != pinned || (inner.committing && inner.writer != Some(handle));
            if stale || inner.blocked_for(handle) {
                return Err(BUSY);
            }
            inner.exclusive_readers += 1;
        }
        if level == Level::Exclusive {
            // Readers that are there keep their versions; no new ones from here on.
            inner.exclusive = Some(handle);
        }
        Ok(())
    }

    /// Gives up what a handle holds above `keep`, which is none or SHARED.
    pub fn release(&self, handle: HandleId, held: Level, keep: Level, exclusive_reader: bool) {
        let mut inner = self.inner.lock();
        if inner.writer == Some(handle) {
            inner.writer = None;
            inner.committing = false;
            inner.parked = None;
        }
        inner.pending = inner.pending.filter(|&holder| holder != handle);
        inner.exclusive = inner.exclusive.filter(|&holder| holder != handle);
        if keep == Level::None && held >= Level::Shared {
            inner.readers -= 1;
            inner.exclusive_readers -= u32::from(exclusive_reader);
        }
    }

    /// Whether some handle is preparing or committing a transaction.
    pub fn has_writer(&self) -> bool {
        self.inner.lock().writer.is_some()
    }

    /// Notes that nothing is waiting to be dealt with in this version.
    pub fn settle(&self, version: FileVersion) {
        let mut inner = self.inner.lock();
        if inner.version == version {
            inner.settled = true;
        }
    }

    /// From here to [`FileState::publish`] readers get the former version, whatever the head says.
    pub fn hold_back(&self, former: Pinned) {
        self.inner.lock().former = Some((former.view, former.facts));
    }

    /// The commit did not happen: the head still is the former version.
    pub fn hold_no_longer(&self) {
        self.inner.lock().former = None;
    }

    /// The commit is done: readers get it from now on, and so does the caller.
    pub fn publish(&self, now: impl FnOnce() -> Result<(View, Facts)>) -> Result<Pinned> {
        let mut inner = self.inner.lock();
        inner.former = None;
        inner.version.0 += 1;
        inner.facts = None;
        inner.pin(now)
    }

    /// Parks the writes of a journal's roll-back until [`FileState::take_parked`].
    pub fn park(&self, prepared: Prepared) {
        self.inner.lock().parked = Some(prepared);
    }

    /// Whether the end of a journal is being waited for.
    pub fn has_parked(&self) -> bool {
        self.inner.lock().parked.is_some()
    }

    /// Takes the parked writes back. `None` if there are none, or they have been committed.
    pub fn take_parked(&self) -> Option<Prepared> {
        self.inner.lock().parked.take()
    }
}
