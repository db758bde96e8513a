//! What a group has written to one file: blocks in pieces, and where each block of the file is.

use crate::blocks::Block;
use crate::engine::StagedRun;
use crate::error::Result;
use crate::storage::AlignedBuffer;
use crate::units::{BLOCK_BYTES, FileBlock};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Most blocks of a piece; a full one is written ahead.
pub(super) const PIECE_BLOCKS_MAX: usize = 256;
/// Room for the first blocks of a file. Most transactions are small.
const FIRST_BLOCKS: usize = 4;
/// Room grows by this factor.
const GROWTH: usize = 4;
/// Pieces written ahead that stay in memory too: a transaction comes back to what it wrote last.
const PIECES_KEPT: usize = 16;

/// The changes to one file.
#[derive(Default)]
pub(super) struct FileChanges {
    /// Where the content of each block is, or will be.
    pub blocks: BTreeMap<u64, Place>,
    /// Blocks of staged pieces that were written again since: what is in their places is old.
    pub rewritten: BTreeMap<u64, Box<Block>>,
    /// Pieces that are full: written ahead, or on their way.
    pub staged: Vec<StagedPiece>,
    /// The piece that is being filled.
    pub filling: Option<AlignedBuffer>,
    /// The size that the file will have, once anything changed it.
    pub size: Option<u64>,
    /// The file was cut here: nothing of the base is visible from this byte on.
    pub cut: Option<u64>,
}

/// A block of a piece. The piece that is being filled comes after those that are staged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub piece: u32,
    pub index: u32,
}

/// A full piece.
pub(super) struct StagedPiece {
    /// As long as it is kept in memory.
    pub buffer: Option<Arc<AlignedBuffer>>,
    /// The checksum of each block.
    pub sums: Vec<u32>,
    /// Where it lies, or will: one run, or several where a segment ended.
    pub runs: Vec<Arc<StagedRun>>,
}

/// The content of a block.
pub(super) enum Content<'a> {
    Memory(&'a [u8]),
    /// In this run, at this place, with this checksum.
    Disk(&'a StagedRun, u32, u32),
}

impl StagedPiece {
    fn content(&self, index: u32) -> Content<'_> {
        if let Some(buffer) = &self.buffer {
            return Content::Memory(block_of(buffer, index));
        }
        Content::Disk(self.run_of(index), index, self.sums[index as usize])
    }

    /// The run in which a block is.
    pub(super) fn run_of(&self, index: u32) -> &Arc<StagedRun> {
        self.runs.iter().find(|run| run.holds(index)).expect("every block is in a run")
    }
}

fn block_of(buffer: &AlignedBuffer, index: u32) -> &[u8] {
    let at = index as usize * BLOCK_BYTES;
    &buffer[at..at + BLOCK_BYTES]
}

impl FileChanges {
    /// What the group wrote to a block, if it did.
    pub(super) fn content(&self, block: FileBlock) -> Option<Content<'_>> {
        let place = self.blocks.get(&block.0)?;
        if let Some(content) = self.rewritten.get(&block.0) {
            return Some(Content::Memory(&content[..]));
        }
        Some(match self.staged.get(place.piece as usize) {
            Some(piece) => piece.content(place.index),
            None => Content::Memory(block_of(self.filling.as_ref().expect("it holds blocks"), place.index)),
        })
    }

    /// A block that can be changed where it is.
    pub(super) fn changeable(&mut self, block: FileBlock) -> Option<&mut [u8]> {
        let place = self.blocks.get(&block.0)?;
        if (place.piece as usize) < self.staged.len() {
            return self.rewritten.get_mut(&block.0).map(|content| &mut content[..]);
        }
        let at = place.index as usize * BLOCK_BYTES;
        Some(&mut self.filling.as_mut().expect("it holds blocks")[at..at + BLOCK_BYTES])
    }

    /// Whether a block has a place in a piece that is staged.
    pub(super) fn is_staged(&self, block: FileBlock) -> bool {
        self.blocks.get(&block.0).is_some_and(|place| (place.piece as usize) < self.staged.len())
    }

    /// Whether the piece being filled holds so many blocks.
    pub(super) fn is_full(&self, piece_blocks: usize) -> bool {
        self.filling.as_ref().is_some_and(|filling| filling.len() >= piece_blocks * BLOCK_BYTES)
    }

    /// Puts a block that has no place yet into the piece being filled, which is not full.
    pub(super) fn put(&mut self, block: FileBlock, content: &[u8]) {
        let filling = match &mut self.filling {
            Some(filling) => filling,
            none => {
                let blocks = if self.staged.is_empty() { FIRST_BLOCKS } else { PIECE_BLOCKS_MAX };
                none.insert(AlignedBuffer::with_capacity(blocks * BLOCK_BYTES))
            }
        };
        if filling.len() == filling.capacity() {
            let mut larger = AlignedBuffer::with_capacity(filling.capacity() * GROWTH);
            larger.extend(filling);
            *filling = larger;
        }
        let index = (filling.len() / BLOCK_BYTES) as u32;
        filling.extend(content);
        self.blocks.insert(block.0, Place { piece: self.staged.len() as u32, index });
    }

    /// The full piece was handed over.
    pub(super) fn staged(&mut self, piece: StagedPiece) {
        self.staged.push(piece);
        let old = self.staged.len().saturating_sub(PIECES_KEPT);
        for piece in self.staged[..old].iter_mut().rev().take_while(|piece| piece.buffer.is_some()) {
            if piece.runs.iter().all(|run| run.word.is_written()) {
                piece.buffer = None;
            }
        }
    }

    /// Forgets blocks from here on.
    pub(super) fn forget_from(&mut self, block: FileBlock) {
        self.blocks.split_off(&block.0);
        self.rewritten.split_off(&block.0);
    }

    /// An error if something that was to be written ahead could not be.
    pub(super) fn check(&self) -> Result<()> {
        self.staged.iter().flat_map(|piece| &piece.runs).try_for_each(|run| run.word.check())
    }

    /// Returns when everything that was to be written ahead is, in order.
    pub(super) fn wait(&self) -> Result<()> {
        self.staged.iter().flat_map(|piece| &piece.runs).try_for_each(|run| run.word.wait())
    }
}
