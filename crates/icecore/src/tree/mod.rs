//! The copy-on-write B+tree: one per version, and cloning it is the snapshot.
//!
//! Nodes are immutable once another tree or a reader can see them. A clone shares the root, so it costs one
//! reference count. A change copies the nodes from the root to one leaf, as far as they are shared or
//! written. It changes nodes in place that are neither. Every copy is *born* with an address of the node
//! stream, drawn from a [`NodeLedger`], long before it is written. So "born before snapshot S" is a
//! comparison of addresses. The node that it replaces is dropped at the ledger. Only checkpoints write nodes:
//! see [`Tree::dirty`].
//!
//! Keys are [`Key`]s, items [`Item`]s. A node is one block of 4 KiB; its layout is `docs/format/node.md`.
//!
//! Readers take a clone of the tree and need no lock. Errors in the middle of a change leave the tree, and
//! the ledger, as they were.

mod change;
mod codec;
mod difference;
mod entry;
mod hold;
mod interior;
mod item;
mod key;
mod leaf;
mod node;
mod range;
mod slot;
mod source;
mod walk;

#[cfg(test)]
pub(crate) mod tests;

pub use hold::Held;
pub use item::{Extent, ITEM_BYTES_MAX, Item, ItemRef};
pub use key::{ItemKind, Key};
pub use node::Node;
pub use range::Range;
pub use slot::NodeSlot;
pub use source::{NodeLedger, NodeSource};

use crate::error::Result;
use crate::units::LogAddress;
use slot::Child;
use std::sync::Arc;

/// An ordered map from [`Key`] to [`Item`]. A clone is a snapshot: it shares everything and never changes
/// with the original.
#[derive(Clone, Debug)]
pub struct Tree {
    root: Child,
}

impl Tree {
    /// An empty tree.
    pub fn new(ledger: &mut dyn NodeLedger) -> Self {
        Self { root: Child::born(ledger.draw_node(), Node::Leaf(leaf::Leaf::default())) }
    }

    /// The tree whose root was written at this address.
    pub fn at(root: LogAddress) -> Self {
        Self { root: Child::Address(root) }
    }

    /// Address of the root. Trees with the same root are equal.
    pub fn root_address(&self) -> LogAddress {
        self.root.address()
    }

    /// Levels above the leaves: 0 for a tree of one node.
    pub fn height(&self, source: &dyn NodeSource) -> Result<u8> {
        Ok(self.root.load(source)?.level())
    }

    /// Looks at the item at `key` where it lies, without copying it.
    pub fn view<T>(
        &self,
        source: &dyn NodeSource,
        key: Key,
        look: impl FnOnce(Option<ItemRef<'_>>) -> T,
    ) -> Result<T> {
        let mut node = self.root.load(source)?;
        loop {
            let next = match &*node {
                Node::Leaf(leaf) => return Ok(look(leaf.get(key.0))),
                Node::Interior(interior) => interior.load(interior.index_of(key.0), source)?,
            };
            node = next;
        }
    }

    /// The item with the greatest key that is not above `key`.
    pub fn at_or_before(&self, source: &dyn NodeSource, key: Key) -> Result<Option<(Key, Item)>> {
        at_or_before(&self.root.load(source)?, source, key.0)
    }

    /// Items with keys from `from` up to, not including, `to`, ascending. See [`Range`].
    pub fn range<'a>(&self, source: &'a dyn NodeSource, from: Key, to: Key) -> Range<'a> {
        Range::new(source, self.root.clone(), from, to)
    }

    /// Inserts or replaces the item at `key`; answers the former one. After an error nothing has changed.
    ///
    /// Panics if the item cannot be stored: an extent exactly for keys of kind [`ItemKind::Extent`], of 1 to
    /// [`crate::units::EXTENT_BLOCKS_MAX`] blocks; at most [`ITEM_BYTES_MAX`] bytes for the other kinds.
    pub fn insert(
        &mut self,
        source: &dyn NodeSource,
        ledger: &mut dyn NodeLedger,
        key: Key,
        item: &Item,
    ) -> Result<Option<Item>> {
        assert!(key.kind().is_some(), "{key:?} is the key of no item");
        change::Change { source, ledger, key: key.0, item: Some(item) }.apply(&mut self.root)
    }

    /// Removes the item at `key`; answers it. After an error nothing has changed.
    pub fn remove(
        &mut self,
        source: &dyn NodeSource,
        ledger: &mut dyn NodeLedger,
        key: Key,
    ) -> Result<Option<Item>> {
        if !self.view(source, key, |item| item.is_some())? {
            return Ok(None);
        }
        change::Change { source, ledger, key: key.0, item: None }.apply(&mut self.root)
    }
}

fn at_or_before(node: &Arc<Node>, source: &dyn NodeSource, key: u128) -> Result<Option<(Key, Item)>> {
    match &**node {
        Node::Leaf(leaf) => {
            let after = leaf.keys().partition_point(|held| *held <= key);
            Ok(after.checked_sub(1).map(|index| (Key(leaf.keys()[index]), leaf.item(index).to_item())))
        }
        Node::Interior(interior) => {
            // A child may hold nothing so low, or nothing at all: then it is the one left of it that knows.
            for index in (0..=interior.index_of(key)).rev() {
                let found = at_or_before(&interior.load(index, source)?, source, key)?;
                if found.is_some() {
                    return Ok(found);
                }
            }
            Ok(None)
        }
    }
}
