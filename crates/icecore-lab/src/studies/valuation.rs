//! `valuation`: hundreds of versions of a SQLite database, after "Database Performance, LVM Snapshots, golang
//! and sqlite3" (2014).
//!
//! Each iteration is a durable transaction, and a snapshot where the system has snapshots. Every snapshot is
//! read afterwards, from empty caches, and compared with what it must hold.

use super::blocks::scratch;
use super::steps::Steps;
use super::{Bench, Lineup, Needs, Runs};
use crate::driving;
use crate::error::{Error, Result};
use crate::experiments::Findings;
use crate::options::Options;
use crate::report::{Check, System as Measured};
use crate::sqlite::Journal;
use crate::statistics::{median, paired_ratio};
use crate::systems::{Areas, Kind};
use crate::valuation::{Contents, ITERATIONS, PERIODS, Valuation};
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::time::Instant;

/// The system of the checks.
const SUBJECT: &str = "icecore-sqlite";
/// From so many iterations on the last ones show what a long history costs.
pub(crate) const LONG: u32 = 850;
/// The last iterations of a long run.
const LAST: usize = 95;
/// Snapshots that are read and measured, evenly spread, where there are more of them.
const VERIFIED_MAX: usize = 100;

/// Iterations of a run that asks for no number.
pub(crate) fn usual_iterations(options: &Options) -> u32 {
    options.size(ITERATIONS, if cfg!(debug_assertions) { 3 } else { 12 })
}

/// How much is done.
struct Scope {
    iterations: u32,
    periods: u32,
    device_bytes: u64,
}

impl Scope {
    fn of(options: &Options) -> Self {
        let iterations = options.iterations.unwrap_or(usual_iterations(options));
        let periods = options.size(PERIODS, if cfg!(debug_assertions) { 100 } else { 2_000 });
        // A snapshot of a late iteration of the study holds some 40 MiB on a system that copies whole blocks of
        // its own, and its metadata.
        let needed = u64::from(iterations) * ((56 << 20) * u64::from(periods) / u64::from(PERIODS));
        Self { iterations, periods, device_bytes: needed.max(options.size(4 << 30, 1 << 30)) }
    }
}

impl Scope {
    /// Bytes of the device of a system. Late snapshots of a long history hold more where the unit is larger
    /// than a block: a record of 16 KiB on ZFS, a chunk of 64 on thin LVM. Counted: with a device as for
    /// blocks ZFS is full after some 510 of 850 iterations, and with half as much again after some 660.
    fn bytes_for(&self, system: &str) -> u64 {
        match system {
            "zfs" if is_long(self.iterations) => self.device_bytes * 3,
            "lvm-thin" if is_long(self.iterations) => self.device_bytes * 6,
            _ => self.device_bytes,
        }
    }

    /// The copy area of the first snapshot takes in all that is written after it, wherever the file system
    /// puts that.
    fn areas(&self) -> Areas {
        let count = u64::from(self.iterations);
        let rows = count * u64::from(self.periods);
        Areas { count, bytes: (64 << 20) + 512 * rows }
    }
}

/// A system with or without snapshots.
struct Side {
    kind: &'static Kind,
    variant: &'static str,
    snapshots: bool,
    journal: Journal,
}

impl Side {
    fn name(&self) -> String {
        format!("{}/{}", self.kind.name, self.variant)
    }
}

/// More iterations than the study has are made with DELETE alone. A snapshot holds a WAL, too, which is as
/// large as what the transaction changed. And SQLite maps the index of a WAL: on a full device a write to a
/// hole of that mapping ends the lab by SIGBUS.
const fn is_long(iterations: u32) -> bool {
    iterations > ITERATIONS
}

