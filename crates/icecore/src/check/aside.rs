//! Making changes real: what is there is kept aside first.

use crate::copies::SUPERBLOCK_NAMES;
use crate::error::{Error, Result};
use crate::format::superblock::NAMES;
use crate::storage::{AlignedBuffer, Change, Kind, Overlay, Storage};
use crate::units::BLOCK_BYTES;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io;
use std::sync::Arc;

/// What files with originals are called, but for their number.
const PREFIX: &str = "before-repair.";
/// Files with originals in one pool.
const NUMBERS_MAX: u32 = 10_000;

/// Writes what the changes will overwrite to a file of its own, and answers its name. Durable on return.
///
/// It begins with lines of text, `NAME OFFSET`, padded with zeros to whole blocks; then come the blocks of
/// 4096 bytes, in the order of the lines.
pub(super) fn keep(storage: &dyn Storage, changes: &[Change]) -> Result<String> {
    let mut index = String::from("icecore originals\n");
    let mut contents = Vec::new();
    for change in changes {
        let mut block = vec![0; BLOCK_BYTES];
        let file = match storage.open(&change.file, false) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(irreplaceable(&change.file, error)),
        };
        let length = file.length().map_err(|error| Error::io("measure", &change.file, error))?;
        let there = length.saturating_sub(change.offset).min(BLOCK_BYTES as u64) as usize;
        let read = file.read_at(&mut block[..there], change.offset);
        // What cannot be read cannot be kept either; it is what is to be mended.
        let note = if read.is_err() { " unreadable" } else { "" };
        writeln!(index, "{} {}{note}", change.file, change.offset).expect("text takes text");
        contents.extend_from_slice(&block);
    }
    let mut bytes = index.into_bytes();
    bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
    bytes.extend_from_slice(&contents);
    let bytes = AlignedBuffer::copied(&bytes);
    let taken = storage.list().map_err(|error| Error::io("list", storage.describe(), error))?;
    let name = (0..NUMBERS_MAX)
        .map(|number| format!("{PREFIX}{number}"))
        .find(|name| taken.iter().all(|(other, _)| other != name))
        .ok_or_else(|| Error::Invalid(format!("there are {NUMBERS_MAX} files {PREFIX}* already")))?;
    let made = storage.create(&name, bytes.len() as u64);
    let file = made.map_err(|error| Error::io("create", &name, error))?;
    file.write_at(&[(Kind::Frame, &bytes)], 0).map_err(|error| Error::io("write", &name, error))?;
    file.sync().map_err(|error| Error::io("flush", &name, error))?;
    storage.sync_directory().map_err(|error| Error::io("flush", storage.describe(), error))?;
    Ok(name)
}

/// Why what has the name of a file cannot be kept aside. A folder or a pipe is none, and only a person can
/// say what is to become of it.
fn irreplaceable(name: &str, error: io::Error) -> Error {
    if error.kind() != io::ErrorKind::InvalidInput {
        return Error::io("open", name, error);
    }
    let advice = format!("{error}; move it away, and repair again");
    Error::io("replace", name, io::Error::new(error.kind(), advice))
}

/// Makes real what was changed in memory, in other folders as well. Superblocks come last, when everything
/// that they lead to is durable. Cut short before, the pool is as damaged as it was. What was removed is gone
/// before, too: that is copies.
pub(super) fn apply(storage: &dyn Storage, overlay: &Overlay) -> Result<()> {
    let failed = |error| Error::io("flush", storage.describe(), error);
    let mut others: Vec<(Arc<dyn Storage>, Vec<Change>)> = Vec::new();
    for (path, sibling) in overlay.siblings() {
        let folder = storage.sibling(&path).map_err(|error| Error::io("open", path, error))?;
        let (mut last, first): (Vec<Change>, Vec<Change>) =
            sibling.changes().into_iter().partition(is_superblock);
        put_in_order(&*folder, &mut last, SUPERBLOCK_NAMES);
        remove(&*folder, &sibling)?;
        write_all(&*folder, &first)?;
        folder.sync_directory().map_err(failed)?;
        others.push((folder, last));
    }
    let (mut last, first): (Vec<Change>, Vec<Change>) =
        overlay.changes().into_iter().partition(is_superblock);
    put_in_order(storage, &mut last, NAMES);
    remove(storage, overlay)?;
    write_all(storage, &first)?;
    storage.sync_directory().map_err(failed)?;
    let own: Vec<(&dyn Storage, &Change)> = last.iter().map(|change| (storage, change)).collect();
    let copied = others.iter().flat_map(|(folder, last)| last.iter().map(|change| (&**folder, change)));
    for (folder, change) in own.into_iter().chain(copied) {
        write(folder, &[change])?;
        folder.sync_directory().map_err(failed)?;
    }
    Ok(())
}

/// Of twin superblocks the one that is whole comes last: it may be the only one.
fn put_in_order(storage: &dyn Storage, changes: &mut [Change], twins: [&'static str; 2]) {
    let (_, whole) = crate::engine::superblocks_in_order(storage, twins);
    changes.sort_by_key(|change| change.file == whole);
}

fn is_superblock(change: &Change) -> bool {
    let name = change.file.as_str();
    NAMES.contains(&name) || SUPERBLOCK_NAMES.contains(&name)
}

/// Removes files that are gone in memory. What has another in its place is replaced when that is written.
fn remove(storage: &dyn Storage, overlay: &Overlay) -> Result<()> {
    let made: BTreeSet<String> = overlay.changes().into_iter().map(|change| change.file).collect();
    let gone = overlay.removed().into_iter().filter(|name| !made.contains(name));
    gone.into_iter().try_for_each(|name| remove_one(storage, &name))
}

fn remove_one(storage: &dyn Storage, name: &str) -> Result<()> {
    match storage.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::io("remove", name, error)),
        _ => Ok(()),
    }
}

fn write_all(storage: &dyn Storage, changes: &[Change]) -> Result<()> {
    let all: Vec<&Change> = changes.iter().collect();
    all.chunk_by(|a, b| a.file == b.file).try_for_each(|changes| write(storage, changes))
}

/// Writes and flushes all changes of one file.
fn write(storage: &dyn Storage, changes: &[&Change]) -> Result<()> {
    let name = &changes[0].file;
    let file = match changes[0].made {
        Some(length) => {
            remove_one(storage, name)?;
            storage.create(name, length).map_err(|error| Error::io("create", name, error))?
        }
        None => storage.open(name, true).map_err(|error| Error::io("open", name, error))?,
    };
    for change in changes {
        let block = AlignedBuffer::copied(&*change.bytes);
        let outcome = file.write_at(&[(Kind::Frame, &block)], change.offset);
        outcome.map_err(|error| Error::io("write", name, error))?;
    }
    file.sync().map_err(|error| Error::io("flush", name, error))
}
