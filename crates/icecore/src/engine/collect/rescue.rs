//! Emptying segments where nothing but the reserve is left: with what is kept back, and so that it is there
//! again before an operation needs it.
//!
//! The reserve is counted in whole segments. It grows by one at once when a segment that is being filled with
//! nodes, merged blocks or the ledger runs short. It may then come to more than there is, with dead space
//! lying about in all other segments. Nothing that frees could be logged then, and nothing emptied, as that
//! takes a segment first.
//!
//! But emptying gives back what it takes as soon as a checkpoint of moves is durable. So it may have all that
//! such a checkpoint leaves, as long as no other comes between: the line of ledger blobs is held meanwhile.

use super::policy::BATCH_SEGMENTS;
use super::shift::Destination;
use super::{Engine, Outcome};
use crate::engine::Purpose;
use crate::engine::runs::LISTED_BLOCKS_MIN;
use crate::engine::space::Filling;
use crate::error::Result;
use crate::segments::Candidate;
use crate::state::State;

/// Blocks lost at the end of a segment that gets full.
const END_BLOCKS: u64 = 2;

/// Segments that are emptied into what is being filled already and one segment more at most.
struct Batch {
    filling: Filling,
    victims: Vec<Candidate>,
    /// Blocks that are gained.
    gain: u64,
}

impl Engine {
    /// Empties some segments with room that is kept back, and gives that back. False if there is nothing to
    /// be gained: what lives does not fit into fewer segments.
    ///
    /// # Errors
    /// What writing answers. What was moved before stays moved, and is recorded.
    pub(super) fn empty_from_reserve(&self) -> Result<bool> {
        if !self.with_line(|line| Ok(line.takes_moves()))? {
            // A picture of everything is due, after which it does.
            self.run_checkpoint()?;
        }
        self.with_line(|line| {
            let batch = if line.takes_moves() { self.batch(&mut self.state()) } else { None };
            let Some(batch) = batch else { return Ok(Ok(false)) };
            let emptied = self.empty_batch(&batch);
            if self.state().collection.vacated.is_empty() {
                return Ok(emptied.map(|_| false));
            }
            // Also what was moved before something failed.
            let recorded = self.record_moves_locked(line)?;
            Ok(emptied.map(|emptied| emptied && recorded))
        })?
    }

    fn empty_batch(&self, batch: &Batch) -> Result<bool> {
        let mut emptied = false;
        for victim in &batch.victims {
            self.collector.says(Some(super::policy::describe(victim, "only the reserve is left")));
            match self.empty_into(victim, Destination::One(batch.filling), Purpose::Rescuing, &|| ())? {
                Outcome::Emptied => emptied = true,
                Outcome::NoRoom => break,
                Outcome::Corrupt | Outcome::Gone => {}
            }
        }
        Ok(emptied)
    }

    /// What gains most.
    fn batch(&self, state: &mut State) -> Option<Batch> {
        let mut candidates: Vec<Candidate> = state.segments.candidates(state.replay_from).collect();
        candidates.sort_by_key(|candidate| candidate.live);
        let spare = state.segments.free() > self.reserve(state, Purpose::Rescuing);
        let fillings = [Filling::WarmData, Filling::ColdData, Filling::ColdNodes];
        let batches = fillings.map(|filling| self.batch_into(state, filling, &candidates, spare));
        batches.into_iter().filter(|batch| batch.gain > 0).max_by_key(|batch| batch.gain)
    }

    /// As many of the candidates, the emptiest first, as there is room for. `spare`: a segment may be taken
    /// for it.
    fn batch_into(
        &self,
        state: &mut State,
        filling: Filling,
        candidates: &[Candidate],
        spare: bool,
    ) -> Batch {
        let kind = filling.kind();
        let capacity = u64::from(self.geometry.end(kind).0) - 1;
        let cursor = *filling.cursor(state);
        let mut room = self.room_behind(kind, cursor).saturating_sub(END_BLOCKS);
        let mut batch = Batch { filling, victims: Vec::new(), gain: 0 };
        let candidates = || candidates.iter().filter(|candidate| filling.takes(candidate.kind));
        // Else segments would be emptied over and over, and never one be gained.
        if candidates().map(gain).sum::<u64>() + room < capacity {
            return batch;
        }
        room += if spare { capacity - END_BLOCKS } else { 0 };
        for candidate in candidates() {
            let Some(left) = room.checked_sub(cost(candidate)) else { break };
            let gained = gain(candidate);
            if batch.victims.len() == BATCH_SEGMENTS || gained == 0 {
                break;
            }
            room = left;
            batch.gain += gained;
            batch.victims.push(*candidate);
        }
        batch
    }
}

/// Blocks that what lives in a segment takes elsewhere at most.
fn cost(candidate: &Candidate) -> u64 {
    candidate.live + candidate.live.div_ceil(LISTED_BLOCKS_MIN as u64)
}

/// Blocks that are gained by emptying a segment.
fn gain(candidate: &Candidate) -> u64 {
    candidate.capacity.saturating_sub(cost(candidate))
}
