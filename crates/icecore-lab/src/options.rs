//! How an experiment is to be run.

use crate::child::ChildCommand;
use crate::conditions::Mounts;
use crate::disks::model::HardDisk;
use crate::error::{Doing, Error, Result};
use crate::guest::Guest;
use crate::policies::Every;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Receives one line per step of a run.
pub type Progress = Arc<dyn Fn(&str) + Send + Sync>;

/// Answers whether the run is to stop.
pub type Stop = Arc<dyn Fn() -> bool + Send + Sync>;

/// The seed where none is given.
pub(crate) const SEED: u64 = 20_141_001;

/// Longer than any step of a study takes at its full size.
const TIME_LIMIT: Duration = Duration::from_secs(2 * 60 * 60);

/// A run that waits looks so often whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// A program that drives a study, where there is a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum LoadTool {
    /// fio(1), which logs each write.
    #[default]
    Fio,
    /// sysbench(1) in its mode `fileio`, as in the study.
    Sysbench,
    /// bonnie++(8).
    Bonnie,
    /// blogbench(8), which the study `blog` imitates unless this is chosen.
    Blogbench,
}

impl LoadTool {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Fio, Self::Sysbench, Self::Bonnie, Self::Blogbench];

    /// The name of the program.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fio => "fio",
            Self::Sysbench => "sysbench",
            Self::Bonnie => "bonnie++",
            Self::Blogbench => "blogbench",
        }
    }

    /// The study that it drives.
    #[must_use]
    pub fn study(self) -> &'static str {
        match self {
            Self::Fio | Self::Sysbench | Self::Bonnie => "shock",
            Self::Blogbench => "blog",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }
}

/// The database server of the study `placement`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum DatabaseServer {
    /// MariaDB, the successor of the server of the study.
    #[default]
    MariaDb,
    /// PostgreSQL.
    Postgres,
}

impl DatabaseServer {
    /// Both.
    pub const ALL: [Self; 2] = [Self::MariaDb, Self::Postgres];

    /// The name on the command line and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::MariaDb => "mariadb",
            Self::Postgres => "postgres",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|server| server.name() == name)
    }
}

/// Choices common to all experiments.
#[derive(Clone)]
pub struct Options {
    /// Folder on the filesystem to measure; everything is made in a temporary folder within it.
    pub directory: PathBuf,
    /// Rounds of interleaved runs; each experiment has its own default.
    pub pairs: Option<usize>,
    /// How long to go on, for experiments that are [timed](crate::experiments::Experiment::timed).
    pub duration: Option<Duration>,
    /// The one check to run, of experiments that have [single](crate::experiments::Experiment::single_checks)
    /// ones.
    pub only: Option<String>,
    /// The systems that a study compares, by name; all that this machine can run if empty.
    pub systems: Vec<String>,
    /// Iterations of the study `valuation`; 95 unless said.
    pub iterations: Option<u32>,
    /// Bytes of the file of the study `fragment`, 2 GiB unless said; of the database of the study `backup`,
    /// 500 MB unless said; of that of `placement`, 10 GB unless said, with a cache, disks and runs in
    /// proportion; or of the device on which the study `blog` runs blogbench, 28 GiB unless said.
    pub size: Option<u64>,
    /// The writes that the study `model` replays, recorded by fio; random ones unless said.
    pub trace: Option<PathBuf>,
    /// A result of the study `shock`, whose counts and writes the study `model` takes; published ones unless
    /// said.
    pub against: Option<PathBuf>,
    /// Bytes of a chunk of LVM's classic snapshots in the study `model`;
    /// [4 KiB](crate::policies::CLASSIC_CHUNK_BYTES) unless said.
    pub chunk: Option<u64>,
    /// How often the study `model` takes a snapshot; all before the writes unless said.
    pub every: Option<Every>,
    /// Bytes of a copy area of a classic snapshot, of which the study `model` says when it is full.
    pub area: Option<u64>,
    /// The file into which the study `shock` records writes of the system `plain`. fio alone does so.
    pub record: Option<PathBuf>,
    /// A simulated disk to measure in place of the filesystem of `directory`; in `placement`, the hard disk.
    pub disk: Option<HardDisk>,
    /// How long one program of a system may take, such as a run of fio: two hours unless said.
    pub time_limit: Duration,
    /// The program that drives the study `shock`; or [`LoadTool::Blogbench`], with which the study `blog`
    /// runs that program in place of its own mix.
    pub tool: LoadTool,
    /// The server of the study `placement`.
    pub server: DatabaseServer,
    /// Writes a second of the study `shock`; as many as the system takes unless said.
    pub rate: Option<u32>,
    /// A whole disk to measure in place of the filesystem of `directory`. It has to be empty, and is empty
    /// again at the end.
    pub device: Option<PathBuf>,
    /// Small sizes and few rounds: exercises the harness in seconds, means nothing.
    pub quick: bool,
    /// Seed of workloads and of the bootstrap.
    pub seed: u64,
    /// Receives what is going on.
    pub progress: Progress,
    /// Asked again and again while an experiment runs. An experiment that is to stop ends with
    /// [`Error::Stopped`], and leaves nothing behind.
    pub stop: Stop,
    /// The machine in which a study runs, if not on this one.
    pub guest: Option<Guest>,
    /// How to start this program again, for experiments that need a process of their own.
    pub child: ChildCommand,
    /// How the systems of the run are mounted.
    pub(crate) mounts: Arc<Mounts>,
}

