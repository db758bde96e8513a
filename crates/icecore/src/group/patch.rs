//! Small changes of blocks: a transaction that changes a few bytes of a page need not log the page.

use super::changes::{FileChanges, Place};
use crate::blocks::{Block, copied};
use crate::error::Result;
use crate::operation::{BlockPatch, Stretches};
use crate::units::{BLOCK_BYTES, FileBlock, InodeNumber};
use crate::view::View;
use std::sync::Arc;

/// Groups of more blocks are written as they are: long ones gain nothing by smaller records, and each block
/// patched is one that a checkpoint has to write.
const BLOCKS_MAX: usize = 8;
/// What the patches of a group may come to: they have to leave room for the rest of a record's header block.
const BYTES_MAX: usize = 3200;
/// Blocks are compared by words of so many bytes, in lines of so many more where parts of so many more still
/// differ.
const WORD: usize = 8;
const LINE: usize = 64;
const PART: usize = 512;
/// About what a stretch takes beside its bytes.
const STRETCH_BYTES: usize = 4;

/// A block that changes in part.
pub(super) struct Patched {
    pub patch: BlockPatch,
    /// What it holds then.
    pub content: Arc<Block>,
}

/// What a group does to those blocks of a file that it changes only in part. Nothing that is not in memory is
/// read for it.
pub(super) fn patches_of(base: &View, inode: InodeNumber, file: &FileChanges) -> Result<Vec<Patched>> {
    let filled = file.filling.as_ref().filter(|_| file.staged.is_empty() && file.blocks.len() <= BLOCKS_MAX);
    let Some(filled) = filled else { return Ok(Vec::new()) };
    let mut patches = Vec::with_capacity(file.blocks.len());
    let mut bytes = 0;
    for (block, Place { index, .. }) in &file.blocks {
        let block = FileBlock(*block);
        // What a cut leaves is not what the base says.
        let is_cut = file.cut.is_some_and(|cut| block.offset() + BLOCK_BYTES as u64 > cut);
        if is_cut {
            continue;
        }
        let Some(former) = base.block_in_memory(inode, block)? else { continue };
        let now = &filled[*index as usize * BLOCK_BYTES..][..BLOCK_BYTES];
        let Some(stretches) = stretches(&former, now, BYTES_MAX - bytes) else { continue };
        bytes += length(&stretches);
        patches.push(Patched { patch: BlockPatch { block, stretches }, content: copied(now) });
    }
    Ok(patches)
}

fn length(stretches: &Stretches) -> usize {
    stretches.bytes() + stretches.len() * STRETCH_BYTES
}

/// Where a block differs from what it was. `None` if that is more than `most` bytes.
fn stretches(former: &Block, now: &[u8], most: usize) -> Option<Stretches> {
    let mut stretches = Stretches::with_room();
    let parts = former.as_chunks::<PART>().0.iter().zip(now.as_chunks::<PART>().0).enumerate();
    for (part, (former, now)) in parts.filter(|(_, (former, now))| former != now) {
        let lines = former.as_chunks::<LINE>().0.iter().zip(now.as_chunks::<LINE>().0).enumerate();
        for (number, (former, line)) in lines {
            let mut differ = differing_words(former, line);
            while differ != 0 {
                let first = differ.trailing_zeros();
                let count = (differ >> first).trailing_ones();
                let bytes = first as usize * WORD..(first + count) as usize * WORD;
                stretches.put((part * PART + number * LINE + bytes.start) as u16, &line[bytes]);
                differ &= !((1 << (first + count)) - 1);
            }
        }
        if length(&stretches) > most {
            return None;
        }
    }
    Some(stretches)
}

/// Which words of a line differ: a bit for each.
fn differing_words(former: &[u8; LINE], now: &[u8; LINE]) -> u32 {
    let words = former.as_chunks::<WORD>().0.iter().zip(now.as_chunks::<WORD>().0).enumerate();
    words.fold(0, |differ, (word, (former, now))| {
        differ | u32::from(u64::from_ne_bytes(*former) != u64::from_ne_bytes(*now)) << word
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn stretches_make_of_the_former_block_what_it_is_now(
            changes in prop::collection::vec((0_usize..BLOCK_BYTES, 1_usize..300, any::<u8>()), 0..12),
        ) {
            let former: Block = std::array::from_fn(|index| index as u8);
            let mut now = former;
            for (at, length, byte) in changes {
                now[at..(at + length).min(BLOCK_BYTES)].fill(byte);
            }
            let found = stretches(&former, &now, usize::MAX).expect("without a limit");
            let mut made = former;
            for stretch in found.iter() {
                made[usize::from(stretch.at)..][..stretch.bytes.len()].copy_from_slice(stretch.bytes);
            }
            prop_assert_eq!(made, now);
            let bytes = length(&found);
            prop_assert!(stretches(&former, &now, bytes).is_some());
            prop_assert!(bytes == 0 || stretches(&former, &now, bytes - 1).is_none());
        }
    }
}
