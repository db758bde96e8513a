//! How pools are made and opened.

use crate::format::copies::CopyMode;
use crate::units::{ByteLength, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// Where times come from: those of files and snapshots, and the names of what rollbacks keep.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// The system's clock.
    #[default]
    System,
    /// Goes on by a millisecond whenever it is asked: a simulation needs that to be repeatable. In
    /// nanoseconds since 1970.
    Counting(Arc<AtomicI64>),
}

/// What a clock that counts goes on by.
const TICK_NANOSECONDS: i64 = 1_000_000;

impl Clock {
    /// A clock that counts from the first of January 2026 on.
    #[must_use]
    pub fn counting() -> Self {
        Self::Counting(Arc::new(AtomicI64::new(1_767_225_600_000_000_000)))
    }

    /// Another clock that shows the same time, and goes on by itself.
    #[must_use]
    pub fn fork(&self) -> Self {
        match self {
            Self::System => Self::System,
            Self::Counting(time) => Self::Counting(Arc::new(AtomicI64::new(time.load(Ordering::Relaxed)))),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::System => Timestamp::now(),
            Self::Counting(time) => Timestamp(time.fetch_add(TICK_NANOSECONDS, Ordering::Relaxed)),
        }
    }
}

/// How a pool is made.
#[derive(Clone, Debug)]
pub struct InitOptions {
    /// Size of a segment file: a power of two from 2 MiB to 1 GiB; or
    /// [`InitOptions::SEGMENT_BYTES_SUITABLE`]. It stays as it is made.
    pub segment_bytes: u64,
    /// Most bytes that the files may take together; no limit unless said. See
    /// [`crate::Pool::set_size_limit`].
    pub size_limit: Option<ByteLength>,
    /// What is written twice: what files are found by, unless said otherwise.
    pub copies: CopyMode,
    /// The folder that second copies go to, an absolute path. It must exist, and have no pool nor copies in
    /// it. Unless set, it is that of the pool, where copies count in the size limit.
    pub mirror: Option<String>,
}

impl InitOptions {
    /// Segments of 8 MiB on a filesystem of less than 1 TiB, of twice as much on one twice as large, up to 64
    /// MiB: a new pool has seven of them. Where a size limit is set, so small, down to 2 MiB, that there may
    /// be 256 of them.
    pub const SEGMENT_BYTES_SUITABLE: u64 = 0;
}

impl Default for InitOptions {
    fn default() -> Self {
        let segment_bytes = Self::SEGMENT_BYTES_SUITABLE;
        Self { segment_bytes, size_limit: None, copies: CopyMode::Metadata, mirror: None }
    }
}

#[cfg(test)]
impl InitOptions {
    /// The smallest segments, each once: in tests of damage, what is damaged stays damaged.
    pub(crate) fn small() -> Self {
        Self { segment_bytes: 2 << 20, copies: CopyMode::None, ..Self::default() }
    }
}

/// How a pool is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Only reads; several processes may do so at once, if the pool was closed cleanly.
    pub read_only: bool,
    /// Also opens a pool in a directory that may not be written, because of its medium or of rights. Then it
    /// is only read.
    pub or_read_only: bool,
    /// Memory for blocks of files.
    pub block_cache_bytes: u64,
    /// Whether blocks of files are read around the page cache of the operating system. Right where what is
    /// read twice is found in the cache of blocks, or in one above the store; wrong for files that are longer
    /// than that.
    pub direct_reads: bool,
    /// Memory for tree nodes that are on disk.
    pub node_cache_bytes: u64,
    /// Memory for the location map and for the sets of blocks that versions hold, which take a quarter of it.
    /// Half of each is for chunks that were read, half for what changed since they were written.
    pub map_memory_bytes: u64,
    /// What a group of writes gathers for each file before it is written ahead, without addresses: 16 KiB to
    /// 1 MiB.
    pub group_memory_bytes: u64,
    /// Memory of a group, for each file, for blocks that it writes again after they were written ahead. When
    /// it is full, they replace what was written ahead.
    pub group_rewrite_bytes: u64,
    /// Log that a recovery may have to replay: a checkpoint begins at half of it, and writers wait before
    /// it is exceeded.
    pub log_bytes_max: u64,
    /// Tree nodes waiting for a checkpoint: one begins at half of it.
    pub dirty_bytes_max: u64,
    /// How long nothing is written before the pool gives back the room that its next writes would have used.
    /// After two seconds it keeps half of what lives in it and 256 MiB, and after this time a quarter and 32
    /// MiB.
    pub rest: Duration,
    /// Whether checkpoints and preparations run in threads of their own. Without, they run inside the calls
    /// that make them necessary: what a simulation needs to be repeatable.
    pub background: bool,
    /// Whether other processes can reach the pool through a socket in its directory.
    pub control_socket: bool,
    /// What time it is.
    pub clock: Clock,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            or_read_only: false,
            block_cache_bytes: 64 << 20,
            direct_reads: false,
            node_cache_bytes: 32 << 20,
            map_memory_bytes: 32 << 20,
            group_memory_bytes: 1 << 20,
            group_rewrite_bytes: 32 << 20,
            log_bytes_max: 2 << 30,
            dirty_bytes_max: 256 << 20,
            rest: Duration::from_secs(300),
            background: true,
            control_socket: true,
            clock: Clock::System,
        }
    }
}
