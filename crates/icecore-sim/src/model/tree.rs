//! The files and directories of one version, as maps.

use super::content::Content;
use super::step::FileChange;
use icecore::FileFault;
use icecore::units::FILE_BYTES_MAX;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Longest name of a file in bytes.
const NAME_BYTES_MAX: usize = 255;
const ROOT: u64 = 1;

type Result<T> = std::result::Result<T, FileFault>;

/// A tree of files. Copies share what they have in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tree {
    inodes: BTreeMap<u64, Arc<Inode>>,
    next: u64,
}

/// A file, directory or symbolic link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inode {
    /// Permission bits.
    pub mode: u32,
    /// Extended attributes.
    pub attributes: BTreeMap<String, Vec<u8>>,
    /// What it is.
    pub body: Body,
}

/// What an inode is and holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// A file.
    File(Content),
    /// A directory: names, each with the number of an inode.
    Directory(BTreeMap<String, u64>),
    /// A symbolic link and what it says.
    Symlink(String),
}

impl Default for Tree {
    fn default() -> Self {
        let root = Inode { mode: 0o755, attributes: BTreeMap::new(), body: Body::Directory(BTreeMap::new()) };
        Self { inodes: BTreeMap::from([(ROOT, Arc::new(root))]), next: ROOT + 1 }
    }
}

impl Tree {
    /// Number of the root directory.
    pub const ROOT: u64 = ROOT;

    /// The inode with this number.
    #[must_use]
    pub fn inode(&self, number: u64) -> Option<&Inode> {
        self.inodes.get(&number).map(|inode| &**inode)
    }

    /// The number of what has this path; the root has the empty one.
    pub fn resolve(&self, path: &str) -> Result<u64> {
        path.split('/').filter(|name| !name.is_empty()).try_fold(ROOT, |directory, name| {
            self.entries(directory)?.get(name).copied().ok_or(FileFault::NotFound)
        })
    }

    /// How many names lead to an inode (for a directory: 2 and one more for each directory in it).
    #[must_use]
    pub fn links(&self, number: u64) -> u64 {
        let directories = self.inodes.values().filter_map(|inode| match &inode.body {
            Body::Directory(entries) => Some(entries),
            Body::File(_) | Body::Symlink(_) => None,
        });
        match self.entries(number) {
            Ok(entries) => 2 + entries.values().filter(|inode| self.entries(**inode).is_ok()).count() as u64,
            Err(_) => directories.flat_map(BTreeMap::values).filter(|inode| **inode == number).count() as u64,
        }
    }

    /// Every path with the number of its inode, parents before children.
    #[must_use]
    pub fn paths(&self) -> Vec<(String, u64)> {
        let mut found = Vec::new();
        let mut open = vec![(String::new(), ROOT)];
        while let Some((path, number)) = open.pop() {
            if let Ok(entries) = self.entries(number) {
                for (name, child) in entries.iter().rev() {
                    open.push((
                        if path.is_empty() { name.clone() } else { format!("{path}/{name}") },
                        *child,
                    ));
                }
            }
            found.push((path, number));
        }
        found
    }

    fn entries(&self, number: u64) -> Result<&BTreeMap<String, u64>> {
        match self.inode(number).map(|inode| &inode.body) {
            Some(Body::Directory(entries)) => Ok(entries),
            Some(_) => Err(FileFault::NotADirectory),
            None => Err(FileFault::NotFound),
        }
    }

    fn inode_mut(&mut self, path: &str) -> Result<&mut Inode> {
        let number = self.resolve(path)?;
        self.inodes.get_mut(&number).map(Arc::make_mut).ok_or(FileFault::NotFound)
    }

    fn content_mut(&mut self, path: &str) -> Result<&mut Content> {
        match &mut self.inode_mut(path)?.body {
            Body::File(content) => Ok(content),
            Body::Directory(_) => Err(FileFault::IsADirectory),
            Body::Symlink(_) => Err(FileFault::Invalid),
        }
    }

