//! Names, and what goes with them: making, linking, renaming and removing, and attributes.
//!
//! Each call answers what it changed itself, found out in the step that changed it. What had that name
//! before, or has it after, may be another file.

use super::Dataset;
use crate::engine::Purpose;
use crate::error::{Error, FileFault, Result};
use crate::namespace::{
    AttributeChange, InodeItem, InodeKind, Made, NewInode, RenameHow, RenameOutcome, Unlinked, XattrHow,
};
use crate::operation::{NamespaceOperation, Operation};
use crate::state::Changed;
use crate::units::{InodeNumber, Timestamp};

/// Said where an operation answers something else than what it was asked for.
const ANSWERS_IN_KIND: &str = "an operation on names answers in kind";

/// What a new file is to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Creation {
    /// What it is; not a symbolic link.
    pub kind: InodeKind,
    /// Permission bits (the lower 12).
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number, for devices.
    pub rdev: u64,
}

impl Creation {
    /// A regular file of the superuser, readable by all.
    #[must_use]
    pub const fn file() -> Self {
        Self { kind: InodeKind::File, mode: 0o644, uid: 0, gid: 0, rdev: 0 }
    }

    /// A directory of the superuser, readable by all.
    #[must_use]
    pub const fn directory() -> Self {
        Self { kind: InodeKind::Directory, mode: 0o755, uid: 0, gid: 0, rdev: 0 }
    }

    fn inode(&self, time: Timestamp) -> NewInode {
        let Self { kind, mode, uid, gid, rdev } = *self;
        // Two inodes with one number, in two histories of a dataset, were not made in the same nanosecond.
        NewInode { kind, mode, uid, gid, rdev, generation: time.0 as u64, time }
    }
}

impl Dataset {
    /// Executes an operation on names, and frees what has lost its last name by it, unless a caller has that
    /// open.
    ///
    /// The operation is done before the file is freed. So a file that cannot be freed now is no error, unless
    /// the pool has failed: it stays in the durable list of orphans for a later opening.
    fn change_names(&self, operation: NamespaceOperation, purpose: Purpose) -> Result<Changed> {
        let engine = self.pool.engine();
        let operation = Operation::Namespace { dataset: self.id, operation };
        let (_, outcome) = engine.execute(None, &operation, None, purpose)?;
        if outcome.orphan.is_some_and(|orphan| engine.free_orphan(self.id, orphan).is_err()) {
            engine.check_writable()?;
        }
        Ok(outcome.changed)
    }

    /// Makes a file, directory or device node.
    ///
    /// # Errors
    /// [`FileFault::Exists`], [`FileFault::NotFound`], [`FileFault::NotADirectory`],
    /// [`FileFault::NameTooLong`], [`FileFault::Invalid`] for a name with `/` or NUL in it, or `.` or `..`.
    pub fn create(&self, directory: InodeNumber, name: &[u8], new: &Creation) -> Result<Made> {
        let new = new.inode(self.pool.engine().now());
        self.make(NamespaceOperation::Create { directory, name: name.to_vec(), new })
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// As for [`Dataset::create`]; the target is 1 to 4095 bytes without NUL.
    pub fn create_symlink(
        &self,
        directory: InodeNumber,
        name: &[u8],
        target: &[u8],
        new: &Creation,
    ) -> Result<Made> {
        let new = NewInode { kind: InodeKind::Symlink, ..new.inode(self.pool.engine().now()) };
        let (name, target) = (name.to_vec(), target.to_vec());
        self.make(NamespaceOperation::CreateSymlink { directory, name, target, new })
    }

    fn make(&self, operation: NamespaceOperation) -> Result<Made> {
        match self.change_names(operation, Purpose::Data)? {
            Changed::Made(made) => Ok(made),
            other => unreachable!("{ANSWERS_IN_KIND}: {other:?}"),
        }
    }

    /// The file at a path below the root, made empty if it does not exist; the directories above it have to.
    ///
    /// # Errors
    /// As for [`Dataset::create`].
    pub fn open_or_create(&self, path: &[u8], new: &Creation) -> Result<InodeNumber> {
        let (parent, name) = match path.iter().rposition(|byte| *byte == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&path[..0], path),
        };
        loop {
            let view = self.view()?;
            let directory = view.resolve(parent)?.ok_or(FileFault::NotFound)?;
            if let Some(entry) = view.lookup(directory, name)? {
                return Ok(entry.inode);
            }
            match self.create(directory, name, new) {
                // Another thread made it since the lookup, and may have taken it away again.
                Err(Error::File(FileFault::Exists)) => {}
                outcome => return outcome.map(|made| made.inode),
            }
        }
    }

