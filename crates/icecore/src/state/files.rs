//! Operations on files and directories. Each is all or nothing, as far as one change of the tree goes; those
//! that take several changes raise [`State::torn`] in between.

use super::{Effects, Environment, Placement, State};
use crate::blocks::{Block, Blocks};
use crate::error::{Error, FileFault, Result};
use crate::format::segment::file_name;
use crate::namespace::{Read, Touch, TreeReader, TreeWriter, joined};
use crate::operation::{BlockPatch, NamespaceOperation, Part, Patch, Scatter, Write};
use crate::tree::{NodeSource, Tree};
use crate::units::{
    BLOCK_BYTES, BlockCount, DatasetId, FILE_BYTES_MAX, FileBlock, InodeNumber, LogAddress, Run, SegmentId,
    Slot, Stream, Timestamp, VersionId,
};
use std::sync::Arc;

/// The head of a dataset, with what changing it needs.
pub(super) struct Head<'a> {
    tree: &'a mut Tree,
    effects: Effects<'a>,
    nodes: &'a dyn NodeSource,
    blocks: &'a Blocks,
    is_replay: bool,
    gives_up: bool,
    torn: &'a mut bool,
}

/// What a block of a file holds, for somebody who changes a part of it.
enum Former {
    Hole,
    Block(Arc<Block>),
    /// It was there when the operation was made, and since then it was damaged.
    Lost,
}

impl Head<'_> {
    pub(super) fn writer(&mut self) -> TreeWriter<'_> {
        TreeWriter::new(self.tree, self.nodes, &mut self.effects)
    }

    fn reader(&self) -> TreeReader<'_> {
        TreeReader::new(self.tree, self.nodes)
    }

    /// What a block of a file holds. One that was damaged since the operation was made is lost with or without it: in
    /// a replay that is no reason to give up everything else. What is gone with its file may be put back, and is waited for.
    fn content(&self, inode: InodeNumber, block: FileBlock) -> Result<Former> {
        let Some(run) = self.reader().run_at(inode, block)? else { return Ok(Former::Hole) };
        match self.blocks.read(run.stream, run.start) {
            Ok(content) => Ok(Former::Block(content)),
            Err(Error::Damaged { .. }) if self.is_replay => match self.gone_with_file(&run) {
                Some(error) if !self.gives_up => Err(error),
                _ => Ok(Former::Lost),
            },
            Err(error) => Err(error),
        }
    }

    /// Why a block cannot be read, if the file that it lies in is missing or cut short.
    fn gone_with_file(&self, run: &Run) -> Option<Error> {
        let (segment, ..) = self.blocks.lookup(run.stream, run.start).ok().flatten()?;
        self.blocks.files().what_is_absent(segment)?;
        let detail =
            "it is missing or cut short, and the log since the last checkpoint changes what is in it";
        Some(Error::damaged(file_name(segment), detail))
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

    /// Puts merged blocks, in the order of the file, into it; `None` for one that is lost. They get their addresses now, at birth.
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
        self.effects.is_merging = true;
        let mapped = self.writer().map_runs(inode, &runs, touch);
        self.effects.is_merging = false;
        mapped?;
        if contents.is_empty() {
            return Ok(());
        }
        self.effects.draw_merged(born);
        for (index, (_, content)) in contents.into_iter().enumerate() {
            self.blocks.pending().add(born.start.plus(BlockCount(index as u64)), content);
        }
        Ok(())
    }

    /// Zeros `[from, to)`, which lies within one block; nothing happens where the file has a hole or zeros.
    fn zero_within_block(&mut self, inode: InodeNumber, from: u64, to: u64, time: Timestamp) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let block = FileBlock::containing(from);
        if let Some(run) = self.reader().run_at(inode, block)? {
            self.effects.graveyard.is_read_by_replay(&Run { length: BlockCount(1), ..run });
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
}

