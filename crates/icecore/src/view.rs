//! Views: one version of a dataset, pinned. It never changes and never blocks anybody.

use crate::blocks::Block;
use crate::error::{Error, FileFault, Result};
use crate::format::segment::file_name;
use crate::namespace::{DirectoryEntry, InodeItem, InodeKind, Read, TreeReader};
use crate::pins::Pin;
use crate::pool::Pool;
use crate::state::State;
use crate::tree::Tree;
use crate::units::{BLOCK_BYTES, BLOCK_SHIFT, BlockCount, FileBlock, InodeNumber, Run, VersionId};
use std::sync::Arc;

/// Files that are looked at to find the path of one.
const NAMED_AMONG: usize = 10_000;

/// A snapshot, or the head of a dataset as it was at one moment. Cheap to clone and to send to threads.
#[derive(Clone)]
pub struct View {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Pool,
    tree: Tree,
    name: String,
    version: VersionId,
    moment: u64,
    _pin: Pin,
}

impl View {
    pub(crate) fn pin(pool: &Pool, state: &State, version: VersionId, name: String) -> Self {
        let pin = pool.engine().pin(state);
        let tree = state.trees[&version].clone();
        let inner = Inner { pool: pool.clone(), tree, name, version, moment: state.clock, _pin: pin };
        Self { inner: Arc::new(inner) }
    }

