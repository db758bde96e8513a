//! Measurements that need a process of their own: the program starts itself again.
//!
//! What the new process is to do stands in an environment variable, so that any program which calls
//! [`serve`] from a hidden subcommand (or a test) can play the part.

use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::systems::mounted;
use crate::tool::{self, Tool};
use crate::{demo, disks, experiments, guest};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Holds the job of a process started by the lab, as JSON.
pub const JOB_VARIABLE: &str = "ICECORE_LAB_JOB";

/// How to start a process that calls [`serve`].
#[derive(Clone, Debug)]
pub struct ChildCommand {
    /// The program; `None` is the one that runs now.
    pub program: Option<PathBuf>,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl Default for ChildCommand {
    /// This program with the arguments `child`.
    fn default() -> Self {
        Self { program: None, arguments: vec!["child".into()] }
    }
}

/// What a process may be started for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Job {
    /// Runs the demonstration and prints its outcome as JSON.
    Demo(demo::DemoOptions),
    /// Makes a long log, says so, and goes on until it is killed.
    LongLog(experiments::recovery::LongLog),
    /// Builds the location map of a large pool and prints how much memory that takes.
    ThinMap(experiments::collect::memory::ThinMap),
    /// Opens a pool, does nothing with it, and prints how much memory that takes.
    IdlePool(experiments::history::idle::IdlePool),
    /// Mounts a pool and says so.
    Mount(mounted::MountJob),
    /// Serves a simulated disk and says so.
    Disk(disks::serve::DiskJob),
    /// Mounts the least that a file system can do, and says so.
    Floor(experiments::floor::FloorJob),
    /// Works on a pool for a long time, and prints after each cycle what it takes.
    Soak(experiments::soak::process::Soak),
    /// Runs a study in the guest.
    Study(guest::study::StudyJob),
}

impl ChildCommand {
    /// Starts the job, its standard output captured and its standard error ours.
    pub(crate) fn start(&self, job: &Job) -> Result<Tool> {
        Tool::start(self.command(job)?.stdout(Stdio::piped()))
    }

    fn command(&self, job: &Job) -> Result<Command> {
        let program = match &self.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().doing(|| "find this program's own file".to_owned())?,
        };
        let text = serde_json::to_string(job).map_err(|error| job.failure(&error.to_string()))?;
        let mut command = Command::new(program);
        command.args(&self.arguments).env(JOB_VARIABLE, text);
        Ok(command)
    }

    /// Does the job in a process of its own, and answers the outcome that it printed: a line of JSON.
    pub(crate) fn run<T: DeserializeOwned>(&self, job: &Job, options: &Options) -> Result<T> {
        let text = tool::output(&mut self.command(job)?, options).map_err(|error| match error {
            Error::Child { reason, .. } => job.failure(&reason),
            other => other,
        })?;
        // What the program itself prints may stand around the outcome.
        let outcome = text.lines().find_map(|line| serde_json::from_str(line).ok());
        outcome.ok_or_else(|| job.failure("it printed no outcome"))
    }
}

impl Job {
    /// Waits until the process that does this job prints a line with `ready`.
    ///
    /// # Errors
    /// It ends before, or takes longer than [`Options::time_limit`]; [`Error::Stopped`] if the run is to stop.
    pub(crate) fn wait_until_ready(&self, process: &mut Tool, ready: &str, options: &Options) -> Result<()> {
        let output = process.process().stdout.take();
        let output = output.ok_or_else(|| self.failure("its output is not captured"))?;
        let end = Instant::now() + options.time_limit;
        let mut reader = BufReader::new(output);
        let mut line = String::new();
        let is_ready = loop {
            tool::wait_for_output(&reader, || {
                options.go_on()?;
                if Instant::now() >= end {
                    return Err(self.failure(&format!("it was not ready within {:?}", options.time_limit)));
                }
                Ok(())
            })?;
            line.clear();
            match reader.read_line(&mut line) {
                Ok(0) | Err(_) => break false,
                Ok(_) if line.contains(ready) => break true,
                Ok(_) => {}
            }
        };
        // It may print more, and a pipe without a reader would end it.
        process.process().stdout = Some(reader.into_inner());
        if is_ready { Ok(()) } else { Err(self.failure("it ended before it was ready")) }
    }

    /// The error of a process that did not do this job.
    pub(crate) fn failure(&self, reason: &str) -> Error {
        let job = match self {
            Self::Demo(_) => "the demonstration",
            Self::LongLog(_) => "making a long log",
            Self::ThinMap(_) => "building a thin map",
            Self::IdlePool(_) => "opening a pool and leaving it alone",
            Self::Mount(_) => "the mount",
            Self::Disk(_) => "the simulated disk",
            Self::Floor(_) => "the floor of a mount",
            Self::Soak(_) => "soaking",
            Self::Study(_) => "the study in the guest",
        };
        Error::Child { job: job.to_owned(), reason: reason.to_owned() }
    }
}

/// Does the job that the process was started for. The hidden subcommand `icecore-lab child` calls this.
pub fn serve() -> Result<()> {
    let refuse = |reason: String| Error::Child { job: "a hidden subcommand".to_owned(), reason };
    let text = std::env::var(JOB_VARIABLE)
        .map_err(|_| refuse(format!("{JOB_VARIABLE} is not set: only the lab itself starts it")))?;
    match serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))? {
        Job::Demo(options) => experiments::demo_rss::serve(&options),
        Job::LongLog(job) => experiments::recovery::serve(&job),
        Job::ThinMap(job) => experiments::collect::memory::serve(&job),
        Job::IdlePool(job) => experiments::history::idle::serve(&job),
        Job::Mount(job) => mounted::serve(&job),
        Job::Disk(job) => disks::serve::serve(&job),
        Job::Floor(job) => experiments::floor::serve(&job),
        Job::Soak(job) => experiments::soak::process::serve(&job),
        Job::Study(job) => guest::study::serve(&job),
    }
}