impl Options {
    /// The defaults, measuring the filesystem of `directory`, silently.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            pairs: None,
            duration: None,
            only: None,
            systems: Vec::new(),
            iterations: None,
            size: None,
            trace: None,
            against: None,
            chunk: None,
            every: None,
            area: None,
            record: None,
            disk: None,
            time_limit: TIME_LIMIT,
            tool: LoadTool::default(),
            server: DatabaseServer::default(),
            rate: None,
            device: None,
            quick: false,
            seed: SEED,
            progress: Arc::new(|_| ()),
            stop: Arc::new(|| false),
            guest: None,
            child: ChildCommand::default(),
            mounts: Arc::default(),
        }
    }

    /// Rounds to run: what was asked for, else `usual`, or `quick` in a quick run.
    pub(crate) fn rounds(&self, usual: usize, quick: usize) -> usize {
        self.pairs.unwrap_or(if self.quick { quick } else { usual }).max(1)
    }

    /// `usual`, or `quick` in a quick run.
    pub(crate) fn size<T>(&self, usual: T, quick: T) -> T {
        if self.quick { quick } else { usual }
    }

    /// The same for what must not stop half-way.
    pub(crate) fn unstoppable(&self) -> Self {
        Self { stop: Arc::new(|| false), ..self.clone() }
    }

    /// Shows what is going on, and ends the run here if it is to stop.
    pub(crate) fn say(&self, line: &str) -> Result<()> {
        (self.progress)(line);
        self.go_on()
    }

    /// Ends the run here if it is to stop.
    pub(crate) fn go_on(&self) -> Result<()> {
        if (self.stop)() { Err(Error::Stopped) } else { Ok(()) }
    }

    /// Waits for so long. A run that is to stop ends at once.
    pub(crate) fn wait(&self, time: Duration) -> Result<()> {
        self.wait_while(time, || true)
    }

    /// The same, but no longer than `goes_on` is true.
    pub(crate) fn wait_while(&self, time: Duration, goes_on: impl Fn() -> bool) -> Result<()> {
        let begin = Instant::now();
        loop {
            self.go_on()?;
            match time.saturating_sub(begin.elapsed()) {
                left if !left.is_zero() && goes_on() => thread::sleep(left.min(LOOK)),
                _ => return Ok(()),
            }
        }
    }

    /// A folder that vanishes with the value returned.
    pub(crate) fn scratch(&self) -> Result<TempDir> {
        scratch_in(&self.directory)
    }
}

/// A temporary folder in `parent`.
pub(crate) fn scratch_in(parent: &Path) -> Result<TempDir> {
    tempfile::Builder::new()
        .prefix("icecore-lab-")
        .tempdir_in(parent)
        .doing(|| format!("make a temporary folder in {}", parent.display()))
}
