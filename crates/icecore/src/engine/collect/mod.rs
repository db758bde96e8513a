//! Collection: what lives in segments that hold little of it is moved elsewhere, by changing nothing but the
//! location map, so that whole segments become free.
//!
//! `choose` says which segments, `shift` moves what lives in one, `policy` says when and how fast. Trees,
//! sets and snapshots are not touched: their addresses stay what they are. A segment that was emptied stays
//! as it is until a checkpoint, or one of moves only ([`super::moves`]), that has the new places is durable:
//! a recovery from the one before looks for the blocks there. Readers look up a place, read, and look it up
//! again ([`crate::blocks::Blocks::while_there`]).

mod choose;
mod policy;
mod rescue;
mod shift;
#[cfg(test)]
mod tests;

pub(super) use policy::Collector;

use super::{Engine, Purpose};
use crate::error::Result;
use serde::{Deserialize, Serialize};
use shift::Outcome;

/// What a collection did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CollectReport {
    /// Segments that were emptied.
    pub segments: u64,
    /// Bytes that were moved out of them.
    pub moved_bytes: u64,
    /// Segments that were left alone because a block in them is damaged or cannot be read.
    pub corrupt: u64,
    /// Free segments afterwards.
    pub segments_free: u64,
}

impl Engine {
    /// Empties up to so many segments now, whatever the need, the least worthwhile to keep first. Makes sure
    /// that they can be used again. `checkpoint`: after a checkpoint, so that what died need not be moved.
    pub(crate) fn collect(&self, segments_max: usize, checkpoint: bool) -> Result<CollectReport> {
        self.check_writable()?;
        let _turn = self.collector.turn();
        if checkpoint {
            self.run_checkpoint()?;
        }
        let (moved, corrupt) = (self.moved_bytes(), self.state().segments.corrupt());
        let mut report = CollectReport::default();
        let victims = self.victims(&self.state());
        for victim in victims {
            if report.segments as usize >= segments_max {
                break;
            }
            match self.empty(&victim, Purpose::Collecting, &|| ())? {
                Outcome::Emptied => report.segments += 1,
                Outcome::NoRoom => break,
                Outcome::Corrupt | Outcome::Gone => {}
            }
        }
        let vacated = self.state().collection.vacated_count() > 0;
        if vacated && !self.record_moves()? {
            self.run_checkpoint()?;
        }
        let state = self.state();
        report.moved_bytes = self.moved_bytes() - moved;
        report.corrupt = state.segments.corrupt().saturating_sub(corrupt) as u64;
        report.segments_free = state.segments.free() as u64;
        Ok(report)
    }

    fn moved_bytes(&self) -> u64 {
        self.counters.moved_data_bytes.get() + self.counters.moved_node_bytes.get()
    }
}
