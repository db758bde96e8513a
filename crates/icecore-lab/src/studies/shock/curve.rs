//! What a stream of completed writes says about a snapshot in the middle of it.

use crate::statistics::{mean, median};

/// One completed write.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Completion {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// How long it took, in microseconds.
    pub latency_us: f64,
}

/// A snapshot, in milliseconds since 1970.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Moment {
    pub begin_ms: u64,
    pub end_ms: u64,
}

/// The finest step of [`Shape::recovery_s`].
const STEP_MS: u64 = 200;
/// A gap counts as one around the snapshot if it touches the time from so long before until so long after.
const AROUND_MS: (u64, u64) = (200, 2000);
/// Most latencies that a result keeps of one curve.
const LATENCIES_MAX: usize = 10_000;

/// The figures of a curve.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Shape {
    /// Writes in each second.
    pub rate_per_s: Vec<f64>,
    /// When the snapshot was taken, in seconds from the beginning.
    pub snapshot_at_s: f64,
    /// The longest time without a completed write around the snapshot.
    pub longest_gap_ms: f64,
    /// The same before the snapshot, which is what the machine does by itself.
    pub gap_before_ms: f64,
    /// The part of the rate that is missing in the worst second from the snapshot on.
    pub dip: f64,
    /// From the beginning of the snapshot until a second with 95 % of the rate before it, and behind those
    /// that were worse while it was taken; `None` if no such second came.
    pub recovery_s: Option<f64>,
    /// The longest latency of a write that was on its way around the snapshot, and of those that ended
    /// before.
    pub longest_wait_ms: f64,
    pub wait_before_ms: f64,
    /// Latencies in order, thinned out evenly; the longest is among them.
    pub latency_us: Vec<f64>,
    /// When each of these ended, in seconds from the beginning.
    pub latency_at_s: Vec<f64>,
}

impl Shape {
    /// The shape of a curve; `None` if too little happened on either side of the snapshot.
    pub(super) fn of(completions: &[Completion], moment: Moment) -> Option<Self> {
        let (first, last) = (completions.first()?.at_ms, completions.last()?.at_ms);
        if moment.begin_ms <= first + STEP_MS || moment.begin_ms + STEP_MS >= last {
            return None;
        }
        let rate_per_s = rates(completions, first, last, 1000);
        let fine = rates(completions, first, last, STEP_MS);
        let at = ((moment.begin_ms - first) / STEP_MS) as usize;
        let before = usual(&seconds(&fine[..at]))?;
        let after = seconds(&fine[at..]);
        let worst = after.iter().copied().fold(f64::INFINITY, f64::min);
        let during = ((moment.end_ms - moment.begin_ms) / STEP_MS) as usize + 1;
        let recovered = recovered(&after, before, during);
        let gaps = || completions.windows(2).map(|pair| (pair[0].at_ms, pair[1].at_ms));
        let longest = |keep: &dyn Fn(u64, u64) -> bool| {
            gaps().filter(|(from, to)| keep(*from, *to)).map(|(from, to)| to - from).max().unwrap_or(0) as f64
        };
        let (from_ms, to_ms) = (moment.begin_ms - AROUND_MS.0, moment.end_ms + AROUND_MS.1);
        let longest_wait = |keep: &dyn Fn(u64, u64) -> bool| {
            let begin = |write: &Completion| write.at_ms.saturating_sub((write.latency_us / 1e3) as u64);
            let kept = completions.iter().filter(|write| keep(begin(write), write.at_ms));
            kept.map(|write| write.latency_us / 1e3).fold(0.0, f64::max)
        };
        let kept = thinned(completions);
        Some(Self {
            snapshot_at_s: (moment.begin_ms - first) as f64 / 1e3,
            longest_gap_ms: longest(&|from, to| to >= from_ms && from <= to_ms),
            gap_before_ms: longest(&|_, to| to < from_ms),
            dip: (1.0 - worst / before).max(0.0),
            recovery_s: recovered.map(|steps| steps as f64 * STEP_MS as f64 / 1e3),
            longest_wait_ms: longest_wait(&|begin, end| end >= from_ms && begin <= to_ms),
            wait_before_ms: longest_wait(&|_, end| end < from_ms),
            latency_us: kept.iter().map(|write| write.latency_us).collect(),
            latency_at_s: kept.iter().map(|write| (write.at_ms - first) as f64 / 1e3).collect(),
            rate_per_s,
        })
    }
}

