//! Takes destroyed versions out of the tree of versions: in slices, so that no caller waits for long.
//!
//! A destruction is one operation, which dooms its versions and returns. Deleting them goes through their
//! sets. The background does that between other things, and holds the state lock for a fraction of the time
//! only. A caller that needs exact figures, or room, does what is left itself. Nothing of it is logged: see
//! [`State::free_doomed`].

use super::Engine;
use crate::error::Result;
use crate::liveness::{HeldPart, HistoryFault, Pace, PartRow, PartSource};
use crate::state::State;
use crate::units::VersionId;
use parking_lot::MutexGuard;
use std::thread;
use std::time::{Duration, Instant};

/// The state lock is held about so long at a time.
const SLICE: Duration = Duration::from_micros(500);
/// The same in pieces, where there are no threads and nothing that is done depends on time.
const PIECES_PER_SLICE: usize = 64;
/// The background pauses so many times as long as a slice took: while a writer is active, and else.
const PAUSE_FOR_WRITERS: u32 = 39;
const PAUSE: u32 = 9;
/// Runs that are freed before the next look at the clock.
const RUNS_TOGETHER: usize = 128;
/// What each call does where there is no background, beside what it was made for: one version, or so many
/// pieces of it, of so many runs.
const PIECES_PER_CALL: usize = 4;
const RUNS_PER_PIECE: usize = 32;
/// Parts that one piece may need at most before they are read with the state locked: those at the ends of the
/// span that goes.
const PARTS_HELD_MAX: usize = 64;

/// How a slice ended.
enum Slice {
    /// Nothing is left that can go.
    Done,
    /// There is more.
    More,
    /// What comes next is in a part that is not in memory.
    Needs(Box<PartRow>),
}

/// Parts that were read for the next piece.
#[derive(Default)]
struct Held(Vec<HeldPart>);

impl Engine {
    /// Deletes some destroyed versions.
    fn free_slice(&self, state: &mut State, held: &mut Held) -> Result<Slice> {
        if !self.options.background {
            let mut pieces = 0..PIECES_PER_SLICE;
            return self.free_some(state, held, RUNS_TOGETHER, &mut || pieces.next().is_none());
        }
        let begin = Instant::now();
        self.free_some(state, held, RUNS_TOGETHER, &mut || begin.elapsed() >= SLICE)
    }

    /// The same, but no longer than until another thread wants the state. It does one piece in any case, so
    /// that freeing comes to an end.
    fn free_aside(&self, state: &mut State, held: &mut Held) -> Result<Slice> {
        let begin = Instant::now();
        let _way = self.way.make_way();
        // It is asked before the first piece, too.
        let mut has_begun = false;
        self.free_some(state, held, RUNS_TOGETHER, &mut || {
            std::mem::replace(&mut has_begun, true) && (self.way.is_waited_for() || begin.elapsed() >= SLICE)
        })
    }

    fn free_some(
        &self,
        state: &mut State,
        held: &mut Held,
        runs: usize,
        enough: &mut dyn FnMut() -> bool,
    ) -> Result<Slice> {
        loop {
            let before = state.history.pieces_done();
            let few = Some(&held.0[..]).filter(|held| held.len() < PARTS_HELD_MAX);
            let mut pace = Pace { runs, held: few, enough: &mut *enough };
            let outcome = state.free_doomed(&mut pace);
            if state.history.pieces_done() != before {
                held.0.clear();
            }
            match outcome {
                Ok(true) => return Ok(Slice::More),
                Ok(false) => return Ok(Slice::Done),
                Err(HistoryFault::Absent(row)) => return Ok(Slice::Needs(row)),
                // It is noted among the incidents. The others go meanwhile.
                Err(HistoryFault::Unread(_) | HistoryFault::Refused(_)) => set_aside(state),
                Err(fault) => return Err(fault.into()),
            }
        }
    }

    /// Reads a part for the next piece, without any lock of the caller.
    fn hold(&self, held: &mut Held, row: Box<PartRow>) {
        match PartSource::read(&*self.blocks, &row) {
            Ok(part) => held.0.push((*row, part)),
            Err(_) => {
                let mut state = self.state();
                // If its set is in other parts by now, it is found in those.
                let is_there = state.history.rows().any(|other| *other == *row);
                if is_there {
                    set_aside(&mut state);
                }
            }
        }
    }

