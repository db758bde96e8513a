//! Room: segments are taken from the free ones or made, and some are kept back so that deleting and
//! checkpointing always succeed.

use super::ledger::RUN_BYTES_MAX;
use super::{Engine, Purpose};
use crate::error::{Error, Result};
use crate::format::segment::{SegmentHeader, SegmentKind, encode_table};
use crate::segments::Cursor;
use crate::state::State;
use crate::storage::{AlignedBuffer, Kind};
use crate::units::{
    BLOCK_BYTES, BlockCount, ByteLength, LogAddress, RecordSequence, RecoveryEpoch, SegmentId, Slot,
};
use std::sync::atomic::Ordering;

/// Blocks of a cursor's next piece at most.
const PIECE_BLOCKS_MAX: u32 = 256;
/// Segments of a pool that keeps none for deleting.
const NONE_FOR_DELETING: u64 = 64;
/// Segments that a larger pool keeps for deleting: one for commits that replace as much as they write, one
/// for files that shrink.
const FOR_DELETING: u64 = 2;
/// Segments that are made at once, and what they may take, at most.
const TOGETHER_MAX: u64 = 8;
const TOGETHER_BYTES_MAX: u64 = 64 << 20;
/// They are no more than this part of the segments that there are.
const GROWTH_SHARE: u64 = 8;
/// Nodes that the operations until the next look at the reserve may make.
const NODES_MARGIN: u64 = 64;
/// Merged blocks that they may make.
const MERGED_MARGIN: u64 = 16;
/// What adds something leaves such a part of each segment that is being filled to what frees.
const SLACK_SHARE: u64 = 3;
/// What is tried, one after the other, when something finds no room.
const WAYS_TO_ROOM: [WayToRoom; 5] = [
    WayToRoom::CheckpointIfWorthIt,
    WayToRoom::Wait,
    WayToRoom::Collect(1),
    WayToRoom::Checkpoint,
    WayToRoom::Collect(6),
];
/// A pool is filling up when less than this part of its segments is free beside the reserve.
const FILLING_UP_SHARE: usize = 8;
/// Segments that are not expected to be gathered, however dead: those that are being filled, and as many more
/// as this part of those that would hold what lives.
const NOT_GATHERED: u64 = 8;
const NOT_GATHERED_SHARE: u64 = 8;
/// Blocks of a ledger blob that says nothing but what it has to.
const MOVES_MARGIN: u64 = 2;
/// Blocks by which a ledger blob may exceed twice the longest so far.
const LEDGER_MARGIN: u64 = 32;

impl Engine {
    /// Takes a segment for a use, making one if need be.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if only the reserve is left and the purpose may not touch it.
    pub(crate) fn take_segment(
        &self,
        state: &mut State,
        kind: SegmentKind,
        purpose: Purpose,
    ) -> Result<SegmentId> {
        let reserve = self.reserve(state, purpose);
        let mut refusal = None;
        while state.segments.free() <= reserve {
            match self.make_segment(state) {
                Ok(()) => {}
                Err(error) => {
                    refusal = Some(error);
                    break;
                }
            }
        }
        if state.segments.free() <= reserve && (purpose != Purpose::Checkpoint || state.segments.free() == 0)
        {
            return Err(refusal.expect("making a segment failed"));
        }
        let recycled = state.segments.take(kind);
        let segment = recycled.expect("there are free segments");
        if state.segments.make_certain(segment) {
            self.make_certain(&[segment])?;
        }
        self.forget_former_use(state, segment);
        Ok(segment)
    }

    /// What lay in a segment is of no use any more: the next checkpoint says so.
    pub(super) fn forget_former_use(&self, state: &mut State, segment: SegmentId) {
        self.blocks.sums().forget(segment);
        self.blocks.map().write().remove_segment(segment);
        state.retired.push(segment);
    }

    /// Sees to it that so many segments can be taken for a purpose.
    pub(crate) fn ensure_free(&self, state: &mut State, segments: usize, purpose: Purpose) -> Result<()> {
        self.ensure_free_with(state, segments, purpose, Making::default())
    }

