//! A node's content: a leaf or an interior node.

use super::codec::{self, PAYLOAD_BYTES};
use super::interior::Interior;
use super::item::ItemRef;
use super::key::Key;
use super::leaf::Leaf;
use super::slot::Child;
use crate::error::Result;
use crate::units::{BLOCK_BYTES, LogAddress};

/// Highest level of a node. A tree of this height would hold more than any pool can.
pub(super) const LEVEL_MAX: u8 = 15;

/// Below this size a node that has shrunk looks for a neighbour to join.
const SIZE_TO_JOIN: usize = PAYLOAD_BYTES / 3;
/// Nodes join only if this much is left free, so that the next insertion does not split them again.
const JOINED_SIZE_MAX: usize = PAYLOAD_BYTES - PAYLOAD_BYTES / 8;

/// The content of a node. It does not know its own address: the slot does.
#[derive(Clone, Debug)]
#[allow(private_interfaces)]
#[non_exhaustive]
pub enum Node {
    /// Level 0: items.
    #[doc(hidden)]
    Leaf(Leaf),
    /// Level 1 and up: children.
    #[doc(hidden)]
    Interior(Interior),
}

impl Node {
    /// Reads the node that was written at `address`.
    ///
    /// Any bytes are answered. [`crate::Error::Damaged`] if they are not exactly what [`Node::encode`] makes.
    pub fn decode(block: &[u8; BLOCK_BYTES], address: LogAddress) -> Result<Self> {
        codec::decode(block, address)
    }

    /// Fills the block with this node, as the one that lives at `address`.
    pub fn encode(&self, address: LogAddress, block: &mut [u8; BLOCK_BYTES]) {
        codec::encode(self, address, block);
    }

    /// Height above the leaves.
    pub fn level(&self) -> u8 {
        match self {
            Self::Leaf(_) => 0,
            Self::Interior(interior) => interior.level(),
        }
    }

    /// True at level 0.
    pub fn is_leaf(&self) -> bool {
        matches!(self, Self::Leaf(_))
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.keys().len()
    }

    /// True for a leaf without items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The items of a leaf; nothing for an interior node.
    pub fn items(&self) -> impl Iterator<Item = (Key, ItemRef<'_>)> {
        let leaf = match self {
            Self::Leaf(leaf) => Some(leaf),
            Self::Interior(_) => None,
        };
        leaf.into_iter()
            .flat_map(|leaf| (0..leaf.len()).map(|index| (Key(leaf.keys()[index]), leaf.item(index))))
    }

    /// Bytes that the entries take in the block.
    pub fn used(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.used(),
            Self::Interior(interior) => interior.used(),
        }
    }

    /// Bytes of memory that the node takes, for a cache that is bounded by them.
    pub fn memory_bytes(&self) -> usize {
        let own = match self {
            Self::Leaf(leaf) => leaf.memory_bytes(),
            Self::Interior(interior) => interior.memory_bytes(),
        };
        own + size_of::<Self>()
    }

    pub(super) fn keys(&self) -> &[u128] {
        match self {
            Self::Leaf(leaf) => leaf.keys(),
            Self::Interior(interior) => interior.keys(),
        }
    }

    pub(super) fn measure(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.measure(),
            Self::Interior(interior) => interior.measure(),
        }
    }

    pub(super) fn is_overfull(&self) -> bool {
        self.used() > PAYLOAD_BYTES
    }

    pub(super) fn is_sparse(&self) -> bool {
        self.used() < SIZE_TO_JOIN
    }

    /// True if this node and the one right of it may become one.
    pub(super) fn may_join(&self, right: &Self) -> bool {
        let size = match (self, right) {
            (Self::Leaf(left), Self::Leaf(right)) => left.joined_size(right),
            (Self::Interior(left), Self::Interior(right)) => left.joined_size(right),
            _ => return false,
        };
        size <= if self.is_empty() || right.is_empty() { PAYLOAD_BYTES } else { JOINED_SIZE_MAX }
    }

    /// Takes over everything of the node right of this one, of the same level.
    pub(super) fn append(&mut self, right: &Self) {
        match (self, right) {
            (Self::Leaf(left), Self::Leaf(right)) => left.append(right),
            (Self::Interior(left), Self::Interior(right)) => left.append(right),
            _ => unreachable!("only nodes of one level are joined"),
        }
    }

    /// Splits an overfull node: keeps the lower part, returns the upper and its first key.
    pub(super) fn split(&mut self, changed: u128) -> (u128, Self) {
        let right = match self {
            Self::Leaf(leaf) => Self::Leaf(leaf.split(changed)),
            Self::Interior(interior) => Self::Interior(interior.split(changed)),
        };
        (right.keys()[0], right)
    }

    /// A node to put into a cache: it keeps no other node alive.
    pub(super) fn detached(&self) -> Option<Self> {
        match self {
            Self::Leaf(_) => None,
            Self::Interior(interior) => Some(Self::Interior(interior.detached())),
        }
    }

    /// An interior node over these children.
    pub(super) fn over(level: u8, keys: Vec<u128>, children: Vec<Child>) -> Self {
        Self::Interior(Interior::new(level, keys, children))
    }
}
