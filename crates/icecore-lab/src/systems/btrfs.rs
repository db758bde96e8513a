//! Btrfs on a loop device. The data is a subvolume, and a snapshot is a read-only one.

use super::loopback::{self, Format, Loop};
use super::{Areas, Ground, Kind, System, extents};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::tool;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

pub(super) const KIND: Kind = Kind { name: "btrfs", snapshots: true, files: true, probe, begin };

/// Since Linux 6.2 it discards by itself. In the file beneath that makes holes, which no other system has.
const FORMAT: Format = Format {
    kind: "btrfs",
    program: "/usr/sbin/mkfs.btrfs",
    arguments: &["--quiet", "--nodiscard"],
    mounted: "rw,nodiscard",
};

/// A subvolume on a Btrfs of its own; both go when the value is dropped.
pub(crate) struct Btrfs {
    mount: Loop,
    options: Options,
    /// Whether snapshots were destroyed that the file system may not have removed yet.
    removing: AtomicBool,
}

fn probe() -> Result<(), String> {
    loopback::probe(&FORMAT, "btrfs-progs")
}

fn begin(ground: &Ground<'_>) -> Result<Box<dyn System>> {
    Ok(Box::new(Btrfs::make(ground)?))
}

impl Btrfs {
    /// Makes the filesystem in a file of this size. Where the machine cannot, the inner answer says why.
    pub(crate) fn begin(folder: &Path, bytes: u64, options: &Options) -> Result<Result<Self, String>> {
        if let Err(reason) = probe() {
            return Ok(Err(reason));
        }
        match Self::make(&Ground { folder, bytes, limit: None, areas: Areas::default(), options }) {
            Ok(made) => Ok(Ok(made)),
            Err(Error::Stopped) => Err(Error::Stopped),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn make(ground: &Ground<'_>) -> Result<Self> {
        let made = Self {
            mount: Loop::begin(ground, &FORMAT)?,
            options: ground.options.clone(),
            removing: AtomicBool::new(false),
        };
        made.run(&["create"], &[&made.data()])?;
        Ok(made)
    }

    /// The folder of the subvolume.
    pub(crate) fn data(&self) -> PathBuf {
        self.mount.point().join("data")
    }

    /// Takes a snapshot of the subvolume.
    pub(crate) fn snapshot(&self, name: &str) -> Result<()> {
        self.run(&["snapshot", "-r"], &[&self.data(), &self.mount.point().join(name)])
    }

    /// Destroys a snapshot.
    pub(crate) fn destroy(&self, name: &str) -> Result<()> {
        self.removing.store(true, Ordering::Relaxed);
        self.run(&["delete"], &[&self.mount.point().join(name)])
    }

    fn run(&self, action: &[&str], paths: &[&Path]) -> Result<()> {
        let mut command = Command::new("btrfs");
        tool::output(command.arg("subvolume").args(action).args(paths), &self.options).map(|_| ())
    }
}

impl System for Btrfs {
    fn data(&self) -> Result<PathBuf> {
        Ok(Self::data(self))
    }

    fn snapshot(&mut self, name: &str) -> Result<()> {
        Self::snapshot(self, name)
    }

    fn snapshot_folder(&self, name: &str) -> Result<PathBuf> {
        Ok(self.mount.point().join(name))
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        Self::destroy(self, name)
    }

    fn held_bytes(&self, names: &[String]) -> Result<Vec<u64>> {
        let folders = names.iter().map(|name| self.mount.point().join(name));
        folders.map(|folder| extents::unshared_bytes(&folder, &self.options)).collect()
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

    /// Waits for the removal of destroyed subvolumes, too.
    fn rest(&self) -> Result<()> {
        self.mount.sync()?;
        if self.removing.swap(false, Ordering::Relaxed) {
            // The first wakes the thread that removes subvolumes, which would sleep for half a minute.
            for action in [["filesystem", "sync"], ["subvolume", "sync"]] {
                let mut command = Command::new("btrfs");
                tool::output(command.args(action).arg(self.mount.point()), &self.options)?;
            }
        }
        Ok(())
    }
}
