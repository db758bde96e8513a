//! What changed between two versions: files, and byte ranges within files.

use super::Pool;
use crate::error::{Error, Result};
use crate::namespace::{InodeItem, InodeKind, Read, TreeReader};
use crate::tree::{Item, ItemKind, Key, Tree};
use crate::units::{BLOCK_BYTES, BlockCount, InodeNumber, Run};
use crate::view::View;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A range of bytes of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ByteRange {
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

/// What happened to a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// It is only in the newer version.
    Added,
    /// It is only in the older version.
    Removed,
    /// It has another name; the older one.
    Renamed(Vec<u8>),
    /// Its content or its attributes differ.
    Modified,
}

/// A file that differs between two versions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DiffEntry {
    /// Path below the root of the dataset, in the newer version if it is there.
    pub path: Vec<u8>,
    /// What happened.
    pub change: Change,
    /// Whether it is a directory.
    pub directory: bool,
    /// Parts of its content that differ, in order, whole blocks clipped to the file.
    pub ranges: Vec<ByteRange>,
}

impl Pool {
    /// What changed from one version to another of the same history, ordered by path. Costs what changed, not
    /// what there is: parts of the trees that both share are not looked at.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Damaged`], [`Error::Io`]; [`Error::Invalid`] if they have no version in
    /// common that both come from: then an inode number means another file in each.
    pub fn diff(&self, from: &str, to: &str) -> Result<Vec<DiffEntry>> {
        let (from, to) = (self.view(from)?, self.view(to)?);
        self.require_common_history(&from, &to)?;
        let mut changed: BTreeMap<InodeNumber, Vec<ByteRange>> = BTreeMap::new();
        let mut extents: BTreeSet<InodeNumber> = BTreeSet::new();
        let nodes = &*self.engine().nodes;
        Tree::difference(from.tree(), to.tree(), nodes, &mut |key, before, after| {
            note(key, before.as_ref(), after.as_ref(), &mut changed, &mut extents);
            Ok(())
        })?;
        for inode in extents {
            changed.insert(inode, changed_ranges(&from, &to, inode)?);
        }
        let (old_paths, new_paths) = (Paths::new(&from), Paths::new(&to));
        let mut entries = Vec::new();
        for (inode, ranges) in changed {
            entries.extend(entry(inode, ranges, (&from, &old_paths), (&to, &new_paths))?);
        }
        entries.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(entries)
    }
}

impl Pool {
    fn require_common_history(&self, from: &View, to: &View) -> Result<()> {
        let state = self.engine().state();
        let first = |view: &View| {
            std::iter::successors(Some(view.version()), |version| state.parent(*version)).last()
        };
        if first(from) == first(to) {
            return Ok(());
        }
        let (from, to) = (from.name(), to.name());
        Err(Error::Invalid(format!(
            "{from} and {to} have no history in common: compare versions of one dataset, or of one and its clone"
        )))
    }
}

fn note(
    key: Key,
    before: Option<&Item>,
    after: Option<&Item>,
    changed: &mut BTreeMap<InodeNumber, Vec<ByteRange>>,
    extents: &mut BTreeSet<InodeNumber>,
) {
    if key.inode() == InodeNumber(0) || before == after {
        return;
    }
    changed.entry(key.inode()).or_default();
    match key.kind() {
        Some(ItemKind::Extent) => drop(extents.insert(key.inode())),
        // A renamed file has no change of its own but for its time: its entry says which it is.
        Some(ItemKind::DirectoryEntry) => {
            for item in [before, after].into_iter().flatten() {
                if let Ok(entry) = crate::namespace::decode_entry(key, item) {
                    changed.entry(entry.inode).or_default();
                }
            }
        }
        _ => {}
    }
}

