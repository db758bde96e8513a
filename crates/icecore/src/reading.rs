//! Reading files of one version by position, and saying of what cannot be read where it is.

use crate::blocks::Access;
use crate::engine::Engine;
use crate::error::{Error, FileFault, Result};
use crate::linear::{FETCH_BYTES_MIN, ReadProgress};
use crate::namespace::{InodeItem, InodeKind, Read, TreeReader};
use crate::tree::Tree;
use crate::units::{BLOCK_BYTES, BLOCK_SHIFT, BlockCount, DatasetId, FileBlock, InodeNumber, Run};
use std::ops::Range;

/// Files that are looked at to find the path of one.
const NAMED_AMONG: usize = 10_000;

/// A version that a reader has pinned, for as long as it is read.
pub(crate) struct Reading<'a> {
    pub engine: &'a Engine,
    pub tree: &'a Tree,
    pub name: VersionName<'a>,
}

/// What messages call a version.
#[derive(Clone, Copy)]
pub(crate) enum VersionName<'a> {
    Known(&'a str),
    /// The head of this dataset: its name is looked up when a message needs it.
    HeadOf(DatasetId),
}

impl Reading<'_> {
    pub(crate) fn reader(&self) -> TreeReader<'_> {
        TreeReader::new(self.tree, &*self.engine.nodes)
    }

    /// Attributes of a file.
    pub(crate) fn attributes(&self, inode: InodeNumber) -> Result<InodeItem> {
        self.reader().inode(inode).map_err(|error| self.named(error, || self.called("file", inode)))
    }

    /// Reads from `offset`, up to the end of the file or of the buffer; answers how much. `progress`: that of
    /// the reader.
    pub(crate) fn read(
        &self,
        inode: InodeNumber,
        offset: u64,
        buffer: &mut [u8],
        progress: &ReadProgress,
    ) -> Result<usize> {
        let attributes = self.reader().inode(inode).map_err(|error| self.located(error, inode, offset))?;
        if attributes.kind == InodeKind::Directory {
            return Err(FileFault::IsADirectory.into());
        }
        self.read_sized(inode, attributes.size, offset, buffer, progress)
    }

    /// As [`Reading::read`], of a file of this size.
    pub(crate) fn read_sized(
        &self,
        inode: InodeNumber,
        size: u64,
        offset: u64,
        buffer: &mut [u8],
        progress: &ReadProgress,
    ) -> Result<usize> {
        let length = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        // What is read in bulk is read once: the cache is for what comes back.
        let is_bulk = length as u64 > FETCH_BYTES_MIN;
        let mut access = Access { keep: !is_bulk, fetched: false };
        if is_bulk {
            access.fetched = self.fetch(inode, progress.window(offset, length as u64, size));
        }
        let mut rest = &mut buffer[..length];
        let mut at = offset;
        while !rest.is_empty() {
            let run = self.reader().run_at(inode, FileBlock::containing(at));
            let run = run.map_err(|error| self.located(error, inode, at))?;
            let is_first_of_many =
                at == offset && run.is_some_and(|run| run.length.bytes().0 < length as u64);
            if is_first_of_many && !is_bulk {
                access.fetched = self.fetch(inode, offset..offset + length as u64);
            }
            let done = self.read_piece(inode, run, at, rest, access)?;
            at += done as u64;
            rest = &mut rest[done..];
        }
        self.engine.counters.read_calls.add(1);
        self.engine.counters.read_bytes.add(length as u64);
        Ok(length)
    }

    /// Asks the medium for all that a range of a file needs, and answers whether it did. An error is met by
    /// the read.
    fn fetch(&self, inode: InodeNumber, bytes: Range<u64>) -> bool {
        if bytes.is_empty() {
            // A read before this one fetched ahead.
            return true;
        }
        let end = FileBlock(bytes.end.div_ceil(BLOCK_BYTES as u64));
        let mut runs = Vec::new();
        let visited = self.reader().extents(inode, FileBlock::containing(bytes.start), end, &mut |_, run| {
            runs.push(run);
            Ok(true)
        });
        visited.is_ok() && self.engine.blocks.fetch(&runs)
    }

    /// Reads what lies together from `at` on, in this run or in a hole, and answers how much that was: at
    /// least one byte.
    fn read_piece(
        &self,
        inode: InodeNumber,
        run: Option<Run>,
        at: u64,
        into: &mut [u8],
        access: Access,
    ) -> Result<usize> {
        let blocks = &self.engine.blocks;
        let file_block = FileBlock::containing(at);
        let within = (at - file_block.offset()) as usize;
        let Some(run) = run else {
            let count = into.len().min(BLOCK_BYTES - within);
            into[..count].fill(0);
            return Ok(count);
        };
        let whole = (into.len() / BLOCK_BYTES) as u64;
        if within == 0 && whole > 0 {
            let length = BlockCount(run.length.0.min(whole));
            let count = length.bytes().0 as usize;
            blocks
                .read_run(Run { length, ..run }, &mut into[..count], access)
                .map_err(|error| self.first_damaged(Run { length, ..run }, error, inode, at))?;
            return Ok(count);
        }
        let count = into.len().min(BLOCK_BYTES - within);
        blocks
            .read_part(run.stream, run.start, within, &mut into[..count])
            .map_err(|error| self.located(error, inode, file_block.offset()))?;
        Ok(count)
    }

    /// Names the block of a run that cannot be read. The first one lies at `at` of the file.
    fn first_damaged(&self, run: Run, error: Error, inode: InodeNumber, at: u64) -> Error {
        let engine = self.engine;
        let is_it = |index: &u64| {
            let address = run.start.plus(BlockCount(*index));
            match (&error, engine.blocks.lookup(run.stream, address)) {
                (Error::Damaged { place, .. }, Ok(Some((segment, slot, _)))) => {
                    *place == engine.geometry.place(segment, slot)
                }
                // What failed was to read many at once.
                (_, Ok(Some(_))) => engine.blocks.read_part(run.stream, address, 0, &mut [0]).is_err(),
                _ => true,
            }
        };
        let index = if run.length.0 > 1 { (0..run.length.0).find(is_it) } else { None };
        self.located(error, inode, at + index.unwrap_or(0) * BLOCK_BYTES as u64)
    }

    fn version_name(&self) -> String {
        match self.name {
            VersionName::Known(name) => name.to_owned(),
            VersionName::HeadOf(dataset) => {
                let state = self.engine.state();
                let row = state.catalogue.dataset(dataset);
                row.map_or_else(|| "a dataset that was destroyed".to_owned(), |row| row.name.clone())
            }
        }
    }

    /// Says in which version, file and place of it something cannot be read, and what to do next.
    fn located(&self, error: Error, inode: InodeNumber, at: u64) -> Error {
        self.named(error, || format!("{}, offset {at}", self.called("file", inode)))
    }

    /// Says in which version and what of it something cannot be read, and what to do next. A place in a
    /// segment alone does not say what is lost: also what a file is found by is of some version.
    pub(crate) fn named(&self, error: Error, what_of_it: impl FnOnce() -> String) -> Error {
        if !matches!(error, Error::Damaged { .. } | Error::Io { action: "read", .. }) {
            return error;
        }
        let here = format!("{}, {}", self.version_name(), what_of_it());
        match error {
            Error::Damaged { place, detail } => Error::Damaged {
                place: format!("{here} ({place})"),
                detail: format!("{detail}; `icecore scrub` lists all that is damaged, and who sees it"),
            },
            Error::Io { action: action @ "read", what, source } => Error::Io {
                action,
                what: format!("{here} ({what}; `icecore scrub` lists what else is damaged)"),
                source,
            },
            other => other,
        }
    }

    /// What messages call a file of this kind. The directories that lead to it may be what is damaged: then
    /// it is the inode.
    pub(crate) fn called(&self, kind: &str, inode: InodeNumber) -> String {
        if inode == InodeNumber::ROOT {
            return "the root directory".to_owned();
        }
        match self.path_nearby(inode) {
            Some(path) => format!("{kind} {} (inode {inode})", crate::pool::shown(&path)),
            None => format!("{kind} with inode {inode}"),
        }
    }

    /// The path of a file, if it is among the first ones that are met: a reader that fails should not wait
    /// for a walk through everything.
    fn path_nearby(&self, inode: InodeNumber) -> Option<Vec<u8>> {
        let (mut left, mut found) = (NAMED_AMONG, None);
        let walked = crate::pool::walk_paths(&self.reader(), &mut |other, path| {
            left -= 1;
            found = (other == inode).then_some(path);
            found.is_none() && left > 0
        });
        found.filter(|_| walked.is_ok())
    }

    /// The parts of a file that hold data: offset and length in bytes, in order, neighbours joined.
    pub(crate) fn data_ranges(&self, inode: InodeNumber) -> Result<Vec<(u64, u64)>> {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        let end = FileBlock(u64::MAX >> BLOCK_SHIFT);
        let read = self.reader().extents(inode, FileBlock(0), end, &mut |file_block, run| {
            let (start, length) = (file_block.offset(), run.length.bytes().0);
            match ranges.last_mut() {
                Some((last, extent)) if *last + *extent == start => *extent += length,
                _ => ranges.push((start, length)),
            }
            Ok(true)
        });
        read.map_err(|error| self.named(error, || self.called("file", inode)))?;
        Ok(ranges)
    }

    /// In how many stretches of neighbouring blocks the segments have the data of a file, in its order.
    pub(crate) fn stretches(&self, inode: InodeNumber) -> Result<u64> {
        let end = FileBlock(u64::MAX >> BLOCK_SHIFT);
        let mut runs = Vec::new();
        let read = self.reader().extents(inode, FileBlock(0), end, &mut |_, run| {
            runs.push(run);
            Ok(true)
        });
        let counted = read.and_then(|()| self.engine.blocks.stretches(&runs));
        counted.map_err(|error| self.named(error, || self.called("file", inode)))
    }
}
