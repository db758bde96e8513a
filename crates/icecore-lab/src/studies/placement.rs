//! `placement`: which files of a database belong on which disk, after "Yet another on SSD, MySQL and TPC-C"
//! (2009).
//!
//! A MariaDB is driven by a workload like TPC-C that does not fit into its cache. Its files lie on a
//! simulated hard disk, on the disk of the folder that is measured (`ssd`), or in memory: the redo log, the
//! system tablespace (doublewrite buffer, change buffer and undo log), and the tables.

use super::Bench;
use crate::device::{Device, DeviceCounts};
use crate::disks::model::HardDisk;
use crate::disks::{self, Simulated};
use crate::error::{Doing as _, Error, Result};
use crate::experiments::Findings;
use crate::options::Options;
use crate::pairs::interleave;
use crate::report::System as Measured;
use crate::room;
use crate::server::orders::{Orders, Scale};
use crate::server::{self, Drive, Server, Setup, mariadb::MariaDb, option};
use crate::statistics::mean;
use crate::systems::loopback::{self, Loop};
use crate::systems::{Areas, Kind, SYSTEMS};
use crate::tool;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// A place for files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Hdd,
    Ssd,
    SecondSsd,
    Memory,
}

/// Where the files are.
struct Placement {
    /// The name in results.
    name: &'static str,
    redo: Place,
    /// The system tablespace.
    system: Place,
    tables: Place,
}

const fn placement(name: &'static str, redo: Place, system: Place, tables: Place) -> Placement {
    Placement { name, redo, system, tables }
}

/// Those of the study.
const PLACEMENTS: [Placement; 6] = [
    placement("hdd", Place::Hdd, Place::Hdd, Place::Hdd),
    placement("ssd", Place::Ssd, Place::Ssd, Place::Ssd),
    placement("redo-on-hdd", Place::Hdd, Place::Ssd, Place::Ssd),
    placement("redo-and-system-on-hdd", Place::Hdd, Place::Hdd, Place::Ssd),
    placement("redo-and-system-on-tmpfs", Place::Memory, Place::Memory, Place::Ssd),
    placement("redo-and-system-on-second-ssd", Place::SecondSsd, Place::SecondSsd, Place::Ssd),
];
/// All files on a mount, on the same disk as `ssd`, set up as the guide advises.
const MOUNT: &str = "icecore-mount";
/// Without it a transaction goes on after a timeout, with a statement less.
const ROLLBACK: &str = "--innodb-rollback-on-timeout=1";

/// What a warehouse of the published size takes, with its indexes and some growth.
const WAREHOUSE_BYTES: u64 = 120 << 20;

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
        let published = Scale { warehouses: 100, items: 100_000, customers: 3000 };
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
        Self {
            scale: options.size(published, quick),
            cache_mib: options.size(2048, if toy { 8 } else { 32 }),
            drive: Drive { clients, time: Duration::from_secs(seconds) },
            device_bytes: options.size(24 << 30, if toy { 512 << 20 } else { 2 << 30 }),
            disk,
        }
    }

    /// Bytes that are there at the same time, at most: the database, and two disks that are written whole.
    fn room(&self) -> u64 {
        self.scale.warehouses * WAREHOUSE_BYTES + 2 * self.device_bytes
    }
}

