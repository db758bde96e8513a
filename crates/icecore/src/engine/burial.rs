//! Freeing what is recorded as dead and what no reader can reach, and with it segments.

use super::Engine;
use crate::location::Lookup;
use crate::state::State;
use crate::units::{BlockCount, LogAddress, Run, Stream};
use parking_lot::MutexGuard;

/// Runs of dead blocks that are freed while the state is locked.
const BURIED_TOGETHER: usize = 1024;

/// How a slice of it ended.
enum Slice {
    /// There is nothing more.
    Done,
    /// There may be more.
    More,
    /// What comes next lies where a chunk of the map says that is not in memory.
    Needs(Stream, LogAddress),
}

impl Engine {
    /// Frees all of it while the state is locked. What lies in a place that cannot be looked up stays dead,
    /// to be tried again when another checkpoint is durable.
    pub(crate) fn bury(&self, state: &mut State) {
        loop {
            match self.bury_slice(state) {
                Slice::Done => break,
                Slice::More => {}
                Slice::Needs(stream, address) => {
                    if self.blocks.lookup(stream, address).is_err() {
                        self.pass_over(state, stream, address);
                    }
                }
            }
        }
    }

    /// The same, letting others have the state in between, and while the map is read.
    pub(crate) fn bury_in_slices(&self) {
        loop {
            let mut state = self.state();
            let slice = self.bury_slice(&mut state);
            MutexGuard::unlock_fair(state);
            match slice {
                Slice::Done => break,
                Slice::More => {}
                Slice::Needs(stream, address) => {
                    if self.blocks.lookup(stream, address).is_err() {
                        self.pass_over(&mut self.state(), stream, address);
                    }
                }
            }
        }
    }

    /// The chunk that says where a dead block lies cannot be read: what is dead within the chunk waits, and
    /// nothing else does.
    fn pass_over(&self, state: &mut State, stream: Stream, address: LogAddress) {
        // Without a chunk there, another one took its place meanwhile.
        let chunk = self.blocks.map().read().chunk_at(stream, address);
        if let Some((absent, _)) = chunk {
            state.graveyard.set_aside(stream, &absent.span);
        }
    }

    /// Frees some of it.
    fn bury_slice(&self, state: &mut State) -> Slice {
        let dead = state.graveyard.exhume(BURIED_TOGETHER);
        // There may be something to be gained again.
        state.collection.is_exhausted &= dead.is_empty();
        let mut slice = if dead.len() == BURIED_TOGETHER { Slice::More } else { Slice::Done };
        for (index, run) in dead.iter().enumerate() {
            if let Some(rest) = self.free_run(state, *run) {
                slice = Slice::Needs(rest.stream, rest.start);
                state.graveyard.rebury([rest].into_iter().chain(dead[index + 1..].iter().copied()));
                break;
            }
        }
        let released = state.segments.release(state.replay_from);
        self.counters.segments_recycled.add(released.len() as u64);
        slice
    }

    /// Frees a run. If a chunk of the map is needed that is not in memory, answers what is left of the run.
    fn free_run(&self, state: &mut State, run: Run) -> Option<Run> {
        let mut parts = state.parts_counted(&run).into_iter().map(|span| Run::of(run.stream, &span));
        let rest = parts.find_map(|part| self.free_part(state, part))?;
        Some(Run { start: rest.start, length: BlockCount(run.end().0 - rest.start.0), ..run })
    }

    fn free_part(&self, state: &mut State, run: Run) -> Option<Run> {
        let mut at = run.start;
        while at < run.end() {
            let found = self.blocks.map().read().lookup(run.stream, at);
            match found {
                Lookup::At(segment, _, together) => {
                    let count = together.0.min(run.end().0 - at.0);
                    state.segments.remove_live(segment, count);
                    state.collection.buried(segment, &Run { start: at, length: BlockCount(count), ..run });
                    at = at.plus(BlockCount(count));
                }
                Lookup::Nowhere => {
                    // Born and dead between two checkpoints: it was never anywhere.
                    if run.stream == Stream::Merged {
                        self.blocks.pending().done(at);
                    }
                    at = at.plus(BlockCount(1));
                }
                Lookup::Absent(_) => {
                    let length = BlockCount(run.end().0 - at.0);
                    return Some(Run { start: at, length, ..run });
                }
            }
        }
        None
    }
}
