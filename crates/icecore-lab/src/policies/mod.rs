//! What the ways to keep a snapshot do with a write: requests, bytes and flushes of the device, and space,
//! without a kernel.
//!
//! A policy is replayed over a [`Trace`]. Counts are those of `/proc/diskstats` on a device without FUA (a
//! loop device), where an empty flush is a write request as well: what `shock` counts on the real systems.

mod copying;
mod redirecting;
mod thin;

pub use copying::{CLASSIC_CHUNK_BYTES, CLASSIC_ENTRY_BYTES, Classic, Delta, SharedStore};
pub use redirecting::{Btrfs, Icecore, InPlace, Reflink, Zfs};
pub use thin::Thin;

use crate::trace::{Event, Trace};
use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::num::NonZeroU64;
use std::time::Duration;

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

    fn include(&mut self, others: Self) {
        self.reads += others.reads;
        self.read_bytes += others.read_bytes;
        self.writes += others.writes;
        self.written_bytes += others.written_bytes;
        self.flushes += others.flushes;
    }

    /// All but those of a part.
    #[must_use]
    pub fn without(self, part: Self) -> Self {
        Self {
            reads: self.reads - part.reads,
            read_bytes: self.read_bytes - part.read_bytes,
            writes: self.writes - part.writes,
            written_bytes: self.written_bytes - part.written_bytes,
            flushes: self.flushes - part.flushes,
        }
    }
}

/// A way to keep snapshots.
pub trait Policy {
    /// Its name in results.
    fn name(&self) -> &'static str;
    /// Takes a snapshot.
    fn snapshot(&mut self);
    /// Destroys the oldest snapshot. What that asks of the device is not modelled.
    fn destroy_oldest(&mut self);
    /// Writes bytes.
    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests);
    /// Makes everything durable.
    fn flush(&mut self, requests: &mut Requests);
    /// Bytes that are held for all snapshots together.
    fn held_bytes(&self) -> u64;
    /// The part of all requests that goes to the area for copies, which can lie on a device of its own.
    /// `None` if the policy has no such area.
    fn copy_device(&self) -> Option<Requests> {
        None
    }
}

/// What a way to keep snapshots costs that keeps each unit once, for all snapshots that need it.
pub trait Keeping: Default {
    /// The name of the policy in results.
    const NAME: &'static str;
    /// Bytes of a unit.
    const UNIT_BYTES: u64;
    /// Writes bytes that change this many units for the first time since the youngest snapshot.
    fn write(&mut self, new: u64, bytes: u64, requests: &mut Requests);
    /// Makes everything durable.
    fn flush(&mut self, requests: &mut Requests);
    /// As [`Policy::copy_device`].
    fn copy_device(&self) -> Option<Requests> {
        None
    }
}

/// The policy that keeps each unit once.
pub struct KeptOnce<K> {
    kept: FirstWrites,
    costs: K,
}

impl<K: Keeping> Default for KeptOnce<K> {
    fn default() -> Self {
        Self { kept: FirstWrites::of_units(K::UNIT_BYTES), costs: K::default() }
    }
}

impl<K: Keeping> Policy for KeptOnce<K> {
    fn name(&self) -> &'static str {
        K::NAME
    }

    fn snapshot(&mut self) {
        self.kept.snapshot();
    }

    fn destroy_oldest(&mut self) {
        self.kept.destroy_oldest();
    }

    fn write(&mut self, place: u64, bytes: u64, requests: &mut Requests) {
        let new = self.kept.write(place, bytes);
        self.costs.write(new, bytes, requests);
    }

    fn flush(&mut self, requests: &mut Requests) {
        self.costs.flush(requests);
    }

    fn held_bytes(&self) -> u64 {
        self.kept.bytes()
    }

    fn copy_device(&self) -> Option<Requests> {
        self.costs.copy_device()
    }
}

/// Makes a policy that has seen nothing. It is given the size of a chunk of LVM's classic snapshots.
pub type Make = fn(u64) -> Box<dyn Policy>;

/// Every policy, with the defaults of the systems that have it.
pub const ALL: [Make; 11] = [
    |_| Box::new(InPlace),
    |chunk| Box::new(Classic::persistent(chunk)),
    |chunk| Box::new(Classic::transient(chunk)),
    |_| Box::new(KeptOnce::<SharedStore>::default()),
    |_| Box::new(KeptOnce::<Thin>::default()),
    |_| Box::new(KeptOnce::<Delta>::default()),
    |_| Box::new(KeptOnce::<Reflink>::default()),
    |_| Box::new(KeptOnce::<Btrfs>::default()),
    |_| Box::new(KeptOnce::<Zfs>::default()),
    |_| Box::new(KeptOnce::<Icecore<false>>::default()),
    |_| Box::new(KeptOnce::<Icecore<true>>::default()),
];

/// How often snapshots are taken. The first one comes before the first write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Every {
    /// One after so many writes.
    Writes(NonZeroU64),
    /// One after such a time of the trace, which is not zero.
    Time(Duration),
}

