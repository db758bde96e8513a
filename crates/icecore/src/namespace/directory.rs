//! Directories: entries keyed by the hash of their names, so that cookies are stable.

use super::TreeWriter;
use super::inode::{InodeKind, damaged, valid};
use super::read::Read;
use crate::error::{FileFault, Result};
use crate::tree::{Item, ItemKind, Key};
use crate::units::{INODE_NUMBER_LIMIT, InodeNumber};

/// Longest name in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Hashes a name; the lower 55 bits are used.
pub type NameHash = fn(&[u8]) -> u64;

const HASH_BITS: u32 = 55;
const COUNTER_BITS: u32 = 8;
const HEAD_BYTES: usize = 6;

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirectoryEntry {
    /// Where the entry is: 256 to 2^63 - 1, unique in its directory, and the same while the entry exists.
    pub cookie: u64,
    /// What it leads to.
    pub inode: InodeNumber,
    /// What that is.
    pub kind: InodeKind,
    /// 1 to 255 bytes, any but `/` and NUL.
    pub name: Vec<u8>,
}

/// The hash that datasets use: the first eight bytes of BLAKE3.
pub fn name_hash(name: &[u8]) -> u64 {
    let hash = blake3::hash(name);
    let (first, _) = hash.as_bytes().split_first_chunk::<8>().expect("a hash has 32 bytes");
    u64::from_le_bytes(*first)
}

/// Refuses what cannot be a name.
pub(super) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        Err(FileFault::NameTooLong.into())
    } else if name.is_empty()
        || name == b"."
        || name == b".."
        || name.iter().any(|byte| matches!(byte, b'/' | 0))
    {
        Err(FileFault::Invalid.into())
    } else {
        Ok(())
    }
}

/// First cookie of all names with the hash of this one. Cookies below 256 are left to `.`, `..` and the like.
fn first_cookie(hash: u64) -> u64 {
    (hash & ((1 << HASH_BITS) - 1)).max(1) << COUNTER_BITS
}

fn entry_key(directory: InodeNumber, cookie: u64) -> Key {
    Key::new(directory, ItemKind::DirectoryEntry, cookie)
}

/// The entry that an item of a directory holds. `Damaged` if it makes no sense.
pub fn decode(key: Key, item: &Item) -> Result<DirectoryEntry> {
    let read = || {
        let (head, name) = item.bytes()?.split_first_chunk::<HEAD_BYTES>()?;
        let mut number = [0; 8];
        number[..5].copy_from_slice(&head[1..]);
        check_name(name).ok()?;
        let inode = InodeNumber(u64::from_le_bytes(number));
        (inode.0 > 0).then_some(())?;
        let kind = InodeKind::from_number(head[0])?;
        Some(DirectoryEntry { cookie: key.offset(), inode, kind, name: name.to_vec() })
    };
    read().ok_or_else(|| damaged(key.inode(), "an entry of this directory makes no sense"))
}

fn encode(inode: InodeNumber, kind: InodeKind, name: &[u8]) -> Vec<u8> {
    assert!(inode.0 < INODE_NUMBER_LIMIT);
    let mut bytes = Vec::with_capacity(HEAD_BYTES + name.len());
    bytes.push(kind as u8);
    bytes.extend(&inode.0.to_le_bytes()[..5]);
    bytes.extend(name);
    bytes
}

pub(super) fn lookup(
    items: &(impl Read + ?Sized),
    directory: InodeNumber,
    name: &[u8],
) -> Result<DirectoryEntry> {
    items.directory(directory)?;
    find(items, directory, name)?.ok_or_else(|| FileFault::NotFound.into())
}

/// The entry of this name in something that is known to be a directory.
pub(super) fn find(
    items: &(impl Read + ?Sized),
    directory: InodeNumber,
    name: &[u8],
) -> Result<Option<DirectoryEntry>> {
    check_name(name)?;
    let first = first_cookie(items.name_hash()(name));
    let mut found = None;
    let end = entry_key(directory, first + (1 << COUNTER_BITS));
    items.scan(entry_key(directory, first), end, &mut |key, item| {
        found = Some(decode(key, &item)?).filter(|entry| entry.name == name);
        Ok(found.is_none())
    })?;
    Ok(found)
}

pub(super) fn entries(
    items: &(impl Read + ?Sized),
    directory: InodeNumber,
    after: u64,
    visit: &mut dyn FnMut(DirectoryEntry) -> Result<bool>,
) -> Result<()> {
    items.directory(directory)?;
    let from = entry_key(directory, after).next();
    let end = entry_key(valid(directory)?, u64::MAX);
    items.scan(from.min(end), end, &mut |key, item| visit(decode(key, &item)?))
}

/// True if the directory has no entries.
pub(super) fn is_empty(items: &(impl Read + ?Sized), directory: InodeNumber) -> Result<bool> {
    let mut empty = true;
    entries(items, directory, 0, &mut |_| {
        empty = false;
        Ok(false)
    })?;
    Ok(empty)
}

impl TreeWriter<'_> {
    /// Stages a new entry, under the first free cookie of its hash. The name must not exist.
    pub(super) fn stage_new_entry(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        inode: InodeNumber,
        kind: InodeKind,
    ) -> Result<()> {
        let first = first_cookie((self.name_hash)(name));
        let mut free = first;
        let end = entry_key(directory, first + (1 << COUNTER_BITS));
        self.scan(entry_key(directory, first), end, &mut |key, _| {
            let taken = key.offset() == free;
            free += u64::from(taken);
            Ok(taken)
        })?;
        if free >> COUNTER_BITS != first >> COUNTER_BITS {
            return Err(FileFault::DirectoryFull.into());
        }
        self.stage_entry(directory, free, name, inode, kind);
        Ok(())
    }

    /// Stages an entry under a cookie that belongs to this name.
    pub(super) fn stage_entry(
        &mut self,
        directory: InodeNumber,
        cookie: u64,
        name: &[u8],
        inode: InodeNumber,
        kind: InodeKind,
    ) {
        self.stage_bytes(entry_key(directory, cookie), encode(inode, kind, name));
    }

    /// Stages the removal of an entry.
    pub(super) fn stage_no_entry(&mut self, directory: InodeNumber, cookie: u64) {
        self.stage(entry_key(directory, cookie), None);
    }
}
