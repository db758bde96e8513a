//! What operations on files and directories do to the head of a dataset. Each is all or nothing, as far as
//! one change of the tree goes. Those that take several changes raise [`Head::torn`] in between.
//!
//! The same code runs in earnest, and in a [`super::Trial`] that finds out what a change comes to.

use super::{Births, Changed};
use crate::blocks::Block;
use crate::error::{Error, FileFault, Result};
use crate::namespace::{Read, Touch, TreeReader, TreeWriter, joined};
use crate::operation::{BlockPatch, NamespaceOperation, Operation, Part, Patch, Scatter, Write};
use crate::tree::{NodeSource, Tree};
use crate::units::{
    BLOCK_BYTES, BlockCount, DatasetId, FILE_BYTES_MAX, FileBlock, InodeNumber, LogAddress, Run, Stream,
    Timestamp,
};
use std::sync::Arc;

/// The head of a dataset, with what changing it needs.
pub(super) struct Head<'a> {
    pub tree: &'a mut Tree,
    pub effects: &'a mut dyn Births,
    pub nodes: &'a dyn NodeSource,
    pub is_replay: bool,
    pub gives_up: bool,
    /// What the blocks of a patch come to, in its order. Empty: it is made from what they were.
    pub patched: &'a [Arc<Block>],
    /// An operation is in the middle of several changes.
    pub torn: &'a mut bool,
}

/// What a block of a file holds, for an operation that changes a part of it.
enum Former {
    Hole,
    Block(Arc<Block>),
    /// It was there when the operation was made, and since then it was damaged.
    Lost,
}

/// The dataset whose files an operation is about.
pub(super) const fn dataset_of(operation: &Operation) -> Option<DatasetId> {
    match operation {
        Operation::Write(write) => Some(write.dataset),
        Operation::WriteScattered(scatter) | Operation::MapScattered { scatter, .. } => Some(scatter.dataset),
        Operation::Patch(patch) => Some(patch.dataset),
        Operation::WriteInline { dataset, .. }
        | Operation::Truncate { dataset, .. }
        | Operation::PunchHole { dataset, .. }
        | Operation::Namespace { dataset, .. }
        | Operation::ReleaseOrphan { dataset, .. } => Some(*dataset),
        _ => None,
    }
}

