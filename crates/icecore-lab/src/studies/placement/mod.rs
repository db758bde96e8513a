//! `placement`: which files of a database belong on which disk, after "Yet another on SSD, MySQL and TPC-C"
//! (2009).
//!
//! A MariaDB or a PostgreSQL is driven by a workload like TPC-C that does not fit into its cache. Its files
//! lie on a simulated hard disk, on the disk of the folder that is measured (`ssd`), or in memory: the log,
//! the system tablespace of MariaDB (doublewrite buffer, change buffer and undo log), and the tables.

mod layout;
mod places;

use super::Bench;
use super::turns::{Absent, Seat, in_turn};
use crate::device::{Device, DeviceCounts};
use crate::disks;
use crate::disks::model::HardDisk;
use crate::driving::{self, Of};
use crate::error::{Error, Result};
use crate::experiments::Findings;
use crate::machine;
use crate::options::Options;
use crate::programs;
use crate::report::System as Measured;
use crate::room;
use crate::server::orders::{Orders, Scale};
use crate::server::{self, Drive, Server, Setup};
use crate::statistics::mean;
use crate::systems::{Areas, Kind, SYSTEMS};
use crate::tool;
use layout::{Layout, Placement};
use places::Disks;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// All files on a mount, on the same disk as `ssd`, set up as the guide advises.
const MOUNT: &str = "icecore-mount";
const UNIT: &str = "orders/min";

/// What a warehouse of the published size takes, with its indexes and some growth.
const WAREHOUSE_BYTES: u64 = 120 << 20;
/// What the log of PostgreSQL grows to (`max_wal_size`).
const LOG_BYTES: u64 = 1 << 30;

/// The warehouses of the study, and what one of them takes in the table files of a new database.
const WAREHOUSES: u64 = 100;
const NEW_WAREHOUSE_BYTES: u64 = 100 << 20;
/// A run on a smaller database is shorter, but no shorter than this.
const SLICE_MIN_S: u64 = 60;
/// A disk for them. That of a smaller database is smaller, but no smaller than the least: the logs of the
/// servers do not shrink.
const DEVICE_BYTES: u64 = 24 << 30;
const DEVICE_BYTES_MIN: u64 = 4 << 30;

/// How much is done.
struct Scope {
    scale: Scale,
    cache_mib: u64,
    drive: Drive,
    device_bytes: u64,
    disk: HardDisk,
}

impl Scope {
    fn of(options: &Options) -> Self {
        let toy = cfg!(debug_assertions);
        let published = Scale { warehouses: WAREHOUSES, items: 100_000, customers: 3000 };
        let quick = if toy {
            Scale { warehouses: 1, items: 1000, customers: 30 }
        } else {
            Scale { warehouses: 2, ..published }
        };
        let (clients, seconds) = options.size((20, 600), (8, if toy { 1 } else { 8 }));
        let mut disk = options.disk.unwrap_or(HardDisk::of_7200());
        if toy {
            disk.time_scale = 0.2;
        }
        let mut scope = Self {
            scale: options.size(published, quick),
            cache_mib: options.size(2048, if toy { 8 } else { 32 }),
            drive: Drive { clients, time: Duration::from_secs(seconds) },
            device_bytes: options.size(DEVICE_BYTES, if toy { 512 << 20 } else { 2 << 30 }),
            disk,
        };
        if let Some(bytes) = options.size {
            scope.resize((bytes / NEW_WAREHOUSE_BYTES).max(1));
        }
        scope
    }

    /// Scales cache, disks and time to this number of warehouses.
    fn resize(&mut self, warehouses: u64) {
        let scaled = |number: u64, of: u64| number.saturating_mul(warehouses).div_ceil(of);
        let (usual, seconds) = (self.scale.warehouses, self.drive.time.as_secs());
        self.cache_mib = scaled(self.cache_mib, usual);
        self.drive.time =
            Duration::from_secs(scaled(seconds, usual).clamp(SLICE_MIN_S.min(seconds), seconds));
        // Disks of a quick run are large for its database, as the logs of a server have a size of their own.
        let least = self.device_bytes.min(DEVICE_BYTES_MIN);
        self.device_bytes = scaled(DEVICE_BYTES, WAREHOUSES).max(least);
        self.scale.warehouses = warehouses;
    }

    /// Bytes that are there at the same time, at most: the database, and two disks that are written whole.
    fn room(&self) -> u64 {
        self.database_bytes().saturating_add(self.device_bytes.saturating_mul(2))
    }

    fn database_bytes(&self) -> u64 {
        self.scale.warehouses.saturating_mul(WAREHOUSE_BYTES)
    }

    /// Why a placement cannot be measured here: a whole database does not fit into memory.
    fn lack_of_memory(&self, placement: &Placement) -> Option<String> {
        let memory = LOG_BYTES.saturating_add(self.cache_mib.saturating_mul(1 << 20));
        let needed = self.database_bytes().saturating_add(memory);
        let available = machine::available_memory_bytes()?;
        (placement.is_in_memory() && available < needed).then(|| {
            let (needed, available) = (needed >> 20, available >> 20);
            format!("all files need {needed} MiB of memory, and {available} MiB are available")
        })
    }
}

