//! Files that are open.

use crate::protocol::{Errno, HandleId, Outcome};
use crate::trees::Tree;
use icecore::units::InodeNumber;
use icecore::{File, ReadProgress};
use parking_lot::RwLock;
use std::sync::Arc;

/// An open file.
pub(crate) struct Handle {
    pub tree: Arc<Tree>,
    pub inode: InodeNumber,
    /// It was opened for writing.
    pub writes: bool,
    /// Keeps a file of a head alive when its last name goes.
    pub file: Option<File>,
    /// How far a reader of what is not of a head has come.
    pub progress: ReadProgress,
}

#[derive(Default)]
struct Table {
    slots: Vec<Option<Arc<Handle>>>,
    free: Vec<usize>,
}

/// Open files by number. Numbers are used again.
#[derive(Default)]
pub(crate) struct Handles(RwLock<Table>);

impl Handles {
    pub fn add(&self, handle: Handle) -> HandleId {
        let mut table = self.0.write();
        let handle = Some(Arc::new(handle));
        let slot = match table.free.pop() {
            Some(slot) => {
                table.slots[slot] = handle;
                slot
            }
            None => {
                table.slots.push(handle);
                table.slots.len() - 1
            }
        };
        HandleId(slot as u64)
    }

    pub fn get(&self, id: HandleId) -> Outcome<Arc<Handle>> {
        let table = self.0.read();
        let slot = table.slots.get(id.0 as usize).and_then(Option::as_ref);
        slot.cloned().ok_or(Errno(libc::EBADF))
    }

    pub fn remove(&self, id: HandleId) -> Option<Arc<Handle>> {
        let mut table = self.0.write();
        let removed = table.slots.get_mut(id.0 as usize)?.take();
        if removed.is_some() {
            table.free.push(id.0 as usize);
        }
        removed
    }

    pub fn all(&self) -> Vec<Arc<Handle>> {
        self.0.read().slots.iter().flatten().cloned().collect()
    }

    /// Drops every handle: the mount is gone.
    pub fn clear(&self) {
        let table = std::mem::take(&mut *self.0.write());
        drop(table);
    }
}
