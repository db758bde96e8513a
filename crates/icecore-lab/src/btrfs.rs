//! Btrfs on a loop device, to compare with.

use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::tool::{self, Tool};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A subvolume on a Btrfs of its own; both go when the value is dropped.
pub(crate) struct Btrfs {
    point: PathBuf,
}

impl Btrfs {
    /// Makes the filesystem in a file of this size. Where the machine cannot, the inner answer says why.
    pub(crate) fn begin(folder: &Path, bytes: u64, options: &Options) -> Result<Result<Self, String>> {
        match Self::make(folder, bytes, options) {
            Ok(made) => Ok(Ok(made)),
            Err(Error::Stopped) => Err(Error::Stopped),
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    fn make(folder: &Path, bytes: u64, options: &Options) -> Result<Self> {
        let (image, point) = (folder.join("btrfs.img"), folder.join("btrfs"));
        let doing = || format!("make {}", image.display());
        File::create_new(&image).doing(doing)?.set_len(bytes).doing(doing)?;
        tool::output(Command::new("/usr/sbin/mkfs.btrfs").arg("--quiet").arg(&image), options)?;
        fs::create_dir(&point).doing(|| format!("make {}", point.display()))?;
        // The page cache of the file beneath would be a second one. From here to the detaching nothing looks whether the run
        // is to stop: a device that is mounted and detached goes with its mount.
        let attach = ["--find", "--show", "--direct-io=on"];
        let never = Options::new(&options.directory);
        let device = tool::output(Command::new("/usr/sbin/losetup").args(attach).arg(&image), &never)?;
        let device = device.trim();
        let mounted = tool::output(Command::new("mount").args(["-t", "btrfs", device]).arg(&point), &never);
        let detached = tool::output(Command::new("/usr/sbin/losetup").args(["--detach", device]), &never);
        mounted?;
        let made = Self { point };
        detached?;
        made.run(&["create"], &[&made.data()], options)?;
        Ok(made)
    }

    /// The folder of the subvolume.
    pub(crate) fn data(&self) -> PathBuf {
        self.point.join("data")
    }

    /// Takes a snapshot of the subvolume.
    pub(crate) fn snapshot(&self, name: &str, options: &Options) -> Result<()> {
        self.run(&["snapshot", "-r"], &[&self.data(), &self.point.join(name)], options)
    }

    /// Destroys a snapshot.
    pub(crate) fn destroy(&self, name: &str, options: &Options) -> Result<()> {
        self.run(&["delete"], &[&self.point.join(name)], options)
    }

    fn run(&self, action: &[&str], paths: &[&Path], options: &Options) -> Result<()> {
        let mut command = Command::new("btrfs");
        tool::output(command.arg("subvolume").args(action).args(paths), options).map(|_| ())
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        // It is busy for a moment after a server was killed that had files open in it.
        for option in [None, Some("--lazy")] {
            let mut command = Command::new("umount");
            let unmounted = Tool::start(command.args(option).arg(&self.point)).and_then(|mut unmounting| {
                unmounting.ends_within(Duration::from_secs(60))?;
                unmounting.process().wait().doing(|| "unmount".to_owned())
            });
            if unmounted.is_ok_and(|status| status.success()) {
                return;
            }
        }
    }
}