    /// The same for something that also makes what the reserve has to find room for.
    pub(crate) fn ensure_free_with(
        &self,
        state: &mut State,
        segments: usize,
        purpose: Purpose,
        making: Making,
    ) -> Result<()> {
        while segments > 0 && state.segments.free() < self.reserve_with(state, purpose, making) + segments {
            self.make_segment(state)?;
        }
        Ok(())
    }

    /// Refuses whatever is not part of a checkpoint, so that the next one can always be written: also without
    /// a new stretch of log, operations make nodes that it has to find room for. `nodes`: how many, beside a
    /// few.
    ///
    /// Of what is kept from those who add something, collection may take one segment, and gives it back soon.
    /// Meanwhile they go on in the room they have: had they come a moment earlier, they would have been
    /// allowed to, and all would be as it is now.
    pub(crate) fn ensure_reserve(&self, state: &mut State, purpose: Purpose, nodes: usize) -> Result<()> {
        while purpose != Purpose::Checkpoint
            && state.segments.free() + lent(state, purpose)
                < self.reserve_with(state, purpose, Making::nodes(nodes as u64))
        {
            self.make_segment(state)?;
        }
        Ok(())
    }

    /// Whether who adds something finds room in the segment that the log is in, whatever it is.
    pub(crate) fn log_may_go_on(&self, state: &State) -> bool {
        let kept = self.reserve_with(state, Purpose::Data, Making::nodes(NODES_MARGIN));
        state.tail.room() > self.record_blocks_max() as u64
            && state.segments.free() + lent(state, Purpose::Data) >= kept
    }

    /// Free segments that must be left over: what the checkpoint on its way and the next one may take, and
    /// for what adds something, room for what frees.
    pub(crate) fn reserve(&self, state: &State, purpose: Purpose) -> usize {
        self.reserve_with(state, purpose, Making::default())
    }

    /// The reserve, with what else is going to be made.
    fn reserve_with(&self, state: &State, purpose: Purpose, making: Making) -> usize {
        let need = |slack| {
            let nodes = state.dirty_nodes + state.frozen_dirty + NODES_MARGIN + making.nodes;
            self.for_nodes(state, nodes + slack)
                + self.for_merged(state, slack + making.merged)
                + self.for_ledger(state, slack)
        };
        match purpose {
            // What is being filled may run short while what frees does its work: that must not count against
            // it.
            Purpose::Data => self.reserve_with(state, Purpose::Shrinking, making) + kept_for_deleting(state),
            Purpose::Replacing => {
                self.reserve_with(state, Purpose::Shrinking, making) + kept_for_deleting(state).min(1)
            }
            Purpose::Shrinking => need(u64::from(self.geometry.slots()) / SLACK_SHARE) + 2,
            // One is left that collection can fill: with it, dead space can be gathered when what is needed
            // grows by a segment at once.
            Purpose::Collecting => need(0) + 1,
            Purpose::Freeing => need(0) + usize::from(!state.collection.is_exhausted),
            Purpose::Rescuing => self.for_moves(state),
            Purpose::Checkpoint => 0,
        }
    }

    /// Blocks that a segment which is being filled still has room for.
    pub(super) fn room_behind(&self, kind: SegmentKind, cursor: Option<Cursor>) -> u64 {
        cursor.map_or(0, |cursor| u64::from(self.geometry.end(kind).0.saturating_sub(cursor.slot.0)))
    }

    /// Segments for so many blocks beyond those that there is room for.
    fn beyond(&self, blocks: u64, room: u64, kind: SegmentKind) -> usize {
        blocks.saturating_sub(room).div_ceil(u64::from(self.geometry.end(kind).0) - 1) as usize
    }

    fn for_nodes(&self, state: &State, nodes: u64) -> usize {
        self.beyond(nodes, self.room_behind(SegmentKind::Node, state.node_cursor), SegmentKind::Node)
    }

