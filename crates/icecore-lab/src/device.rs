//! The disk under a folder: what it read and wrote, and reading without what the kernel remembers.

use crate::error::{Doing, Error, Result};
use rustix::fs::{Advice, OFlags};
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Bytes of a sector, as the kernel counts them on every disk.
const SECTOR_BYTES: u64 = 512;

/// The counters of a block device. They count the requests of all processes.
pub(crate) struct Device {
    counters: PathBuf,
}

/// Requests that a device has completed. A flush counts as a write and as a flush.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct DeviceCounts {
    /// Read requests.
    pub reads: u64,
    /// Bytes of the read requests.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes of the write requests.
    pub written_bytes: u64,
    /// Flushes of the device's cache.
    pub flushes: u64,
}

impl Device {
    /// The device of the filesystem that holds `folder`.
    pub(crate) fn of(folder: &Path) -> Result<Self> {
        let device = fs::metadata(folder).doing(|| format!("examine {}", folder.display()))?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(Self { counters: format!("/sys/dev/block/{major}:{minor}/stat").into() })
    }

    /// The device of this name in `/dev`, such as `loop0`.
    pub(crate) fn named(name: &str) -> Self {
        Self { counters: format!("/sys/block/{name}/stat").into() }
    }

    /// The file that a loop device is attached to (Linux, `drivers/block/loop.c`).
    pub(crate) fn backing_file(&self) -> Option<String> {
        fs::read_to_string(self.counters.with_file_name("loop/backing_file")).ok()
    }

    /// What it has done since it was attached (Linux, `Documentation/block/stat.rst`). `None` for a file
    /// system without a block device of its own.
    pub(crate) fn counted(&self) -> Option<DeviceCounts> {
        fs::read_to_string(&self.counters).ok().map(|text| decode(&text))
    }

    /// The same, with zeros where there is no block device.
    pub(crate) fn counts(&self) -> DeviceCounts {
        self.counted().unwrap_or_default()
    }
}

fn decode(text: &str) -> DeviceCounts {
    let field = |index| text.split_whitespace().nth(index).and_then(|word| word.parse().ok()).unwrap_or(0);
    DeviceCounts {
        reads: field(0),
        read_bytes: field(2) * SECTOR_BYTES,
        writes: field(4),
        written_bytes: field(6) * SECTOR_BYTES,
        flushes: field(15),
    }
}

impl std::ops::Sub for DeviceCounts {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            written_bytes: self.written_bytes.saturating_sub(before.written_bytes),
            flushes: self.flushes.saturating_sub(before.flushes),
        }
    }
}

/// Makes the kernel forget what it remembers of the files in `folder`, after it has written what is dirty:
/// only clean pages go (`posix_fadvise(2)`).
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
        let text = "  10  2  30  4  50 6 7 8 9 10 11 12 13 14 15 16 17\n";
        let counts =
            DeviceCounts { reads: 10, read_bytes: 30 * 512, writes: 50, written_bytes: 7 * 512, flushes: 16 };
        assert_eq!(decode(text), counts);
        assert_eq!(decode(""), DeviceCounts::default());
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
        let before = device.counts();
        drop_cached(folder.path()).expect("dropped");
        assert_eq!(fs::read(&path).expect("read"), bytes);
        let read = device.counts() - before;
        let counts = device.counters.exists();
        assert!(!counts || read.read_bytes >= 1 << 20, "{read:?}");
    }
}
