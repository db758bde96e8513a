//! A SQLite database in a pool of its own, made anew for a run.

use crate::counters::Counters;
use crate::error::{Doing, Error, Result};
use crate::settle::settle;
use crate::sqlite;
use icecore::{DestroyTarget, InitOptions, ListFilter, OpenOptions, Pool};
use icecore_sqlite::Registration;
use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

const DATASET: &str = "db";
const FILE: &str = "app.db";

/// A pool with one dataset, for one database; open as long as this lives.
pub struct StoredDatabase {
    // Dropped in this order: no path leads to the pool any more when it is closed.
    registration: Registration,
    pool: Pool,
    options: OpenOptions,
    folder: PathBuf,
}

/// Space figures of the pool.
pub struct Sizes {
    /// Bytes that the dataset and all its snapshots hold.
    pub used_bytes: u64,
    /// Bytes that can be read in the present version.
    pub referenced_bytes: u64,
    /// Bytes that the pool's files take up on the host's filesystem.
    pub file_bytes: u64,
    /// The snapshots, oldest first.
    pub snapshots: Vec<SnapshotSize>,
}

/// Space figures of a snapshot.
pub struct SnapshotSize {
    /// Name without the dataset.
    pub name: String,
    /// Bytes that only it holds.
    pub used_bytes: u64,
    /// Bytes that can be read in it.
    pub referenced_bytes: u64,
}

impl StoredDatabase {
    /// Makes a pool in a folder that does not exist yet, and opens it.
    pub fn create(folder: &Path, open: &OpenOptions) -> Result<Self> {
        Self::create_limited(folder, &InitOptions::default(), open)
    }

    /// The same with a limit of one's own.
    pub fn create_limited(folder: &Path, init: &InitOptions, open: &OpenOptions) -> Result<Self> {
        Pool::init_directory(folder, init)?;
        Self::open(folder, open)
    }

    /// Opens an empty pool.
    pub fn open(folder: &Path, open: &OpenOptions) -> Result<Self> {
        let pool = Pool::open_directory(folder, open)?;
        pool.create_dataset(DATASET, false, &[])?;
        Self::register(pool, folder, open)
    }

    /// Opens a pool that this has made.
    pub(crate) fn reopen(folder: &Path, open: &OpenOptions) -> Result<Self> {
        Self::register(Pool::open_directory(folder, open)?, folder, open)
    }

    fn register(pool: Pool, folder: &Path, open: &OpenOptions) -> Result<Self> {
        icecore_sqlite::register().map_err(Error::Door)?;
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let name = format!("lab-{}", NAMES.fetch_add(1, Ordering::Relaxed));
        let registration = icecore_sqlite::register_pool(&name, pool.clone()).map_err(Error::Door)?;
        Ok(Self { registration, pool, options: open.clone(), folder: folder.to_owned() })
    }

    /// The URI of the database, as it is or as it was.
    #[must_use]
    pub fn uri(&self, snapshot: Option<&str>) -> String {
        self.uri_in(DATASET, snapshot)
    }

    fn uri_in(&self, dataset: &str, snapshot: Option<&str>) -> String {
        let path = Path::new(&self.registration.prefix()).join(dataset).join(FILE);
        icecore_sqlite::uri(&path, snapshot)
    }

    /// Makes another dataset, for another database.
    pub(crate) fn add_dataset(&self, dataset: &str) -> Result<()> {
        Ok(self.pool.create_dataset(dataset, false, &[])?)
    }

    /// As [`StoredDatabase::connect`], to the database of another dataset.
    pub(crate) fn connect_in(&self, dataset: &str, snapshot: Option<&str>) -> Result<Connection> {
        sqlite::open(&self.uri_in(dataset, snapshot), snapshot.is_some())
    }

    /// A connection to the present, for writing, or to a snapshot.
    pub fn connect(&self, snapshot: Option<&str>) -> Result<Connection> {
        sqlite::open(&self.uri(snapshot), snapshot.is_some())
    }

    /// Takes a snapshot through SQL, as an application does.
    pub fn snapshot(connection: &Connection, name: &str) -> Result<()> {
        Ok(connection.query_row("SELECT icecore_snapshot(?1)", [name], |_| Ok(()))?)
    }

    /// Takes a snapshot through the library.
    pub(crate) fn take(&self, name: &str) -> Result<()> {
        self.pool.snapshot(&[format!("{DATASET}@{name}")], false, &[])?;
        Ok(())
    }

    /// Destroys a snapshot.
    pub(crate) fn destroy(&self, name: &str) -> Result<()> {
        self.pool.destroy(&DestroyTarget::Snapshot(format!("{DATASET}@{name}")))?;
        Ok(())
    }

    /// Waits until nothing goes on in the background, and answers since when.
    pub fn settle(&self) -> Result<Instant> {
        settle(&self.pool, &self.options)
    }

    /// The store's counters since the pool was opened.
    #[must_use]
    pub fn counters(&self) -> Counters {
        Counters::of(&self.pool)
    }

    /// Space figures now.
    pub fn sizes(&self) -> Result<Sizes> {
        let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
        let entries = self.pool.list(&filter)?;
        let dataset = entries.iter().find(|entry| entry.name == DATASET);
        let snapshots = entries.iter().filter_map(|entry| {
            let (_, name) = entry.name.split_once('@')?;
            Some(SnapshotSize {
                name: name.to_owned(),
                used_bytes: entry.used.get(),
                referenced_bytes: entry.referenced.get(),
            })
        });
        Ok(Sizes {
            used_bytes: dataset.map_or(0, |entry| entry.used.get()),
            referenced_bytes: dataset.map_or(0, |entry| entry.referenced.get()),
            file_bytes: allocated_bytes(&self.folder)?,
            snapshots: snapshots.collect(),
        })
    }
}

/// Bytes allocated to the files directly in a folder.
fn allocated_bytes(folder: &Path) -> Result<u64> {
    let doing = || format!("measure {}", folder.display());
    let mut bytes = 0;
    for entry in fs::read_dir(folder).doing(doing)? {
        bytes += entry.doing(doing)?.metadata().doing(doing)?.blocks() * 512;
    }
    Ok(bytes)
}
