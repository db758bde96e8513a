//! Taking names away.

use super::TreeWriter;
use super::directory::{DirectoryEntry, find, is_empty};
use super::inode::InodeKind;
use super::orphan::orphan_key;
use super::read::Read;
use crate::error::{FileFault, Result};
use crate::units::{InodeNumber, Timestamp};

/// What has lost a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Unlinked {
    /// Its number.
    pub inode: InodeNumber,
    /// It was the last name. An orphan can be read and written until an operation releases it.
    pub orphaned: bool,
}

impl TreeWriter<'_> {
    /// Takes a name of something that is no directory away.
    ///
    /// `NotFound`, `IsADirectory`, `NotADirectory` (the parent).
    pub fn unlink(&mut self, parent: InodeNumber, name: &[u8], time: Timestamp) -> Result<Unlinked> {
        self.atomically(|writer| {
            let entry = writer.lookup(parent, name)?;
            if entry.kind == InodeKind::Directory {
                return Err(FileFault::IsADirectory.into());
            }
            writer.stage_removed(parent, &entry, time)?;
            writer.stage_unlinked(entry.inode, time)
        })
    }

    /// Removes an empty directory, which is an orphan then.
    ///
    /// `NotFound`, `NotADirectory`, `NotEmpty`.
    pub fn remove_directory(
        &mut self,
        parent: InodeNumber,
        name: &[u8],
        time: Timestamp,
    ) -> Result<Unlinked> {
        self.atomically(|writer| {
            let entry = writer.lookup(parent, name)?;
            if entry.kind != InodeKind::Directory {
                return Err(FileFault::NotADirectory.into());
            }
            if !is_empty(writer, entry.inode)? {
                return Err(FileFault::NotEmpty.into());
            }
            writer.stage_removed(parent, &entry, time)?;
            writer.stage_unlinked(entry.inode, time)
        })
    }

    /// Stages that an entry is gone, and what that does to its directory.
    pub(super) fn stage_removed(
        &mut self,
        parent: InodeNumber,
        entry: &DirectoryEntry,
        time: Timestamp,
    ) -> Result<()> {
        self.stage_no_entry(parent, entry.cookie);
        self.update(parent, |directory| {
            directory.size = directory.size.saturating_sub(1);
            if entry.kind == InodeKind::Directory {
                directory.links = directory.links.saturating_sub(1);
            }
            directory.modify = time;
            directory.change = time;
        })?;
        Ok(())
    }

    /// Stages that an inode has a name less; a directory has only one.
    pub(super) fn stage_unlinked(&mut self, inode: InodeNumber, time: Timestamp) -> Result<Unlinked> {
        let item = self.update(inode, |item| {
            item.links = if item.kind == InodeKind::Directory { 0 } else { item.links.saturating_sub(1) };
            item.change = time;
        })?;
        let orphaned = item.links == 0;
        if orphaned {
            self.stage_bytes(orphan_key(inode), Vec::new());
        }
        Ok(Unlinked { inode, orphaned })
    }

    /// The entry of this name in a directory that is known to be one.
    pub(super) fn entry(&self, parent: InodeNumber, name: &[u8]) -> Result<Option<DirectoryEntry>> {
        find(self, parent, name)
    }
}
