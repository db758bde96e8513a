//! Disks to measure in place of the filesystem of a folder: a whole one that is lent to the lab, and
//! simulated hard disks for machines that have none. What the latter say about time is the model's, and every
//! result is labelled so.

pub mod model;
pub mod real;
pub(crate) mod serve;

use crate::child::Job;
use crate::device::Device;
use crate::error::{Doing, Result};
use crate::options::Options;
use crate::served::Served;
use crate::systems::loopback::{EXT4, Loop};
use model::HardDisk;
use serve::DiskJob;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Why this machine can have no simulated disk.
pub(crate) fn probe() -> std::result::Result<(), String> {
    crate::systems::loopback::probe(&EXT4, "e2fsprogs")?;
    crate::systems::has_file_system("fuse")
}

/// ext4 on a simulated disk. Everything goes when the value is dropped.
pub(crate) struct Simulated {
    // Dropped in this order: the file system, the loop device with it, and the disk below.
    mount: Loop,
    below: Below,
}

impl Simulated {
    /// Makes the disk in this folder. `bytes`: of the part of it that is used.
    pub(crate) fn begin(folder: &Path, disk: HardDisk, bytes: u64, options: &Options) -> Result<Self> {
        let below = Below::begin(folder, disk, bytes, options)?;
        let point = folder.join("hdd");
        let mount = Loop::begin_on(below.served.point().join(serve::NAME), point, &EXT4, options)?;
        Ok(Self { mount, below })
    }

    /// Where the file system is mounted.
    pub(crate) fn point(&self) -> &Path {
        self.mount.point()
    }

    pub(crate) fn device(&self) -> &Device {
        self.mount.device()
    }

    /// From now on the disk answers at once: what follows is not measured.
    pub(crate) fn answer_at_once(&self) -> Result<()> {
        let path = &self.below.at_once;
        File::create(path).map(drop).doing(|| format!("make {}", path.display()))
    }
}

/// The file that behaves like a disk.
struct Below {
    served: Served,
    image: PathBuf,
    at_once: PathBuf,
}

impl Below {
    fn begin(folder: &Path, disk: HardDisk, bytes: u64, options: &Options) -> Result<Self> {
        let [point, image, at_once] = ["disk", "disk.img", "disk.at-once"].map(|name| folder.join(name));
        let doing = || format!("make {}", image.display());
        File::create_new(&image).doing(doing)?.set_len(bytes).doing(doing)?;
        let job = DiskJob { image: image.clone(), point: point.clone(), disk, at_once: at_once.clone() };
        Ok(Self { served: Served::begin(&Job::Disk(job), &point, options)?, image, at_once })
    }
}

impl Drop for Below {
    fn drop(&mut self) {
        for path in [&self.image, &self.at_once] {
            let _ = fs::remove_file(path);
        }
    }
}
