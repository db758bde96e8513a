//! Reading what may be moved elsewhere meanwhile.
//!
//! A segment that blocks were moved out of may be used for something else at any time. What was read counts
//! only if the blocks are still known to lie there afterwards. Until then no reader knows whether what does
//! not match its checksum is damaged.

use super::Blocks;
use super::tables::while_still;
use crate::error::{Error, Result};
use crate::units::{BlockCount, Run, SegmentId, Slot};

/// What did not match its checksum while a place was read that may be used for something else meanwhile.
#[derive(Default)]
pub(crate) struct Doubts {
    lost: Vec<Error>,
    /// Of this there was a copy.
    made_good: Vec<Error>,
}

impl Doubts {
    /// Remembers an error that is damage, if the blocks were there.
    pub(crate) fn add(&mut self, error: &Error) {
        if let Error::Damaged { place, detail } = error {
            self.lost.push(Error::damaged(place.clone(), detail.clone()));
        }
    }

    /// What this sentence is about was taken from its copy.
    pub(crate) fn made_good(&mut self, text: &str) {
        let all = std::mem::take(&mut self.lost).into_iter();
        let (of_it, others): (Vec<Error>, Vec<Error>) = all.partition(|doubt| doubt.to_string() == text);
        self.made_good.extend(of_it);
        self.lost = others;
    }
}

impl Blocks {
    /// Looks up the place of the beginning of a run, up to where it goes on elsewhere, and calls `read` with
    /// it. Does so again if the blocks were moved meanwhile. What `read` doubts is noted once it is known
    /// that they lay there.
    pub(crate) fn while_there<T>(
        &self,
        run: Run,
        mut read: impl FnMut(SegmentId, Slot, BlockCount, &mut Doubts) -> Result<T>,
    ) -> Result<T> {
        let outcome = while_still(
            || self.sums.uses(),
            || {
                let (segment, slot, together) = self.locate(run.stream, run.start)?;
                Ok((segment, slot, together.min(run.length)))
            },
            |&(segment, slot, count)| {
                let mut doubts = Doubts::default();
                let outcome = read(segment, slot, count, &mut doubts);
                (outcome, doubts)
            },
            |&(segment, slot, count)| {
                let now = self.lookup(run.stream, run.start)?;
                Ok(now
                    .is_some_and(|(at, first, together)| (at, first) == (segment, slot) && together >= count))
            },
        );
        let (outcome, doubts) = outcome?;
        self.note(&doubts);
        outcome
    }

    /// Notes damage of what was there for certain.
    pub(super) fn note(&self, doubts: &Doubts) {
        let incidents = self.files.incidents();
        doubts.lost.iter().for_each(|error| incidents.note(error));
        doubts.made_good.iter().for_each(|error| incidents.note_made_good(error));
    }
}
