//! Blocks that were written last, in memory.

use super::key;
use crate::log::tail::Payload;
use crate::storage::AlignedBuffer;
use crate::units::{BLOCK_BYTES, LogAddress, Stream};
use parking_lot::RwLock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// What was written last, in the buffers it was written from: readable before it is on disk, and for a
/// while after, without a copy.
pub(crate) struct Recent {
    budget: u64,
    inner: RwLock<RecentInner>,
}

struct RecentRun {
    payload: Payload,
    /// Lies outside the log, and was on disk when it came here.
    is_staged: bool,
}

#[derive(Default)]
struct RecentInner {
    runs: BTreeMap<u64, RecentRun>,
    order: VecDeque<u64>,
    bytes: u64,
    written: u64,
}

impl Recent {
    pub(super) fn new(budget: u64) -> Self {
        Self { budget, inner: RwLock::default() }
    }

    /// Takes up blocks of the data stream that the log will write; kept at least until they are written.
    pub(crate) fn add_log(&self, address: LogAddress, payload: Payload) {
        self.add(key(Stream::Data, address), RecentRun { payload, is_staged: false });
    }

    /// Takes up blocks of the data stream that lie outside the log, and on disk already.
    pub(crate) fn add_staged(
        &self,
        address: LogAddress,
        buffer: &Arc<AlignedBuffer>,
        first: u32,
        blocks: u32,
    ) {
        let sums = vec![0; blocks as usize];
        let payload = Payload { buffer: Arc::clone(buffer), first: first as usize, sums };
        self.add(key(Stream::Data, address), RecentRun { payload, is_staged: true });
    }

    fn add(&self, key: u64, run: RecentRun) {
        let inner = &mut *self.inner.write();
        inner.bytes += run.payload.bytes().len() as u64;
        inner.order.push_back(key);
        inner.runs.insert(key, run);
        while inner.bytes > self.budget {
            let Some(oldest) = inner.order.front() else { return };
            if let Some(run) = inner.runs.get(oldest) {
                // Log addresses grow in order, so nothing behind an unwritten run is written either.
                if !run.is_staged && *oldest >= inner.written {
                    return;
                }
                inner.bytes -= run.payload.bytes().len() as u64;
            }
            inner.runs.remove(oldest);
            inner.order.pop_front();
        }
    }

    /// Every log block below this address of the data stream is on disk.
    pub(crate) fn written_below(&self, address: u64) {
        self.inner.write().written = address;
    }

    pub(super) fn find<T>(&self, key: u64, found: impl FnOnce(&[u8]) -> T) -> Option<T> {
        let inner = self.inner.read();
        let (start, run) = inner.runs.range(..=key).next_back()?;
        let index = (key - start) as usize;
        let bytes = run.payload.bytes();
        (index * BLOCK_BYTES < bytes.len())
            .then(|| found(&bytes[index * BLOCK_BYTES..(index + 1) * BLOCK_BYTES]))
    }

    pub(super) fn holds(&self, key: u64) -> bool {
        self.find(key, |_| ()).is_some()
    }

    pub(super) fn copy(&self, key: u64, at: usize, into: &mut [u8]) -> bool {
        self.find(key, |block| into.copy_from_slice(&block[at..at + into.len()])).is_some()
    }
}
