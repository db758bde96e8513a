//! A log that is damaged before its end, cut there. All that came before is what it was. What came after is
//! gone, and is reported.

use super::former::{check_staged, operations_of, uses};
use super::recovery::{AtDamage, Replay};
use crate::blocks::Blocks;
use crate::error::{Error, Result};
use crate::format::record::RecordView;
use crate::format::segment::{SegmentHeader, SegmentKind, file_name};
use crate::format::superblock::Superblock;
use crate::log::replay::{Found, Reader};
use crate::operation::Operation;
use crate::units::{BLOCK_BYTES, BlockCount, RecordSequence, SegmentId, Slot};

/// Addresses that are left out behind a cut: more than the log that is gone can have given to blocks. What it
/// left on disk must not have the address of anything that comes now.
const LEFT_OUT: BlockCount = BlockCount(1 << 32);

/// What is damaged where the state at a cut needs what found another use since.
pub(crate) const REUSED: &str = "what lived where the log is damaged";

/// What is damaged where the log does not go as far as the last checkpoint relies on.
pub(crate) const LEFT_BEHIND: &str = "what the last checkpoint left behind";

/// Where a log was cut, and why.
pub(crate) struct Cut {
    /// The first record that counts no more.
    pub record: RecordSequence,
    /// What was wrong with it.
    pub why: Error,
    /// What can still be read of the log from there on, in its order.
    pub after: Vec<After>,
}

/// A record that counts no more.
pub(crate) struct After {
    pub record: RecordSequence,
    /// What happened by it; nothing if that cannot be read.
    pub operations: Vec<Operation>,
}

impl Replay<'_> {
    /// Whether a step can be applied: once it is begun it cannot be left out any more. Only a log that is to
    /// be cut is looked at before; else what fails ends the replay.
    pub(super) fn check_step(&self, reader: &Reader<'_>, step: &[Found]) -> Result<()> {
        if matches!(self.at_damage, AtDamage::Refuse) {
            return Ok(());
        }
        step.iter().try_for_each(|found| {
            reader.operations(found)?;
            check_staged(self.env.blocks, reader.pool(), found.segment, found.slot, &found.view)
        })
    }

    /// Ends the log after what was applied of it, if it was damaged.
    ///
    /// # Errors
    /// What lived there was overwritten by what came later.
    pub(super) fn cut(&mut self, stopped: Option<Error>, superblock: &Superblock) -> Result<Option<Cut>> {
        let Some(why) = stopped.or(self.doubt.take()) else { return Ok(None) };
        let (blocks, (end, _)) = (self.env.blocks, self.end);
        let reused: Vec<String> = uses(blocks, superblock.pool, &self.state)?
            .into_iter()
            .filter(|(segment, incarnation)| self.is_later(*segment, *incarnation, superblock))
            .map(|(segment, _)| file_name(segment))
            .collect();
        if !reused.is_empty() {
            let detail = format!("used for something else since: {}", reused.join(", "));
            return Err(Error::damaged(REUSED, detail));
        }
        self.leave_out(LEFT_OUT)?;
        let after = self.after(end.sequence, superblock);
        Ok(Some(Cut { record: end.sequence, why, after }))
    }

    /// The records from one on that are still somewhere.
    fn after(&self, first: RecordSequence, superblock: &Superblock) -> Vec<After> {
        let mut found = Vec::new();
        for segment in self.state.segments.all() {
            let was_touched = self.touched.contains_key(&segment);
            if was_touched || begins_after(self.env.blocks, superblock, segment, first) {
                records_from(self.env.blocks, superblock, segment, first, &mut found);
            }
        }
        found.sort_by_key(|after| after.record);
        found.dedup_by_key(|after| after.record);
        found
    }

    /// Whether a segment in which something lives is in a use that came after the cut.
    fn is_later(&self, segment: SegmentId, incarnation: u64, superblock: &Superblock) -> bool {
        if self.state.segments.live(segment) == 0 || self.staged.contains(&segment) {
            return false;
        }
        match self.touched.get(&segment) {
            Some(known) => incarnation != *known,
            None => incarnation > superblock.taken,
        }
    }
}

/// Whether a segment was taken for the log when it had come as far as this record.
fn begins_after(blocks: &Blocks, superblock: &Superblock, segment: SegmentId, first: RecordSequence) -> bool {
    let mut block = [0; BLOCK_BYTES];
    let read = blocks.files().read(segment, Slot(0), &mut block);
    read.ok()
        .and_then(|()| SegmentHeader::of(superblock.pool, segment, &block))
        .is_some_and(|header| header.kind == SegmentKind::Log && header.first_sequence >= first)
}

/// Adds the records of a segment from one on that a life of this pool wrote when its log had come so far.
fn records_from(
    blocks: &Blocks,
    superblock: &Superblock,
    segment: SegmentId,
    first: RecordSequence,
    found: &mut Vec<After>,
) {
    let mut visit = |slot: Slot, view: &RecordView| {
        let header = &view.header;
        let life = superblock.lives.iter().rev().find(|life| life.first <= header.sequence);
        if !header.run && header.sequence >= first && life.is_some_and(|life| life.epoch == header.epoch) {
            let operations = operations_of(blocks, segment, slot, view).unwrap_or_default();
            found.push(After { record: header.sequence, operations });
        }
    };
    // What cannot be read says nothing.
    let _ = blocks.sums().survey(segment, Slot(u32::MAX), blocks.files(), &mut visit);
}
