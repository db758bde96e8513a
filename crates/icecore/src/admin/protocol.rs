//! What clients ask the owner of a pool, and what it answers.
//!
//! These types, and those of the store inside them, are the wire format: when one of them changes, so does
//! [`PROTOCOL_VERSION`].

use super::failure::Failure;
use super::last_scrub::LastScrub;
use crate::copies::CopiesReport;
use crate::engine::{ReaderHold, TrimReport};
use crate::format::copies::CopyMode;
use crate::incidents::Incident;
use crate::names::DestroyTarget;
use crate::namespace::InodeKind;
use crate::pool::{
    DestroyPlan, DiffEntry, Hold, ListEntry, ListFilter, Property, ScrubOptions, ScrubProgress, ScrubReport,
};
use crate::statistics::Statistics;
use crate::units::{ByteLength, InodeNumber, PoolId, Timestamp};
use serde::{Deserialize, Serialize};

/// The version of the conversation. Both ends must speak the same.
pub const PROTOCOL_VERSION: u16 = 13;
/// Most bytes of a file that one request reads or writes.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// Most entries of a directory that one request answers.
pub const DIRECTORY_ENTRIES_MAX: u32 = 4096;

/// One administrative call. Names are `dataset` or `dataset@snapshot`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Request {
    /// Who owns the pool, how full it is, and its counters. Answer: [`Response::Status`].
    Status,
    /// Makes everything so far durable.
    Sync,
    /// Makes a dataset, with `parents` those above it as well.
    Create {
        /// The new dataset.
        name: String,
        /// Whether to make missing datasets above it.
        parents: bool,
        /// User properties to begin with.
        properties: Vec<(String, String)>,
    },
    /// Takes snapshots, all in one atomic step. Answer: [`Response::Names`].
    Snapshot {
        /// Names of the snapshots, `dataset@name`.
        names: Vec<String>,
        /// Whether to take them of all datasets below as well.
        recursive: bool,
        /// User properties to begin with.
        properties: Vec<(String, String)>,
    },
    /// Makes a dataset whose origin is a snapshot.
    Clone {
        /// The snapshot.
        snapshot: String,
        /// The new dataset.
        target: String,
        /// Whether to make missing datasets above it.
        parents: bool,
    },
    /// Takes a dataset back to a snapshot. Answer: [`Response::RolledBack`].
    Rollback {
        /// The snapshot.
        snapshot: String,
        /// Whether to do it although files are open; their handles fail from then on.
        force: bool,
    },
    /// Makes a clone the owner of the history it shares with its origin.
    Promote {
        /// The clone.
        dataset: String,
    },
    /// Renames a dataset, or a snapshot within its dataset.
    Rename {
        /// The old name.
        from: String,
        /// The new name.
        to: String,
        /// For snapshots: those of that name in all datasets below as well.
        recursive: bool,
    },
    /// Works out what [`Request::Destroy`] would do. Answer: [`Response::Destroyed`].
    PlanDestroy {
        /// What to destroy.
        target: DestroyTarget,
        /// Whether to go on as if the holds had been released.
        unheld: bool,
    },
    /// Destroys. Answer: [`Response::Destroyed`].
    Destroy {
        /// What to destroy.
        target: DestroyTarget,
    },
    /// Keeps a snapshot from being destroyed.
    Hold {
        /// Names the hold.
        tag: String,
        /// The snapshot.
        snapshot: String,
        /// When a prune may take it off.
        expires: Option<Timestamp>,
    },
    /// Takes a hold back.
    Release {
        /// Names the hold.
        tag: String,
        /// The snapshot.
        snapshot: String,
    },
    /// The holds on a snapshot. Answer: [`Response::Holds`].
    Holds {
        /// The snapshot.
        snapshot: String,
    },
    /// Sets a user property.
    SetProperty {
        /// Dataset or snapshot.
        name: String,
        /// The property.
        key: String,
        /// Its value.
        value: String,
    },
    /// Removes a user property, so that the one of the dataset above counts again.
    InheritProperty {
        /// Dataset or snapshot.
        name: String,
        /// The property.
        key: String,
    },
    /// The user properties of a dataset or snapshot. Answer: [`Response::Properties`].
    Properties {
        /// Dataset or snapshot.
        name: String,
    },
    /// Datasets and snapshots with their sizes. Answer: [`Response::List`].
    List(ListFilter),
    /// What changed between two versions. Answer: [`Response::Diff`].
    Diff {
        /// The older version.
        from: String,
        /// The newer version.
        to: String,
    },
    /// Reads and verifies everything reachable. Answer: [`Response::Scrubbed`], after [`Progress`].
    Scrub(ScrubOptions),
    /// How second copies stand. Answer: [`Response::Copies`].
    Copies,
    /// Makes copies of what should have one and has none. Answer: [`Response::Copies`].
    RestoreCopies,
    /// Changes what is written twice, and where to. Answer: [`Response::Copies`].
    SetCopies {
        /// What is copied.
        mode: CopyMode,
        /// The folder of the copies; none for that of the pool.
        folder: Option<String>,
    },
    /// Finds the version that a path below the pool leads into and pins it. Answer: [`Response::Pinned`].
    Pin {
        /// `dataset/file` or `dataset@snapshot/file`.
        path: Vec<u8>,
    },
    /// Finds another file in the version of a pin. Answer: [`Response::Found`].
    Find {
        /// The pin.
        pin: u32,
        /// The path below the root of the dataset.
        file: Vec<u8>,
    },
    /// Lets a pin go.
    Unpin {
        /// The pin.
        pin: u32,
    },
    /// Entries of a directory with their attributes. Answer: [`Response::Directory`].
    ReadDirectory {
        /// The pin.
        pin: u32,
        /// The directory.
        inode: InodeNumber,
        /// Cookie of the last entry seen; 0 to begin.
        after: u64,
        /// Most entries to answer; at most [`DIRECTORY_ENTRIES_MAX`].
        limit: u32,
    },
    /// Bytes of a file. Answer: [`Response::Data`], short only at the end of the file.
    ReadFile {
        /// The pin.
        pin: u32,
        /// The file.
        inode: InodeNumber,
        /// Where to begin.
        offset: u64,
        /// Most bytes to answer; at most [`CHUNK_BYTES_MAX`].
        length: u32,
    },
    /// The target of a symbolic link. Answer: [`Response::Data`].
    ReadLink {
        /// The pin.
        pin: u32,
        /// The link.
        inode: InodeNumber,
    },
    /// Makes the directories of a path below the pool that do not exist yet.
    MakeDirectories {
        /// `dataset/directory/...`.
        path: Vec<u8>,
        /// Whose they are.
        owner: Owner,
    },
    /// Begins to stage a file. One at a time per client; dropped when the client goes.
    BeginImport {
        /// `dataset/file`; the directories above it exist.
        path: Vec<u8>,
        /// Permission bits of the file if it is made.
        mode: u16,
        /// Whose it is then.
        owner: Owner,
        /// Whether a file that exists may be replaced.
        replace: bool,
        /// What the names of files end with that belong to the former content alone, such as the log of a
        /// database: NAME and this. They go with it.
        beside: Vec<Vec<u8>>,
    },
    /// Bytes of the staged file. What is never written is a hole.
    ImportChunk {
        /// Where they go.
        offset: u64,
        /// At most [`CHUNK_BYTES_MAX`] bytes.
        data: Vec<u8>,
    },
    /// Makes the staged file visible, in one atomic step, and durable. Answer: [`Response::Imported`].
    CommitImport {
        /// The file's size.
        size: u64,
    },
    /// Changes the size limit of the pool.
    SetSizeLimit {
        /// Most bytes that its files may take up together; none for no limit.
        limit: Option<ByteLength>,
    },
    /// Gives free segments back to the filesystem. Answer: [`Response::Trimmed`].
    Trim,
    /// Closes the pool if its owner does nothing with it at this moment, soon after the answer; else it
    /// fails.
    LetGo,
}

