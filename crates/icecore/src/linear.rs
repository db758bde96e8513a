//! Linear readers: the store fetches what they read next while they work on what they have.

use crate::sync::{AtomicU64, Ordering};
use std::ops::Range;

/// Reads of fewer bytes fetch nothing: there is little to do at the same time.
pub(crate) const FETCH_BYTES_MIN: u64 = 64 << 10;
/// How far beyond a linear read is fetched. Also how far requests of one reader may be out of order.
const AHEAD_BYTES: u64 = 2 << 20;

/// Up to where a reader of one file has come: one value for each handle. Reads of several threads may meet in
/// it; then they pass for random ones.
pub struct ReadProgress {
    /// Where a linear reader goes on.
    next: AtomicU64,
    /// Up to where is fetched.
    fetched: AtomicU64,
}

impl Default for ReadProgress {
    fn default() -> Self {
        Self { next: AtomicU64::new(u64::MAX), fetched: AtomicU64::new(0) }
    }
}

impl ReadProgress {
    /// The bytes to fetch for a read of a file of this size: those of the read that are not fetched yet, and
    /// more if the reader goes on where it was. May be empty.
    pub(crate) fn window(&self, offset: u64, length: u64, size: u64) -> Range<u64> {
        let end = offset.saturating_add(length);
        let next = self.next.swap(end, Ordering::Relaxed);
        if offset == 0 || offset.abs_diff(next) > AHEAD_BYTES {
            self.fetched.store(end, Ordering::Relaxed);
            return offset..end;
        }
        let end = end.saturating_add(AHEAD_BYTES).min(size);
        self.fetched.fetch_max(end, Ordering::Relaxed).max(offset)..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_linear_reader_has_each_byte_fetched_once_and_ahead() {
        let progress = ReadProgress::default();
        let size = 10 * MIB;
        let windows: Vec<_> = (0..10).map(|index| progress.window(index * MIB, MIB, size)).collect();
        assert_eq!(windows[0], 0..MIB);
        assert_eq!(windows[1], MIB..4 * MIB);
        assert_eq!(windows[2], 4 * MIB..5 * MIB);
        assert!(windows.windows(2).all(|two| two[0].end == two[1].start));
        assert_eq!(windows.last().unwrap().end, size);
        // From the beginning again: what was fetched may be gone.
        assert_eq!(progress.window(0, MIB, size), 0..MIB);
        assert_eq!(progress.window(MIB, MIB, size), MIB..4 * MIB);
    }

    #[test]
    fn a_random_reader_has_nothing_fetched_ahead() {
        let progress = ReadProgress::default();
        for offset in [1, 50, 10, 40, 0, 90] {
            let offset = offset * MIB;
            assert_eq!(progress.window(offset, MIB, 100 * MIB), offset..offset + MIB);
        }
    }

    #[test]
    fn requests_out_of_order_are_linear() {
        let progress = ReadProgress::default();
        progress.window(0, MIB, 100 * MIB);
        assert_eq!(progress.window(2 * MIB, MIB, 100 * MIB), 2 * MIB..5 * MIB);
        assert!(progress.window(MIB, MIB, 100 * MIB).is_empty());
    }
}
