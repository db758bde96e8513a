//! What is visible on a mount, by number.
//!
//! A node is the index of a tree and an inode number in it: `index << 40 | inode`. Nothing is kept for each
//! node, so there is nothing to forget. A dataset that was rolled back gets another index: nodes of its
//! former state stay stale for ever, and what the kernel holds for them is never mixed up with the present.

use crate::protocol::{Errno, NodeId, Outcome};
use icecore::Dataset;
use icecore::units::{DatasetId, INODE_NUMBER_LIMIT, InodeNumber, VersionId};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const INODE_BITS: u32 = 40;
/// Trees by number.
const TREES_MAX: usize = 1 << (64 - INODE_BITS);

/// What a tree shows.
#[derive(Clone)]
pub(crate) enum Place {
    /// All datasets at the top, as folders.
    Pool,
    /// The head of a dataset.
    Head(Dataset),
    /// A snapshot. No view of it is kept: that would keep space from being freed.
    Snapshot(VersionId),
    /// `.icecore` in the root of a dataset.
    Control(DatasetId),
    /// `.icecore/snapshots`.
    Snapshots(DatasetId),
}

/// What a tree is found by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key {
    Pool,
    Head(DatasetId),
    Snapshot(DatasetId, VersionId),
    Control(DatasetId),
    Snapshots(DatasetId),
}

/// One tree that is visible.
pub(crate) struct Tree {
    pub index: u32,
    pub key: Key,
    pub place: Place,
    /// The tree in whose root it appears, and its name there. The root of the mount has none.
    seen_as: RwLock<Option<(Key, Vec<u8>)>>,
    /// Held by every request while it works on the tree; held alone by what makes the tree stale.
    pub gate: RwLock<()>,
    stale: AtomicBool,
}

impl Tree {
    /// Where it appears: the tree in whose root, and the name there.
    pub fn seen_as(&self) -> Option<(Key, Vec<u8>)> {
        self.seen_as.read().clone()
    }

    /// It appears there now: datasets and snapshots can be renamed.
    pub fn appear(&self, above: Key, name: &[u8]) {
        let is_there = matches!(&*self.seen_as.read(), Some((key, known)) if *key == above && known == name);
        if !is_there {
            *self.seen_as.write() = Some((above, name.to_vec()));
        }
    }

    /// Whether a node that is not the root of the mount is in this tree.
    pub fn contains(&self, node: NodeId) -> bool {
        node != NodeId::ROOT && node.0 >> INODE_BITS == u64::from(self.index)
    }

    /// Refuses a tree that is not the present any more. Call it with the gate held.
    pub fn check(&self) -> Outcome<()> {
        if self.stale.load(Ordering::Acquire) { Err(Errno(libc::ESTALE)) } else { Ok(()) }
    }

    /// The dataset whose head it is.
    pub fn head(&self) -> Option<&Dataset> {
        match &self.place {
            Place::Head(dataset) => Some(dataset),
            _ => None,
        }
    }

    fn mark_stale(&self) {
        self.stale.store(true, Ordering::Release);
    }
}

#[derive(Default)]
struct Known {
    trees: Vec<Arc<Tree>>,
    by_key: HashMap<Key, u32>,
    root: u32,
}

/// All trees that were looked up so far.
pub(crate) struct Trees(RwLock<Known>);

impl Trees {
    /// With the tree at the root of the mount.
    pub fn new(key: Key, place: Place) -> Self {
        let trees = Self(RwLock::default());
        trees.add(key, place, None).expect("the first of many");
        trees
    }

    /// The tree with this key, made known if it is not yet. `seen_as`: where it appears.
    pub fn find_or_add(&self, key: Key, place: Place, seen_as: (Key, &[u8])) -> Outcome<Arc<Tree>> {
        if let Some(tree) = self.find(key) {
            tree.appear(seen_as.0, seen_as.1);
            return Ok(tree);
        }
        self.add(key, place, Some((seen_as.0, seen_as.1.to_vec())))
    }

