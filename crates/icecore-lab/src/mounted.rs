//! A pool that is mounted by a process of its own.

use crate::child::Job;
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use icecore::admin::connect_or_open;
use icecore::admin::protocol::Request;
use icecore::{InitOptions, OpenOptions, Pool};
use icecore_fuse::{MountOptions, mounting};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Child;

const DATASET: &str = "lab";
/// Printed when the mount is live.
const READY: &str = "the mount is live";

/// What the process of a mount does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountJob {
    pool: PathBuf,
    point: PathBuf,
}

/// A mount; it ends when the value is dropped.
pub(crate) struct Mounted {
    job: MountJob,
    process: Child,
}

impl Mounted {
    /// Makes a pool with one dataset in the folder, and mounts the dataset beside it.
    pub(crate) fn begin(folder: &Path, options: &Options) -> Result<Self> {
        let job = MountJob { pool: folder.join("pool"), point: folder.join("mount") };
        Pool::init_directory(&job.pool, &InitOptions::default())?;
        let pool = Pool::open_directory(&job.pool, &OpenOptions::default())?;
        pool.create_dataset(DATASET, false, &[])?;
        pool.close()?;
        fs::create_dir(&job.point).doing(|| format!("make {}", job.point.display()))?;
        let wanted = Job::Mount(job.clone());
        let mut process = options.child.start(&wanted)?;
        let output = process.stdout.take().ok_or_else(|| wanted.failure("its output is not captured"))?;
        let mounted = Self { job, process };
        let mut lines = BufReader::new(output).lines().map_while(std::io::Result::ok);
        if lines.any(|line| line.contains(READY)) {
            Ok(mounted)
        } else {
            Err(wanted.failure("it ended before the mount was live"))
        }
    }

    /// The folder that programs use.
    pub(crate) fn point(&self) -> &Path {
        &self.job.point
    }

    /// The folder of the pool.
    pub(crate) fn pool(&self) -> &Path {
        &self.job.pool
    }

    /// The folder in which a snapshot appears.
    pub(crate) fn snapshot_folder(&self, name: &str) -> PathBuf {
        self.job.point.join(".icecore/snapshots").join(name)
    }

    /// Takes a snapshot through the control socket of the mount.
    pub(crate) fn snapshot(&self, name: &str) -> Result<()> {
        let failed = |failure: icecore::admin::Failure| Error::Mismatch {
            what: format!("snapshot {name} of the mount"),
            detail: failure.to_string(),
        };
        let mut access = connect_or_open(&self.job.pool, false).map_err(failed)?;
        let names = vec![format!("{DATASET}@{name}")];
        let request = Request::Snapshot { names, recursive: false, properties: Vec::new() };
        access.call(request).map_err(failed)?;
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if mounting::unmount(&self.job.point).is_err() {
            let _ = mounting::detach(&self.job.point);
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}

/// Runs in the process of the mount, until the mount goes away.
pub(crate) fn serve(job: &MountJob) -> Result<()> {
    let options = MountOptions::new(job.pool.clone(), Some(DATASET.to_owned()), job.point.clone());
    let ready = || {
        // A reader that is gone is one that does not wait any more.
        let _ = writeln!(std::io::stdout(), "\n{READY}");
        let _ = std::io::stdout().flush();
    };
    icecore_fuse::serve(&options, ready, || false)
        .map_err(|error| Job::Mount(job.clone()).failure(&error.to_string()))
}
