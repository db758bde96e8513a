//! The folder that copies lie in.

use crate::format::segment::Geometry;
use crate::format::superblock;
use crate::storage::{Storage, StorageLock};
use crate::units::SegmentId;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

/// Names of the copies of the two superblocks, where copies lie in a folder of their own.
pub(crate) const SUPERBLOCK_NAMES: [&str; 2] = ["copy.superblock.0", "copy.superblock.1"];

/// Name of the copy of a segment.
pub(crate) fn copy_name(segment: SegmentId) -> String {
    format!("copy.{:08}", segment.0)
}

/// The segment that a name of a copy stands for.
pub(crate) fn from_copy_name(name: &str) -> Option<SegmentId> {
    let digits = name.strip_prefix("copy.").or_else(|| name.strip_prefix("copy-unfinished."))?;
    let segment = SegmentId(digits.parse().ok()?);
    (copy_name(segment) == name || unfinished_name(segment) == name).then_some(segment)
}

/// Name of a copy that is being made of what was there before.
pub(super) fn unfinished_name(segment: SegmentId) -> String {
    format!("copy-unfinished.{:08}", segment.0)
}

/// Whether a file of this name belongs to copies.
pub(crate) fn is_copy_name(name: &str) -> bool {
    SUPERBLOCK_NAMES.contains(&name) || from_copy_name(name).is_some()
}

/// Whether a file of this name says that there is a pool, or the copies of one.
pub(crate) fn is_name_of_pool(name: &str) -> bool {
    let segment = crate::format::segment::from_file_name(name);
    is_copy_name(name) || superblock::NAMES.contains(&name) || segment.is_some()
}

/// A folder with copies, or for them.
#[derive(Clone)]
pub(crate) struct Place {
    pub(crate) storage: Arc<dyn Storage>,
    /// It is not the folder of the pool.
    pub(crate) elsewhere: bool,
    /// No other process writes there.
    _lock: Option<Arc<dyn StorageLock>>,
}

impl Place {
    /// The folder of the pool, which is locked.
    pub(crate) fn here(storage: &Arc<dyn Storage>) -> Self {
        Self { storage: Arc::clone(storage), elsewhere: false, _lock: None }
    }

    /// Another folder. `writable`: locked for as long as the place is held.
    pub(crate) fn elsewhere(storage: &Arc<dyn Storage>, folder: &str, writable: bool) -> io::Result<Self> {
        let storage = storage.sibling(folder)?;
        let lock = if writable { Some(Arc::from(storage.lock(true)?)) } else { None };
        Ok(Self { storage, elsewhere: true, _lock: lock })
    }

    /// Copies that are as long as they should be; others were left half made.
    pub(crate) fn list(&self, geometry: Geometry) -> io::Result<BTreeMap<SegmentId, ()>> {
        let whole = |(name, length): (String, u64)| {
            let segment = from_copy_name(&name).filter(|segment| copy_name(*segment) == name)?;
            (length >= geometry.bytes).then_some((segment, ()))
        };
        Ok(self.storage.list()?.into_iter().filter_map(whole).collect())
    }

    /// Nothing that is there under names of copies is a copy any more. Those that are as long as they should
    /// be, of segments for which `keeps` holds, stay under a name that means nothing, for what is in them can
    /// prove itself. The others go, for good.
    pub(crate) fn set_aside(&self, geometry: Geometry, keeps: impl Fn(SegmentId) -> bool) -> io::Result<()> {
        let whole = self.list(geometry)?;
        for segment in whole.into_keys().filter(|segment| keeps(*segment)) {
            self.storage.rename(&copy_name(segment), &unfinished_name(segment))?;
        }
        let is_kept = |name: &str| {
            from_copy_name(name).is_some_and(|segment| unfinished_name(segment) == name && keeps(segment))
        };
        self.clear(|name| !is_kept(name) && !SUPERBLOCK_NAMES.contains(&name))?;
        self.storage.sync_directory()
    }

    /// Copies that mean nothing under their name and are as long as they should be.
    pub(super) fn list_aside(&self, geometry: Geometry) -> io::Result<BTreeSet<SegmentId>> {
        let whole = |(name, length): (String, u64)| {
            let segment = from_copy_name(&name).filter(|segment| unfinished_name(*segment) == name)?;
            (length >= geometry.bytes).then_some(segment)
        };
        Ok(self.storage.list()?.into_iter().filter_map(whole).collect())
    }

    /// Removes the copies that `which` names, for good.
    pub(crate) fn clear(&self, which: impl Fn(&str) -> bool) -> io::Result<()> {
        let names = self.storage.list()?.into_iter().map(|(name, _)| name);
        let names: Vec<String> = names.filter(|name| is_copy_name(name) && which(name)).collect();
        // Superblocks last: they say whose copies these are.
        let is_superblock = |name: &String| SUPERBLOCK_NAMES.contains(&name.as_str());
        let (last, first): (Vec<String>, Vec<String>) = names.into_iter().partition(is_superblock);
        for names in [first, last].iter().filter(|names| !names.is_empty()) {
            names.iter().try_for_each(|name| self.storage.remove(name))?;
            self.storage.sync_directory()?;
        }
        Ok(())
    }
}
