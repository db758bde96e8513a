//! Taking destroyed versions out of the tree of versions: in slices, so that nobody waits for long.
//!
//! A destruction is one operation, which dooms its versions and returns. Deleting them merges sets; the background does
//! that between other things, and holds the state lock for a fraction of the time only. Whoever needs exact figures, or
//! room, does what is left itself. Nothing of it is logged: see [`State::free_doomed`].

use super::Engine;
use crate::error::Result;
use crate::liveness::Pace;
use crate::state::State;
use parking_lot::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

/// The state lock is held about so long at a time.
const SLICE: Duration = Duration::from_micros(500);
/// The background pauses so many times as long as a slice took.
const PAUSE: u32 = 19;
/// Runs that are freed before anybody looks at the clock.
const RUNS_TOGETHER: usize = 128;
/// What each call does where there is no background, beside what it was made for: one version, or so many pieces of it, of so many runs.
const PIECES_PER_CALL: usize = 4;
const RUNS_PER_PIECE: usize = 32;

impl Engine {
    /// Deletes some destroyed versions: whether there are more.
    fn free_slice(state: &mut State) -> Result<bool> {
        let begin = Instant::now();
        let mut enough = || begin.elapsed() >= SLICE;
        state.free_doomed(&mut Pace { runs: RUNS_TOGETHER, enough: &mut enough })
    }

    /// Deletes the destroyed versions that there are.
    pub(crate) fn finish_freeing(&self) -> Result<()> {
        self.settled_state().map(drop)
    }

    /// The state, in which no destroyed version is left that could go: every figure is what it seems to be.
    pub(crate) fn settled_state(&self) -> Result<MutexGuard<'_, State>> {
        loop {
            let mut state = self.state();
            if !Self::free_slice(&mut state)? {
                return Ok(state);
            }
            MutexGuard::unlock_fair(state);
        }
    }

    /// Something was destroyed: the background has work.
    pub(crate) fn begin_freeing(&self) {
        if self.options.background {
            self.signals.request_freeing();
        }
    }

    /// What the background does about destroyed versions: a slice at least, and more until nothing is left or something
    /// else is wanted of it.
    pub(super) fn free_in_background(&self) {
        loop {
            let mut state = self.state();
            let begin = Instant::now();
            // An error would mean that the tree of versions contradicts itself: whoever lists it is told.
            let more = Self::free_slice(&mut state);
            let slice = begin.elapsed();
            drop(state);
            if !matches!(more, Ok(true)) || self.signals.is_wanted() {
                break;
            }
            thread::sleep(slice * PAUSE);
        }
    }

    /// The same without threads: some with every call, so that what happens does not depend on time.
    pub(super) fn free_with_call(&self) -> Result<()> {
        let mut pieces = 0..PIECES_PER_CALL;
        let mut enough = || pieces.next().is_none();
        self.state().free_doomed(&mut Pace { runs: RUNS_PER_PIECE, enough: &mut enough }).map(drop)
    }
}