impl Head<'_> {
    /// Executes one operation. `address`: where its data blocks lie, one after the other.
    pub fn execute(&mut self, operation: &Operation, address: LogAddress) -> Result<Changed> {
        match operation {
            Operation::Namespace { operation, .. } => self.change_names(operation),
            Operation::ReleaseOrphan { inode, items_max, .. } => {
                self.writer().release_orphan(*inode, *items_max as usize).map(Changed::Released)
            }
            content => self.change_content(content, address).map(|()| Changed::Content),
        }
    }

    fn change_content(&mut self, operation: &Operation, address: LogAddress) -> Result<()> {
        match operation {
            Operation::Write(write) => self.write(write, address),
            Operation::WriteScattered(scatter) => self.scatter(scatter, address),
            Operation::MapScattered { scatter, address, .. } => self.scatter(scatter, *address),
            Operation::WriteInline { inode, offset, bytes, time, .. } => {
                self.write_inline(*inode, *offset, bytes, *time)
            }
            Operation::Patch(patch) => self.patch(patch),
            Operation::Truncate { inode, size, time, .. } => self.truncate(*inode, *size, *time),
            Operation::PunchHole { inode, offset, length, time, .. } => {
                self.punch(*inode, *offset, *length, *time)
            }
            _ => Err(Error::Invalid("an operation on versions is not one on files".to_owned())),
        }
    }

    pub(super) fn writer(&mut self) -> TreeWriter<'_> {
        TreeWriter::new(self.tree, self.nodes, &mut *self.effects)
    }

    fn reader(&self) -> TreeReader<'_> {
        TreeReader::new(self.tree, self.nodes)
    }

    /// What a block of a file holds. One that was damaged since the operation was made is lost with or
    /// without it. In a replay that is no reason to give up everything else. What is gone with its file may
    /// be put back, and is waited for.
    fn content(&self, inode: InodeNumber, block: FileBlock) -> Result<Former> {
        let Some(run) = self.reader().run_at(inode, block)? else { return Ok(Former::Hole) };
        match self.effects.read(&run) {
            Ok(content) => Ok(Former::Block(content)),
            Err(Error::Damaged { .. }) if self.is_replay => match self.effects.gone_with_file(&run) {
                Some(error) if !self.gives_up => Err(error),
                _ => Ok(Former::Lost),
            },
            Err(error) => Err(error),
        }
    }

    /// What a block holds with a patch. `None`: what it was is lost, and so is this.
    fn patched(&self, inode: InodeNumber, patch: &BlockPatch) -> Result<Option<Arc<Block>>> {
        let mut content = match self.content(inode, patch.block)? {
            Former::Hole => Arc::new([0; BLOCK_BYTES]),
            Former::Block(content) => content,
            Former::Lost => return Ok(None),
        };
        let block = Arc::make_mut(&mut content);
        for stretch in patch.stretches.iter() {
            let at = usize::from(stretch.at);
            block[at..at + stretch.bytes.len()].copy_from_slice(stretch.bytes);
        }
        Ok(Some(content))
    }

    /// Puts merged blocks into a file, in its order; `None` for one that is lost. They get their addresses
    /// now, at birth.
    fn put_merged(
        &mut self,
        inode: InodeNumber,
        contents: Vec<(FileBlock, Option<Arc<Block>>)>,
        touch: Touch,
    ) -> Result<()> {
        let born = self.effects.next_merged(BlockCount(contents.len() as u64));
        let mut runs: Vec<(FileBlock, Run)> = Vec::new();
        for (index, (block, _)) in contents.iter().enumerate() {
            match runs.last_mut() {
                Some((first, run)) if first.0 + run.length.0 == block.0 => run.length.0 += 1,
                _ => {
                    let start = born.start.plus(BlockCount(index as u64));
                    runs.push((*block, Run { start, length: BlockCount(1), ..born }));
                }
            }
        }
        self.effects.merging(true);
        let mapped = self.writer().map_runs(inode, &runs, touch);
        self.effects.merging(false);
        mapped?;
        if contents.is_empty() {
            return Ok(());
        }
        self.effects.draw_merged(born, contents.into_iter().map(|(_, content)| content).collect());
        Ok(())
    }

    /// Zeros `[from, to)`, which lies within one block; nothing happens where the file has a hole or zeros.
    fn zero_within_block(&mut self, inode: InodeNumber, from: u64, to: u64, time: Timestamp) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let block = FileBlock::containing(from);
        if let Some(run) = self.reader().run_at(inode, block)? {
            self.effects.is_read_by_replay(&Run { length: BlockCount(1), ..run });
        }
        let range = (from - block.offset()) as usize..(to - block.offset()) as usize;
        let content = match self.content(inode, block)? {
            Former::Hole => return Ok(()),
            Former::Block(content) if content[range.clone()].iter().all(|byte| *byte == 0) => return Ok(()),
            Former::Block(mut content) => {
                Arc::make_mut(&mut content)[range].fill(0);
                Some(content)
            }
            Former::Lost => None,
        };
        self.put_merged(inode, vec![(block, content)], Touch { time, size_at_least: 0 })?;
        *self.torn = true;
        Ok(())
    }

    fn write(&mut self, write: &Write, address: LogAddress) -> Result<()> {
        if write.blocks == 0 {
            return Err(Error::Invalid("a write of no blocks".to_owned()));
        }
        let run = Run { stream: Stream::Data, start: address, length: BlockCount(write.blocks.into()) };
        let touch = Touch { time: write.time, size_at_least: write.end };
        self.writer().map_run(write.inode, write.block, run, touch)?;
        self.effects.born(run);
        Ok(())
    }

    /// The blocks lie side by side from `address` on.
    fn scatter(&mut self, scatter: &Scatter, address: LogAddress) -> Result<()> {
        if !scatter.is_valid() {
            return Err(Error::Invalid("a scattered write with parts that do not fit".to_owned()));
        }
        let run = |part: &Part| Run {
            stream: Stream::Data,
            start: address.plus(BlockCount(part.at.into())),
            length: BlockCount(part.blocks.into()),
        };
        let runs: Vec<_> = scatter.parts.iter().map(|part| (part.block, run(part))).collect();
        let born = joined(runs.iter().map(|(_, run)| *run).collect());
        let touch = Touch { time: scatter.time, size_at_least: scatter.end };
        self.writer().map_runs(scatter.inode, &runs, touch)?;
        born.iter().for_each(|run| self.effects.born(*run));
        Ok(())
    }

    fn write_inline(&mut self, inode: InodeNumber, offset: u64, bytes: &[u8], time: Timestamp) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(FileFault::TooLarge)?;
        if bytes.is_empty() {
            return Ok(());
        }
        let mut contents = Vec::new();
        let mut rest = bytes;
        let mut at = offset;
        while !rest.is_empty() {
            let block = FileBlock::containing(at);
            let within = (at - block.offset()) as usize;
            let (part, after) = rest.split_at(rest.len().min(BLOCK_BYTES - within));
            let former = match self.content(inode, block)? {
                Former::Hole => Some(Arc::new([0; BLOCK_BYTES])),
                Former::Block(content) => Some(content),
                // But for bytes that say all there is to say about it.
                Former::Lost => (part.len() == BLOCK_BYTES).then(|| Arc::new([0; BLOCK_BYTES])),
            };
            let made = former.map(|mut content| {
                Arc::make_mut(&mut content)[within..within + part.len()].copy_from_slice(part);
                content
            });
            contents.push((block, made));
            at += part.len() as u64;
            rest = after;
        }
        self.put_merged(inode, contents, Touch { time, size_at_least: end })
    }

    fn patch(&mut self, patch: &Patch) -> Result<()> {
        if !patch.is_valid() {
            return Err(Error::Invalid("a patch whose parts do not fit".to_owned()));
        }
        let mut contents = Vec::with_capacity(patch.blocks.len());
        for (index, one) in patch.blocks.iter().enumerate() {
            let content = match self.patched.get(index) {
                Some(content) => {
                    // What a replay will make of it.
                    #[cfg(debug_assertions)]
                    assert!(self.patched(patch.inode, one)?.is_some_and(|made| made == *content));
                    Some(Arc::clone(content))
                }
                None => self.patched(patch.inode, one)?,
            };
            contents.push((one.block, content));
        }
        let touch = Touch { time: patch.time, size_at_least: patch.end };
        self.put_merged(patch.inode, contents, touch)
    }

    fn truncate(&mut self, inode: InodeNumber, size: u64, time: Timestamp) -> Result<()> {
        // Bytes behind the end of a file are zero, so that growing it again shows zeros.
        if size < self.reader().inode(inode)?.size {
            self.zero_within_block(inode, size, size.next_multiple_of(BLOCK_BYTES as u64), time)?;
        }
        self.writer().set_size(inode, size, usize::MAX, time).map(|_| ())
    }

    fn punch(&mut self, inode: InodeNumber, offset: u64, length: u64, time: Timestamp) -> Result<()> {
        let end = offset.saturating_add(length).min(self.reader().inode(inode)?.size);
        if offset >= end {
            // Nothing is taken away; what has no blocks refuses all the same.
            let none = FileBlock(0);
            return self.writer().unmap(inode, none, none, usize::MAX, time).map(|_| ());
        }
        let first = offset.div_ceil(BLOCK_BYTES as u64);
        let last = end / BLOCK_BYTES as u64;
        // A range within one block has both its ends there.
        let begins = offset..(first * BLOCK_BYTES as u64).min(end);
        let ends = if last >= first { last * BLOCK_BYTES as u64..end } else { end..end };
        let parts = [begins, ends].into_iter().filter(|part| !part.is_empty());
        // One that cannot be read is met before anything is changed.
        for part in parts.clone() {
            self.content(inode, FileBlock::containing(part.start))?;
        }
        for part in parts {
            self.zero_within_block(inode, part.start, part.end, time)?;
        }
        let last = last.max(first);
        self.writer().unmap(inode, FileBlock(first), FileBlock(last), usize::MAX, time).map(|_| ())
    }

    fn change_names(&mut self, operation: &NamespaceOperation) -> Result<Changed> {
        let mut writer = self.writer();
        match operation {
            NamespaceOperation::Create { directory, name, new } => {
                writer.create(*directory, name, new).map(Changed::Made)
            }
            NamespaceOperation::CreateSymlink { directory, name, target, new } => {
                writer.create_symlink(*directory, name, target, new).map(Changed::Made)
            }
            NamespaceOperation::Link { inode, directory, name, time } => {
                writer.link(*inode, *directory, name, *time).map(Changed::Attributes)
            }
            NamespaceOperation::Unlink { directory, name, time } => {
                writer.unlink(*directory, name, *time).map(Changed::Unlinked)
            }
            NamespaceOperation::RemoveDirectory { directory, name, time } => {
                writer.remove_directory(*directory, name, *time).map(Changed::Unlinked)
            }
            NamespaceOperation::Rename { from, from_name, to, to_name, how, time } => {
                writer.rename((*from, from_name), (*to, to_name), *how, *time).map(Changed::Renamed)
            }
            NamespaceOperation::SetAttributes { inode, change } => {
                writer.set_attributes(*inode, change).map(Changed::Attributes)
            }
            NamespaceOperation::SetXattr { inode, name, value, how, time } => {
                writer.set_xattr(*inode, name, value, *how, *time).map(|()| Changed::Content)
            }
            NamespaceOperation::RemoveXattr { inode, name, time } => {
                writer.remove_xattr(*inode, name, *time).map(|()| Changed::Content)
            }
        }
    }
}
