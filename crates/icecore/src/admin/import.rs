//! A file that comes in piece by piece and appears whole.
//!
//! The pieces go into an atomic group. A file that exists gets its new content by the commit of the group,
//! and keeps its number; it is left alone while a program has it open. A new file is made empty under a
//! hidden name first and gets its own by a rename, which is one atomic step; a crash in between leaves
//! nothing but the hidden file, which the next import of the same name removes. What belongs to the former
//! content, such as the log of a database, is emptied in the step in which the content comes.

use super::escape::escaped;
use super::files::{about, head_of, resolve, split_last};
use crate::dataset::{Creation, Dataset, UserGuard};
use crate::error::{Error, FileFault, Result};
use crate::group::Group;
use crate::namespace::{InodeKind, RenameHow, name_hash};
use crate::pool::{Pool, PoolChange};
use crate::units::{DatasetId, InodeNumber, PoolId};
use crate::view::View;
use parking_lot::Mutex;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// A file on its way in. Dropped before the commit, it leaves no trace.
pub(super) struct Import {
    // Dropped in this order: what was staged, the hidden file, the claim.
    group: Option<Group>,
    hidden: Option<Hidden>,
    dataset: Dataset,
    inode: InodeNumber,
    path: Vec<u8>,
    directory: InodeNumber,
    /// What the names of files end with that belong to the former content.
    endings: Vec<Vec<u8>>,
    _user: UserGuard,
    _claim: Claim,
}

/// A file that belongs to the former content, and goes with it.
struct Beside {
    name: Vec<u8>,
    path: Vec<u8>,
    inode: InodeNumber,
}

/// A new file under a name that no program looks for.
struct Hidden {
    dataset: Dataset,
    directory: InodeNumber,
    name: Vec<u8>,
    hidden_name: Vec<u8>,
    renamed: bool,
}

impl Import {
    /// `endings`: `beside` of [`Request::BeginImport`](super::Request::BeginImport).
    pub(super) fn begin(
        pool: &Pool,
        path: &[u8],
        creation: &Creation,
        replace: bool,
        endings: Vec<Vec<u8>>,
    ) -> Result<Self> {
        let (dataset, file) = head_of(pool, path)?;
        if file.is_empty() {
            return Err(about(path, FileFault::IsADirectory));
        }
        let user = dataset.register_user(&format!("an import of {}", escaped(path)));
        let (parent, name) = split_last(&file);
        let view = dataset.view()?;
        let directory = resolve(&view, parent)?.ok_or_else(|| missing_parent(path))?;
        let existing = match view.lookup(directory, name) {
            Ok(existing) => existing,
            Err(Error::File(FileFault::NotADirectory)) => return Err(missing_parent(path)),
            Err(Error::File(fault)) => return Err(about(path, fault)),
            Err(error) => return Err(error),
        };
        let beside = Beside::all(&view, (directory, name), path, &endings)?;
        if let Some(one) = beside.first().filter(|_| existing.is_none() && !replace) {
            return Err(Error::Exists { what: escaped(&one.path) });
        }
        if replace {
            beside.iter().try_for_each(|one| refuse_open(pool, &dataset, one.inode, &one.path))?;
        }
        let claim = Claim::take(pool.id(), &dataset, directory, name, path)?;
        let (inode, hidden) = match existing {
            Some(entry) if !replace && entry.kind == InodeKind::File => {
                return Err(Error::Exists { what: escaped(path) });
            }
            Some(entry) if entry.kind == InodeKind::File => {
                refuse_open(pool, &dataset, entry.inode, path)?;
                (entry.inode, None)
            }
            Some(entry) if entry.kind == InodeKind::Directory => {
                return Err(about(path, FileFault::IsADirectory));
            }
            Some(_) => {
                return Err(Error::Invalid(format!("{} is not a regular file", escaped(path))));
            }
            None => {
                let (inode, hidden) =
                    Hidden::create(&dataset, directory, name, creation).map_err(|error| match error {
                        Error::File(fault) => about(path, fault),
                        other => other,
                    })?;
                (inode, Some(hidden))
            }
        };
        let mut group = dataset.begin()?;
        if hidden.is_none() {
            group.truncate(inode, 0)?;
        }
        Ok(Self {
            group: Some(group),
            hidden,
            dataset,
            inode,
            path: path.to_vec(),
            directory,
            // Without leave to replace, there was nothing beside it, and what has come since is not ours.
            endings: if replace { endings } else { Vec::new() },
            _user: user,
            _claim: claim,
        })
    }

