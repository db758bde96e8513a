//! Requests that concern files: pinned versions to read from, and a file that is staged piece by piece.

use super::escape::escaped;
use super::import::Import;
use super::locate::find_reading;
use super::protocol::{
    CHUNK_BYTES_MAX, DIRECTORY_ENTRIES_MAX, FileAttributes, FileEntry, Owner, Pinned, Request, Response,
};
use crate::dataset::Creation;
use crate::error::{Error, FileFault, Result};
use crate::names::{SNAPSHOT_FOLDER, VersionName};
use crate::namespace::InodeKind;
use crate::pins::ReaderName;
use crate::pool::{Pool, PoolChange};
use crate::units::{BLOCK_SHIFT, InodeNumber};
use crate::view::View;
use std::collections::HashMap;
use std::sync::Arc;

/// Versions that one client may pin at a time.
const PINS_MAX: usize = 64;

/// What one client holds.
#[derive(Default)]
pub(super) struct Files {
    pins: HashMap<u32, View>,
    next_pin: u32,
    import: Option<Import>,
    /// The process of the client, if it is another one.
    process: Option<u32>,
}

impl Files {
    /// What a client of this process holds: nothing yet.
    pub(super) fn of(process: Option<u32>) -> Self {
        Self { process, ..Self::default() }
    }

    /// Whether anything would be lost with the client.
    pub(super) fn holds(&self) -> bool {
        !self.pins.is_empty() || self.import.is_some()
    }

    /// Does the request; gives it back if it does not concern files.
    pub(super) fn call(&mut self, pool: &Pool, request: Request) -> Result<Result<Response>, Request> {
        Ok(match request {
            Request::Pin { path } => self.pin(pool, &path).map(Response::Pinned),
            Request::Find { pin, file } => {
                self.view(pin).and_then(|view| find(view, &file)).map(Response::Found)
            }
            Request::Unpin { pin } => {
                self.pins.remove(&pin);
                Ok(Response::Done)
            }
            Request::ReadDirectory { pin, inode, after, limit } => {
                self.read_directory(pin, inode, after, limit).map(Response::Directory)
            }
            Request::ReadFile { pin, inode, offset, length } => {
                self.read_file(pin, inode, offset, length).map(Response::Data)
            }
            Request::ReadLink { pin, inode } => {
                self.view(pin).and_then(|view| view.read_link(inode)).map(Response::Data)
            }
            Request::MakeDirectories { path, owner } => {
                make_directories(pool, &path, owner).map(|()| Response::Done)
            }
            Request::BeginImport { path, mode, owner, replace, beside } => {
                // Whatever was staged before is given up, also if this fails.
                self.import = None;
                let creation = Creation { mode, uid: owner.uid, gid: owner.gid, ..Creation::file() };
                Import::begin(pool, &path, &creation, replace, beside).map(|import| {
                    self.import = Some(import);
                    Response::Done
                })
            }
            Request::ImportChunk { offset, data } => self
                .import
                .as_mut()
                .ok_or_else(nothing_staged)
                .and_then(|import| import.write(offset, &data))
                .map(|()| Response::Done),
            Request::CommitImport { size } => self
                .import
                .take()
                .ok_or_else(nothing_staged)
                .and_then(|import| import.commit(pool, size))
                .map(|replaced| Response::Imported { replaced }),
            other => return Err(other),
        })
    }

    fn pin(&mut self, pool: &Pool, path: &[u8]) -> Result<Pinned> {
        if self.pins.len() >= PINS_MAX {
            return Err(Error::Invalid(format!("{PINS_MAX} versions are pinned already: let one go first")));
        }
        let (reading, view) = find_reading(path, |name| pool.view(name.as_str()))?;
        view.read_by(&Arc::new(ReaderName { process: self.process, what: None }));
        let found = find(&view, reading.file)?;
        let (version, file) = (reading.version.to_string(), reading.file.to_vec());
        let pin = self.next_pin;
        self.next_pin = self.next_pin.wrapping_add(1);
        self.pins.insert(pin, view);
        Ok(Pinned { pin, version, file, found })
    }

    fn view(&self, pin: u32) -> Result<&View> {
        self.pins.get(&pin).ok_or_else(|| Error::Invalid(format!("there is no pin {pin}")))
    }

