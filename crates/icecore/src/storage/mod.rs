//! The only way to the disk: a small trait with real files behind it in production, and a counting
//! or a simulated disk in benchmarks and tests.

mod aligned;
mod medium;
#[cfg(test)]
pub(crate) mod memory;
mod overlay;
mod real;

pub use aligned::AlignedBuffer;
pub use medium::is_medium_read_only;
pub(crate) use overlay::{Change, Overlay};
pub(crate) use real::LOCK_NAME;
pub use real::RealStorage;

use std::io;

/// What a write carries. Real files ignore it; the counters and the backend that forgets data do not.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// File contents.
    Data = 0,
    /// Record headers, with the small writes that travel in them.
    RecordHeader = 1,
    /// Tree nodes.
    Node = 2,
    /// Sets, maps and catalogue: what a checkpoint writes beside nodes.
    Checkpoint = 3,
    /// Superblocks, segment headers and checksum tables.
    Frame = 4,
    /// Zeros written ahead so that later writes meet written extents.
    Ahead = 5,
    /// Second copies, of whatever kind, and what is written again from them.
    Copy = 6,
}

impl Kind {
    /// Number of kinds.
    pub const COUNT: usize = 7;
}

/// Space on the medium that holds the pool, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Size of the medium.
    pub total: u64,
    /// What this process may still take of it.
    pub free: u64,
}

/// A flat folder of named files, and the lock that says who owns it.
///
/// Every method may fail with any operating system error. After a crash, an entry made, removed or
/// renamed is certain to be found so only if [`Storage::sync_directory`] returned afterwards, and a file is
/// certain to have its length and contents only if its own [`StorageFile::sync`] did: a new file that was
/// never flushed may be found empty.
pub trait Storage: Send + Sync + 'static {
    /// Makes a file of `length` bytes, all allocated (it must not exist). Fails with `StorageFull`, leaving
    /// no file behind, when the medium cannot hold it.
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>>;

    /// As [`Storage::create`], of a file that may take up room only as it is written: a write can find the
    /// medium full. Its bytes read as zeros until then.
    fn create_sparse(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        self.create(name, length)
    }

    /// Opens a file that exists. `writable` false never changes anything.
    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn StorageFile>>;

    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Renames a file over another, atomically.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Names and lengths of all files, in no particular order.
    fn list(&self) -> io::Result<Vec<(String, u64)>>;

    /// Makes creations, removals and renames so far durable.
    fn sync_directory(&self) -> io::Result<()>;

    /// Space on the medium.
    fn space(&self) -> io::Result<Space>;

    /// Takes the lock on the folder without waiting: exclusive for writers, shared for readers. The lock
    /// lasts until the value returned is dropped. `WouldBlock` when another holder has it, be it in this very
    /// process. A forked child shares the lock of its parent: users must check their process number.
    fn lock(&self, exclusive: bool) -> io::Result<Box<dyn StorageLock>>;

    /// Who holds the lock that [`Storage::lock`] refused: "pid command-line", where that is known.
    fn lock_owner(&self) -> Option<String> {
        None
    }

    /// What to call this place in messages (a path).
    fn describe(&self) -> String;

    /// Another folder, by its absolute path, for second copies: one that exists. `Unsupported` where there is
    /// none.
    fn sibling(&self, path: &str) -> io::Result<std::sync::Arc<dyn Storage>> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("there is no folder {path} here")))
    }

    /// Files that this process may have open at a time, all of them together; a file may count twice.
    fn open_files_max(&self) -> usize {
        1024
    }

    /// The directory behind this storage, where there is one (for the control socket).
    fn directory(&self) -> Option<std::path::PathBuf> {
        None
    }
}

/// A lock that is let go when dropped.
pub trait StorageLock: Send + Sync {}

/// One open file. Reads and writes at explicit positions; safe to share between threads.
pub trait StorageFile: Send + Sync {
    /// Fills `buffer` from `offset`. `UnexpectedEof` if the file ends before.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// As [`StorageFile::read_at`], for a caller that keeps what it read in a cache of its own, or reads it
    /// once: it is not worth a place in a cache of the operating system. `offset` and length are whole
    /// blocks.
    fn read_direct(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_at(buffer, offset)
    }

    /// Says that `length` bytes from `offset` are read soon, so that the medium can begin to fetch them. A
    /// hint: it may do nothing, and it reports no error. As `posix_fadvise(2)` with `POSIX_FADV_WILLNEED`.
    fn will_read(&self, _offset: u64, _length: u64) {}

    /// Writes all the parts one after the other at `offset`. On an error any subset of the bytes may have
    /// been written. Parts that start and end on block borders of buffers aligned to blocks may bypass the
    /// page cache.
    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()>;

    /// As [`StorageFile::write_at`], for short writes that many others follow before the flush: the operating
    /// system gathers them.
    fn write_lazily(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        self.write_at(parts, offset)
    }

    /// Takes room on the medium for the first `length` bytes, which is at most [`StorageFile::length`]; no
    /// byte changes. Fails with `StorageFull`, leaving what was there. Where the medium cannot do that
    /// nothing happens.
    fn allocate(&self, _length: u64) -> io::Result<()> {
        Ok(())
    }

    /// Makes everything written to this file before the call durable. After an error nothing may be assumed
    /// about what was written since the last success.
    fn sync(&self) -> io::Result<()>;

    /// Whether every byte was written before, so that a flush need not wait for the filesystem to note that
    /// it was. `true` where this is unknown.
    fn is_written(&self) -> io::Result<bool> {
        Ok(true)
    }

    /// Length in bytes.
    fn length(&self) -> io::Result<u64>;
}
