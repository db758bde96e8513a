//! A pool that is mounted by a process of its own.

use crate::child::Job;
use crate::counters::Counters;
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::served::{self, Served};
use icecore::admin::connect_or_open;
use icecore::admin::protocol::{Request, Response};
use icecore::{DestroyTarget, InitOptions, ListEntry, ListFilter, OpenOptions, Pool, Statistics};
use icecore_fuse::MountOptions;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};

/// The one dataset of the pool.
pub(crate) const DATASET: &str = "lab";
/// Options of a mount for database servers.
pub(crate) const FOR_SERVERS: &str = "noxattr";

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
    served: Served,
}

impl Mounted {
    /// Makes a pool with one dataset in the folder, and mounts the dataset beside it.
    pub(crate) fn begin(folder: &Path, options: &Options) -> Result<Self> {
        Self::begin_limited(folder, &InitOptions::default(), options)
    }

    /// The same, with a limit of one's own.
    pub(crate) fn begin_limited(folder: &Path, init: &InitOptions, options: &Options) -> Result<Self> {
        Self::begin_with(Some(DATASET.to_owned()), "", folder, init, options)
    }

    /// The same for a database server, mounted as the guide advises: servers use no extended attributes.
    pub(crate) fn begin_for_server(folder: &Path, options: &Options) -> Result<Self> {
        let dataset = Some(DATASET.to_owned());
        Self::begin_with(dataset, FOR_SERVERS, folder, &InitOptions::default(), options)
    }

    /// The same, with the whole pool mounted: its dataset is the folder [`DATASET`], and clones appear beside
    /// that.
    pub(crate) fn begin_pool(folder: &Path, options: &Options) -> Result<Self> {
        Self::begin_with(None, FOR_SERVERS, folder, &InitOptions::default(), options)
    }

    fn begin_with(
        dataset: Option<String>,
        mount_options: &str,
        folder: &Path,
        init: &InitOptions,
        options: &Options,
    ) -> Result<Self> {
        let (pool, point) = (folder.join("pool"), folder.join("mount"));
        let job = MountJob { pool, dataset, point, options: mount_options.to_owned() };
        Pool::init_directory(&job.pool, init)?;
        let pool = Pool::open_directory(&job.pool, &OpenOptions::default())?;
        pool.create_dataset(DATASET, false, &[])?;
        pool.close()?;
        Self::start(job, options)
    }

    /// Starts the process of the mount, and waits until the mount is live.
    fn start(job: MountJob, options: &Options) -> Result<Self> {
        Ok(Self { served: Served::begin(&Job::Mount(job.clone()), &job.point, options)?, job })
    }

    /// Ends the mount and its process: the pool is closed.
    pub(crate) fn end(self) -> Ended {
        Ended(self.job.clone())
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

    /// The dataset and its snapshots, oldest first.
    pub(crate) fn list(&self) -> Result<Vec<ListEntry>> {
        let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
        match self.call(Request::List(filter))? {
            Response::List(entries) => Ok(entries),
            other => Err(unexpected("a list", &other)),
        }
    }

    /// Makes everything so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.call(Request::Sync).map(|_| ())
    }

    fn destroy(&self, target: DestroyTarget) -> Result<()> {
        self.call(Request::Destroy { target }).map(|_| ())
    }

    /// What the store and the process of the mount have done so far.
    pub(crate) fn counters(&self) -> Result<Counters> {
        let mut counters = Counters::of_statistics(&self.statistics()?);
        let path = format!("/proc/{}/io", self.served.process().as_raw_nonzero());
        let text = fs::read_to_string(&path).doing(|| format!("read {path}"))?;
        // Each request of FUSE is read by one call, and answered by one at most.
        for (line, name) in [("syscr", "mount_read_calls"), ("syscw", "mount_write_calls")] {
            let value =
                text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(": ")?.parse().ok());
            counters.set(name, value.unwrap_or(0.0));
        }
        Ok(counters)
    }

    /// The counters of the store.
    pub(crate) fn statistics(&self) -> Result<Statistics> {
        match self.call(Request::Status)? {
            Response::Status(status) => Ok(status.statistics),
            other => Err(unexpected("a status", &other)),
        }
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

/// A mount that has ended.
pub(crate) struct Ended(MountJob);

impl Ended {
    /// In how many stretches of neighbouring blocks a file of the dataset lies.
    pub(crate) fn stretches(&self, name: &str) -> Result<u64> {
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let pool = Pool::open_directory(&self.0.pool, &options)?;
        let view = pool.view(DATASET)?;
        let missing =
            || Error::Mismatch { what: name.to_owned(), detail: "the pool does not have it".to_owned() };
        let inode = view.resolve(name.as_bytes())?.ok_or_else(missing)?;
        Ok(view.stretches(inode)?)
    }

    /// Mounts the pool again.
    pub(crate) fn begin(self, options: &Options) -> Result<Mounted> {
        Mounted::start(self.0, options)
    }
}

fn unexpected(what: &str, answer: &Response) -> Error {
    Error::Mismatch { what: what.to_owned(), detail: format!("{answer:?}") }
}

/// Runs in the process of the mount, until the mount goes away.
pub(crate) fn serve(job: &MountJob) -> Result<()> {
    let mut options = MountOptions::new(job.pool.clone(), job.dataset.clone(), job.point.clone());
    options.apply(&job.options).map_err(|reason| Job::Mount(job.clone()).failure(&reason))?;
    // A lab that was killed could not unmount.
    let lab = rustix::process::getppid();
    icecore_fuse::serve(&options, served::say_ready, || rustix::process::getppid() != lab)
        .map_err(|error| Job::Mount(job.clone()).failure(&error.to_string()))
}
