//! Files: which log addresses their blocks are at.

use super::TreeWriter;
use super::inode::{InodeItem, damaged, inode_key, valid};
use super::read::Read;
use crate::error::{FileFault, Result};
use crate::tree::{Extent, Item, ItemKind, Key, NodeSource, Tree};
use crate::units::{
    BLOCK_SHIFT, BlockCount, EXTENT_BLOCKS_MAX, FILE_BYTES_MAX, FileBlock, InodeNumber, LOG_ADDRESS_LIMIT,
    Run, Timestamp,
};

/// One more than the last block that a file can have.
const FILE_BLOCKS_LIMIT: u64 = FILE_BYTES_MAX >> BLOCK_SHIFT;

/// What a write does to the attributes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Touch {
    /// The time now: the content has changed.
    pub time: Timestamp,
    /// The file is at least so many bytes long afterwards.
    pub size_at_least: u64,
}

/// An extent of a file: its first block, and where it is.
type FileExtent = (u64, Run);

fn extent_key(inode: InodeNumber, block: u64) -> Key {
    Key::new(inode, ItemKind::Extent, block)
}

/// The extent in an item. That it is one follows from the kind in its key. Whether it ends within the limits
/// of a file is checked here, before a caller computes with it.
fn extent_of(key: Key, item: &Item) -> Result<FileExtent> {
    let run = item.extent().map(|extent| extent.run);
    run.filter(|run| key.offset() < FILE_BLOCKS_LIMIT && key.offset() + run.length.0 <= FILE_BLOCKS_LIMIT)
        .map(|run| (key.offset(), run))
        .ok_or_else(|| damaged(key.inode(), "an extent lies outside of what a file can be"))
}

/// The part of an extent that starts at file block `start` which lies between two file blocks.
fn part_of(run: Run, start: u64, first: u64, end: u64) -> Option<Run> {
    let from = start.max(first);
    let to = (start + run.length.0).min(end);
    (from < to).then(|| Run {
        stream: run.stream,
        start: run.start.plus(BlockCount(from - start)),
        length: BlockCount(to - from),
    })
}

/// The extent of a file with the greatest first block that is not above `block`.
pub(super) fn extent_at_or_before(
    tree: &Tree,
    source: &dyn NodeSource,
    inode: InodeNumber,
    block: FileBlock,
) -> Result<Option<(FileBlock, Run)>> {
    let found = tree.at_or_before(source, extent_key(valid(inode)?, block.0))?;
    match found {
        Some((key, item)) if key >= extent_key(inode, 0) => {
            extent_of(key, &item).map(|(start, run)| Some((FileBlock(start), run)))
        }
        _ => Ok(None),
    }
}

pub(super) fn run_at(
    items: &(impl Read + ?Sized),
    inode: InodeNumber,
    block: FileBlock,
) -> Result<Option<Run>> {
    let before = items.extent_at_or_before(inode, block)?;
    Ok(before.and_then(|(start, run)| part_of(run, start.0, block.0, u64::MAX)))
}

pub(super) fn extents(
    items: &(impl Read + ?Sized),
    inode: InodeNumber,
    first: FileBlock,
    end: FileBlock,
    visit: &mut dyn FnMut(FileBlock, Run) -> Result<bool>,
) -> Result<()> {
    let before = items.extent_at_or_before(inode, first)?;
    let from = before.map_or(first.0, |(start, _)| start.0);
    items.scan(extent_key(inode, from), extent_key(inode, end.0.max(from)), &mut |key, item| {
        let (start, run) = extent_of(key, &item)?;
        match part_of(run, start, first.0, end.0) {
            Some(part) => visit(FileBlock(start.max(first.0)), part),
            None => Ok(true),
        }
    })
}

