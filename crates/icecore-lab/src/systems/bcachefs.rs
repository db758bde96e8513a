//! bcachefs on a loop device. The data is a subvolume, and a snapshot is a read-only one.

use super::loopback::{self, Format, Loop};
use super::{Ground, Kind, System};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::programs::{self, BCACHEFS_TOOLS};
use crate::tool;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub(super) const KIND: Kind = Kind { name: "bcachefs", snapshots: true, files: true, probe, begin };

const FORMAT: Format = Format {
    kind: "bcachefs",
    program: PROGRAM,
    // Without the option a block is as large as one of the file system beneath.
    arguments: &["format", "--quiet", "--block_size=4k"],
    mounted: "rw,nodiscard",
};

const PROGRAM: &str = "bcachefs";

/// Nothing says when destroyed snapshots are removed. They are taken as removed when the bytes in use stand
/// still for so long.
const STILL: Duration = Duration::from_secs(2);

/// A subvolume on a bcachefs of its own; both go when the value is dropped.
struct Bcachefs {
    mount: Loop,
    options: Options,
    /// Whether snapshots were destroyed that the file system may not have removed yet.
    removing: AtomicBool,
}

fn probe() -> Result<(), String> {
    loopback::probe(&FORMAT, BCACHEFS_TOOLS)
}

fn begin(ground: &Ground<'_>) -> Result<Box<dyn System>> {
    let (mount, options) = (Loop::begin(ground, &FORMAT)?, ground.options.clone());
    let system = Bcachefs { mount, options, removing: AtomicBool::new(false) };
    system.subvolume(["create".as_ref(), system.at("data").as_os_str()])?;
    Ok(Box::new(system))
}

impl Bcachefs {
    fn at(&self, name: &str) -> PathBuf {
        self.mount.point().join(name)
    }

    fn subvolume<const N: usize>(&self, arguments: [&OsStr; N]) -> Result<()> {
        let mut command = programs::command(PROGRAM);
        tool::output(command.arg("subvolume").args(arguments), &self.options).map(|_| ())
    }

    fn wait_until_still(&self) -> Result<()> {
        let begin = Instant::now();
        let mut before = self.mount.used_bytes()?;
        loop {
            self.options.wait(STILL)?;
            let now = self.mount.used_bytes()?;
            if now == before {
                return Ok(());
            }
            if begin.elapsed() > self.options.time_limit {
                let what = "the removal of snapshots".to_owned();
                return Err(Error::Inconclusive {
                    what,
                    reason: "it takes longer than the time limit".to_owned(),
                });
            }
            before = now;
        }
    }
}

impl System for Bcachefs {
    fn data(&self) -> Result<PathBuf> {
        Ok(self.at("data"))
    }

    /// The kernel writes the files first, and not the journal that has the snapshot.
    fn snapshot(&mut self, name: &str) -> Result<()> {
        let (data, snapshot) = (self.at("data"), self.at(name));
        self.subvolume(["snapshot".as_ref(), "--read-only".as_ref(), data.as_ref(), snapshot.as_ref()])?;
        self.mount.sync()
    }

    fn snapshot_folder(&self, name: &str) -> Result<PathBuf> {
        Ok(self.at(name))
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        self.removing.store(true, Ordering::Relaxed);
        self.subvolume(["delete".as_ref(), self.at(name).as_os_str()])
    }

    fn space_bytes(&self) -> Result<u64> {
        self.mount.used_bytes()
    }

    fn device(&self) -> &Device {
        self.mount.device()
    }

    fn cool(&mut self) -> Result<()> {
        self.mount.remount(&self.options)
    }

    /// Waits for the removal of destroyed snapshots, too.
    fn rest(&self) -> Result<()> {
        self.mount.sync()?;
        if self.removing.swap(false, Ordering::Relaxed) {
            self.wait_until_still()?;
            self.mount.sync()?;
        }
        Ok(())
    }
}
