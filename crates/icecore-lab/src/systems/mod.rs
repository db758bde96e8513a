//! The systems with snapshots that the studies compare. A new system is one file here, and one line in
//! `SYSTEMS`.

mod bcachefs;
pub(crate) mod btrfs;
mod extents;
mod icecore_mount;
mod icecore_sqlite;
pub(crate) mod loopback;
mod lvm;
mod lvm_thin;
pub(crate) mod mounted;
mod plain;
mod volumes;
mod xfs;
mod xfs_reflink;
mod zfs;

use crate::device::{Device, DeviceCounts};
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::programs::{self, Origin};
use crate::sqlite::{self, Journal};
use rusqlite::Connection;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The database of the studies that use one.
const DATABASE: &str = "app.db";

/// A system that is set up. Dropping it removes everything that it made. A system without snapshots
/// ([`Kind::snapshots`]) leaves out what concerns them: the methods here refuse.
pub(crate) trait System: Send {
    /// The folder for the files of a workload.
    fn data(&self) -> Result<PathBuf>;

    /// Takes a snapshot of the data. It is durable on return.
    fn snapshot(&mut self, name: &str) -> Result<()> {
        no_snapshot(name)
    }

    /// The folder in which the files of a snapshot are.
    fn snapshot_folder(&self, name: &str) -> Result<PathBuf> {
        no_snapshot(name)
    }

    /// Destroys a snapshot.
    fn destroy(&mut self, name: &str) -> Result<()> {
        no_snapshot(name)
    }

    /// The bytes that the destruction of each snapshot alone would free.
    fn held_bytes(&self, _names: &[String]) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    /// The bytes that the system takes on its device.
    fn space_bytes(&self) -> Result<u64>;

    /// The block device under the system.
    fn device(&self) -> &Device;

    /// Empties the caches of the system and of the kernel.
    fn cool(&mut self) -> Result<()>;

    /// Makes all writes durable, and waits until no background work is left.
    fn rest(&self) -> Result<()>;

    /// What the device has done so far, for all that use it, where the kernel counts that.
    fn counts(&self) -> Option<DeviceCounts> {
        self.device().counted()
    }

    /// In how many extents a file of the data lies, where the system says so. It may begin anew for that.
    fn extents(&mut self, name: &str, options: &Options) -> Result<Option<u64>> {
        extents::count(&self.data()?.join(name), options)
    }

    /// The volume of the data, where snapshots are volumes with a copy area each.
    fn volume(&self) -> Option<LogicalVolume> {
        None
    }

    /// Opens the database of the data, and makes it if there is none.
    fn database(&self, journal: Journal) -> Result<Connection> {
        sqlite::open_plain(&self.data()?.join(DATABASE), journal)
    }

    /// Opens the database of a snapshot. SQLite needs to write beside a log, so a copy in `scratch` is
    /// opened.
    fn past_database(&self, name: &str, scratch: &Path, journal: Journal) -> Result<Connection> {
        let folder = self.snapshot_folder(name)?;
        for suffix in ["", "-wal", "-journal"] {
            let (from, to) =
                (folder.join(format!("{DATABASE}{suffix}")), scratch.join(format!("{DATABASE}{suffix}")));
            let copied = match fs::copy(&from, &to) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound && !suffix.is_empty() => {
                    let removed = fs::remove_file(&to);
                    removed.or_else(|error| match error.kind() {
                        std::io::ErrorKind::NotFound => Ok(()),
                        _ => Err(error),
                    })
                }
                other => other.map(|_| ()),
            };
            copied.map_err(|source| Error::Io { action: format!("copy {}", from.display()), source })?;
        }
        let _ = fs::remove_file(scratch.join(format!("{DATABASE}-shm")));
        sqlite::open_plain(&scratch.join(DATABASE), journal)
    }
}

fn no_snapshot<T>(name: &str) -> Result<T> {
    let reason = "the system has no snapshots".to_owned();
    Err(Error::Inconclusive { what: format!("the snapshot {name}"), reason })
}

/// Writes all that is dirty in the file system of a folder.
fn write_dirty(folder: &Path) -> Result<()> {
    let doing = || format!("write what is dirty in {}", folder.display());
    rustix::fs::syncfs(File::open(folder).doing(doing)?).doing(doing)
}

/// A logical volume of LVM, for programs that take snapshots of it by themselves.
pub(crate) struct LogicalVolume {
    /// Its group.
    pub group: String,
    /// Its name in the group.
    pub name: &'static str,
    /// The configuration with which commands of LVM see the device of the group, and no other (lvmconfig(8)).
    pub config: String,
}

