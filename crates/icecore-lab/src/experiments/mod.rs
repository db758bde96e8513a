//! The experiments, one module each, and what they have in common.

mod bulk;
mod clone;
pub mod collect;
pub mod commits;
mod crowd;
mod databases;
pub mod demo_rss;
mod footprint;
pub mod history;
pub mod many;
pub mod metadata;
mod mount;
mod randread;
pub mod randwrite;
pub mod recovery;
mod snapshots;
pub mod soak;
pub mod valuation;

use crate::clock;
use crate::error::{Error, Result};
use crate::machine::Machine;
use crate::options::Options;
use crate::report::{Check, Parameter, REPORT_VERSION, Report, System, Versions};
use icecore::OpenOptions;
use std::collections::BTreeMap;
use std::time::Instant;

/// One experiment: a name, what it is about, and how to run it.
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// One line about it.
    pub about: &'static str,
    /// Whether it goes on for as long as [`Options::duration`] says. The others take no notice of that.
    pub timed: bool,
    run: fn(&Options) -> Result<Findings>,
}

impl Experiment {
    /// The checks that it can run one by one, as [`Options::only`] says. The others take no notice of that.
    #[must_use]
    pub fn single_checks(&self) -> Vec<&'static str> {
        if self.name == "mount" { mount::checks().collect() } else { Vec::new() }
    }
}

/// Every experiment that there is.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "valuation",
        about: "95 versions of a growing SQLite database, beside plain SQLite",
        timed: false,
        run: valuation::run,
    },
    Experiment {
        name: "commits",
        about: "durable one-row transactions a second",
        timed: false,
        run: commits::run,
    },
    Experiment {
        name: "crowd",
        about: "a writer beside eight readers and a snapshot every 20 ms, beside plain WAL",
        timed: false,
        run: crowd::run,
    },
    Experiment {
        name: "randwrite",
        about: "durable random 16 KiB writes, beside pwrite + fdatasync",
        timed: false,
        run: randwrite::run,
    },
    Experiment {
        name: "randwrite-metadata",
        about: "bytes of metadata per byte of data, random writes over a huge file",
        timed: false,
        run: metadata::run,
    },
    Experiment {
        name: "many",
        about: "10,000 snapshots: taking, writing, listing, opening",
        timed: false,
        run: many::run,
    },
    Experiment {
        name: "demo-rss",
        about: "peak memory of the demonstration",
        timed: false,
        run: demo_rss::run,
    },
    Experiment {
        name: "recovery",
        about: "opening after a kill with the longest log",
        timed: false,
        run: recovery::run,
    },
    Experiment {
        name: "collect",
        about: "what collection costs: bytes, throughput, latency, memory",
        timed: false,
        run: collect::run,
    },
    Experiment {
        name: "history",
        about: "100,000 snapshots: taking, listing, opening, memory, destroying",
        timed: false,
        run: history::run,
    },
    Experiment {
        name: "mount",
        about: "fio and small files on a mount, beside the filesystem of the folder",
        timed: false,
        run: mount::run,
    },
    Experiment {
        name: "clone",
        about: "a second MariaDB on a clone of a mount, until it answers",
        timed: false,
        run: clone::run,
    },
    Experiment {
        name: "mariadb",
        about: "MariaDB on a mount with snapshots, beside the filesystem of the folder, and Btrfs",
        timed: false,
        run: databases::mariadb,
    },
    Experiment {
        name: "postgres",
        about: "PostgreSQL on a mount with snapshots, beside the filesystem of the folder",
        timed: false,
        run: databases::postgres,
    },
    Experiment {
        name: "randread",
        about: "random reads of a file updated at random, caches empty, beside direct preads",
        timed: false,
        run: randread::run,
    },
    Experiment {
        name: "bulk",
        about: "filling a file 1 MiB at a time, and reading it, beside direct I/O",
        timed: false,
        run: bulk::run,
    },
    Experiment {
        name: "footprint",
        about: "what a pool takes up while an idle connection has a snapshot open",
        timed: false,
        run: footprint::run,
    },
    Experiment {
        name: "soak",
        about: "a pool at work for hours: memory, open files and space do not grow",
        timed: true,
        run: soak::run,
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
    fn parameter(&mut self, name: &str, value: impl Into<Parameter>) {
        self.parameters.insert(name.to_owned(), value.into());
    }

    fn system(&mut self, name: &str, system: System) {
        self.systems.insert(name.to_owned(), system);
    }

    fn check(&mut self, check: Check) {
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
    let (started, begin) = (clock::now(), Instant::now());
    let machine = Machine::examine(&options.directory)?;
    options.say(&format!("{name} on {machine}"))?;
    let mut findings = (experiment.run)(options)?;
    findings.parameter("seed", options.seed);
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

/// How experiments in slices open their pools: with the defaults, which so many slices take through several
/// checkpoints and the whole log; in a quick run with a log short enough for some checkpoint to happen.
fn open_options(options: &Options) -> OpenOptions {
    let default = OpenOptions::default();
    OpenOptions { log_bytes_max: options.size(default.log_bytes_max, 16 << 20), ..default }
}

/// Size of the file in experiments on cold reads and bulk writes: `usual`, or 2 GiB in a quick run. A debug build shows only that
/// they run.
fn file_bytes(options: &Options, usual: u64) -> u64 {
    let quick = if cfg!(debug_assertions) { 32 << 20 } else { 2 << 30 };
    options.size(usual, quick)
}

fn unknown(name: &str) -> Error {
    let known: Vec<_> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
    Error::UnknownExperiment { name: name.to_owned(), known: known.join(", ") }
}

fn versions() -> Versions {
    Versions {
        icecore: env!("CARGO_PKG_VERSION").to_owned(),
        sqlite: rusqlite::version().to_owned(),
        rustc: env!("ICECORE_LAB_RUSTC").to_owned(),
        profile: env!("ICECORE_LAB_PROFILE").to_owned(),
    }
}
