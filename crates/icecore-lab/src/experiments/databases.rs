//! `mariadb` and `postgres`: a server on a mount with snapshots, beside the same server on the filesystem of
//! the folder without.
//!
//! All servers run all the time, and one at a time is driven. The data of all are copies of one database.
//! After each slice the server that was driven writes what is dirty, outside the time measured, so that it
//! leaves the disk to the next.

use super::Findings;
use crate::counters::Counters;
use crate::error::{Doing, Result};
use crate::options::Options;
use crate::pairs::interleave;
use crate::programs;
use crate::report::{Check, System};
use crate::server::{self, Drive, Driven, Kind, Server, Setup, Size, mariadb::MariaDb, postgres::Postgres};
use crate::snapshotting::{Kept, while_taking};
use crate::statistics::paired_ratio;
use crate::systems::btrfs::Btrfs;
use crate::systems::mounted::{FOR_SERVERS, Mounted};
use crate::tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Snapshots that are there at a time: those of a minute.
const KEPT: usize = 6;
const BTRFS_BYTES: u64 = 8 << 30;

pub(super) fn mariadb(options: &Options) -> Result<Findings> {
    run(&MariaDb, options.rounds(6, 2), options)
}

pub(super) fn postgres(options: &Options) -> Result<Findings> {
    run(&Postgres, options.rounds(12, 2), options)
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Plain,
    Mount,
    Btrfs,
}

/// What is compared. The places of the first three are those of their checks.
#[derive(Clone, Copy)]
struct Side {
    name: &'static str,
    place: Place,
    advised: bool,
}

const SIDES: [Side; 4] = [
    Side { name: "plain", place: Place::Plain, advised: false },
    Side { name: "icecore", place: Place::Mount, advised: false },
    Side { name: "icecore_advised", place: Place::Mount, advised: true },
    Side { name: "btrfs", place: Place::Btrfs, advised: false },
];

/// Each check of a kind of server: the side above, and the one below the line.
const CHECKS: [(&str, usize, usize); 3] = [("default", 1, 0), ("advised", 2, 0), ("vs_btrfs", 1, 3)];

/// How much is done.
#[derive(Clone, Copy)]
struct Scope {
    size: Size,
    cache_mib: u64,
    drive: Drive,
    interval: Duration,
}

impl Scope {
    fn of(options: &Options) -> Self {
        let rows = options.size(100_000, 5_000);
        // A debug build shows only that it runs. The first snapshot comes after half a second.
        let quick_s = if cfg!(debug_assertions) { 2 } else { 3 };
        Self {
            size: Size { tables: 4, rows, scale: options.size(10, 1) },
            // Half of the data or less: pages are read and written while the server is driven.
            cache_mib: options.size(64, 8),
            drive: Drive { clients: 8, time: Duration::from_secs(options.size(20, quick_s)) },
            interval: options.size(Duration::from_secs(10), Duration::from_secs(1)),
        }
    }
}

fn run(kind: &'static dyn Kind, rounds: usize, options: &Options) -> Result<Findings> {
    programs::require(kind.name(), "")?;
    let scope = Scope::of(options);
    let folder = options.scratch()?;
    server::open_to_all(folder.path())?;
    let grounds = Grounds::make(kind, folder.path(), scope, options)?;
    let mut bench = Bench::start(kind, &grounds, scope, options)?;
    let sides = bench.servers.len();
    let workloads = kind.workloads();
    options.say("warming up")?;
    for index in 0..sides * workloads.len() {
        let warm_up = Drive { time: (scope.drive.time / 2).max(Duration::from_secs(1)), ..scope.drive };
        bench.slice(index % sides, workloads[index / sides], warm_up)?;
    }
    let samples = interleave(rounds, sides * workloads.len(), |round, index| {
        let (side, workload) = (index % sides, workloads[index / sides]);
        let sample = bench.slice(side, workload, scope.drive)?;
        let (name, rate) = (SIDES[side].name, sample.driven.per_second);
        options
            .say(&format!("round {} of {rounds}: {name} {workload} {rate:.0} transactions/s", round + 1))?;
        Ok(sample)
    })?;
    let taken = bench.kept.taken();
    bench.servers.into_iter().try_for_each(Server::stop)?;
    let mut findings = conclude(kind, &samples, sides, options.seed);
    parameters(&mut findings, scope, rounds, taken);
    if let Some(Err(reason)) = &grounds.btrfs {
        findings.parameter("btrfs", format!("left out: {reason}").as_str());
    }
    Ok(findings)
}

