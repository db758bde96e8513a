//! The lock on a directory: `flock` on a file in it, and the words in that file that say who holds it.
//!
//! A lock belongs to the open file description, which a forked child inherits: `flock` cannot distinguish the
//! two. A process that opens a pool therefore remembers its own process number and checks it. Here, only the
//! process that took a lock lets go of it. It does so outright, so that a child that lives on cannot keep it.
//! Only the death of the owner without a drop leaves the lock with the child, until that ends or calls exec
//! (which closes the descriptor).

use super::{FILE_MODE, LOCK_NAME};
use crate::owner::hand_over;
use crate::storage::StorageLock;
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs;

/// A link, a pipe or a terminal of that name is not opened, and holds no opening up.
const FLAGS: OFlags = OFlags::CLOEXEC.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK);

/// Longest description of an owner, in bytes.
const OWNER_BYTES_MAX: usize = 256;

/// A lock held; dropping it lets go.
pub(super) struct RealLock {
    /// Empty when there is no lock file and there cannot be one.
    held: Option<OwnedFd>,
    exclusive: bool,
    /// The process that took the lock.
    process: u32,
}

impl RealLock {
    fn new(held: Option<OwnedFd>, exclusive: bool) -> Self {
        Self { held, exclusive, process: std::process::id() }
    }
}

impl StorageLock for RealLock {}

impl Drop for RealLock {
    fn drop(&mut self) {
        let Some(file) = self.held.take().filter(|_| self.process == std::process::id()) else { return };
        if self.exclusive {
            // Only a courtesy: who asks also looks whether the lock is held at all.
            let _ = rustix::fs::ftruncate(&file, 0);
        }
        // When this fails, closing the descriptor does the same.
        let _ = rustix::fs::flock(&file, FlockOperation::Unlock);
    }
}

/// Takes the lock for the only writer and leaves a note of who that is. `WOULDBLOCK` when it is held.
pub(super) fn exclusive(directory: &OwnedFd) -> rustix::io::Result<RealLock> {
    let file = loop {
        let file = open_or_make(directory)?;
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // A process that could not make a pool removes the file while it has the lock: a lock on that keeps
        // no process out.
        if is_the_one(directory, &file) {
            break file;
        }
    };
    let note = describe_process(std::process::id());
    // Nothing depends on the note, so a full disk must not keep the owner out. The old note is overwritten
    // before it is cut: that needs no new space.
    if rustix::io::pwrite(&file, note.as_bytes(), 0).is_ok() {
        let _ = rustix::fs::ftruncate(&file, note.len() as u64);
    }
    Ok(RealLock::new(Some(file), true))
}

/// Takes the lock for a reader. On a medium that cannot be written, where there is no lock file, no process
/// can become the writer either, and the lock is empty.
pub(super) fn shared(directory: &OwnedFd) -> rustix::io::Result<RealLock> {
    let opened = match rustix::fs::openat(directory, LOCK_NAME, FLAGS | OFlags::RDONLY, Mode::empty()) {
        Err(Errno::NOENT) => open_or_make(directory),
        opened => opened,
    };
    let held = match opened {
        Ok(file) => {
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared)?;
            Some(file)
        }
        Err(Errno::ROFS) => None,
        // Not ours to write, and there was no lock file: no process that may write here has come yet.
        Err(Errno::ACCESS | Errno::PERM) if is_absent(directory) => None,
        Err(errno) => return Err(errno),
    };
    Ok(RealLock::new(held, false))
}

fn open_or_make(directory: &OwnedFd) -> rustix::io::Result<OwnedFd> {
    let flags = FLAGS | OFlags::RDWR | OFlags::CREATE;
    match rustix::fs::openat(directory, LOCK_NAME, flags | OFlags::EXCL, FILE_MODE) {
        Ok(file) => {
            hand_over(&file, &rustix::fs::fstat(directory)?);
            Ok(file)
        }
        Err(Errno::EXIST) => rustix::fs::openat(directory, LOCK_NAME, flags, FILE_MODE),
        Err(errno) => Err(errno),
    }
}

fn is_absent(directory: &OwnedFd) -> bool {
    let status = rustix::fs::statat(directory, LOCK_NAME, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    matches!(status, Err(Errno::NOENT))
}

/// Whether others would meet this file.
fn is_the_one(directory: &OwnedFd, file: &OwnedFd) -> bool {
    let named = rustix::fs::statat(directory, LOCK_NAME, rustix::fs::AtFlags::SYMLINK_NOFOLLOW);
    match (named, rustix::fs::fstat(file)) {
        (Ok(named), Ok(own)) => (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino),
        (Err(Errno::NOENT), _) => false,
        // It cannot be found out.
        _ => true,
    }
}

/// "pid command line" of a process that holds the lock, or `None` when that cannot be found out.
///
/// The kernel's table of locks decides; where it does not know (other process namespaces, filesystems with
/// numbers of their own), the note in the file is believed, which after a kill may be an old one.
pub(super) fn owner(directory: &OwnedFd) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = rustix::fs::openat(directory, LOCK_NAME, flags, Mode::empty()).ok()?;
    let mut bytes = [0; OWNER_BYTES_MAX];
    let length = rustix::io::pread(&file, &mut bytes, 0).ok()?;
    let note = printable(bytes.get(..length)?);
    let status = rustix::fs::fstat(&file).ok()?;
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    match holder_in(&locks, status.st_dev, status.st_ino) {
        Some(pid) if note.split(' ').next() != Some(&pid.to_string()) => Some(describe_process(pid)),
        _ => Some(note).filter(|note| !note.is_empty()),
    }
}

/// The process that holds a `flock` on a file, by the kernel's table: lines such as
/// `1: FLOCK  ADVISORY  WRITE 1234 fe:00:131074 0 EOF`.
fn holder_in(locks: &str, device: u64, inode: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    locks.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        let held = words.next() == Some("FLOCK");
        let pid: u32 = words.nth(2)?.parse().ok().filter(|pid| *pid > 0)?;
        (held && words.next() == Some(&place)).then_some(pid)
    })
}

fn describe_process(pid: u32) -> String {
    let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let mut text = format!("{pid} {}", printable(&command)).trim_end().to_owned();
    text.truncate(text.floor_char_boundary(OWNER_BYTES_MAX));
    text
}

/// One line of text, whatever the bytes: arguments are separated by zeros.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_locks_names_the_holder() {
        let table = "1: POSIX  ADVISORY  WRITE 7 fe:00:131074 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 0 fe:00:131074 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 9 fe:00:131074 0 EOF\n\
                     3: FLOCK  ADVISORY  READ 1234 fe:00:131074 0 EOF\nnonsense\n";
        assert_eq!(holder_in(table, rustix::fs::makedev(0xfe, 0), 131_074), Some(1234));
        assert_eq!(holder_in(table, rustix::fs::makedev(0xfe, 1), 131_074), None);
    }

    #[test]
    fn a_process_is_described_in_one_short_line() {
        let text = describe_process(std::process::id());
        assert!(text.starts_with(&format!("{} ", std::process::id())), "{text}");
        assert!(text.len() <= OWNER_BYTES_MAX && !text.contains(char::is_control));
        assert_eq!(printable(b"a\0b\nc\xff\0"), "a b c\u{fffd}");
    }
}
