//! An interior node in memory: the first keys of its children, and the children.

use super::codec::PAYLOAD_BYTES;
use super::entry::{Counter, put_child};
use super::node::Node;
use super::slot::Child;
use super::source::NodeSource;
use crate::error::{Error, Result};
use crate::units::LogAddress;
use std::sync::Arc;

/// Children in the order of their keys.
///
/// Child `i` holds keys from `keys[i]` up to, not including, `keys[i + 1]`. `keys[0]` equals the key under
/// which the parent holds this node, and is zero along the left edge of the tree. There is always at least
/// one child. `used` is exactly the number of bytes that the entries take when encoded.
#[derive(Clone, Debug)]
pub(super) struct Interior {
    level: u8,
    keys: Vec<u128>,
    children: Vec<Child>,
    used: usize,
}

impl Interior {
    pub fn new(level: u8, keys: Vec<u128>, children: Vec<Child>) -> Self {
        assert!(level > 0 && keys.len() == children.len() && !keys.is_empty());
        let mut interior = Self { level, keys, children, used: 0 };
        interior.used = interior.measure();
        interior
    }

    pub fn level(&self) -> u8 {
        self.level
    }

    pub fn len(&self) -> usize {
        self.keys.len()
    }

    pub fn used(&self) -> usize {
        self.used
    }

    pub fn keys(&self) -> &[u128] {
        &self.keys
    }

    pub fn child(&self, index: usize) -> &Child {
        &self.children[index]
    }

    pub fn child_mut(&mut self, index: usize) -> &mut Child {
        &mut self.children[index]
    }

    pub fn into_only_child(mut self) -> Child {
        assert!(self.len() == 1);
        self.children.remove(0)
    }

    /// Index of the child whose range holds `key`.
    pub fn index_of(&self, key: u128) -> usize {
        self.keys[1..].partition_point(|first| *first <= key)
    }

    pub fn entry(&self, index: usize) -> (u128, u64) {
        (self.keys[index], self.children[index].address().0)
    }

    pub fn before(&self, index: usize) -> Option<(u128, u64)> {
        index.checked_sub(1).map(|before| self.entry(before))
    }

    /// The content of a child, which must fit its place here.
    pub fn load(&self, index: usize, source: &dyn NodeSource) -> Result<Arc<Node>> {
        let child = self.children[index].load(source)?;
        let keys = child.keys();
        let starts = match (child.is_leaf(), keys.first()) {
            (true, None) => true,
            (true, Some(first)) => *first >= self.keys[index],
            (false, first) => first == Some(&self.keys[index]),
        };
        let ends = match (keys.last(), self.keys.get(index + 1)) {
            (Some(last), Some(next)) => last < next,
            _ => true,
        };
        if child.level() + 1 == self.level && starts && ends {
            Ok(child)
        } else {
            let place = format!("tree node {}", self.children[index].address());
            Err(Error::damaged(place, "its level or keys do not fit its parent"))
        }
    }

    /// Keeps `used` right after the child at `index` got a new address.
    pub fn readdressed(&mut self, index: usize, former: LogAddress) {
        let (key, address) = self.entry(index);
        if address == former.0 {
            return;
        }
        let before = self.before(index);
        self.used = self.used + child_size(before, (key, address)) - child_size(before, (key, former.0));
        if index + 1 < self.len() {
            let next = self.entry(index + 1);
            self.used =
                self.used + child_size(Some((key, address)), next) - child_size(Some((key, former.0)), next);
        }
    }

    pub fn insert(&mut self, index: usize, key: u128, child: Child) {
        self.keys.insert(index, key);
        self.children.insert(index, child);
        self.used = self.measure();
    }

    /// Takes the child at `index` out; its range goes to the one left of it.
    pub fn remove(&mut self, index: usize) -> Child {
        assert!(index > 0);
        self.keys.remove(index);
        let child = self.children.remove(index);
        self.used = self.measure();
        child
    }

    /// Takes the child at `index` out; its range goes to the one right of it.
    pub fn remove_into_right(&mut self, index: usize) -> Child {
        self.keys.remove(index + 1);
        let child = self.children.remove(index);
        self.used = self.measure();
        child
    }

    /// Bytes that this node and the one right of it would take as one.
    pub fn joined_size(&self, right: &Self) -> usize {
        let first = right.entry(0);
        self.used + right.used - child_size(None, first) + child_size(self.before(self.len()), first)
    }

    /// Takes over everything of the node right of this one.
    pub fn append(&mut self, right: &Self) {
        assert!(self.level == right.level);
        self.keys.extend_from_slice(&right.keys);
        self.children.extend(right.children.iter().cloned());
        self.used = self.measure();
    }

    /// Splits an overfull node: keeps the lower part, returns the upper. Where keys ascend, the lower stays
    /// full.
    pub fn split(&mut self, changed: u128) -> Self {
        let index = if self.index_of(changed) + 1 == self.len() { self.len() - 1 } else { self.len() / 2 };
        let right = Self::new(self.level, self.keys.split_off(index), self.children.split_off(index));
        self.used = self.measure();
        if self.used <= PAYLOAD_BYTES && right.used <= PAYLOAD_BYTES {
            return right;
        }
        // New addresses alone can have made it overfull by more than the last entry.
        self.append(&right);
        let index = self.len() / 2;
        let right = Self::new(self.level, self.keys.split_off(index), self.children.split_off(index));
        self.used = self.measure();
        assert!(self.used <= PAYLOAD_BYTES && right.used <= PAYLOAD_BYTES, "a split makes both halves fit");
        right
    }

    /// A copy that names its children by address only, for a cache: it keeps nothing else alive.
    pub fn detached(&self) -> Self {
        let children = self.children.iter().map(|child| Child::Address(child.address())).collect();
        Self { level: self.level, keys: self.keys.clone(), children, used: self.used }
    }

    /// Computes `used` from the entries.
    pub fn measure(&self) -> usize {
        (0..self.len()).map(|index| child_size(self.before(index), self.entry(index))).sum()
    }

    /// Bytes of memory that this node takes, without its children.
    pub fn memory_bytes(&self) -> usize {
        self.keys.capacity() * 16 + self.children.capacity() * size_of::<Child>()
    }
}

fn child_size(before: Option<(u128, u64)>, (key, address): (u128, u64)) -> usize {
    let mut counter = Counter(0);
    put_child(&mut counter, before, key, address);
    counter.0
}
