//! Segments of which the file is missing or cut short, though something is said to live in them. Nothing is
//! written to them, and they are used for nothing else. What lies in them is damaged, and the pool goes on
//! without. A file that is put back has everything again.

use super::copies;
use super::init::{Parts, lock, lock_free_options, open_locked};
use super::inspect::stretches;
use super::load::Loaded;
use super::recovery::{self, AtDamage};
use crate::blocks::Blocks;
use crate::error::{Error, Result};
use crate::files::SegmentFiles;
use crate::format::segment::{file_name, from_file_name};
use crate::format::superblock::{LedgerPointer, Superblock};
use crate::liveness::BlockSet;
use crate::location::PlacedRun;
use crate::state::State;
use crate::storage::{AlignedBuffer, Kind, Overlay, Storage};
use crate::units::{BLOCK_BYTES, BlockCount, SegmentId, Slot, Stream};
use std::sync::Arc;

/// Blocks handled at once where a file is made again.
const PIECE_BLOCKS: u32 = 256;
/// What the name of a file ends in that is to take the place of one that is cut short.
const HALF_MADE: &str = ".whole";

/// Whether a file was to take the place of one that is cut short, and did not before a crash.
pub(super) fn is_half_made(name: &str) -> bool {
    name.strip_suffix(HALF_MADE).is_some_and(|segment| from_file_name(segment).is_some())
}

/// Notes which there are, for `status` and the log of errors. `is_all`: nothing came after the checkpoint
/// that was loaded.
pub(super) fn note(blocks: &Blocks, loaded: &Loaded, is_all: bool) {
    let (files, state) = (blocks.files(), &loaded.state);
    for segment in state.segments.absent() {
        let Some(error) = files.what_is_absent(segment) else { continue };
        // What the ledger is made of is long, and nothing is to be asked of files that are gone as a whole.
        let cut = files.cut(segment).filter(|_| is_all);
        let is_harmless = |cut| {
            let stretches = stretches(blocks, &loaded.line.blobs, segment);
            is_harmless(blocks, state, &stretches, segment, cut)
        };
        if cut.is_some_and(is_harmless) {
            files.incidents().note_harmless(&error);
        } else {
            files.incidents().note(&error);
        }
    }
}

/// Whether everything in a segment that is needed comes before its cut. What was behind the cut was never
/// written, or is dead, or is the checksum table, which follows from the headers. `stretches`: what is needed
/// of it as of a ledger.
pub(super) fn is_harmless(
    blocks: &Blocks,
    state: &State,
    stretches: &[LedgerPointer],
    segment: SegmentId,
    cut: Slot,
) -> bool {
    // If the entries or the history cannot be read, the answer is that something is lost.
    stretches.iter().all(|place| place.slot.0 + place.blocks <= cut.0)
        && loses_none(blocks, state, segment, cut).unwrap_or(false)
}

/// Whether nothing alive has its place in a segment from a slot on. One request covers all of it: there may
/// be as many versions as blocks.
fn loses_none(blocks: &Blocks, state: &State, segment: SegmentId, cut: Slot) -> Result<bool> {
    let mut behind: [BlockSet; 3] = Default::default();
    for PlacedRun { slot, run, .. } in blocks.entries_of_segment(segment)? {
        let skipped = BlockCount(u64::from(cut.0.saturating_sub(slot.0)));
        if skipped < run.length {
            behind[run.stream as usize].insert(run.start.plus(skipped)..run.end());
        }
    }
    for stream in Stream::ALL {
        if !state.history.living(stream, &behind[stream as usize])?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Before segments are made again from their copies, a pool that was not closed is opened in memory first.
/// Once they are made, nothing distinguishes them from whole ones, and their copies need not have all of the
/// log. So the caller must know before that the log does without them.
///
/// # Errors
/// Those of opening: everything is as it was then.
pub(super) fn rehearse(storage: &Arc<dyn Storage>, superblock: &Superblock) -> Result<()> {
    let trial: Arc<dyn Storage> = Overlay::over(Arc::clone(storage));
    let options = lock_free_options();
    let whole = recovery::segments(&*trial, superblock, superblock.next_epoch())?;
    let place = copies::find(&trial, superblock, true);
    let parts = Parts::new(&trial, superblock, &options, true, place);
    if parts.blocks.files().copies().known().into_iter().all(|segment| whole.exists(segment)) {
        return Ok(());
    }
    let lock = lock(&*trial, true)?;
    open_locked(&trial, &options, AtDamage::Refuse, superblock.clone(), lock).map(drop)
}

/// Makes the file of a segment anew, in its full length: of what is left of the former one, of its copy, and
/// of zeros where there is neither. Durable on return.
///
/// # Errors
/// [`Error::NoSpace`], or those of writing: the former file is as it was then.
pub(super) fn make_file(storage: &dyn Storage, files: &SegmentFiles, segment: SegmentId) -> Result<()> {
    let name = file_name(segment);
    let made = format!("{name}{HALF_MADE}");
    let failed = |error| Error::io("make again", &name, error);
    match storage.remove(&made) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let geometry = files.geometry();
    let file = storage.create(&made, geometry.bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => Error::NoSpace {
            detail: format!(
                "{name} is missing or cut short, and the filesystem under {} has no room for another of {} bytes",
                storage.describe(),
                geometry.bytes
            ),
        },
        _ => failed(error),
    })?;
    let mut piece = AlignedBuffer::zeroed(PIECE_BLOCKS as usize * BLOCK_BYTES);
    for slot in (0..geometry.slots()).step_by(PIECE_BLOCKS as usize) {
        let blocks = PIECE_BLOCKS.min(geometry.slots() - slot);
        let piece = &mut piece[..blocks as usize * BLOCK_BYTES];
        fill(files, segment, Slot(slot), piece);
        file.write_at(&[(Kind::Copy, piece)], geometry.offset(Slot(slot))).map_err(failed)?;
    }
    file.sync().map_err(failed)?;
    storage.rename(&made, &name).map_err(failed)?;
    storage.sync_directory().map_err(|error| Error::io("flush", storage.describe(), error))?;
    files.forget(segment);
    Ok(())
}

/// Fills in what there is of these blocks, block by block where they are not all in one place. What is left
/// of the segment comes first: nothing has proved the copy.
fn fill(files: &SegmentFiles, segment: SegmentId, first: Slot, piece: &mut [u8]) {
    if files.read(segment, first, piece).is_ok() {
        return;
    }
    let is_gone = files.read(segment, first, &mut piece[..BLOCK_BYTES]).is_err();
    if is_gone && files.read_copy(segment, first, piece) {
        return;
    }
    for (slot, block) in (first.0..).map(Slot).zip(piece.chunks_exact_mut(BLOCK_BYTES)) {
        if files.read(segment, slot, block).is_err() && !files.read_copy(segment, slot, block) {
            block.fill(0);
        }
    }
}
