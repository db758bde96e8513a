//! Atomic groups of writes: invisible to everybody else, and absent from the log, until they are committed.
//!
//! What is written collects in pieces of 1 MiB. A full piece goes to its place on disk at once, outside the
//! log and without addresses; the commit appends what is left, and says which block of which piece goes
//! where. What is written again after that waits in memory, and then replaces what was written ahead
//! (`rewriting`).

mod balance;
mod changes;
mod commit;
mod patch;
mod rewriting;
#[cfg(test)]
mod rewriting_tests;

pub(crate) use commit::commit;

use crate::blocks::Block;
use crate::dataset::Dataset;
use crate::engine::Engine;
use crate::error::{FileFault, Result};
use crate::format::crc32c;
use crate::units::{BLOCK_BYTES, FILE_BYTES_MAX, FileBlock, InodeNumber, RecordSequence, SegmentId};
use crate::view::View;
use changes::{Content, FileChanges, PIECE_BLOCKS_MAX, StagedPiece};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Fewer blocks are not worth a run of their own.
const PIECE_BLOCKS_MIN: u64 = 4;

/// A moment in the log, for [`crate::Pool::make_durable`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct CommitPoint(pub(crate) RecordSequence);

/// Writes that will become visible and durable together, or not at all. Dropping it discards them, which
/// needs no space.
pub struct Group {
    dataset: Dataset,
    generation: u64,
    /// What partial blocks are completed from.
    base: View,
    files: BTreeMap<InodeNumber, FileChanges>,
    /// Segments with staged runs of this group, kept from being reused.
    held: Vec<SegmentId>,
    /// Blocks that are written ahead together.
    piece_blocks: usize,
    /// Blocks of a file that are kept in memory after they were written again.
    rewritten_max: usize,
}

impl Group {
    pub(crate) fn new(dataset: Dataset, base: View) -> Result<Self> {
        let generation = dataset.generation()?;
        let options = &dataset.pool().engine().options;
        let memory = options.group_memory_bytes / BLOCK_BYTES as u64;
        let piece_blocks = memory.clamp(PIECE_BLOCKS_MIN, PIECE_BLOCKS_MAX as u64) as usize;
        let rewritten_max = (options.group_rewrite_bytes / BLOCK_BYTES as u64).max(1) as usize;
        let (files, held) = (BTreeMap::new(), Vec::new());
        Ok(Self { dataset, generation, base, files, held, piece_blocks, rewritten_max })
    }

    fn engine(&self) -> &Engine {
        self.dataset.pool().engine()
    }

    /// Whether nothing was written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The size of a file as the group sees it. Only files can be written.
    fn own_size(&self, inode: InodeNumber) -> Result<u64> {
        match self.files.get(&inode).and_then(|file| file.size) {
            Some(size) => Ok(size),
            None => self.base.attributes(inode)?.of_file().map(|item| item.size),
        }
    }

