//! Mounts that a process of its own serves.

use crate::child::Job;
use crate::error::{Doing, Result};
use crate::options::Options;
use crate::tool::Tool;
use fuser::{FileAttr, FileType, Filesystem, INodeNo};
use icecore_fuse::mounting;
use rustix::process::{Pid, getppid};
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

/// Printed when the mount is live.
const READY: &str = "the mount is live";
/// How long the process may take to end; then it is killed.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often the process looks whether the lab is still there.
const LOOK: Duration = Duration::from_millis(200);

/// A mount; it ends when the value is dropped.
pub(crate) struct Served {
    point: PathBuf,
    process: Tool,
}

impl Served {
    /// Makes the folder `point`, if there is none, and starts the process that mounts on it.
    pub(crate) fn begin(job: &Job, point: &Path, options: &Options) -> Result<Self> {
        fs::create_dir_all(point).doing(|| format!("make {}", point.display()))?;
        let mut served = Self { point: point.to_owned(), process: options.child.start(job)? };
        job.wait_until_ready(&mut served.process, READY, options)?;
        Ok(served)
    }

    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    pub(crate) fn process(&self) -> Pid {
        self.process.id()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if mounting::unmount(&self.point).is_err() {
            let _ = mounting::detach(&self.point);
        } else {
            let _ = self.process.ends_within(PATIENCE);
        }
    }
}

/// In the process of a mount: says that the mount is live.
pub(crate) fn say_ready() {
    // A reader that is gone is one that does not wait any more.
    let _ = writeln!(io::stdout(), "\n{READY}");
    let _ = io::stdout().flush();
}

/// In the process of a mount: answers requests until the mount goes away, or the lab does. `threads`: that
/// answer them.
pub(crate) fn serve(filesystem: impl Filesystem, point: &Path, threads: usize) -> Result<()> {
    let doing = || format!("mount on {}", point.display());
    let mut config = fuser::Config::default();
    config.n_threads = Some(threads);
    config.clone_fd = threads > 1;
    let session = fuser::spawn_mount(filesystem, point, &config).doing(doing)?;
    say_ready();
    let lab = getppid();
    while !session.guard.is_finished() {
        if getppid() != lab {
            // A lab that was killed could not unmount.
            let _ = mounting::detach(point);
            return Ok(());
        }
        thread::sleep(LOOK);
    }
    session.join().doing(doing)
}

/// Attributes of a file of this size, or of the folder that has it.
pub(crate) fn attributes(node: INodeNo, size: Option<u64>) -> FileAttr {
    let epoch = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: node,
        size: size.unwrap_or(0),
        blocks: size.unwrap_or(0) / 512,
        atime: epoch,
        mtime: epoch,
        ctime: epoch,
        crtime: epoch,
        kind: if size.is_some() { FileType::RegularFile } else { FileType::Directory },
        perm: 0o755,
        nlink: 1,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

/// An error of a file beneath, as a mount answers it.
pub(crate) fn errno(error: &io::Error) -> fuser::Errno {
    fuser::Errno::from_i32(error.raw_os_error().unwrap_or(rustix::io::Errno::IO.raw_os_error()))
}
