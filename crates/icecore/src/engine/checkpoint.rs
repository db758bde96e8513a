//! Checkpoints: a durable picture of everything, from which replay starts.
//!
//! Frozen in one moment together with a flush of the log up to there; then written while new operations go
//! on. Nodes and merged blocks got their addresses when they were born, so they can be written in any order:
//! they are written in the order of their addresses, so that the location map stays small.

use super::ledger::{Picture, Said};
use super::rebuild::GONE;
use super::space::Filling;
use super::{Engine, Purpose};
use crate::blocks::Block;
use crate::catalogue::CatalogueChanges;
use crate::error::{Error, Result};
use crate::format::crc32c;
use crate::format::segment::SegmentKind;
use crate::format::superblock::{LedgerPointer, Life};
use crate::liveness::{BlockSet, HistoryChanges};
use crate::location::{MapChanges, runs_of_blocks};
use crate::log::tail::{Payload, Position};
use crate::log::writer::Chain;
use crate::segments::Cursor;
use crate::state::State;
use crate::storage::{AlignedBuffer, Kind};
use crate::tree::{NodeSlot, Tree};
use crate::units::{
    BLOCK_BYTES, BlockCount, LogAddress, Marks, RecordSequence, RecoveryEpoch, Run, SegmentId, Slot, Stream,
    VersionId,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Deltas after which a full ledger is written at the latest.
const DELTAS_MAX: usize = 64;
/// Blocks written in one call.
const BATCH_BLOCKS: usize = 256;

/// The ledger blobs that together describe the last checkpoint.
#[derive(Default)]
pub(crate) struct CheckpointLine {
    pub blobs: Vec<LedgerPointer>,
    /// How many of them, from the first on, are the last picture of everything. The others are changes.
    pub full: usize,
    pub number: u64,
    /// What the last checkpoint said; `None` before the first of a pool.
    pub base: Option<Base>,
    /// One of them is not what was written: the next checkpoint takes a picture of everything from memory.
    pub corrupt: bool,
}

/// What a blob that changes only the location map has to say again, so that replay starts where it did.
pub(crate) struct Base {
    pub position: PositionSection,
    /// Changes nothing.
    pub catalogue: CatalogueChanges,
    /// The largest number of a version that was given out.
    pub version: VersionId,
}

impl Base {
    /// What was born before.
    pub(super) fn marks(&self) -> Marks {
        self.position.all_marks()
    }
}

impl CheckpointLine {
    /// Changes are worth writing as such while they are short beside the full blob.
    pub(super) fn wants_full(&self) -> bool {
        let (full, deltas) = self.blobs.split_at(self.full.min(self.blobs.len()));
        let blocks =
            |blobs: &[LedgerPointer]| -> u64 { blobs.iter().map(|blob| u64::from(blob.blocks)).sum() };
        full.is_empty() || deltas.len() >= DELTAS_MAX || blocks(deltas) > blocks(full).max(64)
    }

    /// Whether moves alone may be added to it, and not only a checkpoint of everything.
    pub(super) fn takes_moves(&self) -> bool {
        self.base.is_some() && !self.corrupt && self.blobs.len() <= self.full + 2 * DELTAS_MAX
    }

    /// Blobs are durable, and the superblocks point to the last of them. `full`: they are a picture of
    /// everything, and the ones before are not needed any more.
    pub(super) fn extend(&mut self, blobs: &[LedgerPointer], full: bool, state: &mut State) {
        if full {
            for old in self.blobs.drain(..) {
                state.segments.remove_live(old.segment, u64::from(old.blocks));
            }
            self.full = blobs.len();
        }
        self.blobs.extend(blobs);
        self.number += 1;
        state.ledger_blocks = self.blocks_of_longest();
    }

    /// Blocks of the picture of everything, or of the longest list of changes.
    pub(super) fn blocks_of_longest(&self) -> u32 {
        let (full, deltas) = self.blobs.split_at(self.full.min(self.blobs.len()));
        let full = full.iter().map(|blob| blob.blocks).sum();
        deltas.iter().map(|blob| blob.blocks).fold(full, u32::max)
    }
}

/// Fixed part of a ledger: where replay starts, and every counter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct PositionSection {
    pub segment: SegmentId,
    pub incarnation: u64,
    pub slot: Slot,
    pub address: LogAddress,
    pub sequence: RecordSequence,
    pub previous: [u8; 16],
    pub marks: Marks,
    pub tail_mapped: Run,
    pub run_cursor: Option<Cursor>,
    pub node_cursor: Option<Cursor>,
    pub clock: u64,
}

