//! The experiments, one module each, and what they have in common.

mod bulk;
mod clone;
pub mod collect;
pub mod commits;
mod connect;
mod crowd;
mod databases;
pub mod demo_rss;
pub mod floor;
mod footprint;
pub mod history;
pub mod many_store;
pub mod metadata;
mod mount;
mod randread;
pub mod randwrite;
pub mod recovery;
mod snapshots;
pub mod soak;
mod spill;
pub mod valuation_store;

use crate::clock;
use crate::conditions;
use crate::disks::model::HardDisk;
use crate::disks::real::Lent;
use crate::disks::{self, Simulated};
use crate::error::{Error, Result};
use crate::guest;
use crate::machine::Machine;
use crate::options::Options;
use crate::report::{Check, Parameter, REPORT_VERSION, Report, System, Versions};
use crate::room;
use crate::server;
use crate::studies;
use icecore::OpenOptions;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

type Run = fn(&Options) -> Result<Findings>;

/// One experiment: a name, what it is about, and how to run it.
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// What it is for.
    pub group: Group,
    /// What it does with a simulated disk.
    pub disk: DiskUse,
    /// Whether it goes on for as long as [`Options::duration`] says. The others take no notice of that.
    pub timed: bool,
    /// Bytes that a study needs at the same time, without copy areas of LVM.
    pub(crate) room: fn(&Options) -> u64,
    run: Run,
}

impl Experiment {
    /// The checks that it can run one by one, as [`Options::only`] says. The others take no notice of that.
    #[must_use]
    pub fn single_checks(&self) -> Vec<&'static str> {
        if self.name == "mount" { mount::checks().collect() } else { Vec::new() }
    }
}

/// What an experiment does with a simulated disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskUse {
    /// It cannot use one.
    None,
    /// It has one among its disks.
    Part,
    /// All of it runs on one.
    Whole,
}

/// What an experiment is for. Lists show the groups apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    /// A study that compares systems with snapshots.
    Study,
    /// A measurement of the store alone, or beside a plain file system.
    Store,
}

const fn study(name: &'static str, about: &'static str, room: fn(&Options) -> u64, run: Run) -> Experiment {
    Experiment { name, about, group: Group::Study, disk: DiskUse::Whole, timed: false, room, run }
}

const fn store(name: &'static str, about: &'static str, run: Run) -> Experiment {
    Experiment { name, about, group: Group::Store, disk: DiskUse::None, timed: false, room: |_| 0, run }
}

/// Every experiment that there is.
pub const EXPERIMENTS: &[Experiment] = &[
    study(
        "shock",
        "16 KiB random writes before, at and after a snapshot, on each system",
        studies::shock::room,
        studies::shock::run,
    ),
    study(
        "valuation",
        "95 versions of a growing SQLite database, on each system",
        studies::valuation::room,
        studies::valuation::run,
    ),
    study(
        "fragment",
        "reading a file that was updated at random after a snapshot",
        studies::fragment::room,
        studies::fragment::run,
    ),
    study(
        "blog",
        "the mix of blogbench before and after a snapshot",
        studies::blog::room,
        studies::blog::run,
    ),
    study(
        "backup",
        "reading a snapshot of MariaDB while it writes, on each system",
        studies::backup::room,
        studies::backup::run,
    ),
    Experiment {
        disk: DiskUse::Part,
        ..study(
            "placement",
            "which files of a database belong on which disk",
            studies::placement::room,
            studies::placement::run,
        )
    },
    study(
        "full",
        "a store of snapshots that runs full: what is lost",
        studies::full::room,
        studies::full::run,
    ),
    study(
        "many",
        "what 1 to 10,000 snapshots cost, and destroying them",
        studies::many::room,
        studies::many::run,
    ),
    Experiment {
        disk: DiskUse::None,
        ..study(
            "model",
            "why: each way to keep a snapshot, replayed without a kernel",
            |_| 0,
            studies::model::run,
        )
    },
    store(
        "valuation-store",
        "95 versions of a growing SQLite database, beside plain SQLite",
        valuation_store::run,
    ),
    store("commits", "durable one-row transactions a second", commits::run),
    store(
        "connect",
        "a connection for each request: opening, one SELECT, closing, beside plain",
        connect::run,
    ),
    store("crowd", "a writer beside eight readers and a snapshot every 20 ms, beside plain WAL", crowd::run),
    store("randwrite", "durable random 16 KiB writes, beside pwrite + fdatasync", randwrite::run),
    store(
        "randwrite-metadata",
        "bytes of metadata per byte of data, random writes over a huge file",
        metadata::run,
    ),
    store("many-store", "10,000 snapshots: taking, writing, listing, opening", many_store::run),
    store("demo-rss", "peak memory of the demonstration", demo_rss::run),
    store("recovery", "opening after a kill with the longest log", recovery::run),
    store("collect", "what collection costs: bytes, throughput, latency, memory", collect::run),
    store("history", "100,000 snapshots: taking, listing, opening, memory, destroying", history::run),
    store("mount", "fio and small files on a mount, beside the filesystem of the folder", mount::run),
    store("clone", "a second MariaDB on a clone of a mount, until it answers", clone::run),
    store(
        "mariadb",
        "MariaDB on a mount with snapshots, beside the filesystem of the folder, and Btrfs",
        databases::mariadb,
    ),
    store(
        "postgres",
        "PostgreSQL on a mount with snapshots, beside the filesystem of the folder",
        databases::postgres,
    ),
    store(
        "randread",
        "random reads of a file updated at random, caches empty, beside direct preads",
        randread::run,
    ),
    store("bulk", "filling a file 1 MiB at a time, and reading it, beside direct I/O", bulk::run),
    store("footprint", "what a pool takes up while an idle connection has a snapshot open", footprint::run),
    store("spill", "statements that change more than SQLite's cache holds, beside plain WAL", spill::run),
    Experiment {
        timed: true,
        ..store("soak", "a pool at work for hours: memory, open files and space do not grow", soak::run)
    },
];

