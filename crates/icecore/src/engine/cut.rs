//! A log that is damaged before its end, cut there: all that came before is what it was, and what came after is gone and told.

use super::former::{check_staged, uses};
use super::recovery::{AtDamage, Cut, Replay};
use crate::error::{Error, Result};
use crate::format::segment::file_name;
use crate::format::superblock::Superblock;
use crate::log::replay::{Found, Reader};
use crate::log::tail::Position;
use crate::units::{BlockCount, SegmentId};

/// Addresses that are left out behind a cut: more than the log that is gone can have given to blocks. What it left on disk
/// must not have the address of anything that comes now.
const LEFT_OUT: BlockCount = BlockCount(1 << 32);

impl Replay<'_> {
    /// Whether a step can be applied: once it is begun it cannot be left out any more. Only a log that is to be cut is looked at
    /// before; else what fails ends the replay.
    pub(super) fn check_step(&self, reader: &Reader<'_>, step: &[Found]) -> Result<()> {
        if matches!(self.at_damage, AtDamage::Refuse) {
            return Ok(());
        }
        step.iter().try_for_each(|found| {
            reader.operations(found)?;
            let at = Position {
                segment: found.segment,
                incarnation: found.view.header.incarnation,
                slot: found.slot,
                address: found.view.header.address,
                sequence: found.view.header.sequence,
            };
            check_staged(self.env.blocks, reader.pool(), at, &found.view)
        })
    }

    /// Ends the log after what was applied of it, if it was damaged.
    ///
    /// # Errors
    /// What lived there was overwritten by what came later.
    pub(super) fn cut(&mut self, stopped: Option<Error>, superblock: &Superblock) -> Result<Option<Cut>> {
        let Some(why) = stopped.or(self.doubt.take()) else { return Ok(None) };
        let (blocks, (mut end, previous)) = (self.env.blocks, self.end);
        let reused: Vec<String> = uses(blocks, superblock.pool, &self.state)?
            .into_iter()
            .filter(|(segment, incarnation)| self.is_later(*segment, *incarnation, superblock))
            .map(|(segment, _)| file_name(segment))
            .collect();
        if !reused.is_empty() {
            let detail = format!("used for something else since: {}", reused.join(", "));
            return Err(Error::damaged("what lived where the log is damaged", detail));
        }
        let used = end.address;
        end.address = used.plus(LEFT_OUT);
        self.state.map_tail(blocks, end.address, end.segment, end.slot, used);
        self.end = (end, previous);
        Ok(Some(Cut { record: end.sequence, why }))
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
