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

/// Redirect-on-write, as WAFL, ZFS and Btrfs have it: a write goes to a free place, and a flush writes the
/// path to it, up to a root.
pub struct Redirecting {
    /// Nodes of the path.
    nodes: u64,
    node_bytes: u64,
    /// How often each is written.
    copies: u64,
    roots: u64,
    root_bytes: u64,
    held: FirstWrites,
    dirty: bool,
}

impl Default for Redirecting {
    /// Btrfs: a flush writes the log tree of the file and the tree of the log trees, two levels each, every
    /// node twice, and two superblocks.
    fn default() -> Self {
        Self {
            nodes: 4,
            node_bytes: 16 << 10,
            copies: 2,
            roots: 2,
            root_bytes: 4096,
            held: FirstWrites::of_units(BLOCK_BYTES),
            dirty: false,
        }
    }
}

impl Policy for Redirecting {
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
        self.dirty = true;
    }

    fn flush(&mut self, requests: &mut Requests) {
        if std::mem::take(&mut self.dirty) {
            let nodes = self.nodes * self.copies;
            requests.write(nodes, nodes * self.node_bytes);
            requests.write(self.roots, self.roots * self.root_bytes);
        }
        requests.flush(1);
        requests.flush_after(1);
    }

    fn held_bytes(&self) -> u64 {
        self.held.bytes()
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
