//! Requests to a file system and replies to them, without a word about how they travel.
//!
//! [`FileSystem`] is what a transport drives. Most answers are ready when a method returns. What waits for a
//! flush takes a [`Reply`], which can be sent later and from another thread.

use icecore::InodeKind;
use icecore::units::Timestamp;
use std::time::Duration;

/// The number of a file or directory: what `stat` shows as the inode number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: Self = Self(1);
}

/// The number of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HandleId(pub u64);

/// An error number of errno(3).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

/// What a request comes to.
pub type Outcome<T> = Result<T, Errno>;

/// The credentials of the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// What stat(2) shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attributes {
    /// The node.
    pub node: NodeId,
    /// What it is.
    pub kind: InodeKind,
    /// The lower 12 bits of the mode.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names.
    pub links: u32,
    /// Device number.
    pub rdev: u32,
    /// Bytes.
    pub size: u64,
    /// Space taken, in units of 512 bytes.
    pub sectors: u64,
    /// Last read.
    pub access: Timestamp,
    /// Last change of the content.
    pub modify: Timestamp,
    /// Last change of anything.
    pub change: Timestamp,
    /// When it was made.
    pub birth: Timestamp,
}

/// A name that leads to something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    /// What it leads to.
    pub attributes: Attributes,
    /// Distinguishes two files that had one number.
    pub generation: u64,
    /// How long the caller may keep this without asking again.
    pub lifetime: Duration,
}

/// A file that is open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Its number.
    pub handle: HandleId,
    /// Reads and writes pass by the page cache, writes of several callers at once.
    pub direct: bool,
}

/// A file that is to be made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFile {
    /// What it is to be.
    pub kind: InodeKind,
    /// The lower 12 bits of the mode.
    pub mode: u16,
    /// Device number.
    pub rdev: u32,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewTime {
    /// The time of the request.
    Now,
    /// This one.
    At(Timestamp),
}

/// Attributes to set; what is `None` stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// The lower 12 bits of the mode.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Bytes.
    pub size: Option<u64>,
    /// Last read.
    pub access: Option<NewTime>,
    /// Last change of the content.
    pub modify: Option<NewTime>,
}

/// One entry of a directory, as a listing shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Where the listing goes on after it.
    pub cookie: u64,
    /// What it leads to.
    pub node: NodeId,
    /// What that is.
    pub kind: InodeKind,
    /// Its name.
    pub name: Vec<u8>,
    /// Its attributes, where the listing was asked for them.
    pub entry: Option<Entry>,
}

/// What statfs(2) shows, in blocks of 4096 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// All blocks.
    pub blocks: u64,
    /// Those that can still be written.
    pub free: u64,
    /// Files that there can be.
    pub files: u64,
    /// Files that can still be made.
    pub files_free: u64,
}

/// How rename(2) treats the new name.
pub use icecore::RenameHow;
/// How setxattr(2) treats an attribute that exists.
pub use icecore::XattrHow;

/// A write.
#[derive(Clone, Copy, Debug)]
pub struct WriteRequest<'a> {
    /// The open file.
    pub handle: HandleId,
    /// Where, in bytes.
    pub offset: u64,
    /// What.
    pub data: &'a [u8],
    /// It is durable before the reply (`O_DSYNC`, `O_SYNC`, `RWF_DSYNC`).
    pub durable: bool,
    /// The set-user and set-group bits go (the caller lacks `CAP_FSETID`).
    pub kill_privileges: bool,
}

/// A copy of a range from file to file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyRequest {
    /// The file that is read.
    pub from: HandleId,
    /// Where, in bytes.
    pub from_offset: u64,
    /// The file that is written.
    pub to: HandleId,
    /// Where, in bytes.
    pub to_offset: u64,
    /// Bytes.
    pub length: u64,
}

/// Which end of data lseek(2) looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seek {
    /// `SEEK_DATA`
    Data,
    /// `SEEK_HOLE`
    Hole,
}