impl Shape {
    /// The same of the writes in each second alone, which say nothing of gaps and latencies; `None` if too
    /// little happened on either side.
    pub(super) fn of_rates(rate_per_s: Vec<f64>, snapshot_at_s: f64) -> Option<Self> {
        let at = snapshot_at_s as usize;
        if at == 0 || at >= rate_per_s.len() {
            return None;
        }
        let (before, after) = (usual(&rate_per_s[..at])?, &rate_per_s[at..]);
        let worst = after.iter().copied().fold(f64::INFINITY, f64::min);
        let recovery_s = recovered(after, before, 2).map(|seconds| seconds as f64);
        let dip = (1.0 - worst / before).max(0.0);
        Some(Self { snapshot_at_s, dip, recovery_s, rate_per_s, ..Self::default() })
    }
}

/// The rate of a second from each step on, or of all steps if they are less. A writer that flushes now and then
/// writes in bursts: many a step has no write in it.
fn seconds(steps: &[f64]) -> Vec<f64> {
    let second = (1000 / STEP_MS) as usize;
    steps.windows(second.min(steps.len())).map(mean).collect()
}

/// The rate that a snapshot is compared with; `None` if too little was written to have one.
fn usual(before: &[f64]) -> Option<f64> {
    Some(median(before)).filter(|rate| *rate > 0.0)
}

/// Where a rate is back at 95 % of what it was. A command that takes long before it stops the writers begins
/// with seconds as good as before: those before the last bad one of the first `during` are no recovery.
fn recovered(after: &[f64], before: f64, during: usize) -> Option<usize> {
    let enough = 0.95 * before;
    let last_bad = after.iter().take(during).rposition(|rate| *rate < enough);
    let from = last_bad.unwrap_or(0);
    after[from..].iter().position(|rate| *rate >= enough).map(|steps| from + steps)
}

/// So many writes as a result has latencies of: the first of each stretch, and the longest of all for its
/// stretch.
fn thinned(completions: &[Completion]) -> Vec<Completion> {
    let longest = completions.iter().map(|write| write.latency_us).fold(0.0, f64::max);
    let stretches = completions.chunks(completions.len().div_ceil(LATENCIES_MAX).max(1));
    let kept = |stretch: &[Completion]| {
        *stretch.iter().find(|write| write.latency_us >= longest).unwrap_or(&stretch[0])
    };
    stretches.map(kept).collect()
}

/// Writes a second in each step from the first to the last; a step at the end that is not whole is left out,
/// unless it is the only one.
fn rates(completions: &[Completion], first: u64, last: u64, step_ms: u64) -> Vec<f64> {
    let steps = ((last - first) / step_ms).max(1) as usize;
    let mut counts = vec![0.0; steps];
    for completion in completions {
        if let Some(count) = counts.get_mut(((completion.at_ms - first) / step_ms) as usize) {
            *count += 1e3 / step_ms as f64;
        }
    }
    counts
}

/// Completions from a latency log of fio: `time in ms, latency in ns, ...`.
pub(super) fn parse(log: &str) -> Vec<Completion> {
    let line = |line: &str| -> Option<Completion> {
        let mut fields = line.split(',').map(str::trim);
        let at_ms = fields.next()?.parse().ok()?;
        let nanoseconds: f64 = fields.next()?.parse().ok()?;
        Some(Completion { at_ms, latency_us: nanoseconds / 1e3 })
    };
    let mut completions: Vec<Completion> = log.lines().filter_map(line).collect();
    // Requests that overlap may be logged in another order.
    completions.sort_by_key(|completion| completion.at_ms);
    completions
}

