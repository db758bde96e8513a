//! Making things: the root directory, files, directories, devices, links.

use super::TreeWriter;
use super::directory::find;
use super::inode::{InodeItem, InodeKind, SuperItem, damaged};
use super::read::Read;
use crate::error::{Error, FileFault, Result};
use crate::tree::{ITEM_BYTES_MAX, ItemKind, Key};
use crate::units::{INODE_NUMBER_LIMIT, InodeNumber, Timestamp};

/// Longest target of a symbolic link, in bytes.
const TARGET_BYTES_MAX: usize = 4095;

/// What a new inode is to be.
#[derive(serde::Serialize, serde::Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewInode {
    /// What it is.
    pub kind: InodeKind,
    /// Permission bits (the lower 12).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for devices.
    pub rdev: u64,
    /// A number that no inode of the same number had in another history of the dataset.
    pub generation: u64,
    /// The time now.
    pub time: Timestamp,
}

impl NewInode {
    fn item(&self) -> InodeItem {
        let time = self.time;
        InodeItem {
            kind: self.kind,
            mode: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
            links: if self.kind == InodeKind::Directory { 2 } else { 1 },
            rdev: self.rdev,
            size: 0,
            blocks: 0,
            generation: self.generation,
            access: time,
            modify: time,
            change: time,
            birth: time,
            parent: InodeNumber(0),
        }
    }
}

/// What an operation has made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// Its number.
    pub inode: InodeNumber,
    /// What it is, in the version that the operation made.
    pub attributes: InodeItem,
}

impl TreeWriter<'_> {
    /// Makes the root directory of a new dataset. Its tree must be empty.
    pub fn format(&mut self, root: &NewInode) -> Result<()> {
        self.atomically(|writer| {
            if root.kind != InodeKind::Directory || writer.item(SuperItem::KEY)?.is_some() {
                return Err(Error::Invalid("a dataset begins with one directory".into()));
            }
            let item = InodeItem { parent: InodeNumber::ROOT, ..root.item() };
            writer.stage_inode(InodeNumber::ROOT, &item);
            writer.stage_super(SuperItem { next_inode: InodeNumber::ROOT.0 + 1, inodes: 1 });
            Ok(())
        })
    }

    /// Makes a file, directory, device, pipe or socket.
    ///
    /// `Exists`, `NameTooLong`, `Invalid` (a name that cannot be), `NotADirectory`, `NotFound` (the directory
    /// was removed), `NoInodes`, `TooManyLinks`, `DirectoryFull`.
    pub fn create(&mut self, parent: InodeNumber, name: &[u8], new: &NewInode) -> Result<Made> {
        self.atomically(|writer| {
            if new.kind == InodeKind::Symlink {
                return Err(FileFault::Invalid.into());
            }
            writer.stage_created(parent, name, new, 0)
        })
    }

    /// Makes a symbolic link to `target`: 1 to 4095 bytes without NUL. Faults like [`TreeWriter::create`].
    pub fn create_symlink(
        &mut self,
        parent: InodeNumber,
        name: &[u8],
        target: &[u8],
        new: &NewInode,
    ) -> Result<Made> {
        self.atomically(|writer| {
            if target.len() > TARGET_BYTES_MAX {
                return Err(FileFault::NameTooLong.into());
            }
            if new.kind != InodeKind::Symlink || target.is_empty() || target.contains(&0) {
                return Err(FileFault::Invalid.into());
            }
            let made = writer.stage_created(parent, name, new, target.len() as u64)?;
            for (chunk, bytes) in target.chunks(ITEM_BYTES_MAX).enumerate() {
                writer.stage_bytes(Key::new(made.inode, ItemKind::Symlink, chunk as u64), bytes.to_vec());
            }
            Ok(made)
        })
    }

    /// Gives an inode one more name; answers its attributes.
    ///
    /// `NotPermitted` for a directory, `NotFound` for an orphan; otherwise like [`TreeWriter::create`].
    pub fn link(
        &mut self,
        inode: InodeNumber,
        parent: InodeNumber,
        name: &[u8],
        time: Timestamp,
    ) -> Result<InodeItem> {
        self.atomically(|writer| {
            let mut item = writer.inode(inode)?;
            if item.kind == InodeKind::Directory {
                return Err(FileFault::NotPermitted.into());
            }
            if item.links == 0 {
                return Err(FileFault::NotFound.into());
            }
            item.links = item.links.checked_add(1).ok_or(FileFault::TooManyLinks)?;
            item.change = time;
            writer.stage_named(parent, name, inode, item.kind, time)?;
            writer.stage_inode(inode, &item);
            Ok(item)
        })
    }

    fn stage_created(&mut self, parent: InodeNumber, name: &[u8], new: &NewInode, size: u64) -> Result<Made> {
        let mut counters = self.super_item()?;
        if counters.next_inode >= INODE_NUMBER_LIMIT {
            return Err(FileFault::NoInodes.into());
        }
        let inode = InodeNumber(counters.next_inode);
        self.stage_named(parent, name, inode, new.kind, new.time)?;
        let mut attributes = InodeItem { size, ..new.item() };
        if new.kind == InodeKind::Directory {
            attributes.parent = parent;
        }
        self.stage_inode(inode, &attributes);
        counters.next_inode += 1;
        counters.inodes += 1;
        self.stage_super(counters);
        Ok(Made { inode, attributes })
    }

    /// Stages a name that must not exist yet, and what that does to its directory.
    fn stage_named(
        &mut self,
        parent: InodeNumber,
        name: &[u8],
        inode: InodeNumber,
        kind: InodeKind,
        time: Timestamp,
    ) -> Result<()> {
        let mut directory = self.living_directory(parent)?;
        if find(self, parent, name)?.is_some() {
            return Err(FileFault::Exists.into());
        }
        directory.size += 1;
        if kind == InodeKind::Directory {
            directory.links = directory.links.checked_add(1).ok_or(FileFault::TooManyLinks)?;
        }
        directory.modify = time;
        directory.change = time;
        self.stage_new_entry(parent, name, inode, kind)?;
        self.stage_inode(parent, &directory);
        Ok(())
    }
}

pub(super) fn link_target(items: &(impl Read + ?Sized), inode: InodeNumber) -> Result<Vec<u8>> {
    let item = items.inode(inode)?;
    if item.kind != InodeKind::Symlink {
        return Err(FileFault::Invalid.into());
    }
    let mut target = Vec::new();
    let from = Key::new(inode, ItemKind::Symlink, 0);
    let end = Key::new(inode, ItemKind::Symlink, TARGET_BYTES_MAX.div_ceil(ITEM_BYTES_MAX) as u64);
    items.scan(from, end, &mut |_, chunk| {
        target.extend_from_slice(chunk.bytes().unwrap_or_default());
        Ok(true)
    })?;
    if target.len() as u64 == item.size {
        Ok(target)
    } else {
        Err(damaged(inode, "its target is incomplete"))
    }
}
