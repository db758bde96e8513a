//! Blocks that a group writes again after it has written them ahead.
//!
//! SQLite writes a page whenever its cache is full, and again when it has changed the page once more. A block
//! has one place on disk however often it is written: what is written again waits in memory, up to a bound,
//! and then replaces what was there. That overwrites nothing that counts: until the commit no log, no
//! checksum table and no header says what lies in a run. The commit puts what still waits in its place and
//! seals the runs.

use super::Group;
use super::changes::{FileChanges, Place};
use crate::blocks::Block;
use crate::error::Result;
use crate::format::crc32c;
use crate::units::{BLOCK_BYTES, FileBlock, InodeNumber};
use std::sync::Arc;

impl Group {
    /// Writes a part of a block that has a place on disk and is not in memory.
    pub(super) fn rewrite(
        &mut self,
        inode: InodeNumber,
        block: FileBlock,
        within: usize,
        part: &[u8],
    ) -> Result<()> {
        let file = self.files.get(&inode).expect("the caller has looked");
        if file.rewritten.len() >= self.rewritten_max {
            self.write_back(inode)?;
        }
        let mut content = Box::new([0; BLOCK_BYTES]);
        if part.len() < BLOCK_BYTES {
            self.current(inode, block, &mut content)?;
        }
        content[within..within + part.len()].copy_from_slice(part);
        let file = self.files.get_mut(&inode).expect("it was there");
        file.rewritten.insert(block.0, content);
        Ok(())
    }

    /// Puts everything that was written again in its place.
    pub(super) fn write_back_all(&mut self) -> Result<()> {
        let inodes: Vec<_> = self.files.keys().copied().collect();
        inodes.into_iter().try_for_each(|inode| self.write_back(inode))
    }

    /// Puts what was written again of a file in its place. After an error the group cannot be committed.
    fn write_back(&mut self, inode: InodeNumber) -> Result<()> {
        let file = self.files.get_mut(&inode).expect("it has changes");
        if file.rewritten.is_empty() {
            return Ok(());
        }
        // What was written ahead comes first.
        file.wait()?;
        let blocks = file.take_rewritten();
        let mut rest = &blocks[..];
        while let Some((place, _)) = rest.first() {
            let piece = &self.files[&inode].staged[place.piece as usize];
            let run = piece.run_of(place.index);
            let next = (place.index..).zip(rest);
            let together = next.take_while(|(index, (at, _))| {
                (at.piece, at.index) == (place.piece, *index) && run.holds(*index)
            });
            let (stretch, after) = rest.split_at(together.count());
            let contents: Vec<&Block> = stretch.iter().map(|(_, content)| &**content).collect();
            self.engine().stage_again(run, place.index, &contents)?;
            rest = after;
        }
        Ok(())
    }

    /// Seals all runs. They are written by now.
    pub(super) fn seal(&self) -> Result<()> {
        let pieces = self.files.values().flat_map(|file| &file.staged);
        pieces
            .flat_map(|piece| piece.runs.iter().map(move |run| (run, &piece.sums)))
            .try_for_each(|(run, sums)| self.engine().seal(run, sums))
    }
}

impl FileChanges {
    /// Takes the blocks that were written again, in the order of their places. What else is known of the
    /// places is that of the new contents from now on.
    fn take_rewritten(&mut self) -> Vec<(Place, Box<Block>)> {
        let rewritten = std::mem::take(&mut self.rewritten);
        let mut blocks: Vec<_> =
            rewritten.into_iter().map(|(block, content)| (self.blocks[&block], content)).collect();
        blocks.sort_unstable_by_key(|(place, _)| (place.piece, place.index));
        for (place, content) in &blocks {
            let (piece, at) = (&mut self.staged[place.piece as usize], place.index as usize);
            piece.sums[at] = crc32c(&content[..]);
            match piece.buffer.as_mut().map(Arc::get_mut) {
                Some(Some(buffer)) => {
                    buffer[at * BLOCK_BYTES..(at + 1) * BLOCK_BYTES].copy_from_slice(&content[..])
                }
                // The buffer is shared: it is not kept.
                Some(None) => piece.buffer = None,
                None => {}
            }
        }
        blocks
    }
}
