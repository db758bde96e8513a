//! Who sees a block: the versions that reach it, and the file that it belongs to.

use super::super::diff;
use super::Finding;
use crate::engine::Engine;
use crate::namespace::{TreeReader, data_runs};
use crate::tree::{Key, Tree};
use crate::units::{BLOCK_BYTES, BlockCount, FileBlock, InodeNumber, LogAddress, Run, Stream, VersionId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Every version, by number, with its full name.
pub(super) type Versions = Vec<(VersionId, String, Tree)>;

/// Completes findings about blocks: one walk of a tree for all that its version sees.
pub(super) fn complete(engine: &Engine, versions: &Versions, found: &mut [(Run, Finding)]) {
    let mut first_seen: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    {
        let state = engine.state();
        for (index, (block, finding)) in found.iter_mut().enumerate() {
            let sees = |(version, ..): &(VersionId, String, Tree)| {
                state.history.reaches(*version, block.stream, block.start).unwrap_or(false)
            };
            for (place, version) in versions.iter().enumerate().filter(|(_, version)| sees(version)) {
                if finding.versions.is_empty() {
                    first_seen.entry(place).or_default().push(index);
                }
                finding.versions.push(version.1.clone());
            }
        }
    }
    for (place, indices) in first_seen {
        let tree = &versions[place].2;
        name_files(engine, tree, &indices, found);
        name_hidden(engine, tree, &indices, found);
    }
}

/// Finds the files that data blocks belong to, and their paths.
fn name_files(engine: &Engine, tree: &Tree, indices: &[usize], found: &mut [(Run, Finding)]) {
    let mut wanted: BTreeMap<(Stream, LogAddress), usize> = BTreeMap::new();
    for index in indices {
        let (block, _) = &found[*index];
        if block.stream != Stream::Node {
            wanted.insert((block.stream, block.start), *index);
        }
    }
    if wanted.is_empty() {
        return;
    }
    // A damaged node on the way only means that the file is not named.
    let _ = data_runs(tree, &*engine.nodes, &mut |inode, first, run| {
        for ((_, address), index) in wanted.range((run.stream, run.start)..(run.stream, run.end())) {
            let offset = first.offset() + (address.0 - run.start.0) * BLOCK_BYTES as u64;
            found[*index].1.file = Some((inode.0, offset));
        }
        Ok(())
    });
    let mut paths = BTreeMap::new();
    let _ = diff::walk(&TreeReader::new(tree, &*engine.nodes), &mut paths);
    for index in wanted.values() {
        let finding = &mut found[*index].1;
        finding.path = finding.file.and_then(|(inode, _)| paths.get(&InodeNumber(inode)).cloned());
    }
}

/// Says what lies below a damaged node.
fn name_hidden(engine: &Engine, tree: &Tree, indices: &[usize], found: &mut [(Run, Finding)]) {
    let wanted: BTreeMap<LogAddress, usize> = indices
        .iter()
        .filter(|index| found[**index].0.stream == Stream::Node)
        .map(|index| (found[*index].0.start, *index))
        .collect();
    if wanted.is_empty() {
        return;
    }
    let mut hidden: Vec<(usize, Range<Key>)> = Vec::new();
    let mut lost = Vec::new();
    tree.salvage(
        &*engine.nodes,
        &mut |address, _, keys| {
            hidden.extend(wanted.get(&address).map(|index| (*index, keys)));
            true
        },
        &mut |gone| lost.push((gone.address, gone.low..gone.high)),
    );
    hidden.extend(lost.into_iter().filter_map(|(address, keys)| Some((*wanted.get(&address)?, keys))));
    for (index, keys) in hidden {
        found[index].1.hides = Some(describe(&keys));
    }
}

/// What a range of keys stands for, in words.
pub(crate) fn describe(keys: &Range<Key>) -> String {
    let (low, high) = (keys.start, keys.end);
    let extents = |key: Key| key.kind() == Some(crate::tree::ItemKind::Extent);
    if low == Key::MIN && high == Key::MAX {
        return "everything in it".to_owned();
    }
    if high == Key::MAX {
        return format!("part of the file with inode {}, and all with higher numbers", low.inode());
    }
    if low.inode() != high.inode() {
        return format!("files with inodes {} to {}, or parts of them", low.inode(), high.inode());
    }
    if extents(low) && extents(high) {
        let bytes = |key: Key| FileBlock(key.offset()).offset();
        return format!("bytes {} to {} of the file with inode {}", bytes(low), bytes(high), low.inode());
    }
    format!("part of the file or directory with inode {}", low.inode())
}

/// One block as a run.
pub(super) const fn one(stream: Stream, address: LogAddress) -> Run {
    Run { stream, start: address, length: BlockCount(1) }
}