    fn for_merged(&self, state: &State, slack: u64) -> usize {
        let merged = self.blocks.pending().count() as u64 + MERGED_MARGIN + slack;
        let merged = merged + merged.div_ceil(u64::from(PIECE_BLOCKS_MAX));
        self.beyond(merged, self.room_behind(SegmentKind::Run, state.run_cursor), SegmentKind::Run)
    }

    /// A blob lies in one piece, and the length of the next one is unknown. What is too long for a segment is
    /// cut in pieces of half of one at most. Behind it there is room for moves to be recorded.
    fn for_ledger(&self, state: &State, slack: u64) -> usize {
        let blob = 2 * u64::from(state.ledger_blocks) + LEDGER_MARGIN;
        if blob + self.blocks_of_moves(0) + slack
            <= self.room_behind(SegmentKind::Ledger, state.ledger_cursor)
        {
            0
        } else if blob < u64::from(self.geometry.slots()) {
            1
        } else {
            blob.div_ceil(u64::from(self.geometry.slots() / 2)) as usize
        }
    }

    /// Segments for a blob that says what has been moved since the last checkpoint, and what two segments
    /// hold besides.
    fn for_moves(&self, state: &State) -> usize {
        let blob = self.blocks_of_moves(self.blocks.map().read().changed_runs());
        usize::from(blob > self.room_behind(SegmentKind::Ledger, state.ledger_cursor))
    }

    /// Blocks of a blob that says where the blocks of two segments are now, each by itself, and changes of so
    /// many runs.
    fn blocks_of_moves(&self, runs: usize) -> u64 {
        let runs = runs + 2 * self.geometry.slots() as usize;
        (runs * RUN_BYTES_MAX).div_ceil(BLOCK_BYTES) as u64 + MOVES_MARGIN
    }

    /// Whether there are no more segments to be had than the reserve.
    pub(crate) fn is_tight(&self, state: &State, purpose: Purpose) -> bool {
        let no_more = state.medium_full || state.segments.creatable() == 0;
        no_more && state.segments.free() <= self.reserve(state, purpose)
    }

    /// Whether a destruction should at once make room of what it frees, which may not be known. It should
    /// where there is no room, or little and this is much. Of snapshots that come and go, each of which keeps
    /// little, the next checkpoint makes room.
    pub(crate) fn is_room_wanted(&self, state: &State, frees: Option<BlockCount>) -> bool {
        let waiting = |frees: BlockCount| BlockCount(state.graveyard.waiting_blocks() + frees.0);
        self.is_tight(state, Purpose::Data)
            || self.is_filling_up(state) && frees.is_none_or(|frees| self.is_much(state, waiting(frees)))
    }

    /// Whether room is getting scarce.
    pub(super) fn is_filling_up(&self, state: &State) -> bool {
        available(state)
            < (self.reserve(state, Purpose::Data) + 1 + state.segments.len() / FILLING_UP_SHARE) as u64
    }

    /// Bytes that can be written without freeing anything: segments that are free, to be made, or to be
    /// gathered from what is dead, but for the reserve. `fit`: how many the medium has room for. Where there
    /// are any, a small change finds room; where it found none, there are none.
    pub(crate) fn writable(&self, state: &State, fit: u64) -> ByteLength {
        let segments = state.segments.free() as u64 + state.segments.creatable().min(fit);
        let segments = segments + self.gatherable(state);
        let spare = segments.saturating_sub(self.reserve_with(state, Purpose::Data, Making::SMALL) as u64);
        ByteLength(spare * self.geometry.bytes)
    }

    /// Segments that collection can surely empty: a pool that has grown to the size of its medium writes for
    /// ever in what dies. What it gains where segments are nearly full is not promised.
    fn gatherable(&self, state: &State) -> u64 {
        let (filled, live) = state.segments.unheld();
        let hold_what_lives = live.div_ceil(u64::from(self.geometry.slots()));
        filled.saturating_sub(hold_what_lives + hold_what_lives / NOT_GATHERED_SHARE + NOT_GATHERED)
    }

