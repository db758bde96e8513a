//! When a hard disk has done what it is asked for: the time of seeking, of rotation and of transfer.
//!
//! One arm serves one request after another. After Ruemmler and Wilkes, "An introduction to disk drive
//! modeling" (1994), without zones, skew and head switches: every track holds as many bytes, and the seek
//! time grows with the root of the distance.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

/// Bytes that the cache of the disk keeps track of at a time.
const BLOCK_BYTES: u64 = 4096;
/// Blocks that are written without a look at what else there is to do.
const RUN_BLOCKS: u64 = 256;

/// Disks by name: the write cache off, on, and on in a controller with a battery.
pub const NAMES: [&str; 3] = ["hdd", "hdd-cache", "hdd-battery"];
const CACHE_BYTES: u64 = 64 << 20;

/// Part of a turn by which a request may come too late for its place: less than a microsecond.
const LATE: f64 = 1e-4;

/// What a disk is like.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct HardDisk {
    /// Turns a minute.
    pub turns_per_minute: f64,
    /// Time of the shortest seek.
    pub seek_min: Duration,
    /// Time of a seek from one end to the other.
    pub seek_max: Duration,
    /// Bytes of the whole disk: what is used of it lies at its beginning.
    pub bytes: u64,
    /// Bytes a second under the head.
    pub bytes_per_second: f64,
    /// Bytes of the write cache; 0: it is off, and a write is done when it is on the platter.
    pub cache_bytes: u64,
    /// The cache has a battery, so a flush has nothing to wait for.
    pub has_battery: bool,
    /// All times are multiplied by this.
    pub time_scale: f64,
}

impl HardDisk {
    /// A disk of 7,200 turns a minute with its write cache off.
    #[must_use]
    pub const fn of_7200() -> Self {
        Self {
            turns_per_minute: 7200.0,
            seek_min: Duration::from_micros(800),
            seek_max: Duration::from_micros(14_100),
            bytes: 500_000_000_000,
            bytes_per_second: 150e6,
            cache_bytes: 0,
            has_battery: false,
            time_scale: 1.0,
        }
    }

    /// The disk of a name, one of [`NAMES`].
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let cached = Self { cache_bytes: CACHE_BYTES, ..Self::of_7200() };
        match name {
            "hdd" => Some(Self::of_7200()),
            "hdd-cache" => Some(cached),
            "hdd-battery" => Some(Self { has_battery: true, ..cached }),
            _ => None,
        }
    }

    /// The disk in words, as results name it.
    #[must_use]
    pub fn words(&self) -> String {
        let cache = match (self.cache_bytes, self.has_battery) {
            (0, _) => "off",
            (_, false) => "on",
            (_, true) => "on, with a battery",
        };
        let scale =
            if self.time_scale == 1.0 { String::new() } else { format!(", times x {}", self.time_scale) };
        let seek = |time: Duration| time.as_secs_f64() * 1e3;
        format!(
            "{:.0} rpm, seeks of {} to {} ms, {:.0} MB/s, write cache {cache}{scale}",
            self.turns_per_minute,
            seek(self.seek_min),
            seek(self.seek_max),
            self.bytes_per_second / 1e6,
        )
    }

    /// Seconds of one turn.
    fn turn(&self) -> f64 {
        60.0 / self.turns_per_minute
    }

    /// Bytes of a track.
    fn track_bytes(&self) -> f64 {
        self.bytes_per_second * self.turn()
    }

    /// Seconds from one place to another.
    fn seek(&self, from: u64, to: u64) -> f64 {
        let track = |place: u64| (place as f64 / self.track_bytes()).floor();
        let tracks = (track(from) - track(to)).abs();
        // The next track is under the head at once: tracks are skewed for that.
        if tracks <= 1.0 {
            return 0.0;
        }
        let (min, max) = (self.seek_min.as_secs_f64(), self.seek_max.as_secs_f64());
        min + (max - min) * (tracks * self.track_bytes() / self.bytes as f64).min(1.0).sqrt()
    }
}

/// What a disk is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// Bytes from a place on.
    Read(u64, u64),
    /// The same.
    Write(u64, u64),
    /// All that was written is on the platter.
    Flush,
}

/// The disk at work. Times are seconds since it began, before they are scaled.
pub struct Arm {
    disk: HardDisk,
    /// Behind the last byte that passed under the head.
    place: u64,
    /// When the head was there, or will be.
    free_at: f64,
    /// The arm was last used for reading: the disk reads on, and keeps that.
    reads_on: bool,
    /// Blocks in the write cache.
    dirty: BTreeSet<u64>,
}

