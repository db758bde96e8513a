//! Operations on files and directories.

use super::{Effects, Environment, State};
use crate::blocks::{Block, Blocks};
use crate::error::{Error, Result};
use crate::namespace::TreeWriter;
use crate::operation::{NamespaceOperation, Write};
use crate::units::{
    BLOCK_BYTES, BlockCount, DatasetId, FileBlock, InodeNumber, Run, SegmentId, Timestamp, VersionId,
};
use std::sync::Arc;

impl State {
    /// Calls `body` with the tree of a head, to change it.
    fn change<T>(
        &mut self,
        dataset: DatasetId,
        env: &Environment<'_>,
        body: impl FnOnce(&mut TreeWriter<'_, Effects<'_>>) -> Result<T>,
    ) -> Result<T> {
        let head = self.head(dataset)?;
        self.changed_roots.insert(head);
        self.change_version(head, env, body)
    }

    pub(super) fn change_version<T>(
        &mut self,
        head: VersionId,
        env: &Environment<'_>,
        body: impl FnOnce(&mut TreeWriter<'_, Effects<'_>>) -> Result<T>,
    ) -> Result<T> {
        let (tree, mut effects) = self.effects(head);
        body(&mut TreeWriter { tree, source: env.nodes, ledger: &mut effects })
    }

    pub(super) fn apply_write(
        &mut self,
        write: &Write,
        run: Run,
        segment: SegmentId,
        env: &Environment<'_>,
    ) -> Result<()> {
        self.change(write.dataset, env, |writer| {
            writer.map_run(write.inode, write.block, run)?;
            writer.ledger.born(run);
            writer.extend(write.inode, write.end, write.time)
        })?;
        self.segments.add_live(segment, run.length.0);
        Ok(())
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
        self.change(dataset, env, |writer| {
            let mut rest = bytes;
            let mut at = offset;
            while !rest.is_empty() {
                let within = (at % BLOCK_BYTES as u64) as usize;
                let (part, after) = rest.split_at(rest.len().min(BLOCK_BYTES - within));
                merge(writer, env.blocks, inode, at, part)?;
                at += part.len() as u64;
                rest = after;
            }
            writer.extend(inode, at, time)
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
        self.change(dataset, env, |writer| {
            let former = writer.size(inode)?;
            if size < former {
                zero_to_block_end(writer, env.blocks, inode, size)?;
                let first = FileBlock(size.div_ceil(BLOCK_BYTES as u64));
                writer.unmap(inode, first, FileBlock(former.div_ceil(BLOCK_BYTES as u64)))?;
            }
            writer.set_size(inode, size, time)
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
        self.change(dataset, env, |writer| {
            let end = offset.saturating_add(length).min(writer.size(inode)?);
            if offset >= end {
                return Ok(());
            }
            let first = offset.div_ceil(BLOCK_BYTES as u64);
            let last = end / BLOCK_BYTES as u64;
            // A range within one block has both ends in it.
            let head_end = (first * BLOCK_BYTES as u64).min(end);
            zero_range(writer, env.blocks, inode, offset, head_end)?;
            if last >= first {
                zero_range(writer, env.blocks, inode, last * BLOCK_BYTES as u64, end)?;
                writer.unmap(inode, FileBlock(first), FileBlock(last))?;
            }
            writer.touch(inode, time)
        })
    }

    pub(super) fn apply_namespace(
        &mut self,
        dataset: DatasetId,
        operation: &NamespaceOperation,
        env: &Environment<'_>,
    ) -> Result<()> {
        self.change(dataset, env, |writer| writer.apply(operation))
    }

    pub(super) fn apply_release(
        &mut self,
        dataset: DatasetId,
        inode: InodeNumber,
        extents_max: u32,
        env: &Environment<'_>,
    ) -> Result<()> {
        self.change(dataset, env, |writer| writer.release_orphan(inode, extents_max).map(|_| ()))
    }
}

type Writer<'a, 'b> = TreeWriter<'a, Effects<'b>>;

/// Changes part of one block of a file: the merged block gets an address of its own, at birth.
fn merge(writer: &mut Writer<'_, '_>, blocks: &Blocks, inode: InodeNumber, at: u64, bytes: &[u8]) -> Result<()> {
    let file_block = FileBlock::containing(at);
    let within = (at % BLOCK_BYTES as u64) as usize;
    let mut content = base(writer, blocks, inode, file_block)?.unwrap_or_else(|| Arc::new([0; BLOCK_BYTES]));
    Arc::make_mut(&mut content)[within..within + bytes.len()].copy_from_slice(bytes);
    put_merged(writer, blocks, inode, file_block, content)
}

/// Zeros `[from, to)`, which lies within one block; nothing happens where the file has a hole.
fn zero_range(writer: &mut Writer<'_, '_>, blocks: &Blocks, inode: InodeNumber, from: u64, to: u64) -> Result<()> {
    if from >= to {
        return Ok(());
    }
    let file_block = FileBlock::containing(from);
    let Some(mut content) = base(writer, blocks, inode, file_block)? else { return Ok(()) };
    let start = (from - file_block.offset()) as usize;
    let end = (to - file_block.offset()) as usize;
    if content[start..end].iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    Arc::make_mut(&mut content)[start..end].fill(0);
    put_merged(writer, blocks, inode, file_block, content)
}

/// Bytes behind the end of a file are zero, so that growing it again shows zeros.
fn zero_to_block_end(writer: &mut Writer<'_, '_>, blocks: &Blocks, inode: InodeNumber, size: u64) -> Result<()> {
    zero_range(writer, blocks, inode, size, size.next_multiple_of(BLOCK_BYTES as u64))
}

fn base(
    writer: &mut Writer<'_, '_>,
    blocks: &Blocks,
    inode: InodeNumber,
    file_block: FileBlock,
) -> Result<Option<Arc<Block>>> {
    let Some(run) = writer.lookup_run(inode, file_block)? else { return Ok(None) };
    blocks.read(run.stream, run.start).map(Some)
}

fn put_merged(
    writer: &mut Writer<'_, '_>,
    blocks: &Blocks,
    inode: InodeNumber,
    file_block: FileBlock,
    content: Arc<Block>,
) -> Result<()> {
    // Whatever the change of the tree needs is in memory before an address is drawn.
    writer.warm(inode, file_block)?;
    let run = writer.ledger.draw_merged();
    blocks.merge_pending(run.start, content);
    writer.map_run(inode, file_block, run).map_err(|error| Error::Invalid(format!("after warming: {error}")))?;
    debug_assert_eq!(run.length, BlockCount(1));
    Ok(())
}
