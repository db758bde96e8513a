//! Inode items and the super item: attributes, and counters of the dataset.

use super::TreeWriter;
use super::read::Read;
use crate::error::{Error, FileFault, Result};
use crate::tree::{Item, ItemKind, Key};
use crate::units::{BLOCK_SHIFT, FILE_BYTES_MAX, INODE_NUMBER_LIMIT, InodeNumber, Timestamp};

/// What an inode is. The numbers are stored.
#[derive(serde::Serialize, serde::Deserialize, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum InodeKind {
    /// A regular file.
    File = 1,
    /// A directory.
    Directory = 2,
    /// A symbolic link.
    Symlink = 3,
    /// A character device.
    CharDevice = 4,
    /// A block device.
    BlockDevice = 5,
    /// A named pipe.
    Fifo = 6,
    /// A socket.
    Socket = 7,
}

impl InodeKind {
    /// The kind with this number.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::File),
            2 => Some(Self::Directory),
            3 => Some(Self::Symlink),
            4 => Some(Self::CharDevice),
            5 => Some(Self::BlockDevice),
            6 => Some(Self::Fifo),
            7 => Some(Self::Socket),
            _ => None,
        }
    }
}

/// Attributes of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InodeItem {
    /// What it is.
    pub kind: InodeKind,
    /// Permission bits, with set-id and sticky bits (the lower 12).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names that lead here; 0 for an orphan. A directory has 2 and one for each directory in it.
    pub links: u32,
    /// Device number, of devices.
    pub rdev: u64,
    /// Bytes of a file or of a link's target; number of entries of a directory.
    pub size: u64,
    /// Blocks that a file has in its extents.
    pub blocks: u64,
    /// Tells apart two inodes that had the same number at different times.
    pub generation: u64,
    /// Last read.
    pub access: Timestamp,
    /// Last change of the content.
    pub modify: Timestamp,
    /// Last change of anything.
    pub change: Timestamp,
    /// When it was made.
    pub birth: Timestamp,
    /// The directory that a directory is in (the root is in itself); 0 for everything else.
    pub parent: InodeNumber,
}

const INODE_VERSION: u8 = 1;
const INODE_BYTES: usize = 88;
const SUPER_VERSION: u8 = 1;
const SUPER_BYTES: usize = 17;

/// Numbers taken from the front of a slice whose length was checked.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let (field, rest) = self.0.split_first_chunk::<N>().expect("the length was checked");
        self.0 = rest;
        *field
    }

    fn word(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn half(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn time(&mut self) -> Timestamp {
        Timestamp(i64::from_le_bytes(self.take()))
    }
}

impl InodeItem {
    /// The item, if it is of a file.
    pub(crate) fn of_file(self) -> Result<Self> {
        match self.kind {
            InodeKind::File => Ok(self),
            InodeKind::Directory => Err(FileFault::IsADirectory.into()),
            _ => Err(FileFault::Invalid.into()),
        }
    }

    /// The bytes of the item.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(INODE_BYTES);
        bytes.extend([INODE_VERSION, self.kind as u8]);
        bytes.extend(self.mode.to_le_bytes());
        for half in [self.uid, self.gid, self.links] {
            bytes.extend(half.to_le_bytes());
        }
        for word in [self.rdev, self.size, self.blocks, self.generation] {
            bytes.extend(word.to_le_bytes());
        }
        for time in [self.access, self.modify, self.change, self.birth] {
            bytes.extend(time.0.to_le_bytes());
        }
        bytes.extend(self.parent.0.to_le_bytes());
        assert!(bytes.len() == INODE_BYTES);
        bytes
    }

    /// Reads the bytes of an item; `None` if they are none.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != INODE_BYTES || bytes[0] != INODE_VERSION {
            return None;
        }
        let kind = InodeKind::from_number(bytes[1])?;
        let mut fields = Fields(&bytes[2..]);
        let item = Self {
            kind,
            mode: u16::from_le_bytes(fields.take()),
            uid: fields.half(),
            gid: fields.half(),
            links: fields.half(),
            rdev: fields.word(),
            size: fields.word(),
            blocks: fields.word(),
            generation: fields.word(),
            access: fields.time(),
            modify: fields.time(),
            change: fields.time(),
            birth: fields.time(),
            parent: InodeNumber(fields.word()),
        };
        let in_range = item.parent.0 < INODE_NUMBER_LIMIT
            && item.size <= FILE_BYTES_MAX
            && item.blocks <= FILE_BYTES_MAX >> BLOCK_SHIFT;
        in_range.then_some(item)
    }
}

