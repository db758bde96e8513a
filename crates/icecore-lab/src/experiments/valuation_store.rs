//! `valuation-store`: the study of 2014 in full, with a snapshot after every iteration, beside plain SQLite
//! that takes none.
//!
//! Every run starts from nothing: an empty folder or a pool just made. A run ends when its last iteration
//! (its last snapshot) is durable; closing is not part of it on any side.

use super::Findings;
use crate::counters::Counters;
use crate::error::{Error, PLAIN, Result, STORED};
use crate::figure::ITERATION_SERIES;
use crate::flush::{self, Flusher};
use crate::options::Options;
use crate::pairs::interleave;
use crate::report::{Check, Report, System};
use crate::sqlite::{self, Journal};
use crate::statistics::{Estimate, bootstrap, median, paired_ratio};
use crate::stored::StoredDatabase;
use crate::valuation::{ITERATIONS, PERIODS, Valuation};
use rusqlite::Connection;
use std::path::Path;
use std::time::Instant;

/// Pools of this experiment checkpoint after half of this much log, so that one run, which writes about
/// 700 MiB, covers three checkpoints and goes through the whole log. The default would make none.
const LOG_BYTES_MAX: u64 = 384 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Plain(Journal),
    Stored { snapshots: bool },
}

const SIDES: [(&str, Side); 4] = [
    ("plain_delete", Side::Plain(Journal::Delete)),
    ("plain_wal", Side::Plain(Journal::Wal)),
    ("icecore", Side::Stored { snapshots: false }),
    ("icecore_snapshots", Side::Stored { snapshots: true }),
];

/// One run of one side, in seconds.
#[derive(Default)]
struct Run {
    /// Each iteration, with its snapshot where one is taken.
    iterations: Vec<f64>,
    /// Each snapshot alone.
    snapshots: Vec<f64>,
    /// The disk's flush, just before the run: one right after the other.
    flush: f64,
    /// The disk's flush where a snapshot would be: after each iteration. Not part of any other time.
    flushes: Vec<f64>,
    counters: Counters,
}

impl Run {
    fn total(&self) -> f64 {
        self.iterations.iter().sum()
    }
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(20, 2);
    let iterations = options.size(ITERATIONS, 6);
    let periods = options.size(PERIODS, 200);
    let runs = interleave(rounds, SIDES.len(), |round, side| {
        let (name, side) = SIDES[side];
        let run = run_side(options, side, iterations, periods)?;
        options.say(&format!("round {} of {rounds}: {name} {:.2} s", round + 1, run.total()))?;
        Ok(run)
    })?;
    let mut findings = conclude(&runs, options.seed);
    findings.parameter("rounds", rounds);
    findings.parameter("iterations", u64::from(iterations));
    findings.parameter("periods", u64::from(periods));
    findings.parameter("synchronous", "FULL");
    findings.parameter("log_bytes_max", LOG_BYTES_MAX);
    Ok(findings)
}

fn run_side(options: &Options, side: Side, iterations: u32, periods: u32) -> Result<Run> {
    let folder = options.scratch()?;
    let flush = flush::median_seconds(folder.path(), 31)?;
    let (run, name) = match side {
        Side::Plain(journal) => (run_plain(folder.path(), options.seed, iterations, periods, journal), PLAIN),
        Side::Stored { snapshots } => {
            let after = if snapshots { After::Snapshot } else { After::Flush(Flusher::new(folder.path())?) };
            (run_stored(folder.path(), options.seed, iterations, periods, after), STORED)
        }
    };
    let run = run.map_err(|error| error.of_side(name, folder.path()))?;
    Ok(Run { flush, ..run })
}

fn run_plain(folder: &Path, seed: u64, iterations: u32, periods: u32, journal: Journal) -> Result<Run> {
    let connection = sqlite::open_plain(&folder.join("valuation.db"), journal)?;
    iterate(&connection, seed, iterations, periods, After::Nothing)
}

