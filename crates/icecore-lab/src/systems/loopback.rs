//! Loop devices, and file systems on them.

use super::Ground;
use crate::device::Device;
use crate::error::{Doing, Result};
use crate::options::Options;
use crate::programs::{self, Origin};
use crate::tool::{self, PATIENCE_AT_END, Tool};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Programs of root are here, which is not in the `PATH` of every user.
pub(crate) const SBIN: &str = "/usr/sbin";
const DD_BYTES: u64 = 4 << 20;

/// What a file system is made by.
#[derive(Clone, Copy)]
pub(crate) struct Format {
    /// As `mount -t` names it.
    pub kind: &'static str,
    /// The program: where it is, or its name.
    pub program: &'static str,
    /// Its arguments before the device. They must keep it from discarding: a hole in the file beneath costs
    /// each first write.
    pub arguments: &'static [&'static str],
    /// Options of the mount. They must keep it from discarding, too.
    pub mounted: &'static str,
}

pub(crate) const EXT4: Format = Format {
    kind: "ext4",
    program: "/usr/sbin/mkfs.ext4",
    arguments: &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
    mounted: "rw",
};

impl Format {
    /// Makes the file system in a file or on a device.
    pub(crate) fn make(&self, place: &Path, options: &Options) -> Result<()> {
        let mut command = programs::command(self.program);
        tool::output(command.args(self.arguments).arg(place), options).map(|_| ())
    }
}

/// Why this machine cannot have such a file system.
pub(crate) fn probe(format: &Format, origin: impl Into<Origin>) -> Result<(), String> {
    super::is_root()?;
    super::has_loop_devices()?;
    super::has_file_system(format.kind)?;
    super::has_program(format.program, origin)
}

/// A mounted file system. The device goes with the mount, and the mount when the value is dropped.
pub(crate) struct Loop {
    image: PathBuf,
    point: PathBuf,
    format: Format,
    device: Device,
}

impl Loop {
    /// Makes the file system in a file in the folder of the ground, and mounts it beside the file.
    pub(super) fn begin(ground: &Ground<'_>, format: &Format) -> Result<Self> {
        Self::begin_in(ground.folder, format.kind, ground.bytes, format, ground.options)
    }

    /// Makes the file system in a file of this name and size in a folder, and mounts it beside the file.
    pub(crate) fn begin_in(
        folder: &Path,
        name: &str,
        bytes: u64,
        format: &Format,
        options: &Options,
    ) -> Result<Self> {
        let (image, point) = (folder.join(format!("{name}.img")), folder.join(name));
        write_zeros(&image, bytes, bytes, options)?;
        Self::begin_on(image, point, format, options)
    }

    /// Makes the file system in a file that is there, and mounts it. The file goes with the value.
    pub(crate) fn begin_on(
        image: PathBuf,
        point: PathBuf,
        format: &Format,
        options: &Options,
    ) -> Result<Self> {
        format.make(&image, options)?;
        fs::create_dir(&point).doing(|| format!("make {}", point.display()))?;
        let device = attach_and_mount(&image, &point, format, options)?;
        Ok(Self { image, point, format: *format, device })
    }

    /// Where it is mounted.
    pub(crate) fn point(&self) -> &Path {
        &self.point
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Unmounts it and mounts it again: the kernel then has nothing of it in its caches.
    pub(super) fn remount(&mut self, options: &Options) -> Result<()> {
        let never = options.unstoppable();
        detached_after(&self.device, || tool::output(Command::new("umount").arg(&self.point), &never))?;
        self.device = attach_and_mount(&self.image, &self.point, &self.format, options)?;
        Ok(())
    }

    /// Writes all that is dirty.
    pub(super) fn sync(&self) -> Result<()> {
        super::write_dirty(&self.point)
    }

    /// Bytes in use.
    pub(super) fn used_bytes(&self) -> Result<u64> {
        used_bytes(&self.point)
    }
}

/// Bytes in use in the file system of a folder.
pub(super) fn used_bytes(folder: &Path) -> Result<u64> {
    let space = rustix::fs::statvfs(folder).doing(|| format!("measure {}", folder.display()))?;
    Ok((space.f_blocks - space.f_bfree) * space.f_frsize)
}

/// A loop device over a file of its own. Both go when the value is dropped, and nothing may use the device
/// then.
pub(super) struct Attached {
    image: PathBuf,
    path: PathBuf,
    device: Device,
}

impl Attached {
    /// Attaches a file of this size in the folder of the ground. The first `written` bytes of it are written.
    pub(super) fn begin(ground: &Ground<'_>, name: &str, bytes: u64, written: u64) -> Result<Self> {
        let image = ground.folder.join(format!("{name}.img"));
        write_zeros(&image, bytes, written, ground.options)?;
        let path = attach(&image, ground.options)?;
        Ok(Self { image, device: device_at(&path), path: path.into() })
    }