/// The filesystems. They are dropped after the servers.
struct Grounds<'a> {
    mounted: Mounted,
    /// Where it is to be compared with: the filesystem, or why there is none.
    btrfs: Option<Result<Btrfs, String>>,
    folder: &'a Path,
}

impl<'a> Grounds<'a> {
    /// Makes them, and one database that is copied to each side.
    fn make(kind: &dyn Kind, folder: &'a Path, scope: Scope, options: &Options) -> Result<Self> {
        options.say("making a database")?;
        let source = folder.join("source");
        server::make(kind, &source, scope.setup(false), scope.size, options)?;
        let mounted = Mounted::begin_for_server(folder, options)?;
        let beside_btrfs = kind.name() == "mariadb";
        let btrfs = beside_btrfs.then(|| Btrfs::begin(folder, BTRFS_BYTES, options)).transpose()?;
        let grounds = Self { mounted, btrfs, folder };
        for side in &SIDES {
            if let Some(data) = grounds.data(side) {
                options.say(&format!("copying the database to {}", data.display()))?;
                tool::output(Command::new("cp").arg("-a").arg(&source).arg(data), options)?;
            }
        }
        fs::remove_dir_all(&source).doing(|| format!("remove {}", source.display()))?;
        Ok(grounds)
    }

    /// The folder of a side's data, if the side takes part.
    fn data(&self, side: &Side) -> Option<PathBuf> {
        let folder = match side.place {
            Place::Plain => self.folder.to_owned(),
            Place::Mount => self.mounted.point().to_owned(),
            Place::Btrfs => self.btrfs.as_ref()?.as_ref().ok()?.data(),
        };
        Some(folder.join(side.name))
    }
}

impl Scope {
    fn setup(&self, advised: bool) -> Setup<'static> {
        Setup { cache_mib: self.cache_mib, advised, more: &[] }
    }
}

/// The servers, in the order of [`SIDES`].
struct Bench<'a> {
    kind: &'static dyn Kind,
    servers: Vec<Server<'a>>,
    grounds: &'a Grounds<'a>,
    scope: Scope,
    kept: Kept,
    kept_on_btrfs: Kept,
}

impl<'a> Bench<'a> {
    fn start(
        kind: &'static dyn Kind,
        grounds: &'a Grounds<'a>,
        scope: Scope,
        options: &'a Options,
    ) -> Result<Self> {
        let mut servers = Vec::new();
        for side in &SIDES {
            if let Some(data) = grounds.data(side) {
                options.say(&format!("starting the server {}", side.name))?;
                let server = Server::start(kind, &data, scope.setup(side.advised), kind.query(), options)?;
                kind.rest(&server)?;
                servers.push(server);
            }
        }
        let (kept, kept_on_btrfs) = (Kept::default(), Kept::default());
        Ok(Self { kind, servers, grounds, scope, kept, kept_on_btrfs })
    }

