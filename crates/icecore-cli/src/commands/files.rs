//! Files within versions: finding them, and moving their bytes.

use super::take;
use crate::format::escaped;
use icecore::InodeKind;
use icecore::admin::protocol::{CHUNK_BYTES_MAX, DIRECTORY_ENTRIES_MAX, FileAttributes, FileEntry, Pinned};
use icecore::admin::{Access, ErrorCode, Failure, Request, Response};
use icecore::units::InodeNumber;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// The grain at which runs of zeros are left out as holes.
pub const HOLE_BYTES: usize = 4096;

/// Pins the version that a path leads into.
pub fn pin(access: &mut Access, path: &[u8]) -> anyhow::Result<Pinned> {
    let response = access.call(Request::Pin { path: path.to_vec() })?;
    Ok(take!(response, Response::Pinned(pinned) => pinned))
}

/// How messages call the file of a pin.
pub fn shown(pinned: &Pinned) -> String {
    if pinned.file.is_empty() {
        pinned.version.clone()
    } else {
        format!("{}/{}", pinned.version, escaped(&pinned.file))
    }
}

/// The file of a pin, which must be there.
pub fn found(pinned: &Pinned) -> anyhow::Result<&FileAttributes> {
    pinned.found.as_ref().ok_or_else(|| failure(&shown(pinned), "no such file or directory"))
}

/// The file of a pin, which must be a regular file.
pub fn regular(pinned: &Pinned) -> anyhow::Result<&FileAttributes> {
    let attributes = found(pinned)?;
    match attributes.kind {
        InodeKind::File => Ok(attributes),
        InodeKind::Directory => Err(failure(&shown(pinned), "is a directory: name a file in it")),
        other => Err(failure(&shown(pinned), &format!("is a {} and not a regular file", kind_name(other)))),
    }
}

fn failure(what: &str, why: &str) -> anyhow::Error {
    Failure::new(ErrorCode::File, format!("{what}: {why}")).into()
}

/// Reads a file from its beginning to its end, and hands on the pieces with their offsets.
pub fn read_all(
    access: &mut Access,
    pin: u32,
    attributes: &FileAttributes,
    mut take: impl FnMut(u64, &[u8]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut offset = 0;
    while offset < attributes.size {
        let length = (attributes.size - offset).min(CHUNK_BYTES_MAX as u64) as u32;
        let response = access.call(Request::ReadFile { pin, inode: attributes.inode, offset, length })?;
        let data = take!(response, Response::Data(data) => data);
        if data.is_empty() {
            anyhow::bail!("a file of {} bytes ended after {offset}", attributes.size);
        }
        take(offset, &data)?;
        offset += data.len() as u64;
    }
    Ok(())
}

/// All entries of a directory, sorted by name.
pub fn read_directory(access: &mut Access, pin: u32, inode: InodeNumber) -> anyhow::Result<Vec<FileEntry>> {
    let mut all: Vec<FileEntry> = Vec::new();
    loop {
        let after = all.last().map_or(0, |entry| entry.cookie);
        let request = Request::ReadDirectory { pin, inode, after, limit: DIRECTORY_ENTRIES_MAX };
        let entries = take!(access.call(request)?, Response::Directory(entries) => entries);
        if entries.is_empty() {
            all.sort_by(|one, other| one.name.cmp(&other.name));
            return Ok(all);
        }
        all.extend(entries);
    }
}

/// The runs of `data` that are not zeros, at the grain of [`HOLE_BYTES`], with their offsets within it.
pub fn runs_with_data(data: &[u8]) -> Vec<(usize, &[u8])> {
    let mut runs = Vec::new();
    let mut start = None;
    for (index, block) in data.chunks(HOLE_BYTES).enumerate() {
        let offset = index * HOLE_BYTES;
        match (start, block.iter().all(|byte| *byte == 0)) {
            (None, false) => start = Some(offset),
            (Some(begin), true) => {
                runs.push((begin, &data[begin..offset]));
                start = None;
            }
            _ => {}
        }
    }
    if let Some(begin) = start {
        runs.push((begin, &data[begin..]));
    }
    runs
}

/// Writes a piece of a file, and leaves holes for its zeros.
pub fn write_piece(file: &File, offset: u64, data: &[u8]) -> io::Result<()> {
    for (start, run) in runs_with_data(data) {
        file.write_all_at(run, offset + start as u64)?;
    }
    Ok(())
}

/// The part of a path behind its last slash.
pub fn base_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// What kind of file, in a word.
pub const fn kind_name(kind: InodeKind) -> &'static str {
    match kind {
        InodeKind::File => "file",
        InodeKind::Directory => "directory",
        InodeKind::Symlink => "symlink",
        InodeKind::Fifo => "pipe",
        InodeKind::Socket => "socket",
        InodeKind::CharDevice => "character device",
        InodeKind::BlockDevice => "block device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn base_names_end_a_path() {
        assert_eq!(base_name(b"a/b/c.db"), b"c.db");
        assert_eq!(base_name(b"c.db"), b"c.db");
        assert_eq!(base_name(b""), b"");
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn runs_hold_everything_but_zeros(blocks in proptest::collection::vec(0u8..2, 0..12), tail in 0usize..HOLE_BYTES) {
            let mut data: Vec<u8> = blocks.iter().flat_map(|fill| vec![*fill; HOLE_BYTES]).collect();
            data.extend(vec![1; tail]);
            let mut rebuilt = vec![0; data.len()];
            for (offset, run) in runs_with_data(&data) {
                prop_assert!(!run.is_empty());
                prop_assert!(run.chunks(HOLE_BYTES).all(|block| block.contains(&1)));
                rebuilt[offset..offset + run.len()].copy_from_slice(run);
            }
            prop_assert_eq!(rebuilt, data);
        }
    }
}
