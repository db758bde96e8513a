//! The file system of the folder that is measured. It has no snapshots.

use super::{Ground, Kind, System};
use crate::device::{Device, drop_cached};
use crate::error::{Doing, Error, Result};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

pub(super) const KIND: Kind = Kind { name: "plain", snapshots: false, files: true, probe: || Ok(()), begin };

struct Plain {
    folder: PathBuf,
    device: Device,
}

fn begin(ground: &Ground<'_>) -> Result<Box<dyn System>> {
    let folder = ground.folder.join("plain");
    fs::create_dir(&folder).doing(|| format!("make {}", folder.display()))?;
    let device = Device::of(&folder)?;
    Ok(Box::new(Plain { folder, device }))
}

/// The answer of a system without snapshots.
pub(super) fn no_snapshots<T>(system: &str) -> Result<T> {
    let reason = "it has no snapshots".to_owned();
    Err(Error::Inconclusive { what: format!("a snapshot on {system}"), reason })
}

impl System for Plain {
    fn data(&self) -> Result<PathBuf> {
        Ok(self.folder.clone())
    }

    fn snapshot(&mut self, _: &str) -> Result<()> {
        no_snapshots(KIND.name)
    }

    fn snapshot_folder(&self, _: &str) -> Result<PathBuf> {
        no_snapshots(KIND.name)
    }

    fn destroy(&mut self, _: &str) -> Result<()> {
        no_snapshots(KIND.name)
    }

    fn held_bytes(&self, _: &[String]) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    fn space_bytes(&self) -> Result<u64> {
        allocated_below(&self.folder)
    }

    fn device(&self) -> &Device {
        &self.device
    }

    fn cool(&mut self) -> Result<()> {
        drop_cached_below(&self.folder)
    }

    fn rest(&self) -> Result<()> {
        let doing = || format!("write what is dirty in {}", self.folder.display());
        rustix::fs::syncfs(File::open(&self.folder).doing(doing)?).doing(doing)
    }
}

/// Bytes allocated to the files below a folder: others use its file system, too.
fn allocated_below(folder: &Path) -> Result<u64> {
    let doing = || format!("measure {}", folder.display());
    let mut bytes = 0;
    for entry in fs::read_dir(folder).doing(doing)? {
        let entry = entry.doing(doing)?;
        let found = entry.metadata().doing(doing)?;
        bytes += found.blocks() * 512 + if found.is_dir() { allocated_below(&entry.path())? } else { 0 };
    }
    Ok(bytes)
}

fn drop_cached_below(folder: &Path) -> Result<()> {
    drop_cached(folder)?;
    let doing = || format!("list {}", folder.display());
    for entry in fs::read_dir(folder).doing(doing)? {
        let path = entry.doing(doing)?.path();
        if path.is_dir() {
            drop_cached_below(&path)?;
        }
    }
    Ok(())
}