    /// Writes at `offset`.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`] when what has to be written ahead finds no room; the group is good for
    /// nothing then.
    pub fn write(&mut self, inode: InodeNumber, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(FileFault::TooLarge)?;
        let former = self.own_size(inode)?;
        if data.is_empty() {
            return Ok(());
        }
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let block = FileBlock::containing(at);
            let within = (at - block.offset()) as usize;
            let (part, after) = rest.split_at(rest.len().min(BLOCK_BYTES - within));
            self.write_within(inode, block, within, part)?;
            at += part.len() as u64;
            rest = after;
        }
        self.files.entry(inode).or_default().size = Some(former.max(end));
        Ok(())
    }

    fn write_within(
        &mut self,
        inode: InodeNumber,
        block: FileBlock,
        within: usize,
        part: &[u8],
    ) -> Result<()> {
        let file = self.files.entry(inode).or_default();
        if let Some(content) = file.changeable(block) {
            content[within..within + part.len()].copy_from_slice(part);
            return Ok(());
        }
        if file.is_staged(block) {
            return self.rewrite(inode, block, within, part);
        }
        if file.is_full(self.piece_blocks) {
            self.stage(inode)?;
        }
        if part.len() == BLOCK_BYTES {
            self.files.entry(inode).or_default().put(block, part);
        } else {
            let mut content = [0; BLOCK_BYTES];
            self.current(inode, block, &mut content)?;
            content[within..within + part.len()].copy_from_slice(part);
            self.files.entry(inode).or_default().put(block, &content);
        }
        Ok(())
    }

    /// Hands the full piece of a file over to be written ahead.
    fn stage(&mut self, inode: InodeNumber) -> Result<()> {
        let file = self.files.get_mut(&inode).expect("the caller has looked");
        // What could not be written would be missed at the commit: better to stop now.
        file.check()?;
        let Some(filled) = file.filling.take() else { return Ok(()) };
        let sums: Vec<u32> = filled.chunks_exact(BLOCK_BYTES).map(crc32c).collect();
        let piece = Arc::new(filled);
        let runs = self.engine().stage(&piece, &sums)?;
        for segment in runs.iter().map(|run| run.segment()) {
            // Each came with a hold; one for each segment is enough.
            if self.held.contains(&segment) {
                self.engine().let_go_of_staged(std::iter::once(segment));
            } else {
                self.held.push(segment);
            }
        }
        let file = self.files.get_mut(&inode).expect("it was there");
        file.staged(StagedPiece { buffer: Some(piece), sums, runs });
        Ok(())
    }

    /// What a block holds, with the group's own writes.
    fn current(&self, inode: InodeNumber, block: FileBlock, into: &mut Block) -> Result<()> {
        let file = self.files.get(&inode);
        if let Some(content) = file.and_then(|file| file.content(block)) {
            return self.load(&content, 0, into);
        }
        let visible = file.and_then(|file| file.cut).unwrap_or(u64::MAX);
        if block.offset() < visible {
            let read = self.base.read(inode, block.offset(), into)?;
            let keep = (visible - block.offset()).min(read as u64) as usize;
            into[keep..].fill(0);
        }
        Ok(())
    }

    /// Copies a part of a block.
    fn load(&self, content: &Content<'_>, within: usize, into: &mut [u8]) -> Result<()> {
        match content {
            Content::Memory(block) => into.copy_from_slice(&block[within..within + into.len()]),
            Content::Disk(run, index, sum) => {
                let mut block = [0; BLOCK_BYTES];
                self.engine().blocks.read_unsealed(run.segment(), run.slot_of(*index), *sum, &mut block)?;
                into.copy_from_slice(&block[within..within + into.len()]);
            }
        }
        Ok(())
    }

    /// Sets the size of a file.
    ///
    /// # Errors
    /// [`FileFault::TooLarge`]; reading the last block may fail.
    pub fn truncate(&mut self, inode: InodeNumber, size: u64) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(FileFault::TooLarge.into());
        }
        let former = self.own_size(inode)?;
        let last = FileBlock::containing(size);
        let within = (size - last.offset()) as usize;
        let own = self.files.get(&inode).is_some_and(|file| file.blocks.contains_key(&last.0));
        if own && size < former && within > 0 {
            self.write_within(inode, last, within, &[0; BLOCK_BYTES][within..])?;
        }
        let file = self.files.entry(inode).or_default();
        if size < former {
            file.forget_from(FileBlock(size.div_ceil(BLOCK_BYTES as u64)));
            file.cut = Some(file.cut.map_or(size, |cut| cut.min(size)));
        }
        file.size = Some(size);
        Ok(())
    }

    /// The size of a file, with the group's own changes. `view`: the version that the caller sees otherwise.
    ///
    /// # Errors
    /// As for [`View::attributes`].
    pub fn size(&self, view: &View, inode: InodeNumber) -> Result<u64> {
        match self.files.get(&inode).and_then(|file| file.size) {
            Some(size) => Ok(size),
            None => Ok(view.attributes(inode)?.size),
        }
    }

    /// Reads with the group's own writes on top of `view`; answers how much.
    ///
    /// # Errors
    /// As for [`View::read`].
    pub fn read(&self, view: &View, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let Some(file) = self.files.get(&inode) else { return view.read(inode, offset, buffer) };
        let size = self.size(view, inode)?;
        let length = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut rest = &mut buffer[..length];
        let mut at = offset;
        while !rest.is_empty() {
            let block = FileBlock::containing(at);
            let within = (at - block.offset()) as usize;
            let count = rest.len().min(BLOCK_BYTES - within);
            let (part, after) = rest.split_at_mut(count);
            match file.content(block) {
                Some(content) => self.load(&content, within, part)?,
                None => {
                    let visible = file.cut.unwrap_or(u64::MAX).saturating_sub(at).min(count as u64) as usize;
                    let (seen, hidden) = part.split_at_mut(visible);
                    let read = if seen.is_empty() { 0 } else { view.read(inode, at, seen)? };
                    seen[read..].fill(0);
                    hidden.fill(0);
                }
            }
            at += count as u64;
            rest = after;
        }
        Ok(length)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.held.is_empty() || !self.engine().is_owner() {
            return;
        }
        let held = std::mem::take(&mut self.held);
        self.engine().let_go_of_staged(held.into_iter());
        let mut state = self.engine().state();
        // Of a group that was not committed nothing is left: its room must not wait for a checkpoint.
        let replay_from = state.replay_from;
        let released = state.segments.release(replay_from);
        self.engine().counters.segments_recycled.add(released.len() as u64);
    }
}
