//! The lock of a directory in memory: one writer or many readers.

use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// Who holds the lock at present.
#[derive(Clone, Default)]
pub(crate) struct LockTable {
    holders: Arc<Mutex<Holders>>,
}

#[derive(Default)]
struct Holders {
    writer: bool,
    readers: usize,
}

impl LockTable {
    /// Takes the lock or answers `WouldBlock`.
    pub(crate) fn lock(&self, exclusive: bool) -> io::Result<Lock> {
        let mut holders = self.holders.lock();
        if holders.writer || (exclusive && holders.readers > 0) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        if exclusive {
            holders.writer = true;
        } else {
            holders.readers += 1;
        }
        Ok(Lock { table: self.clone(), exclusive })
    }

    /// Whether any process holds it.
    pub(crate) fn is_held(&self) -> bool {
        let holders = self.holders.lock();
        holders.writer || holders.readers > 0
    }
}

/// A lock held.
pub(crate) struct Lock {
    table: LockTable,
    exclusive: bool,
}

impl icecore::storage::StorageLock for Lock {}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut holders = self.table.holders.lock();
        if self.exclusive {
            holders.writer = false;
        } else {
            holders.readers -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_writer_or_many_readers() {
        let table = LockTable::default();
        let readers = (table.lock(false).ok(), table.lock(false).ok());
        assert!(readers.0.is_some() && readers.1.is_some() && table.lock(true).is_err());
        drop(readers);
        assert!(!table.is_held());
        let writer = table.lock(true).ok();
        assert!(writer.is_some() && table.lock(true).is_err() && table.lock(false).is_err());
    }
}
