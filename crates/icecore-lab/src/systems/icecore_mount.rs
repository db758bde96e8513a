//! Icecore, mounted: a pool in ext4 on a loop device, so that it pays for the loop device as the other
//! systems do.

use super::loopback::{self, EXT4, Loop};
use super::mounted::{DATASET, Mounted};
use super::{Ground, Kind, System};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::settle::settle_by;
use icecore::units::ByteLength;
use icecore::{InitOptions, ListEntry, OpenOptions};
use std::collections::BTreeMap;
use std::path::PathBuf;

pub(super) const KIND: Kind = Kind { name: "icecore-mount", snapshots: true, files: true, probe, begin };

/// A pool with the segments of its defaults takes most of a device below this.
const SMALL_BYTES: u64 = 2 << 30;

struct IcecoreMount {
    // Dropped in this order. It is absent only while it begins anew, or after that failed.
    mounted: Option<Mounted>,
    ground: Loop,
    options: Options,
}

fn probe() -> Result<(), String> {
    loopback::probe(&EXT4, "e2fsprogs")?;
    super::has_file_system("fuse")?;
    super::has_program("fusermount3", "fuse3")
}

fn begin(ground: &Ground<'_>) -> Result<Box<dyn System>> {
    let options = ground.options.clone();
    let below = Loop::begin(ground, &EXT4)?;
    let mounted = Mounted::begin_limited(below.point(), &init_options(ground), &options)?;
    Ok(Box::new(IcecoreMount { mounted: Some(mounted), ground: below, options }))
}

/// A small device needs a limit, too: segments are smaller then.
pub(super) fn init_options(ground: &Ground<'_>) -> InitOptions {
    let limit = ground.limit.or((ground.bytes < SMALL_BYTES).then_some(ground.bytes / 4 * 3));
    let size_limit = limit.map(ByteLength);
    InitOptions { size_limit, ..InitOptions::default() }
}

/// The bytes that each of these snapshots of a dataset holds.
pub(super) fn held_bytes(entries: &[ListEntry], dataset: &str, names: &[String]) -> Vec<u64> {
    let held: BTreeMap<&str, u64> =
        entries.iter().map(|entry| (entry.name.as_str(), entry.used.get())).collect();
    names.iter().map(|name| held.get(format!("{dataset}@{name}").as_str()).copied().unwrap_or(0)).collect()
}

impl IcecoreMount {
    fn mounted(&self) -> Result<&Mounted> {
        let gone = || Error::Mismatch { what: "the mount".to_owned(), detail: "it is gone".to_owned() };
        self.mounted.as_ref().ok_or_else(gone)
    }
}

impl System for IcecoreMount {
    fn data(&self) -> Result<PathBuf> {
        Ok(self.mounted()?.point().to_owned())
    }

    fn snapshot(&mut self, name: &str) -> Result<()> {
        self.mounted()?.snapshot(name)
    }

    fn snapshot_folder(&self, name: &str) -> Result<PathBuf> {
        Ok(self.mounted()?.snapshot_folder(name))
    }

    fn destroy(&mut self, name: &str) -> Result<()> {
        self.mounted()?.destroy_snapshot(name)
    }

    fn held_bytes(&self, names: &[String]) -> Result<Vec<u64>> {
        Ok(held_bytes(&self.mounted()?.list()?, DATASET, names))
    }

    fn space_bytes(&self) -> Result<u64> {
        let entries = self.mounted()?.list()?;
        let dataset = entries.iter().find(|entry| entry.name == DATASET);
        Ok(dataset.map_or(0, |entry| entry.used.get()))
    }

    /// FUSE has no FIEMAP. The pool counts itself, between two mounts, as it has one owner at a time.
    fn extents(&mut self, name: &str, _: &Options) -> Result<Option<u64>> {
        let Some(mounted) = self.mounted.take() else { return self.mounted().map(|_| None) };
        let suspended = mounted.end();
        let counted = suspended.stretches(name);
        self.mounted = Some(suspended.begin(&self.options)?);
        counted.map(Some)
    }

    fn device(&self) -> &Device {
        self.ground.device()
    }

    fn cool(&mut self) -> Result<()> {
        // The pool must be closed before its file system is unmounted, and the mount point lies in that.
        let Some(mounted) = self.mounted.take() else { return self.mounted().map(|_| ()) };
        let suspended = mounted.end();
        self.ground.remount(&self.options)?;
        self.mounted = Some(suspended.begin(&self.options)?);
        Ok(())
    }

    fn rest(&self) -> Result<()> {
        let mounted = self.mounted()?;
        mounted.sync()?;
        settle_by(|| mounted.statistics(), &OpenOptions::default(), "the pool of the mount")?;
        self.ground.sync()
    }
}
