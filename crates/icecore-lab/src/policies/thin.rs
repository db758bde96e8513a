//! LVM's thin snapshots.

use super::{Policy, Requests, chunks};
use std::collections::HashSet;

/// Blocks of 4 KiB that a commit of the metadata writes: the paths in the trees of devices and mappings, two
/// levels of the space maps of data and metadata, and the superblock. Three requests, as most lie beside each
/// other.
const COMMIT_BLOCKS: u64 = 9;
const COMMIT_REQUESTS: u64 = 3;
const NODE_BYTES: u64 = 4096;

/// A pool of chunks that volumes share (Linux, `dm-thin.c`). The first write to a chunk that is shared copies
/// the whole chunk. The metadata are committed with the next flush.
pub struct Thin {
    chunk: u64,
    snapshots: u64,
    /// Chunks that belong to the origin alone.
    own: HashSet<u64>,
    copies: u64,
    changed: bool,
}

impl Default for Thin {
    fn default() -> Self {
        Self { chunk: 64 << 10, snapshots: 0, own: HashSet::new(), copies: 0, changed: false }
    }
}

impl Policy for Thin {
    fn name(&self) -> &'static str {
        "lvm-thin"
    }

    fn snapshot(&mut self) {
        self.snapshots += 1;
        self.own.clear();
    }

    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests) {
        if self.snapshots > 0 {
            let new = chunks(place, bytes, self.chunk).filter(|chunk| self.own.insert(*chunk)).count() as u64;
            requests.read(new, new * self.chunk);
            requests.write(new, new * self.chunk);
            self.copies += new;
            self.changed |= new > 0;
        }
        requests.write(1, bytes);
    }

    fn flush(&mut self, requests: &mut Requests) {
        if std::mem::take(&mut self.changed) {
            requests.write(COMMIT_REQUESTS, COMMIT_BLOCKS * NODE_BYTES);
            requests.flush(1);
            requests.flush_after(1);
        }
        requests.flush(1);
    }

    fn held_bytes(&self) -> u64 {
        self.copies * self.chunk
    }
}
