//! LVM's thin snapshots.

use super::{FirstWrites, Policy, Requests};

/// Blocks of 4 KiB that a commit of the metadata writes: the paths in the trees of devices and mappings, two
/// levels of the space maps of data and metadata, and the superblock. Three requests, as most lie beside each
/// other.
const COMMIT_BLOCKS: u64 = 9;
const COMMIT_REQUESTS: u64 = 3;
const NODE_BYTES: u64 = 4096;

/// A pool of chunks that volumes share (Linux, `dm-thin.c`). The first write to a chunk that is shared copies
/// the whole chunk. The metadata are committed with the next flush.
pub struct Thin {
    copied: FirstWrites,
    changed: bool,
}

impl Default for Thin {
    fn default() -> Self {
        Self { copied: FirstWrites::of_units(64 << 10), changed: false }
    }
}

impl Policy for Thin {
    fn name(&self) -> &'static str {
        "lvm-thin"
    }

    fn snapshot(&mut self) {
        self.copied.snapshot();
    }

    fn destroy_oldest(&mut self) {
        self.copied.destroy_oldest();
    }

    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests) {
        let new = self.copied.write(place, bytes);
        requests.read(new, new * self.copied.unit);
        requests.write(new, new * self.copied.unit);
        self.changed |= new > 0;
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
        self.copied.bytes()
    }
}
