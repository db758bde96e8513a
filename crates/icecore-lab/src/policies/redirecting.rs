//! Policies that write elsewhere, and leave what was there.

use super::{Keeping, Policy, Requests};

/// A file that is overwritten in place, without snapshots.
pub struct InPlace;

impl Policy for InPlace {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn snapshot(&mut self) {}

    fn destroy_oldest(&mut self) {}

    fn write(&mut self, _: u64, bytes: u64, requests: &mut Requests) {
        requests.write(1, bytes);
    }

    fn flush(&mut self, requests: &mut Requests) {
        requests.flush(1);
    }

    fn held_bytes(&self) -> u64 {
        0
    }
}

/// Bytes of a block, of which a version holds what was overwritten since.
const BLOCK_BYTES: u64 = 4096;

/// Redirect-on-write, as WAFL, ZFS and Btrfs have it, here Btrfs: a write goes to a free place, and a flush
/// writes the paths that lead to it in the log tree of the file system, and the superblocks.
#[derive(Default)]
pub struct Btrfs {
    /// Writes in the log tree. The commit of a transaction begins a new one; a trace without times has none.
    logged: u64,
    dirty: bool,
}

/// Bytes of a node, of which each is written twice: metadata are duplicated on a single device.
const NODE_BYTES: u64 = 16 << 10;
const NODE_COPIES: u64 = 2;
/// Writes whose items fit into one leaf: an extent (53 bytes) and its checksums (16 for 16 KiB), each with 25
/// bytes of an item, and what concerns the file.
const LEAF_WRITES: u64 = 136;
/// The one leaf of the log tree, and that of the tree of log trees.
const SMALL_PATH: u64 = 2;
/// A root, a leaf of extents, one of checksums, and the tree of log trees.
const PATH: u64 = 4;
/// Those of a device of less than 256 GiB.
const SUPERBLOCKS: u64 = 2;
const SUPERBLOCK_BYTES: u64 = 4096;

impl Keeping for Btrfs {
    const NAME: &'static str = "btrfs";
    const UNIT_BYTES: u64 = BLOCK_BYTES;

    fn write(&mut self, _: u64, bytes: u64, requests: &mut Requests) {
        requests.write(1, bytes);
        self.logged += 1;
        self.dirty = true;
    }

    fn flush(&mut self, requests: &mut Requests) {
        if std::mem::take(&mut self.dirty) {
            let path = if self.logged > LEAF_WRITES { PATH } else { SMALL_PATH };
            let nodes = path * NODE_COPIES;
            requests.write(nodes, nodes * NODE_BYTES);
            requests.write(SUPERBLOCKS, SUPERBLOCKS * SUPERBLOCK_BYTES);
        }
        requests.flush(1);
        requests.flush_after(1);
    }
}

/// ZFS with records of the size of the writes, and direct I/O (OpenZFS 2.3): a write goes to a free place at
/// once, and a flush writes a block of the intent log that names it. The group of transactions that makes the
/// log superfluous is not modelled: it comes every five seconds.
#[derive(Default)]
pub struct Zfs {
    dirty: bool,
}

/// The least that the intent log takes for the records of one flush.
const INTENT_BYTES: u64 = 4096;

impl Keeping for Zfs {
    const NAME: &'static str = "zfs";
    const UNIT_BYTES: u64 = BLOCK_BYTES;

    fn write(&mut self, _: u64, bytes: u64, requests: &mut Requests) {
        requests.write(1, bytes);
        self.dirty = true;
    }

    fn flush(&mut self, requests: &mut Requests) {
        if std::mem::take(&mut self.dirty) {
            requests.write(1, INTENT_BYTES);
            requests.flush(1);
        }
    }
}

/// XFS with a reflink copy for each snapshot: a shared block is not written in place. Its place changes in
/// several trees, and a flush writes the log of that; a block that is not shared any more is as on `plain`.
#[derive(Default)]
pub struct Reflink {
    /// Bytes for the log since the last flush.
    logged_bytes: u64,
}

/// Eight changes of nodes of 4 KiB (free space twice by place and twice by size, counts of references twice,
/// the map of the file twice), of which an insertion logs half, and more where it splits one; intents and
/// headers. It was counted from 15 KiB in a new file system to 25 KiB where the trees have many nodes.
const REMAP_BYTES: u64 = 8 * 2560 + 512;

impl Keeping for Reflink {
    const NAME: &'static str = "xfs-reflink";
    const UNIT_BYTES: u64 = BLOCK_BYTES;

    fn write(&mut self, new: u64, bytes: u64, requests: &mut Requests) {
        if new > 0 {
            self.logged_bytes += REMAP_BYTES;
        }
        requests.write(1, bytes);
    }

    fn flush(&mut self, requests: &mut Requests) {
        match std::mem::take(&mut self.logged_bytes) {
            0 => requests.flush(1),
            bytes => {
                requests.write(1, bytes);
                requests.flush_after(2);
            }
        }
    }
}

/// Icecore: what was written since the last flush goes to the end of the log with a header, in one request. A
/// snapshot is a place in the log. The files of segments have been written before, but for the one in which
/// the load of the data ended. With `NEW` none has: each is filled with zeros before it is used.
pub struct Icecore<const NEW: bool> {
    pending_bytes: u64,
    /// Bytes of zeros that the log has not reached.
    ahead_bytes: u64,
    /// Bytes that are left of the segment without zeros.
    unwritten_bytes: u64,
    /// Whether the file system has put off what it has to note of the last append.
    noted: bool,
}

/// Of each append.
const HEADER_BYTES: u64 = 4096;
/// Zeros are written so many at once.
const AHEAD_BYTES: u64 = 1 << 20;
/// A segment that the load of the data ended in.
const SEGMENT_BYTES: u64 = 8 << 20;
/// What ext4 writes into its journal to note that blocks of a file have been written: a descriptor, the
/// block of extents and the commit. Every second append does so.
const NOTE_BYTES: u64 = 3 * 4096;

impl<const NEW: bool> Default for Icecore<NEW> {
    fn default() -> Self {
        let unwritten_bytes = if NEW { 0 } else { SEGMENT_BYTES };
        Self { pending_bytes: 0, ahead_bytes: 0, unwritten_bytes, noted: false }
    }
}

impl<const NEW: bool> Icecore<NEW> {
    /// What the file system under the pool does for an append.
    fn below(&mut self, appended: u64, requests: &mut Requests) {
        while NEW && self.ahead_bytes < appended {
            requests.write(1, AHEAD_BYTES);
            self.ahead_bytes += AHEAD_BYTES;
        }
        self.ahead_bytes = self.ahead_bytes.saturating_sub(appended);
        if self.unwritten_bytes > 0 {
            self.noted = !self.noted;
            if self.noted {
                requests.write(1, NOTE_BYTES);
                requests.flush_after(1);
            }
        }
        self.unwritten_bytes = self.unwritten_bytes.saturating_sub(appended);
    }
}

impl<const NEW: bool> Keeping for Icecore<NEW> {
    const NAME: &'static str = if NEW { "icecore-new" } else { "icecore-mount" };
    const UNIT_BYTES: u64 = BLOCK_BYTES;

    fn write(&mut self, _: u64, bytes: u64, _: &mut Requests) {
        self.pending_bytes += bytes;
    }

    fn flush(&mut self, requests: &mut Requests) {
        let pending = std::mem::take(&mut self.pending_bytes);
        if pending > 0 {
            let appended = pending + HEADER_BYTES;
            self.below(appended, requests);
            requests.write(1, appended);
        }
        requests.flush(1);
    }
}
