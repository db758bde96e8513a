//! Where a result was measured.

use crate::error::{Doing, Result};
use crate::flush;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The machine, and the disk under the directory used.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// Model name of the processor.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: u64,
    /// Main memory in bytes.
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
    /// Type of the filesystem that holds the pools and the plain files.
    pub filesystem: String,
    /// The device it is on.
    pub device: String,
    /// Median time of one flush (4 KiB overwritten in place, then `fdatasync`) on it, in microseconds.
    pub flush_us: f64,
}

impl Machine {
    /// Looks around, and times flushes in `directory`.
    pub fn examine(directory: &Path) -> Result<Self> {
        let (filesystem, device) = mount_of(directory)?;
        let kernel = rustix::system::uname();
        Ok(Self {
            cpu: value_in("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            memory_bytes: value_in("/proc/meminfo", "MemTotal").map_or(0, |value| kibibytes(&value)),
            kernel: format!("{} {}", kernel.sysname().to_string_lossy(), kernel.release().to_string_lossy()),
            filesystem,
            device,
            flush_us: flush::median_seconds(directory, flush::COUNT)? * 1e6,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cpu, cores, kernel, filesystem, device, flush_us, .. } = self;
        let gibibytes = self.memory_bytes as f64 / (1_u64 << 30) as f64;
        write!(
            formatter,
            "{cores} cores of {cpu}, {gibibytes:.0} GiB, {kernel}, {filesystem} on {device}, flush {flush_us:.0} us"
        )
    }
}

/// The peak resident memory of this process so far, in bytes, where the kernel has the figure.
#[must_use]
pub fn peak_memory_bytes() -> Option<u64> {
    value_in("/proc/self/status", "VmHWM").map(|value| kibibytes(&value))
}

/// Resident memory of this process now.
#[must_use]
pub fn resident_memory_bytes() -> Option<u64> {
    value_in("/proc/self/status", "VmRSS").map(|value| kibibytes(&value))
}

/// Memory that programs can have without swapping, in bytes, where the kernel has the figure.
pub(crate) fn available_memory_bytes() -> Option<u64> {
    value_in("/proc/meminfo", "MemAvailable").map(|value| kibibytes(&value))
}

/// The first value of `key` in a file of `key: value` lines.
fn value_in(path: &str, key: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == key).then(|| value.trim().to_owned())
    })
}

/// Bytes in a value such as `24058 kB`.
fn kibibytes(value: &str) -> u64 {
    value.split_whitespace().next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// Filesystem type and device of the mount that holds `directory`.
fn mount_of(directory: &Path) -> Result<(String, String)> {
    let place = Place::of(directory)?;
    Ok(place.mount().map_or_else(
        || ("unknown".to_owned(), "unknown".to_owned()),
        |line| (line.filesystem.to_owned(), line.device.to_owned()),
    ))
}

/// How the mount that holds `directory` is mounted, such as `xfs rw,noatime,attr2`. For FUSE also what it
/// lies on.
pub(crate) fn mount_words(directory: &Path) -> Result<String> {
    let place = Place::of(directory)?;
    let Some(mount) = place.mount() else { return Ok("unknown".to_owned()) };
    match Path::new(&mount.point).parent() {
        Some(below) if mount.filesystem.starts_with("fuse") => {
            Ok(format!("{} on {}", mount.words(), mount_words(below)?))
        }
        _ => Ok(mount.words()),
    }
}

/// A directory, and the table of mounts.
struct Place {
    directory: PathBuf,
    number: String,
    table: String,
}

impl Place {
    fn of(directory: &Path) -> Result<Self> {
        let describe = || format!("examine {}", directory.display());
        let directory = directory.canonicalize().doing(describe)?;
        let number = fs::metadata(&directory).doing(describe)?.dev();
        let number = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
        let table =
            fs::read_to_string("/proc/self/mountinfo").doing(|| "read the table of mounts".to_owned())?;
        Ok(Self { directory, number, table })
    }

    fn mount(&self) -> Option<MountLine<'_>> {
        self.table
            .lines()
            .filter_map(MountLine::parse)
            .filter(|line| self.directory.starts_with(&line.point))
            // The deepest mount point holds the directory; of two there, the later one hides the earlier.
            // Mounts with the device number of the directory come first. There may be none: on Btrfs files
            // have other numbers than those in the table.
            .max_by_key(|line| (line.number == self.number, line.point.len()))
    }
}

struct MountLine<'text> {
    number: &'text str,
    point: String,
    /// Options of this mount.
    options: &'text str,
    filesystem: &'text str,
    device: &'text str,
    /// Options of the filesystem, which all of its mounts have.
    common: &'text str,
}

impl<'text> MountLine<'text> {
    /// `id parent major:minor root point options [fields] - type device options`, spaces in octal.
    fn parse(line: &'text str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(2);
        let number = before.next()?;
        let point = before.nth(1)?.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\");
        let options = before.next()?;
        let mut after = after.split(' ');
        let (filesystem, device) = (after.next()?, after.next()?);
        Some(Self { number, point, options, filesystem, device, common: after.next().unwrap_or_default() })
    }

    /// The type and all options, each once.
    fn words(&self) -> String {
        let mut options: Vec<&str> = self.options.split(',').collect();
        for option in self.common.split(',') {
            // A mount for reading only may be one of a filesystem that is written elsewhere.
            if !option.is_empty() && option != "rw" && !options.contains(&option) {
                options.push(option);
            }
        }
        format!("{} {}", self.filesystem, options.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_mount_table() {
        let line = "36 35 98:0 /mnt1 /mnt\\040two rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let mount = MountLine::parse(line).expect("well formed");
        assert_eq!((mount.number, mount.point.as_str()), ("98:0", "/mnt two"));
        assert_eq!((mount.filesystem, mount.device), ("ext3", "/dev/root"));
        assert_eq!(mount.words(), "ext3 rw,noatime,errors=continue");
        let bare = MountLine::parse("1 2 0:5 / / ro - tmpfs none rw,ro,size=1k").expect("well formed");
        assert_eq!(bare.words(), "tmpfs ro,size=1k");
        assert!(MountLine::parse("nonsense").is_none());
    }

    #[test]
    fn this_machine_is_described() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let machine = Machine::examine(folder.path()).expect("examined");
        assert!(machine.cores > 0 && machine.memory_bytes > 0 && machine.flush_us > 0.0);
        assert!(peak_memory_bytes().expect("known") > 0 && available_memory_bytes().expect("known") > 0);
    }
}
