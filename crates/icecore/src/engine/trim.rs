//! Free segments go back to the filesystem: when the pool is at rest, when it is closed, when the filesystem
//! runs short, and on request.
//!
//! What must hold: *a file is removed only when no checkpoint that a recovery may fall back to places
//! anything in it.* So segments are set aside first, and a checkpoint follows. Then the newest checkpoint and
//! the one before it know them as free. A crash before the removal leaves free segments, as they were.

use super::space::with_those_for_deleting;
use super::{Engine, Purpose};
use crate::error::Result;
use crate::state::State;
use crate::units::{BLOCK_BYTES, SegmentId};
use parking_lot::MutexGuard;
use serde::{Deserialize, Serialize};

/// The filesystem runs short when it has less than one part in so many left.
const SHORT_SHARE: u64 = 50;
/// A pool that is written to gives back nothing unless more than one segment in so many is free.
const BUSY_SHARE: usize = 4;

/// How many free segments a pool keeps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Keep {
    /// What deleting and checkpointing may need.
    Reserve,
    /// Also what a pool that was written to for the last time some minutes ago may need at once.
    Rest,
    /// Also what the next minutes are likely to need: a new segment is written twice, one that is used again
    /// only once.
    Pause,
}

impl Keep {
    /// Bytes of files that are kept, if there are so many, where so many bytes live.
    fn bytes(self, live: u64) -> u64 {
        match self {
            Self::Reserve => 0,
            Self::Rest => live + live / 4 + (32 << 20),
            Self::Pause => live + live / 2 + (256 << 20),
        }
    }
}

/// What went back to the filesystem.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TrimReport {
    /// Segments whose files were removed.
    pub segments: u64,
    /// Bytes that these files had.
    pub bytes: u64,
    /// Free segments that the pool keeps: deleting and checkpointing may need them.
    pub segments_free: u64,
}

impl Engine {
    /// Gives free segments back beyond those that are kept.
    ///
    /// # Errors
    /// [`ReadOnly`](crate::Error::ReadOnly), [`ReadOnlyAfterFailure`](crate::Error::ReadOnlyAfterFailure);
    /// [`Io`](crate::Error::Io) if a file cannot be removed: its segment stays free.
    pub(crate) fn trim(&self, keep: Keep) -> Result<TrimReport> {
        self.check_writable()?;
        let _turn = self.collector.turn();
        let chosen = self.hold_surplus(keep);
        let mut report = TrimReport::default();
        let outcome = if chosen.is_empty() { Ok(()) } else { self.give_back(&chosen, &mut report) };
        report.segments_free = self.state().segments.free() as u64;
        outcome.map(|()| report)
    }

    /// Keeps segments from going back to the filesystem while the guard lives. One that goes back loses its
    /// file first: until it is forgotten, the state names a segment that has no file.
    pub(crate) fn hold_files(&self) -> MutexGuard<'_, ()> {
        self.collector.turn()
    }

    /// What a pool does by itself every now and then. `idle`: what it keeps, where nothing was written for a
    /// while.
    pub(super) fn trim_in_background(&self, idle: Option<Keep>) -> Result<()> {
        // The filesystem is asked last: most of the time there is nothing to give back.
        let is_urgent = || self.is_mostly_free(&self.state()) && self.is_medium_short();
        if idle.is_none() && !is_urgent() {
            return Ok(());
        }
        if idle.is_some_and(|keep| self.is_much_unfreed(&self.state(), keep)) {
            self.run_checkpoint()?;
        }
        if self.surplus(&self.state(), Keep::Reserve) == 0 {
            return Ok(());
        }
        let keep = idle.filter(|_| !self.is_medium_short()).unwrap_or(Keep::Reserve);
        self.trim(keep).map(drop)
    }

    /// What a pool does before its last checkpoint.
    pub(super) fn trim_to_close(&self) -> Result<()> {
        if self.options.background { self.trim_in_background(Some(Keep::Rest)) } else { Ok(()) }
    }

    /// Free segments beyond those that are kept.
    fn surplus(&self, state: &State, keep: Keep) -> usize {
        let used = state.segments.len() - state.segments.free();
        let needed = (used + self.reserve(state, Purpose::Shrinking) + 1) as u64;
        let needed =
            with_those_for_deleting(needed, state.segments.size_limit().map(|_| state.segments.most()));
        state.segments.len().saturating_sub(self.wanted(state, keep).max(needed as usize))
    }

    /// Segments that a pool keeps, if it has so many. What has died counts as free already: it is only the
    /// next checkpoint that makes room of it.
    pub(super) fn wanted(&self, state: &State, keep: Keep) -> usize {
        let live = state.segments.live_total().saturating_sub(state.graveyard.pending_blocks());
        (keep.bytes(live * BLOCK_BYTES as u64) / self.geometry.bytes) as usize
    }

    /// Whether so much is free that giving it back is worth a checkpoint while others write.
    fn is_mostly_free(&self, state: &State) -> bool {
        self.surplus(state, Keep::Reserve) > state.segments.len() / BUSY_SHARE
    }

    /// Whether a checkpoint frees segments of a pool that has more than it keeps.
    fn is_much_unfreed(&self, state: &State, keep: Keep) -> bool {
        let unfreed = state.graveyard.pending_blocks() + state.log_blocks;
        unfreed >= u64::from(self.geometry.slots()) && state.segments.len() > self.wanted(state, keep)
    }

    /// Whether the filesystem is nearly full.
    pub(super) fn is_medium_short(&self) -> bool {
        self.storage.space().is_ok_and(|space| space.free < space.total / SHORT_SHARE)
    }

    /// Takes segments out of use that are to be given back, and holds them.
    fn hold_surplus(&self, keep: Keep) -> Vec<SegmentId> {
        let mut state = self.state();
        let surplus = self.surplus(&state, keep);
        let chosen = state.segments.hold_free(surplus);
        for segment in &chosen {
            self.forget_former_use(&mut state, *segment);
        }
        chosen
    }

    fn give_back(&self, chosen: &[SegmentId], report: &mut TrimReport) -> Result<()> {
        let mut outcome = self.run_checkpoint();
        for segment in chosen {
            if outcome.is_ok() {
                outcome = self.blocks.files().remove(*segment);
            }
            let mut state = self.state();
            if outcome.is_ok() {
                state.segments.remove(*segment);
                report.segments += 1;
                report.bytes += self.geometry.bytes;
            } else {
                state.segments.let_go(*segment);
            }
        }
        outcome?;
        // After a crash before this, files may be found again: as free segments.
        self.sync_directory()
    }
}