    /// Works out what each of these versions alone reaches, as far as parts of sets have to be read for that.
    /// The next caller that asks for it, with the state locked, finds it known.
    pub(crate) fn learn_used(&self, versions: &[VersionId]) {
        for version in versions {
            let mut held = Vec::new();
            loop {
                let used = self.state().history.used_among(*version, &held);
                let Err(HistoryFault::Absent(row)) = used else { break };
                let Ok(part) = PartSource::read(&*self.blocks, &row) else { break };
                held.push((*row, part));
            }
        }
    }

    /// Deletes the destroyed versions that there are.
    pub(crate) fn finish_freeing(&self) -> Result<()> {
        self.settled_state().map(drop)
    }

    /// The state, in which no destroyed version is left that could go: every figure is what it seems to be.
    pub(crate) fn settled_state(&self) -> Result<MutexGuard<'_, State>> {
        let mut held = Held::default();
        // What could not be read a moment ago may be read now.
        self.state().history.try_again();
        loop {
            let mut state = self.state();
            match self.free_slice(&mut state, &mut held)? {
                Slice::Done => return Ok(state),
                Slice::More if self.is_laden(&state) => {
                    drop(state);
                    // If that is not possible now, memory has to do.
                    let _ = self.run_checkpoint();
                }
                Slice::More => MutexGuard::unlock_fair(state),
                Slice::Needs(row) => {
                    drop(state);
                    self.hold(&mut held, row);
                }
            }
        }
    }

    /// Whether what died since the last checkpoint takes so much memory that one should record it before more
    /// is freed.
    fn is_laden(&self, state: &State) -> bool {
        self.options.background && state.graveyard.is_laden(state.history.limits().change_bytes)
    }

    /// Something was destroyed: the background has work.
    pub(crate) fn begin_freeing(&self) {
        if self.options.background {
            self.signals.request_freeing();
        }
    }

    /// What the background does about destroyed versions: a slice at least, and more until nothing is left or
    /// something else is wanted of it.
    pub(super) fn free_in_background(&self) {
        let mut held = Held::default();
        let mut commits = self.counters.commits.get();
        loop {
            let mut state = self.state();
            let begin = Instant::now();
            // An error would mean that the tree of versions contradicts itself: a listing reports it.
            let outcome = self.free_aside(&mut state, &mut held);
            let slice = begin.elapsed();
            let is_laden = self.is_laden(&state);
            drop(state);
            match outcome {
                Ok(Slice::More) => {}
                Ok(Slice::Needs(row)) => self.hold(&mut held, row),
                _ => break,
            }
            if self.check_writable().is_err() {
                // Nothing that is freed could be recorded any more.
                break;
            }
            if is_laden {
                // Memory is made room of by recording what died; freeing goes on afterwards.
                self.signals.request_checkpoint();
                self.signals.request_freeing();
                break;
            }
            if self.signals.is_wanted() {
                break;
            }
            let commits_now = self.counters.commits.get();
            let somebody_writes = std::mem::replace(&mut commits, commits_now) != commits_now;
            thread::sleep(slice * if somebody_writes { PAUSE_FOR_WRITERS } else { PAUSE });
        }
    }

    /// The same without threads: some with every call, so that what happens does not depend on time.
    pub(super) fn free_with_call(&self) -> Result<()> {
        let mut held = Held::default();
        let mut pieces = 0..PIECES_PER_CALL;
        loop {
            let mut state = self.state();
            let slice =
                self.free_some(&mut state, &mut held, RUNS_PER_PIECE, &mut || pieces.next().is_none())?;
            drop(state);
            let Slice::Needs(row) = slice else { return Ok(()) };
            self.hold(&mut held, row);
        }
    }
}

/// The version that would be deleted next cannot be, until something changes.
fn set_aside(state: &mut State) {
    if let Some(version) = state.history.next_doomed() {
        state.history.set_aside(version);
    }
}
