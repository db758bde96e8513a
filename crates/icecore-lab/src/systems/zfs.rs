//! ZFS: a pool on a loop device, with records of the size that databases write. A snapshot is one of its only
//! file system.

use super::loopback::{self, Attached, SBIN};
use super::{Ground, Kind, System};
use crate::device::Device;
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::tool;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

pub(super) const KIND: Kind = Kind { name: "zfs", snapshots: true, files: true, probe, begin };

fn probe() -> std::result::Result<(), String> {
    super::is_root()?;
    super::has_loop_devices()?;
    super::has_file_system("zfs").map_err(|_| {
        "no ZFS module in this kernel: --guest --with zfs runs it in a machine of its own".to_owned()
    })?;
    super::has_program("zpool", "zfsutils-linux")
}

fn begin(ground: &Ground<'_>) -> Result<Box<dyn System>> {
    static POOLS: AtomicU32 = AtomicU32::new(0);
    let number = POOLS.fetch_add(1, Ordering::Relaxed);
    let attached = Attached::begin(ground, "zfs", ground.bytes, ground.bytes)?;
    let (pool, point) = (format!("icecore_lab_{}_{number}", std::process::id()), ground.folder.join("zfs"));
    let options = ground.options.clone();
    let system = Zfs { pool, point, attached, options, destroyed: AtomicBool::new(false) };
    system.create()?;
    let data = system.data()?;
    fs::create_dir(&data).doing(|| format!("make {}", data.display()))?;
    Ok(Box::new(system))
}

/// A pool; it goes when the value is dropped.
struct Zfs {
    pool: String,
    point: PathBuf,
    // After the pool is exported.
    attached: Attached,
    options: Options,
    /// Whether snapshots were destroyed whose blocks the pool may not have freed yet.
    destroyed: AtomicBool,
}

impl Zfs {
    /// No file of this machine knows the pool, no record is compressed, and no reading writes.
    fn create(&self) -> Result<()> {
        let mount = format!("mountpoint={}", self.point.display());
        let options = [
            "-f",
            "-o",
            "cachefile=none",
            "-O",
            "recordsize=16k",
            "-O",
            "compression=off",
            "-O",
            "atime=off",
        ];
        let device = self.attached.path().display().to_string();
        self.run("zpool", &[&["create"][..], &options, &["-O", &mount, &self.pool, &device]].concat())
            .map(|_| ())
    }

    /// Programs of ZFS that are killed half-way leave a pool that is busy.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(format!("{SBIN}/{program}"));
        tool::output(command.args(arguments), &self.options.unstoppable())
    }

    fn at(&self, name: &str) -> String {
        format!("{}@{name}", self.pool)
    }

    /// A property in bytes.
    fn bytes(&self, property: &str, of: &str) -> Result<u64> {
        let printed = self.run("zfs", &["get", "-Hp", "-o", "value", property, of])?;
        printed.trim().parse().map_err(|_| Error::Mismatch {
            what: format!("the property {property} of {of}"),
            detail: format!("{:?} is no number of bytes", printed.trim()),
        })
    }
}

impl System for Zfs {
    fn data(&self) -> Result<PathBuf> {
        Ok(self.point.join("data"))
    }

    fn snapshot(&mut self, name: &str) -> Result<()> {
        self.options.go_on()?;
        self.run("zfs", &["snapshot", &self.at(name)]).map(|_| ())
    }

    /// ZFS mounts it when it is looked at.
    fn snapshot_folder(&self, name: &str) -> Result<PathBuf> {
        Ok(self.point.join(".zfs/snapshot").join(name).join("data"))
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        self.destroyed.store(true, Ordering::Relaxed);
        self.run("zfs", &["destroy", &self.at(name)]).map(|_| ())
    }

    fn held_bytes(&self, names: &[String]) -> Result<Vec<u64>> {
        names.iter().map(|name| self.bytes("used", &self.at(name))).collect()
    }

    fn space_bytes(&self) -> Result<u64> {
        self.bytes("used", &self.pool)
    }

    /// ZFS has no FIEMAP.
    fn extents(&mut self, _: &str, _: &Options) -> Result<Option<u64>> {
        Ok(None)
    }

    fn device(&self) -> &Device {
        self.attached.device()
    }

    /// Its cache goes with the pool.
    fn cool(&mut self) -> Result<()> {
        self.run("zpool", &["export", &self.pool])?;
        let device = self.attached.path().display().to_string();
        self.run("zpool", &["import", "-o", "cachefile=none", "-d", &device, &self.pool]).map(|_| ())
    }

    /// Waits for blocks of destroyed snapshots, too.
    fn rest(&self) -> Result<()> {
        self.run("zpool", &["sync", &self.pool])?;
        if self.destroyed.swap(false, Ordering::Relaxed) {
            self.run("zpool", &["wait", "-t", "free", &self.pool])?;
        }
        Ok(())
    }
}

impl Drop for Zfs {
    fn drop(&mut self) {
        if self.run("zpool", &["destroy", "-f", &self.pool]).is_err() && is_mounted(&self.point) {
            loopback::unmount(&self.point);
            let _ = self.run("zpool", &["export", "-f", &self.pool]);
        }
    }
}

fn is_mounted(point: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    table.lines().any(|line| line.split(' ').nth(1) == point.to_str())
}
