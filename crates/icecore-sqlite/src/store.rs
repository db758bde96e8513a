//! The only place that calls the store: what a database file needs of a pool, and nothing else.

use crate::errors::{Fault, Result};
use icecore::names::SNAPSHOT_FOLDER;
use icecore::units::{InodeNumber, Timestamp};
use icecore::{Creation, Error, FileFault, InodeKind};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;

pub use icecore::{CommitPoint, Group, ListEntry, Pool, View};

/// Identifies a file within a pool for as long as its contents have one history: a rollback starts a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileKey {
    dataset: u64,
    generation: u64,
    inode: u64,
}

/// What a version of a file looks like from outside. Two versions with equal facts have equal contents,
/// except that a commit of the door may leave them equal: those are counted separately.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Length in bytes.
    pub size: u64,
    /// Time of the last change.
    pub changed: Timestamp,
    /// Number of names; zero for a file that was deleted while open.
    pub links: u32,
}

/// How a pool is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wish {
    /// To write, if that is possible.
    Write,
    /// To read, for as long as no writer opens it: see [`Pool::is_outdated`].
    Share,
    /// Only to read, and no writer may open it meanwhile.
    Read,
}

/// Opens the pool in a directory; answers for what it was opened.
pub fn open_pool(directory: &Path, wish: Wish) -> icecore::Result<(Pool, Wish)> {
    let to_write = icecore::OpenOptions { or_read_only: true, ..Default::default() };
    let to_read = icecore::OpenOptions { read_only: true, ..to_write.clone() };
    let options = if wish == Wish::Write { &to_write } else { &to_read };
    let pool = match Pool::open_directory(directory, options) {
        Err(Error::NeedsRecovery { .. }) if wish == Wish::Share => Pool::open_recovered(directory, options),
        outcome => outcome,
    }?;
    if wish != Wish::Share {
        return Ok((pool, wish));
    }
    pool.disown();
    // One that was recovered, and could not be closed, is open to write.
    let opened_for = if pool.is_read_only() { Wish::Share } else { Wish::Write };
    Ok((pool, opened_for))
}

/// The longest leading part of `components` that names a dataset, as a number of components. The last
/// component is never part of it: it is the file.
pub fn dataset_components(pool: &Pool, components: &[&str]) -> Option<usize> {
    let most = components.len().saturating_sub(1);
    (1..=most).rev().find(|count| pool.dataset(&components[..*count].join("/")).is_ok())
}

/// The facts of a file in a version.
pub fn facts(view: &View, inode: InodeNumber) -> Result<Facts> {
    let attributes = view.attributes(inode)?;
    Ok(Facts { size: attributes.size, changed: attributes.change, links: attributes.links })
}

/// Reads a file whose length in this version is known; returns how much there was.
pub fn read(view: &View, inode: InodeNumber, size: u64, offset: u64, buffer: &mut [u8]) -> Result<usize> {
    Ok(view.read_sized(inode, size, offset, buffer)?)
}

/// Finds a regular file by its path below the root of a dataset. `None` if there is no such name.
pub fn find_file(view: &View, path: &[&str]) -> Result<Option<InodeNumber>> {
    let Some((name, directories)) = path.split_last() else { return Ok(None) };
    let Some(directory) = find_directory(view, directories)? else { return Ok(None) };
    match view.lookup(directory, name.as_bytes())? {
        None => Ok(None),
        Some(entry) if entry.kind == InodeKind::File => Ok(Some(entry.inode)),
        Some(entry) => {
            let text = format!("{} is not a regular file", path.join("/"));
            let fault = Fault::new(crate::bindings::code::CANTOPEN, text);
            let is_directory = entry.kind == InodeKind::Directory;
            Err(if is_directory { fault.with_errno(Errno::ISDIR) } else { fault })
        }
    }
}

fn find_directory(view: &View, path: &[&str]) -> Result<Option<InodeNumber>> {
    let mut directory = InodeNumber::ROOT;
    for name in path {
        match view.lookup(directory, name.as_bytes())? {
            Some(entry) if entry.kind == InodeKind::Directory => directory = entry.inode,
            _ => return Ok(None),
        }
    }
    Ok(Some(directory))
}

