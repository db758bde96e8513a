//! Each request of fuser, passed on.

use super::translate::{
    attributes, caller, dot, errno, file_type, kind_of, new_time, open_flags, permissions, reply_attributes,
    reply_empty, reply_entry, reply_xattr,
};
use crate::protocol::{
    Changes, CopyRequest, FileSystem, HandleId, Listed, NewFile, NodeId, RenameHow, Reply, Seek,
    WriteRequest, XattrHow,
};
use fuser::{
    CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus,
    ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
    WriteFlags,
};
use icecore::InodeKind;
use icecore::storage::AlignedBuffer;
use icecore::units::BLOCK_BYTES;
use std::cell::RefCell;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

thread_local! {
    /// What a thread reads into: on a block border, so that the disk can read into it.
    static BUFFER: RefCell<Option<AlignedBuffer>> = const { RefCell::new(None) };
}

/// A file system as fuser drives one.
pub(super) struct Adapter<F> {
    files: F,
    /// The kernel opens directories by itself, if it may.
    opens_directories: bool,
}

impl<F> Adapter<F> {
    pub fn new(files: F) -> Self {
        Self { files, opens_directories: false }
    }
}

impl<F: FileSystem> Filesystem for Adapter<F> {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        self.opens_directories = super::configure(config)?;
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply_entry(reply, self.files.lookup(NodeId(parent.0), name.as_bytes()));
    }

    fn getattr(&self, _request: &Request, node: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        reply_attributes(reply, self.files.attributes(NodeId(node.0)));
    }

    fn setattr(
        &self,
        request: &Request,
        node: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        access: Option<TimeOrNow>,
        modify: Option<TimeOrNow>,
        _change: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _birth: Option<SystemTime>,
        _changed: Option<SystemTime>,
        _backup: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = Changes {
            mode: mode.map(permissions),
            uid,
            gid,
            size,
            access: access.map(new_time),
            modify: modify.map(new_time),
        };
        reply_attributes(reply, self.files.change(caller(request), NodeId(node.0), &changes));
    }

    fn readlink(&self, _request: &Request, node: INodeNo, reply: ReplyData) {
        match self.files.read_link(NodeId(node.0)) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let Some(kind) = kind_of(mode) else { return reply.error(fuser::Errno::EINVAL) };
        let new = NewFile { kind, mode: permissions(mode), rdev };
        reply_entry(reply, self.files.make(caller(request), NodeId(parent.0), name.as_bytes(), &new));
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let new = NewFile { kind: InodeKind::Directory, mode: permissions(mode), rdev: 0 };
        reply_entry(reply, self.files.make(caller(request), NodeId(parent.0), name.as_bytes(), &new));
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.files.unlink(NodeId(parent.0), name.as_bytes()));
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.files.remove_directory(NodeId(parent.0), name.as_bytes()));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes();
        reply_entry(reply, self.files.make_link(caller(request), NodeId(parent.0), name.as_bytes(), target));
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let how = match flags.bits() {
            0 => RenameHow::Replace,
            libc::RENAME_NOREPLACE => RenameHow::NoReplace,
            libc::RENAME_EXCHANGE => RenameHow::Exchange,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let from = (NodeId(parent.0), name.as_bytes());
        reply_empty(reply, self.files.rename(from, (NodeId(new_parent.0), new_name.as_bytes()), how));
    }

    fn link(&self, _request: &Request, node: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply_entry(reply, self.files.link(NodeId(node.0), NodeId(parent.0), name.as_bytes()));
    }

    fn open(&self, _request: &Request, node: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.files.open(NodeId(node.0), flags.0) {
            Ok(opened) => reply.opened(FileHandle(opened.handle.0), open_flags(opened)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let made =
            self.files.create(caller(request), NodeId(parent.0), name.as_bytes(), permissions(mode), flags);
        match made {
            Ok((entry, opened)) => reply.created(
                &entry.lifetime,
                &attributes(&entry.attributes),
                Generation(entry.generation),
                FileHandle(opened.handle.0),
                open_flags(opened),
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.as_ref().is_none_or(|buffer| buffer.len() < size) {
                *buffer = Some(AlignedBuffer::zeroed(size.next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES)));
            }
            let buffer = buffer.as_mut().expect("made just now");
            match self.files.read(HandleId(handle.0), offset, &mut buffer[..size]) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(errno(error)),
            }
        });
    }

    fn write(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let request = WriteRequest {
            handle: HandleId(handle.0),
            offset,
            data,
            durable: flags.0 & libc::O_DSYNC != 0,
            kill_privileges: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        let reply = Reply::new(move |outcome| match outcome {
            Ok(count) => reply.written(count),
            Err(error) => reply.error(errno(error)),
        });
        self.files.write(&request, reply);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is held back, so there is nothing to do: the kernel does not ask again.
        reply.error(fuser::Errno::ENOSYS);
    }

    fn release(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.files.release(HandleId(handle.0));
        reply.ok();
    }

    fn fsync(&self, _: &Request, node: INodeNo, _: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        self.files.sync(NodeId(node.0), Reply::new(move |outcome| reply_empty(reply, outcome)));
    }

    fn fsyncdir(&self, _: &Request, node: INodeNo, _: FileHandle, _data_only: bool, reply: ReplyEmpty) {
        self.files.sync(NodeId(node.0), Reply::new(move |outcome| reply_empty(reply, outcome)));
    }

    fn opendir(&self, _request: &Request, _node: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        if self.opens_directories {
            // The kernel does not ask again, and keeps lists of names as below.
            reply.error(fuser::Errno::ENOSYS);
        } else {
            reply.opened(FileHandle(0), FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_CACHE_DIR);
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let listed = self.files.list(NodeId(node.0), offset, false, &mut |listed: &Listed| {
            let name = OsStr::from_bytes(&listed.name);
            !reply.add(INodeNo(listed.node.0), listed.cookie, file_type(listed.kind), name)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdirplus(
        &self,
        _request: &Request,
        node: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let listed = self.files.list(NodeId(node.0), offset, true, &mut |listed: &Listed| {
            let name = OsStr::from_bytes(&listed.name);
            let (lifetime, found, generation) = match &listed.entry {
                Some(entry) => (entry.lifetime, attributes(&entry.attributes), entry.generation),
                None => (Duration::ZERO, dot(listed), 0),
            };
            let generation = Generation(generation);
            !reply.add(INodeNo(listed.node.0), listed.cookie, name, &lifetime, &found, generation)
        });
        match listed {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn statfs(&self, _request: &Request, node: INodeNo, reply: ReplyStatfs) {
        match self.files.space(NodeId(node.0)) {
            Ok(space) => reply.statfs(
                space.blocks,
                space.free,
                space.free,
                space.files,
                space.files_free,
                4096,
                255,
                4096,
            ),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        node: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let how = match flags {
            libc::XATTR_CREATE => XattrHow::Create,
            libc::XATTR_REPLACE => XattrHow::Replace,
            _ => XattrHow::Set,
        };
        reply_empty(reply, self.files.set_xattr(NodeId(node.0), name.as_bytes(), value, how));
    }

    fn getxattr(&self, _request: &Request, node: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, size, self.files.xattr(NodeId(node.0), name.as_bytes()));
    }

    fn listxattr(&self, _request: &Request, node: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(reply, size, self.files.xattrs(NodeId(node.0)));
    }

    fn removexattr(&self, _request: &Request, node: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(reply, self.files.remove_xattr(NodeId(node.0), name.as_bytes()));
    }

    fn fallocate(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply_empty(reply, self.files.allocate(HandleId(handle.0), offset, length, mode));
    }

    fn lseek(
        &self,
        _request: &Request,
        _node: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let what = match whence {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return reply.error(fuser::Errno::EINVAL),
        };
        let Ok(offset) = u64::try_from(offset) else { return reply.error(fuser::Errno::ENXIO) };
        match self.files.seek(HandleId(handle.0), offset, what) {
            Ok(found) => reply.offset(found as i64),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _from_node: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _to_node: INodeNo,
        to: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let (from, to) = (HandleId(from.0), HandleId(to.0));
        match self.files.copy(&CopyRequest { from, from_offset, to, to_offset, length }) {
            Ok(count) => reply.written(count),
            Err(error) => reply.error(errno(error)),
        }
    }
}
