//! Tables of segments in memory, and what may be read where something else may lie by now.
//!
//! A segment that blocks were moved out of finds a new use while a reader that looked up a place before may
//! still read in it. What must hold: *what is read counts only if the place that was looked up was that of
//! the blocks all the time. A table is one of the use that a segment has, for every reader that asks after
//! that began.*

use crate::error::Result;
use crate::numbers::{NumberHash, NumberMap, number_cache};
use crate::sync::{AtomicU64, Mutex, Ordering};
use crate::units::SegmentId;
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;
use std::sync::Arc;

/// The table of each segment that is being filled, and a bounded number of pieces of finished ones.
pub(super) struct Tables<T> {
    filling: Mutex<NumberMap<SegmentId, Arc<[T]>>>,
    /// Grows whenever a segment is taken for a new use. Changes with `filling` locked.
    uses: AtomicU64,
    finished: Cache<(SegmentId, u32), T, UnitWeighter, NumberHash>,
    /// Pieces of a table.
    pieces: u32,
}

impl<T: Clone> Tables<T> {
    /// With tables of so many `pieces`, and so many pieces of finished ones at most.
    pub(super) fn new(pieces: u32, finished_max: usize) -> Self {
        let finished = number_cache(finished_max, finished_max as u64, UnitWeighter);
        Self { filling: Mutex::default(), uses: AtomicU64::new(0), finished, pieces }
    }

    fn drop_finished(&self, segment: SegmentId) {
        for piece in 0..self.pieces {
            self.finished.remove(&(segment, piece));
        }
    }

    /// A number that changes whenever a segment finds a new use.
    pub(super) fn uses(&self) -> u64 {
        self.uses.load(Ordering::Acquire)
    }

    /// A segment begins to be filled.
    pub(super) fn begin(&self, segment: SegmentId, table: Arc<[T]>) {
        let mut filling = self.filling.lock();
        self.uses.fetch_add(1, Ordering::Relaxed);
        self.drop_finished(segment);
        filling.insert(segment, table);
    }

    /// A segment goes on being filled, in the use that it has.
    pub(super) fn go_on(&self, segment: SegmentId, table: Arc<[T]>) {
        // A reader may have asked for the table before more came to be in it.
        self.drop_finished(segment);
        self.filling.lock().insert(segment, table);
    }

    /// The table of a segment, if that is being filled.
    pub(super) fn filling(&self, segment: SegmentId) -> Option<Arc<[T]>> {
        self.filling.lock().get(&segment).cloned()
    }

    /// A piece of the table of a segment, if that is not being filled, and the piece in memory.
    pub(super) fn finished(&self, segment: SegmentId, piece: u32) -> Option<T> {
        self.finished.get(&(segment, piece))
    }

    /// No more comes to a segment: its table, if it was being filled.
    pub(super) fn finish(&self, segment: SegmentId) -> Option<Arc<[T]>> {
        let mut filling = self.filling.lock();
        let table = filling.remove(&segment)?;
        // A reader has to find it in one place or the other: what can be read of it from disk now need not be
        // all of it.
        self.keep(segment, 0, &table);
        Some(table)
    }

    /// The segment is used for something else from now on.
    pub(super) fn forget(&self, segment: SegmentId) {
        let mut filling = self.filling.lock();
        self.uses.fetch_add(1, Ordering::Relaxed);
        filling.remove(&segment);
        self.drop_finished(segment);
    }

    fn keep(&self, segment: SegmentId, first: u32, pieces: &[T]) {
        for (piece, table) in (first..).zip(pieces) {
            self.finished.insert((segment, piece), table.clone());
        }
    }

    /// A piece of the table of a segment. `read` reads one that memory does not have, perhaps among others.
    /// It answers the number of the first, all that it has read, and whether they may be kept.
    ///
    /// # Errors
    /// Those of `read`.
    pub(super) fn find_or(
        &self,
        segment: SegmentId,
        piece: u32,
        read: impl FnOnce() -> Result<(u32, Vec<T>, bool)>,
    ) -> Result<Option<T>> {
        let kept = || self.finished.get(&(segment, piece));
        if let Some(found) = kept() {
            return Ok(Some(found));
        }
        let uses = {
            let filling = self.filling.lock();
            if let Some(table) = filling.get(&segment) {
                return Ok(table.get(piece as usize).cloned());
            }
            if let Some(found) = kept() {
                return Ok(Some(found));
            }
            self.uses.load(Ordering::Relaxed)
        };
        let (first, pieces, may_be_kept) = read()?;
        if may_be_kept {
            // A reader of what was moved elsewhere must not leave behind the table of a former use.
            let filling = self.filling.lock();
            if self.uses.load(Ordering::Relaxed) == uses && !filling.contains_key(&segment) {
                self.keep(segment, first, &pieces);
            }
        }
        Ok(piece.checked_sub(first).and_then(|index| pieces.get(index as usize).cloned()))
    }
}

/// Calls `read` with the place that `look` finds; again if it may not have been there all the time. `uses`
/// answers a number that changes whenever a segment finds a new use. What was moved away may be back where it
/// was, and something else have lain there in between.
///
/// # Errors
/// Those of `look` and `is_still`.
pub(super) fn while_still<P, T>(
    uses: impl Fn() -> u64,
    mut look: impl FnMut() -> Result<P>,
    mut read: impl FnMut(&P) -> T,
    mut is_still: impl FnMut(&P) -> Result<bool>,
) -> Result<T> {
    loop {
        let before = uses();
        let place = look()?;
        let outcome = read(&place);
        if is_still(&place)? && uses() == before {
            return Ok(outcome);
        }
    }
}