/// What one placement did in one round.
struct Run {
    new_orders_per_minute: f64,
    each_second: Vec<f64>,
    /// By place.
    counts: Vec<(&'static str, DeviceCounts)>,
}

pub(crate) fn run(options: &Options) -> Result<Findings> {
    server::require(&MariaDb)?;
    let absent = |reason| Error::Inconclusive { what: "placement".to_owned(), reason };
    disks::probe().map_err(absent)?;
    let (scope, rounds) = (Scope::of(options), options.rounds(3, 1));
    let orders = Orders::new(scope.scale)?;
    room::require(&options.directory, scope.room(), "placement, with a database and two disks,")?;
    let folder = options.scratch()?;
    server::open_to_all(folder.path())?;
    let source = folder.path().join("source");
    fill(&source, &orders, &scope, options)?;
    let mount = SYSTEMS.iter().find(|kind| kind.name == MOUNT).filter(|kind| (kind.probe)().is_ok());
    let names: Vec<&str> = PLACEMENTS.iter().map(|one| one.name).chain(mount.map(|kind| kind.name)).collect();
    let measured = interleave(rounds, names.len(), |round, place| {
        options.say(&format!("round {} of {rounds}: {}", round + 1, names[place]))?;
        let done = match (PLACEMENTS.get(place), mount) {
            (Some(placement), _) => on_disks(placement, &source, &orders, &scope, options),
            (None, Some(kind)) => on_mount(kind, &source, &orders, &scope, options),
            (None, None) => unreachable!("there are as many names as placements"),
        }?;
        options.say(&format!("  {}: {:.0} new orders/min", names[place], done.new_orders_per_minute))?;
        Ok(done)
    })?;
    let mut findings = Findings::default();
    for (name, runs) in names.iter().zip(&measured) {
        report(&mut findings, name, runs);
    }
    findings.parameter("rounds", rounds);
    findings.parameter("workload", "like TPC-C, without think time: new orders a minute are not tpmC");
    findings.parameter("warehouses", scope.scale.warehouses);
    findings.parameter("items", scope.scale.items);
    findings.parameter("customers_per_district", scope.scale.customers);
    findings.parameter("clients", scope.drive.clients);
    findings.parameter("slice_s", scope.drive.time.as_secs_f64());
    findings.parameter("cache_mib", scope.cache_mib);
    findings.parameter("disk", scope.disk.words().as_str());
    Ok(findings)
}

/// Makes the database that each placement gets a copy of.
fn fill(source: &Path, orders: &Orders, scope: &Scope, options: &Options) -> Result<()> {
    options.say(&format!("making a database of {} warehouses", scope.scale.warehouses))?;
    // Everything fits: the cache is large only here.
    let setup = Setup { cache_mib: scope.cache_mib.max(256), ..Setup::default() };
    server::make_empty(&MariaDb, source, options)?;
    let server = Server::start(&MariaDb, source, setup, "select 1", options)?;
    server.ask("create database sbtest")?;
    orders.load(&server)?;
    orders.check(&server)?;
    server.stop()
}

/// The disks of one placement.
struct Disks {
    // Dropped in this order.
    hdd: Option<Simulated>,
    ssd: Option<Loop>,
    second: Option<Loop>,
    memory: Option<Memory>,
    _folder: TempDir,
}

impl Disks {
    fn begin(placement: &Placement, scope: &Scope, options: &Options) -> Result<Self> {
        let folder = options.scratch()?;
        server::open_to_all(folder.path())?;
        let needs = |place| [placement.redo, placement.system, placement.tables].contains(&place);
        let on_disk =
            |name: &str| Loop::begin_in(folder.path(), name, scope.device_bytes, &loopback::EXT4, options);
        let hdd = || Simulated::begin(folder.path(), scope.disk, scope.device_bytes, options);
        let memory = || Memory::begin(folder.path().join("memory"), options);
        Ok(Self {
            hdd: needs(Place::Hdd).then(hdd).transpose()?,
            ssd: needs(Place::Ssd).then(|| on_disk("ssd")).transpose()?,
            second: needs(Place::SecondSsd).then(|| on_disk("second-ssd")).transpose()?,
            memory: needs(Place::Memory).then(memory).transpose()?,
            _folder: folder,
        })
    }

    fn folder(&self, place: Place) -> Option<&Path> {
        match place {
            Place::Hdd => self.hdd.as_ref().map(Simulated::point),
            Place::Ssd => self.ssd.as_ref().map(Loop::point),
            Place::SecondSsd => self.second.as_ref().map(Loop::point),
            Place::Memory => self.memory.as_ref().map(|memory| memory.0.as_path()),
        }
    }

    /// A folder for one sort of files, which belongs to the server.
    fn subfolder(&self, place: Place, name: &str, options: &Options) -> Result<PathBuf> {
        let missing = || Error::Mismatch { what: "a placement".to_owned(), detail: format!("no {place:?}") };
        let folder = self.folder(place).ok_or_else(missing)?;
        server::open_to_all(folder)?;
        let made = folder.join(name);
        server::make_folder(&MariaDb, &made, options)?;
        Ok(made)
    }

