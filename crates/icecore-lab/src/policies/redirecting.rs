//! Policies that write elsewhere, and leave what was there.

use super::{FirstWrites, Policy, Requests};

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
pub struct Btrfs {
    /// Writes in the log tree. The commit of a transaction begins a new one; a trace without times has none.
    logged: u64,
    held: FirstWrites,
    dirty: bool,
}

impl Default for Btrfs {
    fn default() -> Self {
        Self { logged: 0, held: FirstWrites::of_units(BLOCK_BYTES), dirty: false }
    }
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

impl Policy for Btrfs {
    fn name(&self) -> &'static str {
        "btrfs"
    }

    fn snapshot(&mut self) {
        self.held.snapshot();
    }

    fn destroy_oldest(&mut self) {
        self.held.destroy_oldest();
    }

    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests) {
        self.held.write(place, bytes);
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

    fn held_bytes(&self) -> u64 {
        self.held.bytes()
    }
}

/// ZFS with records of the size of the writes, and direct I/O (OpenZFS 2.3): a write goes to a free place at
/// once, and a flush writes a block of the intent log that names it. The group of transactions that makes the
/// log superfluous is not modelled: it comes every five seconds.
pub struct Zfs {
    held: FirstWrites,
    dirty: bool,
}

impl Default for Zfs {
    fn default() -> Self {
        Self { held: FirstWrites::of_units(BLOCK_BYTES), dirty: false }
    }
}

/// The least that the intent log takes for the records of one flush.
const INTENT_BYTES: u64 = 4096;

impl Policy for Zfs {
    fn name(&self) -> &'static str {
        "zfs"
    }

    fn snapshot(&mut self) {
        self.held.snapshot();
    }

    fn destroy_oldest(&mut self) {
        self.held.destroy_oldest();
    }

    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests) {
        self.held.write(place, bytes);
        requests.write(1, bytes);
        self.dirty = true;
    }

    fn flush(&mut self, requests: &mut Requests) {
        if std::mem::take(&mut self.dirty) {
            requests.write(1, INTENT_BYTES);
            requests.flush(1);
        }
    }

    fn held_bytes(&self) -> u64 {
        self.held.bytes()
    }
}

/// XFS with a reflink copy for each snapshot: a shared block is not written in place. Its place changes in
/// several trees, and a flush writes the log of that; a block that is not shared any more is as on `plain`.
pub struct Reflink {
    shared: FirstWrites,
    /// Bytes for the log since the last flush.
    logged_bytes: u64,
}

impl Default for Reflink {
    fn default() -> Self {
        Self { shared: FirstWrites::of_units(BLOCK_BYTES), logged_bytes: 0 }
    }
}

/// Eight changes of nodes of 4 KiB (free space twice by place and twice by size, counts of references twice,
/// the map of the file twice), of which an insertion logs half, and 1 KiB of intents and headers.
const REMAP_BYTES: u64 = 8 * 2048 + 1024;

impl Policy for Reflink {
    fn name(&self) -> &'static str {
        "xfs-reflink"
    }

    fn snapshot(&mut self) {
        self.shared.snapshot();
    }

    fn destroy_oldest(&mut self) {
        self.shared.destroy_oldest();
    }

    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests) {
        if self.shared.write(place, bytes) > 0 {
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

    fn held_bytes(&self) -> u64 {
        self.shared.bytes()
    }
}

/// Icecore: what was written since the last flush goes to the end of the log with a header, in one request. A
/// snapshot is a place in the log. The pool is new: its segments are filled with zeros before they are used.
pub struct Icecore {
    pending_bytes: u64,
    /// Bytes of zeros that the log has not reached.
    ahead_bytes: u64,
    held: FirstWrites,
}

impl Default for Icecore {
    fn default() -> Self {
        Self { pending_bytes: 0, ahead_bytes: 0, held: FirstWrites::of_units(BLOCK_BYTES) }
    }
}

/// Of each append.
const HEADER_BYTES: u64 = 4096;
/// Zeros are written so many at once.
const AHEAD_BYTES: u64 = 1 << 20;

impl Policy for Icecore {
    fn name(&self) -> &'static str {
        "icecore-mount"
    }

    fn snapshot(&mut self) {
        self.held.snapshot();
    }

    fn destroy_oldest(&mut self) {
        self.held.destroy_oldest();
    }

    fn write(&mut self, place: u64, bytes: u64, _: &mut Requests) {
        self.held.write(place, bytes);
        self.pending_bytes += bytes;
    }

    fn flush(&mut self, requests: &mut Requests) {
        let pending = std::mem::take(&mut self.pending_bytes);
        if pending > 0 {
            let appended = pending + HEADER_BYTES;
            while self.ahead_bytes < appended {
                requests.write(1, AHEAD_BYTES);
                self.ahead_bytes += AHEAD_BYTES;
            }
            self.ahead_bytes -= appended;
            requests.write(1, appended);
        }
        requests.flush(1);
    }

    fn held_bytes(&self) -> u64 {
        self.held.bytes()
    }
}