impl PositionSection {
    /// The next address of every stream.
    pub(crate) fn all_marks(&self) -> Marks {
        let mut marks = self.marks;
        *marks.of_mut(Stream::Data) = self.address;
        marks
    }

    pub(crate) fn position(&self) -> Position {
        Position {
            segment: self.segment,
            incarnation: self.incarnation,
            slot: self.slot,
            address: self.address,
            sequence: self.sequence,
        }
    }
}

/// Roots of trees that changed, and versions that are gone.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct RootsSection {
    pub roots: Vec<(VersionId, Option<LogAddress>)>,
}

/// Where a checkpoint itself put a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub run: Run,
    pub segment: SegmentId,
    pub slot: Slot,
}

/// What a checkpoint did to the location map after it had frozen it.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct PlacedSection {
    /// Segments that were taken for a new use: what the frozen map says to lie in them is gone.
    pub retired: Vec<SegmentId>,
    /// Where runs were put.
    pub placed: Vec<Placed>,
}

/// Data that lives as of a checkpoint and has no place any more: the log after it says that it died. Moves
/// were recorded since.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct ForsakenSection {
    runs: Vec<Run>,
}

impl ForsakenSection {
    pub(crate) fn of(blocks: &BlockSet) -> Self {
        Self { runs: blocks.runs().map(|span| Run::of(Stream::Data, &span)).collect() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Adds what it lists to `blocks`, all of which were born before `end`.
    pub(crate) fn add_to(&self, blocks: &mut BlockSet, end: LogAddress) -> Result<()> {
        for run in &self.runs {
            let after = run.start.0.checked_add(run.length.0).filter(|after| *after <= end.0);
            let fits = run.stream == Stream::Data && run.length.0 > 0 && after.is_some();
            if !fits || blocks.insert(run.start..run.end()) != run.length {
                return Err(Error::damaged("the ledger", "what it says to be left behind makes no sense"));
            }
        }
        Ok(())
    }
}

/// The use that each of these data segments is in, by its number. What belongs to another use of the segment
/// is not what was written.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct UsesSection {
    pub uses: Vec<(SegmentId, u64)>,
}

/// What a checkpoint wrote beside the ledger.
struct Written {
    /// Segments to be flushed.
    segments: BTreeSet<SegmentId>,
    placed: Vec<Placed>,
    /// Nodes that memory keeps until they are flushed.
    nodes: Vec<Arc<NodeSlot>>,
}

impl Written {
    fn place(&mut self, run: Run, segment: SegmentId, slot: Slot) {
        if let Some(last) = self.placed.last_mut()
            && last.run.stream == run.stream
            && last.run.end() == run.start
            && last.segment == segment
            && u64::from(last.slot.0) + last.run.length.0 == u64::from(slot.0)
        {
            last.run.length.0 += run.length.0;
            return;
        }
        self.placed.push(Placed { run, segment, slot });
    }
}

/// What a checkpoint is made of, taken in one moment.
struct Frozen {
    position: Position,
    marks: Marks,
    tail_mapped: Run,
    clock: u64,
    /// The last number of a use of a segment that was given out.
    taken: u64,
    catalogue: CatalogueChanges,
    history: HistoryChanges,
    location: MapChanges,
    roots: Vec<(VersionId, Option<Tree>)>,
    merged: Vec<(LogAddress, Option<Arc<Block>>)>,
    /// Segments that moved blocks lie in now, to be flushed.
    filled: BTreeSet<SegmentId>,
    /// Segments that blocks were moved out of, which wait for this checkpoint.
    vacated: Vec<SegmentId>,
}

impl Engine {
    /// Makes a checkpoint now.
    pub(crate) fn run_checkpoint(&self) -> Result<()> {
        self.check_writable()?;
        self.checkpoint_with(false)
    }

    /// The checkpoint of a clean close.
    pub(super) fn checkpoint_to_close(&self) -> Result<()> {
        self.checkpoint_with(true)
    }

