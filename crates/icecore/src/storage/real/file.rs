//! One real file: reads through the page cache, aligned writes around it.
//!
//! On extents written before, a direct write followed by `fdatasync` takes half the time of a buffered
//! one: there are no pages to find, dirty and write back. The kernel keeps the page cache coherent with
//! direct writes of the same machine, so reads may stay buffered.
//!
//! Long writes are another matter: nobody waits for each of them, and what they carry is likely to be read
//! again. They go through the page cache, and the kernel is told to begin writing at once. Not so where a flush
//! comes next: it would wait for them, and every direct write after that would first have to clear the cache.
//!
//! Short writes of which many come before the flush go through the page cache, too: what is written there again
//! goes to the device once.

use crate::storage::{Kind, StorageFile};
use crate::units::BLOCK_BYTES;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Advice, Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Calls with up to this many parts need no memory of their own.
const PARTS_INLINE: usize = 16;
/// Writes of this many bytes and more go through the page cache.
const LONG_WRITE_BYTES: usize = 256 << 10;
/// The kernel takes no more than this many parts in one call (`IOV_MAX`).
const PARTS_MAX: usize = 1024;

/// A file of a directory, open once for everything and, from the first aligned write on, a second time
/// for direct writes.
pub(super) struct RealFile {
    buffered: OwnedFd,
    writable: bool,
    /// Empty inside when the filesystem refused to open it.
    direct: OnceLock<Option<OwnedFd>>,
    /// Some filesystems take the flag and refuse the write.
    direct_refused: AtomicBool,
}

impl RealFile {
    /// A file behind a descriptor just opened; nothing is written unless `writable`.
    pub(super) fn new(buffered: OwnedFd, writable: bool) -> Self {
        Self { buffered, writable, direct: OnceLock::new(), direct_refused: AtomicBool::new(false) }
    }

    /// The descriptor that goes through the page cache.
    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.buffered.as_fd()
    }

    /// The descriptor for direct writes, if the filesystem has such.
    fn direct(&self) -> Option<&OwnedFd> {
        if self.direct_refused.load(Ordering::Relaxed) {
            return None;
        }
        self.direct.get_or_init(|| open_direct(self.descriptor()).ok()).as_ref()
    }

    /// Whether writes bypass the page cache by now.
    #[cfg(test)]
    pub(super) fn is_direct(&self) -> bool {
        !self.direct_refused.load(Ordering::Relaxed) && matches!(self.direct.get(), Some(Some(_)))
    }
}

impl StorageFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pread(&self.buffered, rest, offset + filled as u64) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn will_read(&self, offset: u64, length: u64) {
        // No length would mean the rest of the file.
        let Some(length) = NonZeroU64::new(length) else { return };
        // Should it fail, the reads fetch for themselves.
        let _ = rustix::fs::fadvise(&self.buffered, offset, Some(length), Advice::WillNeed);
    }

    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        self.write(parts, offset, LONG_WRITE_BYTES)
    }

    fn write_through(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        self.write(parts, offset, usize::MAX)
    }

    fn write_lazily(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        if !self.writable {
            return Err(Errno::BADF.into());
        }
        let mut slices: Vec<_> = parts.iter().map(|(_, bytes)| IoSlice::new(bytes)).collect();
        Ok(write_all(&self.buffered, &mut slices, offset)?)
    }

    fn sync(&self) -> io::Result<()> {
        // Also after direct writes: the device's own cache and new extents are flushed by nothing else. An
        // interrupted call has consumed no error, so repeating it cannot turn a failed flush into a success.
        Ok(rustix::io::retry_on_intr(|| rustix::fs::fdatasync(&self.buffered))?)
    }

    fn is_written(&self) -> io::Result<bool> {
        // Extents that are allocated and were never written pass for holes. The descriptor's position, which
        // this moves, is used by nobody.
        match rustix::fs::seek(&self.buffered, SeekFrom::Hole(0)) {
            Ok(hole) => Ok(hole >= self.length()?),
            Err(Errno::INVAL) => Ok(true),
            Err(errno) => Err(errno.into()),
        }
    }

    fn length(&self) -> io::Result<u64> {
        let status = rustix::fs::fstat(&self.buffered)?;
        Ok(u64::try_from(status.st_size).unwrap_or(0))
    }
}

impl RealFile {
    /// Writes of `long` bytes and more go through the page cache.
    fn write(&self, parts: &[(Kind, &[u8])], offset: u64, long: usize) -> io::Result<()> {
        if !self.writable {
            return Err(Errno::BADF.into());
        }
        let mut inline = [IoSlice::new(&[]); PARTS_INLINE];
        let mut many;
        let slices = if let Some(slices) = inline.get_mut(..parts.len()) {
            for (slice, (_, bytes)) in slices.iter_mut().zip(parts) {
                *slice = IoSlice::new(bytes);
            }
            slices
        } else {
            many = parts.iter().map(|(_, bytes)| IoSlice::new(bytes)).collect::<Vec<_>>();
            many.as_mut_slice()
        };
        let length = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if length >= long {
            write_all(&self.buffered, slices, offset)?;
            begin_writeback(&self.buffered, offset, length);
            return Ok(());
        }
        if is_aligned(slices, offset)
            && let Some(direct) = self.direct()
        {
            return match write_all(direct, slices, offset) {
                // Refused for what it is, not for what it holds: a longer alignment is wanted, or a short write
                // left an odd rest. Writing all of it again through the page cache does no harm.
                Err(Errno::INVAL) => {
                    self.direct_refused.store(true, Ordering::Relaxed);
                    self.write(parts, offset, long)
                }
                result => Ok(result?),
            };
        }
        Ok(write_all(&self.buffered, slices, offset)?)
    }
}

/// Asks the kernel to begin writing a range to the device, so that the flush to come finds little left to do.
fn begin_writeback(file: &OwnedFd, offset: u64, length: usize) {
    let (Ok(offset), Ok(length)) = (i64::try_from(offset), i64::try_from(length)) else { return };
    // SAFETY: the call takes a descriptor, which is open as long as it is borrowed here, and numbers.
    let _ = unsafe { libc::sync_file_range(file.as_raw_fd(), offset, length, libc::SYNC_FILE_RANGE_WRITE) };
    // A hint: should it fail, the flush does all the work, and reports what goes wrong.
}

/// Opens the same file once more. Through the descriptor and not by name: the file may have another name by now.
fn open_direct(buffered: BorrowedFd<'_>) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", buffered.as_raw_fd());
    rustix::fs::open(path, OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
}

fn is_aligned(slices: &[IoSlice<'_>], offset: u64) -> bool {
    let whole = |slice: &IoSlice<'_>| {
        slice.len().is_multiple_of(BLOCK_BYTES) && slice.as_ptr().addr().is_multiple_of(BLOCK_BYTES)
    };
    offset.is_multiple_of(BLOCK_BYTES as u64) && slices.iter().all(whole)
}

/// Writes all parts one after the other, going on after short and interrupted calls. `slices` is used up.
fn write_all(file: &OwnedFd, mut slices: &mut [IoSlice<'_>], mut offset: u64) -> rustix::io::Result<()> {
    // Empty parts in front must not pass for a write that got nowhere.
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        let at_once = slices.get(..PARTS_MAX).unwrap_or(slices);
        match rustix::io::pwritev(file, at_once, offset) {
            // A regular file takes at least a byte or says why not.
            Ok(0) => return Err(Errno::IO),
            Ok(written) => {
                IoSlice::advance_slices(&mut slices, written);
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}