    fn read_directory(&self, pin: u32, inode: InodeNumber, after: u64, limit: u32) -> Result<Vec<FileEntry>> {
        let view = self.view(pin)?;
        let limit = limit.clamp(1, DIRECTORY_ENTRIES_MAX) as usize;
        view.read_directory(inode, after, limit)?
            .into_iter()
            .map(|entry| {
                let attributes = attributes(view, entry.inode)?;
                Ok(FileEntry { name: entry.name, cookie: entry.cookie, attributes })
            })
            .collect()
    }

    fn read_file(&self, pin: u32, inode: InodeNumber, offset: u64, length: u32) -> Result<Vec<u8>> {
        let view = self.view(pin)?;
        let size = view.attributes(inode)?.size;
        let length = u64::from(length).min(CHUNK_BYTES_MAX as u64).min(size.saturating_sub(offset));
        let mut data = vec![0; length as usize];
        let read = view.read(inode, offset, &mut data)?;
        data.truncate(read);
        Ok(data)
    }
}

fn nothing_staged() -> Error {
    Error::Invalid("no file is being imported".to_owned())
}

fn find(view: &View, path: &[u8]) -> Result<Option<FileAttributes>> {
    resolve(view, path)?.map(|inode| attributes(view, inode)).transpose()
}

/// The file at a path. A path through something that is no directory leads nowhere.
pub(super) fn resolve(view: &View, path: &[u8]) -> Result<Option<InodeNumber>> {
    match view.resolve(path) {
        Err(Error::File(FileFault::NotADirectory | FileFault::NameTooLong)) => Ok(None),
        other => other,
    }
}

/// Splits a path into the directory and the last name.
pub(super) fn split_last(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(position) => (&path[..position], &path[position + 1..]),
        None => (b"", path),
    }
}

/// An error about a file, with its path.
pub(super) fn about(path: &[u8], fault: FileFault) -> Error {
    Error::Invalid(format!("{}: {fault}", escaped(path)))
}

/// The dataset whose head a path leads into, and the rest. Snapshots are refused, and what a mount would not
/// show.
pub(super) fn head_of(pool: &Pool, path: &[u8]) -> Result<(crate::dataset::Dataset, Vec<u8>)> {
    let (reading, _) = find_reading(path, |name| pool.view(name.as_str()))?;
    let first = reading.file.split(|byte| *byte == b'/').find(|name| !name.is_empty());
    if first == Some(SNAPSHOT_FOLDER.as_bytes()) {
        let detail = "on a mount the folder of that name in a dataset has the snapshots: choose another name";
        return Err(Error::Invalid(format!("{}: {detail}", escaped(path))));
    }
    match &reading.version {
        VersionName::Snapshot(name) => Err(Error::SnapshotIsReadOnly { name: name.to_string() }),
        VersionName::Head(name) => Ok((pool.dataset(name.as_str())?, reading.file.to_vec())),
    }
}

fn make_directories(pool: &Pool, path: &[u8], owner: Owner) -> Result<()> {
    let (dataset, path) = head_of(pool, path)?;
    let creation = Creation { uid: owner.uid, gid: owner.gid, ..Creation::directory() };
    let mut directory = InodeNumber::ROOT;
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        directory = match dataset.create(directory, name, &creation) {
            Ok(made) => {
                let name = name.to_vec();
                pool.tell(&PoolChange::Name { dataset: dataset.id(), directory, name });
                made.inode
            }
            Err(Error::File(FileFault::Exists)) => match dataset.view()?.lookup(directory, name)? {
                Some(entry) if entry.kind == InodeKind::Directory => entry.inode,
                _ => return Err(about(&path, FileFault::NotADirectory)),
            },
            Err(Error::File(fault)) => return Err(about(&path, fault)),
            Err(error) => return Err(error),
        };
    }
    dataset.sync()
}

fn attributes(view: &View, inode: InodeNumber) -> Result<FileAttributes> {
    let item = view.attributes(inode)?;
    Ok(FileAttributes {
        inode,
        kind: item.kind,
        mode: item.mode,
        links: item.links,
        owner: Owner { uid: item.uid, gid: item.gid },
        size: item.size,
        stored: item.blocks << BLOCK_SHIFT,
        modified: item.modify,
    })
}
