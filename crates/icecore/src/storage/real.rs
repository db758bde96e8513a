//! Real files in a directory of a Linux filesystem.

mod file;
mod lock;
#[cfg(test)]
mod tests;

use super::{AlignedBuffer, Kind, Space, Storage, StorageFile, StorageLock};
use crate::owner::hand_over;
use crate::units::BLOCK_BYTES;
use file::RealFile;
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file that carries the lock. It belongs to the storage: it is not listed and cannot be named.
pub(crate) const LOCK_NAME: &str = "lock";
/// A pool may hold files of many users (their modes are kept inside), so only its owner reads it.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
/// How much is written at once where zeros must stand in for allocation.
const ZEROS_BYTES: usize = 256 * BLOCK_BYTES;

/// A directory of a Linux filesystem.
///
/// The directory is held open: it may be renamed while in use, and when it is removed every call that
/// needs it fails with `NotFound` and says so.
pub struct RealStorage {
    path: PathBuf,
    directory: OwnedFd,
}

impl RealStorage {
    /// The directory at `path`, which must exist.
    pub fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().canonicalize()?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&path, flags, Mode::empty())?;
        Ok(Self { path, directory })
    }

    /// Tells "no such file" from "no such directory any more".
    fn fault(&self, errno: Errno) -> io::Error {
        if errno == Errno::NOENT && self.is_removed() { removed_directory() } else { errno.into() }
    }

    /// A new file, and nothing where it cannot be given its length.
    fn make(
        &self,
        name: &str,
        give_length: impl FnOnce(&RealFile) -> io::Result<()>,
    ) -> io::Result<Box<dyn StorageFile>> {
        check_name(name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let descriptor = rustix::fs::openat(&self.directory, name, flags, FILE_MODE)
            .map_err(|errno| full_or(errno).unwrap_or_else(|| self.fault(errno)))?;
        hand_over(&descriptor, &rustix::fs::fstat(&self.directory)?);
        let file = RealFile::new(descriptor, true);
        if let Err(error) = give_length(&file) {
            // The first error says what is wrong; one from the removal would only hide it.
            let _ = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
            return Err(error);
        }
        Ok(Box::new(file))
    }

    fn is_removed(&self) -> bool {
        rustix::fs::fstat(&self.directory).is_ok_and(|status| status.st_nlink == 0)
    }
}

impl Storage for RealStorage {
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        self.make(name, |file| allocate(file, length))
    }

    fn create_sparse(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        self.make(name, |file| Ok(rustix::fs::ftruncate(file.descriptor(), length)?))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn StorageFile>> {
        check_name(name)?;
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        // NONBLOCK: whatever took the name of a file (a pipe, a terminal) must not hold up the opening.
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let descriptor = rustix::fs::openat(&self.directory, name, flags, Mode::empty())
            .map_err(|errno| self.fault(errno))?;
        let status = rustix::fs::fstat(&descriptor)?;
        if FileType::from_raw_mode(status.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Ok(Box::new(RealFile::new(descriptor, writable)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        check_name(name)?;
        rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()).map_err(|errno| self.fault(errno))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        check_name(from)?;
        check_name(to)?;
        rustix::fs::renameat(&self.directory, from, &self.directory, to).map_err(|errno| self.fault(errno))
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.directory).map_err(|errno| self.fault(errno))? {
            let entry = entry.map_err(|errno| self.fault(errno))?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if name == LOCK_NAME {
                continue;
            }
            let status = match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
                // Removed since the directory was read.
                Err(Errno::NOENT) => continue,
                status => status?,
            };
            if FileType::from_raw_mode(status.st_mode) == FileType::RegularFile {
                found.push((name.to_owned(), u64::try_from(status.st_size).unwrap_or(0)));
            }
        }
        // A removed directory reads as an empty one.
        if found.is_empty() && self.is_removed() { Err(removed_directory()) } else { Ok(found) }
    }

    fn sync_directory(&self) -> io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::fs::fsync(&self.directory))?;
        if self.is_removed() { Err(removed_directory()) } else { Ok(()) }
    }

    fn space(&self) -> io::Result<Space> {
        let status = rustix::fs::fstatvfs(&self.directory)?;
        Ok(Space {
            total: status.f_blocks.saturating_mul(status.f_frsize),
            free: status.f_bavail.saturating_mul(status.f_frsize),
        })
    }

    fn lock(&self, exclusive: bool) -> io::Result<Box<dyn StorageLock>> {
        let lock = if exclusive { lock::exclusive(&self.directory) } else { lock::shared(&self.directory) };
        Ok(Box::new(lock.map_err(|errno| full_or(errno).unwrap_or_else(|| self.fault(errno)))?))
    }

    fn lock_owner(&self) -> Option<String> {
        lock::owner(&self.directory)
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }

    fn sibling(&self, path: &str) -> io::Result<Arc<dyn Storage>> {
        Ok(Arc::new(Self::new(path)?))
    }

    fn open_files_max(&self) -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
    }

    fn directory(&self) -> Option<PathBuf> {
        Some(self.path.clone())
    }
}

/// Names are single path components, so that nothing outside the directory is ever touched.
fn check_name(name: &str) -> io::Result<()> {
    let reserved = matches!(name, "" | "." | ".." | LOCK_NAME);
    if reserved || name.contains(['/', '\0']) {
        let message = format!("{name:?} cannot be the name of a file of a pool");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

fn removed_directory() -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, "the directory of the pool was removed")
}

/// The two ways in which a filesystem says "full" become one; `None` for other errors.
fn full_or(errno: Errno) -> Option<io::Error> {
    match errno {
        Errno::NOSPC => Some(Errno::NOSPC.into()),
        Errno::DQUOT => Some(io::Error::new(io::ErrorKind::StorageFull, "disk quota exceeded")),
        _ => None,
    }
}

/// Makes an empty file `length` bytes long, with room on the medium for all of them.
fn allocate(file: &RealFile, length: u64) -> io::Result<()> {
    if length == 0 {
        return Ok(());
    }
    if fallocate(file, length)? { Ok(()) } else { write_zeros(file, length) }
}

/// Takes room for the first bytes of a file; whether the filesystem can do that.
fn fallocate(file: &RealFile, length: u64) -> io::Result<bool> {
    let fallocate = || rustix::fs::fallocate(file.descriptor(), FallocateFlags::empty(), 0, length);
    match rustix::io::retry_on_intr(fallocate) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(false),
        Err(errno) => Err(full_or(errno).unwrap_or_else(|| errno.into())),
    }
}

/// Allocation for filesystems without it. Delayed allocation could still find the medium full after the
/// last write, hence the flush.
fn write_zeros(file: &RealFile, length: u64) -> io::Result<()> {
    let zeros = AlignedBuffer::zeroed(ZEROS_BYTES);
    let write_all = || {
        let mut offset = 0;
        while offset < length {
            let piece = (length - offset).min(ZEROS_BYTES as u64);
            let zeros = zeros.get(..usize::try_from(piece).unwrap_or(ZEROS_BYTES)).unwrap_or(&zeros);
            file.write_at(&[(Kind::Ahead, zeros)], offset)?;
            offset += piece;
        }
        file.sync()
    };
    write_all().map_err(|error| {
        let errno = Errno::from_io_error(&error);
        errno.and_then(full_or).unwrap_or(error)
    })
}
