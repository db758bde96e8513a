//! Renaming, as POSIX has it.

use super::TreeWriter;
use super::directory::{DirectoryEntry, is_empty};
use super::inode::{InodeItem, InodeKind, damaged};
use super::read::Read;
use super::remove::Unlinked;
use crate::error::{FileFault, Result};
use crate::units::{InodeNumber, Timestamp};

/// What to do about a name that exists already.
#[derive(serde::Serialize, serde::Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
pub enum RenameHow {
    /// What it led to loses that name.
    Replace,
    /// Refuse.
    NoReplace,
    /// Both names swap what they lead to; both must exist.
    Exchange,
}

/// What a renaming has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameOutcome {
    /// The inode that now has the new name (`None` if both names led to the same inode: nothing was done).
    pub moved: Option<InodeNumber>,
    /// The inode that lost the new name, or has got the old one.
    pub replaced: Option<InodeNumber>,
    /// The replaced inode has no name left: it is an orphan now.
    pub orphaned: bool,
}

/// A name, and the directory that it is in.
type Name<'a> = (InodeNumber, &'a [u8]);

impl TreeWriter<'_> {
    /// Renames.
    ///
    /// `NotFound`; `Exists` (with `NoReplace`); `Invalid` (a directory into itself or below, bad names);
    /// `IsADirectory` and `NotADirectory` (a directory over something else or the other way round);
    /// `NotEmpty`; `NameTooLong`, `TooManyLinks`, `DirectoryFull`.
    pub fn rename(
        &mut self,
        from: (InodeNumber, &[u8]),
        to: (InodeNumber, &[u8]),
        how: RenameHow,
        time: Timestamp,
    ) -> Result<RenameOutcome> {
        self.atomically(|writer| writer.stage_rename(from, to, how, time))
    }

    fn stage_rename(
        &mut self,
        from: Name<'_>,
        to: Name<'_>,
        how: RenameHow,
        time: Timestamp,
    ) -> Result<RenameOutcome> {
        let source = self.lookup(from.0, from.1)?;
        self.living_directory(to.0)?;
        let target = self.entry(to.0, to.1)?;
        match (&target, how) {
            (Some(_), RenameHow::NoReplace) => return Err(FileFault::Exists.into()),
            (None, RenameHow::Exchange) => return Err(FileFault::NotFound.into()),
            (Some(target), _) if target.inode == source.inode => return Ok(RenameOutcome::default()),
            _ => {}
        }
        if source.kind == InodeKind::Directory {
            self.refuse_loop(source.inode, to.0)?;
        }
        match target {
            Some(target) if how == RenameHow::Exchange => {
                self.stage_exchange(from.0, &source, to.0, &target, time)
            }
            Some(target) => self.stage_replace(from.0, &source, to.0, &target, time),
            None => self.stage_move(from.0, &source, to, time),
        }
    }

    /// To a name that does not exist.
    fn stage_move(
        &mut self,
        from: InodeNumber,
        source: &DirectoryEntry,
        to: Name<'_>,
        time: Timestamp,
    ) -> Result<RenameOutcome> {
        self.stage_removed(from, source, time)?;
        self.stage_new_entry(to.0, to.1, source.inode, source.kind)?;
        let mut directory = self.directory(to.0)?;
        directory.size += 1;
        if source.kind == InodeKind::Directory {
            directory.links = directory.links.checked_add(1).ok_or(FileFault::TooManyLinks)?;
        }
        touch(&mut directory, time);
        self.stage_inode(to.0, &directory);
        self.stage_moved(source, to.0, time)?;
        Ok(RenameOutcome { moved: Some(source.inode), ..RenameOutcome::default() })
    }

    /// Over a name that exists, which keeps its cookie.
    fn stage_replace(
        &mut self,
        from: InodeNumber,
        source: &DirectoryEntry,
        to: InodeNumber,
        target: &DirectoryEntry,
        time: Timestamp,
    ) -> Result<RenameOutcome> {
        let directory = InodeKind::Directory;
        match (source.kind == directory, target.kind == directory) {
            (true, false) => return Err(FileFault::NotADirectory.into()),
            (false, true) => return Err(FileFault::IsADirectory.into()),
            (true, true) if !is_empty(self, target.inode)? => return Err(FileFault::NotEmpty.into()),
            _ => {}
        }
        // A directory over a directory: the links of the new parent come out even.
        self.stage_removed(from, source, time)?;
        self.stage_entry(to, target.cookie, &target.name, source.inode, source.kind);
        self.update(to, |item| touch(item, time))?;
        self.stage_moved(source, to, time)?;
        let Unlinked { inode, orphaned } = self.stage_unlinked(target.inode, time)?;
        Ok(RenameOutcome { moved: Some(source.inode), replaced: Some(inode), orphaned })
    }

    fn stage_exchange(
        &mut self,
        from: InodeNumber,
        source: &DirectoryEntry,
        to: InodeNumber,
        target: &DirectoryEntry,
        time: Timestamp,
    ) -> Result<RenameOutcome> {
        if target.kind == InodeKind::Directory {
            self.refuse_loop(target.inode, from)?;
        }
        self.stage_entry(from, source.cookie, &source.name, target.inode, target.kind);
        self.stage_entry(to, target.cookie, &target.name, source.inode, source.kind);
        for (directory, lost, gained) in [(from, source.kind, target.kind), (to, target.kind, source.kind)] {
            let mut item = self.directory(directory)?;
            match (lost == InodeKind::Directory, gained == InodeKind::Directory) {
                // Within one directory the second turn takes back what the first did.
                (true, false) => item.links = item.links.saturating_sub(1),
                (false, true) => item.links = item.links.checked_add(1).ok_or(FileFault::TooManyLinks)?,
                _ => {}
            }
            touch(&mut item, time);
            self.stage_inode(directory, &item);
        }
        self.stage_moved(source, to, time)?;
        self.stage_moved(target, from, time)?;
        Ok(RenameOutcome { moved: Some(source.inode), replaced: Some(target.inode), orphaned: false })
    }

    fn stage_moved(&mut self, entry: &DirectoryEntry, to: InodeNumber, time: Timestamp) -> Result<()> {
        self.update(entry.inode, |item| {
            item.change = time;
            if item.kind == InodeKind::Directory {
                item.parent = to;
            }
        })?;
        Ok(())
    }

    /// Refuses to put a directory into itself or below: it would hang in the air.
    fn refuse_loop(&self, moved: InodeNumber, into: InodeNumber) -> Result<()> {
        let mut directory = into;
        // There cannot be more directories above than there are inodes, unless they go round in circles.
        for _ in 0..=self.super_item()?.inodes {
            if directory == moved {
                return Err(FileFault::Invalid.into());
            }
            if directory == InodeNumber::ROOT {
                return Ok(());
            }
            directory = self.directory(directory)?.parent;
        }
        Err(damaged(into, "the directories above it go round in circles"))
    }
}

fn touch(directory: &mut InodeItem, time: Timestamp) {
    directory.modify = time;
    directory.change = time;
}
