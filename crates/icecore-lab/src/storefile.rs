//! One file in a pool of its own, used through the store's own interface, without SQLite.

use crate::error::Result;
use crate::random::Random;
use crate::settle::settle;
use icecore::storage::Storage;
use icecore::units::InodeNumber;
use icecore::{Creation, Dataset, File, InitOptions, OpenOptions, Pool};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Name of the only dataset.
pub(crate) const DATASET: &str = "lab";
const NAME: &[u8] = b"file";
const FILL_CHUNK: usize = 1 << 20;
/// While filling, so much is written between two flushes.
const FILL_SYNC_CHUNKS: u64 = 64;

/// A pool with one dataset with one file.
pub(crate) struct StoreFile {
    pool: Pool,
    options: OpenOptions,
    dataset: Dataset,
    inode: InodeNumber,
}

impl StoreFile {
    /// Makes the pool in a folder that does not exist yet, and an empty file in it.
    pub(crate) fn create_in(folder: &Path, open: &OpenOptions) -> Result<Self> {
        Pool::init_directory(folder, &InitOptions::default())?;
        Self::begin(Pool::open_directory(folder, open)?, open)
    }

    /// The same with segments and a limit of one's own.
    pub(crate) fn create_in_with(folder: &Path, init: &InitOptions, open: &OpenOptions) -> Result<Self> {
        Pool::init_directory(folder, init)?;
        Self::begin(Pool::open_directory(folder, open)?, open)
    }

    /// The same on any storage.
    pub(crate) fn create_on(storage: Arc<dyn Storage>, open: &OpenOptions) -> Result<Self> {
        Self::create_with(storage, &InitOptions::default(), open)
    }

    /// The same on any storage, with segments and a limit of one's own.
    pub(crate) fn create_with(
        storage: Arc<dyn Storage>,
        init: &InitOptions,
        open: &OpenOptions,
    ) -> Result<Self> {
        Pool::init(Arc::clone(&storage), init)?;
        Self::begin(Pool::open(storage, open)?, open)
    }

    fn begin(pool: Pool, open: &OpenOptions) -> Result<Self> {
        pool.create_dataset(DATASET, false, &[])?;
        let dataset = pool.dataset(DATASET)?;
        let inode = dataset.create(InodeNumber::ROOT, NAME, &Creation::file())?.inode;
        Ok(Self { pool, options: open.clone(), dataset, inode })
    }

    /// Opens what an earlier life left behind: recovery happens here.
    pub(crate) fn open_in(folder: &Path, open: &OpenOptions) -> Result<Self> {
        let pool = Pool::open_directory(folder, open)?;
        let dataset = pool.dataset(DATASET)?;
        let inode = dataset
            .view()?
            .lookup(InodeNumber::ROOT, NAME)?
            .ok_or(icecore::Error::File(icecore::FileFault::NotFound))?
            .inode;
        Ok(Self { pool, options: open.clone(), dataset, inode })
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The file, open.
    pub(crate) fn file(&self) -> Result<File> {
        Ok(self.dataset.file(self.inode)?)
    }

    /// Its number in the dataset.
    pub(crate) fn inode(&self) -> InodeNumber {
        self.inode
    }

    /// Closes the pool.
    pub(crate) fn close(self) -> Result<()> {
        let Self { pool, dataset, .. } = self;
        drop(dataset);
        Ok(pool.close()?)
    }

    /// Waits until nothing goes on in the background, and answers since when.
    pub(crate) fn settle(&self) -> Result<Instant> {
        settle(&self.pool, &self.options)
    }

    pub(crate) fn size(&self) -> Result<u64> {
        Ok(self.dataset.view()?.attributes(self.inode)?.size)
    }

    /// Writes the whole file once, from beginning to end, durably.
    pub(crate) fn fill(&self, bytes: u64, random: &mut Random) -> Result<()> {
        let mut chunk = vec![0; FILL_CHUNK];
        random.fill(&mut chunk);
        self.fill_from(bytes, |offset| {
            chunk[..8].copy_from_slice(&offset.to_le_bytes());
            chunk.clone()
        })
    }

    /// The same, with zeros: what a storage that forgets data reads back.
    pub(crate) fn fill_with_zeros(&self, bytes: u64) -> Result<()> {
        self.fill_from(bytes, |_| vec![0; FILL_CHUNK])
    }

    fn fill_from(&self, bytes: u64, mut chunk: impl FnMut(u64) -> Vec<u8>) -> Result<()> {
        let mut offset = 0;
        while offset < bytes {
            let length = (bytes - offset).min(FILL_CHUNK as u64);
            let chunk = chunk(offset);
            self.dataset.write(self.inode, offset, &chunk[..length as usize])?;
            offset += length;
            if (offset / FILL_CHUNK as u64).is_multiple_of(FILL_SYNC_CHUNKS) {
                self.dataset.sync()?;
            }
        }
        Ok(self.dataset.sync()?)
    }

    pub(crate) fn write(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.dataset.write(self.inode, offset, data)?)
    }

    /// Durable on return.
    pub(crate) fn write_durable(&self, offset: u64, data: &[u8]) -> Result<()> {
        Ok(self.dataset.write_durable(self.inode, offset, data)?)
    }

    pub(crate) fn sync(&self) -> Result<()> {
        Ok(self.dataset.sync()?)
    }

    /// Takes a snapshot of the dataset.
    pub(crate) fn snapshot(&self, name: &str) -> Result<()> {
        self.pool.snapshot(&[format!("{DATASET}@{name}")], false, &[])?;
        Ok(())
    }
}
