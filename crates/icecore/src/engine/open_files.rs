//! Which files are open, and who frees those that are open no more and have no name.
//!
//! One and only one of the callers that may free an inode does: the one that takes its last name away, or
//! closes its last handle, or looks through all orphans. From then on it cannot be opened.

use crate::state::HeadInode;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Files that are open, or being freed.
#[derive(Default)]
pub(crate) struct OpenFiles(Mutex<HashMap<HeadInode, Holders>>);

/// Who has something to do with an inode.
enum Holders {
    /// So many handles. `is_orphan`: the last one to be closed frees it.
    Handles { count: usize, is_orphan: bool },
    /// The caller that frees it.
    Undertaker,
}

impl OpenFiles {
    /// Another handle. False if the file is being freed.
    #[must_use]
    pub(crate) fn open(&self, file: HeadInode) -> bool {
        let mut files = self.0.lock();
        match files.entry(file).or_insert(Holders::Handles { count: 0, is_orphan: false }) {
            Holders::Handles { count, .. } => *count += 1,
            Holders::Undertaker => return false,
        }
        true
    }

    /// A handle less. True if the caller has to free the file, and to call [`OpenFiles::freed`] then.
    #[must_use]
    pub(crate) fn close(&self, file: HeadInode) -> bool {
        let mut files = self.0.lock();
        let Entry::Occupied(mut entry) = files.entry(file) else { return false };
        match entry.get_mut() {
            Holders::Handles { count, .. } if *count > 1 => *count -= 1,
            Holders::Handles { is_orphan: true, .. } => {
                entry.insert(Holders::Undertaker);
                return true;
            }
            Holders::Handles { .. } => drop(entry.remove()),
            Holders::Undertaker => {}
        }
        false
    }

    /// The file has no name. True if the caller has to free it, and to call [`OpenFiles::freed`] then.
    #[must_use]
    pub(crate) fn orphaned(&self, file: HeadInode) -> bool {
        match self.0.lock().entry(file) {
            Entry::Vacant(entry) => {
                entry.insert(Holders::Undertaker);
                true
            }
            Entry::Occupied(mut entry) => {
                if let Holders::Handles { is_orphan, .. } = entry.get_mut() {
                    *is_orphan = true;
                }
                false
            }
        }
    }

    /// The file is gone, or is not going to be freed in this life of the pool.
    pub(crate) fn freed(&self, file: HeadInode) {
        self.0.lock().remove(&file);
    }

    /// Whether a handle has the file open.
    pub(crate) fn is_open(&self, file: HeadInode) -> bool {
        matches!(self.0.lock().get(&file), Some(Holders::Handles { .. }))
    }
}
