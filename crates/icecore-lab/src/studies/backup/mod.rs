//! `backup`: a snapshot is read, and compressed, while the database writes, after "Reading a snapshot"
//! (2013).
//!
//! A MariaDB on each system is driven by sysbench. First without a snapshot; then a snapshot is read while
//! the server is stopped; then another while it is driven, as fast as it goes; and one at half of that speed.
//! What is read goes through zstd(1), and nowhere from there: a backup belongs on another disk. At the end
//! programs make backups by themselves: mariadb-backup(1) and mylvmbackup(1). The first needs no snapshot, so
//! systems without take part in that.

mod mariadb_backup;
mod mylvmbackup;
mod program;

use super::{Bench, Lineup, Needs, SUBJECT, rounds_of};
use crate::compress::{Copied, Pace, copy_compressed};
use crate::driving::{self, Of};
use crate::error::{Error, Result};
use crate::experiments::Findings;
use crate::options::Options;
use crate::programs;
use crate::report::{Check, System as Measured};
use crate::server::{self, Drive, Driven, Kind as _, Server, Setup, Size, mariadb::MariaDb};
use crate::statistics::{mean, paired_ratio};
use crate::systems::{Areas, Kind};
use crate::tool;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const WORKLOAD: &str = "oltp_write_only";
/// The folder of the server's data.
const NAME: &str = "db";
const SNAPSHOT: &str = "backup";
/// How often a copy area is looked at.
const LOOK: Duration = Duration::from_secs(1);
const TABLES: u64 = 4;
/// Bytes of a row of sysbench, its part of the index included: 2,000,000 rows take 500 MB.
const ROW_BYTES: u64 = 250;
/// Room for the log of the server, and for what it writes beside a database that is small.
const DEVICE_BYTES_MIN: u64 = 6 << 30;

/// How much is done.
struct Scope {
    size: Size,
    cache_mib: u64,
    drive: Drive,
    device_bytes: u64,
    area_bytes: u64,
}

impl Scope {
    fn of(options: &Options) -> Self {
        let (rows, device_bytes) = match options.size {
            Some(bytes) => {
                (bytes / ROW_BYTES / TABLES, bytes.saturating_mul(4).saturating_add(DEVICE_BYTES_MIN))
            }
            None => (options.size(500_000, 5_000), options.size(8 << 30, 2 << 30)),
        };
        // sysbench reports each whole second: of one alone there may be no report.
        let quick_s = if cfg!(debug_assertions) { 2 } else { 3 };
        Self {
            size: Size { tables: TABLES, rows, scale: 0 },
            cache_mib: options.size(64, 8),
            drive: Drive { clients: 8, time: Duration::from_secs(options.size(30, quick_s)) },
            device_bytes,
            area_bytes: device_bytes / 4,
        }
    }

    fn setup(&self) -> Setup<'static> {
        Setup { cache_mib: self.cache_mib, advised: false, more: &[] }
    }
}

/// The server driven for a while, the snapshot read for a while, or both.
#[derive(Default)]
struct Phase {
    driven: Option<Driven>,
    /// What driving cost for each transaction, in microseconds.
    driving_us: Option<f64>,
    copied: Option<Copied>,
    held_bytes: Option<u64>,
    /// The copy area in use, each second, in percent.
    area_percent: Vec<f64>,
    /// Why there is nothing else.
    failure: Option<String>,
}

impl Phase {
    fn failed(error: &Error) -> Self {
        Self { failure: Some(error.to_string()), ..Self::default() }
    }
}

/// The phases of one round, by the variants of results.
type Round = BTreeMap<&'static str, Phase>;

const ALONE: &str = "alone";
const IDLE: &str = "idle";
const WRITING: &str = "writing";
const HALF: &str = "half";
/// Every phase, in the order of results.
const PHASES: [&str; 6] = [ALONE, IDLE, WRITING, HALF, mariadb_backup::PROGRAM, mylvmbackup::PROGRAM];

/// Bytes that the study needs at the same time, without copy areas of LVM. The database is made beside the
/// device, and its log with it.
pub(crate) fn room(options: &Options) -> u64 {
    let scope = Scope::of(options);
    scope.device_bytes.saturating_add(scope.device_bytes / 2)
}