impl Every {
    /// How many were due before a write at this time that so many others precede.
    fn due(self, at: Option<Duration>, written: u64) -> u64 {
        let full = match self {
            Self::Writes(count) => written / count,
            Self::Time(time) => (at.unwrap_or_default().as_nanos() / time.as_nanos()) as u64,
        };
        full.saturating_add(1)
    }

    /// How many are taken in a whole trace. 0 if it writes nothing.
    #[must_use]
    pub fn taken(self, trace: &Trace) -> u64 {
        let writes = trace.events.iter().filter(|(_, event)| matches!(event, Event::Write { .. }));
        let due = writes.zip(0..).map(|((at, _), written)| self.due(*at, written));
        due.max().unwrap_or(0)
    }
}

impl fmt::Display for Every {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writes(count) => write!(formatter, "{count} writes"),
            Self::Time(time) => write!(formatter, "{} s", time.as_secs_f64()),
        }
    }
}

/// Replays the trace with so many snapshots: all taken before it, or one every so often, of which the last
/// ones are kept.
pub fn replay(policy: &mut dyn Policy, trace: &Trace, kept: u64, every: Option<Every>) -> Requests {
    let mut requests = Requests::default();
    let (mut written, mut taken, mut alive) = (0, 0, 0);
    for (at, event) in &trace.events {
        match *event {
            Event::Write { place, bytes } => {
                let due = every.map_or(kept, |every| every.due(*at, written)).max(taken);
                // After a long pause many are due at once, and only the last ones would be kept.
                for _ in 0..(due - taken).min(kept) {
                    if alive == kept {
                        policy.destroy_oldest();
                    } else {
                        alive += 1;
                    }
                    policy.snapshot();
                }
                (taken, written) = (due, written + 1);
                policy.write(place, bytes, &mut requests);
            }
            Event::Flush => policy.flush(&mut requests),
        }
    }
    requests
}

/// Units that were written for the first time since the youngest snapshot: what they held before is kept.
struct FirstWrites {
    unit: u64,
    since: HashSet<u64>,
    /// How many were kept while each snapshot was the youngest, from the oldest on. They go with it: it is
    /// the last that needs them.
    kept: VecDeque<u64>,
}

impl FirstWrites {
    fn of_units(unit: u64) -> Self {
        Self { unit, since: HashSet::new(), kept: VecDeque::new() }
    }

    fn snapshot(&mut self) {
        self.since.clear();
        self.kept.push_back(0);
    }

    fn destroy_oldest(&mut self) {
        self.kept.pop_front();
    }

    /// Answers how many of the units are written for the first time.
    fn write(&mut self, place: u64, bytes: u64) -> u64 {
        let Some(kept) = self.kept.back_mut() else { return 0 };
        let new = chunks(place, bytes, self.unit).filter(|unit| self.since.insert(*unit)).count() as u64;
        *kept += new;
        new
    }