fn attributes(view: &View, inode: InodeNumber) -> Result<Option<InodeItem>> {
    match view.attributes(inode) {
        Ok(item) => Ok(Some(item)),
        Err(Error::File(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn entry(
    inode: InodeNumber,
    ranges: Vec<ByteRange>,
    (from, old_paths): (&View, &Paths<'_>),
    (to, new_paths): (&View, &Paths<'_>),
) -> Result<Option<DiffEntry>> {
    let before = attributes(from, inode)?;
    let after = attributes(to, inode)?;
    // A number can stand for another file in another history.
    let same = matches!((&before, &after), (Some(a), Some(b)) if a.generation == b.generation);
    let old_path = if before.is_some() { old_paths.of(inode)? } else { None };
    let new_path = if after.is_some() { new_paths.of(inode)? } else { None };
    let directory = after.or(before).is_some_and(|item| item.kind == InodeKind::Directory);
    let (path, change) = match (old_path, new_path) {
        (None, None) => return Ok(None),
        (None, Some(path)) => (path, Change::Added),
        (Some(path), None) => (path, Change::Removed),
        (Some(_), Some(path)) if !same => (path, Change::Modified),
        (Some(old), Some(path)) if old != path => (path, Change::Renamed(old)),
        (Some(_), Some(path)) => (path, Change::Modified),
    };
    Ok(Some(DiffEntry { path, change, directory, ranges }))
}

/// Blocks of a file that lie at other addresses, as byte ranges.
fn changed_ranges(from: &View, to: &View, inode: InodeNumber) -> Result<Vec<ByteRange>> {
    let runs = |view: &View| -> Result<BTreeMap<u64, Run>> {
        let mut runs = BTreeMap::new();
        let end = crate::units::FileBlock(u64::MAX >> crate::units::BLOCK_SHIFT);
        view.reader().extents(inode, crate::units::FileBlock(0), end, &mut |block, run| {
            runs.insert(block.0, run);
            Ok(true)
        })?;
        Ok(runs)
    };
    let (before, after) = (runs(from)?, runs(to)?);
    let mut borders: BTreeSet<u64> = BTreeSet::new();
    for (block, run) in before.iter().chain(&after) {
        borders.extend([*block, block + run.length.0]);
    }
    let size = attributes(from, inode)?.map_or(0, |item| item.size);
    let size = size.max(attributes(to, inode)?.map_or(0, |item| item.size));
    let borders: Vec<u64> = borders.into_iter().collect();
    let mut ranges: Vec<ByteRange> = Vec::new();
    for pair in borders.windows(2) {
        if place(&before, pair[0]) == place(&after, pair[0]) {
            continue;
        }
        let offset = pair[0] * BLOCK_BYTES as u64;
        let end = (pair[1] * BLOCK_BYTES as u64).min(size);
        if offset >= end {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.offset + last.length == offset => last.length += end - offset,
            _ => ranges.push(ByteRange { offset, length: end - offset }),
        }
    }
    Ok(ranges)
}

fn place(runs: &BTreeMap<u64, Run>, block: u64) -> Option<(crate::units::Stream, u64)> {
    let (start, run) = runs.range(..=block).next_back()?;
    let within = block - start;
    (within < run.length.0).then(|| (run.stream, run.start.plus(BlockCount(within)).0))
}

/// Finds paths of inodes by walking the directories once, when the first one is asked for.
struct Paths<'a> {
    view: &'a View,
    found: std::cell::OnceCell<BTreeMap<InodeNumber, Vec<u8>>>,
}

impl<'a> Paths<'a> {
    fn new(view: &'a View) -> Self {
        Self { view, found: std::cell::OnceCell::new() }
    }

    fn of(&self, inode: InodeNumber) -> Result<Option<Vec<u8>>> {
        if self.found.get().is_none() {
            let mut found = BTreeMap::from([(InodeNumber::ROOT, b"/".to_vec())]);
            walk(&self.view.reader(), &mut |inode, path| {
                found.entry(inode).or_insert(path);
                true
            })?;
            let _ = self.found.set(found);
        }
        Ok(self.found.get().and_then(|found| found.get(&inode)).cloned())
    }
}

/// Tells the path of every file below the root, one for each of its names, as long as `visit` answers `true`.
pub(crate) fn walk(
    reader: &TreeReader<'_>,
    visit: &mut dyn FnMut(InodeNumber, Vec<u8>) -> bool,
) -> Result<()> {
    let mut open = vec![(InodeNumber::ROOT, Vec::new())];
    let mut goes_on = true;
    while let Some((directory, path)) = open.pop().filter(|_| goes_on) {
        reader.entries(directory, 0, &mut |entry| {
            let mut inner = path.clone();
            if !inner.is_empty() {
                inner.push(b'/');
            }
            inner.extend_from_slice(&entry.name);
            if entry.kind == InodeKind::Directory {
                open.push((entry.inode, inner.clone()));
            }
            goes_on = visit(entry.inode, inner);
            Ok(goes_on)
        })?;
    }
    Ok(())
}
