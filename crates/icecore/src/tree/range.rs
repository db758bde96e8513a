//! Reading a range of keys in order.

use super::item::Item;
use super::key::Key;
use super::node::Node;
use super::slot::Child;
use super::source::NodeSource;
use crate::error::Result;
use std::sync::Arc;

/// Items with keys from a first up to, not including, an end, ascending. Ends after the first error.
///
/// Holds the nodes on the path to where it is; no lock. What it yields is the tree as it was when the range
/// was made, provided that a clone of that tree is kept.
pub struct Range<'a> {
    source: &'a dyn NodeSource,
    /// Where to begin, until the first call.
    start: Option<(Child, u128)>,
    to: u128,
    /// Interior nodes on the path, each with the index of the child to visit next.
    path: Vec<(Arc<Node>, usize)>,
    /// The leaf, with the index of the item to yield next.
    leaf: Option<(Arc<Node>, usize)>,
}

impl<'a> Range<'a> {
    pub(super) fn new(source: &'a dyn NodeSource, root: Child, from: Key, to: Key) -> Self {
        Self { source, start: Some((root, from.0)), to: to.0, path: Vec::new(), leaf: None }
    }

    /// Goes down from `node` to the leaf that may hold `from`.
    fn descend(&mut self, mut node: Arc<Node>, from: u128) -> Result<()> {
        loop {
            let next = match &*node {
                Node::Leaf(leaf) => {
                    let index = leaf.lower_bound(from);
                    self.leaf = Some((node, index));
                    return Ok(());
                }
                Node::Interior(interior) => {
                    let index = interior.index_of(from);
                    let next = interior.load(index, self.source)?;
                    self.path.push((Arc::clone(&node), index + 1));
                    next
                }
            };
            node = next;
        }
    }

    /// Moves to the next leaf; false at the end of the range.
    fn next_leaf(&mut self) -> Result<bool> {
        while let Some((node, next)) = self.path.last_mut() {
            let Node::Interior(interior) = &**node else { unreachable!("the path holds interior nodes") };
            let index = *next;
            if index == interior.len() {
                self.path.pop();
                continue;
            }
            let first = interior.keys()[index];
            if first >= self.to {
                return Ok(false);
            }
            *next += 1;
            let child = interior.load(index, self.source)?;
            self.descend(child, first)?;
            return Ok(true);
        }
        Ok(false)
    }

    fn advance(&mut self) -> Result<Option<(Key, Item)>> {
        if let Some((root, from)) = self.start.take() {
            if from >= self.to {
                return Ok(None);
            }
            let node = root.load(self.source)?;
            self.descend(node, from)?;
        }
        loop {
            if let Some((node, next)) = &mut self.leaf
                && let Node::Leaf(leaf) = &**node
                && *next < leaf.len()
            {
                let index = *next;
                let key = leaf.keys()[index];
                if key >= self.to {
                    return Ok(None);
                }
                *next += 1;
                return Ok(Some((Key(key), leaf.item(index).to_item())));
            }
            if !self.next_leaf()? {
                return Ok(None);
            }
        }
    }
}

impl Iterator for Range<'_> {
    type Item = Result<(Key, Item)>;

    fn next(&mut self) -> Option<Self::Item> {
        let answer = self.advance().transpose();
        if !matches!(answer, Some(Ok(_))) {
            self.leaf = None;
            self.path.clear();
        }
        answer
    }
}
