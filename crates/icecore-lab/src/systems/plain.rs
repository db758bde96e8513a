//! The file system of the folder that is measured. It has no snapshots.

use super::{Ground, Kind, System};
use crate::device::{Device, drop_cached};
use crate::error::{Doing, Result};
use std::fs;
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

impl System for Plain {
    fn data(&self) -> Result<PathBuf> {
        Ok(self.folder.clone())
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
        super::write_dirty(&self.folder)
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