    /// Gives a file one more name; answers its attributes.
    ///
    /// # Errors
    /// As for [`Dataset::create`]; [`FileFault::TooManyLinks`]; [`FileFault::NotPermitted`] for a directory.
    pub fn link(&self, inode: InodeNumber, directory: InodeNumber, name: &[u8]) -> Result<InodeItem> {
        let time = self.pool.engine().now();
        self.change_attributes(NamespaceOperation::Link { inode, directory, name: name.to_vec(), time })
    }

    fn change_attributes(&self, operation: NamespaceOperation) -> Result<InodeItem> {
        match self.change_names(operation, Purpose::Data)? {
            Changed::Attributes(attributes) => Ok(attributes),
            other => unreachable!("{ANSWERS_IN_KIND}: {other:?}"),
        }
    }

    /// Takes a name away. A file without names that a caller has open (see [`Dataset::file`]) lives on until
    /// it is closed, also through a crash. A later opening frees a file that cannot be freed now.
    ///
    /// # Errors
    /// [`FileFault::NotFound`], [`FileFault::IsADirectory`].
    pub fn unlink(&self, directory: InodeNumber, name: &[u8]) -> Result<Unlinked> {
        let time = self.pool.engine().now();
        self.remove(NamespaceOperation::Unlink { directory, name: name.to_vec(), time })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`FileFault::NotEmpty`], [`FileFault::NotADirectory`], [`FileFault::NotFound`].
    pub fn remove_directory(&self, directory: InodeNumber, name: &[u8]) -> Result<Unlinked> {
        let time = self.pool.engine().now();
        self.remove(NamespaceOperation::RemoveDirectory { directory, name: name.to_vec(), time })
    }

    fn remove(&self, operation: NamespaceOperation) -> Result<Unlinked> {
        match self.change_names(operation, Purpose::Freeing)? {
            Changed::Unlinked(unlinked) => Ok(unlinked),
            other => unreachable!("{ANSWERS_IN_KIND}: {other:?}"),
        }
    }

    /// Renames, over what has the new name if it is of the same sort, as rename(2) does.
    ///
    /// # Errors
    /// As rename(2) and renameat2(2).
    pub fn rename(
        &self,
        from: (InodeNumber, &[u8]),
        to: (InodeNumber, &[u8]),
        how: RenameHow,
    ) -> Result<RenameOutcome> {
        let operation = NamespaceOperation::Rename {
            from: from.0,
            from_name: from.1.to_vec(),
            to: to.0,
            to_name: to.1.to_vec(),
            how,
            time: self.pool.engine().now(),
        };
        match self.change_names(operation, Purpose::Data)? {
            Changed::Renamed(renamed) => Ok(renamed),
            other => unreachable!("{ANSWERS_IN_KIND}: {other:?}"),
        }
    }

    /// Changes mode, owner or times; answers all attributes.
    ///
    /// # Errors
    /// [`FileFault::Stale`] if there is no such inode.
    pub fn set_attributes(&self, inode: InodeNumber, change: &AttributeChange) -> Result<InodeItem> {
        self.change_attributes(NamespaceOperation::SetAttributes { inode, change: *change })
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`FileFault::AttributeTooLarge`], [`FileFault::Exists`] and [`FileFault::NoSuchAttribute`] as `how`
    /// asks.
    pub fn set_xattr(&self, inode: InodeNumber, name: &[u8], value: &[u8], how: XattrHow) -> Result<()> {
        let (name, value, time) = (name.to_vec(), value.to_vec(), self.pool.engine().now());
        let operation = NamespaceOperation::SetXattr { inode, name, value, how, time };
        self.change_names(operation, Purpose::Data).map(|_| ())
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`FileFault::NoSuchAttribute`].
    pub fn remove_xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<()> {
        let time = self.pool.engine().now();
        let operation = NamespaceOperation::RemoveXattr { inode, name: name.to_vec(), time };
        self.change_names(operation, Purpose::Freeing).map(|_| ())
    }
}