    /// The node of the device.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        let never = Options::new(".");
        let detach = || tool::output(losetup().arg("--detach").arg(&self.path), &never);
        let _ = detached_after(&self.device, detach);
        let _ = fs::remove_file(&self.image);
    }
}

/// A file with its first bytes written: the file system beneath then allocates nothing while something is
/// measured. A debug build, which measures nothing, leaves a hole.
fn write_zeros(image: &Path, bytes: u64, written: u64, options: &Options) -> Result<()> {
    let doing = || format!("make {}", image.display());
    File::create_new(image).doing(doing)?.set_len(bytes).doing(doing)?;
    if cfg!(debug_assertions) {
        return Ok(());
    }
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "oflag=direct", "conv=notrunc", "status=none"]);
    command.arg(format!("bs={DD_BYTES}")).arg(format!("count={}", written.div_ceil(DD_BYTES)));
    command.arg(format!("of={}", image.display()));
    tool::output(&mut command, options).map(|_| ())
}

fn losetup() -> Command {
    Command::new(format!("{SBIN}/losetup"))
}

/// The page cache of the file beneath would be a second one, so it is left out. A run that is to stop does
/// not stop here: the device would stay.
fn attach(image: &Path, options: &Options) -> Result<String> {
    let never = options.unstoppable();
    let path = tool::output(losetup().args(["--find", "--show", "--direct-io=on"]).arg(image), &never)?;
    Ok(path.trim().to_owned())
}

/// Ends the use of a loop device, and waits until the device is attached to its file no longer. The kernel
/// detaches it only when every program has closed it. One that looks at all devices may have it open for a
/// moment, as mkfs.ext4(8) of another run has, which asks whether its own file is mounted.
fn detached_after<T>(device: &Device, end_use: impl FnOnce() -> T) -> T {
    let file = device.backing_file();
    let outcome = end_use();
    let end = Instant::now() + PATIENCE_AT_END;
    while file.is_some() && device.backing_file() == file && Instant::now() < end {
        thread::sleep(Duration::from_millis(2));
    }
    outcome
}

fn device_at(path: &str) -> Device {
    Device::named(path.trim_start_matches("/dev/"))
}

fn attach_and_mount(image: &Path, point: &Path, format: &Format, options: &Options) -> Result<Device> {
    // From here to the detaching nothing looks whether the run is to stop: a device that is mounted and
    // detached goes with its mount.
    let device = attach(image, options)?;
    let never = options.unstoppable();
    let mounted = mount(Path::new(&device), point, format.kind, format.mounted, &never);
    let detached = tool::output(losetup().args(["--detach", &device]), &never);
    mounted?;
    if let Err(error) = detached {
        unmount(point);
        return Err(error);
    }
    Ok(device_at(&device))
}

/// Mounts a device.
pub(crate) fn mount(device: &Path, point: &Path, kind: &str, how: &str, options: &Options) -> Result<()> {
    let mut command = Command::new("mount");
    tool::output(command.args(["-t", kind, "-o", how]).arg(device).arg(point), options).map(|_| ())
}

impl Drop for Loop {
    fn drop(&mut self) {
        detached_after(&self.device, || unmount(&self.point));
        // Several systems in turn would fill the disk.
        let _ = fs::remove_file(&self.image);
        let _ = fs::remove_dir(&self.point);
    }
}

/// Unmounts what is mounted there, at the latest when its last user ends.
pub(crate) fn unmount(point: &Path) {
    // It is busy for a moment after a program was killed that had files open in it.
    for option in [None, Some("--lazy")] {
        let mut command = Command::new("umount");
        let unmounted = Tool::start(command.args(option).arg(point)).and_then(|mut unmounting| {
            if !unmounting.ends_within(Duration::from_secs(60))? {
                return Ok(false);
            }
            unmounting.process().wait().map(|status| status.success()).doing(|| "unmount".to_owned())
        });
        if unmounted.unwrap_or(false) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_another_program_has_open_for_a_moment_is_detached_with_its_mount() {
        if probe(&EXT4, "e2fsprogs").is_err() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mounted = Loop::begin_in(folder.path(), "held", 16 << 20, &EXT4, &Options::new(".")).unwrap();
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let here = format!(" {} ", mounted.point().display());
        let node = table.lines().find_map(|line| Some(line.split_once(&here)?.0)).unwrap();
        let (device, held) = (device_at(node), File::open(node).unwrap());
        let file = device.backing_file().expect("it is attached");
        let holder = thread::spawn(move || {
            thread::sleep(Duration::from_millis(300));
            drop(held);
        });
        drop(mounted);
        // A file that is removed has a word more there.
        let now = device.backing_file().unwrap_or_default();
        assert!(!now.starts_with(file.trim_end()), "attached to {now}");
        holder.join().unwrap();
    }
}
