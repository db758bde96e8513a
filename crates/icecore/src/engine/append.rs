//! Appending operations: checked, given room, applied to the state and put at the tail of the log.

use super::Engine;
use super::limits::Allowed;
use crate::blocks::Block;
use crate::error::{Error, Result};
use crate::format::segment::SegmentKind;
use crate::log::tail::{Need, Payload};
use crate::nodes::Resident;
use crate::operation::Operation;
use crate::state::{Environment, Outcome, Placement, State};
use crate::tree::NodeSource;
use crate::units::{BLOCK_BYTES, DatasetId, RecordSequence, Slot, VersionId};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// What an operation is for: the reserve is only there for what frees space or keeps the pool going.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Adds something.
    Data,
    /// Puts something in the place of as much that a file has: a database that deletes rows does.
    Replacing,
    /// The same of a file that becomes shorter by half as much at least.
    Shrinking,
    /// Frees something, is needed to, or goes back to what was. Nothing else: what is done over and over on a
    /// full pool, such as taking snapshots, would use up the room that deleting needs.
    Freeing,
    /// Moves what lives out of segments that hold little, ahead of need.
    Collecting,
    /// The same where only the reserve is left: takes of it what it gives back before any other operation
    /// may.
    Rescuing,
    /// A checkpoint: may take the last segment.
    Checkpoint,
}

impl Purpose {
    /// Whether it may make a dataset larger, or write as much as it frees.
    pub(crate) const fn may_add(self) -> bool {
        matches!(self, Self::Data | Self::Replacing | Self::Shrinking)
    }
}

/// What an append found has to be done soon.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pressure {
    pub pending_bytes: usize,
    pub checkpoint: bool,
    pub prepare: bool,
    pub collect: bool,
}

/// Blocks of log per flush above which writing segments ahead costs more than it saves: 512 KiB.
const AHEAD_FLUSH_BLOCKS_MAX: u64 = 128;
/// Blocks left in the log's last segment below which room for another is seen to.
const TAIL_ROOM_MIN: u64 = 16;
/// Log built and not yet written, beyond which a writer waits for it to be written. Not more: what is written
/// while the caches of the processor still have it goes to the disk faster.
const PENDING_BYTES_MAX: usize = 2 << 20;

/// Log built and not yet written, from which on it is written beside the writers.
const AHEAD_BYTES: usize = 1 << 20;

/// Nodes that are loaded for one operation without the state lock. A cache that does not keep so many is too
/// small for that.
const LOADS_MAX: u32 = 64;

/// Whether an operation may cut through a block. That is several changes, and none of them may fail for want
/// of a node.
const fn is_cut(operation: &Operation) -> bool {
    matches!(operation, Operation::Truncate { .. } | Operation::PunchHole { .. })
}

impl Engine {
    /// Executes one operation on files by itself. On return it is visible, and durable with record number
    /// returned. Tree nodes that it lacks are read without the state lock, and it is tried again. Those of a
    /// cut, and the neighbour of a node that becomes sparse, are read under it.
    /// `on`: the head that it is for.
    ///
    /// # Errors
    /// [`crate::FileFault::Stale`]: the dataset has another head than that by now.
    pub(crate) fn execute(
        &self,
        on: Option<(DatasetId, VersionId)>,
        operation: &Operation,
        payload: Option<Payload>,
        purpose: Purpose,
    ) -> Result<(RecordSequence, Outcome)> {
        self.with_room(|| {
            self.admit()?;
            let mut tries = LOADS_MAX;
            loop {
                let mut state = self.state();
                on.map_or(Ok(()), |(dataset, head)| state.require_head(dataset, head))?;
                let nodes = Resident::new(&self.nodes);
                let mut environment = self.environment();
                if tries > 0 && !is_cut(operation) {
                    environment.nodes = &nodes;
                }
                let outcome =
                    self.append_in(&mut state, operation, payload.clone(), purpose, false, &environment);
                if outcome.is_err()
                    && let Some(missing) = nodes.missing()
                {
                    drop(state);
                    // The error may be about a node that is stale by now. The last try finds what is damaged.
                    tries = if self.nodes.load(missing).is_ok() { tries - 1 } else { 0 };
                    continue;
                }
                let outcome = outcome?;
                let sequence = state.tail.last_sequence();
                let pressure = self.pressure(&state);
                drop(state);
                self.after_append(pressure)?;
                return Ok((sequence, outcome));
            }
        })
    }