    /// All that is kept.
    fn bytes(&self) -> u64 {
        self.kept.iter().sum::<u64>() * self.unit
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
    fn each(policy: impl Policy, snapshots: u64) -> [f64; 5] {
        each_of(WRITES, policy, snapshots)
    }

    fn each_of(writes: u64, mut policy: impl Policy, snapshots: u64) -> [f64; 5] {
        let trace = Trace::random(writes, 256 << 20, 16 << 10, 7);
        let found = replay(&mut policy, &trace, snapshots, None);
        let writes = writes as f64;
        [
            found.reads as f64 / writes,
            found.read_bytes as f64 / 1024.0 / writes,
            found.writes as f64 / writes,
            found.written_bytes as f64 / 1024.0 / writes,
            found.flushes as f64 / writes,
        ]
    }

    fn classic() -> Classic {
        Classic::persistent(CLASSIC_CHUNK_BYTES)
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
        is_near(each(classic(), 0), [0.0, 0.0, 2.0, 16.0, 1.0]);
        is_near(each(classic(), 1), [1.06, 15.0, 5.0, 35.0, 3.9]);
        is_near(each(classic(), 4), [3.9, 60.0, 13.6, 92.0, 5.5]);
        is_near(each(KeptOnce::<Thin>::default(), 1), [0.8, 51.0, 6.1, 96.0, 2.6]);
        is_near(each(KeptOnce::<Reflink>::default(), 0), [0.0, 0.0, 2.0, 16.0, 1.0]);
        is_near(each(KeptOnce::<Reflink>::default(), 1), [0.0, 0.0, 2.0, 31.0, 2.0]);
        is_near(each(KeptOnce::<Btrfs>::default(), 1), [0.0, 0.0, 11.6, 157.0, 2.0]);
        is_near(each(KeptOnce::<Zfs>::default(), 1), [0.0, 0.0, 3.11, 21.9, 1.0]);
        is_near(each(KeptOnce::<Icecore<true>>::default(), 1), [0.0, 0.0, 2.11, 40.9, 1.05]);
        is_near(each_of(400, KeptOnce::<Icecore<false>>::default(), 1), [0.0, 0.0, 2.56, 26.3, 1.5]);
        is_near(each_of(8000, KeptOnce::<Icecore<false>>::default(), 1), [0.0, 0.0, 2.04, 20.4, 1.0]);
    }

    #[test]
    fn a_log_tree_of_few_writes_is_small() {
        // A quick run of `shock` in the guest has 400 writes, and a full one outside has 8,000.
        is_near(each_of(400, KeptOnce::<Btrfs>::default(), 1), [0.0, 0.0, 10.2, 135.5, 2.0]);
        is_near(each_of(8000, KeptOnce::<Btrfs>::default(), 1), [0.0, 0.0, 12.3, 169.5, 2.0]);
    }

    #[test]
    fn only_copies_for_each_snapshot_grow_with_their_number() {
        for make in ALL {
            let mut policy = make(CLASSIC_CHUNK_BYTES);
            let name = policy.name();
            let trace = Trace::random(500, 256 << 20, 16 << 10, 7);
            let one = replay(&mut *policy, &trace, 1, None);
            let again = Trace::random(500, 256 << 20, 16 << 10, 8);
            let many = replay(&mut *policy, &again, 15, None);
            let grows = many.written_bytes > 2 * one.written_bytes;
            assert_eq!(grows, name.starts_with("lvm") && name != "lvm-thin", "{name}: {one:?} {many:?}");
        }
    }

    #[test]
    fn a_place_is_copied_once_for_a_snapshot() {
        let mut classic = classic();
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

    #[test]
    fn a_chunk_is_copied_whole() {
        let copied = |chunk| {
            let mut classic = Classic::persistent(chunk);
            classic.snapshot();
            let mut requests = Requests::default();
            classic.write(0, 16 << 10, &mut requests);
            (requests.read_bytes, requests.written_bytes, classic.held_bytes())
        };
        // What is written, the copies, and the table of one chunk.
        assert_eq!(copied(4 << 10), (16 << 10, (16 + 16 + 4) << 10, 4 * ((4 << 10) + CLASSIC_ENTRY_BYTES)));
        assert_eq!(copied(64 << 10), (64 << 10, (16 + 64 + 64) << 10, (64 << 10) + CLASSIC_ENTRY_BYTES));
    }

    #[test]
    fn a_copy_device_gets_copies_and_their_table_and_the_origin_the_rest() {
        let mut classic = classic();
        classic.snapshot();
        let mut requests = Requests::default();
        classic.write(0, 16 << 10, &mut requests);
        classic.flush(&mut requests);
        let copies = classic.copy_device().expect("it has an area for copies");
        // The copies, an empty flush before the table, and the table, which is flushed as well.
        let expected = Requests { writes: 3, written_bytes: 20 << 10, flushes: 2, ..Requests::default() };
        assert_eq!(copies, expected);
        let origin =
            Requests { reads: 1, read_bytes: 16 << 10, writes: 2, written_bytes: 16 << 10, flushes: 1 };
        assert_eq!(requests.without(copies), origin);
        assert_eq!(InPlace.copy_device(), None);
    }

    /// A write each second, all to one block.
    fn seconds(times: &[u64]) -> Trace {
        let write = |second: &u64| {
            (Some(Duration::from_secs(*second)), Event::Write { place: 0, bytes: CLASSIC_CHUNK_BYTES })
        };
        let lasts = times.last().copied().map(Duration::from_secs);
        Trace { events: times.iter().map(write).collect(), lasts }
    }

    #[test]
    fn each_snapshot_of_a_schedule_is_copied_for_and_the_last_ones_are_held() {
        let by_writes = |count| Every::Writes(NonZeroU64::new(count).expect("not zero"));
        let by_time = Some(Every::Time(Duration::from_secs(2)));
        // Three snapshots, before the writes 0, 2 and 4: a copy for each, of which the last ones are held.
        let cases = [
            (2, Some(by_writes(2)), 3, 2),
            (1, Some(by_writes(2)), 3, 1),
            (9, Some(by_writes(2)), 3, 3),
            (0, Some(by_writes(2)), 0, 0),
            (2, by_time, 3, 2),
            (2, Some(by_writes(100)), 1, 1),
            (2, None, 2, 2),
        ];
        for (kept, every, copies, held) in cases {
            let mut policy = classic();
            let requests = replay(&mut policy, &seconds(&[0, 1, 2, 3, 4, 5]), kept, every);
            let held_bytes = held * (CLASSIC_CHUNK_BYTES + CLASSIC_ENTRY_BYTES);
            assert_eq!((requests.reads, policy.held_bytes()), (copies, held_bytes), "{kept} {every:?}");
        }
        // What Icecore holds for several snapshots it holds once.
        let mut icecore = KeptOnce::<Icecore<false>>::default();
        replay(&mut icecore, &seconds(&[0, 1, 2, 3, 4, 5]), 2, by_time);
        assert_eq!(icecore.held_bytes(), 2 * 4096);
    }

    #[test]
    fn a_long_pause_takes_no_more_snapshots_than_are_kept() {
        let mut policy = classic();
        let every = Some(Every::Time(Duration::from_secs(1)));
        // One copy for the first snapshot, and one for each of the four after the pause.
        let requests = replay(&mut policy, &seconds(&[0, 1 << 40]), 4, every);
        assert_eq!(requests.reads, 5);
    }
}
