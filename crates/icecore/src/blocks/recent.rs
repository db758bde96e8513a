//! Blocks that were written last, in memory.

use super::key;
use crate::log::tail::Payload;
use crate::storage::AlignedBuffer;
use crate::units::{BLOCK_BYTES, LogAddress, Stream};
use parking_lot::RwLock;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Operations with so much data leave when they are written.
const BULK_BYTES: usize = 512 << 10;

/// What was written last, in the buffers it was written from: readable before it is on disk, and for a
/// while after, without a copy.
pub(crate) struct Recent {
    budget: u64,
    /// Every log block below this address of the data stream is on disk.
    written: AtomicU64,
    /// Runs that leave when they are written.
    bulk: AtomicU64,
    inner: RwLock<RecentInner>,
}

struct RecentRun {
    payload: Payload,
    /// Lies outside the log, and was on disk when it came here.
    is_staged: bool,
}

impl RecentRun {
    /// Many blocks that are not likely to be read soon. Their memory is better used for the next write while
    /// the caches of the processor have it.
    fn is_bulk(&self) -> bool {
        !self.is_staged && self.payload.bytes().len() >= BULK_BYTES
    }
}

#[derive(Default)]
struct RecentInner {
    runs: BTreeMap<u64, RecentRun>,
    order: VecDeque<u64>,
    bytes: u64,
}

impl RecentInner {
    /// Takes out the run that came first.
    fn remove_first(&mut self) -> Option<RecentRun> {
        let run = self.runs.remove(&self.order.pop_front()?)?;
        self.bytes -= run.payload.bytes().len() as u64;
        Some(run)
    }
}

impl Recent {
    pub(super) fn new(budget: u64) -> Self {
        Self { budget, written: AtomicU64::new(0), bulk: AtomicU64::new(0), inner: RwLock::default() }
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
        self.bulk.fetch_add(u64::from(run.is_bulk()), Ordering::Relaxed);
        inner.bytes += run.payload.bytes().len() as u64;
        inner.order.push_back(key);
        inner.runs.insert(key, run);
        let written = self.written.load(Ordering::Acquire);
        while inner.bytes > self.budget {
            let Some(oldest) = inner.order.front() else { return };
            // Log addresses grow in order, so nothing behind an unwritten run is written either.
            if inner.runs.get(oldest).is_some_and(|run| !run.is_staged && *oldest >= written) {
                return;
            }
            self.forget_first(inner);
        }
    }

    /// Every log block below this address of the data stream is on disk.
    pub(crate) fn written_below(&self, address: u64) {
        self.written.store(address, Ordering::Release);
        // Most of the time there is nothing to be done: readers are not to be waited for in vain.
        if self.bulk.load(Ordering::Relaxed) == 0 {
            return;
        }
        let inner = &mut *self.inner.write();
        while let Some(oldest) = inner.order.front().filter(|oldest| **oldest < address)
            && inner.runs.get(oldest).is_some_and(RecentRun::is_bulk)
        {
            self.forget_first(inner);
        }
    }

    fn forget_first(&self, inner: &mut RecentInner) {
        if inner.remove_first().is_some_and(|run| run.is_bulk()) {
            self.bulk.fetch_sub(1, Ordering::Relaxed);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(blocks: usize) -> Payload {
        let buffer = Arc::new(AlignedBuffer::zeroed(blocks * BLOCK_BYTES));
        Payload { buffer, first: 0, sums: vec![0; blocks] }
    }

    fn holds(recent: &Recent, address: u64) -> bool {
        recent.holds(key(Stream::Data, LogAddress(address)))
    }

    #[test]
    fn what_is_not_written_stays_and_bulk_leaves_when_it_is() {
        let bulk = BULK_BYTES / BLOCK_BYTES;
        let recent = Recent::new((2 * BULK_BYTES) as u64);
        recent.add_log(LogAddress(10), payload(bulk));
        recent.add_log(LogAddress(1000), payload(1));
        recent.add_log(LogAddress(2000), payload(bulk));
        // More than the budget, and all of it is needed.
        recent.add_log(LogAddress(3000), payload(bulk));
        assert!([10, 1000, 2000, 3000].iter().all(|address| holds(&recent, *address)));
        recent.written_below(1001);
        assert_eq!([10, 1000, 2000].map(|address| holds(&recent, address)), [false, true, true]);
        // A short one in front, which is likely to be read, does not leave before its turn.
        recent.written_below(4000);
        assert!(holds(&recent, 1000));
        recent.add_log(LogAddress(5000), payload(1));
        assert_eq!(
            [1000, 2000, 3000, 5000].map(|address| holds(&recent, address)),
            [false, false, true, true]
        );
        recent.written_below(5001);
        assert_eq!([2000, 3000, 5000].map(|address| holds(&recent, address)), [false, false, true]);
    }
}