pub(crate) fn run(options: &Options) -> Result<Findings> {
    programs::require("backup", "")?;
    let mut lineup = Lineup::of(options, Needs::Files)?;
    let (scope, rounds) = (Scope::of(options), options.rounds(3, 1));
    let areas = Areas { count: 1, bytes: scope.area_bytes };
    lineup.require_room(room(options), areas, options)?;
    let folder = options.scratch()?;
    server::open_to_all(folder.path())?;
    let source = folder.path().join(NAME);
    options.say("making a database")?;
    server::make(&MariaDb, &source, scope.setup(), scope.size, options)?;
    let measured = lineup.measure(rounds, options, |_, kind| {
        let mut bench = Bench::begin(kind, scope.device_bytes, areas, options)?;
        server::open_to_all(bench.folder.path())?;
        bench.attempt(kind, |bench| one(bench, kind, &source, &scope, options))
    })?;
    let mut findings = Findings::default();
    lineup.report(&mut findings, "MB/s");
    if let Some(ours) = rounds_of(&measured, SUBJECT) {
        check(&mut findings, ours, options.seed);
    }
    for (kind, rounds) in &measured {
        report(&mut findings, kind, rounds);
    }
    findings.parameter("rounds", rounds);
    findings.parameter("workload", WORKLOAD);
    findings.parameter("slice_s", scope.drive.time.as_secs_f64());
    findings.parameter("clients", scope.drive.clients);
    findings.parameter("cache_mib", scope.cache_mib);
    findings.parameter("sysbench_tables", scope.size.tables);
    findings.parameter("sysbench_rows", scope.size.rows);
    let phases = measured.iter().flat_map(|(_, rounds)| rounds).flat_map(BTreeMap::values);
    driving::report(&mut findings, phases.filter_map(|phase| phase.driving_us));
    Ok(findings)
}

fn one(bench: &mut Bench, kind: &Kind, source: &Path, scope: &Scope, options: &Options) -> Result<Round> {
    let mut round = Round::new();
    let data = bench.system.data()?;
    server::open_to_all(&data)?;
    let data = data.join(NAME);
    tool::output(Command::new("cp").arg("-a").arg(source).arg(&data), options)?;
    let start = || Server::start(&MariaDb, &data, scope.setup(), MariaDb.query(), options);
    let mut server = start()?;
    let warm_up = Drive { time: (scope.drive.time / 2).max(Duration::from_secs(1)), ..scope.drive };
    server.drive(WORKLOAD, scope.size, warm_up)?;
    MariaDb.rest(&server)?;
    let (driven, driving_us) = Of::Programs.during(|| server.drive(WORKLOAD, scope.size, scope.drive))?;
    let driving_us = Some(driving_us / driven.transactions);
    round.insert(ALONE, Phase { driven: Some(driven), driving_us, ..Phase::default() });
    MariaDb.rest(&server)?;
    if kind.snapshots {
        bench.system.snapshot(SNAPSHOT)?;
        server.stop()?;
        let copied = at_rest(bench, options)?;
        let speed = copied.bytes_per_second();
        round.insert(IDLE, Phase { copied: Some(copied), ..Phase::default() });
        server = start()?;
        for (variant, limit) in [(WRITING, None), (HALF, Some(speed / 2.0))] {
            round.insert(variant, beside_writes(bench, &server, limit, scope, options)?);
        }
    }
    by_programs(bench, &server, scope, options, &mut round)?;
    server.stop()?;
    for (variant, phase) in &round {
        let rate = phase.driven.as_ref().map_or(0.0, |driven| driven.per_second);
        let speed = phase.copied.as_ref().map_or(0.0, |copied| copied.bytes_per_second() / 1e6);
        options.say(&format!("  {} {variant}: {rate:.0} transactions/s, {speed:.0} MB/s", kind.name))?;
    }
    Ok(round)
}

/// Reads the snapshot while nothing else happens, and destroys it.
fn at_rest(bench: &mut Bench, options: &Options) -> Result<Copied> {
    bench.system.cool()?;
    let past = bench.system.snapshot_folder(SNAPSHOT)?.join(NAME);
    let copied = copy_compressed(&past, Pace::Once, options)?;
    bench.system.destroy(SNAPSHOT)?;
    bench.system.rest()?;
    Ok(copied)
}

/// Takes a snapshot, reads it at this speed at most while the server is driven, and destroys it.
fn beside_writes(
    bench: &mut Bench,
    server: &Server<'_>,
    limit: Option<f64>,
    scope: &Scope,
    options: &Options,
) -> Result<Phase> {
    MariaDb.rest(server)?;
    bench.system.snapshot(SNAPSHOT)?;
    let held =
        || -> Result<Option<u64>> { Ok(bench.system.held_bytes(&[SNAPSHOT.to_owned()])?.first().copied()) };
    let percent = || -> Result<Option<f64>> {
        let bytes = if bench.system.volume().is_some() { held()? } else { None };
        Ok(bytes.map(|bytes| bytes as f64 * 100.0 / scope.area_bytes as f64))
    };
    let past = bench.system.snapshot_folder(SNAPSHOT)?.join(NAME);
    let mut phase = both(server, &past, limit, &percent, scope, options)?;
    MariaDb.rest(server)?;
    // ZFS counts what a snapshot holds when it writes, every few seconds.
    bench.system.rest()?;
    phase.held_bytes = held()?;
    bench.system.destroy(SNAPSHOT)?;
    bench.system.rest()?;
    Ok(phase)
}

