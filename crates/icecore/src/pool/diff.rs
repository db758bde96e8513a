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
        let mut changed: BTreeSet<InodeNumber> = BTreeSet::new();
        let mut extents: BTreeSet<InodeNumber> = BTreeSet::new();
        let nodes = &*self.engine().nodes;
        Tree::difference(from.tree(), to.tree(), nodes, &mut |key, before, after| {
            note(key, before.as_ref(), after.as_ref(), &mut changed, &mut extents);
            Ok(())
        })?;
        let (from, to) = (Side::new(&from), Side::new(&to));
        let mut entries = Vec::new();
        for inode in changed {
            entries.extend(entries_of(inode, extents.contains(&inode), &from, &to)?);
        }
        // Stable: what was removed comes before what has its name now.
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
    changed: &mut BTreeSet<InodeNumber>,
    extents: &mut BTreeSet<InodeNumber>,
) {
    if key.inode() == InodeNumber(0) || before == after {
        return;
    }
    changed.insert(key.inode());
    match key.kind() {
        Some(ItemKind::Extent) => drop(extents.insert(key.inode())),
        // A renamed file has no change of its own but for its time: its entry says which it is.
        Some(ItemKind::DirectoryEntry) => {
            for item in [before, after].into_iter().flatten() {
                if let Ok(entry) = crate::namespace::decode_entry(key, item) {
                    changed.insert(entry.inode);
                }
            }
        }
        _ => {}
    }
}

/// What became of a file, by its names: one entry for each that came, went or changed into another.
fn entries_of(
    inode: InodeNumber,
    has_other_blocks: bool,
    from: &Side<'_>,
    to: &Side<'_>,
) -> Result<Vec<DiffEntry>> {
    let (before, after) = (from.attributes(inode)?, to.attributes(inode)?);
    let (old_names, new_names) = (from.names(inode)?, to.names(inode)?);
    let directory = after.or(before).is_some_and(|item| item.kind == InodeKind::Directory);
    let entry = |path: &Vec<u8>, change, ranges| DiffEntry { path: path.clone(), change, directory, ranges };
    // A number can stand for another file in another history.
    let is_same = inode == InodeNumber::ROOT
        || matches!((&before, &after), (Some(before), Some(after)) if before.generation == after.generation);
    let ranges = |from, to| if has_other_blocks { changed_ranges(from, to, inode) } else { Ok(Vec::new()) };
    if !is_same {
        let (gone, come) = (ranges(Some(from), None)?, ranges(None, Some(to))?);
        let removed = old_names.iter().map(|path| entry(path, Change::Removed, gone.clone()));
        let added = new_names.iter().map(|path| entry(path, Change::Added, come.clone()));
        return Ok(removed.chain(added).collect());
    }
    let ranges = ranges(Some(from), Some(to))?;
    let only = |these: &'_ [Vec<u8>], those: &[Vec<u8>]| -> Vec<Vec<u8>> {
        these.iter().filter(|name| !those.contains(name)).cloned().collect()
    };
    let (gone, come) = (only(&old_names, &new_names), only(&new_names, &old_names));
    let renamed = gone.len().min(come.len());
    let pairs = gone.iter().zip(&come);
    let mut entries: Vec<DiffEntry> =
        pairs.map(|(old, new)| entry(new, Change::Renamed(old.clone()), ranges.clone())).collect();
    entries.extend(gone[renamed..].iter().map(|path| entry(path, Change::Removed, Vec::new())));
    entries.extend(come[renamed..].iter().map(|path| entry(path, Change::Added, Vec::new())));
    // A file that gets or loses a name has another time and number of names: that alone is no change of it.
    let kept = new_names.iter().find(|name| old_names.contains(name));
    if let Some(kept) = kept.filter(|_| entries.is_empty() || !ranges.is_empty()) {
        entries.push(entry(kept, Change::Modified, ranges));
    }
    Ok(entries)
}

/// Blocks of a file that lie at other addresses, as byte ranges. One side may lack.
fn changed_ranges(
    from: Option<&Side<'_>>,
    to: Option<&Side<'_>>,
    inode: InodeNumber,
) -> Result<Vec<ByteRange>> {
    let runs = |side: Option<&Side<'_>>| -> Result<BTreeMap<u64, Run>> {
        let mut runs = BTreeMap::new();
        let Some(Side { view, .. }) = side else { return Ok(runs) };
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
    let mut size = 0;
    for side in [from, to].into_iter().flatten() {
        size = side.attributes(inode)?.map_or(0, |item| item.size).max(size);
    }
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

/// One of the two versions.
struct Side<'a> {
    view: &'a View,
    /// All names of each file, found by one walk through the directories when the first is asked for.
    names: std::cell::OnceCell<BTreeMap<InodeNumber, Vec<Vec<u8>>>>,
}

impl<'a> Side<'a> {
    fn new(view: &'a View) -> Self {
        Self { view, names: std::cell::OnceCell::new() }
    }

    fn attributes(&self, inode: InodeNumber) -> Result<Option<InodeItem>> {
        match self.view.attributes(inode) {
            Ok(item) => Ok(Some(item)),
            Err(Error::File(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The paths of a file, in order. An orphan has none.
    fn names(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        if self.names.get().is_none() {
            let mut names = BTreeMap::from([(InodeNumber::ROOT, vec![b"/".to_vec()])]);
            walk(&self.view.reader(), &mut |inode, path| {
                names.entry(inode).or_default().push(path);
                true
            })?;
            names.values_mut().for_each(|names| names.sort_unstable());
            let _ = self.names.set(names);
        }
        Ok(self.names.get().and_then(|names| names.get(&inode)).cloned().unwrap_or_default())
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
