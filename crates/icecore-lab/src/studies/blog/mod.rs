//! `blog`: a busy tree of small files before and after a snapshot, after "Btrfs against LVM + ext4" (2015), experiment 2.

mod mix;

use super::{Bench, Lineup, Needs, RIVAL, Runs, SUBJECT, rounds_of};
use crate::error::Result;
use crate::experiments::Findings;
use crate::options::Options;
use crate::report::{Check, System as Measured};
use crate::statistics::{bootstrap, mean, median, paired_ratio};
use crate::systems::{Areas, Kind};
use mix::{BLOG_BYTES, Crew, Mix, TICK, longest_gap};
use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

/// How often the run looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// How much is done.
struct Scope {
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
        let device_bytes = options.size(16 << 30, if toy { 400 << 20 } else { 2 << 30 });
        Self {
            crew: if toy { Crew { writers: 1, rewriters: 1, commenters: 1, readers: 2 } } else { published },
            period: options
                .size(Duration::from_secs(10), Duration::from_millis(if toy { 150 } else { 2_500 })),
            periods: options.size(30, 2),
            device_bytes,
            // A snapshot may hold as much again.
            blogs_max: device_bytes / 8 / BLOG_BYTES,
        }
    }
}

/// Operations of one round by tick, and when the snapshot was taken.
struct Round {
    written: Vec<f64>,
    read: Vec<f64>,
    snapshot_s: f64,
}

/// Operations of one kind.
#[derive(Clone, Copy)]
enum Of {
    Write,
    Read,
}

impl Round {
    fn ticks(&self, of: Of) -> &[f64] {
        match of {
            Of::Write => &self.written,
            Of::Read => &self.read,
        }
    }

    /// Operations a second in each step of this length. The last tick is not whole.
    fn rates(&self, of: Of, step: Duration) -> Vec<f64> {
        let ticks = self.ticks(of);
        let length = (step.as_millis() / TICK.as_millis()).max(1) as usize;
        ticks.chunks_exact(length).map(|ticks| ticks.iter().sum::<f64>() / step.as_secs_f64()).collect()
    }

    /// The rates of the periods before the snapshot, and of those after it.
    fn periods(&self, of: Of, scope: &Scope) -> [Vec<f64>; 2] {
        let mut before = self.rates(of, scope.period);
        before.truncate(2 * scope.periods as usize);
        let after = before.split_off((scope.periods as usize).min(before.len()));
        [before, after]
    }

    fn stalled(&self, scope: &Scope) -> f64 {
        let stalled = |of| self.periods(of, scope).concat().iter().filter(|rate| **rate == 0.0).count();
        (stalled(Of::Write) + stalled(Of::Read)) as f64
    }
}

pub(crate) fn run(options: &Options) -> Result<Findings> {
    let mut lineup = Lineup::of(options, Needs::Files)?;
    let (scope, rounds) = (Scope::of(options), options.rounds(3, 1));
    let areas = Areas { count: 1, bytes: scope.device_bytes };
    lineup.require_room(scope.device_bytes, areas, options)?;
    let measured = lineup.measure(rounds, options, |round, kind| {
        let mut bench = Bench::begin(kind, scope.device_bytes, areas, options)?;
        let seed = options.seed + round as u64;
        let round = bench.attempt(kind, |bench| one(bench, kind, &scope, seed, options))?;
        let [before, after] = round.periods(Of::Write, &scope).map(|rates| mean(&rates));
        options.say(&format!("  {}: {before:.0} writes/s, then {after:.0}", kind.name))?;
        Ok(round)
    })?;
    let mut findings = Findings::default();
    lineup.report(&mut findings, "operations/s");
    check(&mut findings, &measured, &scope, options.seed);
    for (kind, rounds) in &measured {
        report(&mut findings, kind.name, "write", Of::Write, rounds, &scope);
        report(&mut findings, kind.name, "read", Of::Read, rounds, &scope);
    }
    findings.parameter("rounds", rounds);
    findings.parameter("workload", "the mix of blogbench, not the program");
    findings.parameter("writers", scope.crew.writers);
    findings.parameter("rewriters", scope.crew.rewriters);
    findings.parameter("commenters", scope.crew.commenters);
    findings.parameter("readers", scope.crew.readers);
    findings.parameter("period_s", scope.period.as_secs_f64());
    findings.parameter("periods", u64::from(2 * scope.periods));
    findings.parameter("blogs_max", scope.blogs_max);
    Ok(findings)
}

/// The mix does not pause for the snapshot.
fn one(bench: &mut Bench, kind: &Kind, scope: &Scope, seed: u64, options: &Options) -> Result<Round> {
    let half = scope.period * scope.periods;
    let mix = Mix::new(&bench.system.data()?, 2 * half, scope.blogs_max);
    let mut snapshot_s = half.as_secs_f64();
    mix.run(scope.crew, seed, || {
        let until = |time: Duration| -> Result<()> {
            while !mix.is_over() && mix.elapsed() < time {
                options.go_on()?;
                thread::sleep(LOOK.min(time.saturating_sub(mix.elapsed())));
            }
            Ok(())
        };
        until(half)?;
        if kind.snapshots && !mix.is_over() {
            snapshot_s = mix.elapsed().as_secs_f64();
            bench.system.snapshot("half")?;
        }
        until(2 * half)
    })?;
    Ok(Round { written: mix.written.counts(), read: mix.read.counts(), snapshot_s })
}

fn check(findings: &mut Findings, measured: &Runs<&'static Kind, Round>, scope: &Scope, seed: u64) {
    let Some(ours) = rounds_of(measured, SUBJECT) else { return };
    if let Some(rival) = rounds_of(measured, RIVAL) {
        let after = |rounds: &[Round], of: Of| -> Vec<f64> {
            rounds.iter().map(|round| mean(&round.periods(of, scope)[1])).collect()
        };
        for (name, of) in [("blog.write_vs_btrfs", Of::Write), ("blog.read_vs_btrfs", Of::Read)] {
            findings.check(Check::new(name, paired_ratio(&after(ours, of), &after(rival, of), seed)));
        }
    }
    let stalled: Vec<f64> = ours.iter().map(|round| round.stalled(scope)).collect();
    findings.check(Check::new("blog.stalled_periods", bootstrap(&stalled, median, seed)));
}

fn report(findings: &mut Findings, system: &str, what: &str, of: Of, rounds: &[Round], scope: &Scope) {
    for (half, name) in ["before", "after"].into_iter().enumerate() {
        let periods: Vec<Vec<f64>> =
            rounds.iter().map(|round| round.periods(of, scope)[half].clone()).collect();
        let samples = periods.iter().map(|rates| mean(rates)).collect();
        let mut measured = Measured::new("operations/s", samples).with_series("period_per_s", periods);
        if name == "after" {
            let gaps: Vec<f64> =
                rounds.iter().map(|round| longest_gap(round.ticks(of)).as_secs_f64() * 1e3).collect();
            let stalled: Vec<f64> = rounds.iter().map(|round| round.stalled(scope)).collect();
            let counters = BTreeMap::from([
                ("longest_gap_ms".to_owned(), mean(&gaps)),
                ("stalled_periods".to_owned(), mean(&stalled)),
            ]);
            let rates = rounds.iter().map(|round| round.rates(of, Duration::from_secs(1))).collect();
            measured = measured
                .with_series("rate_per_s", rates)
                .with_series("snapshot_at_s", rounds.iter().map(|round| vec![round.snapshot_s]).collect())
                .with_counters(counters);
        }
        findings.system(&format!("{system}/{what}/{name}"), measured);
    }
}