/// What an experiment adds to the report.
#[derive(Default)]
pub(crate) struct Findings {
    parameters: BTreeMap<String, Parameter>,
    systems: BTreeMap<String, System>,
    checks: Vec<Check>,
}

impl Findings {
    pub(crate) fn parameter(&mut self, name: &str, value: impl Into<Parameter>) {
        self.parameters.insert(name.to_owned(), value.into());
    }

    pub(crate) fn system(&mut self, name: &str, system: System) {
        self.systems.insert(name.to_owned(), system);
    }

    /// The systems so far.
    #[cfg(test)]
    pub(crate) fn systems(&self) -> &BTreeMap<String, System> {
        &self.systems
    }

    pub(crate) fn check(&mut self, check: Check) {
        self.checks.push(check);
    }
}

/// Runs the experiment of that name.
///
/// # Errors
/// There is no such experiment; or something failed while it ran, and then there is no result at all.
pub fn run(name: &str, options: &Options) -> Result<Report> {
    let experiment =
        EXPERIMENTS.iter().find(|experiment| experiment.name == name).ok_or_else(|| unknown(name))?;
    for path in options.record.iter().chain([&options.directory]) {
        require_plain(path)?;
    }
    if let Some(guest) = &options.guest {
        return guest::run(experiment, options, guest);
    }
    if let Some(device) = &options.device {
        let lent = Lent::begin(device, options)?;
        return run(name, &Options { directory: lent.point().to_owned(), device: None, ..options.clone() });
    }
    // Those of a run before are not in this result.
    let options = &Options { mounts: Arc::default(), ..options.clone() };
    let (started, begin) = (clock::now(), Instant::now());
    let machine = Machine::examine(&options.directory)?;
    options.say(&format!("{name} on {machine}"))?;
    let mut findings = match options.disk {
        Some(disk) if experiment.disk == DiskUse::Whole => on_disk(experiment, disk, options)?,
        _ => (experiment.run)(options)?,
    };
    findings.parameter("seed", options.seed);
    for (parameter, value) in conditions::of(name, &findings.systems, &findings.parameters, options) {
        findings.parameter(&parameter, value.as_str());
    }
    Ok(Report {
        version: REPORT_VERSION,
        experiment: name.to_owned(),
        started,
        duration_s: begin.elapsed().as_secs_f64(),
        quick: options.quick,
        machine,
        versions: versions(),
        parameters: findings.parameters,
        systems: findings.systems,
        checks: findings.checks,
    })
}

/// What ends a value in a job of fio, is between files or options, or stands for two bytes in its output.
const NOT_IN_PATHS: [char; 4] = [';', '#', ':', ','];

/// Refuses a path that programs would cut short, and so write somewhere else.
fn require_plain(path: &Path) -> Result<()> {
    let full = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let refuse = |what: String| Err(Error::UnusablePath { path: path.to_owned(), what });
    let Some(text) = full.to_str() else { return refuse("bytes that are no UTF-8".to_owned()) };
    match text.chars().find(|letter| NOT_IN_PATHS.contains(letter) || letter.is_control()) {
        Some(letter) => refuse(format!("{letter:?}")),
        None => Ok(()),
    }
}

/// Bytes of a simulated disk for a study that needs no more. A debug build, which shows only that it runs,
/// does not wait for a large file system to be made on a slow disk.
const DISK_BYTES: u64 = if cfg!(debug_assertions) { 4 << 30 } else { 32 << 30 };