impl Arm {
    /// An arm at the beginning of the disk.
    #[must_use]
    pub fn new(disk: HardDisk) -> Self {
        Self { disk, place: 0, free_at: 0.0, reads_on: false, dirty: BTreeSet::new() }
    }

    /// When the request is done that arrives at `now`, both since the disk began, scaled. Requests arrive in
    /// order.
    pub fn serve(&mut self, now: Duration, request: Request) -> Duration {
        let now = now.as_secs_f64() / self.disk.time_scale;
        self.write_back_until(now);
        let done = match request {
            Request::Read(place, bytes) if self.is_cached(place, bytes) => now,
            Request::Read(place, bytes) => self.read(now, place, bytes),
            Request::Write(place, bytes) if self.disk.cache_bytes > 0 => self.write_cached(now, place, bytes),
            Request::Write(place, bytes) => self.pass(now, place, bytes),
            Request::Flush if self.disk.has_battery => now,
            Request::Flush => self.write_back_to(now, 0),
        };
        Duration::from_secs_f64(done.max(now) * self.disk.time_scale)
    }

    fn read(&mut self, now: f64, place: u64, bytes: u64) -> f64 {
        if self.reads_on && place == self.place {
            // It has read on since.
            self.place += bytes;
            self.free_at += bytes as f64 / self.disk.bytes_per_second;
            return self.free_at.max(now);
        }
        let done = self.pass(now, place, bytes);
        self.reads_on = true;
        done
    }

    /// Moves the arm, waits for the place to come by, and lets the bytes pass.
    fn pass(&mut self, now: f64, place: u64, bytes: u64) -> f64 {
        let there = now.max(self.free_at) + self.disk.seek(self.place, place);
        let angle = |turns: f64| turns - turns.floor();
        let wanted = angle(place as f64 / self.disk.track_bytes());
        let mut turns = angle(wanted - angle(there / self.disk.turn()));
        if turns > 1.0 - LATE {
            // It is there just now: times are rounded to nanoseconds. Going back keeps such errors from
            // adding up.
            turns -= 1.0;
        }
        self.free_at = there + turns * self.disk.turn() + bytes as f64 / self.disk.bytes_per_second;
        self.place = place + bytes;
        self.reads_on = false;
        self.free_at
    }

    fn write_cached(&mut self, now: f64, place: u64, bytes: u64) -> f64 {
        let blocks = self.disk.cache_bytes / BLOCK_BYTES;
        let new = bytes.div_ceil(BLOCK_BYTES);
        let done = if self.dirty.len() as u64 + new > blocks {
            self.write_back_to(now, blocks.saturating_sub(new))
        } else {
            now
        };
        self.dirty.extend(place / BLOCK_BYTES..(place + bytes).div_ceil(BLOCK_BYTES));
        done
    }

    fn is_cached(&self, place: u64, bytes: u64) -> bool {
        let mut blocks = place / BLOCK_BYTES..(place + bytes).div_ceil(BLOCK_BYTES);
        !self.dirty.is_empty() && blocks.all(|block| self.dirty.contains(&block))
    }

    /// Uses the time in which nothing was asked for.
    fn write_back_until(&mut self, now: f64) {
        while self.free_at < now && !self.dirty.is_empty() {
            self.write_run(self.free_at);
        }
    }

    /// Writes until so many blocks are left; answers when.
    fn write_back_to(&mut self, now: f64, blocks: u64) -> f64 {
        let mut done = now;
        while self.dirty.len() as u64 > blocks {
            done = self.write_run(now);
        }
        done
    }

