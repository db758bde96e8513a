//! Listing directories.

use super::{Inner, parent_dataset};
use crate::protocol::{Entry, Errno, Listed, NodeId, Outcome};
use crate::trees::{Key, Place, Tree};
use icecore::name_hash;
use icecore::units::InodeNumber;
use icecore::{DirectoryEntry, InodeKind};
use std::collections::VecDeque;
use std::sync::Arc;

/// Entries that are fetched from the store at a time.
const BATCH: usize = 256;
/// Cookies of `.` and `..`: those of the store begin at 256.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

/// A tree that appears in the root of another.
struct Inset {
    cookie: u64,
    name: Vec<u8>,
    tree: Arc<Tree>,
}

impl Inner {
    pub(super) fn list(
        &self,
        node: NodeId,
        after: u64,
        with_attributes: bool,
        emit: &mut dyn FnMut(&Listed) -> bool,
    ) -> Outcome<()> {
        self.within(node, |tree, inode| {
            if let Some(other) = self.listed.add(node) {
                self.invalidator.node(other, true);
            }
            if !self.list_dots(tree, inode, after, emit)? {
                return Ok(());
            }
            let mut insets: VecDeque<Inset> = if inode == InodeNumber::ROOT {
                self.insets(tree)?.into_iter().filter(|inset| inset.cookie > after).collect()
            } else {
                VecDeque::new()
            };
            if self.view(tree)?.is_some()
                && !self.list_entries(tree, inode, after.max(DOT_DOT), with_attributes, &mut insets, emit)?
            {
                return Ok(());
            }
            for inset in insets {
                if !self.emit_inset(&inset, with_attributes, emit)? {
                    break;
                }
            }
            Ok(())
        })
    }

    /// What an operation on names of a directory came to. Every such operation passes through here before its
    /// reply: until then the kernel holds the lock of the directory, so no list of it is under way. One that
    /// failed may have changed something.
    pub(super) fn changed<T>(
        &self,
        tree: &Tree,
        directory: InodeNumber,
        outcome: icecore::Result<T>,
    ) -> Outcome<T> {
        self.drop_list(tree, directory);
        self.ok(outcome)
    }

    /// Drops the list of names of a directory, if the kernel keeps one.
    pub(super) fn drop_list(&self, tree: &Tree, directory: InodeNumber) {
        if let Ok(node) = self.trees.node(tree.index, directory)
            && self.listed.remove(node)
        {
            self.invalidator.list(node);
        }
    }

    fn list_dots(
        &self,
        tree: &Tree,
        inode: InodeNumber,
        after: u64,
        emit: &mut dyn FnMut(&Listed) -> bool,
    ) -> Outcome<bool> {
        let own = self.trees.node(tree.index, inode)?;
        let parent = self.parent(tree, inode)?;
        for (cookie, name, node) in [(DOT, &b"."[..], own), (DOT_DOT, b"..", parent)] {
            let kind = InodeKind::Directory;
            let dot = Listed { cookie, node, kind, name: name.to_vec(), entry: None };
            if cookie > after && !emit(&dot) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn parent(&self, tree: &Tree, inode: InodeNumber) -> Outcome<NodeId> {
        if inode == InodeNumber::ROOT {
            let above = tree.seen_as().and_then(|(key, _)| self.trees.find(key));
            return self.trees.node(above.map_or(tree.index, |above| above.index), InodeNumber::ROOT);
        }
        let item = self.ok(self.files(tree)?.attributes(inode))?;
        if item.kind != InodeKind::Directory {
            return Err(Errno(libc::ENOTDIR));
        }
        self.trees.node(tree.index, item.parent)
    }

    /// Answers whether there is room for more.
    fn list_entries(
        &self,
        tree: &Tree,
        inode: InodeNumber,
        mut after: u64,
        with_attributes: bool,
        insets: &mut VecDeque<Inset>,
        emit: &mut dyn FnMut(&Listed) -> bool,
    ) -> Outcome<bool> {
        let view = self.files(tree)?;
        loop {
            let entries: Vec<DirectoryEntry> = self.ok(view.read_directory(inode, after, BATCH))?;
            let Some(last) = entries.last() else { return Ok(true) };
            after = last.cookie;
            for DirectoryEntry { cookie, inode, kind, name } in entries {
                while insets.front().is_some_and(|inset| inset.cookie < cookie) {
                    let Some(inset) = insets.pop_front() else { break };
                    if !self.emit_inset(&inset, with_attributes, emit)? {
                        return Ok(false);
                    }
                }
                // A file of this name is hidden. Its cookie is not above that of the tree, which is still to
                // come.
                if insets.iter().any(|inset| inset.name == name) {
                    continue;
                }
                let entry = if with_attributes { Some(self.entry(tree, &view, inode)?) } else { None };
                let node = self.trees.node(tree.index, inode)?;
                if !emit(&Listed { cookie, node, kind, name, entry }) {
                    return Ok(false);
                }
            }
        }
    }

    /// Answers whether there is room for more. What was destroyed since it was found is left out.
    fn emit_inset(
        &self,
        inset: &Inset,
        with_attributes: bool,
        emit: &mut dyn FnMut(&Listed) -> bool,
    ) -> Outcome<bool> {
        let Inset { cookie, name, tree } = inset;
        let entry: Option<Entry> = match with_attributes.then(|| self.root_entry(tree)).transpose() {
            Err(Errno(libc::ESTALE)) => return Ok(true),
            entry => entry?,
        };
        let node = self.trees.node(tree.index, InodeNumber::ROOT)?;
        Ok(emit(&Listed { cookie: *cookie, node, kind: InodeKind::Directory, name: name.clone(), entry }))
    }

    /// The trees that a listing of the root of a tree shows beside its files, in order of their cookies.
    fn insets(&self, tree: &Tree) -> Outcome<Vec<Inset>> {
        let mut insets = Vec::new();
        if let Some(dataset) = parent_dataset(tree) {
            for (leaf, id) in self.ok(self.pool.children(dataset))? {
                let child = self.child_tree(tree, leaf.as_bytes(), id)?;
                insets.push(Inset { cookie: cookie(leaf.as_bytes()), name: leaf.into_bytes(), tree: child });
            }
        }
        match &tree.place {
            Place::Control(id) => {
                let name = super::SNAPSHOTS_NAME;
                let inner =
                    self.trees.find_or_add(Key::Snapshots(*id), Place::Snapshots(*id), (tree.key, name))?;
                insets.push(Inset { cookie: cookie(name), name: name.to_vec(), tree: inner });
            }
            Place::Snapshots(id) => {
                for (short, version) in self.ok(self.pool.snapshots_of(*id))? {
                    let key = Key::Snapshot(*id, version);
                    let seen_as = (tree.key, short.as_bytes());
                    let snapshot = self.trees.find_or_add(key, Place::Snapshot(version), seen_as)?;
                    insets.push(Inset {
                        cookie: cookie(short.as_bytes()),
                        name: short.into_bytes(),
                        tree: snapshot,
                    });
                }
            }
            _ => {}
        }
        insets.sort_by_key(|inset| inset.cookie);
        Ok(insets)
    }
}

/// Where a tree is in a listing: at the end of the places that the store has for names with this hash, of
/// which only a directory with 256 names of one hash fills the last.
fn cookie(name: &[u8]) -> u64 {
    (name_hash(name) & ((1 << 55) - 1)).max(1) << 8 | 0xff
}