fn run_stored(folder: &Path, seed: u64, iterations: u32, periods: u32, after: After) -> Result<Run> {
    let open = icecore::OpenOptions { log_bytes_max: LOG_BYTES_MAX, ..Default::default() };
    let database = StoredDatabase::create(&folder.join("pool"), &open)?;
    let connection = database.connect(None)?;
    let before = database.counters();
    let run = iterate(&connection, seed, iterations, periods, after)?;
    Ok(Run { counters: database.counters().since(&before), ..run })
}

/// What follows an iteration.
enum After {
    Nothing,
    /// What a snapshot is measured by: a flush at the same moment of the same work, as processor and disk are
    /// then.
    Flush(Flusher),
    Snapshot,
}

fn iterate(
    connection: &Connection,
    seed: u64,
    iterations: u32,
    periods: u32,
    mut after: After,
) -> Result<Run> {
    let mut workload = Valuation::begin(connection, periods, seed)?;
    let mut run = Run::default();
    for iteration in 1..=iterations {
        let begin = Instant::now();
        workload.iterate()?;
        if let After::Snapshot = after {
            let committed = Instant::now();
            StoredDatabase::snapshot(connection, &format!("after-{iteration:03}"))?;
            run.snapshots.push(committed.elapsed().as_secs_f64());
        }
        run.iterations.push(begin.elapsed().as_secs_f64());
        if let After::Flush(flusher) = &mut after {
            run.flushes.push(flusher.flush()?);
        }
    }
    Ok(run)
}

fn conclude(runs: &[Vec<Run>], seed: u64) -> Findings {
    let totals: Vec<Vec<f64>> = runs.iter().map(|runs| runs.iter().map(Run::total).collect()).collect();
    let [delete, wal, icecore, snapshots] = [0, 1, 2, 3].map(|side: usize| &totals[side]);
    let plain = if median(delete) < median(wal) { delete } else { wal };
    let mut findings = Findings::default();
    findings.check(Check::new("valuation.vs_plain", paired_ratio(snapshots, plain, seed)));
    findings.check(Check::new("valuation.snapshot_cost", paired_ratio(snapshots, icecore, seed)));
    findings.check(Check::new("valuation.snapshot_flushes", snapshot_flushes(&runs[3], &runs[2], seed)));
    for ((name, side), (runs, totals)) in SIDES.iter().zip(runs.iter().zip(&totals)) {
        let series = |of: fn(&Run) -> Vec<f64>| runs.iter().map(of).collect::<Vec<_>>();
        let mut system = System::new("s", totals.clone())
            .with_series(ITERATION_SERIES, series(|run| run.iterations.clone()))
            .with_series("flush_s", series(|run| vec![run.flush]))
            .with_counters(Counters::sum(runs.iter().map(|run| &run.counters)).into_map());
        system = match side {
            Side::Plain(_) => system,
            Side::Stored { snapshots: false } => {
                system.with_series("flush_after_iteration_s", series(|run| run.flushes.clone()))
            }
            Side::Stored { snapshots: true } => {
                system.with_series("snapshot_s", series(|run| run.snapshots.clone()))
            }
        };
        findings.system(name, system);
    }
    findings
}

/// Each run's median snapshot in units of the median flush at the same moments of the run without snapshots
/// in the same round.
fn snapshot_flushes(snapshots: &[Run], flushes: &[Run], seed: u64) -> Estimate {
    let rounds = snapshots.iter().zip(flushes);
    let ratios: Vec<f64> =
        rounds.map(|(snapshots, flushes)| median(&snapshots.snapshots) / median(&flushes.flushes)).collect();
    bootstrap(&ratios, median, seed)
}

/// Name of the plain system that was faster in this result.
pub(crate) fn faster_plain(report: &Report) -> Result<&'static str> {
    let time = |name: &str| report.systems.get(name).map(|system| median(&system.samples));
    match (time("plain_delete"), time("plain_wal")) {
        (Some(delete), Some(wal)) => Ok(if delete < wal { "plain_delete" } else { "plain_wal" }),
        _ => Err(Error::NotAResult {
            what: format!("the result of {}", report.experiment),
            reason: "it has no plain SQLite to draw: the figure is of `valuation-store`".to_owned(),
        }),
    }
}
