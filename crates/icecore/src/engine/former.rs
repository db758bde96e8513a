//! Going back by one checkpoint: when the ledger of the newest one is lost, the one before it and the log since
//! lead to the same state, as long as nothing that they need was used for something else.

use super::init::{Parts, lock_free_options};
use super::{copies, load, recovery};
use crate::blocks::Blocks;
use crate::error::{Error, Result};
use crate::format::record::RecordView;
use crate::format::segment::{Geometry, SegmentHeader, SegmentKind, file_name};
use crate::format::superblock::{LIVES_MAX, LedgerPointer, Life, Superblock};
use crate::log::tail::Position;
use crate::operation::Operation;
use crate::segments::Segments;
use crate::state::State;
use crate::storage::Storage;
use crate::units::{BLOCK_BYTES, RecoveryEpoch, SegmentId, Slot};
use std::sync::Arc;

/// The superblock that makes recovery start from the checkpoint before.
///
/// # Errors
/// Why that is not possible.
pub(crate) fn former_superblock(storage: &Arc<dyn Storage>, superblock: &Superblock) -> Result<Superblock> {
    let Some(former) = superblock.former else {
        return Err(Error::damaged("the superblock", "it names no checkpoint before the newest one"));
    };
    back_to(storage, superblock, former.ledger, former.taken)
}

/// The superblock that makes recovery start from where a copy of it in another folder says: it need not be the newest.
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
        clean: false,
        generation: superblock.generation + 1,
        ..superblock.clone()
    };
    let geometry = Geometry { bytes: superblock.segment_bytes };
    let epoch = RecoveryEpoch(superblock.epoch().0 + 1);
    let mut segments = Segments::new(geometry, superblock.size_limit, epoch);
    recovery::segments(&**storage, &back, &mut segments)?;
    let place = copies::find(storage, superblock, false);
    let parts = Parts::new(storage, &back, &lock_free_options(), false, place);
    let (state, _, previous) = load::load(&parts.blocks, &back, segments)?;
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

/// Segments in which something lived at the checkpoint, and that were taken for something else after it was frozen.
fn used_again(blocks: &Blocks, superblock: &Superblock, state: &State) -> Result<Vec<SegmentId>> {
    let mut reused = Vec::new();
    for segment in state.segments.all() {
        let Some(kind) = state.segments.kind(segment) else { continue };
        let mut block = [0; BLOCK_BYTES];
        blocks.files().read(segment, Slot(0), &mut block)?;
        let header = SegmentHeader::decode(&block)
            .filter(|header| header.pool == superblock.pool && header.segment == segment);
        let incarnation = match header {
            Some(header) => header.incarnation,
            // Nodes and the ledger know themselves what they are.
            None if !kind.has_table() => continue,
            None => blocks.sums().use_of(segment, blocks.files())?.incarnation,
        };
        if incarnation > superblock.taken {
            reused.push(segment);
        }
    }
    Ok(reused)
}

/// The lives that wrote records from a position on, as far as each record is the one that follows the one before.
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
        previous = view.hash;
        at.sequence.0 += 1;
        at.slot.0 += 1 + view.sums.len() as u32;
        let alone = header.operations == 1 && view.sums.is_empty();
        if let Some((Operation::Switch { segment, incarnation }, _)) =
            Some(()).filter(|()| alone).and_then(|()| Operation::decode(&view.operations))
        {
            (at.segment, at.incarnation, at.slot) = (segment, incarnation, Slot(1));
        }
    }
    Ok(lives)
}
