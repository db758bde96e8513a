//! What differs between two trees, without reading what they share.

use super::Tree;
use super::item::Item;
use super::key::Key;
use super::leaf::Leaf;
use super::node::Node;
use super::source::NodeSource;
use crate::error::Result;
use crate::units::LogAddress;
use std::cmp::Ordering;
use std::sync::Arc;

impl Tree {
    /// Visits each key whose item differs, ascending: first the item in `a`, then the one in `b`.
    ///
    /// Subtrees that both trees refer to are not read: the cost is that of what differs.
    pub fn difference(
        a: &Self,
        b: &Self,
        source: &dyn NodeSource,
        visit: &mut dyn FnMut(Key, Option<Item>, Option<Item>) -> Result<()>,
    ) -> Result<()> {
        if a.root_address() == b.root_address() {
            return Ok(());
        }
        let mut a = Cursor { source, path: vec![(a.root.load(source)?, 0)] };
        let mut b = Cursor { source, path: vec![(b.root.load(source)?, 0)] };
        loop {
            match (a.place(), b.place()) {
                (Place::End, Place::End) => return Ok(()),
                (Place::Subtree(one), Place::Subtree(other)) => {
                    if one.address == other.address {
                        a.skip();
                        b.skip();
                    } else if (one.low, other.level) <= (other.low, one.level) {
                        a.enter()?;
                    } else {
                        b.enter()?;
                    }
                }
                (Place::Subtree(_), Place::End) => a.enter()?,
                (Place::End, Place::Subtree(_)) => b.enter()?,
                (Place::Subtree(subtree), Place::Entry(key)) if subtree.low <= key => a.enter()?,
                (Place::Entry(key), Place::Subtree(subtree)) if subtree.low <= key => b.enter()?,
                (Place::Entry(one), Place::Entry(other)) => match one.cmp(&other) {
                    Ordering::Less => visit(Key(one), a.take(), None)?,
                    Ordering::Greater => visit(Key(other), None, b.take())?,
                    Ordering::Equal => {
                        if a.leaf().item(a.index()) == b.leaf().item(b.index()) {
                            a.skip();
                            b.skip();
                        } else {
                            visit(Key(one), a.take(), b.take())?;
                        }
                    }
                },
                (Place::Entry(key), _) => visit(Key(key), a.take(), None)?,
                (_, Place::Entry(key)) => visit(Key(key), None, b.take())?,
            }
        }
    }
}

/// A subtree that has not been entered.
struct Subtree {
    low: u128,
    level: u8,
    address: LogAddress,
}

/// What comes next in a tree.
enum Place {
    Subtree(Subtree),
    Entry(u128),
    End,
}

/// Walks a tree in order, and may skip subtrees.
struct Cursor<'a> {
    source: &'a dyn NodeSource,
    /// Nodes on the path, each with the index of what comes next in it.
    path: Vec<(Arc<Node>, usize)>,
}

impl Cursor<'_> {
    fn place(&mut self) -> Place {
        while self.path.last().is_some_and(|(node, index)| *index == node.len()) {
            self.path.pop();
        }
        match self.path.last() {
            None => Place::End,
            Some((node, index)) => match &**node {
                Node::Leaf(leaf) => Place::Entry(leaf.keys()[*index]),
                Node::Interior(interior) => Place::Subtree(Subtree {
                    low: interior.keys()[*index],
                    level: interior.level() - 1,
                    address: interior.child(*index).address(),
                }),
            },
        }
    }

    fn index(&self) -> usize {
        self.path.last().expect("there is a place").1
    }

    fn leaf(&self) -> &Leaf {
        match &*self.path.last().expect("there is a place").0 {
            Node::Leaf(leaf) => leaf,
            Node::Interior(_) => unreachable!("the place is an entry"),
        }
    }

    fn skip(&mut self) {
        self.path.last_mut().expect("there is a place").1 += 1;
    }

    fn take(&mut self) -> Option<Item> {
        let item = self.leaf().item(self.index()).to_item();
        self.skip();
        Some(item)
    }

    fn enter(&mut self) -> Result<()> {
        let (node, index) = self.path.last().expect("there is a place");
        let Node::Interior(interior) = &**node else { unreachable!("the place is a subtree") };
        let child = interior.load(*index, self.source)?;
        self.skip();
        self.path.push((child, 0));
        Ok(())
    }
}
