//! Names: looking them up, making them, taking them away.

use super::{CONTROL_NAME, Inner, SNAPSHOTS_NAME};
use crate::protocol::{Caller, Entry, Errno, NewFile, NodeId, Outcome, RenameHow};
use crate::trees::{Key, Place, Tree};
use icecore::units::InodeNumber;
use icecore::{Creation, Dataset, File, InodeKind, Made};
use std::sync::Arc;

const SET_GROUP: u16 = 0o2000;

impl Inner {
    pub(super) fn lookup(&self, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        self.within(parent, |tree, directory| {
            if directory == InodeNumber::ROOT
                && let Some(other) = self.mounted_at(tree, name)?
            {
                return self.root_entry(&other);
            }
            let missing = Errno(libc::ENOENT);
            let view = self.view(tree)?.ok_or(missing)?;
            let found = self.ok(view.lookup(directory, name))?.ok_or(missing)?;
            self.entry(tree, &view, found.inode)
        })
    }

    /// The tree that appears under a name in the root of another. It hides a file of that name.
    fn mounted_at(&self, tree: &Tree, name: &[u8]) -> Outcome<Option<Arc<Tree>>> {
        match &tree.place {
            Place::Head(dataset) if name == CONTROL_NAME => {
                let id = dataset.id();
                let place = Place::Control(id);
                self.trees.find_or_add(Key::Control(id), place, (tree.key, name)).map(Some)
            }
            Place::Head(_) | Place::Pool => self.child(tree, name),
            Place::Control(id) if name == SNAPSHOTS_NAME => {
                let place = Place::Snapshots(*id);
                self.trees.find_or_add(Key::Snapshots(*id), place, (tree.key, name)).map(Some)
            }
            Place::Snapshots(id) => {
                let Ok(short) = std::str::from_utf8(name) else { return Ok(None) };
                let Some(version) = self.ok(self.pool.snapshot_of(*id, short))? else {
                    return Ok(None);
                };
                let key = Key::Snapshot(*id, version);
                self.trees.find_or_add(key, Place::Snapshot(version), (tree.key, name)).map(Some)
            }
            Place::Control(_) | Place::Snapshot(_) => Ok(None),
        }
    }

    /// Refuses a name that belongs to another tree: it can be neither made nor taken away here.
    fn refuse_mounted(&self, tree: &Tree, directory: InodeNumber, name: &[u8], error: i32) -> Outcome<()> {
        if directory == InodeNumber::ROOT && self.mounted_at(tree, name)?.is_some() {
            return Err(Errno(error));
        }
        Ok(())
    }

    pub(super) fn make(&self, caller: Caller, parent: NodeId, name: &[u8], new: &NewFile) -> Outcome<Entry> {
        self.within(parent, |tree, directory| {
            let made = self.make_in(caller, tree, directory, name, new)?;
            self.entry_of(tree, made.inode, &made.attributes)
        })
    }

    pub(super) fn make_in(
        &self,
        caller: Caller,
        tree: &Tree,
        directory: InodeNumber,
        name: &[u8],
        new: &NewFile,
    ) -> Outcome<Made> {
        let dataset = self.writable(tree)?;
        self.refuse_mounted(tree, directory, name, libc::EEXIST)?;
        let creation = self.creation(caller, dataset, directory, new)?;
        self.changed(tree, directory, dataset.create(directory, name, &creation))
    }

    /// Owner and mode of a new file. A directory with the set-group bit passes on its group, and to
    /// directories the bit.
    fn creation(
        &self,
        caller: Caller,
        dataset: &Dataset,
        directory: InodeNumber,
        new: &NewFile,
    ) -> Outcome<Creation> {
        let above = self.ok(dataset.view().and_then(|view| view.attributes(directory)))?;
        let NewFile { kind, mut mode, rdev } = *new;
        let mut gid = caller.gid;
        if above.mode & SET_GROUP != 0 {
            gid = above.gid;
            if kind == InodeKind::Directory {
                mode |= SET_GROUP;
            }
        }
        Ok(Creation { kind, mode, uid: caller.uid, gid, rdev: rdev.into() })
    }

