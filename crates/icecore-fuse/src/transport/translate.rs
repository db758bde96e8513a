//! Between the types of fuser and those of the protocol.

use crate::protocol::{Attributes, Caller, Entry, Listed, NewTime, Opened};
use fuser::{
    FileAttr, FileType, FopenFlags, Generation, INodeNo, ReplyAttr, ReplyEmpty, ReplyEntry, ReplyXattr,
    Request, TimeOrNow,
};
use icecore::InodeKind;
use icecore::units::Timestamp;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(super) fn errno(error: crate::protocol::Errno) -> fuser::Errno {
    fuser::Errno::from_i32(error.0)
}

pub(super) fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}

pub(super) fn time(at: Timestamp) -> SystemTime {
    let distance = Duration::from_nanos(at.0.unsigned_abs());
    if at.0 >= 0 { UNIX_EPOCH + distance } else { UNIX_EPOCH - distance }
}

/// A time beyond what the store can keep becomes the nearest that it can. Nanoseconds count forwards also
/// before 1970: -0.5 s is second -1 and half a second. fuser 0.18 takes both from the epoch, backwards.
fn timestamp(time: SystemTime) -> Timestamp {
    let (seconds, nanoseconds) = match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (i128::from(since.as_secs()), since.subsec_nanos()),
        Err(before) => (-i128::from(before.duration().as_secs()), before.duration().subsec_nanos()),
    };
    let exact = seconds * 1_000_000_000 + i128::from(nanoseconds);
    Timestamp(i64::try_from(exact).unwrap_or(if exact < 0 { i64::MIN } else { i64::MAX }))
}

pub(super) fn new_time(time: TimeOrNow) -> NewTime {
    match time {
        TimeOrNow::Now => NewTime::Now,
        TimeOrNow::SpecificTime(time) => NewTime::At(timestamp(time)),
    }
}

pub(super) const fn file_type(kind: InodeKind) -> FileType {
    match kind {
        InodeKind::File => FileType::RegularFile,
        InodeKind::Directory => FileType::Directory,
        InodeKind::Symlink => FileType::Symlink,
        InodeKind::CharDevice => FileType::CharDevice,
        InodeKind::BlockDevice => FileType::BlockDevice,
        InodeKind::Fifo => FileType::NamedPipe,
        InodeKind::Socket => FileType::Socket,
    }
}

pub(super) fn kind_of(mode: u32) -> Option<InodeKind> {
    Some(match mode & libc::S_IFMT {
        libc::S_IFREG | 0 => InodeKind::File,
        libc::S_IFDIR => InodeKind::Directory,
        libc::S_IFLNK => InodeKind::Symlink,
        libc::S_IFCHR => InodeKind::CharDevice,
        libc::S_IFBLK => InodeKind::BlockDevice,
        libc::S_IFIFO => InodeKind::Fifo,
        libc::S_IFSOCK => InodeKind::Socket,
        _ => return None,
    })
}

pub(super) const fn permissions(mode: u32) -> u16 {
    (mode & 0o7777) as u16
}

pub(super) fn attributes(from: &Attributes) -> FileAttr {
    FileAttr {
        ino: INodeNo(from.node.0),
        size: from.size,
        blocks: from.sectors,
        atime: time(from.access),
        mtime: time(from.modify),
        ctime: time(from.change),
        crtime: time(from.birth),
        kind: file_type(from.kind),
        perm: from.mode,
        nlink: from.links,
        uid: from.uid,
        gid: from.gid,
        rdev: from.rdev,
        blksize: 4096,
        flags: 0,
    }
}

/// What passes by the page cache is written in parallel. What is cached stays cached from one opening to the
/// next: the owner makes the kernel forget what changes behind its back.
pub(super) fn open_flags(opened: Opened) -> FopenFlags {
    if opened.direct {
        FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
    } else {
        FopenFlags::FOPEN_KEEP_CACHE
    }
}

pub(super) fn reply_entry(reply: ReplyEntry, outcome: Result<Entry, crate::protocol::Errno>) {
    match outcome {
        Ok(entry) => {
            reply.entry(&entry.lifetime, &attributes(&entry.attributes), Generation(entry.generation));
        }
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn reply_attributes(
    reply: ReplyAttr,
    outcome: Result<(Attributes, Duration), crate::protocol::Errno>,
) {
    match outcome {
        Ok((found, lifetime)) => reply.attr(&lifetime, &attributes(&found)),
        Err(error) => reply.error(errno(error)),
    }
}

pub(super) fn reply_empty(reply: ReplyEmpty, outcome: Result<(), crate::protocol::Errno>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(error)),
    }
}

/// The value of an attribute, or its size for a caller that asks with no room at all.
pub(super) fn reply_xattr(reply: ReplyXattr, room: u32, outcome: Result<Vec<u8>, crate::protocol::Errno>) {
    match outcome {
        Ok(value) if room == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > room as usize => reply.error(fuser::Errno::ERANGE),
        Ok(value) => reply.data(&value),
        Err(error) => reply.error(errno(error)),
    }
}

/// What a listing with attributes says of `.` and `..`: the kernel takes neither for a lookup.
pub(super) fn dot(listed: &Listed) -> FileAttr {
    let never = Timestamp(0);
    attributes(&Attributes {
        node: listed.node,
        kind: listed.kind,
        mode: 0o755,
        uid: 0,
        gid: 0,
        links: 2,
        rdev: 0,
        size: 0,
        sectors: 0,
        access: never,
        modify: never,
        change: never,
        birth: never,
    })
}