    pub(super) fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let Some(group) = &mut self.group else { return Ok(()) };
        group.write(self.inode, offset, data).map_err(|error| match error {
            Error::File(fault) => about(&self.path, fault),
            other => other,
        })
    }

    /// Makes the file visible and durable; whether one was replaced.
    pub(super) fn commit(mut self, pool: &Pool, size: u64) -> Result<bool> {
        if self.hidden.is_none() {
            refuse_open(pool, &self.dataset, self.inode, &self.path)?;
        }
        let beside = self.former(pool)?;
        if let Some(mut group) = self.group.take() {
            // In one step with the content: what a log of the former one holds would be applied to the new
            // one, and the former one would lack it. A log that is empty is none.
            let mut emptied = self.dataset.begin()?;
            beside.iter().try_for_each(|one| emptied.truncate(one.inode, 0))?;
            group.truncate(self.inode, size)?;
            let groups = [emptied, group].into_iter().filter(|group| !group.is_empty());
            pool.commit(groups.collect())?;
        }
        let dataset = self.dataset.id();
        for one in &beside {
            pool.tell(&PoolChange::Content { dataset, inode: one.inode });
        }
        let replaced = self.hidden.is_none();
        if let Some(hidden) = &mut self.hidden {
            hidden.reveal().map_err(|error| match error {
                Error::File(FileFault::Exists) => made_meanwhile(&self.path),
                other => other,
            })?;
        }
        pool.sync()?;
        pool.tell(&match &self.hidden {
            Some(hidden) => {
                PoolChange::Name { dataset, directory: hidden.directory, name: hidden.name.clone() }
            }
            None => PoolChange::Content { dataset, inode: self.inode },
        });
        self.remove(pool, &beside);
        Ok(replaced)
    }

    /// What belongs to the former content by now. Refuses a name that leads elsewhere than at the beginning.
    fn former(&self, pool: &Pool) -> Result<Vec<Beside>> {
        let (_, name) = split_last(&self.path);
        let view = self.dataset.view()?;
        let found = view.lookup(self.directory, name)?.map(|entry| entry.inode);
        if self.hidden.is_some() && found.is_some() {
            return Err(made_meanwhile(&self.path));
        }
        if self.hidden.is_none() && found != Some(self.inode) {
            let blockers = "a program replaced or removed it meanwhile; import it again".to_owned();
            return Err(Error::Busy { what: escaped(&self.path), blockers });
        }
        let beside = Beside::all(&view, (self.directory, name), &self.path, &self.endings)?;
        beside.iter().try_for_each(|one| refuse_open(pool, &self.dataset, one.inode, &one.path))?;
        Ok(beside)
    }

    /// Takes away what is empty now. One that cannot be removed, or that a program uses again, stays: an
    /// empty log does no harm.
    fn remove(&self, pool: &Pool, beside: &[Beside]) {
        let Ok(view) = self.dataset.view() else { return };
        for one in beside {
            let found = view.lookup(self.directory, &one.name).ok().flatten();
            let is_same = found.is_some_and(|entry| entry.inode == one.inode);
            let is_empty = view.attributes(one.inode).is_ok_and(|attributes| attributes.size == 0);
            let is_free = refuse_open(pool, &self.dataset, one.inode, &one.path).is_ok();
            if is_same && is_empty && is_free && self.dataset.unlink(self.directory, &one.name).is_ok() {
                let (dataset, directory, name) = (self.dataset.id(), self.directory, one.name.clone());
                pool.tell(&PoolChange::Name { dataset, directory, name });
            }
        }
    }
}