    fn devices(&self) -> Vec<(&'static str, &Device)> {
        let hdd = self.hdd.as_ref().map(|hdd| ("hdd", hdd.device()));
        let ssd = self.ssd.as_ref().map(|ssd| ("ssd", ssd.device()));
        let second = self.second.as_ref().map(|second| ("second_ssd", second.device()));
        [hdd, ssd, second].into_iter().flatten().collect()
    }
}

/// A file system in memory. It goes when the value is dropped.
struct Memory(PathBuf);

impl Memory {
    fn begin(point: PathBuf, options: &Options) -> Result<Self> {
        fs::create_dir(&point).doing(|| format!("make {}", point.display()))?;
        loopback::mount(Path::new("tmpfs"), &point, "tmpfs", "rw", options)?;
        Ok(Self(point))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        loopback::unmount(&self.0);
    }
}

fn on_disks(
    placement: &Placement,
    source: &Path,
    orders: &Orders,
    scope: &Scope,
    options: &Options,
) -> Result<Run> {
    let disks = Disks::begin(placement, scope, options)?;
    let data = disks.subfolder(placement.tables, "tables", options)?;
    let redo = disks.subfolder(placement.redo, "redo", options)?;
    let system = disks.subfolder(placement.system, "system", options)?;
    let doing = || format!("list {}", source.display());
    for entry in fs::read_dir(source).doing(doing)? {
        let file = entry.doing(doing)?.path();
        let folder = match file.file_name().and_then(OsStr::to_str) {
            Some("ib_logfile0") => &redo,
            Some("ibdata1") => &system,
            _ => &data,
        };
        tool::output(Command::new("cp").arg("-a").arg(&file).arg(folder), options)?;
    }
    let more = [
        option("--innodb-log-group-home-dir", &redo),
        option("--innodb-data-home-dir", &system),
        ROLLBACK.into(),
    ];
    let setup = Setup { cache_mib: scope.cache_mib, advised: false, more: &more };
    drive(&data, setup, orders, scope, &disks.devices(), options)
}

fn on_mount(kind: &Kind, source: &Path, orders: &Orders, scope: &Scope, options: &Options) -> Result<Run> {
    let mut bench = Bench::begin(kind, scope.device_bytes, Areas::default(), options)?;
    server::open_to_all(bench.folder.path())?;
    bench.attempt(kind, |bench| {
        let data = bench.system.data()?.join("tables");
        tool::output(Command::new("cp").arg("-a").arg(source).arg(&data), options)?;
        let more = [ROLLBACK.into()];
        let setup = Setup { cache_mib: scope.cache_mib, advised: true, more: &more };
        drive(&data, setup, orders, scope, &[("ssd", bench.system.device())], options)
    })
}

/// Drives a server on these files. Counts are those of the time in which it is driven.
fn drive(
    data: &Path,
    setup: Setup<'_>,
    orders: &Orders,
    scope: &Scope,
    devices: &[(&'static str, &Device)],
    options: &Options,
) -> Result<Run> {
    let server = Server::start(&MariaDb, data, setup, "select 1", options)?;
    let warm_up = Drive { time: (scope.drive.time / 4).max(Duration::from_secs(1)), ..scope.drive };
    orders.drive(&server, warm_up)?;
    let before: Vec<DeviceCounts> = devices.iter().map(|(_, device)| device.counts()).collect();
    let ordered = orders.drive(&server, scope.drive)?;
    let since = |((name, device), before): (&(&'static str, &Device), DeviceCounts)| {
        (*name, device.counts() - before)
    };
    let counts = devices.iter().zip(before).map(since).collect();
    orders.check(&server)?;
    server.stop()?;
    let each_second = ordered.all.each_second;
    Ok(Run { new_orders_per_minute: ordered.new_orders_per_minute, each_second, counts })
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
    let system = Measured::new("orders/min", samples).with_series("transactions_per_s", each_second);
    findings.system(name, system.with_counters(counters));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor;

    #[test]
    fn the_room_of_a_full_run_is_what_the_doctor_asks_for() {
        let room = Scope::of(&Options::new(".")).room();
        assert!(room <= doctor::SPACE_BYTES && room > doctor::SPACE_BYTES - (1 << 30), "{room}");
    }
}
