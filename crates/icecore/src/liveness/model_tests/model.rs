//! The model: for every version the explicit set of blocks that it references.

use super::Block;
use crate::units::VersionId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Default)]
pub(super) struct ModelVersion {
    pub parent: Option<VersionId>,
    pub mark: Option<[u64; 3]>,
    pub blocks: BTreeSet<Block>,
}

#[derive(Clone, Default)]
pub(super) struct Model(pub BTreeMap<VersionId, ModelVersion>);

impl Model {
    pub fn children(&self, version: VersionId) -> Vec<VersionId> {
        self.0.iter().filter(|(_, other)| other.parent == Some(version)).map(|(&id, _)| id).collect()
    }

    pub fn all_blocks(&self) -> BTreeSet<Block> {
        self.0.values().flat_map(|version| version.blocks.iter().copied()).collect()
    }

    pub fn delete(&mut self, version: VersionId) -> bool {
        let children = self.children(version);
        if children.len() > 1 {
            return false;
        }
        let gone = self.0.remove(&version).unwrap();
        for child in children {
            self.0.get_mut(&child).unwrap().parent = gone.parent;
        }
        true
    }

    /// What these versions reach and no other.
    pub fn only_in(&self, versions: &BTreeSet<VersionId>) -> u64 {
        let of = |inside: bool| -> BTreeSet<Block> {
            let some = self.0.iter().filter(|(id, _)| versions.contains(id) == inside);
            some.flat_map(|(_, version)| version.blocks.iter().copied()).collect()
        };
        of(true).difference(&of(false)).count() as u64
    }

    /// These, and those of `doomed` that are connected with them by such.
    pub fn with_doomed(&self, chosen: &[VersionId], doomed: &BTreeSet<VersionId>) -> BTreeSet<VersionId> {
        let mut found: BTreeSet<VersionId> = chosen.iter().copied().collect();
        loop {
            let is_next = |id: &&VersionId| {
                let above = self.0[*id].parent.is_some_and(|parent| found.contains(&parent));
                above || self.children(**id).iter().any(|child| found.contains(child))
            };
            let more: Vec<VersionId> =
                doomed.iter().filter(|id| !found.contains(id)).filter(is_next).copied().collect();
            if more.is_empty() {
                return found;
            }
            found.extend(more);
        }
    }

    /// Whether versions that are not doomed reach everything that a version owns.
    pub fn is_thin(&self, version: VersionId, doomed: &BTreeSet<VersionId>) -> bool {
        let low = self.low_mark(version);
        let read = self.0.iter().filter(|(id, _)| !doomed.contains(id));
        let read: BTreeSet<Block> = read.flat_map(|(_, version)| version.blocks.iter().copied()).collect();
        self.0[&version].blocks.iter().all(|block| block.1 < low[block.0 as usize] || read.contains(block))
    }

    pub fn is_ancestor(&self, ancestor: VersionId, descendant: VersionId) -> bool {
        let mut at = Some(descendant);
        while let Some(id) = at {
            if id == ancestor {
                return true;
            }
            at = self.0[&id].parent;
        }
        false
    }

    pub fn low_mark(&self, version: VersionId) -> [u64; 3] {
        self.0[&version].parent.map_or([0; 3], |parent| self.0[&parent].mark.unwrap())
    }
}