impl TreeWriter<'_> {
    /// Makes the file's blocks from `first` on point at `run`. What they pointed at is dropped. An extent
    /// that ends before `first`, in the file and in the log, is made longer instead of adding one.
    ///
    /// `TooLarge` past 16 TiB; `IsADirectory`, `Invalid` for what has no blocks. The run must be one that the
    /// version does not refer to yet.
    pub fn map_run(&mut self, inode: InodeNumber, first: FileBlock, run: Run, touch: Touch) -> Result<()> {
        self.map_runs(inode, &[(first, run)], touch)
    }

    /// As [`TreeWriter::map_run`] for many runs in one step. In the order of the file, and none over another.
    pub fn map_runs(&mut self, inode: InodeNumber, runs: &[(FileBlock, Run)], touch: Touch) -> Result<()> {
        self.atomically(|writer| {
            let mut item = writer.inode(inode)?.of_file()?;
            if touch.size_at_least > FILE_BYTES_MAX {
                return Err(FileFault::TooLarge.into());
            }
            for (first, run) in runs {
                writer.stage_map(inode, &mut item, first.0, *run)?;
            }
            item.size = item.size.max(touch.size_at_least);
            item.modify = touch.time;
            item.change = touch.time;
            writer.stage_inode(inode, &item);
            Ok(())
        })
    }

    /// Takes the file's blocks from `first` up to, not including, `end` away: what they pointed at is
    /// dropped, and they read as zeros. At most `limit` extents (at least one) in one call: answers where to
    /// go on, or `None` when all is done. Each call is all or nothing.
    pub fn unmap(
        &mut self,
        inode: InodeNumber,
        first: FileBlock,
        end: FileBlock,
        limit: usize,
        time: Timestamp,
    ) -> Result<Option<FileBlock>> {
        self.atomically(|writer| {
            let mut item = writer.inode(inode)?.of_file()?;
            item.modify = time;
            item.change = time;
            writer.stage_unmap(inode, &mut item, first.0, end.0, limit)
        })
    }

    /// Changes the size of a file in bytes. Blocks past the end are taken away as by [`TreeWriter::unmap`]:
    /// call that, up to `FileBlock(u64::MAX)`, until it is done, before the file grows again. The bytes
    /// behind the new end in its last block are the caller's to clear.
    ///
    /// `TooLarge` past 16 TiB; `IsADirectory`, `Invalid` for what has no size.
    pub fn set_size(
        &mut self,
        inode: InodeNumber,
        size: u64,
        limit: usize,
        time: Timestamp,
    ) -> Result<Option<FileBlock>> {
        self.atomically(|writer| {
            let mut item = writer.inode(inode)?.of_file()?;
            if size > FILE_BYTES_MAX {
                return Err(FileFault::TooLarge.into());
            }
            let shrinks = size < item.size;
            item.size = size;
            item.modify = time;
            item.change = time;
            if shrinks {
                let first = size.div_ceil(1 << BLOCK_SHIFT);
                writer.stage_unmap(inode, &mut item, first, FILE_BLOCKS_LIMIT, limit)
            } else {
                writer.stage_inode(inode, &item);
                Ok(None)
            }
        })
    }

    fn stage_map(&mut self, inode: InodeNumber, item: &mut InodeItem, first: u64, run: Run) -> Result<()> {
        assert!(run.length.0 > 0 && run.start.0 < LOG_ADDRESS_LIMIT && run.end().0 <= LOG_ADDRESS_LIMIT);
        let end = first.checked_add(run.length.0).filter(|end| *end <= FILE_BLOCKS_LIMIT);
        let end = end.ok_or(FileFault::TooLarge)?;
        let (touching, _) = self.extents_touching(inode, first, end, usize::MAX)?;
        let left = self.stage_cut(inode, item, &touching, first, end)?;
        for (start, former) in &touching {
            if let Some(former) = part_of(*former, *start, first, end) {
                let at = (*start).max(first) - first;
                let run =
                    Run { stream: run.stream, start: run.start.plus(BlockCount(at)), length: former.length };
                self.replaced.push((former, run));
            }
        }
        match left {
            Some((start, before)) if joins(before, run) => {
                let length = BlockCount(before.length.0 + run.length.0);
                self.stage_extents(inode, start, Run { length, ..before });
            }
            _ => self.stage_extents(inode, first, run),
        }
        item.blocks += run.length.0;
        Ok(())
    }

    fn stage_unmap(
        &mut self,
        inode: InodeNumber,
        item: &mut InodeItem,
        first: u64,
        end: u64,
        limit: usize,
    ) -> Result<Option<FileBlock>> {
        let end = end.min(FILE_BLOCKS_LIMIT);
        let mut next = None;
        if first < end {
            let (touching, more) = self.extents_touching(inode, first, end, limit.max(1))?;
            next = more;
            self.stage_cut(inode, item, &touching, first, end)?;
        }
        self.stage_inode(inode, item);
        Ok(next.map(FileBlock))
    }

    /// Extents that overlap a range or end where it begins: at most `limit` that overlap, and where the next
    /// one is.
    fn extents_touching(
        &self,
        inode: InodeNumber,
        first: u64,
        end: u64,
        limit: usize,
    ) -> Result<(Vec<FileExtent>, Option<u64>)> {
        let mut touching = Vec::new();
        let mut overlapping = 0;
        // The last extent that begins before the range is the one that may reach into it, or up to it.
        if let Some(last) = first.checked_sub(1)
            && let Some((start, run)) = self.extent_at_or_before(inode, FileBlock(last))?
            && start.0 + run.length.0 >= first
        {
            touching.push((start.0, run));
            overlapping += usize::from(start.0 + run.length.0 > first);
        }
        let mut more = None;
        self.scan(extent_key(inode, first), extent_key(inode, end), &mut |key, item| {
            let (start, run) = extent_of(key, &item)?;
            if overlapping == limit {
                more = Some(start);
                return Ok(false);
            }
            touching.push((start, run));
            overlapping += 1;
            Ok(true)
        })?;
        Ok((touching, more))
    }

    /// Stages that extents lose what they have in a range. Answers the extent that then ends where it begins.
    fn stage_cut(
        &mut self,
        inode: InodeNumber,
        item: &mut InodeItem,
        touching: &[FileExtent],
        first: u64,
        end: u64,
    ) -> Result<Option<FileExtent>> {
        let mut left = None;
        for (start, run) in touching {
            let (start, run) = (*start, *run);
            let before = part_of(run, start, 0, first);
            if let Some(before) = before {
                left = Some((start, before));
            }
            let Some(gone) = part_of(run, start, first, end) else { continue };
            self.dropped.push(gone);
            item.blocks = item
                .blocks
                .checked_sub(gone.length.0)
                .ok_or_else(|| damaged(inode, "it has more blocks in its extents than it should have"))?;
            self.stage(extent_key(inode, start), before.map(|run| Item::Extent(Extent { run })));
            if let Some(after) = part_of(run, start, end, u64::MAX) {
                self.stage(extent_key(inode, end), Some(Item::Extent(Extent { run: after })));
            }
        }
        Ok(left)
    }

    /// Stages a run of any length, as extents of the length that they can have.
    fn stage_extents(&mut self, inode: InodeNumber, first: u64, run: Run) {
        let mut done = 0;
        while done < run.length.0 {
            let length = (run.length.0 - done).min(EXTENT_BLOCKS_MAX);
            let part = Run {
                stream: run.stream,
                start: run.start.plus(BlockCount(done)),
                length: BlockCount(length),
            };
            self.stage(extent_key(inode, first + done), Some(Item::Extent(Extent { run: part })));
            done += length;
        }
    }
}

/// True if a run follows one that an extent has, and the extent can be longer.
fn joins(before: Run, run: Run) -> bool {
    before.stream == run.stream && before.end() == run.start && before.length.0 < EXTENT_BLOCKS_MAX
}

/// First key of a file's extents and the end of them.
pub(super) fn extent_bounds(inode: InodeNumber) -> (Key, Key) {
    let end = Key::new(inode, ItemKind::Symlink, 0);
    debug_assert!(inode_key(inode) < extent_key(inode, 0) && extent_key(inode, u64::MAX) < end);
    (extent_key(inode, 0), end)
}
