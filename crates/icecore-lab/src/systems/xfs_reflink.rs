//! XFS on a loop device. A snapshot is a copy of the files that shares their blocks (ioctl_ficlone(2)).
//!
//! The copy of one file is atomic, and that of a folder is not: a workload that needs a consistent folder
//! must pause.

use super::loopback::{Format, Loop};
use super::{Ground, Kind, System, extents, xfs};
use crate::device::Device;
use crate::error::{Doing, Result};
use crate::options::Options;
use rustix::fs::ioctl_ficlone;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(super) const KIND: Kind =
    Kind { name: "xfs-reflink", snapshots: true, files: true, probe: xfs::probe, begin };

const FORMAT: Format = Format {
    kind: "xfs",
    program: "/usr/sbin/mkfs.xfs",
    arguments: &["-q", "-K", "-m", "reflink=1"],
    mounted: "rw",
};

struct XfsReflink {
    mount: Loop,
    options: Options,
}

fn begin(ground: &Ground<'_>) -> Result<Box<dyn System>> {
    let system = XfsReflink { mount: Loop::begin(ground, &FORMAT)?, options: ground.options.clone() };
    for folder in [system.data()?, system.snapshot_folder("")?] {
        fs::create_dir(&folder).doing(|| format!("make {}", folder.display()))?;
    }
    Ok(Box::new(system))
}

impl System for XfsReflink {
    fn data(&self) -> Result<PathBuf> {
        Ok(self.mount.point().join("data"))
    }

    fn snapshot(&mut self, name: &str) -> Result<()> {
        copy(&self.data()?, &self.snapshot_folder(name)?)?;
        self.mount.sync()
    }

    fn snapshot_folder(&self, name: &str) -> Result<PathBuf> {
        Ok(self.mount.point().join("snapshots").join(name))
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        let folder = self.snapshot_folder(name)?;
        fs::remove_dir_all(&folder).doing(|| format!("remove {}", folder.display()))
    }

    fn held_bytes(&self, names: &[String]) -> Result<Vec<u64>> {
        names
            .iter()
            .map(|name| extents::unshared_bytes(&self.snapshot_folder(name)?, &self.options))
            .collect()
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

    fn rest(&self) -> Result<()> {
        self.mount.sync()
    }
}

/// Copies a folder with all below it. What goes before its turn is left out.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let doing = || format!("copy {} to {}", from.display(), to.display());
    let entries = match fs::read_dir(from) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        entries => entries.doing(doing)?,
    };
    fs::create_dir(to).doing(doing)?;
    for entry in entries {
        let entry = entry.doing(doing)?;
        let target = to.join(entry.file_name());
        if entry.file_type().doing(doing)?.is_dir() {
            copy(&entry.path(), &target)?;
            continue;
        }
        match File::open(entry.path()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            source => {
                let copied = File::create_new(&target).doing(doing)?;
                ioctl_ficlone(copied, source.doing(doing)?).doing(doing)?;
            }
        }
    }
    Ok(())
}