    fn add(&self, key: Key, place: Place, seen_as: Option<(Key, Vec<u8>)>) -> Outcome<Arc<Tree>> {
        let mut known = self.0.write();
        if let Some(index) = known.by_key.get(&key) {
            return Ok(Arc::clone(&known.trees[*index as usize]));
        }
        let index = known.trees.len();
        if index >= TREES_MAX {
            return Err(Errno(libc::EOVERFLOW));
        }
        let index = index as u32;
        let tree = Arc::new(Tree {
            index,
            key,
            place,
            seen_as: RwLock::new(seen_as),
            gate: RwLock::new(()),
            stale: AtomicBool::new(false),
        });
        known.trees.push(Arc::clone(&tree));
        known.by_key.insert(key, index);
        Ok(tree)
    }

    /// The tree with this key.
    pub fn find(&self, key: Key) -> Option<Arc<Tree>> {
        let known = self.0.read();
        known.by_key.get(&key).map(|index| Arc::clone(&known.trees[*index as usize]))
    }

    /// All trees that are not stale.
    pub fn present(&self) -> Vec<Arc<Tree>> {
        let known = self.0.read();
        known.by_key.values().map(|index| Arc::clone(&known.trees[*index as usize])).collect()
    }

    /// The tree at the root of the mount.
    pub fn root(&self) -> Arc<Tree> {
        let known = self.0.read();
        Arc::clone(&known.trees[known.root as usize])
    }

    /// The tree and the inode that a node is.
    pub fn resolve(&self, node: NodeId) -> Outcome<(Arc<Tree>, InodeNumber)> {
        let known = self.0.read();
        let index = if node == NodeId::ROOT { known.root } else { (node.0 >> INODE_BITS) as u32 };
        let tree = known.trees.get(index as usize).ok_or(Errno(libc::ESTALE))?;
        Ok((Arc::clone(tree), InodeNumber(node.0 & (INODE_NUMBER_LIMIT - 1))))
    }

    /// The node of an inode.
    pub fn node(&self, tree: u32, inode: InodeNumber) -> Outcome<NodeId> {
        if inode.0 >= INODE_NUMBER_LIMIT {
            return Err(Errno(libc::EOVERFLOW));
        }
        if inode == InodeNumber::ROOT && tree == self.0.read().root {
            return Ok(NodeId::ROOT);
        }
        Ok(NodeId(u64::from(tree) << INODE_BITS | inode.0))
    }

    /// Makes a tree stale. The root of the mount is replaced by the same dataset, with another index. Call it
    /// with the gate of the tree held alone.
    pub fn retire(&self, tree: &Tree) {
        tree.mark_stale();
        let is_root = {
            let mut known = self.0.write();
            if known.by_key.get(&tree.key) == Some(&tree.index) {
                known.by_key.remove(&tree.key);
            }
            known.root == tree.index
        };
        if is_root && let Ok(next) = self.add(tree.key, tree.place.clone(), None) {
            self.0.write().root = next.index;
        }
    }

    /// Makes a tree stale that has no present any more: what it shows was destroyed, or has another name.
    /// Call it with the gate of the tree held alone.
    pub fn bury(&self, tree: &Tree) {
        tree.mark_stale();
        let mut known = self.0.write();
        if known.by_key.get(&tree.key) == Some(&tree.index) {
            known.by_key.remove(&tree.key);
        }
    }

    /// The path of the root of a tree below the mount.
    pub fn path(&self, tree: &Tree) -> Vec<u8> {
        let mut names = Vec::new();
        let mut seen_as = tree.seen_as();
        while let Some((above, name)) = seen_as {
            names.push(name);
            seen_as = self.find(above).and_then(|tree| tree.seen_as());
        }
        names.reverse();
        names.join(&b'/')
    }
}
