//! Mounting and unmounting: mount(2) for root, fusermount3(1) for everyone else.

use crate::serve::MountError;
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg,
    socketpair,
};
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What the kernel calls our mounts.
pub const FILESYSTEM_TYPE: &str = "fuse.icecore";
const DEVICE: &str = "/dev/fuse";
const HELPER: &str = "fusermount3";

/// A mount as the kernel lists it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Its device number, as the kernel writes it: `0:57`.
    pub device: String,
    /// Where.
    pub point: PathBuf,
    /// The type of the file system.
    pub kind: String,
    /// What is mounted: of ours, the path of the pool and the name of the version.
    pub source: PathBuf,
}

/// How to mount.
#[derive(Clone, Debug)]
pub(crate) struct How {
    pub source: PathBuf,
    pub any_user: bool,
    pub read_only: bool,
    pub suid: bool,
    pub dev: bool,
    pub exec: bool,
}

/// The mount that is on top at this very folder.
///
/// # Errors
/// [`MountError::Io`] if the list of mounts cannot be read.
pub fn mounted_at(point: &Path) -> Result<Option<Listed>, MountError> {
    let list = "/proc/self/mountinfo";
    let text = fs::read(list).map_err(|error| MountError::io("read", list, error))?;
    let mut mounts = text.split(|byte| *byte == b'\n').rev().filter_map(parse);
    Ok(mounts.find(|mount| mount.point == point))
}

/// One line of `/proc/self/mountinfo`: see proc_pid_mountinfo(5).
fn parse(line: &[u8]) -> Option<Listed> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = String::from_utf8_lossy(fields.nth(2)?).into_owned();
    let point = unescaped(fields.nth(1)?);
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = String::from_utf8_lossy(rest.next()?).into_owned();
    Some(Listed { device, point, kind, source: unescaped(rest.next()?) })
}

/// Blanks, tabs, newlines and backslashes are written as three octal digits.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let number = digits.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(number.unwrap_or(*first));
        rest = if number.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// Finds the folder to mount on, an absolute path. A mount of ours that a dead process left is taken away.
pub(crate) fn prepare(folder: &Path) -> Result<PathBuf, MountError> {
    let shown = folder.display();
    let absolute = std::path::absolute(folder).map_err(|error| MountError::io("find", folder, error))?;
    if is_stale(folder) {
        let point = real_path(&absolute);
        match mounted_at(&point)? {
            Some(mount) if mount.kind == FILESYSTEM_TYPE => {
                crate::log(&format!("{shown} is a mount of a process that is gone: taking it away"));
                detach(&point)?;
            }
            _ => {
                let message = format!(
                    "{shown} is a mount of another program, which is gone: take it away with `umount -l {shown}`"
                );
                return Err(MountError::Refused(message));
            }
        }
    }
    let metadata = fs::metadata(folder).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => {
            MountError::Refused(format!("there is no folder {shown}: make it with `mkdir {shown}`"))
        }
        _ => MountError::io("find", folder, error),
    })?;
    if !metadata.is_dir() {
        return Err(MountError::Refused(format!(
            "{shown} is not a folder: name an empty folder to mount on"
        )));
    }
    let point = fs::canonicalize(folder).map_err(|error| MountError::io("find", folder, error))?;
    if let Some(mount) = mounted_at(&point)? {
        let (source, kind) = (mount.source.display(), mount.kind);
        let message =
            format!("{source} ({kind}) is mounted on {shown} already: unmount it, or take another folder");
        return Err(MountError::Refused(message));
    }
    let mut entries = fs::read_dir(&point).map_err(|error| MountError::io("list", folder, error))?;
    if entries.next().is_some() {
        let message =
            format!("{shown} is not empty, and a mount would hide what is in it: take an empty folder");
        return Err(MountError::Refused(message));
    }
    Ok(point)
}

/// Whether a folder is a mount whose process is gone. The kernel may still know the attributes of its root,
/// so it is asked for something that it keeps for nothing.
#[must_use]
pub fn is_stale(folder: &Path) -> bool {
    matches!(rustix::fs::statfs(folder), Err(Errno::NOTCONN | Errno::CONNABORTED))
}

/// The folder as the kernel lists it, also if what is mounted on it is stale.
///
/// # Errors
/// [`MountError::Io`] if there is no such folder.
pub fn real_point(folder: &Path) -> Result<PathBuf, MountError> {
    let failed = |error| MountError::io("find", folder, error);
    if is_stale(folder) {
        return std::path::absolute(folder).map(|path| real_path(&path)).map_err(failed);
    }
    fs::canonicalize(folder).map_err(failed)
}

/// The path with links resolved in all but its last component, which cannot be looked at.
fn real_path(path: &Path) -> PathBuf {
    let parent = path.parent().and_then(|parent| fs::canonicalize(parent).ok());
    match (parent, path.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => path.to_owned(),
    }
}

/// Mounts, and answers the device that requests arrive at.
pub(crate) fn mount(point: &Path, how: &How) -> Result<OwnedFd, MountError> {
    match OpenOptions::new().read(true).write(true).open(DEVICE) {
        Ok(device) if rustix::process::geteuid().is_root() => mount_directly(point, how, device.into()),
        Ok(_) => mount_with_helper(point, how),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(MountError::Refused(format!(
            "there is no {DEVICE}: load the module with `modprobe fuse`, or start the container with --device {DEVICE}"
        ))),
        // fusermount3(1) opens it with the rights of its caller, too.
        Err(error) => Err(MountError::Refused(format!(
            "{DEVICE} cannot be opened: {error}; let users open it, as systems with udev do: `chmod 666 {DEVICE}`"
        ))),
    }
}

