//! What second copies take of the size limit of a pool, where they lie in the folder of the pool.

use crate::format::copies::CopyMode;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Files that copies of metadata find room for however full the pool is: of the nodes and the ledger that are
/// being written, and of nodes that were moved.
const KEPT_BACK: u64 = 3;

/// Shared between the table of segments, which must leave room, and the copies, which take it. Counts files
/// of the size of a segment.
#[derive(Default)]
pub(crate) struct Aside {
    /// Most files in all; 0 for no limit.
    limit: AtomicU64,
    segments: AtomicU64,
    files: AtomicU64,
    /// What is copied within the limit.
    mode: AtomicU8,
}

impl Aside {
    pub(crate) fn limit(&self, files: u64, segments: u64) {
        self.limit.store(files, Relaxed);
        self.segments.store(segments, Relaxed);
    }

    pub(super) fn copying(&self, mode: CopyMode) {
        self.mode.store(mode as u8, Relaxed);
    }

    pub(super) fn set_files(&self, files: usize) {
        self.files.store(files as u64, Relaxed);
    }

    pub(crate) fn segment_made(&self) {
        self.segments.fetch_add(1, Relaxed);
    }

    pub(crate) fn segment_removed(&self) {
        self.segments.fetch_sub(1, Relaxed);
    }

    /// Segments that there may be, of so many files.
    pub(crate) fn segments_max(&self, limit: u64) -> u64 {
        let files = self.files.load(Relaxed);
        if self.mode.load(Relaxed) == CopyMode::None as u8 {
            limit
        } else if self.mode.load(Relaxed) == CopyMode::Metadata as u8 {
            limit.saturating_sub(files.max(KEPT_BACK))
        } else {
            limit.saturating_sub(files).min(limit / 2)
        }
    }

    /// Whether one more copy leaves as many segments as there may be now: it lies somewhere else, or takes
    /// what is kept back.
    pub(crate) fn takes_nothing(&self, limit: u64) -> bool {
        let files = self.files.load(Relaxed);
        match self.mode.load(Relaxed) {
            mode if mode == CopyMode::None as u8 => true,
            _ if limit == 0 => false,
            mode if mode == CopyMode::Metadata as u8 => files < KEPT_BACK,
            _ => files < limit - limit / 2,
        }
    }

    /// Whether copies lie beside the segments.
    pub(crate) fn is_within(&self) -> bool {
        self.mode.load(Relaxed) != CopyMode::None as u8
    }

    /// Whether there may be one more copy.
    pub(crate) fn has_room(&self) -> bool {
        let limit = self.limit.load(Relaxed);
        limit == 0 || !self.is_within() || self.segments.load(Relaxed) + self.files.load(Relaxed) < limit
    }

    /// Least limit with which there may be so many segments, and the copies that there are, or room is kept
    /// for.
    pub(crate) fn files_for(&self, segments: u64) -> u64 {
        let files = self.files.load(Relaxed);
        match self.mode.load(Relaxed) {
            mode if mode == CopyMode::None as u8 => segments,
            mode if mode == CopyMode::Metadata as u8 => segments.saturating_add(files.max(KEPT_BACK)),
            _ => segments.saturating_add(files).max(segments.saturating_mul(2)),
        }
    }

    /// Files that a pool needs beyond those of its segments, `segments` at least, to begin with.
    pub(crate) fn least(mode: CopyMode, segments: u64) -> u64 {
        match mode {
            CopyMode::None => 0,
            CopyMode::Metadata => KEPT_BACK,
            CopyMode::All => segments,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_allows_as_many_segments_and_one_less_does_not() {
        for mode in [CopyMode::None, CopyMode::Metadata, CopyMode::All] {
            for files in 0..12 {
                let aside = Aside::default();
                aside.copying(mode);
                aside.set_files(if mode == CopyMode::None { 0 } else { files });
                for segments in 1..20 {
                    let least = aside.files_for(segments);
                    assert!(aside.segments_max(least) >= segments, "{mode:?}, {files} copies");
                    assert!(aside.segments_max(least - 1) < segments, "{mode:?}, {files} copies");
                }
            }
        }
    }
}
