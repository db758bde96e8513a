//! Requests as they travel through /dev/fuse, by the crate fuser. The only module that knows it.

mod adapter;
mod translate;

use crate::invalidate::KernelCache;
use crate::protocol::{FileSystem, NodeId};
use adapter::Adapter;
use fuser::{BackgroundSession, INodeNo, InitFlags, KernelConfig, Notifier, Session, SessionACL};
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;

/// Threads that answer requests.
const THREADS: usize = 8;
/// Bytes of one write: what the store writes atomically, and the most that the kernel sends by default.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Requests that may be on their way in the background. These are READ and asynchronous I/O, and they wait
/// for a place among so many; and RELEASE, which waits for none and takes one: `fuse_simple_background` in
/// `fs/fuse/dev.c`. With 64, a hundred programs that read small files released them faster than the kernel
/// sent that on. Up to 15,000 requests stood in its queue, and each READ waited until it was nearly empty.
const BACKGROUND_MAX: u16 = 1024;
/// What is asked of the kernel, bit by bit: one that it lacks must not cost the others. Not asked for: the
/// write-back cache, which would hold writes back; locks, which the kernel keeps correctly by itself; and
/// truncation as a part of open, which would arrive before the kernel has refused it for a program that runs
/// (ETXTBSY).
const WANTED: [InitFlags; 7] = [
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
    InitFlags::FUSE_EXPLICIT_INVAL_DATA,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
];

/// Starts to answer the requests that arrive at a device. `any_user`: of every user, not the own one alone.
/// `attach` gets what the kernel keeps, before the first request.
pub(crate) fn start(
    filesystem: impl FileSystem + Clone,
    device: OwnedFd,
    any_user: bool,
    attach: impl FnOnce(Box<dyn KernelCache>),
) -> io::Result<BackgroundSession> {
    let acl = if any_user { SessionACL::All } else { SessionACL::Owner };
    let mut config = fuser::Config::default();
    config.acl = acl;
    config.n_threads = Some(THREADS);
    config.clone_fd = true;
    let session = Session::from_fd(Adapter::new(filesystem), device, acl, config)?;
    attach(Box::new(Cache(session.notifier())));
    session.spawn()
}

struct Cache(Notifier);

impl KernelCache for Cache {
    fn drop_entry(&self, parent: NodeId, name: &[u8]) {
        // What the kernel does not have it need not drop, and a mount that is gone has nothing.
        let _ = self.0.inval_entry(INodeNo(parent.0), OsStr::from_bytes(name));
    }

    fn drop_node(&self, node: NodeId, data: bool) {
        let _ = self.0.inval_inode(INodeNo(node.0), if data { 0 } else { -1 }, 0);
    }
}

/// Asks the kernel for what we want of it. Returns whether directories open without a request.
fn configure(config: &mut KernelConfig) -> io::Result<bool> {
    for flag in WANTED {
        // A kernel that lacks it does without.
        let _ = config.add_capabilities(flag);
    }
    let refused = |limit: u32| io::Error::other(format!("the limit of a write is {limit} bytes"));
    config.set_max_write(WRITE_BYTES_MAX).map_err(refused)?;
    let refused = |limit: u16| io::Error::other(format!("the limit of background requests is {limit}"));
    config.set_max_background(BACKGROUND_MAX).map_err(refused)?;
    Ok(config.add_capabilities(InitFlags::FUSE_NO_OPENDIR_SUPPORT).is_ok())
}