fn mount_directly(point: &Path, how: &How, device: OwnedFd) -> Result<OwnedFd, MountError> {
    let mode = fs::metadata(point).map_err(|error| MountError::io("find", point, error))?.mode();
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let other = if how.any_user { ",allow_other" } else { "" };
    let options = format!(
        "fd={},rootmode={mode:o},user_id={uid},group_id={gid},default_permissions{other}",
        device.as_raw_fd()
    );
    let mut flags = MountFlags::empty();
    for (wanted, flag) in [
        (how.read_only, MountFlags::RDONLY),
        (!how.suid, MountFlags::NOSUID),
        (!how.dev, MountFlags::NODEV),
        (!how.exec, MountFlags::NOEXEC),
    ] {
        flags.set(flag, wanted);
    }
    let options = std::ffi::CString::new(options).unwrap_or_default();
    rustix::mount::mount(&how.source, point, FILESYSTEM_TYPE, flags, &*options).map_err(|error| {
        let shown = point.display();
        match error {
            Errno::PERM => MountError::Refused(format!(
                "this process may not mount on {shown}: it lacks CAP_SYS_ADMIN (in a container: --cap-add SYS_ADMIN)"
            )),
            error => MountError::io("mount on", point, error.into()),
        }
    })?;
    Ok(device)
}

/// fusermount3 may do what we may not. It mounts, and sends the device through a socket.
fn mount_with_helper(point: &Path, how: &How) -> Result<OwnedFd, MountError> {
    let failed = |error: Errno| MountError::io("talk to", HELPER, error.into());
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::empty(), None).map_err(failed)?;
    rustix::io::fcntl_setfd(&ours, rustix::io::FdFlags::CLOEXEC).map_err(failed)?;
    let source = how.source.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,");
    let mut options = format!("fsname={source},subtype=icecore,default_permissions");
    for (wanted, option) in [(how.any_user, ",allow_other"), (how.read_only, ",ro"), (!how.exec, ",noexec")] {
        options.push_str(if wanted { option } else { "" });
    }
    let child = Command::new(HELPER)
        .args(["-o", &options, "--"])
        .arg(point)
        .env("_FUSE_COMMFD", theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    drop(theirs);
    let child = child.map_err(|error| {
        MountError::Refused(format!(
            "{HELPER} cannot be run: {error}; install the package fuse3, or mount as root"
        ))
    })?;
    let device = receive(&ours);
    let output = child.wait_with_output().map_err(|error| MountError::io("wait for", HELPER, error))?;
    match device {
        Ok(Some(device)) => {
            rustix::io::fcntl_setfd(&device, rustix::io::FdFlags::CLOEXEC).map_err(failed)?;
            Ok(device)
        }
        Ok(None) => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(MountError::Refused(format!("{HELPER} did not mount: {said}")))
        }
        Err(error) => Err(failed(error)),
    }
}

/// The descriptor in a message; `None` if the other end said nothing.
fn receive(socket: &OwnedFd) -> Result<Option<OwnedFd>, Errno> {
    let mut byte = [0];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::io::retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags))?;
    let received = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok(received)
}

/// Unmounts; refused while anything on it is in use.
///
/// # Errors
/// [`MountError::Refused`] if it is in use, or the rights are missing.
pub fn unmount(point: &Path) -> Result<(), MountError> {
    take_away(point, false)
}

/// Takes a mount out of sight at once; it ends when the last file on it is closed.
///
/// # Errors
/// As for [`unmount`].
pub fn detach(point: &Path) -> Result<(), MountError> {
    take_away(point, true)
}

fn take_away(point: &Path, lazily: bool) -> Result<(), MountError> {
    let shown = point.display();
    if !rustix::process::geteuid().is_root() {
        let options = if lazily { "-uz" } else { "-u" };
        let output = Command::new(HELPER).args([options, "--"]).arg(point).stdin(Stdio::null()).output();
        let output = output.map_err(|error| MountError::io("run", HELPER, error))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Err(MountError::Refused(format!("{shown} cannot be unmounted: {said}")));
    }
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW).map_err(|error| match error {
        Errno::BUSY => MountError::Refused(format!(
            "{shown} is in use: a program has a file or its working folder on it (`fuser -vm {shown}` names it)"
        )),
        Errno::INVAL => MountError::Refused(format!("nothing is mounted on {shown}")),
        error => MountError::io("unmount", point, error.into()),
    })
}

/// Text as the kernel lists it, for messages and comparisons.
#[must_use]
pub fn shown(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_list_of_mounts() {
        let line = b"36 35 0:31 / /mnt/two\\040words rw,nosuid shared:1 - fuse.icecore /srv/pool/db rw";
        let mount = parse(line).unwrap();
        assert_eq!((mount.device.as_str(), mount.point.as_path()), ("0:31", Path::new("/mnt/two words")));
        assert_eq!(
            (mount.kind.as_str(), mount.source.as_path()),
            (FILESYSTEM_TYPE, Path::new("/srv/pool/db"))
        );
        assert_eq!(parse(b""), None);
        assert_eq!(unescaped(b"a\\134b\\9"), Path::new("a\\b\\9"));
    }

    #[test]
    fn what_cannot_be_mounted_on_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path| prepare(path).unwrap_err().to_string();
        assert!(refused(&folder.path().join("missing")).contains("mkdir"));
        let file = folder.path().join("file");
        fs::write(&file, b"").unwrap();
        assert!(refused(&file).contains("is not a folder"));
        assert!(refused(folder.path()).contains("is not empty"));
        assert!(refused(Path::new("/proc")).contains("already"));
        fs::remove_file(&file).unwrap();
        assert_eq!(prepare(folder.path()).unwrap(), fs::canonicalize(folder.path()).unwrap());
    }
}
