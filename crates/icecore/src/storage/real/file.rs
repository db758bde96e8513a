//! One real file: reads through the page cache, aligned writes around it.
//!
//! On extents written before, a direct write followed by `fdatasync` takes half the time of a buffered one:
//! there are no pages to find, dirty and write back. The kernel keeps the page cache coherent with direct
//! writes of the same machine, so reads may stay buffered.
//!
//! Short writes of which many come before the flush go through the page cache: what is written there again
//! goes to the device once.
//!
//! A caller with a cache of its own reads around the page cache, too: see [`StorageFile::read_direct`].

use crate::storage::{AlignedBuffer, Kind, StorageFile};
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
/// Memory of a direct read has to begin on a multiple of this. The sector of a disk; a filesystem that wants
/// more refuses.
const READ_ALIGNMENT: usize = 512;
/// Direct reads into other memory go through a buffer of this size.
const BOUNCE_BYTES: usize = 1 << 20;
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

    /// The descriptor for direct access, if the filesystem has such.
    fn direct(&self) -> Option<&OwnedFd> {
        if self.direct_refused.load(Ordering::Relaxed) {
            return None;
        }
        self.direct.get_or_init(|| open_direct(self.descriptor(), self.writable).ok()).as_ref()
    }

    /// Whether writes bypass the page cache by now.
    #[cfg(test)]
    pub(super) fn is_direct(&self) -> bool {
        !self.direct_refused.load(Ordering::Relaxed) && matches!(self.direct.get(), Some(Some(_)))
    }
}

impl StorageFile for RealFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        read_exact(&self.buffered, buffer, offset)
    }

    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let whole = |number: u64| number.is_multiple_of(BLOCK_BYTES as u64);
        let Some(direct) = self.direct().filter(|_| whole(offset) && whole(buffer.len() as u64)) else {
            return self.read_at(buffer, offset);
        };
        let read = if buffer.as_ptr().addr().is_multiple_of(READ_ALIGNMENT) {
            read_exact(direct, buffer, offset)
        } else {
            read_bounced(direct, buffer, offset)
        };
        match read {
            // Refused for what it is: a longer alignment is wanted, or the file ends within a block.
            Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                self.read_at(buffer, offset)
            }
            read => read,
        }
    }

    fn will_read(&self, offset: u64, length: u64) {
        // No length would mean the rest of the file.
        let Some(length) = NonZeroU64::new(length) else { return };
        // Should it fail, the reads fetch for themselves.
        let _ = rustix::fs::fadvise(&self.buffered, offset, Some(length), Advice::WillNeed);
    }

    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
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
        if is_aligned(slices, offset)
            && let Some(direct) = self.direct()
        {
            return match write_all(direct, slices, offset) {
                // Refused for what it is, not for what it holds: a longer alignment is wanted, or a short
                // write left an odd rest. Writing all of it again through the page cache does no harm.
                Err(Errno::INVAL) => {
                    self.direct_refused.store(true, Ordering::Relaxed);
                    self.write_at(parts, offset)
                }
                result => Ok(result?),
            };
        }
        Ok(write_all(&self.buffered, slices, offset)?)
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        super::fallocate(self, length).map(drop)
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
        // Extents that are allocated and were never written pass for holes. This moves the descriptor's
        // position, which no other call uses.
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

/// Fills the buffer, going on after short and interrupted calls.
fn read_exact(file: &OwnedFd, buffer: &mut [u8], offset: u64) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(file, rest, offset + filled as u64) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// As [`read_exact`], by way of aligned memory.
fn read_bounced(file: &OwnedFd, buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
    let mut scratch = AlignedBuffer::scratch(buffer.len().min(BOUNCE_BYTES));
    for part in buffer.chunks_mut(scratch.len()) {
        let aligned = &mut scratch[..part.len()];
        read_exact(file, aligned, offset)?;
        part.copy_from_slice(aligned);
        offset += part.len() as u64;
    }
    Ok(())
}

/// Opens the same file once more. Through the descriptor and not by name: the file may have another name by
/// now.
fn open_direct(buffered: BorrowedFd<'_>, writable: bool) -> rustix::io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", buffered.as_raw_fd());
    let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
    rustix::fs::open(path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
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
