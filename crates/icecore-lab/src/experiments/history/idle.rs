//! Memory of a process that has opened a pool and does nothing with it.

use crate::child::Job;
use crate::error::{Error, Result};
use crate::machine::{peak_memory_bytes, resident_memory_bytes};
use crate::options::Options;
use icecore::{OpenOptions, Pool};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// After so long, what opening leaves to the background is done.
const REST: Duration = Duration::from_secs(2);

/// Which pool to open.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IdlePool {
    /// Its folder.
    pub path: PathBuf,
}

#[derive(Serialize, Deserialize)]
pub(super) struct Memory {
    pub resident_bytes: u64,
    /// The most that opening took.
    pub peak_bytes: u64,
}

/// What a fresh process takes that opens the pool.
pub(super) fn measure(options: &Options, path: &Path) -> Result<Memory> {
    let job = Job::IdlePool(IdlePool { path: path.to_owned() });
    options.child.run(&job, options)
}

/// Runs in the process of its own.
pub(crate) fn serve(job: &IdlePool) -> Result<()> {
    let failure = |reason: &str| Error::Child {
        job: "opening a pool and leaving it alone".to_owned(),
        reason: reason.to_owned(),
    };
    let unknown = || failure("the kernel has no figure for the memory in use");
    let pool = Pool::open_directory(&job.path, &OpenOptions::default())?;
    thread::sleep(REST);
    let memory = Memory {
        resident_bytes: resident_memory_bytes().ok_or_else(unknown)?,
        peak_bytes: peak_memory_bytes().ok_or_else(unknown)?,
    };
    pool.close()?;
    let text = serde_json::to_string(&memory).map_err(|error| failure(&error.to_string()))?;
    println!("\n{text}");
    Ok(())
}