    /// What every writer passes before it takes the state lock: it may have to wait for a checkpoint.
    pub(crate) fn admit(&self) -> Result<()> {
        self.check_writable()?;
        if self.tight.swap(false, Ordering::Relaxed) {
            self.reclaim()?;
            if self.is_tight(&self.state(), Purpose::Freeing) {
                self.collect_for_room(1)?;
            }
        }
        self.wait_for_checkpoint_room()
    }

    /// What has to be done soon, as seen while the state is locked.
    pub(crate) fn pressure(&self, state: &State) -> Pressure {
        let log = state.log_blocks * BLOCK_BYTES as u64;
        let dirty = (state.dirty_nodes + self.blocks.pending().count() as u64) * BLOCK_BYTES as u64;
        let some = u64::from(self.geometry.slots()) / 4;
        let reclaimable = state.graveyard.pending_blocks() >= some || state.log_blocks >= some;
        let crowded =
            reclaimable && self.is_tight(state, Purpose::Data) && self.checkpoint_is_worth_it(state);
        if state.tail.room() < TAIL_ROOM_MIN && self.is_tight(state, Purpose::Freeing) {
            // The next operation, which may be one that frees, would find no room for the log to go on.
            self.tight.store(true, Ordering::Relaxed);
        }
        Pressure {
            pending_bytes: state.tail.pending_bytes(),
            checkpoint: log >= self.options.log_bytes_max / 2
                || dirty >= self.options.dirty_bytes_max / 2
                || crowded,
            prepare: state.tail.is_past_half()
                && state.segments.free_written() == 0
                && self.flushes_are_small(state),
            collect: self.collection_is_due(state),
        }
    }

    /// Whether little of the log's last segment lies between two flushes on average.
    fn flushes_are_small(&self, state: &State) -> bool {
        let flushes = self.counters.commits.get() - state.commits_before_segment;
        u64::from(state.tail.next_slot().0) < flushes * AHEAD_FLUSH_BLOCKS_MAX
    }

    /// What every writer does after it let go of the state lock.
    pub(crate) fn after_append(&self, pressure: Pressure) -> Result<()> {
        if pressure.pending_bytes > PENDING_BYTES_MAX {
            self.write_log_beside(true)?;
        } else if pressure.pending_bytes >= AHEAD_BYTES {
            self.write_log_beside(false)?;
        }
        self.trigger_background(pressure)
    }

    /// Appends an operation while the state is locked.
    pub(crate) fn append(
        &self,
        state: &mut State,
        operation: &Operation,
        payload: Option<Payload>,
        purpose: Purpose,
    ) -> Result<Outcome> {
        self.append_in(state, operation, payload, purpose, false, &self.environment())
    }

    /// As [`Engine::append`] for part of a commit that limits have allowed as a whole, and for which there is
    /// room. `patched`: what the blocks of a patch come to.
    pub(crate) fn append_allowed(
        &self,
        state: &mut State,
        operation: &Operation,
        payload: Option<Payload>,
        purpose: Purpose,
        patched: &[Arc<Block>],
    ) -> Result<Outcome> {
        let environment = Environment { patched, ..self.environment() };
        self.append_in(state, operation, payload, purpose, true, &environment)
    }

