//! Merged blocks that no checkpoint has written yet.

use super::Block;
use crate::error::{Error, Result};
use crate::numbers::NumberMap;
use crate::units::LogAddress;
use parking_lot::RwLock;
use std::sync::Arc;

/// Merged blocks by their addresses. One of which nothing is known stands for what is lost: it was made from a block that could not be read any
/// more when the log was replayed. It is written with a checksum that it does not match, so that it stays lost when the
/// block that it was made from turns up again: that is not what was acknowledged.
#[derive(Default)]
pub(crate) struct Pending(RwLock<NumberMap<LogAddress, Option<Arc<Block>>>>);

/// What reading a block that is lost comes to.
pub(super) fn lost(address: LogAddress) -> Error {
    let detail = "what it changes could not be read when the log was replayed";
    Error::damaged(format!("the block with address {address} of the merged stream"), detail)
}

impl Pending {
    /// A merged block was born; a checkpoint will write it. `None`: it is lost.
    pub(crate) fn add(&self, address: LogAddress, block: Option<Arc<Block>>) {
        self.0.write().insert(address, block);
    }

    /// A block that no checkpoint has written yet, if it is one; `Some(None)` if it is lost.
    pub(crate) fn get(&self, address: LogAddress) -> Option<Option<Arc<Block>>> {
        self.0.read().get(&address).cloned()
    }

    /// Fails for a block that is lost.
    pub(crate) fn check(&self, address: LogAddress) -> Result<()> {
        if let Some(None) = self.get(address) { Err(lost(address)) } else { Ok(()) }
    }

    /// All of them, in order of their addresses.
    pub(crate) fn all(&self) -> Vec<(LogAddress, Option<Arc<Block>>)> {
        let pending = self.0.read();
        let mut all: Vec<_> = pending.iter().map(|(address, block)| (*address, block.clone())).collect();
        all.sort_unstable_by_key(|(address, _)| *address);
        all
    }

    /// Those that are lost.
    pub(crate) fn lost(&self) -> Vec<LogAddress> {
        let pending = self.0.read();
        let lost = pending.iter().filter(|(_, block)| block.is_none()).map(|(address, _)| *address);
        let mut lost: Vec<LogAddress> = lost.collect();
        lost.sort_unstable();
        lost
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.read().len()
    }

    /// A block was written, or died unwritten.
    pub(crate) fn done(&self, address: LogAddress) {
        self.0.write().remove(&address);
    }
}