impl State {
    /// Calls `body` with the head of a dataset, to change it.
    fn change<T>(
        &mut self,
        dataset: DatasetId,
        env: &Environment<'_>,
        body: impl FnOnce(&mut Head<'_>) -> Result<T>,
    ) -> Result<T> {
        let head = self.head(dataset)?;
        self.counted(dataset, head, |state| state.change_version(head, env, body))
    }

    pub(super) fn change_version<T>(
        &mut self,
        head: VersionId,
        env: &Environment<'_>,
        body: impl FnOnce(&mut Head<'_>) -> Result<T>,
    ) -> Result<T> {
        self.changed_roots.insert(head);
        let mut torn = self.torn;
        let (is_replay, gives_up) = (env.is_replay, env.gives_up);
        let (tree, effects) = self.effects(head);
        let outcome = body(&mut Head {
            tree,
            effects,
            nodes: env.nodes,
            blocks: env.blocks,
            is_replay,
            gives_up,
            torn: &mut torn,
        });
        // An operation that came to its end is whole.
        self.torn = torn && outcome.is_err();
        outcome
    }

    pub(super) fn apply_write(
        &mut self,
        write: &Write,
        run: Run,
        segment: SegmentId,
        env: &Environment<'_>,
    ) -> Result<()> {
        self.change(write.dataset, env, |head| {
            let touch = Touch { time: write.time, size_at_least: write.end };
            head.writer().map_run(write.inode, write.block, run, touch)?;
            head.effects.born(run);
            Ok(())
        })?;
        self.segments.add_live(segment, run.length.0);
        Ok(())
    }

    /// The blocks lie side by side from `at` on.
    pub(super) fn apply_scatter(
        &mut self,
        scatter: &Scatter,
        at: Placement,
        env: &Environment<'_>,
    ) -> Result<()> {
        if !scatter.is_valid() {
            return Err(Error::Invalid("a scattered write with parts that do not fit".to_owned()));
        }
        let run = |part: &Part| Run {
            stream: Stream::Data,
            start: at.address.plus(BlockCount(part.at.into())),
            length: BlockCount(part.blocks.into()),
        };
        let runs: Vec<_> = scatter.parts.iter().map(|part| (part.block, run(part))).collect();
        let born = joined(runs.iter().map(|(_, run)| *run).collect());
        self.change(scatter.dataset, env, |head| {
            let touch = Touch { time: scatter.time, size_at_least: scatter.end };
            head.writer().map_runs(scatter.inode, &runs, touch)?;
            born.iter().for_each(|run| head.effects.born(*run));
            Ok(())
        })?;
        self.segments.add_live(at.segment, runs.iter().map(|(_, run)| run.length.0).sum());
        Ok(())
    }

    /// As [`State::apply_scatter`] for blocks outside the log: they get their addresses now.
    pub(super) fn apply_staged(
        &mut self,
        scatter: &Scatter,
        address: LogAddress,
        segment: SegmentId,
        slot: Slot,
        env: &Environment<'_>,
    ) -> Result<()> {
        let run = Run { stream: Stream::Data, start: address, length: BlockCount(scatter.blocks.into()) };
        if scatter.blocks == 0 || !env.blocks.map().write().try_insert(run, segment, slot) {
            return Err(Error::Invalid("a staged run is mapped to what is in use".to_owned()));
        }
        self.staged.insert(segment);
        self.apply_scatter(scatter, Placement { address, segment }, env)
    }

    pub(super) fn apply_inline(
        &mut self,
        dataset: DatasetId,
        inode: InodeNumber,
        offset: u64,
        bytes: &[u8],
        time: Timestamp,
        env: &Environment<'_>,
    ) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(FileFault::TooLarge)?;
        if bytes.is_empty() {
            return Ok(());
        }
        self.change(dataset, env, |head| {
            let mut contents = Vec::new();
            let mut rest = bytes;
            let mut at = offset;
            while !rest.is_empty() {
                let block = FileBlock::containing(at);
                let within = (at - block.offset()) as usize;
                let (part, after) = rest.split_at(rest.len().min(BLOCK_BYTES - within));
                let former = match head.content(inode, block)? {
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
            head.put_merged(inode, contents, Touch { time, size_at_least: end })
        })
    }

    pub(super) fn apply_patch(&mut self, patch: &Patch, env: &Environment<'_>) -> Result<()> {
        if !patch.is_valid() {
            return Err(Error::Invalid("a patch whose parts do not fit".to_owned()));
        }
        self.change(patch.dataset, env, |head| {
            let mut contents = Vec::with_capacity(patch.blocks.len());
            for (index, one) in patch.blocks.iter().enumerate() {
                let content = match env.patched.get(index) {
                    Some(content) => {
                        // What a replay will make of it.
                        #[cfg(debug_assertions)]
                        assert!(head.patched(patch.inode, one)?.is_some_and(|made| made == *content));
                        Some(Arc::clone(content))
                    }
                    None => head.patched(patch.inode, one)?,
                };
                contents.push((one.block, content));
            }
            let touch = Touch { time: patch.time, size_at_least: patch.end };
            head.put_merged(patch.inode, contents, touch)
        })
    }

    pub(super) fn apply_truncate(
        &mut self,
        dataset: DatasetId,
        inode: InodeNumber,
        size: u64,
        time: Timestamp,
        env: &Environment<'_>,
    ) -> Result<()> {
        self.change(dataset, env, |head| {
            // Bytes behind the end of a file are zero, so that growing it again shows zeros.
            if size < head.reader().inode(inode)?.size {
                head.zero_within_block(inode, size, size.next_multiple_of(BLOCK_BYTES as u64), time)?;
            }
            head.writer().set_size(inode, size, usize::MAX, time).map(|_| ())
        })
    }

    pub(super) fn apply_punch(
        &mut self,
        dataset: DatasetId,
        inode: InodeNumber,
        offset: u64,
        length: u64,
        time: Timestamp,
        env: &Environment<'_>,
    ) -> Result<()> {
        self.change(dataset, env, |head| {
            let end = offset.saturating_add(length).min(head.reader().inode(inode)?.size);
            if offset >= end {
                // Nothing is taken away; what has no blocks refuses all the same.
                let none = FileBlock(0);
                return head.writer().unmap(inode, none, none, usize::MAX, time).map(|_| ());
            }
            let first = offset.div_ceil(BLOCK_BYTES as u64);
            let last = end / BLOCK_BYTES as u64;
            // A range within one block has both its ends there.
            let begins = offset..(first * BLOCK_BYTES as u64).min(end);
            let ends = if last >= first { last * BLOCK_BYTES as u64..end } else { end..end };
            let parts = [begins, ends].into_iter().filter(|part| !part.is_empty());
            // One that cannot be read is met before anything is changed.
            for part in parts.clone() {
                head.content(inode, FileBlock::containing(part.start))?;
            }
            for part in parts {
                head.zero_within_block(inode, part.start, part.end, time)?;
            }
            let last = last.max(first);
            head.writer().unmap(inode, FileBlock(first), FileBlock(last), usize::MAX, time).map(|_| ())
        })
    }

    pub(super) fn apply_namespace(
        &mut self,
        dataset: DatasetId,
        operation: &NamespaceOperation,
        env: &Environment<'_>,
    ) -> Result<()> {
        self.change(dataset, env, |head| {
            let mut writer = head.writer();
            match operation {
                NamespaceOperation::Create { directory, name, new } => {
                    writer.create(*directory, name, new).map(|_| ())
                }
                NamespaceOperation::CreateSymlink { directory, name, target, new } => {
                    writer.create_symlink(*directory, name, target, new).map(|_| ())
                }
                NamespaceOperation::Link { inode, directory, name, time } => {
                    writer.link(*inode, *directory, name, *time)
                }
                NamespaceOperation::Unlink { directory, name, time } => {
                    writer.unlink(*directory, name, *time).map(|_| ())
                }
                NamespaceOperation::RemoveDirectory { directory, name, time } => {
                    writer.remove_directory(*directory, name, *time).map(|_| ())
                }
                NamespaceOperation::Rename { from, from_name, to, to_name, how, time } => {
                    writer.rename((*from, from_name), (*to, to_name), *how, *time).map(|_| ())
                }
                NamespaceOperation::SetAttributes { inode, change } => {
                    writer.set_attributes(*inode, change).map(|_| ())
                }
                NamespaceOperation::SetXattr { inode, name, value, how, time } => {
                    writer.set_xattr(*inode, name, value, *how, *time)
                }
                NamespaceOperation::RemoveXattr { inode, name, time } => {
                    writer.remove_xattr(*inode, name, *time)
                }
            }
        })
    }

    pub(super) fn apply_release(
        &mut self,
        dataset: DatasetId,
        inode: InodeNumber,
        items_max: u32,
        env: &Environment<'_>,
    ) -> Result<()> {
        self.change(dataset, env, |head| head.writer().release_orphan(inode, items_max as usize).map(|_| ()))
    }
}
