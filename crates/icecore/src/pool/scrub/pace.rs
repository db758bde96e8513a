//! How fast a scrub may read: within a rate, and out of the way of other users of the disk.

use crate::statistics::Counters;
use std::time::Duration;

/// Longest pause for others after a piece.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What callers did up to a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Load {
    pub commits: u64,
    /// Nanoseconds of all flushes together.
    pub commit_time: u64,
    pub reads: u64,
}

impl Load {
    pub(super) fn of(counters: &Counters) -> Self {
        Self {
            commits: counters.commits.get(),
            commit_time: counters.commit_time.get(),
            reads: counters.read_calls.get(),
        }
    }

    fn since(self, before: Self) -> Self {
        Self {
            commits: self.commits.saturating_sub(before.commits),
            commit_time: self.commit_time.saturating_sub(before.commit_time),
            reads: self.reads.saturating_sub(before.reads),
        }
    }

    /// Nanoseconds of a flush, on average.
    fn latency(self) -> Option<u64> {
        self.commit_time.checked_div(self.commits)
    }
}

/// Decides how long to pause after each piece.
#[derive(Debug)]
pub(super) struct Pace {
    bytes_per_second: Option<u64>,
    yields: bool,
    /// What callers had done when the last piece began.
    before: Load,
    /// How long a flush takes while the scrub pauses.
    calm: Option<u64>,
    pause: Duration,
}

impl Pace {
    pub(super) fn new(bytes_per_second: Option<u64>, yields: bool, now: Load) -> Self {
        Self { bytes_per_second, yields, before: now, calm: None, pause: Duration::ZERO }
    }

    /// A piece was read: how long to pause.
    ///
    /// Where no caller is at work there is no pause but for the rate. Otherwise it begins with as long as the
    /// piece took. It is doubled while flushes take more than a quarter longer than in the pauses, and
    /// shrinks while they do not.
    pub(super) fn after(&mut self, bytes: u64, took: Duration, now: Load) -> Duration {
        let during = now.since(self.before);
        self.before = now;
        if !self.yields || (during.commits == 0 && during.reads == 0) {
            self.pause = Duration::ZERO;
        } else {
            let slowed =
                matches!((during.latency(), self.calm), (Some(now), Some(calm)) if now > calm / 4 * 5);
            self.pause = if slowed { self.pause * 2 } else { self.pause * 3 / 4 };
            self.pause = self.pause.clamp(took.min(PAUSE_MAX), PAUSE_MAX);
        }
        let due = self.bytes_per_second.map_or(Duration::ZERO, |rate| {
            Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64).saturating_sub(took)
        });
        self.pause.max(due)
    }

    /// The pause is over.
    pub(super) fn paused(&mut self, now: Load) {
        if let Some(latency) = now.since(self.before).latency() {
            self.calm = Some(self.calm.map_or(latency, |calm| (calm * 3 + latency) / 4));
        }
        self.before = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const TOOK: Duration = Duration::from_millis(4);

    fn load(commits: u64, each: u64) -> Load {
        Load { commits, commit_time: commits * each, reads: 0 }
    }

    #[test]
    fn a_rate_is_kept() {
        let mut pace = Pace::new(Some(10 * MIB), false, Load::default());
        assert_eq!(pace.after(MIB, TOOK, load(7, 1)), Duration::from_millis(96));
        assert_eq!(pace.after(MIB, Duration::from_secs(1), load(9, 1)), Duration::ZERO);
    }

    #[test]
    fn a_scrub_waits_for_no_writer_that_is_not_there() {
        let mut pace = Pace::new(None, true, load(100, 1000));
        assert_eq!(pace.after(MIB, TOOK, load(100, 1000)), Duration::ZERO);
    }

    #[test]
    fn who_is_slowed_down_gets_more_room_and_less_when_it_is_over() {
        let mut pace = Pace::new(None, true, Load::default());
        let mut now = Load::default();
        let mut flush = |nanoseconds: u64| {
            now = Load { commits: now.commits + 1, commit_time: now.commit_time + nanoseconds, reads: 0 };
            now
        };
        let first = pace.after(MIB, TOOK, flush(9000));
        assert_eq!(first, TOOK);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            pace.paused(flush(1000));
            pauses.push(pace.after(MIB, TOOK, flush(9000)));
        }
        assert!(pauses.is_sorted() && pauses[0] == 2 * TOOK, "{pauses:?}");
        assert_eq!(pauses[11], PAUSE_MAX);
        for _ in 0..40 {
            pace.paused(flush(1000));
            pauses.push(pace.after(MIB, TOOK, flush(1100)));
        }
        assert_eq!(pauses[51], TOOK);
    }
}