    fn checkpoint_with(&self, closing: bool) -> Result<()> {
        self.with_line(|line| self.checkpoint_locked(line, closing))
    }

    /// Does what writes a ledger, or superblocks.
    ///
    /// # Errors
    /// Those of `body`, which the pool does not survive. Also if the pool takes no writes, or has been closed
    /// but for letting go of it.
    pub(super) fn with_line<T>(&self, body: impl FnOnce(&mut CheckpointLine) -> Result<T>) -> Result<T> {
        let ready = || {
            self.check_writable()?;
            if self.state().closing { Err(self.closed_error()) } else { Ok(()) }
        };
        let body = |line: &mut CheckpointLine| self.writer.guarded("writing a checkpoint", || body(line));
        self.checkpoint.with(ready, body, |error| {
            // What was frozen is lost to the next checkpoint: only a recovery can tell what is on disk.
            self.writer.fail(&format!("a checkpoint failed: {error}"));
            self.signals.checkpoint_done();
        })
    }

    fn checkpoint_locked(&self, line: &mut CheckpointLine, closing: bool) -> Result<()> {
        // Else it is put together from what was written: nothing waits for that.
        let full = line.blobs.is_empty() || line.corrupt;
        let (mut frozen, previous) = self.writer.exclusive(|chain| self.freeze(chain, full, closing))?;
        // The map that was frozen says that moved blocks are there.
        let mut written =
            Written { segments: std::mem::take(&mut frozen.filled), placed: Vec::new(), nodes: Vec::new() };
        self.write_merged(&frozen.merged, &mut written)?;
        let roots = self.write_nodes(&mut frozen.roots, &mut written)?;
        for segment in std::mem::take(&mut written.segments) {
            self.blocks.files().sync(segment)?;
            self.counters.flushes.add(1);
        }
        self.counters.flushes.add(self.blocks.files().sync_healed()?);
        // Not before: after a flush that failed, a reader may not find on disk what was written.
        written.nodes.iter().for_each(|slot| slot.mark_written(&*self.nodes));
        frozen.merged.iter().for_each(|(address, _)| self.blocks.pending().done(*address));
        let (position, taken) = (frozen.position, frozen.taken);
        let mut said = self.said(&mut frozen, &roots, written.placed, previous);
        said.uses = UsesSection { uses: self.blocks.sums().uses_to_say(full) };
        let base = said.as_base();
        let due = line.wants_full() || self.chunks_are_due();
        let (said, picture) = match (full, due) {
            (true, _) => (said, Picture::Everything(None, None)),
            (false, true) => self.with_all_before(line, said)?,
            (false, false) => (said, Picture::Changes),
        };
        let full = matches!(picture, Picture::Everything(..));
        let sets: Vec<LedgerPointer> = said.history.rows().map(|row| row.place).collect();
        let base_blob = line.blobs.last().copied().filter(|_| !full);
        let blobs = self.write_said(said, base_blob, line.number + 1, taken)?;
        let newest = *blobs.last().expect("one at least");
        self.write_superblock(|superblock| {
            superblock.go_on(newest, taken);
            let epoch = superblock.epoch();
            // Older lives have no records at or after the position.
            superblock.lives = vec![Life { epoch, first: position.sequence }];
            superblock.clean = closing;
        })?;
        line.base = Some(base);
        line.corrupt &= !full;
        if let Picture::Everything(chunks, bases) = picture {
            self.go_on_with_sets(sets, bases.as_ref());
            if let Some(chunks) = chunks {
                self.go_on_with_chunks(*chunks);
            }
        }
        line.extend(&blobs, full, &mut self.state());
        self.finish_checkpoint(frozen, roots.roots);
        self.release_copies();
        self.counters.checkpoints.add(1);
        Ok(())
    }

    /// Takes the picture, and makes the log durable up to it.
    fn freeze(&self, chain: &mut Chain, full: bool, closing: bool) -> Result<(Frozen, [u8; 16])> {
        let mut state = self.state();
        // A step that was cut off in the middle, just now, must not become durable.
        self.check_writable()?;
        let batch = self.take_batch(&mut state);
        // What came after would be durable behind a superblock that says there is nothing behind it.
        state.closing = closing;
        let frozen = self.picture(&mut state, full);
        drop(state);
        self.writer.write_batch(chain, batch, true, &self.blocks, &self.counters)?;
        Ok((frozen, chain.previous))
    }

