//! Open files and their content.

use super::Inner;
use crate::handles::Handle;
use crate::protocol::{
    Caller, CopyRequest, Entry, Errno, HandleId, NewFile, NodeId, Opened, Outcome, Reply, Seek, WriteRequest,
};
use crate::trees::Tree;
use icecore::units::{FILE_BYTES_MAX, InodeNumber};
use icecore::{ATOMIC_WRITE_BYTES, InodeKind, ReadProgress};
use std::sync::Arc;

/// Bytes that one request copies at most: a thread serves it.
const COPY_BYTES_MAX: u64 = 16 << 20;

impl Inner {
    /// Truncation arrives as a change of its own, before this.
    pub(super) fn open(&self, node: NodeId, flags: i32) -> Outcome<Opened> {
        self.within(node, |_, inode| self.open_in(node, inode, flags))
    }

    /// Opens a file in the tree of `node`. Call it with the gate of the tree held.
    fn open_in(&self, node: NodeId, inode: InodeNumber, flags: i32) -> Outcome<Opened> {
        let (tree, _) = self.trees.resolve(node)?;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        if writes {
            self.writable(&tree)?;
        }
        let file = self.ok(tree.head().map(|dataset| dataset.file(inode)).transpose())?;
        let kind = match &file {
            Some(file) => file.kind(),
            None => self.ok(self.files(&tree)?.attributes(inode))?.kind,
        };
        match kind {
            InodeKind::File => {}
            InodeKind::Directory => return Err(Errno(libc::EISDIR)),
            _ => return Err(Errno(libc::ENXIO)),
        }
        let handle =
            self.handles.add(Handle { tree, inode, writes, file, progress: ReadProgress::default() });
        Ok(Opened { handle, direct: flags & libc::O_DIRECT != 0 })
    }

    pub(super) fn create(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        mode: u16,
        flags: i32,
    ) -> Outcome<(Entry, Opened)> {
        self.within(parent, |tree, directory| {
            let new = NewFile { kind: InodeKind::File, mode, rdev: 0 };
            let made = self.make_in(caller, tree, directory, name, &new)?;
            let entry = self.entry_of(tree, made.inode, &made.attributes)?;
            Ok((entry, self.open_in(parent, made.inode, flags)?))
        })
    }

    pub(super) fn release(&self, handle: HandleId) {
        let Some(handle) = self.handles.remove(handle) else { return };
        // A request that is on its way may still hold it; then that one closes the file.
        if let Some(Handle { file: Some(file), .. }) = Arc::into_inner(handle)
            && let Err(error) = file.close()
        {
            crate::log(&format!("a file that was removed could not be freed: {error}"));
        }
    }

    /// Works on an open file while nothing makes it stale.
    fn opened<T>(&self, handle: HandleId, work: impl FnOnce(&Tree, InodeNumber) -> Outcome<T>) -> Outcome<T> {
        self.with_handle(handle, |open| work(&open.tree, open.inode))
    }

    fn with_handle<T>(&self, handle: HandleId, work: impl FnOnce(&Handle) -> Outcome<T>) -> Outcome<T> {
        let handle = self.handles.get(handle)?;
        let _gate = handle.tree.gate.read();
        handle.tree.check()?;
        work(&handle)
    }

    pub(super) fn read(&self, handle: HandleId, offset: u64, buffer: &mut [u8]) -> Outcome<usize> {
        self.with_handle(handle, |open| {
            self.ok(match &open.file {
                Some(file) => file.read(offset, buffer),
                None => self.files(&open.tree)?.read_on(open.inode, offset, buffer, &open.progress),
            })
        })
    }

