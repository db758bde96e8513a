//! What the ways to keep a snapshot do with a write: requests, bytes and flushes of the device, and space,
//! without a kernel.
//!
//! A policy is replayed over a [`Trace`]. Counts are those of `/proc/diskstats` on a device without FUA (a
//! loop device), where an empty flush is a write request as well: what `shock` counts on the real systems.

mod copying;
mod redirecting;
mod thin;

pub use copying::{CLASSIC_ENTRY_BYTES, Classic, Delta, SharedStore};
pub use redirecting::{Icecore, InPlace, Redirecting};
pub use thin::Thin;

use crate::trace::{Event, Trace};
use std::collections::HashSet;

/// What the device is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Requests {
    /// Read requests.
    pub reads: u64,
    /// Bytes of them.
    pub read_bytes: u64,
    /// Write requests, and empty flushes.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// Flushes.
    pub flushes: u64,
}

impl Requests {
    fn read(&mut self, requests: u64, bytes: u64) {
        self.reads += requests;
        self.read_bytes += bytes;
    }

    fn write(&mut self, requests: u64, bytes: u64) {
        self.writes += requests;
        self.written_bytes += bytes;
    }

    /// A flush that is a request of its own.
    fn flush(&mut self, count: u64) {
        self.writes += count;
        self.flushes += count;
    }

    /// A flush that belongs to a write: the block layer makes it of FUA.
    fn flush_after(&mut self, count: u64) {
        self.flushes += count;
    }
}

/// A way to keep snapshots.
pub trait Policy {
    /// Its name in results.
    fn name(&self) -> &'static str;
    /// Takes a snapshot.
    fn snapshot(&mut self);
    /// Writes bytes.
    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests);
    /// Makes everything durable.
    fn flush(&mut self, requests: &mut Requests);
    /// Bytes that are held for all snapshots together.
    fn held_bytes(&self) -> u64;
}

/// Makes a policy that has seen nothing.
pub type Make = fn() -> Box<dyn Policy>;

/// Every policy, with the defaults of the systems that have it.
pub const ALL: [Make; 8] = [
    || Box::new(InPlace),
    || Box::new(Classic::persistent()),
    || Box::new(Classic::transient()),
    || Box::new(SharedStore::default()),
    || Box::new(Thin::default()),
    || Box::new(Delta::default()),
    || Box::new(Redirecting::default()),
    || Box::new(Icecore::default()),
];

/// Takes so many snapshots, and replays the trace.
pub fn replay(policy: &mut dyn Policy, trace: &Trace, snapshots: u64) -> Requests {
    for _ in 0..snapshots {
        policy.snapshot();
    }
    let mut requests = Requests::default();
    for (_, event) in &trace.events {
        match *event {
            Event::Write { place, bytes } => policy.write(place, bytes, &mut requests),
            Event::Flush => policy.flush(&mut requests),
        }
    }
    requests
}

/// Units that were written for the first time since the youngest snapshot: what they held before is kept.
struct FirstWrites {
    unit: u64,
    has_snapshot: bool,
    since: HashSet<u64>,
    count: u64,
}

impl FirstWrites {
    fn of_units(unit: u64) -> Self {
        Self { unit, has_snapshot: false, since: HashSet::new(), count: 0 }
    }

    fn snapshot(&mut self) {
        self.has_snapshot = true;
        self.since.clear();
    }

    /// Answers how many of the units are written for the first time.
    fn write(&mut self, place: u64, bytes: u64) -> u64 {
        if !self.has_snapshot {
            return 0;
        }
        let new = chunks(place, bytes, self.unit).filter(|unit| self.since.insert(*unit)).count() as u64;
        self.count += new;
        new
    }

    /// All that is kept.
    fn bytes(&self) -> u64 {
        self.count * self.unit
    }
}

/// The chunks of this size that bytes are in.
fn chunks(place: u64, bytes: u64, chunk: u64) -> std::ops::Range<u64> {
    place / chunk..(place + bytes).div_ceil(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITES: u64 = 2000;

    /// Reads, KiB read, writes, KiB written and flushes of each write, as they were counted in the guest with
    /// `shock`'s writes.
    fn each(mut policy: impl Policy, snapshots: u64) -> [f64; 5] {
        let trace = Trace::random(WRITES, 256 << 20, 16 << 10, 7);
        let found = replay(&mut policy, &trace, snapshots);
        let writes = WRITES as f64;
        [
            found.reads as f64 / writes,
            found.read_bytes as f64 / 1024.0 / writes,
            found.writes as f64 / writes,
            found.written_bytes as f64 / 1024.0 / writes,
            found.flushes as f64 / writes,
        ]
    }

    fn is_near(found: [f64; 5], counted: [f64; 5]) {
        // How many flushes the kernel makes of those that come at once is not modelled.
        for (found, counted) in found.into_iter().zip(counted).take(4) {
            assert!((found - counted).abs() <= 0.15 * counted, "{found} {counted}");
        }
    }

    #[test]
    fn predictions_are_what_was_counted() {
        is_near(each(InPlace, 0), [0.0, 0.0, 2.0, 16.0, 1.0]);
        is_near(each(Classic::persistent(), 0), [0.0, 0.0, 2.0, 16.0, 1.0]);
        is_near(each(Classic::persistent(), 1), [1.06, 15.0, 5.0, 35.0, 3.9]);
        is_near(each(Classic::persistent(), 4), [3.9, 60.0, 13.6, 92.0, 5.5]);
        is_near(each(Thin::default(), 1), [0.8, 51.0, 6.1, 96.0, 2.6]);
        is_near(each(Redirecting::default(), 1), [0.0, 0.0, 11.6, 157.0, 2.0]);
        is_near(each(Icecore::default(), 1), [0.0, 0.0, 2.11, 40.9, 1.05]);
    }

    #[test]
    fn only_copies_for_each_snapshot_grow_with_their_number() {
        for make in ALL {
            let mut policy = make();
            let name = policy.name();
            let trace = Trace::random(500, 256 << 20, 16 << 10, 7);
            let one = replay(&mut *policy, &trace, 1);
            let again = Trace::random(500, 256 << 20, 16 << 10, 8);
            let many = replay(&mut *policy, &again, 15);
            let grows = many.written_bytes > 2 * one.written_bytes;
            assert_eq!(grows, name.starts_with("lvm") && name != "lvm-thin", "{name}: {one:?} {many:?}");
        }
    }

    #[test]
    fn a_place_is_copied_once_for_a_snapshot() {
        let mut classic = Classic::persistent();
        classic.snapshot();
        let mut requests = Requests::default();
        classic.write(0, 16 << 10, &mut requests);
        let once = requests;
        classic.write(0, 16 << 10, &mut requests);
        assert_eq!((requests.reads, requests.writes), (once.reads, once.writes + 1));
        classic.snapshot();
        classic.write(0, 16 << 10, &mut requests);
        assert_eq!(requests.reads, once.reads + 1, "the younger snapshot needs it, and the older one has it");
    }
}
