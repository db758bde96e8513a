//! Pools that are only read. Other processes may read them too, and a connection of this process that writes takes
//! their place: what was opened before finds its file again in the pool that was opened to write.

use crate::bindings::code;
use crate::database::{Database, Source};
use crate::errors::{Fault, Result};
use crate::locks::FileVersion;
use crate::opening::Found;
use crate::registry::OpenPool;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// How a pool that is only read is used.
#[derive(Default)]
pub struct Sharing {
    /// Another pool is in its place, or will be.
    replaced: AtomicBool,
    /// Versions that are read, and are not found again in another pool: those of heads.
    reading: AtomicUsize,
}

impl Sharing {
    /// From here on nothing is read from the pool. False if a head is being read.
    pub fn give_way(&self) -> bool {
        // First what readers look at after they were counted: one of the two sees the other.
        self.replaced.store(true, Ordering::SeqCst);
        let gives_way = self.reading.load(Ordering::SeqCst) == 0;
        if !gives_way {
            self.replaced.store(false, Ordering::SeqCst);
        }
        gives_way
    }
}

/// Keeps a pool from giving way.
pub struct Reading(Arc<OpenPool>);

impl Reading {
    /// Counts a reader. `None` for a pool that never gives way.
    fn of(pool: &Arc<OpenPool>) -> Option<Self> {
        pool.sharing.as_ref()?.reading.fetch_add(1, Ordering::SeqCst);
        Some(Self(Arc::clone(pool)))
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if let Some(sharing) = &self.0.sharing {
            sharing.reading.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl OpenPool {
    /// Whether what is read from the pool now means nothing: this process, or another one, has opened it to write.
    pub fn is_replaced(&self) -> bool {
        let gave_way = |sharing: &Sharing| sharing.replaced.load(Ordering::SeqCst);
        self.sharing.as_ref().is_some_and(gave_way) || self.pool.is_outdated()
    }
}

impl Database {
    /// Before a version of the head is pinned: the pool is the current one, and stays so until the version is let go of.
    pub fn hold_pool(&mut self) -> Result<()> {
        loop {
            self.reading = Reading::of(self.pool.shared());
            if !self.pool.is_replaced() {
                return Ok(());
            }
            self.reading = None;
            self.find_again()?;
        }
    }

    /// Goes on in the pool that took the place of this one, if one has. What was read from this one before is void.
    /// True if the handle has moved.
    ///
    /// # Errors
    /// `SQLITE_BUSY_SNAPSHOT` in a read transaction: its version is not found again.
    pub fn follow_pool(&mut self) -> Result<bool> {
        if !self.pool.is_replaced() {
            return Ok(false);
        }
        let is_of_head = match self.source {
            Source::Head { .. } => self.pin.is_some(),
            Source::Fixed { is_head, .. } => is_head,
        };
        if is_of_head {
            let text = "another process has opened the pool for writing: begin the transaction again";
            return Err(Fault::new(code::BUSY_SNAPSHOT, text));
        }
        self.find_again()?;
        Ok(true)
    }

    fn find_again(&mut self) -> Result<()> {
        let found = self.request.find(Duration::ZERO);
        // SQLite waits as long as its busy timeout says.
        let found =
            found.map_err(|fault| if fault.is_in_use() { fault.with_code(code::BUSY) } else { fault })?;
        let Found { pool, source, inode, pin, .. } = found;
        self.size = pin.as_ref().map_or(0, crate::database::Pin::size);
        (self.source, self.inode, self.pin, self.pool) = (source, inode, pin, pool);
        // Versions are counted anew.
        self.seen = self.seen.map(|_| FileVersion::NONE);
        Ok(())
    }
}
