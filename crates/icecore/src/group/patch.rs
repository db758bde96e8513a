//! Small changes of blocks: a transaction that changes a few bytes of a page need not log the page.

use super::changes::{FileChanges, Place};
use crate::blocks::Block;
use crate::error::Result;
use crate::operation::{BlockPatch, Stretch};
use crate::units::{BLOCK_BYTES, FileBlock, InodeNumber};
use crate::view::View;

/// Groups of more blocks are written as they are: long ones gain nothing by smaller records, and each block
/// patched is one that a checkpoint has to write.
const BLOCKS_MAX: usize = 8;
/// What the patches of a group may come to: they have to leave room for the rest of a record's header block.
const BYTES_MAX: usize = 3200;
/// Blocks are compared by words of so many bytes.
const WORD: usize = 8;
/// About what a stretch takes beside its bytes.
const STRETCH_BYTES: usize = 4;

/// What a group does to those blocks of a file that it changes only in part. Nothing that is not in memory is read
/// for it.
pub(super) fn patches_of(base: &View, inode: InodeNumber, file: &FileChanges) -> Result<Vec<BlockPatch>> {
    let mut patches = Vec::new();
    let filled = file.filling.as_ref().filter(|_| file.staged.is_empty() && file.blocks.len() <= BLOCKS_MAX);
    let Some(filled) = filled else { return Ok(patches) };
    let mut bytes = 0;
    let mut former = [0; BLOCK_BYTES];
    for (block, Place { index, .. }) in &file.blocks {
        let block = FileBlock(*block);
        // What a cut leaves is not what the base says.
        let is_cut = file.cut.is_some_and(|cut| block.offset() + BLOCK_BYTES as u64 > cut);
        if is_cut || !base.read_from_memory(inode, block, &mut former)? {
            continue;
        }
        let now = &filled[*index as usize * BLOCK_BYTES..][..BLOCK_BYTES];
        let Some(stretches) = stretches(&former, now, BYTES_MAX - bytes) else { continue };
        bytes += length(&stretches);
        patches.push(BlockPatch { block, stretches });
    }
    Ok(patches)
}

fn length(stretches: &[Stretch]) -> usize {
    stretches.iter().map(|stretch| stretch.bytes.len() + STRETCH_BYTES).sum()
}

/// Where a block differs from what it was. `None` if that is more than `most` bytes.
fn stretches(former: &Block, now: &[u8], most: usize) -> Option<Vec<Stretch>> {
    let mut stretches: Vec<Stretch> = Vec::new();
    let mut left = most;
    let words = former.chunks_exact(WORD).zip(now.chunks_exact(WORD)).enumerate();
    for (index, (_, word)) in words.filter(|(_, (former, now))| former != now) {
        let at = index * WORD;
        match stretches.last_mut() {
            Some(last) if usize::from(last.at) + last.bytes.len() == at => {
                left = left.checked_sub(WORD)?;
                last.bytes.extend_from_slice(word);
            }
            _ => {
                left = left.checked_sub(WORD + STRETCH_BYTES)?;
                stretches.push(Stretch { at: at as u16, bytes: word.to_vec() });
            }
        }
    }
    Some(stretches)
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
            for stretch in &found {
                made[usize::from(stretch.at)..][..stretch.bytes.len()].copy_from_slice(&stretch.bytes);
            }
            prop_assert_eq!(made, now);
            let bytes = length(&found);
            prop_assert!(stretches(&former, &now, bytes).is_some());
            prop_assert!(bytes == 0 || stretches(&former, &now, bytes - 1).is_none());
        }
    }
}