/// User and group that a file belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The answer to a [`Request`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Response {
    /// Done; there is nothing more to say.
    Done,
    /// See [`Request::Status`].
    Status(Box<Status>),
    /// Names of what was made.
    Names(Vec<String>),
    /// See [`Request::Rollback`].
    RolledBack {
        /// The automatic snapshot that keeps the former head.
        saved_as: String,
    },
    /// What was, or would be, destroyed.
    Destroyed(DestroyPlan),
    /// See [`Request::Holds`].
    Holds(Vec<Hold>),
    /// See [`Request::Properties`].
    Properties(Vec<Property>),
    /// See [`Request::List`].
    List(Vec<ListEntry>),
    /// See [`Request::Diff`].
    Diff(Vec<DiffEntry>),
    /// See [`Request::Copies`].
    Copies(CopiesReport),
    /// See [`Request::Scrub`].
    Scrubbed(ScrubReport),
    /// See [`Request::Pin`].
    Pinned(Pinned),
    /// See [`Request::Find`].
    Found(Option<FileAttributes>),
    /// See [`Request::ReadDirectory`].
    Directory(Vec<FileEntry>),
    /// Bytes of a file.
    Data(Vec<u8>),
    /// See [`Request::CommitImport`].
    Imported {
        /// Whether a file was replaced.
        replaced: bool,
    },
    /// See [`Request::Trim`].
    Trimmed(TrimReport),
}

