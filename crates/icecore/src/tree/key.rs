//! Keys: everything a version holds is one ordered map from (inode, kind, offset) to an item.

use crate::units::{INODE_NUMBER_LIMIT, InodeNumber};
use std::fmt;

/// What an item is. The numbers are stored; they also order the items of one inode.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ItemKind {
    /// Attributes of an inode; offset 0.
    Inode = 1,
    /// One name in a directory; offset is the hash of the name with its collision counter.
    DirectoryEntry = 2,
    /// A chunk of an extended attribute.
    Xattr = 3,
    /// A run of file blocks; offset is the first of them.
    Extent = 4,
    /// A chunk of the target of a symbolic link.
    Symlink = 5,
    /// An inode that has no name left and whose data is still to be released; inode 0, offset is its number.
    Orphan = 6,
    /// Counters of the whole dataset; inode 0, offset 0.
    Super = 7,
}

impl ItemKind {
    /// The kind with this number.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Inode),
            2 => Some(Self::DirectoryEntry),
            3 => Some(Self::Xattr),
            4 => Some(Self::Extent),
            5 => Some(Self::Symlink),
            6 => Some(Self::Orphan),
            7 => Some(Self::Super),
            _ => None,
        }
    }
}

/// A key: inode (40 bits), kind (8 bits), offset (64 bits), in this order of weight.
///
/// Any number can bound a range; only keys made by [`Key::new`] can be inserted.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u128);

impl Key {
    /// Not above any key.
    pub const MIN: Self = Self(0);
    /// Above every key.
    pub const MAX: Self = Self(u128::MAX);

    /// The key of an item. Panics if the inode number is out of range.
    pub const fn new(inode: InodeNumber, kind: ItemKind, offset: u64) -> Self {
        assert!(inode.0 < INODE_NUMBER_LIMIT);
        Self((inode.0 as u128) << 72 | (kind as u128) << 64 | offset as u128)
    }

    /// The inode that the item belongs to.
    pub const fn inode(self) -> InodeNumber {
        InodeNumber((self.0 >> 72) as u64)
    }

    /// What the item is, or `None` for a bound that is no item's key.
    pub const fn kind(self) -> Option<ItemKind> {
        ItemKind::from_number((self.0 >> 64) as u8)
    }

    /// The offset within the kind.
    pub const fn offset(self) -> u64 {
        self.0 as u64
    }

    /// The next greater key ([`Key::MAX`] stays).
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Some(kind) => write!(formatter, "{}:{kind:?}:{}", self.inode(), self.offset()),
            None => write!(formatter, "{:#x}", self.0),
        }
    }
}

/// Inode and kind together: entries that share it are coded relative to each other.
pub(super) const fn group(key: u128) -> u64 {
    (key >> 64) as u64
}

/// True for a key whose item is an extent.
pub(super) const fn is_extent(key: u128) -> bool {
    group(key) as u8 == ItemKind::Extent as u8
}
