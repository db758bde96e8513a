//! Views: one version of a dataset, pinned. It never changes and never blocks a reader or a writer.

use crate::blocks::Block;
use crate::error::{Error, FileFault, Result};
use crate::linear::ReadProgress;
use crate::namespace::{DirectoryEntry, InodeItem, Read, TreeReader};
use crate::pins::{Pin, ReaderName};
use crate::pool::Pool;
use crate::reading::{Reading, VersionName};
use crate::state::State;
use crate::tree::Tree;
use crate::units::{FileBlock, InodeNumber, VersionId};
use std::sync::Arc;

/// A snapshot, or the head of a dataset as it was at one moment. Cheap to clone and to send to threads.
#[derive(Clone)]
pub struct View {
    inner: Arc<Inner>,
}

struct Inner {
    pool: Pool,
    tree: Tree,
    name: Arc<str>,
    version: VersionId,
    moment: u64,
    pin: Pin,
}

impl View {
    pub(crate) fn pin(pool: &Pool, state: &mut State, version: VersionId, name: String) -> Self {
        let name: Arc<str> = name.into();
        let pin = state.pin(version).named(Arc::clone(&name), pool.engine().now());
        let tree = state.trees[&version].clone();
        let inner = Inner { pool: pool.clone(), tree, name, version, moment: state.clock, pin };
        Self { inner: Arc::new(inner) }
    }

    /// The name it was asked for by.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// The version that it shows.
    pub(crate) fn version(&self) -> VersionId {
        self.inner.version
    }

    /// Says who reads, for [`Pool::readers`].
    pub fn read_by(&self, reader: &Arc<ReaderName>) {
        self.inner.pin.read_by(Arc::clone(reader));
    }

    /// The pool it belongs to.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.inner.pool
    }

    /// Whether another view has the same contents. This one is of a pool that was opened to read only; the
    /// other may be of a later opening of that pool. False for the same contents where what has changed was
    /// changed back.
    #[must_use]
    pub fn is_same_version(&self, other: &Self) -> bool {
        // All nodes of a pool that is only read are written, and one that was written never changes.
        let is_written = self.inner.pool.engine().options.read_only;
        let roots = [self, other].map(|view| view.inner.tree.root_address());
        is_written && self.inner.pool.id() == other.inner.pool.id() && roots[0] == roots[1]
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

    /// What reads it, unless the pool was closed.
    fn reading(&self) -> Result<Reading<'_>> {
        let engine = self.inner.pool.engine();
        engine.check_open()?;
        Ok(Reading { engine, tree: &self.inner.tree, name: VersionName::Known(&self.inner.name) })
    }

    /// The entry of this name in a directory.
    ///
    /// # Errors
    /// [`FileFault::Stale`] and [`FileFault::NotADirectory`] for the directory; [`crate::Error::Damaged`],
    /// [`crate::Error::Io`].
    pub fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<Option<DirectoryEntry>> {
        let reading = self.reading()?;
        match reading.reader().lookup(directory, name) {
            Ok(entry) => Ok(Some(entry)),
            Err(Error::File(FileFault::NotFound)) => Ok(None),
            Err(error) => Err(reading.named(error, || {
                format!("{} in {}", crate::pool::shown(name), reading.called("directory", directory))
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
        self.reading()?.attributes(inode)
    }

    /// Entries of a directory, those whose cookie is greater than `after`, at most `max`, in order of
    /// cookies. A cookie stays what it is for as long as the entry exists.
    ///
    /// # Errors
    /// As for [`View::lookup`].
    pub fn read_directory(&self, inode: InodeNumber, after: u64, max: usize) -> Result<Vec<DirectoryEntry>> {
        let reading = self.reading()?;
        let mut entries = Vec::new();
        let read = reading.reader().entries(inode, after, &mut |entry| {
            entries.push(entry);
            Ok(entries.len() < max)
        });
        read.map_err(|error| reading.named(error, || reading.called("directory", inode)))?;
        Ok(entries)
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// [`FileFault::Invalid`] if it is not one.
    pub fn read_link(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        let reading = self.reading()?;
        let target = reading.reader().link_target(inode);
        target.map_err(|error| reading.named(error, || reading.called("link", inode)))
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// [`FileFault::NoSuchAttribute`].
    pub fn xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        let reading = self.reading()?;
        let value = reading.reader().xattr(inode, name);
        value.map_err(|error| {
            let attribute =
                || format!("attribute {} of {}", crate::pool::shown(name), reading.called("file", inode));
            reading.named(error, attribute)
        })
    }

    /// Names of all extended attributes of a file.
    ///
    /// # Errors
    /// As for [`View::attributes`].
    pub fn list_xattrs(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        let reading = self.reading()?;
        let names = reading.reader().xattr_names(inode);
        names.map_err(|error| reading.named(error, || reading.called("file", inode)))
    }

    /// Reads from `offset`, up to the end of the file or of the buffer; answers how much. Holes read as
    /// zeros.
    ///
    /// # Errors
    /// [`crate::Error::Damaged`] if stored bytes do not match their checksum, with the offset of the first
    /// such block in the file: none of them are returned.
    pub fn read(&self, inode: InodeNumber, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.read_on(inode, offset, buffer, &ReadProgress::default())
    }

    /// As [`View::read`]. For a reader that reads on where it was, the store fetches ahead.
    ///
    /// # Errors
    /// As there.
    pub fn read_on(
        &self,
        inode: InodeNumber,
        offset: u64,
        buffer: &mut [u8],
        progress: &ReadProgress,
    ) -> Result<usize> {
        self.reading()?.read(inode, offset, buffer, progress)
    }

    /// As [`View::read`], for callers that know the size of the file in this version.
    ///
    /// # Errors
    /// As there.
    pub fn read_sized(&self, inode: InodeNumber, size: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.reading()?.read_sized(inode, size, offset, buffer, &ReadProgress::default())
    }

    /// A block, if that takes no I/O. `None` for a hole, too.
    pub(crate) fn block_in_memory(&self, inode: InodeNumber, block: FileBlock) -> Result<Option<Arc<Block>>> {
        let run = self.reader().run_at(inode, block)?;
        let blocks = &self.inner.pool.engine().blocks;
        Ok(run.and_then(|run| blocks.in_memory(run.stream, run.start)))
    }

    /// The parts of a file that hold data: offset and length in bytes, in order, neighbours joined.
    ///
    /// # Errors
    /// As for [`View::attributes`].
    pub fn data_ranges(&self, inode: InodeNumber) -> Result<Vec<(u64, u64)>> {
        self.reading()?.data_ranges(inode)
    }

    /// In how many stretches of neighbouring blocks the segments have the data of a file. A reader from
    /// beginning to end goes on elsewhere for each. Of a file without holes these are what FIEMAP calls
    /// extents. Blocks that wait for a checkpoint have no place yet, and do not count.
    ///
    /// # Errors
    /// As for [`View::attributes`].
    pub fn stretches(&self, inode: InodeNumber) -> Result<u64> {
        self.reading()?.stretches(inode)
    }
}