    fn append_in(
        &self,
        state: &mut State,
        operation: &Operation,
        payload: Option<Payload>,
        purpose: Purpose,
        is_allowed: bool,
        environment: &Environment<'_>,
    ) -> Result<Outcome> {
        let (encoded, need) = self.encoded(operation, payload.as_ref())?;
        if state.closing {
            return Err(self.closed_error());
        }
        // Within a step it is too late to refuse: the caller that began it has made sure.
        let mut allowed = Allowed::default();
        if !state.tail.is_in_chain() {
            if !is_allowed && !state.usage.is_empty() && self.is_judged(state, operation, purpose) {
                let most = self.most_of(state, operation);
                allowed = self.judge(state, most.as_slice(), environment.nodes, |trial| {
                    trial.step(operation, &encoded, payload.as_ref(), environment.patched)
                })?;
            }
            self.ensure_reserve(state, purpose, 0)?;
        }
        if state.tail.needs_segment(need) {
            self.switch_segment(state, purpose)?;
        }
        let address = state.tail.plan(need);
        let at = Placement { address, segment: state.tail.segment() };
        state.torn = false;
        let change = state.begin_change(operation);
        let applied = self.writer.guarded("changing the state", || state.apply(operation, at, environment));
        let mut outcome = applied.inspect_err(|error| {
            change.iter().for_each(|(_, present)| present.withdraw());
            if state.torn {
                // The state holds half an operation that the log will never hold.
                state.tail.abandon();
                self.writer.fail(&format!("an operation was cut off in the middle: {error}"));
            }
        })?;
        allowed.came_true(state);
        // Under the state lock, as handles are opened: it is decided once and for all who frees it.
        outcome.orphan = outcome.orphan.filter(|orphan| self.open_files.orphaned(*orphan));
        let blocks = need.blocks;
        if let Some(payload) = &payload {
            let slot = state.tail.next_slot();
            self.blocks.sums().set(at.segment, slot, payload.sums.iter().copied());
            self.blocks.recent().add_log(address, payload.clone());
        }
        state.tail.append(&encoded, payload);
        // Before anything is freed that has died by it, and not before the log is past what was born by it.
        if let Some((head, present)) = change {
            present.end_change(|| state.version_of(head));
        }
        // Merged blocks that no reader can reach any more need not wait for a checkpoint to leave the memory.
        while let Some(address) = state.graveyard.superseded() {
            self.blocks.pending().done(address);
        }
        state.operations_pending += 1;
        state.log_blocks += blocks as u64 + 1;
        Ok(outcome)
    }

    /// Whether limits have a say in an operation by itself. What frees is never refused, but a file that is
    /// cut may become longer.
    fn is_judged(&self, state: &State, operation: &Operation, purpose: Purpose) -> bool {
        let may_add = purpose.may_add() || matches!(operation, Operation::Truncate { .. });
        may_add && !self.only_frees(state, operation)
    }

    /// An operation as the log has it, and what it needs there.
    pub(crate) fn encoded(
        &self,
        operation: &Operation,
        payload: Option<&Payload>,
    ) -> Result<(Vec<u8>, Need)> {
        let mut encoded = Vec::with_capacity(operation.encoded_about());
        operation.encode(&mut encoded);
        let blocks = payload.map_or(0, Payload::blocks);
        debug_assert_eq!(blocks, operation.data_blocks() as usize);
        let spilled = encoded.len().div_ceil(BLOCK_BYTES);
        if blocks + spilled > self.record_blocks_max() {
            let detail = format!("an operation of {} bytes is too large to log", encoded.len());
            return Err(Error::Invalid(detail));
        }
        let need = Need { operation_bytes: encoded.len(), blocks };
        Ok((encoded, need))
    }

    /// Most data blocks that one operation may carry: a record must fit a segment.
    pub(crate) fn record_blocks_max(&self) -> usize {
        let segment = self.geometry.end(SegmentKind::Log).0 as usize - 3;
        segment.min(crate::log::tail::RECORD_BLOCKS_MAX)
    }

    pub(crate) fn switch_segment(&self, state: &mut State, purpose: Purpose) -> Result<()> {
        // Within a step it is too late to refuse, and the pool would take no more writes. Rather, operations
        // that free have less left.
        let is_too_late = state.tail.is_in_chain() && purpose.may_add();
        let purpose = if is_too_late { Purpose::Freeing } else { purpose };
        let segment = self.take_segment(state, SegmentKind::Log, purpose)?;
        let incarnation = state.segments.next_incarnation();
        let mut encoded = Vec::new();
        Operation::Switch { segment, incarnation }.encode(&mut encoded);
        let old = state.tail.segment();
        state.tail.switch(&encoded, segment, incarnation);
        state.segments.filled(old, state.tail.last_sequence());
        state.segments.let_go(old);
        state.commits_before_segment = self.counters.commits.get();
        self.blocks.sums().open(segment, incarnation, self.geometry);
        let address = state.tail.next_address();
        state.map_tail(&self.blocks, address, segment, Slot(1), address);
        Ok(())
    }
}
