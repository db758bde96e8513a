//! Walks over whole trees: for checkpoints, and for those who check.

use super::codec::PAYLOAD_BYTES;
use super::node::{LEVEL_MAX, Node};
use super::slot::{Child, NodeSlot};
use super::source::NodeSource;
use super::{Key, Tree};
use crate::error::{Error, Result};
use crate::units::LogAddress;
use std::sync::Arc;

impl Tree {
    /// All nodes that are not written yet, ascending by address. Visits nothing else: below a written node
    /// everything is written.
    ///
    /// To write them, keep a clone of the tree until they are marked, so that none of them can change.
    pub fn dirty(&self) -> Vec<Arc<NodeSlot>> {
        let mut slots = Vec::new();
        collect_dirty(&self.root, &mut slots);
        slots.sort_unstable_by_key(|slot| slot.address());
        slots
    }

    /// Visits all nodes, parents before their children.
    pub fn nodes(
        &self,
        source: &dyn NodeSource,
        visit: &mut dyn FnMut(LogAddress, &Node) -> Result<()>,
    ) -> Result<()> {
        let root = self.root.load(source)?;
        visit(self.root.address(), &root)?;
        visit_below(&root, source, visit)
    }

    /// Reads everything and verifies that it is a tree as it should be. [`Error::Damaged`] names the node
    /// where it is not.
    pub fn check(&self, source: &dyn NodeSource) -> Result<()> {
        let root = self.root.load(source)?;
        check_node(&self.root, &root, 0, u128::MAX, source)
    }
}

/// A node that cannot be read, and what is lost with it: everything from `low` on, before `high`.
#[derive(Debug)]
pub struct Unreadable {
    /// Its address.
    pub address: LogAddress,
    /// The first key that it may hold.
    pub low: Key,
    /// The first key that it may not hold.
    pub high: Key,
    /// Why.
    pub error: Error,
}

impl Tree {
    /// As [`Tree::nodes`], with the range of keys that each node may hold. Goes on past nodes that cannot be
    /// read. Visits what lies below a node if `visit` answers so.
    pub fn salvage(
        &self,
        source: &dyn NodeSource,
        visit: &mut dyn FnMut(LogAddress, &Node, std::ops::Range<Key>) -> bool,
        lost: &mut dyn FnMut(Unreadable),
    ) {
        let address = self.root.address();
        match self.root.load(source) {
            Ok(root) => salvage_below(address, &root, Key::MIN..Key::MAX, source, visit, lost),
            Err(error) => lost(Unreadable { address, low: Key::MIN, high: Key::MAX, error }),
        }
    }
}

fn salvage_below(
    address: LogAddress,
    node: &Node,
    keys: std::ops::Range<Key>,
    source: &dyn NodeSource,
    visit: &mut dyn FnMut(LogAddress, &Node, std::ops::Range<Key>) -> bool,
    lost: &mut dyn FnMut(Unreadable),
) {
    let high = keys.end;
    if !visit(address, node, keys) {
        return;
    }
    let Node::Interior(interior) = node else { return };
    for index in 0..interior.len() {
        let low = Key(interior.keys()[index]);
        let high = interior.keys().get(index + 1).map_or(high, |next| Key(*next));
        let address = interior.child(index).address();
        // Which also refuses a node of a level that does not fit: no way leads back up.
        match interior.load(index, source) {
            Ok(child) => salvage_below(address, &child, low..high, source, visit, lost),
            Err(error) => lost(Unreadable { address, low, high, error }),
        }
    }
}

fn collect_dirty(child: &Child, slots: &mut Vec<Arc<NodeSlot>>) {
    let Some(slot) = child.dirty() else { return };
    let Some(node) = slot.content() else { return };
    if let Node::Interior(interior) = &*node {
        for index in 0..interior.len() {
            collect_dirty(interior.child(index), slots);
        }
    }
    slots.push(Arc::clone(slot));
}

fn visit_below(
    node: &Node,
    source: &dyn NodeSource,
    visit: &mut dyn FnMut(LogAddress, &Node) -> Result<()>,
) -> Result<()> {
    if let Node::Interior(interior) = node {
        for index in 0..interior.len() {
            let child = interior.load(index, source)?;
            visit(interior.child(index).address(), &child)?;
            visit_below(&child, source, visit)?;
        }
    }
    Ok(())
}

/// `low` is the first key that the node may hold, `high` the first that it may not.
fn check_node(child: &Child, node: &Node, low: u128, high: u128, source: &dyn NodeSource) -> Result<()> {
    let damaged = |detail: &str| Err(Error::damaged(format!("tree node {}", child.address()), detail));
    let keys = node.keys();
    if node.used() != node.measure() || node.used() > PAYLOAD_BYTES || node.level() > LEVEL_MAX {
        return damaged("its size or level is not what it should be");
    }
    if !keys.is_sorted_by(|one, next| one < next) {
        return damaged("its keys do not ascend");
    }
    if keys.first().is_some_and(|first| *first < low) || keys.last().is_some_and(|last| *last >= high) {
        return damaged("its keys are outside of its range");
    }
    match node {
        Node::Leaf(_) => {
            if node.items().any(|(key, _)| key.kind().is_none()) {
                return damaged("an item is of an unknown kind");
            }
        }
        Node::Interior(interior) => {
            if keys[0] != low {
                return damaged("its first key is not the one that its parent has");
            }
            for index in 0..interior.len() {
                if child.dirty().is_none() && interior.child(index).dirty().is_some() {
                    return damaged("it is written, and a child is not");
                }
                let below = interior.load(index, source)?;
                let end = keys.get(index + 1).copied().unwrap_or(high);
                check_node(interior.child(index), &below, keys[index], end, source)?;
            }
        }
    }
    Ok(())
}
