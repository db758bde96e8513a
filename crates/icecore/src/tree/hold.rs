//! Holding what several changes will read, so that they cannot fail half-way.

use super::node::Node;
use super::slot::Child;
use super::source::NodeSource;
use super::{Key, Tree};
use crate::error::Result;
use crate::units::LogAddress;
use std::sync::Arc;

/// A source that answers from the nodes it holds before it asks the one behind it.
///
/// A series of changes is made all or nothing by holding every key with [`Tree::hold`] first. Then insert and
/// replace, and only after that remove keys that exist: none of these calls reads a node that is not held.
/// (Insertion only splits. A removal may take an empty leaf out and hand its range to another leaf, but not
/// that of a key that exists.)
pub struct Held<'a> {
    behind: &'a dyn NodeSource,
    nodes: Vec<(LogAddress, Arc<Node>)>,
}

impl<'a> Held<'a> {
    /// Nothing held yet.
    pub fn new(behind: &'a dyn NodeSource) -> Self {
        Self { behind, nodes: Vec::new() }
    }

    fn find(&self, address: LogAddress) -> Option<&Arc<Node>> {
        self.nodes.iter().rev().find(|(held, _)| *held == address).map(|(_, node)| node)
    }

    fn hold(&mut self, address: LogAddress, node: &Arc<Node>) {
        if self.find(address).is_none() {
            self.nodes.push((address, Arc::clone(node)));
        }
    }
}

impl NodeSource for Held<'_> {
    fn load(&self, address: LogAddress) -> Result<Arc<Node>> {
        self.find(address).map_or_else(|| self.behind.load(address), |node| Ok(Arc::clone(node)))
    }

    fn reading(&self) -> Option<&dyn NodeSource> {
        self.behind.reading()
    }
}

impl Tree {
    /// Makes `held` hold every node on the path to `key` that a change would copy. Nodes that it would change
    /// in place need no holding: they stay in memory until they are written, and no other tree can write
    /// them.
    pub fn hold(&mut self, held: &mut Held<'_>, key: Key) -> Result<()> {
        hold_below(&mut self.root, held, key.0)
    }
}

fn hold_below(child: &mut Child, held: &mut Held<'_>, key: u128) -> Result<()> {
    match child.exclusive() {
        Some(Node::Leaf(_)) => Ok(()),
        Some(Node::Interior(interior)) => {
            let index = interior.index_of(key);
            if interior.child_mut(index).exclusive().is_none() {
                let node = interior.load(index, held)?;
                return hold_shared(interior.child(index).address(), node, held, key);
            }
            hold_below(interior.child_mut(index), held, key)
        }
        None => {
            let node = child.load(held)?;
            hold_shared(child.address(), node, held, key)
        }
    }
}

fn hold_shared(mut address: LogAddress, mut node: Arc<Node>, held: &mut Held<'_>, key: u128) -> Result<()> {
    loop {
        held.hold(address, &node);
        let next = match &*node {
            Node::Leaf(_) => return Ok(()),
            Node::Interior(interior) => {
                let index = interior.index_of(key);
                address = interior.child(index).address();
                interior.load(index, held)?
            }
        };
        node = next;
    }
}