/// Latencies of a driver that makes so many requests a second, whatever the answers do: each counts from when
/// its write was due, and not from when it was made. After Tene, "How NOT to Measure Latency" (2013): a
/// driver that waits while the system stalls leaves out just the requests that would have met the stall.
pub(super) fn from_due(mut completions: Vec<Completion>, rate_per_s: u32) -> Vec<Completion> {
    let begin_ms = |write: &Completion| write.at_ms as f64 - write.latency_us / 1e3;
    completions.sort_by(|one, other| begin_ms(one).total_cmp(&begin_ms(other)));
    let first = completions.first().map_or(0.0, begin_ms);
    for (place, write) in completions.iter_mut().enumerate() {
        let due_ms = first + place as f64 * 1e3 / f64::from(rate_per_s);
        // The log has whole milliseconds: what is less late than that is not late.
        write.latency_us = write.latency_us.max((write.at_ms as f64 - due_ms - 1.0) * 1e3);
    }
    completions.sort_by_key(|completion| completion.at_ms);
    completions
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write each millisecond for ten seconds, but for what `keep` leaves out.
    fn stream(keep: impl Fn(u64) -> bool) -> Vec<Completion> {
        let at = (0..10_000).filter(|at| keep(*at));
        at.map(|at| Completion { at_ms: 1_000_000 + at, latency_us: 900.0 }).collect()
    }

    const MOMENT: Moment = Moment { begin_ms: 1_005_000, end_ms: 1_005_003 };

    #[test]
    fn a_stream_that_takes_no_notice_of_the_snapshot_has_no_dip() {
        let shape = Shape::of(&stream(|_| true), MOMENT).expect("a shape");
        assert_eq!(shape.rate_per_s, vec![1000.0; 9]);
        assert_eq!((shape.snapshot_at_s, shape.longest_gap_ms, shape.recovery_s), (5.0, 1.0, Some(0.0)));
        assert!(shape.dip < 0.01);
    }

    #[test]
    fn a_stall_and_a_slow_second_after_the_snapshot_are_seen() {
        // Nothing for 300 ms, and half the rate until second 7.
        let slow = |at: u64| !(5_000..7_000).contains(&at) || (at >= 5_300 && at.is_multiple_of(2));
        let shape = Shape::of(&stream(slow), MOMENT).expect("a shape");
        assert!((300.0..303.0).contains(&shape.longest_gap_ms), "{shape:?}");
        assert_eq!(shape.gap_before_ms, 1.0);
        assert!((0.6..0.7).contains(&shape.dip), "{shape:?}");
        assert!(shape.recovery_s.is_some_and(|seconds| (1.8..=2.0).contains(&seconds)), "{shape:?}");
        assert_eq!((shape.longest_wait_ms, shape.wait_before_ms), (0.9, 0.9));
    }

    #[test]
    fn bursts_with_steps_between_them_have_a_rate() {
        // A hundred writes at once, and half a second of flushing them. The snapshot makes that a whole second.
        let bursts = |at: u64| at % if at < 5_000 { 500 } else { 1_000 } < 100;
        let shape = Shape::of(&stream(bursts), MOMENT).expect("a shape");
        assert!((0.45..0.55).contains(&shape.dip) && shape.recovery_s.is_none(), "{shape:?}");
        let shape = Shape::of(&stream(|at| at % 500 < 100), MOMENT).expect("a shape");
        assert!(shape.dip < 0.01 && shape.recovery_s == Some(0.0), "{shape:?}");
        assert!((400.0..=401.0).contains(&shape.longest_gap_ms), "{shape:?}");
        // Seconds without a write have no rate that could come back.
        assert_eq!(Shape::of_rates(vec![0.0, 0.0, 50.0, 50.0], 2.3), None);
    }

    /// Writes that a stall of 300 ms has caught on their way.
    #[test]
    fn writes_that_a_stall_has_caught_are_seen() {
        let mut writes = stream(|_| true);
        for (place, write) in writes[5_000..5_300].iter_mut().enumerate() {
            *write = Completion { at_ms: 1_005_300, latency_us: 1e3 * (300 - place) as f64 };
        }
        let shape = Shape::of(&writes, MOMENT).expect("a shape");
        assert_eq!((shape.longest_wait_ms, shape.wait_before_ms), (300.0, 0.9));
    }

    #[test]
    fn a_rate_that_never_comes_back_has_no_recovery() {
        let shape = Shape::of(&stream(|at| at < 5_000 || at % 5 == 0), MOMENT).expect("a shape");
        assert_eq!(shape.recovery_s, None);
        assert!((0.7..0.9).contains(&shape.dip), "{shape:?}");
        let shape = Shape::of_rates(vec![100.0, 100.0, 25.0, 50.0, 94.0], 2.3).expect("a shape");
        assert_eq!(shape.recovery_s, None);
    }

    #[test]
    fn a_rate_that_falls_late_has_not_recovered_before() {
        // The command runs for 1.5 s before it stops the writers for 0.5 s.
        let late = |at: u64| !(6_500..7_000).contains(&at);
        let moment = Moment { end_ms: 1_007_000, ..MOMENT };
        let shape = Shape::of(&stream(late), moment).expect("a shape");
        assert!(shape.recovery_s.is_some_and(|seconds| (1.8..=2.2).contains(&seconds)), "{shape:?}");
        let shape = Shape::of_rates(vec![100.0, 100.0, 100.0, 25.0, 50.0], 2.3).expect("a shape");
        assert_eq!(shape.recovery_s, None);
        // What comes long after the command is no part of it.
        let shape = Shape::of(&stream(|at| !(8_500..8_900).contains(&at)), MOMENT).expect("a shape");
        assert_eq!(shape.recovery_s, Some(0.0));
    }

    #[test]
    fn rates_alone_have_a_dip_and_a_recovery() {
        let shape = Shape::of_rates(vec![100.0, 100.0, 25.0, 50.0, 99.0], 2.3).expect("a shape");
        assert_eq!((shape.dip, shape.recovery_s, shape.snapshot_at_s), (0.75, Some(2.0), 2.3));
        assert_eq!(Shape::of_rates(vec![100.0], 0.5), None);
        assert_eq!(Shape::of_rates(vec![100.0; 3], 3.1), None);
    }

    #[test]
    fn a_snapshot_outside_of_the_run_has_no_shape() {
        let early = Moment { begin_ms: 1_000_000, end_ms: 1_000_001 };
        assert_eq!(Shape::of(&stream(|_| true), early), None);
        assert_eq!(Shape::of(&[], MOMENT), None);
    }

    /// A driver that makes one write after the other has one that waits in a stall of 300 ms. A driver that
    /// needs a thousand a second has three hundred.
    #[test]
    fn writes_that_were_due_in_a_stall_have_waited() {
        let at = |place: u64| match place {
            ..5_000 => place,
            // They are made at once, ten in a millisecond.
            5_000..5_334 => 5_300 + (place - 5_000) / 10,
            _ => place,
        };
        let latency_us = |place: u64| if place == 5_000 { 300_000.0 } else { 100.0 };
        let writes: Vec<Completion> = (0..10_000)
            .map(|place| Completion { at_ms: 1_000_000 + at(place), latency_us: latency_us(place) })
            .collect();
        let waited =
            |writes: &[Completion]| writes.iter().filter(|write| write.latency_us > 10_000.0).count();
        assert_eq!(waited(&writes), 1);
        let corrected = from_due(writes, 1000);
        assert!((300..330).contains(&waited(&corrected)), "{}", waited(&corrected));
        let shape = Shape::of(&corrected, MOMENT).expect("a shape");
        assert!((298.0..=301.0).contains(&shape.longest_wait_ms) && shape.wait_before_ms <= 1.0, "{shape:?}");
    }

    #[test]
    fn of_many_latencies_some_are_kept_and_the_longest_is_among_them() {
        let mut writes = stream(|_| true);
        writes.extend(stream(|_| true));
        writes.extend(stream(|_| true));
        writes[12_346].latency_us = 7e6;
        writes.sort_by_key(|write| write.at_ms);
        let kept = thinned(&writes);
        assert_eq!(kept.len(), LATENCIES_MAX);
        let long: Vec<f64> =
            kept.iter().map(|write| write.latency_us).filter(|latency| *latency > 900.0).collect();
        assert_eq!(long, [7e6]);
        assert!(kept.is_sorted_by_key(|write| write.at_ms));
        assert!(thinned(&[]).is_empty());
    }

    #[test]
    fn a_log_of_fio_is_read() {
        let log = "1790000000123, 151000, 1, 16384, 0\nnot a line\n1790000000124, 2000, 1, 16384, 0\n";
        let read = parse(log);
        assert_eq!(read[0], Completion { at_ms: 1_790_000_000_123, latency_us: 151.0 });
        assert_eq!(read.len(), 2);
    }
}