fn made_meanwhile(path: &[u8]) -> Error {
    Error::Exists { what: format!("{} (made meanwhile)", escaped(path)) }
}

impl Beside {
    /// The files that are there, of those whose names end so. `path`: that of the file itself.
    fn all(
        view: &View,
        (directory, name): (InodeNumber, &[u8]),
        path: &[u8],
        endings: &[Vec<u8>],
    ) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        for ending in endings {
            let name = [name, ending].concat();
            match view.lookup(directory, &name) {
                Ok(Some(entry)) if entry.kind == InodeKind::File => {
                    all.push(Self { name, path: [path, ending].concat(), inode: entry.inode });
                }
                Ok(_) | Err(Error::File(FileFault::NameTooLong)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }
}

/// How long an open file is waited for: of a mount, the store learns that a program has closed a file after
/// close(2) has returned.
const CLOSING: Duration = Duration::from_millis(200);

/// A program that has the file open may be in the middle of changing it: the two contents would mix.
fn refuse_open(pool: &Pool, dataset: &Dataset, inode: InodeNumber, path: &[u8]) -> Result<()> {
    let head = pool.engine().state().head(dataset.id())?;
    let begin = Instant::now();
    while pool.engine().open_files.is_open((head, inode)) {
        if begin.elapsed() < CLOSING {
            std::thread::sleep(CLOSING / 20);
            continue;
        }
        let blockers = "a program has it open; import under another name, or close it first".to_owned();
        return Err(Error::Busy { what: escaped(path), blockers });
    }
    Ok(())
}

fn missing_parent(path: &[u8]) -> Error {
    let (parent, _) = split_last(path);
    Error::NotFound { what: format!("directory {} (-p makes it)", escaped(parent)) }
}

impl Hidden {
    fn create(
        dataset: &Dataset,
        directory: InodeNumber,
        name: &[u8],
        creation: &Creation,
    ) -> Result<(InodeNumber, Self)> {
        let hidden_name = format!(".icecore-import-{:016x}", name_hash(name)).into_bytes();
        // The caller claims the name, so what is there is left of a crash.
        match dataset.unlink(directory, &hidden_name) {
            Ok(_) | Err(Error::File(FileFault::NotFound)) => {}
            Err(error) => return Err(error),
        }
        let inode = dataset.create(directory, &hidden_name, creation)?.inode;
        let hidden =
            Self { dataset: dataset.clone(), directory, name: name.to_vec(), hidden_name, renamed: false };
        Ok((inode, hidden))
    }

    fn reveal(&mut self) -> Result<()> {
        let from = (self.directory, self.hidden_name.as_slice());
        self.dataset.rename(from, (self.directory, &self.name), RenameHow::NoReplace)?;
        self.renamed = true;
        Ok(())
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        if !self.renamed {
            // What cannot be removed now, the next import of this name removes.
            let _ = self.dataset.unlink(self.directory, &self.hidden_name);
            let (dataset, directory) = (self.dataset.id(), self.directory);
            let name = std::mem::take(&mut self.hidden_name);
            self.dataset.pool().tell(&PoolChange::Name { dataset, directory, name });
        }
    }
}

type Place = (PoolId, DatasetId, InodeNumber, Vec<u8>);

/// Files that are being imported in this process, which is the only one that can.
static CLAIMS: Mutex<Option<HashSet<Place>>> = Mutex::new(None);

/// Keeps a second import of the same file out.
struct Claim(Place);

impl Claim {
    fn take(
        pool: PoolId,
        dataset: &Dataset,
        directory: InodeNumber,
        name: &[u8],
        path: &[u8],
    ) -> Result<Self> {
        let place = (pool, dataset.id(), directory, name.to_vec());
        if CLAIMS.lock().get_or_insert_default().insert(place.clone()) {
            return Ok(Self(place));
        }
        Err(Error::Busy { what: escaped(path), blockers: "another import of it is under way".to_owned() })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(claims) = CLAIMS.lock().as_mut() {
            claims.remove(&self.0);
        }
    }
}