    fn picture(&self, state: &mut State, full: bool) -> Frozen {
        let changed = std::mem::take(&mut state.changed_roots);
        let roots: Vec<_> = if full {
            state.trees.iter().map(|(version, tree)| (*version, Some(tree.clone()))).collect()
        } else {
            changed.into_iter().map(|version| (version, state.trees.get(&version).cloned())).collect()
        };
        let changes = state.catalogue.take_changes();
        let delta = state.history.take_changes();
        let moved = {
            let mut map = self.blocks.map().write();
            let changes = map.take_changes();
            if full { map.full_changes() } else { changes }
        };
        state.log_blocks = 0;
        state.retired.clear();
        self.checkpoint_writing.store(true, Ordering::Release);
        state.frozen_dirty = std::mem::take(&mut state.dirty_nodes);
        state.frozen_marks = state.marks_at(state.tail.position().address);
        let vacated = std::mem::take(&mut state.collection.vacated);
        state.collection.vacated_frozen = vacated.len();
        // This checkpoint knows that it is dead.
        state.collection.forsaken = BlockSet::new();
        let merged = self.living_merged(state);
        state.graveyard.freeze();
        Frozen {
            position: state.tail.position(),
            marks: state.marks,
            tail_mapped: state.tail_mapped,
            clock: state.clock,
            taken: state.segments.last_incarnation(),
            catalogue: if full { state.catalogue.everything() } else { changes },
            history: if full { state.history.full_changes() } else { delta },
            location: moved,
            roots,
            merged,
            filled: std::mem::take(&mut state.collection.filled),
            vacated,
        }
    }

    /// Merged blocks that some version still reaches, or some reader. What a reader holds is written, too:
    /// else memory would grow for as long as it reads.
    fn living_merged(&self, state: &mut State) -> Vec<(LogAddress, Option<Arc<Block>>)> {
        let reached = state.graveyard.settle_superseded(|address| self.blocks.pending().done(address));
        let mut merged = self.blocks.pending().all();
        merged.retain(|(address, _)| {
            reached.contains(address) || !state.graveyard.holds(Stream::Merged, *address)
        });
        merged
    }

    pub(crate) fn epoch(&self) -> RecoveryEpoch {
        self.superblock.lock().epoch()
    }

    /// Writes merged blocks as runs: a header vouches for the blocks behind it, but for those that are lost.
    fn write_merged(&self, merged: &[(LogAddress, Option<Arc<Block>>)], out: &mut Written) -> Result<()> {
        let mut rest = merged;
        while !rest.is_empty() {
            let count = rest.len().min(BATCH_BLOCKS);
            let mut content = AlignedBuffer::zeroed(count * BLOCK_BYTES);
            for (target, (_, block)) in content.chunks_exact_mut(BLOCK_BYTES).zip(rest) {
                match block {
                    Some(block) => target.copy_from_slice(&**block),
                    None => target[..GONE.len()].copy_from_slice(GONE),
                }
            }
            let sums = content.chunks_exact(BLOCK_BYTES).map(crc32c).zip(rest);
            let sums = sums.map(|(sum, (_, block))| if block.is_some() { sum } else { !sum }).collect();
            let payload = Payload { buffer: Arc::new(content), first: 0, sums };
            let listed = runs_of_blocks(Stream::Merged, rest[..count].iter().map(|(address, _)| *address));
            let (segment, slot, written) =
                self.write_run(Filling::Runs, &payload, &listed, Purpose::Checkpoint)?;
            out.segments.insert(segment);
            let (now, later) = rest.split_at(written);
            let addresses = now.iter().map(|(address, _)| *address);
            self.place(Stream::Merged, addresses, segment, slot, out);
            self.state().segments.let_go(segment);
            rest = later;
        }
        Ok(())
    }

