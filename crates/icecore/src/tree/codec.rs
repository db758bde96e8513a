//! A node as one block: header, checksum and entries. The layout is in `docs/format/node.md`.

use super::entry::{
    ADJACENT, ExtentContext, LONG, SAME_GROUP, SAME_LENGTH, SAME_STREAM, Writer, put_child, put_leaf_entry,
};
use super::interior::Interior;
use super::item::{Extent, ITEM_BYTES_MAX, ItemRef};
use super::key::{Key, group, is_extent};
use super::leaf::Leaf;
use super::node::{LEVEL_MAX, Node};
use super::slot::Child;
use crate::error::{Error, Result};
use crate::format::varint::{take_varint, unzigzag};
use crate::units::{BLOCK_BYTES, BlockCount, INODE_NUMBER_LIMIT, LOG_ADDRESS_LIMIT, LogAddress, Run, Stream};
use crc_fast::{CrcAlgorithm, Digest};

/// Bytes of the header of a node.
pub(super) const HEADER_BYTES: usize = 24;
/// Bytes left for entries.
pub(super) const PAYLOAD_BYTES: usize = BLOCK_BYTES - HEADER_BYTES;

const MAGIC: [u8; 4] = *b"IcTn";
const VERSION: u8 = 1;
const CHECKSUM_AT: usize = 4;
/// No entry of any kind takes fewer bytes.
const ENTRY_BYTES_MIN: usize = 2;

/// CRC32C of the block, with zeros in the place of the checksum.
fn checksum(block: &[u8; BLOCK_BYTES]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..CHECKSUM_AT]);
    digest.update(&[0; 4]);
    digest.update(&block[CHECKSUM_AT + 4..]);
    digest.finalize() as u32
}

/// Fills `block` with the node. Equal nodes at equal addresses give equal bytes.
pub(super) fn encode(node: &Node, address: LogAddress, block: &mut [u8; BLOCK_BYTES]) {
    assert!(node.used() <= PAYLOAD_BYTES && node.level() <= LEVEL_MAX && address.0 < LOG_ADDRESS_LIMIT);
    block.fill(0);
    block[0..4].copy_from_slice(&MAGIC);
    block[8] = VERSION;
    block[9] = node.level();
    block[10..12].copy_from_slice(&(node.len() as u16).to_le_bytes());
    block[12..14].copy_from_slice(&(node.used() as u16).to_le_bytes());
    block[16..24].copy_from_slice(&address.0.to_le_bytes());
    let mut writer = Writer { block, at: HEADER_BYTES, heap: &[] };
    match node {
        Node::Leaf(leaf) => {
            writer.heap = leaf.heap();
            for index in 0..leaf.len() {
                let (key, value) = leaf.entry(index);
                put_leaf_entry(&mut writer, leaf.before(index), key, value);
            }
        }
        Node::Interior(interior) => {
            for index in 0..interior.len() {
                let (key, child) = interior.entry(index);
                put_child(&mut writer, interior.before(index), key, child);
            }
        }
    }
    assert!(writer.at == HEADER_BYTES + node.used(), "the size kept with a node is the size it takes");
    let sum = checksum(block);
    block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Reads the node that was written at `address`. Any bytes are answered, with a node or with
/// [`Error::Damaged`]; a node that is answered encodes to the same bytes.
pub(super) fn decode(block: &[u8; BLOCK_BYTES], address: LogAddress) -> Result<Node> {
    decode_block(block, address).map_err(|detail| Error::damaged(format!("tree node {address}"), detail))
}

type Decoded<T> = std::result::Result<T, &'static str>;

fn decode_block(block: &[u8; BLOCK_BYTES], address: LogAddress) -> Decoded<Node> {
    let word = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]) as usize;
    if block[0..4] != MAGIC {
        return Err("it is no tree node");
    }
    if block[4..8] != checksum(block).to_le_bytes() {
        return Err("the checksum does not fit");
    }
    if block[8] != VERSION {
        return Err("its format version is unknown");
    }
    if block[16..24] != address.0.to_le_bytes() {
        return Err("it is a node of another address");
    }
    if address.0 >= LOG_ADDRESS_LIMIT {
        return Err("its address is out of range");
    }
    let (level, count, used) = (block[9], word(10), word(12));
    if level > LEVEL_MAX || word(14) != 0 || used > PAYLOAD_BYTES || count * ENTRY_BYTES_MIN > used {
        return Err("its header contradicts itself");
    }
    let mut reader = Reader { left: &block[HEADER_BYTES..HEADER_BYTES + used] };
    let node = if level == 0 {
        Node::Leaf(decode_leaf(&mut reader, count)?)
    } else {
        Node::Interior(decode_interior(&mut reader, level, count)?)
    };
    if !reader.left.is_empty() || node.used() != used {
        return Err("its entries do not take the bytes that they should");
    }
    if block[HEADER_BYTES + used..].iter().any(|byte| *byte != 0) {
        return Err("there is something behind its entries");
    }
    Ok(node)
}

struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Decoded<u8> {
        let (first, rest) = self.left.split_first().ok_or("an entry is cut off")?;
        self.left = rest;
        Ok(*first)
    }

    fn bytes(&mut self, length: usize) -> Decoded<&'a [u8]> {
        let (bytes, rest) = self.left.split_at_checked(length).ok_or("an item is cut off")?;
        self.left = rest;
        Ok(bytes)
    }

    fn varint(&mut self) -> Decoded<u64> {
        take_varint(&mut self.left).ok_or("a number is cut off or too large")
    }

    /// A key in full: kind, distance of inodes, offset.
    fn key_in_full(&mut self, before: Option<u128>) -> Decoded<u128> {
        let kind = self.byte()?;
        let inode_before = before.map_or(0, |before| group(before) >> 8);
        let inode = self.varint()?.checked_add(inode_before).filter(|inode| *inode < INODE_NUMBER_LIMIT);
        let inode = inode.ok_or("an inode number is out of range")?;
        let offset = self.varint()?;
        if before.is_some_and(|before| group(before) == inode << 8 | u64::from(kind)) {
            return Err("a key is written in full without need");
        }
        Ok(u128::from(inode) << 72 | u128::from(kind) << 64 | u128::from(offset))
    }

    /// A key of the inode and kind of the one before.
    fn key_within(&mut self, before: u128) -> Decoded<u128> {
        let distance = self.varint()?;
        advance(before, distance)
    }

    fn key(&mut self, same: bool, before: Option<u128>) -> Decoded<u128> {
        match before {
            Some(before) if same => self.key_within(before),
            None if same => Err("the first entry refers to one before"),
            _ => self.key_in_full(before),
        }
    }
}

fn advance(before: u128, distance: u64) -> Decoded<u128> {
    (before as u64).checked_add(distance).ok_or("an offset is out of range")?;
    Ok(before + u128::from(distance))
}

fn ascending(before: Option<u128>, key: u128) -> Decoded<()> {
    if before.is_none_or(|before| before < key) { Ok(()) } else { Err("its keys do not ascend") }
}

fn decode_leaf(reader: &mut Reader<'_>, count: usize) -> Decoded<Leaf> {
    let mut leaf = Leaf::with_capacity(count);
    for index in 0..count {
        let head = reader.byte()?;
        let before = leaf.before(index);
        let key_before = before.map(|(key, _)| key);
        // What kind of entry this is shows in the key before, or in the next byte.
        let extent = match key_before {
            Some(key_before) if head & SAME_GROUP != 0 => is_extent(key_before),
            _ => reader.left.first().is_some_and(|kind| is_extent(u128::from(*kind) << 64)),
        };
        if extent {
            let same = before.filter(|_| head & SAME_GROUP != 0);
            let (key, extent) = decode_extent(reader, head, key_before, same)?;
            ascending(key_before, key)?;
            leaf.push(key, ItemRef::Extent(extent));
        } else {
            let key = reader.key(head & SAME_GROUP != 0, key_before)?;
            ascending(key_before, key)?;
            Key(key).kind().ok_or("an item is of an unknown kind")?;
            let above = if head & LONG != 0 { reader.varint()? } else { 0 };
            let length = usize::from(head >> 2) | (above.min(BLOCK_BYTES as u64) as usize) << 6;
            if length > ITEM_BYTES_MAX {
                return Err("an item is too long");
            }
            leaf.push(key, ItemRef::Bytes(reader.bytes(length)?));
        }
    }
    Ok(leaf)
}

fn decode_extent(
    reader: &mut Reader<'_>,
    head: u8,
    key_before: Option<u128>,
    same: Option<(u128, u64)>,
) -> Decoded<(u128, Extent)> {
    let context = same.map_or_else(ExtentContext::default, |(_, word)| ExtentContext::after(word));
    let key = match same {
        Some((key_before, _)) if head & ADJACENT != 0 => advance(key_before, context.length)?,
        None if head & ADJACENT != 0 => return Err("an extent refers to one before"),
        _ => reader.key(head & SAME_GROUP != 0, key_before)?,
    };
    let length = if head & SAME_LENGTH != 0 { context.length } else { reader.varint()? };
    let number = if head & SAME_STREAM != 0 { context.stream } else { reader.byte()? };
    let stream = Stream::from_number(number).ok_or("an extent is of an unknown stream")?;
    let above = reader.varint()?;
    // 45 bits hold the distance between any two addresses, less the four bits in the head.
    if above >> 45 != 0 {
        return Err("an address is out of range");
    }
    let address = context.end as i64 + unzigzag(above << 4 | u64::from(head >> 4));
    let start = u64::try_from(address).ok().filter(|start| *start < LOG_ADDRESS_LIMIT);
    let start = LogAddress(start.ok_or("an address is out of range")?);
    // Checked before it is put into a run: a length near 2^64 would overflow there.
    if length > BLOCK_BYTES as u64 * 4 {
        return Err("an extent is too long");
    }
    let extent = Extent { run: Run { stream, start, length: BlockCount(length) } };
    if extent.is_storable() { Ok((key, extent)) } else { Err("an extent is out of range") }
}

fn decode_interior(reader: &mut Reader<'_>, level: u8, count: usize) -> Decoded<Interior> {
    if count == 0 {
        return Err("it has no children");
    }
    let mut keys = Vec::with_capacity(count);
    let mut children = Vec::with_capacity(count);
    let mut address_before = 0;
    for _ in 0..count {
        let head = reader.byte()?;
        let before = keys.last().copied();
        let key = reader.key(head & SAME_GROUP != 0, before)?;
        ascending(before, key)?;
        let above = reader.varint()?;
        if above >> 42 != 0 {
            return Err("a child's address is out of range");
        }
        let address = address_before + unzigzag(above << 7 | u64::from(head >> 1));
        if !(0..LOG_ADDRESS_LIMIT as i64).contains(&address) {
            return Err("a child's address is out of range");
        }
        keys.push(key);
        children.push(Child::Address(LogAddress(address as u64)));
        address_before = address;
    }
    Ok(Interior::new(level, keys, children))
}
