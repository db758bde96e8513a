//! A whole disk that is lent to the lab: it gets a file system for a run, and loses it again.

use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::server;
use crate::systems::loopback::{self, EXT4};
use crate::tool;
use rustix::fs::{FileType, Mode, OFlags};
use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// So much of the beginning of an empty disk is zero.
const LOOKED_AT_BYTES: usize = 1 << 20;

/// A disk that may be lent: nothing uses it, and nothing is on it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EmptyDisk {
    path: PathBuf,
    bytes: u64,
    model: String,
}

impl EmptyDisk {
    /// Looks at a block device. Nothing is changed.
    ///
    /// # Errors
    /// [`Error::UnusableDevice`] if it is no block device, is in use, or has something on it.
    pub fn examine(path: &Path) -> Result<Self> {
        let unusable = |reason: String| Error::UnusableDevice { device: path.to_owned(), reason };
        let because = |errno: rustix::io::Errno| match errno {
            rustix::io::Errno::BUSY => {
                unusable("it is in use: mounted, or a part of something else (`lsblk`)".to_owned())
            }
            errno => unusable(std::io::Error::from(errno).to_string()),
        };
        let status = rustix::fs::stat(path).map_err(because)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::BlockDevice {
            return Err(unusable("it is no block device".to_owned()));
        }
        // The kernel lets it be opened for writing.
        if kernel_says(path, "ro").as_deref() == Some("1") {
            return Err(unusable(format!("it is read-only (`blockdev --setrw {}`)", path.display())));
        }
        let mut device = open_unused(path).map_err(because)?;
        let doing = || format!("read {}", path.display());
        let bytes = device.seek(SeekFrom::End(0)).doing(doing)?;
        device.rewind().doing(doing)?;
        let mut beginning = Vec::new();
        device.take(LOOKED_AT_BYTES as u64).read_to_end(&mut beginning).doing(doing)?;
        let names = signatures(path)?;
        if !names.is_empty() || beginning.iter().any(|byte| *byte != 0) {
            let what = if names.is_empty() { "data".to_owned() } else { names.join(", ") };
            let erase = format!("dd if=/dev/zero of={} bs=1M count=1", path.display());
            return Err(unusable(format!(
                "there is {what} on it. If that may go: `wipefs -a {}; {erase}`",
                path.display()
            )));
        }
        let model = kernel_says(path, "device/model").unwrap_or_else(|| "unknown model".to_owned());
        Ok(Self { path: path.to_owned(), bytes, model })
    }
}

impl fmt::Display for EmptyDisk {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gibibytes = self.bytes as f64 / f64::from(1 << 30);
        write!(formatter, "{} ({}, {gibibytes:.1} GiB)", self.path.display(), self.model)
    }
}

/// Opens a block device, unless the kernel uses it: that is what `O_EXCL` means there (open(2)).
fn open_unused(path: &Path) -> rustix::io::Result<File> {
    let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::empty()).map(File::from)
}

/// The file systems, volumes and tables of partitions that wipefs(8) finds.
fn signatures(path: &Path) -> Result<Vec<String>> {
    let mut command = Command::new(format!("{}/wipefs", loopback::SBIN));
    command.args(["--no-act", "--noheadings", "--output", "TYPE"]).arg(path);
    let found = tool::output(&mut command, &Options::new("."))?;
    let mut names: Vec<String> = found.split_whitespace().map(str::to_owned).collect();
    names.dedup();
    Ok(names)
}

/// An attribute of a block device in sysfs(5), if it has it.
fn kernel_says(path: &Path, attribute: &str) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let device = Path::new("/sys/class/block").join(path.file_name()?);
    Some(std::fs::read_to_string(device.join(attribute)).ok()?.trim().to_owned())
}

/// ext4 on a lent disk. When the value is dropped, the disk is empty again.
pub(crate) struct Lent {
    path: PathBuf,
    /// What distinguishes this file system from all others, also from those on a disk that has the node
    /// meanwhile.
    uuid: Uuid,
    folder: TempDir,
    options: Options,
}

type Uuid = [u8; 16];

/// Where the superblock of ext4 has it (`Documentation/filesystems/ext4/super.rst`).
const UUID_AT: u64 = 1024 + 0x68;

impl Lent {
    /// Looks at the disk once more, and makes the file system.
    pub(crate) fn begin(path: &Path, options: &Options) -> Result<Self> {
        loopback::probe(&EXT4, "e2fsprogs")
            .map_err(|reason| Error::UnusableDevice { device: path.to_owned(), reason })?;
        let disk = EmptyDisk::examine(path)?;
        options.say(&format!("making a file system on {disk}"))?;
        let folder = options.scratch()?;
        server::open_to_all(folder.path())?;
        // It fails for a disk that is in use by now. A run that is to stop does not stop in the middle of it.
        let options = options.unstoppable();
        EXT4.make(path, &options).inspect_err(|_| {
            // What was made of it is none that `empty` would know.
            let _ = open_unused(path).map_err(Into::into).and_then(clear);
        })?;
        let mut uuid = Uuid::default();
        let device = File::open(path).and_then(|device| device.read_exact_at(&mut uuid, UUID_AT));
        device.doing(|| format!("read {}", path.display()))?;
        let lent = Self { path: path.to_owned(), uuid, folder, options };
        loopback::mount(path, lent.point(), EXT4.kind, "rw", &lent.options)?;
        Ok(lent)
    }

    /// Where it is mounted.
    pub(crate) fn point(&self) -> &Path {
        self.folder.path()
    }

    /// Removes the file system, if it is that which was made, and no process uses it.
    fn empty(&self) -> std::io::Result<()> {
        let mut device = open_unused(&self.path)?;
        let mut found = Uuid::default();
        device.read_exact_at(&mut found, UUID_AT)?;
        if found != self.uuid {
            return Err(std::io::Error::other("there is another disk"));
        }
        device.rewind()?;
        clear(device)
    }
}

/// Makes zeros of what is looked at, from where the file stands on.
fn clear(mut device: File) -> std::io::Result<()> {
    device.write_all(&vec![0; LOOKED_AT_BYTES])?;
    device.sync_all()
}

impl Drop for Lent {
    fn drop(&mut self) {
        loopback::unmount(self.folder.path());
        if let Err(error) = self.empty() {
            (self.options.progress)(&format!("{} was not emptied: {error}", self.path.display()));
        }
    }
}