/// Rivals take part with either journal, so that the better one counts, unless the run is long.
fn sides(kinds: &[&'static Kind], iterations: u32) -> Vec<Side> {
    let is_long = is_long(iterations);
    let first = if is_long { Journal::Delete } else { Journal::Wal };
    let mut sides = Vec::new();
    for &kind in kinds {
        let mut add = |variant, snapshots, journal| sides.push(Side { kind, variant, snapshots, journal });
        let both = kind.files && !is_long;
        add("none", false, first);
        if both {
            add("none-delete", false, Journal::Delete);
        }
        if kind.snapshots {
            add("snapshots", true, first);
            if both {
                add("snapshots-delete", true, Journal::Delete);
            }
        }
    }
    sides
}

/// One run, in seconds and bytes.
struct Run {
    iterations: Vec<f64>,
    snapshots: Vec<f64>,
    held: Vec<f64>,
    space_bytes: f64,
    verified: usize,
}

impl Run {
    fn total(&self) -> f64 {
        self.iterations.iter().sum()
    }
}

/// Bytes that the study needs at the same time, without copy areas of LVM.
pub(crate) fn room(options: &Options) -> u64 {
    let scope = Scope::of(options);
    let of_systems = options.systems.iter().map(|system| scope.bytes_for(system));
    of_systems.max().unwrap_or(scope.device_bytes)
}

pub(crate) fn run(options: &Options) -> Result<Findings> {
    let mut lineup = Lineup::of(options, Needs::Databases)?;
    let scope = Scope::of(options);
    lineup.require_room_of(|kind| scope.bytes_for(kind.name), scope.areas(), options)?;
    let rounds = options.rounds(3, 1);
    let sides = sides(&lineup.kinds, scope.iterations);
    let named = |side: &Side| (side.kind, side.name());
    let runs = lineup.measure_sides(sides, rounds, options, named, |_, side| {
        let mut bench = Bench::begin(side.kind, scope.bytes_for(side.kind.name), scope.areas(), options)?;
        let run = bench.attempt(side.kind, |bench| one(bench, side, &scope, options))?;
        options.say(&format!("  {:.2} s, {} snapshots verified", run.total(), run.verified))?;
        Ok(run)
    })?;
    let mut findings = Findings::default();
    lineup.report(&mut findings, "s");
    check(&mut findings, &runs, &scope, options.seed);
    for (side, runs) in &runs {
        report(&mut findings, side, runs);
    }
    findings.parameter("rounds", rounds);
    findings.parameter("iterations", u64::from(scope.iterations));
    findings.parameter("periods", u64::from(scope.periods));
    findings.parameter("device_bytes", scope.device_bytes);
    findings.parameter("synchronous", "FULL");
    findings.parameter("journal", if is_long(scope.iterations) { "DELETE" } else { "WAL and DELETE" });
    driving::report(&mut findings, Some(in_memory_us(&scope, options.seed)?));
    driving::report_programs(&mut findings, options)?;
    Ok(findings)
}

/// What an iteration takes on a database in memory: the part of SQLite and of the lab.
fn in_memory_us(scope: &Scope, seed: u64) -> Result<f64> {
    let connection = Connection::open_in_memory()?;
    let mut workload = Valuation::begin(&connection, scope.periods, seed)?;
    driving::repeated_us(|| workload.iterate())
}

fn one(bench: &mut Bench, side: &Side, scope: &Scope, options: &Options) -> Result<Run> {
    let (mut iterations, mut snapshots, mut versions) = (Vec::new(), Vec::new(), Vec::new());
    let connection = bench.system.database(side.journal)?;
    let mut workload = Valuation::begin(&connection, scope.periods, options.seed)?;
    let mut steps = Steps::begin(options);
    for iteration in 1..=scope.iterations {
        steps.next(|| format!("iteration {iteration} of {}", scope.iterations))?;
        let begin = Instant::now();
        workload.iterate()?;
        if side.snapshots {
            let (committed, name) = (Instant::now(), format!("after-{iteration:04}"));
            bench.system.snapshot(&name)?;
            snapshots.push(committed.elapsed().as_secs_f64());
            versions.push((name, workload.contents()));
        }
        iterations.push(begin.elapsed().as_secs_f64());
    }
    drop(workload);
    drop(connection);
    bench.system.rest()?;
    let space_bytes = bench.system.space_bytes()? as f64;
    let versions = thinned(versions);
    let names: Vec<String> = versions.iter().map(|(name, _)| name.clone()).collect();
    let held = bench.system.held_bytes(&names)?.into_iter().map(|bytes| bytes as f64).collect();
    bench.system.cool()?;
    for (name, contents) in &versions {
        steps.next(|| format!("verifying {name}"))?;
        verify(bench, side, name, *contents)?;
    }
    Ok(Run { iterations, snapshots, held, space_bytes, verified: versions.len() })
}

/// At most [`VERIFIED_MAX`] of the versions, evenly spread, the youngest among them.
fn thinned<T>(versions: Vec<T>) -> Vec<T> {
    let step = versions.len().div_ceil(VERIFIED_MAX).max(1);
    versions.into_iter().rev().step_by(step).rev().collect()
}

fn verify(bench: &Bench, side: &Side, name: &str, contents: Contents) -> Result<()> {
    let past = scratch(bench.folder.path())?;
    let found = Contents::read(&bench.system.past_database(name, &past, side.journal)?)?;
    if found == contents {
        return Ok(());
    }
    let detail =
        format!("it has {} rows, and not the {} that it had when it was taken", found.rows, contents.rows);
    Err(Error::Mismatch { what: format!("the snapshot {name} on {}", side.name()), detail })
}

fn check(findings: &mut Findings, runs: &Runs<Side, Run>, scope: &Scope, seed: u64) {
    let totals = |runs: &[Run]| -> Vec<f64> { runs.iter().map(Run::total).collect() };
    let ours = |variant: &str| {
        let found = runs.iter().find(|(side, _)| side.kind.name == SUBJECT && side.variant == variant);
        found.map(|(_, runs)| runs.as_slice())
    };
    let (Some(with), Some(without)) = (ours("snapshots"), ours("none")) else { return };
    let rivals = runs.iter().filter(|(side, _)| side.snapshots && side.kind.is_rival());
    let best = rivals.min_by(|(_, one), (_, other)| median(&totals(one)).total_cmp(&median(&totals(other))));
    if let Some((side, best)) = best {
        findings
            .check(Check::new("valuation.vs_best_rival", paired_ratio(&totals(with), &totals(best), seed)));
        findings.parameter("best_rival", side.name().as_str());
    }
    if scope.iterations >= LONG {
        let ratio = paired_ratio(&last_s(with), &last_s(without), seed);
        findings.check(Check::new("valuation.850", ratio));
    }
}

/// Seconds of the last iterations of each run. Those of one run are no samples of their own: a slow disk slows
/// all of them.
fn last_s(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(|run| run.iterations.iter().rev().take(LAST).sum()).collect()
}

fn report(findings: &mut Findings, side: &Side, runs: &[Run]) {
    let series = |of: fn(&Run) -> Vec<f64>| runs.iter().map(of).collect::<Vec<_>>();
    let mut measured = Measured::new("s", runs.iter().map(Run::total).collect())
        .with_series("iteration_s", series(|run| run.iterations.clone()));
    if side.snapshots {
        measured = measured
            .with_series("snapshot_s", series(|run| run.snapshots.clone()))
            .with_series("held_bytes", series(|run| run.held.clone()));
    }
    let mean = |of: fn(&Run) -> f64| runs.iter().map(of).sum::<f64>() / runs.len() as f64;
    let counters = BTreeMap::from([
        ("space_bytes".to_owned(), mean(|run| run.space_bytes)),
        ("snapshots_verified".to_owned(), mean(|run| run.verified as f64)),
    ]);
    findings.system(&side.name(), measured.with_counters(counters));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::systems::SYSTEMS;

    #[test]
    fn of_a_long_history_a_hundred_snapshots_at_most_are_read_and_the_youngest_always() {
        for (taken, read) in [(0_usize, 0), (1, 1), (100, 100), (101, 51), (850, 95), (10_000, 100)] {
            let found = thinned((0..taken).collect());
            assert_eq!((found.len(), found.last().copied()), (read, taken.checked_sub(1)), "{taken}");
            assert!(found.is_sorted(), "{found:?}");
        }
    }

    #[test]
    fn a_long_history_has_more_room_where_a_system_keeps_large_units() {
        let of = |iterations, systems: &[&str]| {
            let systems = systems.iter().map(|&name| name.to_owned()).collect();
            room(&Options { iterations: Some(iterations), systems, ..Options::new(".") })
        };
        let all = of(850, &[]);
        assert_eq!((of(850, &["btrfs", "zfs"]), of(850, &["lvm-thin"])), (all * 3, all * 6));
        assert_eq!(of(95, &["lvm-thin"]), of(95, &[]));
    }

    #[test]
    fn no_snapshot_of_a_long_run_holds_a_wal() {
        let named = |name: &&Kind| ["btrfs", SUBJECT].contains(&name.name);
        let kinds: Vec<&Kind> = SYSTEMS.iter().filter(named).collect();
        let long = sides(&kinds, ITERATIONS + 1);
        let names = ["btrfs/none", "btrfs/snapshots", "icecore-sqlite/none", "icecore-sqlite/snapshots"];
        assert_eq!(long.iter().map(Side::name).collect::<Vec<_>>(), names);
        assert!(long.iter().all(|side| side.journal == Journal::Delete));
        let usual = sides(&kinds, ITERATIONS);
        let with = |journal| usual.iter().filter(|side| side.journal == journal).count();
        assert_eq!((usual.len(), with(Journal::Wal), with(Journal::Delete)), (6, 4, 2));
    }

    #[test]
    fn what_a_long_history_costs_shows_in_its_last_iterations_alone() {
        let run = |first: f64, last: f64| Run {
            iterations: [vec![first; 850 - LAST], vec![last; LAST]].concat(),
            snapshots: Vec::new(),
            held: Vec::new(),
            space_bytes: 0.0,
            verified: 0,
        };
        assert_eq!(last_s(&[run(9.0, 1.0), run(0.0, 2.0)]), [95.0, 190.0]);
        assert_eq!(last_s(&[run(5.0, 1.0)]), last_s(&[run(1.0, 1.0)]));
    }
}