    /// Writes the next blocks in the direction in which the arm moves; at the end it goes back to the first.
    fn write_run(&mut self, now: f64) -> f64 {
        let from = self.place.div_ceil(BLOCK_BYTES);
        let next = self.dirty.range(from..).next().or_else(|| self.dirty.first());
        let Some(&first) = next else { return now };
        let mut end = first;
        while end - first < RUN_BLOCKS && self.dirty.remove(&end) {
            end += 1;
        }
        self.pass(now, first * BLOCK_BYTES, (end - first) * BLOCK_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    const TURN: f64 = 60.0 / 7200.0;

    /// Seconds of requests, each of which arrives `pause` after the last one was done.
    fn seconds(disk: HardDisk, pause: f64, requests: impl IntoIterator<Item = Request>) -> f64 {
        let mut arm = Arm::new(disk);
        let mut now = Duration::ZERO;
        for request in requests {
            now = arm.serve(now, request) + Duration::from_secs_f64(pause);
        }
        now.as_secs_f64()
    }

    fn at_random(make: fn(u64, u64) -> Request) -> Vec<Request> {
        let mut random = Random::new(7);
        (0..1000).map(|_| make(random.below(100_000_000) * 4096, 16384)).collect()
    }

    #[test]
    fn a_random_request_takes_a_seek_and_half_a_turn() {
        for make in [Request::Read, Request::Write] {
            let each = seconds(HardDisk::of_7200(), 0.0, at_random(make)) / 1000.0;
            // A third of the way on average: 8.5 ms less a little for the root, and 4.2 ms.
            assert!((0.0110..0.0135).contains(&each), "{each}");
        }
    }

    #[test]
    fn what_follows_without_a_pause_passes_at_full_speed() {
        let linear = (0..1000).map(|number| Request::Write(number * 65536, 65536));
        let took = seconds(HardDisk::of_7200(), 0.0, linear);
        assert!((took / (1000.0 * 65536.0 / 150e6) - 1.0).abs() < 0.02, "{took}");
    }

    #[test]
    fn after_a_pause_a_write_waits_for_a_turn_and_a_read_does_not() {
        let linear = |make: fn(u64, u64) -> Request| (0..100).map(move |number| make(number * 4096, 4096));
        let writes = seconds(HardDisk::of_7200(), 0.0001, linear(Request::Write)) / 100.0;
        assert!((0.9 * TURN..1.1 * TURN).contains(&writes), "{writes}");
        let reads = seconds(HardDisk::of_7200(), 0.0001, linear(Request::Read)) / 100.0;
        assert!(reads < 0.0003, "{reads}");
    }

    #[test]
    fn a_cache_takes_writes_at_once_and_a_flush_pays_in_order() {
        let cached = HardDisk { cache_bytes: 16 << 20, ..HardDisk::of_7200() };
        let mut arm = Arm::new(cached);
        let writes = at_random(Request::Write);
        for write in &writes[..500] {
            assert_eq!(arm.serve(Duration::ZERO, *write), Duration::ZERO);
        }
        let Request::Write(place, bytes) = writes[499] else { unreachable!() };
        assert_eq!(arm.serve(Duration::ZERO, Request::Read(place, bytes)), Duration::ZERO);
        let flushed = arm.serve(Duration::ZERO, Request::Flush).as_secs_f64();
        let one_by_one = seconds(HardDisk::of_7200(), 0.0, writes[..500].to_vec());
        assert!(flushed < 0.6 * one_by_one && flushed > 0.2 * one_by_one, "{flushed} {one_by_one}");
        let later = Duration::from_secs(60);
        assert_eq!(arm.serve(later, Request::Flush), later);
    }

    #[test]
    fn a_battery_makes_flushes_free_and_the_cache_no_larger() {
        let disk = HardDisk::named("hdd-battery").expect("known");
        let durable = |requests: Vec<Request>| {
            let mut arm = Arm::new(disk);
            let both = requests.into_iter().flat_map(|write| [write, Request::Flush]);
            both.fold(Duration::ZERO, |now, request| arm.serve(now, request)).as_secs_f64()
        };
        assert_eq!(durable(at_random(Request::Write)), 0.0);
        let small = HardDisk { cache_bytes: 64 << 10, ..disk };
        assert!(seconds(small, 0.0, at_random(Request::Write)) > 3.0);
        assert!(NAMES.iter().all(|name| HardDisk::named(name).is_some()));
        assert!(HardDisk::named("ssd").is_none());
    }

    #[test]
    fn idle_time_empties_the_cache() {
        let cached = HardDisk { cache_bytes: 16 << 20, ..HardDisk::of_7200() };
        let mut arm = Arm::new(cached);
        for write in at_random(Request::Write).into_iter().take(100) {
            arm.serve(Duration::ZERO, write);
        }
        let later = Duration::from_secs(10);
        let flushed = arm.serve(later, Request::Flush);
        assert!(flushed < later + Duration::from_millis(40), "{flushed:?}");
    }

    #[test]
    fn a_full_cache_makes_a_write_wait() {
        let cached = HardDisk { cache_bytes: 64 << 10, ..HardDisk::of_7200() };
        let each = seconds(cached, 0.0, at_random(Request::Write)) / 1000.0;
        assert!(each > 0.003, "{each}");
    }

    #[test]
    fn a_scale_changes_all_times() {
        let fast = HardDisk { time_scale: 0.1, ..HardDisk::of_7200() };
        let (whole, tenth) = (
            seconds(HardDisk::of_7200(), 0.0, at_random(Request::Read)),
            seconds(fast, 0.0, at_random(Request::Read)),
        );
        assert!((whole / tenth - 10.0).abs() < 0.1, "{whole} {tenth}");
        assert!(fast.words().ends_with("write cache off, times x 0.1"), "{}", fast.words());
    }
}
