//! Policies that copy away what a write replaces.

use super::{Keeping, Policy, Requests, chunks};
use std::collections::{HashSet, VecDeque};

/// Bytes of a chunk as `lvcreate --snapshot` makes them.
pub const CLASSIC_CHUNK_BYTES: u64 = 4096;

/// Bytes of an entry in the table of copies (Linux, `dm-snap-persistent.c`).
pub const CLASSIC_ENTRY_BYTES: u64 = 16;

/// Copies so many chunks away. Chunks beside each other are read and written by one request: the block layer
/// merges them. `table`: bytes that record it, which are durable before the write that replaces what was
/// copied. `area` counts all but the reading again: what a device of its own for the copies is asked for.
fn copy_away(new: u64, chunk: u64, table: Option<u64>, requests: &mut Requests, area: &mut Requests) {
    if new == 0 {
        return;
    }
    requests.read(1, new * chunk);
    let mut copies = Requests::default();
    copies.write(1, new * chunk);
    if let Some(bytes) = table {
        copies.flush(1);
        copies.write(1, bytes);
        copies.flush_after(1);
    }
    requests.include(copies);
    area.include(copies);
}

/// LVM's classic snapshots (Linux, `dm-snap.c`): each has an area of its own, so each copies for itself. A
/// table of the copies is written, and flushed, before the write that replaces them.
pub struct Classic {
    chunk: u64,
    /// Without it a crash loses the snapshots, and no table is written.
    persistent: bool,
    /// For each snapshot, from the oldest on.
    copied: VecDeque<HashSet<u64>>,
    area: Requests,
}

impl Classic {
    /// As `lvcreate --snapshot` makes them, with chunks of so many bytes.
    #[must_use]
    pub fn persistent(chunk: u64) -> Self {
        Self { chunk, persistent: true, copied: VecDeque::new(), area: Requests::default() }
    }

    /// As `dmsetup` can make them.
    #[must_use]
    pub fn transient(chunk: u64) -> Self {
        Self { persistent: false, ..Self::persistent(chunk) }
    }
}

impl Policy for Classic {
    fn name(&self) -> &'static str {
        if self.persistent { "lvm" } else { "lvm-transient" }
    }

    fn snapshot(&mut self) {
        self.copied.push_back(HashSet::new());
    }

    fn destroy_oldest(&mut self) {
        self.copied.pop_front();
    }

    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests) {
        for copied in &mut self.copied {
            let new = chunks(place, bytes, self.chunk).filter(|chunk| copied.insert(*chunk)).count() as u64;
            copy_away(new, self.chunk, self.persistent.then_some(self.chunk), requests, &mut self.area);
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

    fn copy_device(&self) -> Option<Requests> {
        Some(self.area)
    }
}

/// One area for all snapshots, after Zumastor (Phillips, "The ddsnap virtual block device", 2007): a chunk is
/// copied once, for all snapshots since it was last written. A journal makes the tree of copies durable.
#[derive(Default)]
pub struct SharedStore {
    area: Requests,
}

/// Bytes of an entry of its journal.
const JOURNAL_BYTES: u64 = 4096;

impl Keeping for SharedStore {
    const NAME: &'static str = "shared-store";
    const UNIT_BYTES: u64 = 16 << 10;

    fn write(&mut self, new: u64, bytes: u64, requests: &mut Requests) {
        copy_away(new, Self::UNIT_BYTES, Some(JOURNAL_BYTES), requests, &mut self.area);
        requests.write(1, bytes);
    }

    fn flush(&mut self, requests: &mut Requests) {
        requests.flush(1);
    }

    fn copy_device(&self) -> Option<Requests> {
        Some(self.area)
    }
}

/// VirtualBox's images: a snapshot makes the image read-only, and puts a new one on top. The first write to a
/// block of the new image copies the whole block from below.
#[derive(Default)]
pub struct Delta;

impl Keeping for Delta {
    const NAME: &'static str = "delta";
    const UNIT_BYTES: u64 = 1 << 20;

    fn write(&mut self, new: u64, bytes: u64, requests: &mut Requests) {
        if new > 0 {
            requests.read(new, Self::UNIT_BYTES * new);
            requests.write(new, Self::UNIT_BYTES * new);
            // The map of blocks.
            requests.write(1, 4096);
        } else {
            requests.write(1, bytes);
        }
    }

    fn flush(&mut self, requests: &mut Requests) {
        requests.flush(1);
    }
}
