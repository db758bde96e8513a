//! Checkpoints of nothing but moves: what collection moved becomes durable, and what it moved it out of free.
//!
//! The blob changes the location map and nothing else, and repeats the position of the last checkpoint.
//! Replay starts where it would have, from the same trees and sets, and finds the blocks elsewhere.
//!
//! Data that died since, by what the log says, was left behind. The blob lists it: a recovery looks for no
//! place of it, and finds it dead when it has replayed the log. So the blob speaks only of addresses that the
//! last checkpoint knew. Where the others are, the log says.
//!
//! Nothing is frozen, no node is written, and no other death is recorded. A segment that becomes free in this
//! way holds nothing that the last checkpoint takes to be alive but what is on the list, because collection
//! moves what else died since with the rest.

use super::Engine;
use super::checkpoint::{CheckpointLine, ForsakenSection, UsesSection};
use crate::error::{Error, Result};
use crate::format::superblock::LedgerPointer;
use crate::liveness::BlockSet;
use crate::location::MapChanges;
use crate::state::State;
use crate::units::{Marks, SegmentId};
use std::collections::BTreeSet;

/// What was moved, taken in one moment.
struct Moves {
    changes: MapChanges,
    /// Segments that it was moved to, to be flushed.
    filled: BTreeSet<SegmentId>,
    /// Segments that it was moved out of.
    vacated: Vec<SegmentId>,
    /// What was left behind there.
    forsaken: BlockSet,
    /// The last number of a use of a segment that was given out.
    taken: u64,
    /// Segments that found a new use, and its number.
    uses: Vec<(SegmentId, u64)>,
}

impl Engine {
    /// Makes the moves up to now durable, and frees the segments that were emptied. `false` if only a
    /// checkpoint of everything can do that; nothing has changed then.
    pub(super) fn record_moves(&self) -> Result<bool> {
        self.with_line(|line| self.record_moves_locked(line))
    }

    pub(super) fn record_moves_locked(&self, line: &mut CheckpointLine) -> Result<bool> {
        let Some(base) = line.base.as_ref().filter(|_| line.takes_moves()) else {
            return Ok(false);
        };
        let moves = self.take_durable_moves(&base.marks())?;
        for segment in &moves.filled {
            self.blocks.files().sync(*segment)?;
            self.counters.flushes.add(1);
        }
        // Where the last checkpoint put things is among the changes, which build on the map before that.
        let mut said = base.say(moves.changes.clone());
        said.forsaken = ForsakenSection::of(&moves.forsaken);
        said.uses = UsesSection { uses: moves.uses.clone() };
        let blobs = match self.write_said(said, line.blobs.last().copied(), line.number + 1, moves.taken) {
            Err(Error::NoSpace { .. }) => {
                self.put_moves_back(moves);
                return Ok(false);
            }
            outcome => outcome?,
        };
        let newest = *blobs.last().expect("one at least");
        self.write_superblock(|superblock| superblock.go_on(newest, moves.taken))?;
        self.finish_moves(line, &blobs, &moves.vacated);
        Ok(true)
    }

    /// The moves up to now. If they left something behind, the log is durable that says why.
    fn take_durable_moves(&self, marks: &Marks) -> Result<Moves> {
        let mut state = self.state();
        if state.collection.forsaken.is_empty() {
            return Ok(self.take_moves(&mut state, marks));
        }
        drop(state);
        self.writer.exclusive(|chain| {
            let mut state = self.state();
            // A step that was cut off in the middle, just now, must not become durable.
            self.check_writable()?;
            let batch = self.take_batch(&mut state);
            let moves = self.take_moves(&mut state, marks);
            drop(state);
            self.writer.write_batch(chain, batch, true, &self.blocks, &self.counters)?;
            Ok(moves)
        })
    }

    fn take_moves(&self, state: &mut State, marks: &Marks) -> Moves {
        let changes = self.blocks.map().write().take_changes_below(marks);
        let collection = &mut state.collection;
        let vacated = std::mem::take(&mut collection.vacated);
        collection.vacated_frozen = vacated.len();
        let filled = std::mem::take(&mut collection.filled);
        let forsaken = std::mem::take(&mut collection.forsaken);
        let uses = self.blocks.sums().uses_to_say(false);
        Moves { changes, filled, vacated, forsaken, taken: state.segments.last_incarnation(), uses }
    }

    fn put_moves_back(&self, moves: Moves) {
        let mut state = self.state();
        self.blocks.map().write().put_back(moves.changes);
        self.blocks.sums().say_again(&moves.uses);
        state.collection.vacated_frozen = 0;
        state.collection.vacated.extend(moves.vacated);
        // They were flushed, but for what came to be in them since.
        state.collection.filled.extend(moves.filled);
        state.collection.forsaken.unite(moves.forsaken);
    }

    fn finish_moves(&self, line: &mut CheckpointLine, blobs: &[LedgerPointer], vacated: &[SegmentId]) {
        let mut state = self.state();
        line.extend(blobs, false, &mut state);
        state.collection.gave_back();
        vacated.iter().for_each(|segment| state.segments.let_go(*segment));
        let replay_from = state.replay_from;
        let released = state.segments.release(replay_from);
        self.counters.segments_recycled.add(released.len() as u64);
        self.counters.moves_recorded.add(1);
    }
}
