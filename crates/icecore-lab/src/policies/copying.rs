//! Policies that copy away what a write replaces.

use super::{Policy, Requests, chunks};
use std::collections::HashSet;

/// Bytes of an entry in the table of copies (Linux, `dm-snap-persistent.c`).
pub const CLASSIC_ENTRY_BYTES: u64 = 16;

/// LVM's classic snapshots (Linux, `dm-snap.c`): each has an area of its own, so each copies for itself. A
/// table of the copies is written, and flushed, before the write that replaces them.
pub struct Classic {
    chunk: u64,
    /// Without it a crash loses the snapshots, and no table is written.
    persistent: bool,
    copied: Vec<HashSet<u64>>,
}

impl Classic {
    /// As `lvcreate --snapshot` makes them: chunks of 4 KiB.
    #[must_use]
    pub fn persistent() -> Self {
        Self { chunk: 4096, persistent: true, copied: Vec::new() }
    }

    /// As `dmsetup` can make them.
    #[must_use]
    pub fn transient() -> Self {
        Self { persistent: false, ..Self::persistent() }
    }
}

impl Policy for Classic {
    fn name(&self) -> &'static str {
        if self.persistent { "lvm" } else { "lvm-transient" }
    }

    fn snapshot(&mut self) {
        self.copied.push(HashSet::new());
    }

    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests) {
        for copied in &mut self.copied {
            let new = chunks(place, bytes, self.chunk).filter(|chunk| copied.insert(*chunk)).count() as u64;
            if new > 0 {
                // Chunks beside each other are read and written by one request: the block layer merges them.
                requests.read(1, new * self.chunk);
                requests.write(1, new * self.chunk);
                if self.persistent {
                    requests.flush(1);
                    requests.write(1, self.chunk);
                    requests.flush_after(1);
                }
            }
        }
        requests.write(1, bytes);
    }

    fn flush(&mut self, requests: &mut Requests) {
        requests.flush(1);
    }

    fn held_bytes(&self) -> u64 {
        let copies: u64 = self.copied.iter().map(|copied| copied.len() as u64).sum();
        copies * (self.chunk + CLASSIC_ENTRY_BYTES)
    }
}

/// One area for all snapshots, after Zumastor (Phillips, "The ddsnap virtual block device", 2007): a chunk is
/// copied once, for all snapshots since it was last written. A journal makes the tree of copies durable.
pub struct SharedStore {
    chunk: u64,
    snapshots: u64,
    /// Copied since the youngest snapshot.
    copied: HashSet<u64>,
    copies: u64,
}

impl Default for SharedStore {
    fn default() -> Self {
        Self { chunk: 16 << 10, snapshots: 0, copied: HashSet::new(), copies: 0 }
    }
}

impl Policy for SharedStore {
    fn name(&self) -> &'static str {
        "shared-store"
    }

    fn snapshot(&mut self) {
        self.snapshots += 1;
        self.copied.clear();
    }

    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests) {
        if self.snapshots > 0 {
            let new =
                chunks(place, bytes, self.chunk).filter(|chunk| self.copied.insert(*chunk)).count() as u64;
            if new > 0 {
                self.copies += new;
                requests.read(1, new * self.chunk);
                requests.write(1, new * self.chunk);
                // The journal, before the write that replaces what was copied.
                requests.flush(1);
                requests.write(1, 4096);
                requests.flush_after(1);
            }
        }
        requests.write(1, bytes);
    }

    fn flush(&mut self, requests: &mut Requests) {
        requests.flush(1);
    }

    fn held_bytes(&self) -> u64 {
        self.copies * self.chunk
    }
}

/// VirtualBox's images: a snapshot makes the image read-only, and puts a new one on top. The first write to a
/// block of the new image copies the whole block from below.
pub struct Delta {
    block: u64,
    snapshots: u64,
    /// Blocks that the youngest image has.
    present: HashSet<u64>,
    copies: u64,
}

impl Default for Delta {
    fn default() -> Self {
        Self { block: 1 << 20, snapshots: 0, present: HashSet::new(), copies: 0 }
    }
}

impl Policy for Delta {
    fn name(&self) -> &'static str {
        "delta"
    }

    fn snapshot(&mut self) {
        self.snapshots += 1;
        self.present.clear();
    }

    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests) {
        let new = chunks(place, bytes, self.block).filter(|block| self.present.insert(*block)).count() as u64;
        if self.snapshots > 0 && new > 0 {
            self.copies += new;
            requests.read(new, new * self.block);
            requests.write(new, new * self.block);
            // The map of blocks.
            requests.write(1, 4096);
        } else {
            requests.write(1, bytes);
        }
    }

    fn flush(&mut self, requests: &mut Requests) {
        requests.flush(1);
    }

    fn held_bytes(&self) -> u64 {
        self.copies * self.block
    }
}
