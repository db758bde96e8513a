//! Directories whose names the kernel may have cached.
//!
//! The kernel looks whether its list of names is stale only for readers that begin at the start of a
//! directory: `fuse_readdir_cached` in `fs/fuse/readdir.c`. A reader that goes to a place it knows from
//! before would see names that are gone. So the mount drops the list when a name changes.

use crate::protocol::NodeId;
use crate::trees::Tree;
use parking_lot::Mutex;
use std::collections::HashSet;

/// As many directories are remembered at most.
const DIRECTORIES_MAX: usize = 1 << 16;

#[derive(Default)]
pub(crate) struct ListedDirectories(Mutex<HashSet<NodeId>>);

impl ListedDirectories {
    /// The kernel asks for names of a directory. Returns another one if there are too many: its list has to
    /// be dropped.
    pub fn add(&self, directory: NodeId) -> Option<NodeId> {
        let mut listed = self.0.lock();
        if !listed.insert(directory) || listed.len() <= DIRECTORIES_MAX {
            return None;
        }
        let other = listed.iter().copied().find(|other| *other != directory)?;
        listed.remove(&other);
        Some(other)
    }

    /// All directories of a tree go. Returns those whose lists have to be dropped.
    pub fn remove_tree(&self, tree: &Tree) -> Vec<NodeId> {
        self.0.lock().extract_if(|directory| tree.contains(*directory)).collect()
    }

    /// Names of a directory change. Returns whether its list has to be dropped.
    pub fn remove(&self, directory: NodeId) -> bool {
        self.0.lock().remove(&directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_forgotten_once_and_none_silently() {
        let listed = ListedDirectories::default();
        assert!(!listed.remove(NodeId(1)));
        assert_eq!(listed.add(NodeId(1)), None);
        assert_eq!(listed.add(NodeId(1)), None);
        assert!(listed.remove(NodeId(1)));
        assert!(!listed.remove(NodeId(1)));
        let mut dropped: HashSet<NodeId> = HashSet::new();
        let all = 2 * DIRECTORIES_MAX as u64;
        dropped.extend((0..all).filter_map(|number| listed.add(NodeId(number))));
        assert_eq!(dropped.len(), DIRECTORIES_MAX);
        assert!((0..all).all(|number| listed.remove(NodeId(number)) != dropped.contains(&NodeId(number))));
    }
}