    /// Runs something that needs room. If there is none, what died meanwhile is made room of first; if that
    /// is not enough, what lives in segments that hold little is moved together. What was destroyed must not
    /// stand in the way of a quota either.
    pub(crate) fn with_room<T>(&self, body: impl Fn() -> Result<T>) -> Result<T> {
        let mut outcome = body();
        if matches!(outcome, Err(Error::QuotaExceeded { .. })) {
            let mut state = self.state();
            state.doom_unread()?;
            let is_something_left = state.history.doomed_count() > 0;
            drop(state);
            if is_something_left && self.finish_freeing().is_ok() {
                outcome = body();
            }
        }
        for way in WAYS_TO_ROOM {
            if !matches!(outcome, Err(Error::NoSpace { .. })) {
                break;
            }
            let gained = match way {
                WayToRoom::CheckpointIfWorthIt if !self.checkpoint_is_worth_it(&self.state()) => false,
                WayToRoom::CheckpointIfWorthIt | WayToRoom::Checkpoint => self.reclaim()?,
                WayToRoom::Wait => self.wait_for_collection(),
                WayToRoom::Collect(segments) => self.collect_for_room(segments)?,
            };
            if gained {
                outcome = body();
            }
        }
        outcome.map_err(|error| self.with_ways_out(error))
    }

    /// Makes room of what died since the last checkpoint, of the log that it makes superfluous, and of what
    /// readers and groups have let go of since; false if there is nothing of the sort.
    pub(crate) fn reclaim(&self) -> Result<bool> {
        let mut state = self.settled_state()?;
        let free = state.segments.free();
        self.bury(&mut state);
        self.let_go_of_spent(&mut state);
        let freed = state.segments.free() > free;
        let worthwhile = state.graveyard.pending_blocks() > 0 || state.log_blocks > 0;
        // One that is being written has taken with it what died before: looked at under the state lock, as it
        // was frozen.
        let on_its_way = self.checkpoint_writing.load(Ordering::Acquire);
        drop(state);
        if worthwhile {
            self.run_checkpoint()?;
        } else if on_its_way {
            drop(self.checkpoint.lock());
        }
        Ok(worthwhile || on_its_way || freed)
    }

    /// Segments that were filled to their end, and in which nothing lives any more, are kept by nothing but
    /// having been filled last.
    fn let_go_of_spent(&self, state: &mut State) {
        for filling in Filling::ALL {
            let cursor = *filling.cursor(state);
            let is_spent = |cursor: &Cursor| {
                self.room_behind(filling.kind(), Some(*cursor)) < 2
                    && state.segments.live(cursor.segment) == 0
            };
            if let Some(cursor) = cursor.filter(is_spent) {
                *filling.cursor(state) = None;
                state.segments.let_go(cursor.segment);
            }
        }
        let released = state.segments.release(state.replay_from);
        self.counters.segments_recycled.add(released.len() as u64);
    }

    /// Makes one more segment file, and a few more where a pool grows that has many.
    pub(crate) fn make_segment(&self, state: &mut State) -> Result<()> {
        // First what is written beside them: a new segment may take the last room there is.
        self.blocks.files().copies().reserve_room();
        let mut made = Vec::new();
        let mut outcome = Ok(());
        for _ in 0..self.made_together(state) {
            let Some(segment) = state.segments.next_new() else {
                outcome = Err(self.limit_reached(state));
                break;
            };
            outcome = self.blocks.files().create(segment);
            state.medium_full = matches!(outcome, Err(Error::NoSpace { .. }));
            if outcome.is_err() {
                break;
            }
            state.segments.add_free(segment, false, false);
            made.push(segment);
        }
        if made.is_empty() {
            return outcome;
        }
        self.counters.segments_created.add(made.len() as u64);
        self.make_certain(&made)?;
        for segment in made {
            state.segments.make_certain(segment);
        }
        Ok(())
    }

    /// Segments that are made at once. Each by itself waits for what the disk is writing, which takes bulk
    /// writes a third of their speed. No more than an eighth of what there is, and of what the size limit
    /// leaves, which copies may need.
    fn made_together(&self, state: &State) -> u64 {
        let spare = (state.segments.len() as u64).min(state.segments.creatable()) / GROWTH_SHARE;
        let most = (TOGETHER_BYTES_MAX / self.geometry.bytes).min(TOGETHER_MAX).min(spare);
        if most > 1 && self.is_medium_short() { 1 } else { most.max(1) }
    }