/// Counters of a dataset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SuperItem {
    /// The number that the next inode gets. Numbers are not used again.
    pub next_inode: u64,
    /// Inodes that exist, orphans included.
    pub inodes: u64,
}

impl SuperItem {
    pub(super) const KEY: Key = Key::new(InodeNumber(0), ItemKind::Super, 0);

    fn encode(self) -> Vec<u8> {
        let mut bytes = vec![SUPER_VERSION];
        bytes.extend(self.next_inode.to_le_bytes());
        bytes.extend(self.inodes.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != SUPER_BYTES || bytes[0] != SUPER_VERSION {
            return None;
        }
        let mut fields = Fields(&bytes[1..]);
        Some(Self { next_inode: fields.word(), inodes: fields.word() })
    }
}

pub(super) const fn inode_key(inode: InodeNumber) -> Key {
    Key::new(inode, ItemKind::Inode, 0)
}

/// Above all keys of an inode.
pub(super) const fn inode_end(inode: InodeNumber) -> Key {
    Key((inode.0 as u128 + 1) << 72)
}

/// An inode number outside of the range cannot exist; it must not become a key.
pub(super) fn valid(inode: InodeNumber) -> Result<InodeNumber> {
    if inode.0 >= 1 && inode.0 < INODE_NUMBER_LIMIT { Ok(inode) } else { Err(FileFault::Stale.into()) }
}

pub(super) fn damaged(inode: InodeNumber, detail: &str) -> Error {
    Error::damaged(format!("inode {inode}"), detail)
}

pub(super) fn read(items: &(impl Read + ?Sized), inode: InodeNumber) -> Result<InodeItem> {
    let mut outcome = Err(FileFault::Stale.into());
    items.look(inode_key(valid(inode)?), &mut |item| {
        if let Some(item) = item {
            let decoded = item.bytes().and_then(InodeItem::decode);
            outcome = decoded.ok_or_else(|| damaged(inode, "its attributes make no sense"));
        }
    })?;
    outcome
}

pub(super) fn read_directory(items: &(impl Read + ?Sized), inode: InodeNumber) -> Result<InodeItem> {
    let item = read(items, inode)?;
    if item.kind == InodeKind::Directory { Ok(item) } else { Err(FileFault::NotADirectory.into()) }
}

pub(super) fn read_super(items: &(impl Read + ?Sized)) -> Result<SuperItem> {
    let item = items.item(SuperItem::KEY)?;
    let decoded = item.as_ref().and_then(Item::bytes).and_then(SuperItem::decode);
    decoded.ok_or_else(|| Error::damaged("the counters of the dataset", "they are missing or make no sense"))
}

impl TreeWriter<'_> {
    pub(super) fn stage_inode(&mut self, inode: InodeNumber, item: &InodeItem) {
        self.stage_bytes(inode_key(inode), item.encode());
    }

    pub(super) fn stage_super(&mut self, item: SuperItem) {
        self.stage_bytes(SuperItem::KEY, item.encode());
    }

    /// Stages a change of an inode's attributes.
    pub(super) fn update(
        &mut self,
        inode: InodeNumber,
        change: impl FnOnce(&mut InodeItem),
    ) -> Result<InodeItem> {
        let mut item = self.inode(inode)?;
        change(&mut item);
        self.stage_inode(inode, &item);
        Ok(item)
    }

    /// A directory that something can be put into: one that was removed takes nothing more.
    pub(super) fn living_directory(&self, inode: InodeNumber) -> Result<InodeItem> {
        let item = self.directory(inode)?;
        if item.links == 0 { Err(FileFault::NotFound.into()) } else { Ok(item) }
    }
}