/// Bytes that the study needs at the same time.
pub(crate) fn room(options: &Options) -> u64 {
    Scope::of(options).room()
}

/// What one placement did in one round.
struct Run {
    new_orders_per_minute: f64,
    /// What driving cost for each transaction, in microseconds.
    driving_us: f64,
    each_second: Vec<f64>,
    /// By place.
    counts: Vec<(&'static str, DeviceCounts)>,
}

/// What is compared.
enum Side {
    Disks(&'static Placement),
    Mount(&'static Kind),
}

impl Side {
    fn name(&self) -> &'static str {
        match self {
            Self::Disks(placement) => placement.name,
            Self::Mount(kind) => kind.name,
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<Findings> {
    programs::require("placement", &format!("--server {}", options.server.name()))?;
    let impossible = |reason| Error::Inconclusive { what: "placement".to_owned(), reason };
    disks::probe().map_err(impossible)?;
    let (scope, rounds) = (Scope::of(options), options.rounds(3, 1));
    let orders = Orders::new(scope.scale)?;
    room::require(&options.directory, scope.room(), "placement, with a database and two disks,")?;
    let folder = options.scratch()?;
    server::open_to_all(folder.path())?;
    let source = folder.path().join("source");
    let study = Study { layout: Layout::of(options.server), scope, orders, source, options };
    study.fill()?;
    let mut findings = study.findings();
    findings.parameter("rounds", rounds);
    let mut absent = Absent::new();
    let sides = study.sides(&mut absent);
    // The mount is what the study is about.
    let seat = |side: &Side| Seat {
        name: side.name(),
        shown: side.name().to_owned(),
        may_leave: matches!(side, Side::Disks(_)),
    };
    let measured = in_turn(sides, &mut absent, rounds, options, seat, |_, side| {
        let done = study.run(side)?;
        options.say(&format!("  {}: {:.0} new orders/min", side.name(), done.new_orders_per_minute))?;
        Ok(done)
    })?;
    for (name, reason) in &absent {
        findings.system(name, Measured::unavailable(UNIT, reason));
    }
    for (side, runs) in &measured {
        report(&mut findings, side.name(), runs);
    }
    let runs = measured.iter().flat_map(|(_, runs)| runs);
    driving::report(&mut findings, runs.map(|run| run.driving_us));
    Ok(findings)
}

/// What all runs have in common.
struct Study<'a> {
    layout: &'static Layout,
    scope: Scope,
    orders: Orders,
    /// The database of which each run gets a copy.
    source: PathBuf,
    options: &'a Options,
}

impl Study<'_> {
    /// Makes the database.
    fn fill(&self) -> Result<()> {
        let (kind, options) = (self.layout.kind, self.options);
        options.say(&format!("making a database of {} warehouses", self.scope.scale.warehouses))?;
        // Everything fits: the cache is large only here.
        let setup = Setup { cache_mib: self.scope.cache_mib.max(256), ..Setup::default() };
        server::make_empty(kind, &self.source, options)?;
        let server = Server::start(kind, &self.source, setup, "select 1", options)?;
        self.orders.load(&server)?;
        if let Some(statement) = self.layout.after_load {
            server.ask(statement)?;
        }
        self.orders.check(&server)?;
        server.stop()
    }

    /// How it is measured.
    fn findings(&self) -> Findings {
        let (scope, options, mut findings) = (&self.scope, self.options, Findings::default());
        findings.parameter("server", options.server.name());
        findings.parameter("workload", "like TPC-C, without think time: new orders a minute are not tpmC");
        findings.parameter("warehouses", scope.scale.warehouses);
        findings.parameter("items", scope.scale.items);
        findings.parameter("customers_per_district", scope.scale.customers);
        findings.parameter("clients", scope.drive.clients);
        findings.parameter("slice_s", scope.drive.time.as_secs_f64());
        findings.parameter("cache_mib", scope.cache_mib);
        findings.parameter("disk", scope.disk.words().as_str());
        findings
    }

    /// All that this machine can run.
    fn sides(&self, absent: &mut Absent) -> Vec<Side> {
        let mut sides = Vec::new();
        for placement in self.layout.placements {
            match self.scope.lack_of_memory(placement) {
                Some(reason) => absent.push((placement.name, reason)),
                None => sides.push(Side::Disks(placement)),
            }
        }
        for kind in SYSTEMS.iter().filter(|kind| kind.name == MOUNT) {
            match (kind.probe)() {
                Ok(()) => sides.push(Side::Mount(kind)),
                Err(reason) => absent.push((MOUNT, reason)),
            }
        }
        sides
    }

    fn run(&self, side: &Side) -> Result<Run> {
        match side {
            Side::Disks(placement) => self.on_disks(placement),
            Side::Mount(kind) => self.on_mount(kind),
        }
    }

    fn on_disks(&self, placement: &Placement) -> Result<Run> {
        let scope = &self.scope;
        let disks = Disks::begin(&placement.places(), scope.disk, scope.device_bytes, self.options)?;
        let (data, more) = self.layout.copy(&self.source, placement, &disks, self.options)?;
        let setup = Setup { cache_mib: scope.cache_mib, advised: false, more: &more };
        self.drive(&data, setup, &disks.devices(), || disks.answer_at_once())
    }

    fn on_mount(&self, kind: &Kind) -> Result<Run> {
        let mut bench = Bench::begin(kind, self.scope.device_bytes, Areas::default(), self.options)?;
        server::open_to_all(bench.folder.path())?;
        bench.attempt(kind, |bench| {
            let data = bench.system.data()?.join("data");
            tool::output(Command::new("cp").arg("-a").arg(&self.source).arg(&data), self.options)?;
            let more = self.layout.options();
            let setup = Setup { cache_mib: self.scope.cache_mib, advised: true, more: &more };
            self.drive(&data, setup, &[("ssd", bench.system.device())], || Ok(()))
        })
    }

    /// Drives a server on these files, and checks what it leaves. Counts are those of the time in which it is
    /// driven. `driven`: what is to be done between: on a hard disk the check would take three times as long.
    fn drive(
        &self,
        data: &Path,
        setup: Setup<'_>,
        devices: &[(&'static str, &Device)],
        driven: impl FnOnce() -> Result<()>,
    ) -> Result<Run> {
        let (orders, slice) = (&self.orders, self.scope.drive);
        let server = Server::start(self.layout.kind, data, setup, "select 1", self.options)?;
        let warm_up = Drive { time: (slice.time / 4).max(Duration::from_secs(1)), ..slice };
        orders.drive(&server, warm_up)?;
        let before: Vec<Option<DeviceCounts>> = devices.iter().map(|(_, device)| device.counted()).collect();
        let (ordered, driving_us) = Of::Programs.during(|| orders.drive(&server, slice))?;
        let since = |((name, device), before): (&(&'static str, &Device), Option<DeviceCounts>)| {
            Some((*name, device.counted()? - before?))
        };
        let counts = devices.iter().zip(before).filter_map(since).collect();
        driven()?;
        orders.check(&server)?;
        server.stop()?;
        let new_orders_per_minute = ordered.new_orders_per_minute;
        let driving_us = driving_us / ordered.all.transactions;
        Ok(Run { new_orders_per_minute, driving_us, each_second: ordered.all.each_second, counts })
    }
}

fn report(findings: &mut Findings, name: &str, runs: &[Run]) {
    let samples = runs.iter().map(|run| run.new_orders_per_minute).collect();
    let mut counters = BTreeMap::new();
    for device in ["hdd", "ssd", "second_ssd"] {
        let counts = || {
            let all = runs.iter().flat_map(|run| &run.counts);
            all.filter(|(name, _)| *name == device).map(|(_, counts)| counts)
        };
        let megabytes: Vec<f64> = counts().map(|counts| counts.written_bytes as f64 / 1e6).collect();
        let flushes: Vec<f64> = counts().map(|counts| counts.flushes as f64).collect();
        if !megabytes.is_empty() {
            counters.insert(format!("{device}_written_mb"), mean(&megabytes));
            counters.insert(format!("{device}_flushes"), mean(&flushes));
        }
    }
    let each_second = runs.iter().map(|run| run.each_second.clone()).collect();
    let system = Measured::new(UNIT, samples).with_series("transactions_per_s", each_second);
    findings.system(name, system.with_counters(counters));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smaller_database_has_a_smaller_cache_and_shorter_runs() {
        let sized = |size| Scope::of(&Options { size, ..Options::new(".") });
        let (whole, fifth, least) = (sized(None), sized(Some(2 << 30)), sized(Some(8 << 20)));
        assert_eq!((whole.scale.warehouses, whole.cache_mib, whole.drive.time.as_secs()), (100, 2048, 600));
        assert_eq!((fifth.scale.warehouses, fifth.cache_mib, fifth.drive.time.as_secs()), (20, 410, 120));
        assert_eq!((least.scale.warehouses, least.cache_mib, least.drive.time.as_secs()), (1, 21, 60));
        assert!(fifth.room() < whole.room() / 4 && least.device_bytes == DEVICE_BYTES_MIN);
        let larger = sized(Some(100 << 30));
        assert_eq!((larger.scale.warehouses, larger.cache_mib), (1024, 20_972));
        assert_eq!(larger.drive.time, whole.drive.time);
        assert_eq!(sized(Some(u64::MAX)).drive.time, whole.drive.time);
        let quick = |size| room(&Options { size, quick: true, ..Options::new(".") });
        assert!(quick(Some(10 << 30)) < whole.room() * 11 / 10, "a quick run needs no larger disks");
        assert!(quick(Some(8 << 20)) <= quick(None), "nor does one with the least database");
    }
}