    fn limit_reached(&self, state: &State) -> Error {
        Error::NoSpace {
            detail: format!(
                "the size limit of {} is reached: {} MiB live in {} segments of {} MiB, {} of them free and kept \
                 back; `icecore resize` changes the limit",
                self.storage.describe(),
                (state.segments.live_total() * BLOCK_BYTES as u64) >> 20,
                state.segments.len(),
                self.geometry.bytes >> 20,
                state.segments.free(),
            ),
        }
    }

    /// Makes names and lengths of segments' files durable, before the log can say that it goes on there.
    fn make_certain(&self, segments: &[SegmentId]) -> Result<()> {
        let synced = segments.iter().try_for_each(|segment| self.blocks.files().sync(*segment));
        // As after every flush that fails, what is on disk is unknown.
        synced.and_then(|()| self.sync_directory()).inspect_err(|error| self.writer.fail(&error.to_string()))
    }

    /// Makes it durable which segment files there are. What fails is noted.
    pub(super) fn sync_directory(&self) -> Result<()> {
        self.storage.sync_directory().map_err(|source| {
            let error = Error::io("flush", format!("directory {}", self.storage.describe()), source);
            self.blocks.files().incidents().note(&error);
            error
        })
    }

    /// Slots for `wanted` blocks, or fewer, in a segment that is being filled.
    pub(crate) fn allocate(
        &self,
        state: &mut State,
        filling: Filling,
        wanted: u32,
        whole: bool,
        purpose: Purpose,
    ) -> Result<Allocation> {
        let kind = filling.kind();
        let end = self.geometry.end(kind).0;
        let cursor = *filling.cursor(state);
        let left = cursor.map_or(0, |cursor| end - cursor.slot.0);
        let enough = if whole { left >= wanted } else { left >= wanted.min(2) };
        if let (Some(cursor), true) = (cursor, enough) {
            let blocks = wanted.min(left);
            self.advance(state, filling, blocks, purpose)?;
            return Ok(Allocation {
                segment: cursor.segment,
                incarnation: cursor.incarnation,
                slot: cursor.slot,
                blocks,
                full: None,
                is_fresh: false,
            });
        }
        if whole && wanted >= end {
            return Err(Error::NoSpace {
                detail: format!("{wanted} blocks do not fit a segment of {end}: use larger segments"),
            });
        }
        let segment = self.take_segment(state, kind, purpose)?;
        state.collection.has_taken |= filling.is_moved();
        let incarnation = state.segments.next_incarnation();
        if kind.has_table() {
            self.blocks.sums().open(segment, incarnation, self.geometry);
        }
        if let Some(old) = cursor.filter(|_| left < 2) {
            // What the log finds in it when its turn comes needs no zeros written over it first.
            state.segments.mark_written(old.segment);
        }
        let blocks = wanted.min(end - 1);
        let slot = Slot(1 + blocks);
        *filling.cursor(state) = Some(Cursor { segment, incarnation, slot });
        let full = cursor.map(|cursor| (cursor.segment, cursor.incarnation));
        Ok(Allocation { segment, incarnation, slot: Slot(1), blocks, full, is_fresh: true })
    }

    /// Gives out room in a segment that is being filled. The reserve may count on that room. Then a purpose
    /// that may not touch the reserve needs free segments that make up for it. A group that is refused, or
    /// given up, has used up what it wrote ahead.
    fn advance(&self, state: &mut State, filling: Filling, blocks: u32, purpose: Purpose) -> Result<()> {
        let before = filling.cursor(state).expect("it is being filled");
        let after = Cursor { slot: Slot(before.slot.0 + blocks), ..before };
        *filling.cursor(state) = Some(after);
        let kept = if filling.is_counted_on() { self.ensure_reserve(state, purpose, 0) } else { Ok(()) };
        if kept.is_err() {
            *filling.cursor(state) = Some(before);
        }
        kept
    }