/// The backups that programs make by themselves. Where one is not there, or fails, the other phases hold.
fn by_programs(
    bench: &Bench,
    server: &Server<'_>,
    scope: &Scope,
    options: &Options,
    round: &mut Round,
) -> Result<()> {
    let data = bench.system.data()?;
    let mut keep = |program, outcome: Result<Phase>| {
        let phase = match outcome {
            Err(Error::Stopped) => return Err(Error::Stopped),
            outcome => outcome.unwrap_or_else(|error| Phase::failed(&error)),
        };
        round.insert(program, phase);
        Ok(())
    };
    keep(mariadb_backup::PROGRAM, mariadb_backup::run(server, &data, scope, options))?;
    let Some(volume) = bench.system.volume() else { return Ok(()) };
    MariaDb.rest(server)?;
    let outcome = mylvmbackup::run(server, bench.folder.path(), &data, &volume, scope, options);
    keep(mylvmbackup::PROGRAM, outcome)
}

/// Drives the server, and reads the snapshot again and again until that is over. `percent`: how much of a
/// copy area is in use.
fn both(
    server: &Server<'_>,
    past: &Path,
    limit: Option<f64>,
    percent: &dyn Fn() -> Result<Option<f64>>,
    scope: &Scope,
    options: &Options,
) -> Result<Phase> {
    let over = &AtomicBool::new(false);
    let waiting = thread::current();
    thread::scope(|threads| {
        let pace = Pace::Until { over, bytes_per_second: limit };
        let reading = threads.spawn(move || copy_compressed(past, pace, options));
        let driving = threads.spawn(move || {
            let driven = server.drive(WORKLOAD, scope.size, scope.drive);
            over.store(true, Ordering::Relaxed);
            waiting.unpark();
            driven
        });
        let mut area_percent = Vec::new();
        while !driving.is_finished() {
            area_percent.extend(percent()?);
            thread::park_timeout(LOOK);
        }
        let panicked = || Error::Panicked { what: "a backup".to_owned() };
        let driven = driving.join().unwrap_or_else(|_| Err(panicked()));
        let copied = reading.join().unwrap_or_else(|_| Err(panicked()))?;
        Ok(Phase { driven: Some(driven?), copied: Some(copied), area_percent, ..Phase::default() })
    })
}

fn check(findings: &mut Findings, rounds: &[Round], seed: u64) {
    let speeds = |variant| -> Vec<f64> {
        let copied = rounds.iter().filter_map(|round| round[variant].copied.as_ref());
        copied.map(Copied::bytes_per_second).collect()
    };
    let rates = |variant| -> Vec<f64> {
        let driven = rounds.iter().filter_map(|round| round[variant].driven.as_ref());
        driven.map(|driven| driven.per_second).collect()
    };
    let read = paired_ratio(&speeds(WRITING), &speeds(IDLE), seed);
    findings.check(Check::new("backup.icecore_read", read));
    let foreground = paired_ratio(&rates(HALF), &rates(ALONE), seed);
    findings.check(Check::new("backup.foreground", foreground));
}

/// Samples are MB/s where the speed of the backup is the question, and transactions a second otherwise.
fn report(findings: &mut Findings, kind: &Kind, rounds: &[Round]) {
    for variant in PHASES {
        let phases: Vec<&Phase> = rounds.iter().filter_map(|round| round.get(variant)).collect();
        if phases.is_empty() {
            continue;
        }
        let name = format!("{}/{variant}", kind.name);
        let is_speed = !matches!(variant, ALONE | HALF);
        let unit = if is_speed { "MB/s" } else { "transactions/s" };
        if let Some(failure) = phases.iter().find_map(|phase| phase.failure.as_ref()) {
            findings.system(&name, Measured::unavailable(unit, failure));
            continue;
        }
        let driven: Vec<&Driven> = phases.iter().filter_map(|phase| phase.driven.as_ref()).collect();
        let copied: Vec<&Copied> = phases.iter().filter_map(|phase| phase.copied.as_ref()).collect();
        let rates: Vec<f64> = driven.iter().map(|driven| driven.per_second).collect();
        let speeds: Vec<f64> = copied.iter().map(|copied| copied.bytes_per_second() / 1e6).collect();
        let mut counters = BTreeMap::new();
        let held: Vec<f64> =
            phases.iter().filter_map(|phase| phase.held_bytes).map(|bytes| bytes as f64).collect();
        for (name, values) in
            [("foreground_per_s", &rates), ("read_mb_per_s", &speeds), ("held_bytes", &held)]
        {
            if !values.is_empty() {
                counters.insert(name.to_owned(), mean(values));
            }
        }
        let mut system = Measured::new(unit, if is_speed { speeds } else { rates });
        if !driven.is_empty() {
            let each_second = driven.iter().map(|driven| driven.each_second.clone()).collect();
            system = system.with_series("foreground_per_s", each_second);
        }
        if !copied.is_empty() {
            let each_second = copied.iter().map(|copied| copied.megabytes_each_second()).collect();
            system = system.with_series("read_mb_per_s", each_second);
        }
        let area_percent: Vec<Vec<f64>> = phases.iter().map(|phase| phase.area_percent.clone()).collect();
        if area_percent.iter().any(|values| !values.is_empty()) {
            system = system.with_series("cow_used_percent", area_percent);
        }
        findings.system(&name, system.with_counters(counters));
    }
}
