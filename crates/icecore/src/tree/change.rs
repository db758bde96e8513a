//! Insertion and removal.
//!
//! A change walks down before it touches anything: what it has to load, it has loaded when the leaf is
//! reached, and an error until then leaves no trace. On the way back up each node that others may see has
//! been replaced by a copy under a new address. Joining a sparse node with a neighbour is an improvement, not
//! a necessity: it is left out when the neighbour cannot be read.

use super::interior::Interior;
use super::item::Item;
use super::node::{LEVEL_MAX, Node};
use super::slot::Child;
use super::source::{NodeLedger, NodeSource};
use crate::error::{Error, Result};
use std::sync::Arc;

/// One change of one key.
pub(super) struct Change<'a> {
    pub source: &'a dyn NodeSource,
    pub ledger: &'a mut dyn NodeLedger,
    pub key: u128,
    /// What to put there; `None` removes.
    pub item: Option<&'a Item>,
}

impl Change<'_> {
    /// Makes the change in the tree below `root`, and answers the former item.
    pub fn apply(&mut self, root: &mut Child) -> Result<Option<Item>> {
        let content = if root.exclusive().is_some() { None } else { Some(root.load(self.source)?) };
        let level = content
            .as_ref()
            .map_or_else(|| root.exclusive().map_or(0, |node| node.level()), |node| node.level());
        if level >= LEVEL_MAX {
            return Err(Error::damaged(format!("tree node {}", root.address()), "the tree is too high"));
        }
        let former = self.descend(root, content)?;
        let node = root.exclusive().expect("the root was just changed");
        if node.is_overfull() {
            let (separator, upper) = node.split(self.key);
            let level = node.level() + 1;
            let upper = Child::born(self.ledger.draw_node(), upper);
            let address = self.ledger.draw_node();
            let lower = std::mem::replace(root, Child::Address(address));
            *root = Child::born(address, Node::over(level, vec![0, separator], vec![lower, upper]));
        } else {
            self.shorten(root);
        }
        Ok(former)
    }

    /// Changes the node in place if it is ours alone, which is when `content` is `None`; else puts a changed
    /// copy of `content` in its place.
    fn descend(&mut self, child: &mut Child, content: Option<Arc<Node>>) -> Result<Option<Item>> {
        let Some(content) = content else {
            return self.change(child.exclusive().expect("the caller has looked"));
        };
        let mut copy = Node::clone(&content);
        let former = self.change(&mut copy)?;
        self.ledger.drop_node(child.address());
        *child = Child::born(self.ledger.draw_node(), copy);
        Ok(former)
    }

    fn change(&mut self, node: &mut Node) -> Result<Option<Item>> {
        match node {
            Node::Leaf(leaf) => Ok(match self.item {
                Some(item) => leaf.put(self.key, item),
                None => leaf.remove(self.key),
            }),
            Node::Interior(interior) => {
                let index = interior.index_of(self.key);
                let ours = interior.child_mut(index).exclusive().is_some();
                let content = if ours { None } else { Some(interior.load(index, self.source)?) };
                let address = interior.child(index).address();
                let former = self.descend(interior.child_mut(index), content)?;
                interior.readdressed(index, address);
                self.settle(interior, index);
                Ok(former)
            }
        }
    }

    /// Splits or joins the child that was just changed, if its size asks for it.
    fn settle(&mut self, interior: &mut Interior, index: usize) {
        let node = interior.child_mut(index).exclusive().expect("the child was just changed");
        if node.is_overfull() {
            let (separator, upper) = node.split(self.key);
            let upper = Child::born(self.ledger.draw_node(), upper);
            interior.insert(index + 1, separator, upper);
        } else if self.item.is_none() && node.is_sparse() && interior.len() > 1 {
            if index > 0 && is_hollow(interior.child_mut(index)) {
                let hollow = interior.remove(index);
                self.release(hollow);
            } else if index == 0 || !self.join(interior, index - 1, index) {
                self.join(interior, index, index);
            }
        }
    }

    /// Joins the children at `left` and the one after it into the one at `kept`, which is ours alone.
    /// False if there is no such pair, it does not fit, or it cannot be read.
    fn join(&mut self, interior: &mut Interior, left: usize, kept: usize) -> bool {
        if left + 1 >= interior.len() {
            return false;
        }
        let other = if kept == left { left + 1 } else { left };
        // The change is made: it is too late to ask for the neighbour and to try again.
        let source = self.source.reading().unwrap_or(self.source);
        let Ok(content) = interior.load(other, source) else { return false };
        let node = interior.child_mut(kept).exclusive().expect("the child was just changed");
        let gone = if kept == left {
            if !node.may_join(&content) {
                return false;
            }
            node.append(&content);
            interior.remove(other)
        } else {
            if !content.may_join(node) {
                return false;
            }
            let upper = std::mem::replace(node, Node::clone(&content));
            node.append(&upper);
            interior.remove_into_right(other)
        };
        self.ledger.drop_node(gone.address());
        true
    }

    /// Takes away a root that has only one child left, as long as that can be seen without reading.
    fn shorten(&mut self, root: &mut Child) {
        while let Some(Node::Interior(interior)) = root.exclusive()
            && interior.len() == 1
        {
            let address = root.address();
            let former = std::mem::replace(root, Child::Address(address));
            *root = take_only_child(former);
            self.ledger.drop_node(address);
        }
    }

    /// Drops the nodes of a hollow subtree.
    fn release(&mut self, mut hollow: Child) {
        self.ledger.drop_node(hollow.address());
        if let Some(Node::Interior(_)) = hollow.exclusive() {
            self.release(take_only_child(hollow));
        }
    }
}

/// The only child of an interior node that is ours alone.
fn take_only_child(mut parent: Child) -> Child {
    match parent.exclusive() {
        Some(Node::Interior(interior)) => {
            let empty = Interior::new(1, vec![0], vec![Child::Address(crate::units::LogAddress(0))]);
            std::mem::replace(interior, empty).into_only_child()
        }
        _ => unreachable!("the caller has looked"),
    }
}

/// True if nothing is below the node that was just changed: an empty leaf, at the end of a chain of only
/// children.
fn is_hollow(child: &mut Child) -> bool {
    match child.exclusive() {
        Some(Node::Leaf(leaf)) => leaf.len() == 0,
        Some(Node::Interior(interior)) => interior.len() == 1 && is_hollow(interior.child_mut(0)),
        None => false,
    }
}
