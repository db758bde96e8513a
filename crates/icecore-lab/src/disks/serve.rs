//! The process of a simulated disk: a mount with one file, which answers when the disk would.

use super::model::{Arm, HardDisk, Request as Asked};
use crate::error::{Doing, Result};
use crate::served::{attributes, errno, serve as serve_until_unmounted};
use fuser::{
    FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner,
    OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request, WriteFlags,
};
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// The name of the file.
pub(super) const NAME: &str = "disk";
const NODE: INodeNo = INodeNo(2);
const ALWAYS: Duration = Duration::from_secs(24 * 60 * 60);
const REQUEST_BYTES_MAX: u32 = 1 << 20;

/// What the process of a disk does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DiskJob {
    /// Has the bytes of the disk.
    pub(super) image: PathBuf,
    /// The folder in which the file appears.
    pub(super) point: PathBuf,
    pub(super) disk: HardDisk,
    /// While this file exists, the disk answers at once.
    pub(super) at_once: PathBuf,
}

struct Disk {
    image: File,
    bytes: u64,
    began: Instant,
    arm: Mutex<Arm>,
    at_once: PathBuf,
}

impl Disk {
    /// Returns when the disk has done it.
    fn spend(&self, asked: Asked) {
        if self.at_once.exists() {
            return;
        }
        let done = {
            let mut arm = self.arm.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            arm.serve(self.began.elapsed(), asked)
        };
        thread::sleep(done.saturating_sub(self.began.elapsed()));
    }

    fn attributes(&self, node: INodeNo) -> FileAttr {
        attributes(node, (node == NODE).then_some(self.bytes))
    }
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Filesystem for Disk {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A kernel that lacks it sends one request at a time.
        let _ = config.add_capabilities(InitFlags::FUSE_ASYNC_DIO);
        config
            .set_max_write(REQUEST_BYTES_MAX)
            .map(|_| ())
            .map_err(|limit| io::Error::other(format!("the limit of a write is {limit} bytes")))
    }

    fn lookup(&self, _: &Request, _: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if name == NAME {
            reply.entry(&ALWAYS, &self.attributes(NODE), Generation(0));
        } else {
            reply.error(fuser::Errno::ENOENT);
        }
    }

    fn getattr(&self, _: &Request, node: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&ALWAYS, &self.attributes(node));
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.opened(FileHandle(0), FopenFlags::empty());
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = u64::from(size).min(self.bytes.saturating_sub(offset));
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(size as usize, 0);
            let outcome = self.image.read_exact_at(buffer, offset);
            self.spend(Asked::Read(offset, size));
            match outcome {
                Ok(()) => reply.data(buffer),
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        if offset + data.len() as u64 > self.bytes {
            return reply.error(fuser::Errno::ENOSPC);
        }
        let outcome = self.image.write_all_at(data, offset);
        self.spend(Asked::Write(offset, data.len() as u64));
        match outcome {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(fuser::Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.spend(Asked::Flush);
        reply.ok();
    }
}

/// Runs in the process of the disk, until its mount goes away.
pub(crate) fn serve(job: &DiskJob) -> Result<()> {
    let doing = || format!("serve a disk from {}", job.image.display());
    let image = File::options().read(true).write(true).open(&job.image).doing(doing)?;
    let bytes = image.metadata().doing(doing)?.len();
    let arm = Mutex::new(Arm::new(job.disk));
    let disk = Disk { image, bytes, began: Instant::now(), arm, at_once: job.at_once.clone() };
    // One thread: a disk has one arm.
    serve_until_unmounted(disk, &job.point, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_takes_the_time_of_its_model_unless_it_answers_at_once() {
        let folder = tempfile::tempdir().expect("a folder");
        let at_once = folder.path().join("at-once");
        let image = tempfile::tempfile().expect("a file");
        let arm = Mutex::new(Arm::new(HardDisk::of_7200()));
        let disk = Disk { image, bytes: 0, began: Instant::now(), arm, at_once: at_once.clone() };
        // From one end of the disk to the other, 14 ms each time.
        let far = |number: u64| Asked::Read((number % 2) * 499_000_000_000, 4096);
        let seconds = || {
            let begin = Instant::now();
            (0..50).for_each(|number| disk.spend(far(number)));
            begin.elapsed().as_secs_f64()
        };
        assert!(seconds() > 0.6);
        File::create(&at_once).expect("made");
        assert!(seconds() < 0.3);
    }
}
