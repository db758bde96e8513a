//! The floor of a mount: the least that a file system on FUSE can do for the requests of `mount`.
//!
//! A write is copied to memory. An fsync appends all that was written since the last one, and a header, to a
//! file that is there already, past the page cache, and flushes it; those that wait meanwhile are served
//! together by the next. A read is passed on to a plain file. It never reads what it wrote, so it is no file
//! system, and everything else it leaves out costs time.

use crate::child::Job;
use crate::device::open_direct;
use crate::error::Result;
use crate::options::Options;
use crate::served::{Served, attributes, errno, serve as serve_until_unmounted};
use fuser::{
    FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use icecore::storage::AlignedBuffer;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Threads that answer requests, as many as the store's mount has.
const THREADS: usize = 8;
/// The log in the folder of the plain files.
pub(super) const LOG_NAME: &str = "log";
/// Bytes of the log, which begins anew at its end.
pub(super) const LOG_BYTES: u64 = 256 << 20;
const HEADER_BYTES: usize = 4096;
/// The first file of the folder; the root is 1.
const FIRST: u64 = 2;
const REQUEST_BYTES_MAX: u32 = 1 << 20;
const ALWAYS: Duration = Duration::from_secs(24 * 60 * 60);

/// What the process of the floor does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FloorJob {
    /// Has files that are read, and the log, all of them written.
    plain: PathBuf,
    point: PathBuf,
    files: usize,
    file_bytes: u64,
}

/// Mounts a folder in `folder` that shows the files of `plain`, where the log is.
pub(super) fn begin(
    folder: &Path,
    plain: &Path,
    files: usize,
    file_bytes: u64,
    options: &Options,
) -> Result<Served> {
    let point = folder.join("floor");
    let job = FloorJob { plain: plain.to_owned(), point: point.clone(), files, file_bytes };
    Served::begin(&Job::Floor(job), &point, options)
}

struct LeastFileSystem {
    files: Vec<File>,
    file_bytes: u64,
    queue: Mutex<Queue>,
    log: Mutex<Log>,
}

/// What is not durable yet, and who waits for it.
#[derive(Default)]
struct Queue {
    pending: Vec<u8>,
    waiting: Vec<ReplyEmpty>,
    /// A thread flushes, and takes what arrives meanwhile as well.
    is_served: bool,
}

struct Log {
    file: File,
    at: u64,
    buffer: AlignedBuffer,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Log {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = HEADER_BYTES + bytes.len().next_multiple_of(HEADER_BYTES);
        if self.buffer.len() < length {
            self.buffer = AlignedBuffer::zeroed(length);
        }
        self.buffer[HEADER_BYTES..][..bytes.len()].copy_from_slice(bytes);
        if self.at + length as u64 > LOG_BYTES {
            self.at = 0;
        }
        self.file.write_all_at(&self.buffer[..length], self.at)?;
        self.at += length as u64;
        self.file.sync_data()
    }
}

impl LeastFileSystem {
    fn attributes(&self, node: INodeNo) -> FileAttr {
        attributes(node, (node.0 >= FIRST).then_some(self.file_bytes))
    }

    /// Flushes until nothing waits. One thread does; the others go on with other requests.
    fn serve_queue(&self) {
        loop {
            let (pending, waiting) = {
                let mut queue = lock(&self.queue);
                queue.is_served = !queue.waiting.is_empty();
                if !queue.is_served {
                    return;
                }
                (std::mem::take(&mut queue.pending), std::mem::take(&mut queue.waiting))
            };
            let done = lock(&self.log).append(&pending);
            for reply in waiting {
                match &done {
                    Ok(()) => reply.ok(),
                    Err(error) => reply.error(errno(error)),
                }
            }
        }
    }
}

thread_local! {
    static BUFFER: RefCell<AlignedBuffer> = RefCell::new(AlignedBuffer::zeroed(REQUEST_BYTES_MAX as usize));
}

impl Filesystem for LeastFileSystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        Ok(())
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let number = name.to_str().and_then(|name| name.strip_prefix("file.")?.parse::<u64>().ok());
        match number.filter(|number| (*number as usize) < self.files.len()) {
            Some(number) => {
                reply.entry(&ALWAYS, &self.attributes(INodeNo(FIRST + number)), Generation(0));
            }
            None => reply.error(fuser::Errno::ENOENT),
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&ALWAYS, &self.attributes(node));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let direct = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), direct);
    }

    fn read(
        &self,
        _: &Request,
        node: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        BUFFER.with_borrow_mut(|buffer| {
            let buffer = &mut buffer[..size as usize];
            match self.files[(node.0 - FIRST) as usize].read_at(buffer, offset) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let full = {
            let mut queue = lock(&self.queue);
            queue.pending.extend_from_slice(data);
            let is_full = queue.pending.len() as u64 > LOG_BYTES / 4;
            is_full.then(|| std::mem::take(&mut queue.pending))
        };
        if let Some(Err(error)) = full.map(|pending| lock(&self.log).append(&pending)) {
            return reply.error(errno(&error));
        }
        reply.written(data.len() as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        let leads = {
            let mut queue = lock(&self.queue);
            queue.waiting.push(reply);
            !std::mem::replace(&mut queue.is_served, true)
        };
        if leads {
            self.serve_queue();
        }
    }
}

/// Runs in the process of the floor, until its mount goes away.
pub(crate) fn serve(job: &FloorJob) -> Result<()> {
    let file = open_direct(&job.plain.join(LOG_NAME))?;
    let log = Log { file, at: 0, buffer: AlignedBuffer::zeroed(HEADER_BYTES) };
    let files = (0..job.files).map(|number| open_direct(&job.plain.join(format!("file.{number}"))));
    let least = LeastFileSystem {
        files: files.collect::<Result<_>>()?,
        file_bytes: job.file_bytes,
        queue: Mutex::default(),
        log: Mutex::new(log),
    };
    serve_until_unmounted(least, &job.point, THREADS)
}
