//! The disk under a folder: what was read from it, and reading without what the kernel remembers.

use crate::error::{Doing, Error, Result};
use rustix::fs::{Advice, OFlags};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a sector, as the kernel counts them on every disk.
const SECTOR_BYTES: u64 = 512;

/// The counters of the block device that holds a folder. They count the reads of all processes.
pub(crate) struct Device {
    counters: PathBuf,
}

/// Reads that a device has done.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct DeviceReads {
    /// Requests.
    pub reads: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl Device {
    /// The device of the filesystem that holds `folder`.
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        let device = fs::metadata(folder).doing(|| format!("examine {}", folder.display()))?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(Self { counters: format!("/sys/dev/block/{major}:{minor}/stat").into() })
    }

    /// What it has read since it was attached (Linux, `Documentation/block/stat.rst`). Zeros for a filesystem without a
    /// block device of its own.
    pub(crate) fn reads(&self) -> DeviceReads {
        fs::read_to_string(&self.counters).map(|text| decode(&text)).unwrap_or_default()
    }
}

fn decode(text: &str) -> DeviceReads {
    let field = |index| text.split_whitespace().nth(index).and_then(|word| word.parse().ok()).unwrap_or(0);
    DeviceReads { reads: field(0), bytes: field(2) * SECTOR_BYTES }
}

impl std::ops::Sub for DeviceReads {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }
}

/// Makes the kernel forget what it remembers of the files in `folder`, after it has written what is dirty: only clean pages
/// go (`posix_fadvise(2)`).
pub(crate) fn drop_cached(folder: &Path) -> Result<()> {
    let doing = || format!("drop what is cached of {}", folder.display());
    for entry in fs::read_dir(folder).doing(doing)? {
        let path = entry.doing(doing)?.path();
        if path.is_file() {
            let file = File::open(&path).doing(doing)?;
            file.sync_all().doing(doing)?;
            let dropped = rustix::fs::fadvise(&file, 0, None, Advice::DontNeed);
            dropped.map_err(std::io::Error::from).doing(doing)?;
        }
    }
    Ok(())
}

/// Opens a file for reading and writing past the kernel's page cache; makes it if there is none.
pub(crate) fn open_direct(path: &Path) -> Result<File> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    let opened =
        File::options().read(true).write(true).create(true).truncate(false).custom_flags(flags).open(path);
    opened.doing(|| format!("open {} for direct I/O", path.display()))
}

/// The sum of what several threads answer, each called with its number.
pub(crate) fn in_threads(threads: usize, work: impl Fn(u64) -> Result<u64> + Sync) -> Result<u64> {
    let work = &work;
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads as u64).map(|number| scope.spawn(move || work(number))).collect();
        let panicked = || Error::Panicked { what: "reading".to_owned() };
        workers.into_iter().map(|worker| worker.join().unwrap_or_else(|_| Err(panicked()))).sum()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::FileExt;

    #[test]
    fn counters_of_a_device_are_read_by_column() {
        let text = "  10  2  30  4  50 6 7 8 9 10 11\n";
        assert_eq!(decode(text), DeviceReads { reads: 10, bytes: 30 * 512 });
        assert_eq!(decode(""), DeviceReads::default());
    }

    #[test]
    fn what_is_dropped_is_read_from_the_device_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        let bytes = vec![7; 1 << 20];
        let file = File::create(&path).expect("made");
        file.write_all_at(&bytes, 0).expect("written");
        file.sync_all().expect("flushed");
        drop(file);
        let device = Device::of(folder.path()).expect("a device");
        let before = device.reads();
        drop_cached(folder.path()).expect("dropped");
        assert_eq!(fs::read(&path).expect("read"), bytes);
        let read = device.reads() - before;
        let counts = device.counters.exists();
        assert!(!counts || read.bytes >= 1 << 20, "{read:?}");
    }
}