/// Runs the experiment on a simulated disk.
fn on_disk(experiment: &Experiment, disk: HardDisk, options: &Options) -> Result<Findings> {
    let what = || format!("{} on a simulated disk", experiment.name);
    disks::probe().map_err(|reason| Error::Inconclusive { what: what(), reason })?;
    let folder = options.scratch()?;
    server::open_to_all(folder.path())?;
    let needed = (experiment.room)(options);
    room::require(folder.path(), needed, &what())?;
    // The file system needs room for its own tables.
    let bytes = DISK_BYTES.max(needed + needed / 8);
    let simulated = Simulated::begin(folder.path(), disk, bytes, options)?;
    let inner = Options { directory: simulated.point().to_owned(), disk: None, ..options.clone() };
    let mut findings = (experiment.run)(&inner)?;
    findings.parameter("disk", disk.words().as_str());
    Ok(findings)
}

/// How experiments in slices open their pools: with the defaults, which so many slices take through several
/// checkpoints and the whole log; in a quick run with a log short enough for some checkpoint to happen.
fn open_options(options: &Options) -> OpenOptions {
    let default = OpenOptions::default();
    OpenOptions { log_bytes_max: options.size(default.log_bytes_max, 16 << 20), ..default }
}

/// Size of the file in experiments on cold reads and bulk writes: `usual`, or 2 GiB in a quick run. A debug
/// build shows only that they run.
fn file_bytes(options: &Options, usual: u64) -> u64 {
    let quick = if cfg!(debug_assertions) { 32 << 20 } else { 2 << 30 };
    options.size(usual, quick)
}

fn unknown(name: &str) -> Error {
    let known: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
    Error::UnknownExperiment { name: name.to_owned(), known: known.join(", ") }
}

pub(crate) fn versions() -> Versions {
    Versions {
        icecore: env!("CARGO_PKG_VERSION").to_owned(),
        sqlite: rusqlite::version().to_owned(),
        rustc: env!("ICECORE_LAB_RUSTC").to_owned(),
        profile: env!("ICECORE_LAB_PROFILE").to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The GiB that an experiment needs at full size, rounded up.
    fn room(name: &str, change: impl FnOnce(&mut Options)) -> u64 {
        let mut options = Options::new(".");
        change(&mut options);
        let experiment = EXPERIMENTS.iter().find(|one| one.name == name).expect("it is one");
        (experiment.room)(&options).div_ceil(1 << 30)
    }

    /// fio takes the path up to the character, and writes there.
    #[test]
    fn a_path_that_programs_cut_short_is_refused_before_anything_is_written() {
        use std::os::unix::ffi::OsStrExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let names: [&[u8]; 6] = [b"a;old", b"a#old", b"a:old", b"a,old", b"a\told", b"a\xffold"];
        for name in names {
            let path = folder.path().join(std::ffi::OsStr::from_bytes(name));
            std::fs::create_dir(&path).expect("made");
            let error = run("fragment", &Options::new(&path)).expect_err("refused").to_string();
            assert!(error.contains("Choose another one"), "{error}");
            let mut options = Options::new(folder.path());
            options.record = Some(path.clone());
            assert!(matches!(run("shock", &options), Err(Error::UnusablePath { .. })));
            assert_eq!(std::fs::read_dir(&path).expect("there").count(), 0);
        }
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), names.len());
    }

    #[test]
    fn each_study_knows_its_room_and_none_needs_more_than_60_gib() {
        let known = EXPERIMENTS.iter().map(|one| (one.name, room(one.name, |_| {})));
        let known: Vec<(&str, u64)> = known.filter(|(_, room)| *room > 0).collect();
        let expected = [
            ("shock", 8),
            ("valuation", 6),
            ("fragment", 5),
            ("blog", 16),
            ("backup", 12),
            ("placement", 60),
            ("full", 2),
            ("many", 8),
        ];
        assert_eq!(known, expected);
    }

    #[test]
    fn more_data_needs_more_room() {
        assert_eq!(room("valuation", |options| options.iterations = Some(850)), 47);
        let quick = |iterations| {
            move |options: &mut Options| {
                *options = Options { quick: true, iterations, ..options.clone() };
            }
        };
        assert_eq!(room("valuation", quick(None)), 1);
        assert!(room("valuation", quick(Some(8_500))) > 1);
        assert_eq!(room("fragment", |options| options.size = Some(10 << 30)), 21);
        assert_eq!(room("backup", |options| options.size = Some(1 << 30)), 15);
        assert_eq!(room("placement", |options| options.size = Some(1 << 30)), 10);
        for study in ["fragment", "backup", "placement"] {
            assert!(room(study, |options| options.size = Some(u64::MAX)) >= 1 << 33, "{study}");
        }
    }
}
