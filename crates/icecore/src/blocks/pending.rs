//! Merged blocks that no checkpoint has written yet.

use super::Block;
use crate::error::{Error, Result};
use crate::numbers::NumberMap;
use crate::units::LogAddress;
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Parts by address, so that a writer seldom meets a reader: one that is preempted where it holds a lock
/// holds a part.
const PARTS: usize = 1024;

type Part = RwLock<NumberMap<LogAddress, Option<Arc<Block>>>>;

/// Merged blocks by their addresses. One of which nothing is known stands for what is lost: it was made from
/// a block that could not be read any more when the log was replayed. It is written with a checksum that it
/// does not match. So it stays lost when the block that it was made from turns up again: that is not what was
/// acknowledged.
pub(crate) struct Pending {
    parts: Box<[Part]>,
    count: AtomicUsize,
}

impl Default for Pending {
    fn default() -> Self {
        Self { parts: (0..PARTS).map(|_| Part::default()).collect(), count: AtomicUsize::new(0) }
    }
}

/// What reading a block that is lost comes to.
pub(super) fn lost(address: LogAddress) -> Error {
    let detail = "what it changes could not be read when the log was replayed";
    Error::damaged(format!("the block with address {address} of the merged stream"), detail)
}

impl Pending {
    fn part(&self, address: LogAddress) -> &Part {
        &self.parts[address.0 as usize % PARTS]
    }

    /// A merged block was born; a checkpoint will write it. `None`: it is lost.
    pub(crate) fn add(&self, address: LogAddress, block: Option<Arc<Block>>) {
        if self.part(address).write().insert(address, block).is_none() {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A block that no checkpoint has written yet, if it is one; `Some(None)` if it is lost.
    pub(crate) fn get(&self, address: LogAddress) -> Option<Option<Arc<Block>>> {
        self.part(address).read().get(&address).cloned()
    }

    /// Fails for a block that is lost.
    pub(crate) fn check(&self, address: LogAddress) -> Result<()> {
        if let Some(None) = self.get(address) { Err(lost(address)) } else { Ok(()) }
    }

    /// All of them, in order of their addresses.
    pub(crate) fn all(&self) -> Vec<(LogAddress, Option<Arc<Block>>)> {
        let mut all = Vec::with_capacity(self.count());
        for part in &self.parts {
            all.extend(part.read().iter().map(|(address, block)| (*address, block.clone())));
        }
        all.sort_unstable_by_key(|(address, _)| *address);
        all
    }

    /// Those that are lost.
    pub(crate) fn lost(&self) -> Vec<LogAddress> {
        let all = self.all().into_iter();
        all.filter(|(_, block)| block.is_none()).map(|(address, _)| address).collect()
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// A block was written, or died unwritten.
    pub(crate) fn done(&self, address: LogAddress) {
        if self.part(address).write().remove(&address).is_some() {
            self.count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