    /// Writes the header of a segment that begins, and the checksum table of the one that it replaces.
    pub(crate) fn frame(
        &self,
        kind: SegmentKind,
        allocation: &Allocation,
        epoch: RecoveryEpoch,
    ) -> Result<()> {
        if let Err(error) = self.begin_segment(kind, allocation, epoch) {
            if let Some((full, _)) = allocation.full {
                self.state().segments.let_go(full);
            }
            return Err(error);
        }
        self.end_segment(kind, allocation)
    }

    /// Writes the header of a segment that begins with this allocation.
    pub(crate) fn begin_segment(
        &self,
        kind: SegmentKind,
        allocation: &Allocation,
        epoch: RecoveryEpoch,
    ) -> Result<()> {
        let Allocation { segment, incarnation, is_fresh, .. } = *allocation;
        if !is_fresh {
            return Ok(());
        }
        self.blocks.files().begin(segment, kind);
        let (pool, first_address, first_sequence) = (self.pool, LogAddress(0), RecordSequence(0));
        let header = SegmentHeader { pool, kind, segment, incarnation, first_address, first_sequence, epoch };
        self.blocks.files().write_header(&header)?;
        self.counters.frame_bytes.add(BLOCK_BYTES as u64);
        Ok(())
    }

    /// Lets go of the segment that this allocation found full. Writes its checksum table, unless an open
    /// group has blocks in it: then the group writes the table ([`Engine::let_go_of_staged`]).
    pub(crate) fn end_segment(&self, kind: SegmentKind, allocation: &Allocation) -> Result<()> {
        let Some((segment, incarnation)) = allocation.full else { return Ok(()) };
        let writes_table = kind.has_table() && self.blocks.sums().may_close(segment, incarnation);
        let outcome = if writes_table { self.write_table(segment, incarnation, kind) } else { Ok(()) };
        // Not before: with nothing alive in it, another writer might have filled it anew by now.
        self.state().segments.let_go(segment);
        outcome
    }

    pub(super) fn write_table(&self, segment: SegmentId, incarnation: u64, kind: SegmentKind) -> Result<()> {
        let sums = self.blocks.sums().close(segment, self.geometry);
        let table = encode_table(self.geometry, self.blocks.sums().owner(segment, incarnation), &sums);
        let aligned = AlignedBuffer::copied(&table);
        self.blocks.files().write(segment, self.geometry.end(kind), &[(Kind::Frame, &aligned)])?;
        self.counters.frame_bytes.add(table.len() as u64);
        Ok(())
    }

    /// Writes zeros over a free segment that was never written, so that later flushes need not wait for the
    /// filesystem.
    pub(crate) fn write_ahead(&self, segment: SegmentId) -> Result<()> {
        let zeros = AlignedBuffer::zeroed(PIECE_BLOCKS_MAX as usize * BLOCK_BYTES);
        let mut slot = 0;
        while slot < self.geometry.slots() {
            let blocks = PIECE_BLOCKS_MAX.min(self.geometry.slots() - slot);
            let part = &zeros[..blocks as usize * BLOCK_BYTES];
            self.blocks.files().write(segment, Slot(slot), &[(Kind::Ahead, part)])?;
            self.counters.ahead_bytes.add(part.len() as u64);
            slot += blocks;
        }
        self.blocks.files().sync(segment)?;
        self.counters.flushes.add(1);
        Ok(())
    }
}

/// How room is made for something that finds none.
#[derive(Clone, Copy)]
enum WayToRoom {
    /// By a checkpoint that frees what died since the last one, if that is much for what it writes.
    CheckpointIfWorthIt,
    /// By the collection that is under way, where the log has room and only collection stands in the way.
    Wait,
    /// By one in any case.
    Checkpoint,
    /// By emptying others until there are so many free segments.
    Collect(usize),
}

/// Slots that were given out.
pub(crate) struct Allocation {
    pub segment: SegmentId,
    /// The use of the segment.
    pub incarnation: u64,
    pub slot: Slot,
    pub blocks: u32,
    /// The segment that is full now, and its use: held until [`Engine::end_segment`].
    pub full: Option<(SegmentId, u64)>,
    /// The segment begins with this allocation.
    pub is_fresh: bool,
}

