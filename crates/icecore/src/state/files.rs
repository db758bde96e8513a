//! Operations on files and directories, in earnest: what goes with the head that they change.

use super::head::{Head, dataset_of};
use super::{Environment, Outcome, Placement, State};
use crate::error::{Error, Result};
use crate::operation::Operation;
use crate::units::{BlockCount, LogAddress, Run, SegmentId, Slot, Stream, VersionId};

impl State {
    pub(super) fn apply_to_files(
        &mut self,
        operation: &Operation,
        at: Placement,
        env: &Environment<'_>,
    ) -> Result<Outcome> {
        let (segment, blocks) = match operation {
            Operation::Write(write) => (at.segment, u64::from(write.blocks)),
            Operation::WriteScattered(scatter) => (at.segment, scatter.mapped()),
            Operation::MapScattered { scatter, address, segment, slot } => {
                self.place_staged(scatter.blocks, *address, *segment, *slot, env)?;
                (*segment, scatter.mapped())
            }
            _ => (at.segment, 0),
        };
        let dataset = dataset_of(operation)
            .ok_or_else(|| Error::Invalid("an operation on versions is not one on files".to_owned()))?;
        let head = self.head(dataset)?;
        let changed = self.counted(dataset, head, |state| {
            state.change_version(head, env, |head| head.execute(operation, at.address))
        })?;
        if blocks > 0 {
            self.segments.add_live(segment, blocks);
        }
        Ok(Outcome::of(head, changed))
    }

    /// Blocks outside the log get their addresses.
    fn place_staged(
        &mut self,
        blocks: u32,
        address: LogAddress,
        segment: SegmentId,
        slot: Slot,
        env: &Environment<'_>,
    ) -> Result<()> {
        let run = Run { stream: Stream::Data, start: address, length: BlockCount(blocks.into()) };
        if blocks == 0 || !env.blocks.map().write().try_insert(run, segment, slot) {
            return Err(Error::Invalid("a staged run is mapped to what is in use".to_owned()));
        }
        self.staged.insert(segment);
        Ok(())
    }

    pub(super) fn change_version<T>(
        &mut self,
        head: VersionId,
        env: &Environment<'_>,
        body: impl FnOnce(&mut Head<'_>) -> Result<T>,
    ) -> Result<T> {
        self.changed_roots.insert(head);
        let mut torn = self.torn;
        let (tree, mut effects) = self.effects(head, env.blocks);
        let outcome = body(&mut Head {
            tree,
            effects: &mut effects,
            nodes: env.nodes,
            is_replay: env.is_replay,
            gives_up: env.gives_up,
            patched: env.patched,
            torn: &mut torn,
        });
        // An operation that came to its end is whole.
        self.torn = torn && outcome.is_err();
        outcome
    }
}