/// How far a long request has come.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes dealt with.
    pub done: u64,
    /// Bytes in all, as far as known; 0 when not.
    pub total: u64,
}

/// What the owner sends: any number of [`Reply::Progress`], then one of the others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reply {
    /// How far the request has come.
    Progress(Progress),
    /// The request was done.
    Done(Response),
    /// The request was not done.
    Failed(Failure),
    /// The owner is closing the pool and has not begun the request: ask the process that opens the pool next.
    Goodbye,
}

/// A pinned version, and what the path led to in it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Pinned {
    /// Names the pin in later requests of the same client.
    pub pin: u32,
    /// The version.
    pub version: String,
    /// The rest of the path: the file within the version, empty for its root.
    pub file: Vec<u8>,
    /// The file, if there is one.
    pub found: Option<FileAttributes>,
}

/// Attributes of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileAttributes {
    /// Its number.
    pub inode: InodeNumber,
    /// What it is.
    pub kind: InodeKind,
    /// Permission bits.
    pub mode: u16,
    /// Number of names it has.
    pub links: u32,
    /// Whose it is.
    pub owner: Owner,
    /// Size in bytes.
    pub size: u64,
    /// Bytes stored for it.
    pub stored: u64,
    /// When its content last changed.
    pub modified: Timestamp,
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name: any bytes but `/` and NUL.
    pub name: Vec<u8>,
    /// Where to go on after it.
    pub cookie: u64,
    /// The file.
    pub attributes: FileAttributes,
}

/// A pool, who owns it and what it has done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Where the pool is.
    pub path: String,
    /// The pool's identity.
    pub id: PoolId,
    /// Process number of the owner.
    pub process: u32,
    /// Version of the owner's program.
    pub program: String,
    /// Whether it takes no writes: opened so, or after a failure.
    pub read_only: bool,
    /// What the last scrub found, if that is known.
    pub last_scrub: Option<LastScrub>,
    /// How far a scrub is that goes on at this moment.
    pub scrubbing: Option<ScrubProgress>,
    /// What went wrong with the disk since the pool was opened: the last ones, the oldest first.
    pub incidents: Vec<Incident>,
    /// Readers that keep something from being used again: those that keep most come first.
    pub readers: Vec<ReaderHold>,
    /// Whether destroying snapshots frees space.
    pub snapshots_hold: bool,
    /// The counters.
    pub statistics: Statistics,
}
