//! A file system whose folders are datasets: answers requests from the store.
//!
//! Every request that works on a tree holds its gate. A rollback holds the gate alone, so that no request
//! works half on the former state of a dataset and half on the present one.

mod attributes;
mod data;
mod list;
mod names;
mod observe;
mod requests;
mod xattrs;

use crate::errno::Faults;
use crate::handles::Handles;
use crate::invalidate::{Invalidator, KernelCache};
use crate::lingering::Lingering;
use crate::listed::ListedDirectories;
use crate::protocol::{Attributes, Entry, Errno, NodeId, Outcome};
use crate::sync::Syncer;
use crate::trees::{Key, Place, Tree, Trees};
use icecore::names::VersionName;
use icecore::units::{DatasetId, InodeNumber, Timestamp};
use icecore::{AttributeChange, Dataset, InodeItem, InodeKind, Pool, PoolObserver, View};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

/// How long the kernel may keep entries and attributes: whatever changes them is either a request of its own,
/// or makes it forget.
const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
/// The folder in the root of each dataset that leads to its snapshots.
pub const CONTROL_NAME: &[u8] = icecore::names::SNAPSHOT_FOLDER.as_bytes();
/// The folder in it that has the snapshots.
pub const SNAPSHOTS_NAME: &[u8] = b"snapshots";

/// The file system of one mount. Cheap to clone.
#[derive(Clone)]
pub struct StoreFileSystem {
    inner: Arc<Inner>,
    /// Keeps the registration with the pool alive.
    _observer: Arc<dyn PoolObserver>,
}

pub(crate) struct Inner {
    pub(crate) pool: Pool,
    pub(crate) trees: Trees,
    pub(crate) handles: Handles,
    pub(crate) invalidator: Invalidator,
    lingering: Lingering,
    listed: ListedDirectories,
    /// What messages call the mount.
    mount_point: String,
    faults: Faults,
    syncer: Syncer,
    read_only: bool,
    pub(crate) has_xattrs: bool,
    /// Times of the folders that are in no dataset: made, and changed last.
    began: Timestamp,
    folders_changed: AtomicI64,
}

impl StoreFileSystem {
    /// Shows `version`: a dataset, a snapshot (`dataset@snapshot`), or with `None` all datasets of the pool.
    /// Without `has_xattrs` the kernel does not ask for extended attributes any more, as it does before
    /// writes.
    ///
    /// # Errors
    /// [`icecore::Error::NotFound`], [`icecore::Error::BadName`].
    pub fn new(
        pool: Pool,
        version: Option<&str>,
        mount_point: &str,
        read_only: bool,
        has_xattrs: bool,
    ) -> icecore::Result<Self> {
        let (key, place) = match version.map(VersionName::parse).transpose()? {
            None => (Key::Pool, Place::Pool),
            Some(VersionName::Head(name)) => {
                let dataset = pool.dataset(name.as_str())?;
                (Key::Head(dataset.id()), Place::Head(dataset))
            }
            Some(VersionName::Snapshot(name)) => {
                let dataset = pool.dataset(name.dataset_str())?;
                let missing = || icecore::Error::NotFound { what: format!("snapshot {name}") };
                let version = pool.snapshot_of(dataset.id(), name.short())?.ok_or_else(missing)?;
                (Key::Snapshot(dataset.id(), version), Place::Snapshot(version))
            }
        };
        let began = Timestamp::now();
        let inner = Arc::new(Inner {
            trees: Trees::new(key, place),
            handles: Handles::default(),
            invalidator: Invalidator::new(),
            lingering: Lingering::new(),
            listed: ListedDirectories::default(),
            mount_point: mount_point.to_owned(),
            faults: Faults::default(),
            syncer: Syncer::default(),
            read_only,
            has_xattrs,
            began,
            folders_changed: AtomicI64::new(began.0),
            pool,
        });
        if let Some(dataset) = inner.trees.root().head() {
            inner.adopt(dataset);
        }
        let observer: Arc<dyn PoolObserver> = Arc::new(observe::Watch(Arc::downgrade(&inner)));
        inner.pool.observe(&observer);
        Ok(Self { inner, _observer: observer })
    }

    /// From now on, what changes behind the back of `cache` is dropped from it.
    pub fn attach(&self, cache: Box<dyn KernelCache>) {
        self.inner.invalidator.attach(cache);
    }

    /// The mount is gone: files that it had open are closed.
    pub fn detach(&self) {
        self.inner.invalidator.stop();
        self.inner.handles.clear();
        self.inner.lingering.stop();
    }
}

impl Inner {
    /// The result of the store, as a program gets it.
    fn ok<T>(&self, outcome: icecore::Result<T>) -> Outcome<T> {
        outcome.map_err(|error| self.faults.number(&error, || self.pool.failure()))
    }

    /// Works on the tree of a node while nothing makes it stale.
    fn within<T>(&self, node: NodeId, work: impl FnOnce(&Tree, InodeNumber) -> Outcome<T>) -> Outcome<T> {
        loop {
            let (tree, inode) = self.trees.resolve(node)?;
            let _gate = tree.gate.read();
            match tree.check() {
                // The root of the mount is always the present: it was rolled back since it was looked up.
                Err(_) if node == NodeId::ROOT && self.trees.root().index != tree.index => continue,
                Err(error) => return Err(error),
                Ok(()) => return work(&tree, inode),
            }
        }
    }

