//! `blog`: a busy tree of small files before and after a snapshot, after "Btrfs against LVM + ext4" (2015),
//! experiment 2. The load is the lab's own mix, or the program that it imitates.

mod blogbench;
mod mix;

use super::{Bench, Lineup, Needs, RIVAL, Runs, SUBJECT, rounds_of};
use crate::driving;
use crate::error::Result;
use crate::experiments::Findings;
use crate::options::{LoadTool, Options};
use crate::programs;
use crate::report::{Check, System as Measured};
use crate::statistics::{bootstrap, mean, median, paired_ratio};
use crate::systems::{Areas, Kind};
use blogbench::Counted;
use mix::{BLOG_BYTES, Crew, Mix, TICK, longest_gap};
use std::collections::BTreeMap;
use std::time::Duration;

/// How much is done.
struct Scope {
    /// Whether blogbench does it, and not the mix.
    by_blogbench: bool,
    crew: Crew,
    period: Duration,
    /// Before the snapshot, and again after it.
    periods: u32,
    device_bytes: u64,
    blogs_max: u64,
}

impl Scope {
    fn of(options: &Options) -> Self {
        let toy = cfg!(debug_assertions);
        let published = Crew { writers: 3, rewriters: 1, commenters: 5, readers: 100 };
        let by_blogbench = options.tool == LoadTool::Blogbench;
        let (device_bytes, quick_ms) = if by_blogbench {
            // All that it writes stays. It counts a blog as read at the end: in short periods that is none.
            (options.size.unwrap_or(options.size(28 << 30, 4 << 30)), 10_000)
        } else if toy {
            (options.size(16 << 30, 400 << 20), 150)
        } else {
            (options.size(16 << 30, 2 << 30), 2_500)
        };
        Self {
            by_blogbench,
            crew: if toy { Crew { writers: 1, rewriters: 1, commenters: 1, readers: 2 } } else { published },
            period: options.size(Duration::from_secs(10), Duration::from_millis(quick_ms)),
            periods: options.size(30, 2),
            device_bytes,
            // A snapshot may hold as much again.
            blogs_max: device_bytes / 8 / BLOG_BYTES,
        }
    }

    /// What a result of the study counts.
    fn unit(&self) -> &'static str {
        if self.by_blogbench { "score" } else { "operations/s" }
    }
}

/// What one round found out.
struct Round {
    write: Operations,
    read: Operations,
    /// When the snapshot was taken, in the time of the ticks.
    snapshot_s: Option<f64>,
    /// What driving cost for each operation, in microseconds. Of the mix alone.
    driving_us: Option<f64>,
}

/// Operations of one kind in one round. What is there twice is before the snapshot, and after it.
struct Operations {
    /// In the unit of the study.
    results: [f64; 2],
    /// Operations a second in each period.
    periods: [Vec<f64>; 2],
    /// Operations in each tick of the whole round. Of the mix alone.
    ticks: Vec<f64>,
}

/// A kind of operations.
#[derive(Clone, Copy)]
enum Of {
    Write,
    Read,
}

impl Operations {
    /// Of the mix.
    fn of_ticks(ticks: Vec<f64>, scope: &Scope) -> Self {
        let mut before = rates(&ticks, scope.period);
        before.truncate(2 * scope.periods as usize);
        let after = before.split_off((scope.periods as usize).min(before.len()));
        Self { results: [mean(&before), mean(&after)], periods: [before, after], ticks }
    }

    /// Of two runs of blogbench.
    fn of_runs(runs: [Counted; 2], scope: &Scope) -> Self {
        let results = [runs[0].score, runs[1].score];
        let rate = |files: f64| files / scope.period.as_secs_f64();
        let periods = runs.map(|run| run.files.into_iter().map(rate).collect());
        Self { results, periods, ticks: Vec::new() }
    }
}

/// Operations a second in each step of this length. The last tick is not whole.
fn rates(ticks: &[f64], step: Duration) -> Vec<f64> {
    let length = (step.as_millis() / TICK.as_millis()).max(1) as usize;
    ticks.chunks_exact(length).map(|ticks| ticks.iter().sum::<f64>() / step.as_secs_f64()).collect()
}

impl Round {
    fn of(&self, of: Of) -> &Operations {
        match of {
            Of::Write => &self.write,
            Of::Read => &self.read,
        }
    }

    /// Periods in which nothing was written, and those in which nothing was read.
    fn stalled(&self) -> f64 {
        let periods = [Of::Write, Of::Read].into_iter().flat_map(|of| self.of(of).periods.iter().flatten());
        periods.filter(|rate| **rate == 0.0).count() as f64
    }
}

/// Bytes that the study needs at the same time, without copy areas of LVM.
pub(crate) fn room(options: &Options) -> u64 {
    Scope::of(options).device_bytes
}

