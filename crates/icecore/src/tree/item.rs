//! Items: what a key leads to.

use crate::units::{BlockCount, EXTENT_BLOCKS_MAX, LOG_ADDRESS_LIMIT, LogAddress, Run, Stream};

/// Longest item in bytes. Longer things are kept in several items.
pub const ITEM_BYTES_MAX: usize = 1024;

/// A run of file blocks on a run of log addresses: at most [`EXTENT_BLOCKS_MAX`] blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Where the blocks are.
    pub run: Run,
}

const ADDRESS_BITS: u32 = 48;
const LENGTH_BITS: u32 = 14;

impl Extent {
    /// True when every field is in the range that can be stored.
    pub const fn is_storable(&self) -> bool {
        let length = self.run.length.0;
        length >= 1
            && length <= EXTENT_BLOCKS_MAX
            && self.run.start.0 < LOG_ADDRESS_LIMIT
            && self.run.start.0 + length <= LOG_ADDRESS_LIMIT
    }

    /// Stream (2 bits), length (14 bits) and address (48 bits) in one word.
    pub(super) const fn pack(self) -> u64 {
        (self.run.stream as u64) << (ADDRESS_BITS + LENGTH_BITS)
            | self.run.length.0 << ADDRESS_BITS
            | self.run.start.0
    }

    /// The inverse of [`Extent::pack`]. Words are made by `pack`, or checked when a node is decoded.
    pub(super) fn unpack(word: u64) -> Self {
        let number = (word >> (ADDRESS_BITS + LENGTH_BITS)) as u8;
        let stream = Stream::from_number(number).expect("a packed extent has a known stream");
        let length = BlockCount(word >> ADDRESS_BITS & ((1 << LENGTH_BITS) - 1));
        Self { run: Run { stream, start: LogAddress(word & ((1 << ADDRESS_BITS) - 1)), length } }
    }
}

/// What a key leads to: an extent for [`super::ItemKind::Extent`], bytes for every other kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Item {
    /// A run of blocks.
    Extent(Extent),
    /// At most `ITEM_BYTES_MAX` bytes.
    Bytes(Vec<u8>),
}

/// An item seen where it lies in its leaf.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ItemRef<'a> {
    /// A run of blocks.
    Extent(Extent),
    /// Bytes in the leaf's heap.
    Bytes(&'a [u8]),
}

impl<'a> ItemRef<'a> {
    /// The bytes, if this is no extent.
    pub const fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Extent(_) => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }

    /// A copy that owns its bytes.
    pub fn to_item(self) -> Item {
        match self {
            Self::Extent(extent) => Item::Extent(extent),
            Self::Bytes(bytes) => Item::Bytes(bytes.to_vec()),
        }
    }
}

impl Item {
    /// The item, seen where it is.
    pub fn as_ref(&self) -> ItemRef<'_> {
        match self {
            Self::Extent(extent) => ItemRef::Extent(*extent),
            Self::Bytes(bytes) => ItemRef::Bytes(bytes),
        }
    }

    /// The bytes, if this is no extent.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Extent(_) => None,
            Self::Bytes(bytes) => Some(bytes),
        }
    }

    /// The extent, if this is one.
    pub const fn extent(&self) -> Option<Extent> {
        match self {
            Self::Extent(extent) => Some(*extent),
            Self::Bytes(_) => None,
        }
    }
}
