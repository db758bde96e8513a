//! Going back by one checkpoint: when the ledger of the newest one is lost, the one before it and the log
//! since lead to the same state, as long as nothing that they need was used for something else.

use super::init::{Parts, lock_free_options};
use super::{copies, load, recovery};
use crate::blocks::Blocks;
use crate::error::{Error, Result};
use crate::files::SegmentFiles;
use crate::format::crc32c;
use crate::format::ledger::Blob;
use crate::format::record::RecordView;
use crate::format::segment::{SegmentHeader, SegmentKind, file_name};
use crate::format::superblock::{Former, LIVES_MAX, LedgerPointer, Life, Superblock};
use crate::log::tail::Position;
use crate::operation::Operation;
use crate::state::State;
use crate::storage::Storage;
use crate::tree::Node;
use crate::units::{
    BLOCK_BYTES, BlockCount, LogAddress, PoolId, RecoveryEpoch, Run, SegmentId, Slot, Stream,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The superblock that makes recovery start from a checkpoint before the newest.
///
/// # Errors
/// Why that is not possible.
pub(crate) fn former_superblock(
    storage: &Arc<dyn Storage>,
    superblock: &Superblock,
    former: &Former,
) -> Result<Superblock> {
    back_to(storage, superblock, former.ledger, former.taken)
}

/// Checkpoints of which the ledger is still there, in segments that were not used for anything else since,
/// the latest first. The newest is not among them, nor any that a superblock did not name once: only what
/// another blob builds on counts.
pub(crate) fn older_checkpoints(storage: &Arc<dyn Storage>, superblock: &Superblock) -> Vec<Former> {
    let Ok(segments) = recovery::segments(&**storage, superblock, superblock.next_epoch()) else {
        return Vec::new();
    };
    let place = copies::find(storage, superblock, false);
    let parts = Parts::new(storage, superblock, &lock_free_options(), false, place);
    let files = parts.blocks.files();
    let mut bases: BTreeMap<(SegmentId, Slot), LedgerPointer> = BTreeMap::new();
    for segment in segments.all() {
        for base in bases_in(files, superblock.pool, segment) {
            bases.insert((base.segment, base.slot), base);
        }
    }
    let mut found: Vec<(u64, Former)> = Vec::new();
    for ledger in bases.into_values().filter(|ledger| *ledger != superblock.ledger) {
        let end = u64::from(ledger.slot.0) + u64::from(ledger.blocks);
        if ledger.blocks == 0 || end > u64::from(files.geometry().slots()) || !segments.exists(ledger.segment)
        {
            continue;
        }
        let read = copies::read_blob(files, &ledger);
        let blob = read.and_then(|bytes| Blob::decode_header(&bytes, superblock.pool, "the ledger"));
        // Of several blobs of one checkpoint the last one says so.
        if let Some(blob) = blob.ok().filter(|blob| blob.taken > 0) {
            found.push((blob.checkpoint, Former { ledger, taken: blob.taken }));
        }
    }
    found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    found.into_iter().map(|(_, former)| former).collect()
}

/// What blobs in a segment build on, as far as their headers can be read.
fn bases_in(files: &SegmentFiles, pool: PoolId, segment: SegmentId) -> Vec<LedgerPointer> {
    let mut block = [0; BLOCK_BYTES];
    let header = files.read(segment, Slot(0), &mut block).ok().and_then(|()| SegmentHeader::decode(&block));
    if header.is_some_and(|header| header.kind != SegmentKind::Ledger) {
        return Vec::new();
    }
    let mut bases = Vec::new();
    for slot in (1..files.geometry().slots()).map(Slot) {
        let read = files.read(segment, slot, &mut block);
        let blob = read.and_then(|()| Blob::decode_header(&block, pool, "the ledger"));
        bases.extend(blob.ok().and_then(|blob| blob.base));
    }
    bases
}

/// The superblock that makes recovery start from where a copy of it in another folder says: it need not be
/// the newest.
///
/// # Errors
/// Why that is not possible.
pub(crate) fn copied_superblock(storage: &Arc<dyn Storage>, folder: &str) -> Result<Superblock> {
    let sibling = storage.sibling(folder).map_err(|error| Error::io("open", folder, error))?;
    let found = copies::newest_copy(&*sibling, None).map_err(|why| Error::damaged(folder, why))?;
    let mut back = back_to(storage, &found, found.ledger, found.taken)?;
    back.former = found.former;
    Ok(back)
}

fn back_to(
    storage: &Arc<dyn Storage>,
    superblock: &Superblock,
    ledger: LedgerPointer,
    taken: u64,
) -> Result<Superblock> {
    let mut back = Superblock {
        ledger,
        taken,
        former: None,
        drawn: superblock.drawn.gone_back()?,
        clean: false,
        generation: superblock.generation + 1,
        ..superblock.clone()
    };
    let segments = recovery::segments(&**storage, &back, superblock.next_epoch())?;
    let place = copies::find(storage, superblock, false);
    let parts = Parts::new(storage, &back, &lock_free_options(), false, place);
    let load::Loaded { state, previous, .. } = load::load(&parts.blocks, &back, segments, false)?;
    let reused = used_again(&parts.blocks, &back, &state)?;
    if !reused.is_empty() {
        let names: Vec<String> = reused.into_iter().map(file_name).collect();
        let detail = format!("used for something else since: {}", names.join(", "));
        return Err(Error::damaged("what the checkpoint before the newest one needs", detail));
    }
    let lives = lives_since(&parts.blocks, &back, state.tail.position(), previous)?;
    let known = lives.last().map(|life| life.epoch);
    let later = superblock.lives.iter().filter(|life| known.is_none_or(|known| life.epoch > known));
    back.lives = lives.iter().chain(later).copied().collect();
    if back.lives.len() > LIVES_MAX || !back.lives.is_sorted_by(|a, b| a.first < b.first) {
        return Err(Error::damaged("the log", "the lives of the pool since that checkpoint make no sense"));
    }
    Ok(back)
}

/// Segments in which something lived at the checkpoint, and that were taken for something else after it was
/// frozen. What was taken to write the checkpoint itself holds what it says.
fn used_again(blocks: &Blocks, superblock: &Superblock, state: &State) -> Result<Vec<SegmentId>> {
    let uses = uses(blocks, superblock.pool, state)?.into_iter();
    let later = uses.filter(|(_, incarnation)| *incarnation > superblock.taken).map(|(segment, _)| segment);
    let mut reused = Vec::new();
    for segment in later.filter(|segment| state.segments.kind(*segment) != Some(SegmentKind::Ledger)) {
        if !holds_what_lives(blocks, state, segment)? {
            reused.push(segment);
        }
    }
    Ok(reused)
}

/// Whether everything that lives in a segment is there, as nodes and the headers of records and runs say.
fn holds_what_lives(blocks: &Blocks, state: &State, segment: SegmentId) -> Result<bool> {
    let said: BTreeMap<u32, Run> = match state.segments.kind(segment) {
        Some(kind) if kind.has_table() => {
            blocks.sums().stretches(segment, Slot(u32::MAX), blocks.files())?.into_iter().collect()
        }
        _ => BTreeMap::new(),
    };
    let is_said = |slot: u32, stream: Stream, address: LogAddress| {
        said.range(..=slot).next_back().is_some_and(|(first, run)| {
            run.stream == stream
                && u64::from(slot - first) < run.length.0
                && run.start.plus(BlockCount(u64::from(slot - first))) == address
        })
    };
    let mut block = [0; BLOCK_BYTES];
    for entry in blocks.entries_of_segment(segment)? {
        for index in 0..entry.run.length.0 {
            let (slot, address) = (entry.slot.0 + index as u32, entry.run.start.plus(BlockCount(index)));
            if !state.history.lives(entry.run.stream, address)? {
                continue;
            }
            let is_there = if entry.run.stream == Stream::Node {
                blocks.files().read(segment, Slot(slot), &mut block)?;
                Node::decode(&block, address).is_ok()
            } else {
                is_said(slot, entry.run.stream, address)
            };
            if !is_there {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// The number of the use that each segment in use is in, as it says itself.
pub(super) fn uses(blocks: &Blocks, pool: PoolId, state: &State) -> Result<Vec<(SegmentId, u64)>> {
    let mut uses = Vec::new();
    for segment in state.segments.all() {
        let Some(kind) = state.segments.kind(segment) else { continue };
        // What is gone is damaged, whatever it was last.
        if state.segments.is_absent(segment) {
            continue;
        }
        let mut block = [0; BLOCK_BYTES];
        let read = blocks.files().read(segment, Slot(0), &mut block);
        let incarnation = match read.ok().and_then(|()| SegmentHeader::of(pool, segment, &block)) {
            Some(header) => header.incarnation,
            // Nodes and the ledger know themselves what they are.
            None if !kind.has_table() => continue,
            None => match blocks.sums().use_of(segment, blocks.files()) {
                Ok(use_) => use_.incarnation,
                // Without its table nothing of it can be read.
                Err(Error::Damaged { .. }) => continue,
                Err(error) => return Err(error),
            },
        };
        uses.push((segment, incarnation));
    }
    Ok(uses)
}

/// Runs that a record of the log gives addresses to have to be there as they were then: what a replay finds
/// in their place would be taken for them. What was written there later says so, or lies in a later use of
/// the segment.
pub(super) fn check_staged(
    blocks: &Blocks,
    pool: PoolId,
    segment: SegmentId,
    slot: Slot,
    view: &RecordView,
) -> Result<()> {
    let gone =
        |what: String| Err(Error::damaged(what, "a run that the log refers to may not be there any more"));
    for operation in operations_of(blocks, segment, slot, view)? {
        let Operation::MapScattered { segment, slot, scatter, .. } = operation else { continue };
        let mut block = [0; BLOCK_BYTES];
        if slot.0 == 0 || slot >= blocks.files().geometry().end(SegmentKind::Run) {
            return gone(file_name(segment));
        }
        blocks.files().read(segment, Slot(slot.0 - 1), &mut block)?;
        let Some(run) = RecordView::decode(&block) else { return gone(file_name(segment)) };
        let use_ = blocks.sums().use_of(segment, blocks.files())?;
        let header = &run.header;
        let is_it = header.run
            && header.pool == pool
            && header.address.0 == u64::from(slot.0 - 1)
            && header.incarnation == use_.incarnation
            && run.sums.len() >= scatter.blocks as usize
            && header.was_placed_before(&view.header);
        if !is_it {
            return gone(file_name(segment));
        }
    }
    Ok(())
}

/// The operations of a record.
pub(super) fn operations_of(
    blocks: &Blocks,
    segment: SegmentId,
    slot: Slot,
    view: &RecordView,
) -> Result<Vec<Operation>> {
    let sequence = view.header.sequence;
    let damaged = || Error::damaged(file_name(segment), format!("log record {sequence} cannot be read"));
    let mut bytes = view.operations.clone();
    if view.header.operations_in_blocks {
        let length = view.header.operations_length as usize;
        bytes.resize(length.next_multiple_of(BLOCK_BYTES), 0);
        blocks.files().read(segment, Slot(slot.0 + 1), &mut bytes)?;
        if bytes.chunks(BLOCK_BYTES).zip(&view.sums).any(|(block, sum)| crc32c(block) != *sum) {
            return Err(damaged());
        }
        bytes.truncate(length);
    }
    Operation::decode_all(&bytes, view.header.operations).ok_or_else(damaged)
}

/// The lives that wrote records from a position on, as far as each record is the one that follows the one
/// before.
fn lives_since(
    blocks: &Blocks,
    superblock: &Superblock,
    mut at: Position,
    mut previous: [u8; 16],
) -> Result<Vec<Life>> {
    let mut lives: Vec<Life> = Vec::new();
    let end = blocks.files().geometry().end(SegmentKind::Log);
    let mut block = [0; BLOCK_BYTES];
    while at.slot < end {
        blocks.files().read(at.segment, at.slot, &mut block)?;
        let Some(view) = RecordView::decode(&block) else { break };
        let header = &view.header;
        let epoch = lives.last().map_or(RecoveryEpoch(0), |life| life.epoch);
        let follows = header.pool == superblock.pool
            && !header.run
            && (header.sequence, header.previous) == (at.sequence, previous)
            && header.incarnation == at.incarnation
            && header.epoch >= epoch;
        if !follows {
            break;
        }
        if header.epoch > epoch {
            lives.push(Life { epoch: header.epoch, first: header.sequence });
        }
        check_staged(blocks, superblock.pool, at.segment, at.slot, &view)?;
        previous = view.hash;
        at.sequence.0 += 1;
        at.slot.0 += 1 + view.sums.len() as u32;
        if let Some((segment, incarnation)) = Operation::switch_of(&view) {
            (at.segment, at.incarnation, at.slot) = (segment, incarnation, Slot(1));
        }
    }
    Ok(lives)
}