pub(crate) fn run(options: &Options) -> Result<Findings> {
    let (scope, rounds) = (Scope::of(options), options.rounds(3, 1));
    if scope.by_blogbench {
        programs::require("blog", &format!("--tool {}", options.tool.name()))?;
    }
    let mut lineup = Lineup::of(options, Needs::Files)?;
    let areas = Areas { count: 1, bytes: scope.device_bytes };
    lineup.require_room(room(options), areas, options)?;
    let measured = lineup.measure(rounds, options, |round, kind| {
        let mut bench = Bench::begin(kind, scope.device_bytes, areas, options)?;
        let seed = options.seed + round as u64;
        let round = bench.attempt(kind, |bench| {
            if scope.by_blogbench {
                with_blogbench(bench, kind, &scope, options)
            } else {
                with_mix(bench, kind, &scope, seed, options)
            }
        })?;
        let ([before, after], unit) = (round.write.results, scope.unit());
        options.say(&format!("  {}/write: {before:.0} {unit}, then {after:.0}", kind.name))?;
        Ok(round)
    })?;
    let mut findings = Findings::default();
    lineup.report(&mut findings, scope.unit());
    check(&mut findings, &measured, options.seed);
    for (kind, rounds) in &measured {
        report(&mut findings, kind.name, "write", Of::Write, rounds, &scope);
        report(&mut findings, kind.name, "read", Of::Read, rounds, &scope);
    }
    findings.parameter("rounds", rounds);
    if scope.by_blogbench {
        findings.parameter("tool", options.tool.name());
        findings.parameter("device_bytes", scope.device_bytes);
    } else {
        findings.parameter("workload", "the mix of blogbench, not the program");
        findings.parameter("blogs_max", scope.blogs_max);
    }
    findings.parameter("writers", scope.crew.writers);
    findings.parameter("rewriters", scope.crew.rewriters);
    findings.parameter("commenters", scope.crew.commenters);
    findings.parameter("readers", scope.crew.readers);
    findings.parameter("period_s", scope.period.as_secs_f64());
    findings.parameter("periods", u64::from(2 * scope.periods));
    let rounds = measured.iter().flat_map(|(_, rounds)| rounds);
    driving::report(&mut findings, rounds.filter_map(|round| round.driving_us));
    Ok(findings)
}

/// The mix does not pause for the snapshot.
fn with_mix(bench: &mut Bench, kind: &Kind, scope: &Scope, seed: u64, options: &Options) -> Result<Round> {
    let half = scope.period * scope.periods;
    let mix = Mix::new(&bench.system.data()?, 2 * half, scope.blogs_max);
    let mut snapshot_s = half.as_secs_f64();
    let work = || {
        let until =
            |time: Duration| options.wait_while(time.saturating_sub(mix.elapsed()), || !mix.is_over());
        until(half)?;
        if kind.snapshots && !mix.is_over() {
            snapshot_s = mix.elapsed().as_secs_f64();
            bench.system.snapshot("half")?;
        }
        until(2 * half)
    };
    let ((), driving_us) = driving::Of::Threads.during(|| mix.run(scope.crew, seed, work))?;
    let of = |ticks| Operations::of_ticks(ticks, scope);
    let (write, read) = (of(mix.written.counts()), of(mix.read.counts()));
    let operations: f64 = write.ticks.iter().chain(&read.ticks).sum();
    Ok(Round {
        write,
        read,
        snapshot_s: Some(snapshot_s),
        driving_us: Some(driving_us / operations.max(1.0)),
    })
}

/// blogbench runs before the snapshot, and again after it in the same folder: there it replaces files that
/// the snapshot has.
fn with_blogbench(bench: &mut Bench, kind: &Kind, scope: &Scope, options: &Options) -> Result<Round> {
    let folder = bench.system.data()?;
    let run = || blogbench::run(&folder, scope.crew, scope.period, scope.periods, options);
    let before = run()?;
    if kind.snapshots {
        bench.system.snapshot("half")?;
    }
    let after = run()?;
    let of = |runs| Operations::of_runs(runs, scope);
    let (write, read) = (of([before.written, after.written]), of([before.read, after.read]));
    Ok(Round { write, read, snapshot_s: None, driving_us: None })
}

fn check(findings: &mut Findings, measured: &Runs<&'static Kind, Round>, seed: u64) {
    let Some(ours) = rounds_of(measured, SUBJECT) else { return };
    if let Some(rival) = rounds_of(measured, RIVAL) {
        let after = |rounds: &[Round], of: Of| -> Vec<f64> {
            rounds.iter().map(|round| round.of(of).results[1]).collect()
        };
        for (name, of) in [("blog.write_vs_btrfs", Of::Write), ("blog.read_vs_btrfs", Of::Read)] {
            findings.check(Check::new(name, paired_ratio(&after(ours, of), &after(rival, of), seed)));
        }
    }
    // One period is one too many: the worst round counts.
    let stalled = ours.iter().map(Round::stalled).fold(0.0, f64::max);
    findings.check(Check::new("blog.stalled_periods", bootstrap(&[stalled], median, seed)));
}