    /// Drives one server for some time, with the snapshots of its side.
    fn slice(&mut self, side: usize, workload: &str, drive: Drive) -> Result<Sample> {
        let (server, size, mounted) = (&self.servers[side], self.scope.size, &self.grounds.mounted);
        let counted = || -> Result<(Counters, Counters)> {
            let of_mount = SIDES[side].place == Place::Mount;
            let mount = if of_mount { mounted.counters()? } else { Counters::default() };
            Ok((Counters::of_device(self.grounds.folder), mount))
        };
        let before = counted()?;
        let work = || server.drive(workload, size, drive);
        let driven = match (SIDES[side].place, &self.grounds.btrfs) {
            (Place::Mount, _) => {
                let take = |name: &str| mounted.snapshot(name);
                let destroy = |name: &str| mounted.destroy_snapshot(name);
                let kept = &mut self.kept;
                while_taking(self.scope.interval, || kept.another(KEPT, take, destroy), work)?
            }
            (Place::Btrfs, Some(Ok(btrfs))) => {
                let take = |name: &str| btrfs.snapshot(name);
                let destroy = |name: &str| btrfs.destroy(name);
                let kept = &mut self.kept_on_btrfs;
                while_taking(self.scope.interval, || kept.another(KEPT, take, destroy), work)?
            }
            _ => work()?,
        };
        let after = counted()?;
        self.kind.rest(server)?;
        let counters = Counters::sum([&after.0.since(&before.0), &after.1.since(&before.1)]);
        Ok(Sample { driven, counters })
    }
}

/// What one slice answers.
struct Sample {
    driven: Driven,
    counters: Counters,
}

fn conclude(kind: &dyn Kind, samples: &[Vec<Sample>], sides: usize, seed: u64) -> Findings {
    let mut findings = Findings::default();
    let rates =
        |slices: &[Sample]| -> Vec<f64> { slices.iter().map(|slice| slice.driven.per_second).collect() };
    // By side: the geometric mean of all workloads, round by round.
    let means: Vec<Vec<f64>> = (0..sides)
        .map(|side| {
            let all: Vec<Vec<f64>> =
                samples.iter().skip(side).step_by(sides).map(|slices| rates(slices)).collect();
            let product = |round: usize| all.iter().map(|rates| rates[round]).product::<f64>();
            (0..all[0].len()).map(|round| product(round).powf(1.0 / all.len() as f64)).collect()
        })
        .collect();
    for (name, above, below) in CHECKS.into_iter().filter(|(_, above, below)| sides > *above.max(below)) {
        let ratio = paired_ratio(&means[above], &means[below], seed);
        findings.check(Check::new(&format!("{}.{name}", kind.name()), ratio));
    }
    for (index, slices) in samples.iter().enumerate() {
        let name = format!("{}_{}", SIDES[index % sides].name, kind.workloads()[index / sides]);
        let system = System::new("transactions/s", rates(slices));
        findings.system(&name, system.with_counters(counters(slices).into_map()));
    }
    findings
}

/// The counters of all slices, and what they make for each transaction.
fn counters(slices: &[Sample]) -> Counters {
    let mut sum = Counters::sum(slices.iter().map(|slice| &slice.counters));
    let transactions: f64 = slices.iter().map(|slice| slice.driven.transactions).sum();
    sum.set("transactions", transactions);
    for name in ["device_flushes", "device_writes", "device_written_bytes", "mount_read_calls"] {
        if sum.get(name) > 0.0 {
            sum.set(&format!("{name}_per_transaction"), sum.get(name) / transactions);
        }
    }
    sum
}

fn parameters(findings: &mut Findings, scope: Scope, rounds: usize, taken: u64) {
    findings.parameter("mount_options", FOR_SERVERS);
    findings.parameter("rounds", rounds);
    findings.parameter("slice_s", scope.drive.time.as_secs_f64());
    findings.parameter("clients", scope.drive.clients);
    findings.parameter("cache_mib", scope.cache_mib);
    findings.parameter("snapshot_interval_s", scope.interval.as_secs_f64());
    findings.parameter("snapshots_kept", KEPT);
    findings.parameter("snapshots_taken", taken);
    findings.parameter("sysbench_tables", scope.size.tables);
    findings.parameter("sysbench_rows", scope.size.rows);
    findings.parameter("pgbench_scale", scope.size.scale);
}
