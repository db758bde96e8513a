//! Walks over a whole namespace, for those who check.

use super::directory;
use super::file::extent_bounds;
use super::inode::{InodeItem, InodeKind, damaged};
use super::orphan::orphan_key;
use super::read::Read;
use crate::error::{Error, Result};
use crate::tree::{Item, ItemKind, Key, NodeSource, Tree};
use crate::units::{FileBlock, InodeNumber, Run};
use std::collections::BTreeMap;

/// Visits every data run that a version refers to: the inode, its first block there, the run.
pub fn data_runs(
    tree: &Tree,
    source: &dyn NodeSource,
    visit: &mut dyn FnMut(InodeNumber, FileBlock, Run) -> Result<()>,
) -> Result<()> {
    tree.nodes(source, &mut |_, node| {
        for (key, item) in node.items() {
            if let Item::Extent(extent) = item.to_item() {
                visit(key.inode(), FileBlock(key.offset()), extent.run)?;
            }
        }
        Ok(())
    })
}

/// Reads a namespace in full and verifies that it is one: every entry leads to an inode of its kind, links,
/// sizes, blocks and counters are what they should be, no extents overlap. `Damaged` names what is not.
///
/// Takes memory for every inode.
pub fn check(items: &impl Read) -> Result<()> {
    let mut inodes: BTreeMap<InodeNumber, (InodeItem, u64)> = BTreeMap::new();
    items.scan(Key::MIN, Key::MAX, &mut |key, _| {
        if key.kind() == Some(ItemKind::Inode) {
            if key.offset() != 0 {
                return Err(damaged(key.inode(), "it has attributes twice"));
            }
            inodes.insert(key.inode(), (items.inode(key.inode())?, 0));
        } else if key.inode().0 != 0 && !inodes.contains_key(&key.inode()) {
            return Err(damaged(key.inode(), "it has items but no attributes"));
        }
        Ok(true)
    })?;
    let directories: Vec<_> =
        inodes.iter().filter(|(_, (item, _))| item.kind == InodeKind::Directory).collect();
    let directories: Vec<_> = directories.into_iter().map(|(inode, (item, _))| (*inode, *item)).collect();
    for (inode, item) in &directories {
        check_directory(items, *inode, item, &mut inodes)?;
    }
    for (inode, (item, names)) in &inodes {
        check_inode(items, *inode, item, *names)?;
    }
    let counters = items.super_item()?;
    let last = inodes.last_key_value().map_or(0, |(inode, _)| inode.0);
    if counters.inodes != inodes.len() as u64 || counters.next_inode <= last {
        return Err(Error::damaged("the counters of the dataset", "they do not fit its inodes"));
    }
    items.orphans(&mut |inode| match inodes.get(&inode) {
        Some((item, _)) if item.links == 0 => Ok(true),
        _ => Err(damaged(inode, "it is listed as an orphan and is none")),
    })
}

/// Counts the names that the entries of a directory give.
fn check_directory(
    items: &impl Read,
    inode: InodeNumber,
    item: &InodeItem,
    inodes: &mut BTreeMap<InodeNumber, (InodeItem, u64)>,
) -> Result<()> {
    let (mut count, mut below) = (0, 0);
    items.entries(inode, 0, &mut |entry| {
        count += 1;
        let Some((target, names)) = inodes.get_mut(&entry.inode) else {
            return Err(damaged(entry.inode, "a directory leads to it, and it does not exist"));
        };
        *names += 1;
        if target.kind == InodeKind::Directory {
            below += 1;
            if target.parent != inode {
                return Err(damaged(entry.inode, "it is not in the directory that it says"));
            }
        }
        if target.kind != entry.kind || directory::lookup(items, inode, &entry.name)? != entry {
            return Err(damaged(inode, "an entry is not what it says"));
        }
        Ok(true)
    })?;
    let links = if item.links == 0 { 0 } else { 2 };
    if item.size != count || u64::from(item.links) != links + below {
        return Err(damaged(inode, "its entries are not as many as it says"));
    }
    Ok(())
}

fn check_inode(items: &impl Read, inode: InodeNumber, item: &InodeItem, names: u64) -> Result<()> {
    let expected = match item.kind {
        InodeKind::Directory => u64::from(item.links > 0 && inode != InodeNumber::ROOT),
        _ => u64::from(item.links),
    };
    if names != expected {
        return Err(damaged(inode, "its links are not as many as its names"));
    }
    if (item.links == 0) != items.item(orphan_key(inode))?.is_some() {
        return Err(damaged(inode, "it has no name and is no orphan, or the other way round"));
    }
    if item.kind == InodeKind::Symlink {
        items.link_target(inode)?;
    }
    for name in items.xattr_names(inode)? {
        items.xattr(inode, &name)?;
    }
    let (from, to) = extent_bounds(inode);
    let (mut blocks, mut end) = (0, 0);
    items.scan(from, to, &mut |key, content| {
        if key.offset() < end || item.kind != InodeKind::File {
            return Err(damaged(inode, "extents overlap, or are where none should be"));
        }
        let length = content.extent().map_or(0, |extent| extent.run.length.0);
        blocks += length;
        end = key.offset().saturating_add(length);
        Ok(true)
    })?;
    if blocks != item.blocks {
        return Err(damaged(inode, "its blocks are not as many as it says"));
    }
    Ok(())
}