/// A reply that may be sent later, from any thread. One that is dropped is an error of the file system: the
/// caller gets EIO from the transport.
pub struct Reply<T>(Box<dyn FnOnce(Outcome<T>) + Send>);

impl<T> Reply<T> {
    /// A reply that goes where `send` takes it.
    pub fn new(send: impl FnOnce(Outcome<T>) + Send + 'static) -> Self {
        Self(Box::new(send))
    }

    /// Sends it.
    pub fn send(self, outcome: Outcome<T>) {
        (self.0)(outcome);
    }
}

/// What a transport asks. Methods are called from several threads at once. Names are bytes without `/` and
/// NUL.
pub trait FileSystem: Send + Sync + 'static {
    /// The entry of this name.
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Outcome<Entry>;
    /// Attributes, and how long they may be kept.
    fn attributes(&self, node: NodeId) -> Outcome<(Attributes, Duration)>;
    /// Changes attributes; answers all of them.
    fn change(&self, caller: Caller, node: NodeId, changes: &Changes) -> Outcome<(Attributes, Duration)>;
    /// The target of a symbolic link.
    fn read_link(&self, node: NodeId) -> Outcome<Vec<u8>>;
    /// Makes a file, directory, device, pipe or socket.
    fn make(&self, caller: Caller, parent: NodeId, name: &[u8], new: &NewFile) -> Outcome<Entry>;
    /// Makes a symbolic link.
    fn make_link(&self, caller: Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Outcome<Entry>;
    /// Gives a file one more name.
    fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Outcome<Entry>;
    /// Takes a name of a file away.
    fn unlink(&self, parent: NodeId, name: &[u8]) -> Outcome<()>;
    /// Removes an empty directory.
    fn remove_directory(&self, parent: NodeId, name: &[u8]) -> Outcome<()>;
    /// Renames.
    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: RenameHow) -> Outcome<()>;
    /// Opens a file with the flags of open(2).
    fn open(&self, node: NodeId, flags: i32) -> Outcome<Opened>;
    /// Makes a file and opens it.
    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        mode: u16,
        flags: i32,
    ) -> Outcome<(Entry, Opened)>;
    /// Closes a file.
    fn release(&self, handle: HandleId);
    /// Reads into `buffer`; answers how much. Less than asked: the file ends there.
    fn read(&self, handle: HandleId, offset: u64, buffer: &mut [u8]) -> Outcome<usize>;
    /// Writes everything or nothing.
    fn write(&self, request: &WriteRequest<'_>, reply: Reply<u32>);
    /// Makes everything that was written so far durable, of files and directories alike.
    fn sync(&self, node: NodeId, reply: Reply<()>);
    /// fallocate(2), with its mode.
    fn allocate(&self, handle: HandleId, offset: u64, length: u64, mode: i32) -> Outcome<()>;
    /// Where data or a hole begins, at or after an offset.
    fn seek(&self, handle: HandleId, offset: u64, what: Seek) -> Outcome<u64>;
    /// Copies; answers how much, which may be less than asked.
    fn copy(&self, request: &CopyRequest) -> Outcome<u32>;
    /// Lists a directory, from the entry after the one with cookie `after` on, until `emit` answers false.
    fn list(
        &self,
        node: NodeId,
        after: u64,
        with_attributes: bool,
        emit: &mut dyn FnMut(&Listed) -> bool,
    ) -> Outcome<()>;
    /// How much room there is.
    fn space(&self, node: NodeId) -> Outcome<Space>;
    /// The value of an extended attribute.
    fn xattr(&self, node: NodeId, name: &[u8]) -> Outcome<Vec<u8>>;
    /// Names of all extended attributes, each with a NUL behind it.
    fn xattrs(&self, node: NodeId) -> Outcome<Vec<u8>>;
    /// Sets an extended attribute.
    fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], how: XattrHow) -> Outcome<()>;
    /// Removes an extended attribute.
    fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Outcome<()>;
}