    /// The name it was asked for by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The pool it belongs to.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.inner.tree
    }

    /// Whether it is of this version as it is now.
    pub(crate) fn is_of(&self, version: VersionId, state: &State) -> bool {
        (self.inner.version, self.inner.moment) == (version, state.clock)
    }

    pub(crate) fn reader(&self) -> TreeReader<'_> {
        TreeReader::new(&self.inner.tree, &*self.inner.pool.engine().nodes)
    }

    /// The entry of this name in a directory.
    ///
    /// # Errors
    /// [`FileFault::Stale`] and [`FileFault::NotADirectory`] for the directory; [`crate::Error::Damaged`],
    /// [`crate::Error::Io`].
    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Option<DirectoryEntry>> {
        self.inner.pool.engine().check_open()?;
        match self.reader().lookup(directory, name) {
            Ok(entry) => Ok(Some(entry)),
            Err(Error::File(FileFault::NotFound)) => Ok(None),
            Err(error) => Err(self.told(error, || {
                format!("{} in {}", crate::pool::shown(name), self.called("directory", directory))
            })),
        }
    }

    /// The file at a path below the root, components separated by `/`. Links are not followed.
    ///
    /// # Errors
    /// As for [`View::lookup`].
    pub fn resolve(&self, path: &[u8]) -> Result<Option<InodeNumber>> {
        let mut inode = InodeNumber::ROOT;
        for component in path.split(|byte| *byte == b'/').filter(|component| !component.is_empty()) {
            match self.lookup(inode, component)? {
                Some(entry) => inode = entry.inode,
                None => return Ok(None),
            }
        }
        Ok(Some(inode))
    }

    /// Size, kind, owner, times and so on.
    ///
    /// # Errors
    /// [`FileFault::Stale`] if there is none; [`crate::Error::Damaged`], [`crate::Error::Io`].
    pub fn attributes(&self, inode: InodeNumber) -> Result<InodeItem> {
        self.inner.pool.engine().check_open()?;
        self.reader().inode(inode).map_err(|error| self.told(error, || self.called("file", inode)))
    }

    /// Entries of a directory, those whose cookie is greater than `after`, at most `max`, in order of cookies.
    /// A cookie stays what it is for as long as the entry exists.
    ///
    /// # Errors
    /// As for [`View::lookup`].
    pub fn read_directory(&self, inode: InodeNumber, after: u64, max: usize) -> Result<Vec<DirectoryEntry>> {
        self.inner.pool.engine().check_open()?;
        let mut entries = Vec::new();
        let read = self.reader().entries(inode, after, &mut |entry| {
            entries.push(entry);
            Ok(entries.len() < max)
        });
        read.map_err(|error| self.told(error, || self.called("directory", inode)))?;
        Ok(entries)
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// [`FileFault::Invalid`] if it is not one.
    pub fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        self.inner.pool.engine().check_open()?;
        let target = self.reader().link_target(inode);
        target.map_err(|error| self.told(error, || self.called("link", inode)))
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// [`FileFault::NoSuchAttribute`].
    pub fn xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        self.inner.pool.engine().check_open()?;
        let value = self.reader().xattr(inode, name);
        value.map_err(|error| {
            let attribute =
                || format!("attribute {} of {}", crate::pool::shown(name), self.called("file", inode));
            self.told(error, attribute)
        })
    }

    /// Names of all extended attributes of a file.
    ///
    /// # Errors
    /// As for [`View::attributes`].
    pub fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        self.inner.pool.engine().check_open()?;
        let names = self.reader().xattr_names(inode);
        names.map_err(|error| self.told(error, || self.called("file", inode)))
    }

    /// Reads from `offset`, up to the end of the file or of the buffer; answers how much. Holes read as zeros.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] if stored bytes do not match their checksum, with the offset of the first such block in the file: none of them
    /// are returned.
    pub fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.inner.pool.engine().check_open()?;
        let attributes = self.reader().inode(inode).map_err(|error| self.located(error, inode, offset))?;
        if attributes.kind == InodeKind::Directory {
            return Err(FileFault::IsADirectory.into());
        }
        self.read_sized(inode, attributes.size, offset, buffer)
    }

    /// As [`View::read`], for callers that know the size of the file in this version.
    ///
    /// # Errors
    /// As there.
    pub fn read_sized(&self, inode: InodeNumber, size: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let engine = self.inner.pool.engine();
        engine.check_open()?;
        let length = size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut rest = &mut buffer[..length];
        let mut at = offset;
        while !rest.is_empty() {
            let done = self.read_piece(inode, at, rest)?;
            at += done as u64;
            rest = &mut rest[done..];
        }
        engine.counters.read_calls.add(1);
        engine.counters.read_bytes.add(length as u64);
        Ok(length)
    }

    /// A block, if that takes no I/O. `None` for a hole, too.
    pub(crate) fn block_in_memory(&self, inode: InodeNumber, block: FileBlock) -> Result<Option<Arc<Block>>> {
        let run = self.reader().run_at(inode, block)?;
        let blocks = &self.inner.pool.engine().blocks;
        Ok(run.and_then(|run| blocks.in_memory(run.stream, run.start)))
    }

    /// Reads what lies together from `at` on, and answers how much that was: at least one byte.
    fn read_piece(&self, inode: InodeNumber, at: u64, into: &mut [u8]) -> Result<usize> {
        let blocks = &self.inner.pool.engine().blocks;
        let file_block = FileBlock::containing(at);
        let within = (at - file_block.offset()) as usize;
        let run = self.reader().run_at(inode, file_block);
        let Some(run) = run.map_err(|error| self.located(error, inode, at))? else {
            let count = into.len().min(BLOCK_BYTES - within);
            into[..count].fill(0);
            return Ok(count);
        };
        let whole = (into.len() / BLOCK_BYTES) as u64;
        if within == 0 && whole > 0 {
            let length = BlockCount(run.length.0.min(whole));
            let count = length.bytes().0 as usize;
            // What is read in bulk is read once: the cache is for what comes back.
            let keep = length.0 <= 16;
            blocks
                .read_run(Run { length, ..run }, &mut into[..count], keep)
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
        let engine = self.inner.pool.engine();
        let is_it = |index: &u64| {
            let address = run.start.plus(BlockCount(*index));
            match (&error, engine.blocks.lookup(run.stream, address)) {
                (Error::Damaged { place, .. }, Ok(Some((segment, slot, _)))) => {
                    let offset = engine.geometry.offset(slot);
                    *place == format!("{} at offset {offset}", file_name(segment))
                }
                // What failed was to read many at once.
                (_, Ok(Some(_))) => engine.blocks.read_part(run.stream, address, 0, &mut [0]).is_err(),
                _ => true,
            }
        };
        let index = if run.length.0 > 1 { (0..run.length.0).find(is_it) } else { None };
        self.located(error, inode, at + index.unwrap_or(0) * BLOCK_BYTES as u64)
    }

    /// Says in which version, file and place of it something cannot be read, and what to do next.
    fn located(&self, error: Error, inode: InodeNumber, at: u64) -> Error {
        self.told(error, || format!("{}, offset {at}", self.called("file", inode)))
    }

    /// Says in which version and what of it something cannot be read, and what to do next. A place in a segment alone tells nobody
    /// what is lost: also what a file is found by is of some version.
    fn told(&self, error: Error, what_of_it: impl FnOnce() -> String) -> Error {
        if !matches!(error, Error::Damaged { .. } | Error::Io { action: "read", .. }) {
            return error;
        }
        let here = format!("{}, {}", self.inner.name, what_of_it());
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

    /// What messages call a file of this kind. The directories that lead to it may be what is damaged: then it is the inode.
    fn called(&self, kind: &str, inode: InodeNumber) -> String {
        if inode == InodeNumber::ROOT {
            return "the root directory".to_owned();
        }
        match self.path_nearby(inode) {
            Some(path) => format!("{kind} {} (inode {inode})", crate::pool::shown(&path)),
            None => format!("{kind} with inode {inode}"),
        }
    }

    /// The path of a file, if it is among the first ones that are met: whoever reads in vain should not wait for a walk through
    /// everything.
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
    ///
    /// # Errors
    /// As for [`View::attributes`].
    pub fn data_ranges(&self, inode: InodeNumber) -> Result<Vec<(u64, u64)>> {
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
        read.map_err(|error| self.told(error, || self.called("file", inode)))?;
        Ok(ranges)
    }
}
