//! What happens in the guest: the study itself, as a process of its own.

use super::boot::silence;
use super::watch::STEP;
use crate::disks::model::HardDisk;
use crate::error::{Doing, Result};
use crate::options::{DatabaseServer, LoadTool, Options};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// A study in the guest, with the choices of the run outside.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StudyJob {
    name: String,
    directory: PathBuf,
    result: PathBuf,
    pairs: Option<usize>,
    systems: Vec<String>,
    iterations: Option<u32>,
    size: Option<u64>,
    time_limit: Duration,
    tool: LoadTool,
    server: DatabaseServer,
    rate: Option<u32>,
    disk: Option<HardDisk>,
    quick: bool,
    seed: u64,
    /// How this program is started again within the guest.
    arguments: Vec<String>,
}

impl StudyJob {
    /// The study works in `directory` and writes its document to `result`, both in the guest.
    pub(super) fn new(name: &str, directory: &str, result: &str, options: &Options) -> Self {
        let arguments = options.child.arguments.iter();
        Self {
            name: name.to_owned(),
            directory: directory.into(),
            result: result.into(),
            pairs: options.pairs,
            systems: options.systems.clone(),
            iterations: options.iterations,
            size: options.size,
            // Before the guest is taken for dead.
            time_limit: options.time_limit.min(silence(options) * 3 / 4),
            tool: options.tool,
            server: options.server,
            rate: options.rate,
            disk: options.disk,
            quick: options.quick,
            seed: options.seed,
            arguments: arguments.map(|argument| argument.to_string_lossy().into_owned()).collect(),
        }
    }

    /// How the program in the guest is started.
    pub(super) fn arguments(&self) -> &[String] {
        &self.arguments
    }
}

/// Runs in the guest.
pub(crate) fn serve(job: &StudyJob) -> Result<()> {
    let mut options = Options::new(&job.directory);
    options.pairs = job.pairs;
    options.systems.clone_from(&job.systems);
    options.iterations = job.iterations;
    options.size = job.size;
    options.time_limit = job.time_limit;
    options.tool = job.tool;
    options.server = job.server;
    options.rate = job.rate;
    options.disk = job.disk;
    options.quick = job.quick;
    options.seed = job.seed;
    options.child.arguments = job.arguments.iter().map(Into::into).collect();
    // Outside is where a step is shown, and missed.
    options.progress = Arc::new(|line| {
        let mut output = std::io::stdout().lock();
        let _ = writeln!(output, "\n{STEP}{line}").and_then(|()| output.flush());
    });
    let report = crate::experiments::run(&job.name, &options)?;
    fs::write(&job.result, report.to_json()).doing(|| format!("write {}", job.result.display()))
}
