//! LVM's thin snapshots.

use super::{Keeping, Requests};

/// Blocks of 4 KiB that a commit of the metadata writes: the paths in the trees of devices and mappings, two
/// levels of the space maps of data and metadata, and the superblock. Three requests, as most lie beside each
/// other.
const COMMIT_BLOCKS: u64 = 9;
const COMMIT_REQUESTS: u64 = 3;
const NODE_BYTES: u64 = 4096;

/// A pool of chunks that volumes share (Linux, `dm-thin.c`). The first write to a chunk that is shared copies
/// the whole chunk. The metadata are committed with the next flush.
#[derive(Default)]
pub struct Thin {
    changed: bool,
}

impl Keeping for Thin {
    const NAME: &'static str = "lvm-thin";
    const UNIT_BYTES: u64 = 64 << 10;

    fn write(&mut self, new: u64, bytes: u64, requests: &mut Requests) {
        requests.read(new, new * Self::UNIT_BYTES);
        requests.write(new, new * Self::UNIT_BYTES);
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
}
