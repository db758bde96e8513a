//! Icecore under SQLite, without a mount: a pool in ext4 on a loop device.

use super::icecore_mount::init_options;
use super::loopback::{self, EXT4, Loop};
use super::{Ground, Kind, System};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::sqlite::Journal;
use crate::stored::StoredDatabase;
use icecore::OpenOptions;
use rusqlite::Connection;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub(super) const KIND: Kind = Kind { name: "icecore-sqlite", snapshots: true, files: false, probe, begin };

/// Half of this much log makes a checkpoint. The default would make none in a run of a study.
const LOG_BYTES_MAX: u64 = 384 << 20;

struct IcecoreSqlite {
    // Dropped in this order. It is absent only while it begins anew, or after that failed.
    stored: Option<StoredDatabase>,
    ground: Loop,
    options: Options,
}

fn probe() -> Result<(), String> {
    loopback::probe(&EXT4, "e2fsprogs")
}

fn begin(ground: &Ground<'_>) -> Result<Box<dyn System>> {
    let below = Loop::begin(ground, &EXT4)?;
    ground.options.mounts.note(KIND.name, below.point())?;
    let stored =
        StoredDatabase::create_limited(&below.point().join("pool"), &init_options(ground), &open_options())?;
    Ok(Box::new(IcecoreSqlite { stored: Some(stored), ground: below, options: ground.options.clone() }))
}

fn open_options() -> OpenOptions {
    OpenOptions { log_bytes_max: LOG_BYTES_MAX, ..OpenOptions::default() }
}

impl IcecoreSqlite {
    fn stored(&self) -> Result<&StoredDatabase> {
        let gone = || Error::Mismatch { what: "the pool".to_owned(), detail: "it is gone".to_owned() };
        self.stored.as_ref().ok_or_else(gone)
    }
}

fn no_files<T>() -> Result<T> {
    let reason = "it has databases, and no files".to_owned();
    Err(Error::Inconclusive { what: format!("files on {}", KIND.name), reason })
}

impl System for IcecoreSqlite {
    fn data(&self) -> Result<PathBuf> {
        no_files()
    }

    fn snapshot(&mut self, name: &str) -> Result<()> {
        self.stored()?.take(name)
    }

    fn snapshot_folder(&self, _: &str) -> Result<PathBuf> {
        no_files()
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        self.stored()?.destroy(name)
    }

    fn held_bytes(&self, names: &[String]) -> Result<Vec<u64>> {
        let sizes = self.stored()?.sizes()?;
        let held: BTreeMap<&str, u64> =
            sizes.snapshots.iter().map(|snapshot| (snapshot.name.as_str(), snapshot.used_bytes)).collect();
        Ok(names.iter().map(|name| held.get(name.as_str()).copied().unwrap_or(0)).collect())
    }

    fn space_bytes(&self) -> Result<u64> {
        Ok(self.stored()?.sizes()?.used_bytes)
    }

    fn device(&self) -> &Device {
        self.ground.device()
    }

    fn cool(&mut self) -> Result<()> {
        drop(self.stored.take());
        self.ground.remount(&self.options)?;
        self.stored = Some(StoredDatabase::reopen(&self.ground.point().join("pool"), &open_options())?);
        Ok(())
    }

    fn rest(&self) -> Result<()> {
        self.stored()?.settle()?;
        self.ground.sync()
    }

    fn database(&self, _: Journal) -> Result<Connection> {
        self.stored()?.connect(None)
    }

    fn past_database(&self, name: &str, _: &Path, _: Journal) -> Result<Connection> {
        self.stored()?.connect(Some(name))
    }
}
