//! What can be done to a pool, one step at a time.

use super::content::Data;
use super::pool::SnapshotId;
use icecore::names::DestroyTarget;

/// One operation on a pool.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Step {
    /// Changes a file or directory of the head of a dataset.
    Change {
        /// The dataset.
        dataset: String,
        /// What changes.
        change: FileChange,
    },
    /// Several writes, to any datasets, in one atomic step.
    Group {
        /// Dataset and write, in order.
        writes: Vec<(String, GroupWrite)>,
        /// Waits until the group is durable.
        durable: bool,
    },
    /// Makes everything so far durable.
    Sync,
    /// Writes a checkpoint.
    Checkpoint,
    /// Empties segments that hold little.
    Collect {
        /// How many at most.
        segments: usize,
        /// After a checkpoint. Without, what died since the last one is moved with the rest.
        checkpoint: bool,
    },
    /// Gives free segments back to the filesystem.
    Trim,
    /// Closes the pool and opens it again.
    Reopen,
    /// Makes a dataset.
    CreateDataset {
        /// Its name.
        name: String,
        /// The datasets above it as well.
        parents: bool,
    },
    /// Takes snapshots, all of the same moment.
    Snapshot {
        /// Their names, `dataset@snapshot`.
        names: Vec<String>,
        /// Of all datasets below as well.
        recursive: bool,
    },
    /// Makes a dataset that begins as a snapshot.
    Clone {
        /// `dataset@snapshot`.
        snapshot: String,
        /// Name of the new dataset.
        target: String,
    },
    /// Sets a dataset back; its former head becomes an automatic snapshot.
    Rollback {
        /// `dataset@snapshot`.
        snapshot: String,
    },
    /// Swaps a clone with its origin.
    Promote {
        /// The clone.
        dataset: String,
    },
    /// Renames a dataset with all below it, or a snapshot within its dataset.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
        /// The snapshots of that name in all datasets below as well.
        recursive: bool,
    },
    /// Destroys a snapshot, a range of them, or a dataset.
    Destroy(DestroyTarget),
    /// Protects a snapshot.
    Hold {
        /// The word that names the hold.
        tag: String,
        /// `dataset@snapshot`.
        snapshot: String,
    },
    /// Takes a hold off.
    Release {
        /// The word that names the hold.
        tag: String,
        /// `dataset@snapshot`.
        snapshot: String,
    },
}

impl Step {
    /// Whether everything up to and with this step is durable once it has returned successfully.
    #[must_use]
    pub const fn is_durable_on_return(&self) -> bool {
        matches!(
            self,
            Self::Sync
                | Self::Checkpoint
                | Self::Collect { checkpoint: true, .. }
                | Self::Trim
                | Self::Reopen
                | Self::Snapshot { .. }
                | Self::Group { durable: true, .. }
        )
    }
}

/// A change to one file or directory, by path (`a/b/c`, no links followed).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum FileChange {
    /// Makes an empty file.
    CreateFile {
        /// Where.
        path: String,
        /// Permission bits.
        mode: u32,
    },
    /// Makes a directory.
    CreateDirectory {
        /// Where.
        path: String,
        /// Permission bits.
        mode: u32,
    },
    /// Makes a symbolic link.
    CreateSymlink {
        /// Where.
        path: String,
        /// What it says.
        target: String,
    },
    /// Writes into a file.
    Write {
        /// The file.
        path: String,
        /// First byte.
        offset: u64,
        /// What is written.
        data: Data,
    },
    /// Changes the size of a file.
    Truncate {
        /// The file.
        path: String,
        /// The new size in bytes.
        size: u64,
    },
    /// Makes a hole in a file.
    Punch {
        /// The file.
        path: String,
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u64,
    },
    /// Changes the permission bits.
    SetMode {
        /// The file or directory.
        path: String,
        /// Permission bits.
        mode: u32,
    },
    /// Sets an extended attribute.
    SetAttribute {
        /// The file or directory.
        path: String,
        /// Name of the attribute.
        name: String,
        /// Its value.
        value: Data,
    },
    /// Removes an extended attribute.
    RemoveAttribute {
        /// The file or directory.
        path: String,
        /// Name of the attribute.
        name: String,
    },
    /// Gives a file a second name.
    Link {
        /// The file.
        path: String,
        /// The new name.
        to: String,
    },
    /// Removes a name of a file or symbolic link.
    Unlink {
        /// The name.
        path: String,
    },
    /// Removes an empty directory.
    RemoveDirectory {
        /// The directory.
        path: String,
    },
    /// Renames, over what has the new name if that can be replaced.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
    },
}

/// One write of a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum GroupWrite {
    /// Writes into a file.
    Write {
        /// The file.
        path: String,
        /// First byte.
        offset: u64,
        /// What is written.
        data: Data,
    },
    /// Changes the size of a file.
    Truncate {
        /// The file.
        path: String,
        /// The new size in bytes.
        size: u64,
    },
}

impl From<GroupWrite> for FileChange {
    fn from(write: GroupWrite) -> Self {
        match write {
            GroupWrite::Write { path, offset, data } => Self::Write { path, offset, data },
            GroupWrite::Truncate { path, size } => Self::Truncate { path, size },
        }
    }
}

/// What a successful step has to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Nothing.
    Done,
    /// A rollback kept the former head as this snapshot, whose name the store chooses.
    Saved(SnapshotId),
}
