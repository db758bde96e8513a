//! The requests of the protocol, each passed on to where it is answered.

use super::StoreFileSystem;
use crate::protocol::*;
use std::time::Duration;

impl FileSystem for StoreFileSystem {
    fn lookup(&self, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        self.inner.lookup(parent, name)
    }

    fn attributes(&self, node: NodeId) -> Outcome<(Attributes, Duration)> {
        self.inner.attributes(node)
    }

    fn change(&self, caller: Caller, node: NodeId, changes: &Changes) -> Outcome<(Attributes, Duration)> {
        self.inner.change(caller, node, changes)
    }

    fn read_link(&self, node: NodeId) -> Outcome<Vec<u8>> {
        self.inner.read_link(node)
    }

    fn make(&self, caller: Caller, parent: NodeId, name: &[u8], new: &NewFile) -> Outcome<Entry> {
        self.inner.make(caller, parent, name, new)
    }

    fn make_link(&self, caller: Caller, parent: NodeId, name: &[u8], target: &[u8]) -> Outcome<Entry> {
        self.inner.make_link(caller, parent, name, target)
    }

    fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        self.inner.link(node, parent, name)
    }

    fn unlink(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        self.inner.unlink(parent, name)
    }

    fn remove_directory(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        self.inner.remove_directory(parent, name)
    }

    fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: RenameHow) -> Outcome<()> {
        self.inner.rename(from, to, how)
    }

    fn open(&self, node: NodeId, flags: i32) -> Outcome<Opened> {
        self.inner.open(node, flags)
    }

    fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        mode: u16,
        flags: i32,
    ) -> Outcome<(Entry, Opened)> {
        self.inner.create(caller, parent, name, mode, flags)
    }

    fn release(&self, handle: HandleId) {
        self.inner.release(handle);
    }

    fn read(&self, handle: HandleId, offset: u64, buffer: &mut [u8]) -> Outcome<usize> {
        self.inner.read(handle, offset, buffer)
    }

    fn write(&self, request: &WriteRequest<'_>, reply: Reply<u32>) {
        self.inner.write(request, reply);
    }

    fn sync(&self, node: NodeId, reply: Reply<()>) {
        self.inner.sync(node, reply);
    }

    fn allocate(&self, handle: HandleId, offset: u64, length: u64, mode: i32) -> Outcome<()> {
        self.inner.allocate(handle, offset, length, mode)
    }

    fn seek(&self, handle: HandleId, offset: u64, what: Seek) -> Outcome<u64> {
        self.inner.seek(handle, offset, what)
    }

    fn copy(&self, request: &CopyRequest) -> Outcome<u32> {
        self.inner.copy(request)
    }

    fn list(
        &self,
        node: NodeId,
        after: u64,
        with_attributes: bool,
        emit: &mut dyn FnMut(&Listed) -> bool,
    ) -> Outcome<()> {
        self.inner.list(node, after, with_attributes, emit)
    }

    fn space(&self, node: NodeId) -> Outcome<Space> {
        self.inner.space(node)
    }

    fn xattr(&self, node: NodeId, name: &[u8]) -> Outcome<Vec<u8>> {
        self.need_xattrs()?;
        self.inner.xattr(node, name)
    }

    fn xattrs(&self, node: NodeId) -> Outcome<Vec<u8>> {
        self.need_xattrs()?;
        self.inner.xattrs(node)
    }

    fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], how: XattrHow) -> Outcome<()> {
        self.need_xattrs()?;
        self.inner.set_xattr(node, name, value, how)
    }

    fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Outcome<()> {
        self.need_xattrs()?;
        self.inner.remove_xattr(node, name)
    }
}

impl StoreFileSystem {
    /// After ENOSYS the kernel does not send requests of this kind any more:
    /// `Documentation/filesystems/fuse`, fuse(4).
    fn need_xattrs(&self) -> Outcome<()> {
        if self.inner.has_xattrs { Ok(()) } else { Err(Errno(libc::ENOSYS)) }
    }
}