    /// Writes every unwritten node of the frozen trees; answers the roots' addresses.
    fn write_nodes(
        &self,
        trees: &mut [(VersionId, Option<Tree>)],
        written: &mut Written,
    ) -> Result<RootsSection> {
        let mut slots: Vec<Arc<NodeSlot>> = Vec::new();
        for (_, tree) in trees.iter() {
            slots.extend(tree.iter().flat_map(Tree::dirty));
        }
        slots.sort_unstable_by_key(|slot| slot.address());
        // Versions share subtrees.
        slots.dedup_by_key(|slot| slot.address());
        let mut rest = &slots[..];
        while !rest.is_empty() {
            let wanted = rest.len().min(BATCH_BLOCKS) as u32;
            let allocation =
                self.allocate(&mut self.state(), Filling::Nodes, wanted, false, Purpose::Checkpoint)?;
            self.frame(SegmentKind::Node, &allocation, self.epoch())?;
            let (now, later) = rest.split_at(allocation.blocks as usize);
            let mut content = AlignedBuffer::zeroed(now.len() * BLOCK_BYTES);
            for (target, slot) in content.as_chunks_mut::<BLOCK_BYTES>().0.iter_mut().zip(now) {
                slot.encode(target);
            }
            self.blocks.files().write(allocation.segment, allocation.slot, &[(Kind::Node, &content)])?;
            self.counters.node_bytes.add(content.len() as u64);
            written.segments.insert(allocation.segment);
            let addresses = now.iter().map(|slot| slot.address());
            self.place(Stream::Node, addresses, allocation.segment, allocation.slot, written);
            rest = later;
        }
        written.nodes = slots;
        let roots =
            trees.iter_mut().map(|(version, tree)| (*version, tree.take().map(|tree| tree.root_address())));
        Ok(RootsSection { roots: roots.collect() })
    }

    /// Notes where blocks lie that a checkpoint wrote side by side.
    fn place(
        &self,
        stream: Stream,
        addresses: impl Iterator<Item = LogAddress>,
        segment: SegmentId,
        first: Slot,
        written: &mut Written,
    ) {
        let mut state = self.state();
        let mut map = self.blocks.map().write();
        let mut count = 0;
        for (index, address) in addresses.enumerate() {
            let run = Run { stream, start: address, length: BlockCount(1) };
            let slot = Slot(first.0 + index as u32);
            map.insert(run, segment, slot);
            written.place(run, segment, slot);
            count += 1;
        }
        state.segments.add_live(segment, count);
    }

    /// What this checkpoint has to say.
    fn said(
        &self,
        frozen: &mut Frozen,
        roots: &RootsSection,
        placed: Vec<Placed>,
        previous: [u8; 16],
    ) -> Said {
        let state = self.state();
        let position = PositionSection {
            segment: frozen.position.segment,
            incarnation: frozen.position.incarnation,
            slot: frozen.position.slot,
            address: frozen.position.address,
            sequence: frozen.position.sequence,
            previous,
            marks: frozen.marks,
            tail_mapped: frozen.tail_mapped,
            run_cursor: state.run_cursor,
            node_cursor: state.node_cursor,
            clock: frozen.clock,
        };
        Said {
            position,
            catalogue: std::mem::take(&mut frozen.catalogue),
            history: std::mem::take(&mut frozen.history),
            location: std::mem::take(&mut frozen.location),
            roots: roots.clone(),
            // Whatever finds a new use from here on holds nothing of what this checkpoint placed.
            placed: PlacedSection { retired: state.retired.clone(), placed },
            forsaken: ForsakenSection::default(),
            uses: UsesSection::default(),
        }
    }

    /// The checkpoint is durable: what it made superfluous can be used again.
    fn finish_checkpoint(&self, frozen: Frozen, roots: Vec<(VersionId, Option<LogAddress>)>) {
        let mut state = self.state();
        state.frozen_dirty = 0;
        state.replay_from = frozen.position.sequence;
        state.graveyard.recorded();
        state.history.try_again();
        // No recovery looks into them any more for what was moved.
        state.collection.gave_back();
        frozen.vacated.iter().for_each(|segment| state.segments.let_go(*segment));
        // Snapshots never change: their trees need no memory of their own from here on.
        for (version, root) in roots {
            let is_snapshot = state.history.version(version).is_ok_and(|node| !node.is_head());
            if let (true, Some(root)) = (is_snapshot, root) {
                state.trees.insert(version, Tree::at(root));
            }
        }
        self.checkpoint_writing.store(false, Ordering::Release);
        drop(state);
        self.signals.checkpoint_done();
        self.bury_in_slices();
    }
}