    /// The dataset of a tree that can be changed.
    fn writable<'a>(&self, tree: &'a Tree) -> Outcome<&'a Dataset> {
        match tree.head() {
            Some(dataset) if !self.read_only => Ok(dataset),
            _ => Err(Errno(libc::EROFS)),
        }
    }

    /// A view of what the tree shows now; `None` for folders that are in no dataset.
    fn view(&self, tree: &Tree) -> Outcome<Option<View>> {
        match &tree.place {
            Place::Head(dataset) => self.ok(dataset.view()).map(Some),
            Place::Snapshot(version) => self.ok(self.pool.snapshot_view(*version)).map(Some),
            Place::Pool | Place::Control(_) | Place::Snapshots(_) => Ok(None),
        }
    }

    /// As [`Inner::view`], where there are files.
    fn files(&self, tree: &Tree) -> Outcome<View> {
        self.view(tree)?.ok_or(Errno(libc::EPERM))
    }

    fn attributes_of(&self, tree: &Tree, inode: InodeNumber, item: &InodeItem) -> Outcome<Attributes> {
        Ok(Attributes {
            node: self.trees.node(tree.index, inode)?,
            kind: item.kind,
            mode: item.mode,
            uid: item.uid,
            gid: item.gid,
            links: item.links,
            rdev: item.rdev as u32,
            size: item.size,
            sectors: item.blocks * 8,
            access: item.access,
            modify: item.modify,
            change: item.change,
            birth: item.birth,
        })
    }

    fn entry(&self, tree: &Tree, view: &View, inode: InodeNumber) -> Outcome<Entry> {
        self.entry_of(tree, inode, &self.ok(view.attributes(inode))?)
    }

    fn entry_of(&self, tree: &Tree, inode: InodeNumber, item: &InodeItem) -> Outcome<Entry> {
        let attributes = self.attributes_of(tree, inode, item)?;
        Ok(Entry { attributes, generation: item.generation, lifetime: LIFETIME })
    }

    /// The root of a tree.
    fn root_entry(&self, tree: &Tree) -> Outcome<Entry> {
        match self.view(tree)? {
            Some(view) => self.entry(tree, &view, InodeNumber::ROOT),
            None => Ok(Entry { attributes: self.folder(tree)?, generation: 0, lifetime: LIFETIME }),
        }
    }

    /// Attributes of a folder that is in no dataset.
    fn folder(&self, tree: &Tree) -> Outcome<Attributes> {
        let changed = Timestamp(self.folders_changed.load(Ordering::Acquire));
        Ok(Attributes {
            node: self.trees.node(tree.index, InodeNumber::ROOT)?,
            kind: InodeKind::Directory,
            mode: 0o555,
            uid: 0,
            gid: 0,
            links: 2,
            rdev: 0,
            size: 0,
            sectors: 0,
            access: changed,
            modify: changed,
            change: changed,
            birth: self.began,
        })
    }

    /// The root of a new dataset belongs to the superuser. A mount of another user makes it that user's, who
    /// could never write into it otherwise.
    fn adopt(&self, dataset: &Dataset) {
        let user = rustix::process::geteuid();
        let is_unowned = |view: View| Ok(view.attributes(InodeNumber::ROOT)?.uid == 0);
        if self.read_only || user.is_root() || !dataset.view().and_then(is_unowned).unwrap_or(false) {
            return;
        }
        let change = AttributeChange {
            uid: Some(user.as_raw()),
            gid: Some(rustix::process::getegid().as_raw()),
            change: Some(Timestamp::now()),
            ..AttributeChange::default()
        };
        if let Err(error) = dataset.set_attributes(InodeNumber::ROOT, &change) {
            crate::log(&format!("the root of a dataset stays the superuser's: {error}"));
        }
    }

    /// The tree of a dataset right below the one of `above`.
    fn child(&self, above: &Tree, leaf: &[u8]) -> Outcome<Option<Arc<Tree>>> {
        let (Ok(name), Some(dataset)) = (std::str::from_utf8(leaf), parent_dataset(above)) else {
            return Ok(None);
        };
        if name.contains(['/', '@']) {
            return Ok(None);
        }
        let Some(id) = self.ok(self.pool.child(dataset, name))? else { return Ok(None) };
        self.child_tree(above, leaf, id).map(Some)
    }

    fn child_tree(&self, above: &Tree, leaf: &[u8], id: DatasetId) -> Outcome<Arc<Tree>> {
        if let Some(tree) = self.trees.find(Key::Head(id)) {
            tree.appear(above.key, leaf);
            return Ok(tree);
        }
        let dataset = self.ok(self.pool.dataset_by_id(id))?;
        self.adopt(&dataset);
        self.trees.find_or_add(Key::Head(id), Place::Head(dataset), (above.key, leaf))
    }
}

/// Below which dataset the children of a tree are: `Some(None)` at the top of the pool, `None` where there
/// are none.
fn parent_dataset(tree: &Tree) -> Option<Option<DatasetId>> {
    match &tree.place {
        Place::Pool => Some(None),
        Place::Head(dataset) => Some(Some(dataset.id())),
        _ => None,
    }
}
