//! A pool that is mounted by a process of its own.

use crate::child::Job;
use crate::counters::Counters;
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::tool::Tool;
use icecore::admin::connect_or_open;
use icecore::admin::protocol::{Request, Response};
use icecore::{DestroyTarget, InitOptions, OpenOptions, Pool};
use icecore_fuse::{MountOptions, mounting};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The one dataset of the pool.
pub(crate) const DATASET: &str = "lab";
/// Options of a mount for database servers.
pub(crate) const FOR_SERVERS: &str = "noxattr";
/// Printed when the mount is live.
const READY: &str = "the mount is live";

/// How long the process of a mount may take to close its pool; then it is killed.
const PATIENCE: Duration = Duration::from_secs(120);

/// What the process of a mount does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountJob {
    pool: PathBuf,
    /// The whole pool if there is none.
    dataset: Option<String>,
    point: PathBuf,
    /// As `mount -o` has them.
    options: String,
}

/// A mount; it ends when the value is dropped.
pub(crate) struct Mounted {
    job: MountJob,
    process: Tool,
}

impl Mounted {
    /// Makes a pool with one dataset in the folder, and mounts the dataset beside it.
    pub(crate) fn begin(folder: &Path, options: &Options) -> Result<Self> {
        Self::begin_with(Some(DATASET.to_owned()), "", folder, options)
    }

    /// The same for a database server, mounted as the guide advises: servers use no extended attributes.
    pub(crate) fn begin_for_server(folder: &Path, options: &Options) -> Result<Self> {
        Self::begin_with(Some(DATASET.to_owned()), FOR_SERVERS, folder, options)
    }

    /// The same, with the whole pool mounted: its dataset is the folder [`DATASET`], and clones appear beside that.
    pub(crate) fn begin_pool(folder: &Path, options: &Options) -> Result<Self> {
        Self::begin_with(None, FOR_SERVERS, folder, options)
    }

    fn begin_with(
        dataset: Option<String>,
        mount_options: &str,
        folder: &Path,
        options: &Options,
    ) -> Result<Self> {
        let (pool, point) = (folder.join("pool"), folder.join("mount"));
        let job = MountJob { pool, dataset, point, options: mount_options.to_owned() };
        Pool::init_directory(&job.pool, &InitOptions::default())?;
        let pool = Pool::open_directory(&job.pool, &OpenOptions::default())?;
        pool.create_dataset(DATASET, false, &[])?;
        pool.close()?;
        fs::create_dir(&job.point).doing(|| format!("make {}", job.point.display()))?;
        let wanted = Job::Mount(job.clone());
        let mut process = options.child.start(&wanted)?;
        let output =
            process.process().stdout.take().ok_or_else(|| wanted.failure("its output is not captured"))?;
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
        let names = vec![format!("{DATASET}@{name}")];
        self.call(Request::Snapshot { names, recursive: false, properties: Vec::new() }).map(|_| ())
    }

    /// Destroys a snapshot.
    pub(crate) fn destroy_snapshot(&self, name: &str) -> Result<()> {
        self.destroy(DestroyTarget::Snapshot(format!("{DATASET}@{name}")))
    }

    /// Clones a snapshot as another dataset.
    pub(crate) fn clone_snapshot(&self, name: &str, target: &str) -> Result<()> {
        let snapshot = format!("{DATASET}@{name}");
        self.call(Request::Clone { snapshot, target: target.to_owned(), parents: false }).map(|_| ())
    }

    /// Destroys a dataset.
    pub(crate) fn destroy_dataset(&self, name: &str) -> Result<()> {
        self.destroy(DestroyTarget::Dataset { name: name.to_owned(), recursive: false })
    }

    fn destroy(&self, target: DestroyTarget) -> Result<()> {
        self.call(Request::Destroy { target }).map(|_| ())
    }

    /// What the store and the process of the mount have done so far.
    pub(crate) fn counters(&self) -> Result<Counters> {
        let mut counters = match self.call(Request::Status)? {
            Response::Status(status) => Counters::of_statistics(&status.statistics),
            other => {
                return Err(Error::Mismatch { what: "a status".to_owned(), detail: format!("{other:?}") });
            }
        };
        let path = format!("/proc/{}/io", self.process.id().as_raw_nonzero());
        let text = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
        // Each request of FUSE is read by one call, and answered by one at most.
        for (line, name) in [("syscr", "mount_read_calls"), ("syscw", "mount_write_calls")] {
            let value =
                text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(": ")?.parse().ok());
            counters.set(name, value.unwrap_or(0.0));
        }
        Ok(counters)
    }

    fn call(&self, request: Request) -> Result<Response> {
        let failed = |failure: icecore::admin::Failure| Error::Mismatch {
            what: "an answer of the mount".to_owned(),
            detail: failure.to_string(),
        };
        let mut access = connect_or_open(&self.job.pool, false).map_err(failed)?;
        access.call(request).map_err(failed)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if mounting::unmount(&self.job.point).is_err() {
            let _ = mounting::detach(&self.job.point);
        } else {
            let _ = self.process.ends_within(PATIENCE);
        }
    }
}

/// Runs in the process of the mount, until the mount goes away.
pub(crate) fn serve(job: &MountJob) -> Result<()> {
    let mut options = MountOptions::new(job.pool.clone(), job.dataset.clone(), job.point.clone());
    options.apply(&job.options).map_err(|reason| Job::Mount(job.clone()).failure(&reason))?;
    let ready = || {
        // A reader that is gone is one that does not wait any more.
        let _ = writeln!(std::io::stdout(), "\n{READY}");
        let _ = std::io::stdout().flush();
    };
    // A lab that was killed could not unmount.
    let lab = rustix::process::getppid();
    icecore_fuse::serve(&options, ready, || rustix::process::getppid() != lab)
        .map_err(|error| Job::Mount(job.clone()).failure(&error.to_string()))
}
