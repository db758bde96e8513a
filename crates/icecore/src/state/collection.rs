//! What collection has under way: the segment that it empties, those that it fills, and those that are empty
//! but for what the last durable checkpoint says.

use crate::liveness::BlockSet;
use crate::segments::Cursor;
use crate::units::{Run, SegmentId};
use std::collections::BTreeSet;

/// Collection, as far as others have to know of it.
#[derive(Default)]
pub(crate) struct Collection {
    /// The segment that is being emptied.
    pub emptying: Option<Emptying>,
    /// Segments being filled with data that was moved for the first time, data that was moved before, and
    /// nodes.
    pub warm_cursor: Option<Cursor>,
    pub cold_cursor: Option<Cursor>,
    pub node_cursor: Option<Cursor>,
    /// Segments that blocks were moved out of since the last checkpoint was frozen, each held once for it.
    /// Until a checkpoint that has the new places is durable, a recovery looks for the blocks here.
    pub vacated: Vec<SegmentId>,
    /// Segments that blocks were moved into since the last checkpoint was frozen: to be flushed before its
    /// ledger.
    pub filled: BTreeSet<SegmentId>,
    /// Nothing is gained by emptying more, until something dies: what is kept for it may be used by what
    /// frees.
    pub is_exhausted: bool,
    /// As `vacated`, of the checkpoint that is being written.
    pub vacated_frozen: usize,
    /// A segment was taken to be filled, and none of those that were emptied since has become free.
    pub has_taken: bool,
    /// Data that lives as of the last checkpoint, died by what the log says since, and has no place any more.
    /// It was left behind in segments that were emptied since that checkpoint, or since that was said last.
    pub forsaken: BlockSet,
}

/// Addresses that an entry of the location map cannot span.
const GAP_MAX: u64 = 512;

/// What is still to be moved out of a segment.
pub(crate) struct Emptying {
    pub segment: SegmentId,
    /// Blocks that live, or that a recovery or a reader may still reach, of each stream.
    pub blocks: [BlockSet; 3],
    /// What lies between them and will never be asked for again.
    pub dead: [BlockSet; 3],
}

impl Collection {
    /// Segments that the next checkpoints will free, as far as nothing else lives in them.
    pub(crate) fn vacated_count(&self) -> usize {
        self.vacated.len() + self.vacated_frozen
    }

    /// Whether one of the free segments is in use only until what was moved into it is durable: it gives back
    /// at least as much.
    pub(crate) fn has_borrowed(&self) -> bool {
        self.has_taken && (self.emptying.is_some() || self.vacated_count() > 0)
    }

    /// Segments that were emptied are free.
    pub(crate) fn gave_back(&mut self) {
        self.vacated_frozen = 0;
        self.has_taken = false;
    }

    /// A run of dead blocks left a segment's live count: it need not be moved.
    pub(crate) fn buried(&mut self, segment: SegmentId, run: &Run) {
        if let Some(emptying) = self.emptying.as_mut().filter(|emptying| emptying.segment == segment) {
            emptying.blocks[run.stream as usize].remove(&(run.start..run.end()));
        }
    }
}

impl Emptying {
    /// The parts of a run that are still to be moved.
    pub(crate) fn remaining(&self, run: &Run) -> Vec<Run> {
        let spans = self.blocks[run.stream as usize].runs_within(&(run.start..run.end()));
        spans.map(|span| Run::of(run.stream, &span)).collect()
    }

    /// What is dead between two runs, if they are neighbours that one entry of the location map can hold.
    pub(crate) fn dead_between(&self, before: &Run, after: &Run) -> Vec<Run> {
        let (start, end) = (before.end(), after.start);
        if before.stream != after.stream || start >= end || end.0 - start.0 >= GAP_MAX {
            return Vec::new();
        }
        let spans = self.dead[before.stream as usize].runs_within(&(start..end));
        spans.map(|span| Run::of(before.stream, &span)).collect()
    }
}