/// A snapshot, as it will always be.
pub fn snapshot_view(pool: &Pool, dataset: &str, snapshot: &str) -> Result<View> {
    Ok(pool.view(&format!("{dataset}@{snapshot}"))?)
}

/// What the views of a file are shown as.
pub fn reader_of(path: &[&str]) -> Arc<icecore::ReaderName> {
    Arc::new(icecore::ReaderName { process: None, what: Some(shown(path)) })
}

/// What a file is called where people see who uses a pool.
fn shown(path: &[&str]) -> String {
    format!("SQLite file {}", path.join("/"))
}

/// A dataset's head as it is now.
pub fn head_view(pool: &Pool, dataset: &str) -> Result<View> {
    Ok(pool.view(dataset)?)
}

/// Takes a snapshot and returns its full name. Durable on return.
pub fn take_snapshot(pool: &Pool, dataset: &str, name: &str) -> Result<String> {
    let mut names = pool.snapshot(&[format!("{dataset}@{name}")], false, &[])?;
    names.pop().ok_or_else(|| Fault::new(crate::bindings::code::INTERNAL, "the snapshot has no name"))
}

/// The snapshots of one dataset.
pub fn list_snapshots(pool: &Pool, dataset: &str) -> Result<Vec<ListEntry>> {
    let filter = icecore::ListFilter {
        root: Some(dataset.to_owned()),
        depth: Some(0),
        datasets: false,
        snapshots: true,
    };
    Ok(pool.list(&filter)?)
}

/// The pool's counters by name.
pub fn counters(pool: &Pool) -> Vec<(String, i64)> {
    let clamp = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    let counters = pool.statistics().counters();
    counters.into_iter().map(|(name, value)| (name.to_owned(), clamp(value))).collect()
}

/// Appends the groups as one record, all or nothing, and makes them the head's content. Not yet durable.
pub fn commit(pool: &Pool, groups: Vec<Group>) -> Result<CommitPoint> {
    Ok(pool.commit(groups)?)
}

/// Waits until everything up to `point` is certain to survive.
pub fn make_durable(pool: &Pool, point: CommitPoint) -> Result<()> {
    Ok(pool.make_durable(point)?)
}

/// A file of a dataset's head, held open: it stays alive when its name goes, and a rollback of the dataset
/// is refused, naming it, or makes this handle useless.
pub struct HeadFile {
    dataset: icecore::Dataset,
    inode: InodeNumber,
    generation: u64,
    path: Vec<String>,
    /// What the views of it are shown as.
    reader: Arc<icecore::ReaderName>,
    alive: icecore::File,
    user: icecore::UserGuard,
}

impl HeadFile {
    /// Opens a file by its path within the dataset; with `create` makes it when only the file itself is
    /// missing. The creation is durable with the first commit after it.
    pub fn open(pool: &Pool, dataset: &str, path: &[&str], create: bool) -> Result<Option<Self>> {
        let dataset = pool.dataset(dataset)?;
        let (generation, inode, alive) = loop {
            let generation = dataset.generation()?;
            let view = dataset.view()?;
            let inode = match find_file(&view, path)? {
                Some(inode) => inode,
                None if create => match make_file(&dataset, &view, path)? {
                    Some(inode) => inode,
                    None => return Ok(None),
                },
                None => return Ok(None),
            };
            let alive = dataset.file(inode);
            // After a rollback in between, the number is that of another file, or of the same in another
            // head.
            if dataset.generation()? == generation {
                break (generation, inode, alive?);
            }
        };
        let reader = reader_of(path);
        let user = dataset.register_user(&shown(path));
        let path = path.iter().map(|&part| part.to_owned()).collect();
        Ok(Some(Self { dataset, inode, generation, path, reader, alive, user }))
    }

    /// Announces that a transaction writes to the file, or does no longer. Its dataset keeps its name
    /// meanwhile.
    pub fn set_writing(&self, writing: bool) {
        self.user.set_writing(writing);
    }