/// What is going to be made that a checkpoint has to find room for.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Making {
    /// Nodes.
    pub nodes: u64,
    /// Merged blocks.
    pub merged: u64,
}

impl Making {
    /// What a small change makes at most.
    const SMALL: Self = Self { nodes: 256, merged: 16 };

    const fn nodes(nodes: u64) -> Self {
        Self { nodes, merged: 0 }
    }
}

/// Segments that are free, or to be made.
pub(crate) fn available(state: &State) -> u64 {
    let creatable = if state.medium_full { 0 } else { state.segments.creatable() };
    creatable.saturating_add(state.segments.free() as u64)
}

/// Segments that count as free for this purpose though collection has them.
fn lent(state: &State, purpose: Purpose) -> usize {
    usize::from(purpose.may_add() && state.collection.has_borrowed())
}

/// Segments that a pool keeps for commits that delete.
fn kept_for_deleting(state: &State) -> usize {
    for_deleting(state.segments.most()) as usize
}

/// The same of a pool that may have so many segments. A larger pool has no less room for the rest, so raising
/// a size limit breaks no promise.
pub(super) fn for_deleting(segments: u64) -> u64 {
    segments.saturating_sub(NONE_FOR_DELETING).min(FOR_DELETING)
}

/// The segments that a pool needs which needs so many beside what it keeps for deleting. `most`: how many
/// there may be, if not just so many.
pub(super) fn with_those_for_deleting(segments: u64, most: Option<u64>) -> u64 {
    match most {
        Some(most) => segments + for_deleting(most),
        None if segments > NONE_FOR_DELETING => segments.saturating_add(FOR_DELETING),
        None => segments,
    }
}

/// What is filled outside the log, each in segments of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filling {
    /// Staged runs, and merged blocks that a checkpoint writes.
    Runs,
    /// Nodes that a checkpoint writes.
    Nodes,
    /// Ledger blobs.
    Ledger,
    /// Chunks of the location map: they stay when blobs go, and where blobs lie is free again then.
    Chunks,
    /// Data that was moved for the first time.
    WarmData,
    /// Data that was moved before: it has outlived others again and again.
    ColdData,
    /// Nodes that were moved.
    ColdNodes,
}

impl Filling {
    const ALL: [Self; 6] =
        [Self::Runs, Self::Nodes, Self::Ledger, Self::WarmData, Self::ColdData, Self::ColdNodes];

    pub(crate) const fn kind(self) -> SegmentKind {
        match self {
            Self::Runs | Self::WarmData | Self::ColdData => SegmentKind::Run,
            Self::Nodes | Self::ColdNodes => SegmentKind::Node,
            Self::Ledger | Self::Chunks => SegmentKind::Ledger,
        }
    }

    /// Whether what is moved out of a segment of this kind may lie in it.
    pub(crate) fn takes(self, kind: SegmentKind) -> bool {
        (kind == SegmentKind::Node) == (self.kind() == SegmentKind::Node)
    }

    /// Whether collection fills it.
    pub(crate) const fn is_moved(self) -> bool {
        matches!(self, Self::WarmData | Self::ColdData | Self::ColdNodes)
    }

    /// Whether a checkpoint needs room in it, so that the reserve is less by what there is.
    const fn is_counted_on(self) -> bool {
        matches!(self, Self::Runs | Self::Nodes | Self::Ledger)
    }

    pub(crate) fn cursor(self, state: &mut State) -> &mut Option<Cursor> {
        match self {
            Self::Runs => &mut state.run_cursor,
            Self::Nodes => &mut state.node_cursor,
            Self::Ledger => &mut state.ledger_cursor,
            Self::Chunks => &mut state.chunk_cursor,
            Self::WarmData => &mut state.collection.warm_cursor,
            Self::ColdData => &mut state.collection.cold_cursor,
            Self::ColdNodes => &mut state.collection.node_cursor,
        }
    }
}