    pub(super) fn make_link(
        &self,
        caller: Caller,
        parent: NodeId,
        name: &[u8],
        target: &[u8],
    ) -> Outcome<Entry> {
        self.within(parent, |tree, directory| {
            let dataset = self.writable(tree)?;
            self.refuse_mounted(tree, directory, name, libc::EEXIST)?;
            let new = NewFile { kind: InodeKind::Symlink, mode: 0o777, rdev: 0 };
            let creation = self.creation(caller, dataset, directory, &new)?;
            let made = dataset.create_symlink(directory, name, target, &creation);
            let made = self.changed(tree, directory, made)?;
            self.entry_of(tree, made.inode, &made.attributes)
        })
    }

    pub(super) fn link(&self, node: NodeId, parent: NodeId, name: &[u8]) -> Outcome<Entry> {
        self.within(parent, |tree, directory| {
            let (source, inode) = self.trees.resolve(node)?;
            if source.index != tree.index {
                return Err(Errno(libc::EXDEV));
            }
            let dataset = self.writable(tree)?;
            self.refuse_mounted(tree, directory, name, libc::EEXIST)?;
            let attributes = self.changed(tree, directory, dataset.link(inode, directory, name))?;
            self.entry_of(tree, inode, &attributes)
        })
    }

    pub(super) fn unlink(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        self.within(parent, |tree, directory| {
            let dataset = self.writable(tree)?;
            self.refuse_mounted(tree, directory, name, libc::EBUSY)?;
            self.changed(tree, directory, dataset.unlink(directory, name)).map(drop)
        })
    }

    pub(super) fn remove_directory(&self, parent: NodeId, name: &[u8]) -> Outcome<()> {
        self.within(parent, |tree, directory| {
            let dataset = self.writable(tree)?;
            self.refuse_mounted(tree, directory, name, libc::EBUSY)?;
            self.changed(tree, directory, dataset.remove_directory(directory, name)).map(drop)
        })
    }

    pub(super) fn rename(&self, from: (NodeId, &[u8]), to: (NodeId, &[u8]), how: RenameHow) -> Outcome<()> {
        self.within(from.0, |tree, directory| {
            let (target, target_directory) = self.trees.resolve(to.0)?;
            if target.index != tree.index {
                return Err(Errno(libc::EXDEV));
            }
            let dataset = self.writable(tree)?;
            self.refuse_mounted(tree, directory, from.1, libc::EBUSY)?;
            self.refuse_mounted(tree, target_directory, to.1, libc::EBUSY)?;
            let replaced = match how {
                RenameHow::Replace => self.open_named(dataset, target_directory, to.1),
                RenameHow::NoReplace | RenameHow::Exchange => None,
            };
            let renamed = dataset.rename((directory, from.1), (target_directory, to.1), how);
            if target_directory != directory {
                self.drop_list(tree, target_directory);
                self.parents_changed(tree, dataset, [(target_directory, to.1), (directory, from.1)]);
            }
            let renamed = self.changed(tree, directory, renamed)?;
            if renamed.orphaned
                && let Some(file) = replaced
            {
                self.lingering.keep(file);
            }
            Ok(())
        })
    }

    /// Lists of directories contain `..`: what has these names now may have got another.
    fn parents_changed(&self, tree: &Tree, dataset: &Dataset, names: [(InodeNumber, &[u8]); 2]) {
        let Ok(view) = dataset.view() else { return };
        for (directory, name) in names {
            if let Ok(Some(moved)) = view.lookup(directory, name) {
                self.drop_list(tree, moved.inode);
            }
        }
    }

    /// What has this name, open. An error is left to the operation that this prepares.
    fn open_named(&self, dataset: &Dataset, directory: InodeNumber, name: &[u8]) -> Option<File> {
        let found = dataset.view().and_then(|view| view.lookup(directory, name)).ok()??;
        dataset.file(found.inode).ok()
    }
}