    /// What the lock table knows this file by.
    pub fn key(&self) -> FileKey {
        FileKey { dataset: self.dataset.id().get(), generation: self.generation, inode: self.inode.get() }
    }

    /// The name of its dataset.
    pub fn dataset(&self) -> Result<String> {
        Ok(self.dataset.name()?)
    }

    /// Its path below the root of the dataset.
    pub fn path(&self) -> &[String] {
        &self.path
    }

    /// The file's number.
    pub fn inode(&self) -> InodeNumber {
        self.inode
    }

    /// An error if the dataset was rolled back since the file was opened.
    pub fn check_generation(&self) -> Result<()> {
        if self.alive.changes().is_some() || self.dataset.generation()? == self.generation {
            return Ok(());
        }
        Err(Error::StaleHandle { dataset: self.dataset.name()? }.into())
    }

    /// Counts the changes of the head: see [`icecore::File::changes`].
    pub fn changes(&self) -> Option<u64> {
        self.alive.changes()
    }

    /// The head as it is now, and the file's facts in it.
    pub fn now(&self) -> Result<(View, Facts)> {
        let view = self.dataset.view()?;
        view.read_by(&self.reader);
        let facts = facts(&view, self.inode)?;
        Ok((view, facts))
    }

    /// The file's facts in the head as it is now, given those of a version that may be the same.
    pub fn facts_since(&self, view: &View, known: Facts) -> Result<Facts> {
        // No writer has written anything: no need to look the file up.
        if self.dataset.is_unchanged_since(view)? { Ok(known) } else { Ok(self.now()?.1) }
    }

    /// Opens an atomic group of writes to a file that has not changed since `view`.
    pub fn begin(&self, view: &View) -> Result<Group> {
        Ok(self.dataset.begin_from(view)?)
    }

    /// Removes another file of the same dataset; nothing happens if it is not there.
    pub fn remove(&self, path: &[&str]) -> Result<()> {
        remove_from(&self.dataset, path).map(|_| ())
    }
}

/// What the lock table knows a file of a dataset's head by. `None` if there is no such file.
pub fn file_key(pool: &Pool, dataset: &str, path: &[&str]) -> Result<Option<FileKey>> {
    let dataset = pool.dataset(dataset)?;
    let generation = dataset.generation()?;
    let key = |inode: InodeNumber| FileKey { dataset: dataset.id().get(), generation, inode: inode.get() };
    Ok(find_file(&dataset.view()?, path)?.map(key))
}

/// Removes a file of a dataset's head. False if there was none.
pub fn remove_file(pool: &Pool, dataset: &str, path: &[&str]) -> Result<bool> {
    remove_from(&pool.dataset(dataset)?, path)
}

fn remove_from(dataset: &icecore::Dataset, path: &[&str]) -> Result<bool> {
    let Some((name, directories)) = path.split_last() else { return Ok(false) };
    let view = dataset.view()?;
    let Some(directory) = find_directory(&view, directories)? else { return Ok(false) };
    match dataset.unlink(directory, name.as_bytes()) {
        Ok(_) => Ok(true),
        Err(Error::File(FileFault::NotFound)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn make_file(dataset: &icecore::Dataset, view: &View, path: &[&str]) -> Result<Option<InodeNumber>> {
    let Some((name, directories)) = path.split_last() else { return Ok(None) };
    let Some(directory) = find_directory(view, directories)? else { return Ok(None) };
    if directories.is_empty() && *name == SNAPSHOT_FOLDER {
        let detail = "on a mount the folder of that name in a dataset has the snapshots";
        return Err(Error::Invalid(format!("{name}: {detail}: choose another name")).into());
    }
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let new = Creation { uid, gid, ..Creation::file() };
    match dataset.create(directory, name.as_bytes(), &new) {
        Ok(made) => Ok(Some(made.inode)),
        // Another thread was faster: its file is as good.
        Err(Error::File(FileFault::Exists)) => find_file(&dataset.view()?, path),
        Err(error) => Err(error.into()),
    }
}