    /// The directory in which a path lies, and the last name of the path.
    fn place<'a>(&self, path: &'a str) -> Result<(u64, &'a str)> {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let directory = self.resolve(directory)?;
        self.entries(directory)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(FileFault::NameTooLong);
        }
        if matches!(name, "" | "." | "..") { Err(FileFault::Invalid) } else { Ok((directory, name)) }
    }

    fn set_entry(&mut self, directory: u64, name: &str, number: Option<u64>) {
        let inode = self.inodes.get_mut(&directory).map(Arc::make_mut);
        if let Some(Inode { body: Body::Directory(entries), .. }) = inode {
            match number {
                Some(number) => entries.insert(name.to_owned(), number),
                None => entries.remove(name),
            };
        }
    }

    fn create(&mut self, path: &str, mode: u32, body: Body) -> Result<()> {
        let (directory, name) = self.place(path)?;
        if self.entries(directory)?.contains_key(name) {
            return Err(FileFault::Exists);
        }
        let number = self.next;
        self.next += 1;
        self.inodes.insert(number, Arc::new(Inode { mode, attributes: BTreeMap::new(), body }));
        self.set_entry(directory, name, Some(number));
        Ok(())
    }

    /// Forgets an inode that has lost its last name.
    fn forget_unnamed(&mut self, number: u64) {
        let is_named = |inode: &Arc<Inode>| match &inode.body {
            Body::Directory(entries) => entries.values().any(|child| *child == number),
            Body::File(_) | Body::Symlink(_) => false,
        };
        if !self.inodes.values().any(is_named) {
            self.inodes.remove(&number);
        }
    }

    /// Applies a change, or says why not.
    pub(super) fn apply(&mut self, change: &FileChange) -> Result<()> {
        match change {
            FileChange::CreateFile { path, mode } => self.create(path, *mode, Body::File(Content::default())),
            FileChange::CreateDirectory { path, mode } => {
                self.create(path, *mode, Body::Directory(BTreeMap::new()))
            }
            FileChange::CreateSymlink { path, target } => {
                self.create(path, 0o777, Body::Symlink(target.clone()))
            }
            FileChange::Write { path, offset, data } => {
                check_size(offset.saturating_add(u64::from(data.length)))?;
                self.content_mut(path).map(|content| content.write(*offset, &data.bytes()))
            }
            FileChange::Truncate { path, size } => {
                check_size(*size)?;
                self.content_mut(path).map(|content| content.truncate(*size))
            }
            FileChange::Punch { path, offset, length } => {
                self.content_mut(path).map(|content| content.punch(*offset, *length))
            }
            FileChange::SetMode { path, mode } => self.inode_mut(path).map(|inode| inode.mode = *mode),
            FileChange::SetAttribute { path, name, value } => {
                self.inode_mut(path)?.attributes.insert(name.clone(), value.bytes());
                Ok(())
            }
            FileChange::RemoveAttribute { path, name } => {
                let removed = self.inode_mut(path)?.attributes.remove(name);
                removed.map(drop).ok_or(FileFault::NoSuchAttribute)
            }
            FileChange::Link { path, to } => self.link(path, to),
            FileChange::Unlink { path } => self.unlink(path),
            FileChange::RemoveDirectory { path } => self.remove_directory(path),
            FileChange::Rename { from, to } => self.rename(from, to),
        }
    }

    fn link(&mut self, path: &str, to: &str) -> Result<()> {
        let number = self.resolve(path)?;
        if self.entries(number).is_ok() {
            return Err(FileFault::NotPermitted);
        }
        let (directory, name) = self.place(to)?;
        if self.entries(directory)?.contains_key(name) {
            return Err(FileFault::Exists);
        }
        self.set_entry(directory, name, Some(number));
        Ok(())
    }

    fn unlink(&mut self, path: &str) -> Result<()> {
        let (directory, name) = self.place(path)?;
        let number = self.resolve(path)?;
        if self.entries(number).is_ok() {
            return Err(FileFault::IsADirectory);
        }
        self.set_entry(directory, name, None);
        self.forget_unnamed(number);
        Ok(())
    }

    fn remove_directory(&mut self, path: &str) -> Result<()> {
        let (directory, name) = self.place(path)?;
        let number = self.resolve(path)?;
        if !self.entries(number)?.is_empty() {
            return Err(FileFault::NotEmpty);
        }
        self.set_entry(directory, name, None);
        self.inodes.remove(&number);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<()> {
        let (old_directory, old_name) = self.place(from)?;
        let number = self.resolve(from)?;
        let (new_directory, new_name) = self.place(to)?;
        if format!("{to}/").starts_with(&format!("{from}/")) && from != to {
            return Err(FileFault::Invalid);
        }
        let replaced = self.entries(new_directory)?.get(new_name).copied();
        if replaced == Some(number) {
            // Two names of one file: POSIX wants both to stay.
            return Ok(());
        }
        if let Some(replaced) = replaced {
            match (self.entries(number).is_ok(), self.entries(replaced)) {
                (true, Ok(entries)) if !entries.is_empty() => return Err(FileFault::NotEmpty),
                (true, Err(_)) => return Err(FileFault::NotADirectory),
                (false, Ok(_)) => return Err(FileFault::IsADirectory),
                (true, Ok(_)) | (false, Err(_)) => {}
            }
        }
        self.set_entry(old_directory, old_name, None);
        self.set_entry(new_directory, new_name, Some(number));
        if let Some(replaced) = replaced {
            self.forget_unnamed(replaced);
        }
        Ok(())
    }
}

const fn check_size(size: u64) -> Result<()> {
    if size > FILE_BYTES_MAX { Err(FileFault::TooLarge) } else { Ok(()) }
}