    pub(super) fn write(&self, request: &WriteRequest<'_>, reply: Reply<u32>) {
        let written = self.with_handle(request.handle, |open| {
            let (tree, inode) = (&*open.tree, open.inode);
            let dataset = self.writable(tree)?;
            let file = open.file.as_ref().ok_or(Errno(libc::EROFS))?;
            self.ok(file.write(request.offset, request.data))?;
            if request.kill_privileges && self.kill_privileges(dataset, inode)? {
                // The kernel keeps the mode, and does not expect that it changes with a write.
                self.invalidator.node(self.trees.node(tree.index, inode)?, false);
            }
            Ok(request.data.len() as u32)
        });
        match written {
            Ok(count) if request.durable => self.syncer.sync(count, reply, || self.ok(self.pool.sync())),
            outcome => reply.send(outcome),
        }
    }

    pub(super) fn sync(&self, node: NodeId, reply: Reply<()>) {
        match self.within(node, |tree, _| Ok(self.writable(tree).is_ok())) {
            Ok(true) => self.syncer.sync((), reply, || self.ok(self.pool.sync())),
            // What cannot be changed is durable.
            Ok(false) => reply.send(Ok(())),
            Err(error) => reply.send(Err(error)),
        }
    }

    pub(super) fn allocate(&self, handle: HandleId, offset: u64, length: u64, mode: i32) -> Outcome<()> {
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE != 0;
        let kind = mode & !libc::FALLOC_FL_KEEP_SIZE;
        let end = offset.checked_add(length).filter(|end| *end <= FILE_BYTES_MAX);
        let end = end.ok_or(Errno(libc::EFBIG))?;
        self.opened(handle, |tree, inode| {
            let dataset = self.writable(tree)?;
            match kind {
                0 => {
                    let room = self.ok(self.pool.room(Some(dataset.id())))?;
                    if length > room.available.0 {
                        return Err(Errno(libc::ENOSPC));
                    }
                }
                libc::FALLOC_FL_ZERO_RANGE => {}
                libc::FALLOC_FL_PUNCH_HOLE if keep_size => {}
                _ => return Err(Errno(libc::EOPNOTSUPP)),
            }
            if kind != 0 {
                self.ok(dataset.punch_hole(inode, offset, length))?;
            }
            let size = self.ok(dataset.view().and_then(|view| view.attributes(inode)))?.size;
            if !keep_size && end > size {
                self.ok(dataset.truncate(inode, end))?;
            }
            Ok(())
        })
    }

    pub(super) fn seek(&self, handle: HandleId, offset: u64, what: Seek) -> Outcome<u64> {
        self.opened(handle, |tree, inode| {
            let view = self.files(tree)?;
            let size = self.ok(view.attributes(inode))?.size;
            if offset >= size {
                return Err(Errno(libc::ENXIO));
            }
            let mut at = offset;
            for (start, length) in self.ok(view.data_ranges(inode))? {
                let end = (start + length).min(size);
                match what {
                    Seek::Data if end > at => return Ok(start.max(at)),
                    Seek::Hole if start <= at && end > at => at = end,
                    _ => {}
                }
            }
            match what {
                Seek::Data => Err(Errno(libc::ENXIO)),
                Seek::Hole => Ok(at),
            }
        })
    }

    pub(super) fn copy(&self, request: &CopyRequest) -> Outcome<u32> {
        // Read as it is now: a copy within one file does not see what it writes.
        let (view, from) = self.opened(request.from, |tree, inode| Ok((self.files(tree)?, inode)))?;
        self.opened(request.to, |tree, inode| {
            let dataset = self.writable(tree)?;
            let length = request.length.min(COPY_BYTES_MAX);
            let mut buffer = vec![0; (length as usize).min(ATOMIC_WRITE_BYTES)];
            let mut done = 0;
            while done < length {
                let wanted = ((length - done) as usize).min(buffer.len());
                let read = self.ok(view.read(from, request.from_offset + done, &mut buffer[..wanted]))?;
                if read == 0 {
                    break;
                }
                let written = self.ok(dataset.write(inode, request.to_offset + done, &buffer[..read]));
                match written {
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => break,
                    Ok(()) => done += read as u64,
                }
            }
            Ok(done as u32)
        })
    }
}
