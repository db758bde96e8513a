//! Extended attributes: name and value in chunks, under the hash of the name.

use super::TreeWriter;
use super::directory::NAME_BYTES_MAX;
use super::inode::damaged;
use super::read::Read;
use crate::error::{FileFault, Result};
use crate::tree::{ITEM_BYTES_MAX, Item, ItemKind, Key};
use crate::units::{InodeNumber, Timestamp};

/// Longest value of an extended attribute, in bytes.
pub const XATTR_BYTES_MAX: usize = 64 << 10;

/// What to expect of an extended attribute that is to be set.
#[derive(serde::Serialize, serde::Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum XattrHow {
    /// It may exist or not.
    Set,
    /// It must not exist.
    Create,
    /// It must exist.
    Replace,
}

const HASH_BITS: u32 = 48;
const CHUNK_BITS: u32 = 8;
/// Hash, collision counter (8 bits), chunk (8 bits): so many offsets belong to one hash.
const OFFSETS_OF_HASH: u64 = 1 << 16;

fn key(inode: InodeNumber, offset: u64) -> Key {
    Key::new(inode, ItemKind::Xattr, offset)
}

/// What the first chunk begins with: the name and the length of the value.
struct Head<'a> {
    name: &'a [u8],
    value_length: usize,
    value: &'a [u8],
}

fn head<'a>(inode: InodeNumber, item: &'a Item) -> Result<Head<'a>> {
    let read = || {
        let (name_length, rest) = item.bytes()?.split_first()?;
        let (name, rest) = rest.split_at_checked(usize::from(*name_length))?;
        let (length, value) = rest.split_first_chunk::<4>()?;
        let value_length = u32::from_le_bytes(*length) as usize;
        (!name.is_empty() && value_length <= XATTR_BYTES_MAX).then_some(Head { name, value_length, value })
    };
    read().ok_or_else(|| damaged(inode, "an extended attribute makes no sense"))
}

fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        Err(FileFault::NameTooLong.into())
    } else if name.is_empty() || name.contains(&0) {
        Err(FileFault::Invalid.into())
    } else {
        Ok(())
    }
}

fn first_offset(items: &(impl Read + ?Sized), name: &[u8]) -> u64 {
    (items.name_hash()(name) & ((1 << HASH_BITS) - 1)) * OFFSETS_OF_HASH
}

fn end_of_hash(inode: InodeNumber, first: u64) -> Key {
    Key(key(inode, first).0 + u128::from(OFFSETS_OF_HASH))
}

/// Where an attribute is, or where it could go.
enum Found {
    /// Offset of the first chunk, and number of chunks.
    At { offset: u64, chunks: u64 },
    /// Nowhere; a free offset, unless others with its hash have taken them all.
    Nowhere { free: Option<u64> },
}

fn find(items: &(impl Read + ?Sized), inode: InodeNumber, name: &[u8]) -> Result<Found> {
    let first = first_offset(items, name);
    let mut taken = 0;
    let mut found = None;
    items.scan(key(inode, first), end_of_hash(inode, first), &mut |key, item| {
        if key.offset() % (1 << CHUNK_BITS) != 0 {
            return Ok(true);
        }
        let head = head(inode, &item)?;
        if head.name == name {
            let bytes = 1 + head.name.len() + 4 + head.value_length;
            found = Some(Found::At { offset: key.offset(), chunks: bytes.div_ceil(ITEM_BYTES_MAX) as u64 });
        } else if key.offset() - first == taken << CHUNK_BITS {
            taken += 1;
        }
        Ok(found.is_none())
    })?;
    let free = taken << CHUNK_BITS;
    Ok(found.unwrap_or(Found::Nowhere { free: (free < OFFSETS_OF_HASH).then(|| first + free) }))
}

pub(super) fn get(items: &(impl Read + ?Sized), inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
    check_name(name)?;
    items.inode(inode)?;
    let Found::At { offset, chunks } = find(items, inode, name)? else {
        return Err(FileFault::NoSuchAttribute.into());
    };
    let mut value = Vec::new();
    let mut length = 0;
    let end = Key(key(inode, offset).0 + u128::from(chunks));
    items.scan(key(inode, offset), end, &mut |at, item| {
        if at.offset() == offset {
            let head = head(inode, &item)?;
            length = head.value_length;
            value.extend_from_slice(head.value);
        } else {
            value.extend_from_slice(item.bytes().unwrap_or_default());
        }
        Ok(true)
    })?;
    if value.len() == length { Ok(value) } else { Err(damaged(inode, "an extended attribute is incomplete")) }
}

pub(super) fn names(items: &(impl Read + ?Sized), inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
    items.inode(inode)?;
    let mut names = Vec::new();
    let end = Key::new(inode, ItemKind::Extent, 0);
    items.scan(key(inode, 0), end, &mut |key, item| {
        if key.offset() % (1 << CHUNK_BITS) == 0 {
            names.push(head(inode, &item)?.name.to_vec());
        }
        Ok(true)
    })?;
    Ok(names)
}

impl TreeWriter<'_> {
    /// Sets an extended attribute: a name of 1 to 255 bytes without NUL, a value of at most 64 KiB.
    ///
    /// `NameTooLong`, `Invalid` (the name), `AttributeTooLarge`, `Exists` and `NoSuchAttribute` (as `how`
    /// says).
    pub fn set_xattr(
        &mut self,
        inode: InodeNumber,
        name: &[u8],
        value: &[u8],
        how: XattrHow,
        time: Timestamp,
    ) -> Result<()> {
        self.atomically(|writer| {
            check_name(name)?;
            if value.len() > XATTR_BYTES_MAX {
                return Err(FileFault::AttributeTooLarge.into());
            }
            writer.update(inode, |item| item.change = time)?;
            let (offset, chunks_before) = match (find(writer, inode, name)?, how) {
                (Found::At { .. }, XattrHow::Create) => return Err(FileFault::Exists.into()),
                (Found::Nowhere { .. }, XattrHow::Replace) => return Err(FileFault::NoSuchAttribute.into()),
                (Found::At { offset, chunks }, _) => (offset, chunks),
                (Found::Nowhere { free }, _) => (free.ok_or(FileFault::DirectoryFull)?, 0),
            };
            let mut bytes = Vec::with_capacity(1 + name.len() + 4 + value.len());
            bytes.push(name.len() as u8);
            bytes.extend(name);
            bytes.extend((value.len() as u32).to_le_bytes());
            bytes.extend(value);
            let chunks = bytes.chunks(ITEM_BYTES_MAX);
            let count = chunks.len() as u64;
            for (chunk, bytes) in (0..).zip(chunks) {
                writer.stage_bytes(key(inode, offset + chunk), bytes.to_vec());
            }
            for chunk in count..chunks_before {
                writer.stage(key(inode, offset + chunk), None);
            }
            Ok(())
        })
    }

    /// Removes an extended attribute. `NoSuchAttribute` if there is none of this name.
    pub fn remove_xattr(&mut self, inode: InodeNumber, name: &[u8], time: Timestamp) -> Result<()> {
        self.atomically(|writer| {
            check_name(name)?;
            writer.update(inode, |item| item.change = time)?;
            let Found::At { offset, chunks } = find(writer, inode, name)? else {
                return Err(FileFault::NoSuchAttribute.into());
            };
            for chunk in 0..chunks {
                writer.stage(key(inode, offset + chunk), None);
            }
            Ok(())
        })
    }
}
