//! XFS on a loop device, without reflinks and so without snapshots.

use super::loopback::{self, Format, Loop};
use super::{Ground, Kind, System};
use crate::device::Device;
use crate::error::{Doing, Result};
use crate::options::Options;
use std::fs;
use std::path::PathBuf;

pub(super) const KIND: Kind = Kind { name: "xfs", snapshots: false, files: true, probe, begin };

const FORMAT: Format = Format {
    kind: "xfs",
    program: "/usr/sbin/mkfs.xfs",
    arguments: &["-q", "-K", "-m", "reflink=0"],
    mounted: "rw",
};

struct Xfs {
    mount: Loop,
    options: Options,
}

pub(super) fn probe() -> Result<(), String> {
    loopback::probe(&FORMAT, "xfsprogs")
}

fn begin(ground: &Ground<'_>) -> Result<Box<dyn System>> {
    let system = Xfs { mount: Loop::begin(ground, &FORMAT)?, options: ground.options.clone() };
    let data = system.data()?;
    fs::create_dir(&data).doing(|| format!("make {}", data.display()))?;
    Ok(Box::new(system))
}

impl System for Xfs {
    fn data(&self) -> Result<PathBuf> {
        Ok(self.mount.point().join("data"))
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
