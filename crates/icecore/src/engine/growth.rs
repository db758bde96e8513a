//! The most by which a change can make a dataset larger: known without a look at what it changes, and never
//! too little.

use super::Engine;
use crate::error::Result;
use crate::namespace::{Read as _, TreeReader};
use crate::operation::{NamespaceOperation, Operation, Scatter};
use crate::state::{Growth, State};
use crate::tree::ITEM_BYTES_MAX;
use crate::units::{BLOCK_BYTES, DatasetId, EXTENT_BLOCKS_MAX, FileBlock, InodeNumber};
use std::collections::BTreeMap;

/// Items that a change of names or attributes puts or takes away, beside those that hold a value or a target:
/// a rename over another file changes eight.
const ITEMS_OF_NAMES: u64 = 16;
/// Items that the longest value of an attribute lies in, with its name.
const ITEMS_OF_VALUE: u64 = 68;
/// So many children an interior node holds before it is split, whatever they are.
const CHILDREN_MIN: u64 = 128;

/// What one operation can add at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Most {
    dataset: DatasetId,
    /// Blocks of files.
    blocks: u64,
    /// Those of them that are on disk already, outside the log.
    staged: u64,
    /// Items of the tree that are put or taken away.
    items: u64,
    /// Takes away all that a file has got from the other operations of the change, too.
    cuts: bool,
}

impl Most {
    const fn of_items(dataset: DatasetId, items: u64) -> Self {
        Self { dataset, blocks: 0, staged: 0, items, cuts: false }
    }

    /// Stretches of a file, each of so many blocks. Of what one overlaps, every block may be an extent of its
    /// own. What is left of the last one is put anew, and so is the one before, which may become longer.
    fn of_stretches(dataset: DatasetId, stretches: impl Iterator<Item = u64>) -> Self {
        let mut most = Self::of_items(dataset, 1);
        for blocks in stretches {
            most.blocks += blocks;
            most.items += blocks + blocks.div_ceil(EXTENT_BLOCKS_MAX) + 2;
        }
        most
    }

    /// What blocks in several places add.
    pub(crate) fn of_scatter(scatter: &Scatter) -> Self {
        Self::of_stretches(scatter.dataset, scatter.parts.iter().map(|part| part.blocks.into()))
    }

    /// What blocks in several places add that are on disk already.
    pub(crate) fn of_staged(scatter: &Scatter) -> Self {
        let most = Self::of_scatter(scatter);
        Self { staged: most.blocks, ..most }
    }

    const fn of_names(operation: &NamespaceOperation) -> u64 {
        match operation {
            NamespaceOperation::SetXattr { .. } | NamespaceOperation::RemoveXattr { .. } => {
                ITEMS_OF_NAMES + 2 * ITEMS_OF_VALUE
            }
            NamespaceOperation::CreateSymlink { target, .. } => {
                ITEMS_OF_NAMES + (target.len() / ITEM_BYTES_MAX) as u64
            }
            _ => ITEMS_OF_NAMES,
        }
    }
}

impl Engine {
    /// What an operation can add at most; `None` for one that is not about files.
    pub(crate) fn most_of(&self, state: &State, operation: &Operation) -> Option<Most> {
        Some(match operation {
            Operation::Write(write) => {
                Most::of_stretches(write.dataset, std::iter::once(write.blocks.into()))
            }
            Operation::WriteScattered(scatter) => Most::of_scatter(scatter),
            Operation::MapScattered { scatter, .. } => Most::of_staged(scatter),
            Operation::WriteInline { dataset, offset, bytes, .. } => {
                let end = offset.saturating_add(bytes.len() as u64).div_ceil(BLOCK_BYTES as u64);
                let blocks = end.saturating_sub(FileBlock::containing(*offset).0);
                Most::of_stretches(*dataset, std::iter::once(blocks))
            }
            Operation::Patch(patch) => Most::of_stretches(patch.dataset, patch.blocks.iter().map(|_| 1)),
            Operation::Namespace { dataset, operation } => {
                Most::of_items(*dataset, Most::of_names(operation))
            }
            Operation::Truncate { dataset, inode, size, .. } => {
                let own = self.extents_behind(state, *dataset, *inode, *size);
                // The block that is cut, with what is left and right of it.
                Most { blocks: 1, cuts: true, ..Most::of_items(*dataset, own.saturating_add(8)) }
            }
            Operation::PunchHole { dataset, .. } | Operation::ReleaseOrphan { dataset, .. } => {
                Most::of_items(*dataset, u64::MAX)
            }
            _ => return None,
        })
    }

    /// Extents of a file that lie behind a size at most. A file that cannot be read may have any number.
    fn extents_behind(&self, state: &State, dataset: DatasetId, inode: InodeNumber, size: u64) -> u64 {
        self.file_size(state, dataset, inode).map_or(u64::MAX, |(bytes, blocks)| {
            blocks.min(bytes.saturating_sub(size).div_ceil(BLOCK_BYTES as u64))
        })
    }

    /// Bytes and blocks of a file.
    pub(crate) fn file_size(
        &self,
        state: &State,
        dataset: DatasetId,
        inode: InodeNumber,
    ) -> Result<(u64, u64)> {
        let head = state.head(dataset)?;
        let item = TreeReader::new(&state.trees[&head], &*self.nodes).inode(inode)?;
        Ok((item.size, item.blocks))
    }

    /// Whether an operation is one that takes something away, and no more.
    pub(crate) fn only_frees(&self, state: &State, operation: &Operation) -> bool {
        match operation {
            Operation::Truncate { dataset, inode, size, .. } => {
                self.file_size(state, *dataset, *inode).is_ok_and(|(bytes, _)| *size <= bytes)
            }
            Operation::PunchHole { .. } | Operation::ReleaseOrphan { .. } => true,
            _ => false,
        }
    }

    /// What all the operations of a change come to at most, by dataset.
    pub(super) fn at_most(&self, state: &State, all: &[Most]) -> Result<Vec<(DatasetId, Growth)>> {
        let mut sums: BTreeMap<DatasetId, Most> = BTreeMap::new();
        for one in all {
            let sum = sums.entry(one.dataset).or_insert(Most::of_items(one.dataset, 0));
            sum.blocks = sum.blocks.saturating_add(one.blocks);
            sum.staged = sum.staged.saturating_add(one.staged);
            sum.items = sum.items.saturating_add(one.items);
            sum.cuts |= one.cuts;
        }
        let cuts = all.iter().filter(|one| one.cuts).count() as u64;
        let growth = |most: Most| {
            let cut = if most.cuts { cuts.saturating_mul(most.items) } else { 0 };
            let height = state.trees[&state.head(most.dataset)?].height(&*self.nodes)?;
            let nodes = nodes_at_most(most.items.saturating_add(cut), height);
            let blocks = most.blocks.saturating_add(nodes).min(i64::MAX as u64);
            let growth = Growth {
                used: blocks as i64,
                referenced: blocks as i64,
                born: blocks - most.staged.min(blocks),
            };
            Ok((most.dataset, growth))
        };
        sums.into_values().map(growth).collect()
    }
}

/// Nodes that are made when so many items are put into a tree, or taken out of it. For each of them the nodes
/// on its path are made anew, or split, or both. A tree becomes higher when its root is split, and then its
/// root has two children.
fn nodes_at_most(items: u64, height: u8) -> u64 {
    let levels = u64::from(height) + 1;
    let higher = 1 + u64::from(items.max(1).ilog(CHILDREN_MIN));
    items.saturating_mul(2 * levels + higher).saturating_add(higher)
}