/// What a system sets aside for snapshots that cannot share room.
#[derive(Clone, Copy, Default)]
pub(crate) struct Areas {
    /// Most snapshots at one time.
    pub count: u64,
    /// The room of each.
    pub bytes: u64,
}

/// Where a system is set up.
pub(crate) struct Ground<'a> {
    /// A folder that goes when the run ends.
    pub folder: &'a Path,
    /// Size of the device, for systems with a device of their own.
    pub bytes: u64,
    /// The size limit of a pool of Icecore, where there is to be one.
    pub limit: Option<u64>,
    /// The copy areas, for systems that set one aside for each snapshot.
    pub areas: Areas,
    /// How the run is to go.
    pub options: &'a Options,
}

/// A kind of system.
pub(crate) struct Kind {
    /// Its name in results and on the command line.
    pub name: &'static str,
    /// Whether it has snapshots. The others are what systems with snapshots are compared with.
    pub snapshots: bool,
    /// Whether it has files. The others have databases.
    pub files: bool,
    /// Why this machine cannot run it.
    pub probe: fn() -> std::result::Result<(), String>,
    /// Sets one up.
    pub begin: fn(&Ground<'_>) -> Result<Box<dyn System>>,
}

/// Every system, in the order of results.
pub(crate) const SYSTEMS: &[Kind] = &[
    plain::KIND,
    xfs::KIND,
    xfs_reflink::KIND,
    btrfs::KIND,
    lvm::KIND,
    lvm_thin::KIND,
    zfs::KIND,
    bcachefs::KIND,
    icecore_mount::KIND,
    icecore_sqlite::KIND,
];

/// The names of all systems that studies compare.
#[must_use]
pub fn names() -> Vec<&'static str> {
    SYSTEMS.iter().map(|kind| kind.name).collect()
}

/// Whether the system of that name has snapshots. A name that is none of a system is that of something with
/// snapshots.
pub(crate) fn has_snapshots(name: &str) -> bool {
    SYSTEMS.iter().find(|kind| kind.name == name).is_none_or(|kind| kind.snapshots)
}

/// Every system that studies compare, and why this machine cannot run it where it cannot.
#[must_use]
pub fn examine() -> Vec<(&'static str, std::result::Result<(), String>)> {
    SYSTEMS.iter().map(|kind| (kind.name, (kind.probe)())).collect()
}

/// Whether the caller may mount and attach devices.
fn is_root() -> std::result::Result<(), String> {
    let root = rustix::process::geteuid().is_root();
    if root { Ok(()) } else { Err("only root can mount: run it as root".to_owned()) }
}

/// Whether the program is there; the error says how one gets it: by a package of Debian, or otherwise.
pub(crate) fn has_program(program: &str, origin: impl Into<Origin>) -> std::result::Result<(), String> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let lacks = || format!("{name} is not there: {}", origin.into().advice());
    programs::find(program).map(|_| ()).ok_or_else(lacks)
}

/// Whether the kernel can mount file systems of this type, built in or as a module.
pub(crate) fn has_file_system(kind: &str) -> std::result::Result<(), String> {
    let known = || {
        let text = fs::read_to_string("/proc/filesystems").unwrap_or_default();
        text.lines().any(|line| line.split_whitespace().last() == Some(kind))
    };
    if known() || (load_module(kind) && known()) { Ok(()) } else { Err(format!("no {kind} in this kernel")) }
}

/// Why LVM cannot run, and what helps.
pub(crate) const NO_DEVICE_MAPPER: &str =
    "no device-mapper in this kernel: --guest runs a machine that has it";

/// Whether the kernel has device-mapper, built in or as a module.
pub(crate) fn has_device_mapper() -> std::result::Result<(), String> {
    let known = || {
        let devices = fs::read_to_string("/proc/devices").unwrap_or_default();
        devices.contains("device-mapper") || Path::new("/dev/mapper/control").exists()
    };
    let there = known() || (load_module("dm_mod") && known());
    if there { Ok(()) } else { Err(NO_DEVICE_MAPPER.to_owned()) }
}

/// Loads a module of the kernel, and answers whether that worked.
fn load_module(name: &str) -> bool {
    let loaded = std::process::Command::new("/usr/sbin/modprobe").args(["--quiet", name]).status();
    loaded.is_ok_and(|status| status.success())
}

/// Whether the kernel has loop devices.
fn has_loop_devices() -> std::result::Result<(), String> {
    let there = Path::new("/dev/loop-control").exists();
    if there { Ok(()) } else { Err("no loop devices in this kernel".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_machine_lacks_has_a_reason() {
        assert!(has_file_system("no-such-file-system").is_err_and(|reason| reason.contains("kernel")));
        assert!(
            has_program("no-such-program", "a-package").is_err_and(|reason| reason.contains("a-package"))
        );
        let names = names();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