fn report(findings: &mut Findings, system: &str, what: &str, of: Of, rounds: &[Round], scope: &Scope) {
    for (half, name) in ["before", "after"].into_iter().enumerate() {
        let samples = rounds.iter().map(|round| round.of(of).results[half]).collect();
        let periods = rounds.iter().map(|round| round.of(of).periods[half].clone()).collect();
        let mut measured = Measured::new(scope.unit(), samples).with_series("period_per_s", periods);
        if name == "after" {
            let stalled: Vec<f64> = rounds.iter().map(Round::stalled).collect();
            let mut counters = BTreeMap::from([("stalled_periods".to_owned(), mean(&stalled))]);
            measured = with_ticks(measured, &mut counters, of, rounds).with_counters(counters);
        }
        findings.system(&format!("{system}/{what}/{name}"), measured);
    }
}

/// Adds what single ticks say, where there are any.
fn with_ticks(
    measured: Measured,
    counters: &mut BTreeMap<String, f64>,
    of: Of,
    rounds: &[Round],
) -> Measured {
    let taken: Vec<Vec<f64>> = rounds.iter().filter_map(|round| Some(vec![round.snapshot_s?])).collect();
    if taken.is_empty() {
        return measured;
    }
    let ticks = rounds.iter().map(|round| &round.of(of).ticks);
    let gaps: Vec<f64> = ticks.clone().map(|ticks| longest_gap(ticks).as_secs_f64() * 1e3).collect();
    counters.insert("longest_gap_ms".to_owned(), mean(&gaps));
    let rates = ticks.map(|ticks| rates(ticks, Duration::from_secs(1))).collect();
    measured.with_series("rate_per_s", rates).with_series("snapshot_at_s", taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two periods of 10 s before the snapshot, and two after it.
    fn scope(by_blogbench: bool) -> Scope {
        let crew = Crew { writers: 1, rewriters: 1, commenters: 1, readers: 1 };
        let period = Duration::from_secs(10);
        Scope { by_blogbench, crew, period, periods: 2, device_bytes: 0, blogs_max: 0 }
    }

    /// The system `x`, as the result has it.
    fn reported(scope: &Scope, round: Round) -> [Measured; 2] {
        let mut findings = Findings::default();
        report(&mut findings, "x", "write", Of::Write, &[round], scope);
        ["x/write/before", "x/write/after"].map(|name| findings.systems()[name].clone())
    }

    #[test]
    fn scores_and_stalled_periods_of_blogbench_are_those_of_its_two_runs() {
        let scope = scope(true);
        let counted = |score, files: [f64; 2]| Counted { score, files: files.to_vec() };
        let round = Round {
            write: Operations::of_runs([counted(9.0, [500.0, 0.0]), counted(7.0, [300.0, 400.0])], &scope),
            read: Operations::of_runs([counted(90.0, [1.0, 2.0]), counted(70.0, [0.0, 0.0])], &scope),
            snapshot_s: None,
            driving_us: None,
        };
        assert_eq!(round.stalled(), 3.0);
        let [before, after] = reported(&scope, round);
        assert_eq!(
            (before.unit.as_str(), &before.samples[..], &after.samples[..]),
            ("score", &[9.0][..], &[7.0][..])
        );
        assert_eq!(
            (&before.series["period_per_s"][0][..], &after.series["period_per_s"][0][..]),
            (&[50.0, 0.0][..], &[30.0, 40.0][..])
        );
        assert_eq!(after.counters, BTreeMap::from([("stalled_periods".to_owned(), 3.0)]));
        assert!(before.counters.is_empty() && !after.series.contains_key("rate_per_s"));
    }

    #[test]
    fn the_mix_has_rates_of_periods_and_the_longest_gap_of_its_ticks() {
        let scope = scope(false);
        // Four periods, and one tick that is in none.
        let ticks = [[2.0; 2000].as_slice(), &[0.0; 1000], &[1.0; 1001]].concat();
        let operations = |ticks: &[f64]| Operations::of_ticks(ticks.to_vec(), &scope);
        let (write, read) = (operations(&ticks), operations(&[1.0; 4001]));
        let round = Round { write, read, snapshot_s: Some(20.0), driving_us: None };
        assert_eq!(round.stalled(), 1.0);
        let [before, after] = reported(&scope, round);
        assert_eq!(
            (before.unit.as_str(), before.samples[0], after.samples[0]),
            ("operations/s", 200.0, 50.0)
        );
        assert_eq!(after.series["period_per_s"][0], [0.0, 100.0]);
        assert_eq!((after.counters["stalled_periods"], after.counters["longest_gap_ms"]), (1.0, 10_000.0));
        assert_eq!((after.series["rate_per_s"][0].len(), after.series["snapshot_at_s"][0][0]), (40, 20.0));
    }
}
