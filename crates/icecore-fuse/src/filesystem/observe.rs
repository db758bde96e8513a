//! What changes beside the mount: rollbacks, imports, datasets and snapshots that come and go.

use super::Inner;
use crate::trees::{Key, Place, Tree};
use icecore::units::{DatasetId, InodeNumber, Timestamp, VersionId};
use icecore::{Obstacle, PoolChange, PoolObserver, View};
use std::collections::HashMap;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Names that are fetched at a time.
const BATCH: usize = 1024;

/// How long an open file is waited for. The kernel lets close(2) return before it says that the file is
/// closed, and a process that another thread has just forked keeps it open until it runs its program.
const CLOSING: Duration = Duration::from_secs(1);

/// Between two looks at what is open.
const LOOK: Duration = Duration::from_millis(10);

/// The eye of a mount on its pool.
pub(super) struct Watch(pub Weak<Inner>);

impl PoolObserver for Watch {
    fn changed(&self, change: &PoolChange) {
        let Some(inner) = self.0.upgrade() else { return };
        if matches!(change, PoolChange::Datasets | PoolChange::Snapshots) {
            // A list of names may be on its way to the kernel while others are dropped: by this time the
            // kernel sees that it is stale.
            inner.folders_changed.store(Timestamp::now().0, Ordering::Release);
        }
        match change {
            PoolChange::Datasets => inner.review_datasets(),
            PoolChange::Snapshots => inner.review_snapshots(),
            PoolChange::Name { dataset, directory, name } => inner.forget_name(*dataset, *directory, name),
            PoolChange::Content { dataset, inode } => inner.forget_inode(*dataset, *inode),
        }
        inner.invalidator.wait();
    }

    fn roll_back(&self, dataset: DatasetId, act: &mut dyn FnMut() -> bool) {
        match self.0.upgrade() {
            Some(inner) => inner.roll_back(dataset, act),
            None => {
                act();
            }
        }
    }

    fn users(&self, dataset: DatasetId, obstacle: Obstacle) -> Vec<String> {
        self.0.upgrade().map(|inner| inner.users(dataset, obstacle)).unwrap_or_default()
    }

    fn readers(&self, dataset: DatasetId, snapshot: VersionId) -> Vec<String> {
        let Some(inner) = self.0.upgrade() else { return Vec::new() };
        let tree = inner.trees.find(Key::Snapshot(dataset, snapshot));
        tree.map(|tree| inner.open_in_tree(&tree, Obstacle::ToDestroy)).unwrap_or_default()
    }
}

impl Inner {
    /// The dataset gets another index, and what the kernel keeps of the former state is dropped.
    fn roll_back(&self, dataset: DatasetId, act: &mut dyn FnMut() -> bool) {
        let Some(tree) = self.trees.find(Key::Head(dataset)) else {
            act();
            return;
        };
        let gate = tree.gate.write();
        let former = tree.head().and_then(|head| head.view().ok());
        if !act() {
            return;
        }
        self.trees.retire(&tree);
        drop(gate);
        self.forget_lists(&tree);
        for handle in self.handles.all().iter().filter(|handle| handle.tree.index == tree.index) {
            self.forget_node(&tree, handle.inode);
        }
        self.forget_root(&tree, former.as_ref());
        self.invalidator.wait();
    }

    /// Drops all that the kernel reached through the root of a tree.
    fn forget_root(&self, tree: &Tree, former: Option<&View>) {
        if let Some((above, name)) = tree.seen_as() {
            if let Some(above) = self.trees.find(above) {
                self.forget_entry(&above, &name);
            }
            return;
        }
        // The root of the mount has no name that could be dropped: every name in it goes.
        let mut after = 0;
        while let Some(former) = former
            && let Ok(entries) = former.read_directory(InodeNumber::ROOT, after, BATCH)
            && let Some(last) = entries.last()
        {
            after = last.cookie;
            entries
                .iter()
                .for_each(|entry| self.invalidator.entry(crate::protocol::NodeId::ROOT, &entry.name));
        }
        self.invalidator.node(crate::protocol::NodeId::ROOT, true);
    }

    /// Drops the lists of all directories of a tree that is stale: who has one of them open gets ESTALE, not
    /// names of the past.
    fn forget_lists(&self, tree: &Tree) {
        self.listed.remove_tree(tree).into_iter().for_each(|node| self.invalidator.node(node, true));
    }

    fn forget_node(&self, tree: &Tree, inode: InodeNumber) {
        if let Ok(node) = self.trees.node(tree.index, inode) {
            self.invalidator.node(node, true);
        }
    }

    /// Drops a name in the root of a tree.
    fn forget_entry(&self, tree: &Tree, name: &[u8]) {
        if let Ok(root) = self.trees.node(tree.index, InodeNumber::ROOT) {
            self.invalidator.entry(root, name);
            self.invalidator.node(root, true);
        }
    }

    fn forget_name(&self, dataset: DatasetId, directory: InodeNumber, name: &[u8]) {
        if let Some(tree) = self.trees.find(Key::Head(dataset))
            && let Ok(node) = self.trees.node(tree.index, directory)
        {
            self.invalidator.entry(node, name);
            self.invalidator.node(node, true);
        }
    }

    fn forget_inode(&self, dataset: DatasetId, inode: InodeNumber) {
        if let Some(tree) = self.trees.find(Key::Head(dataset)) {
            self.forget_node(&tree, inode);
        }
    }

    /// Some datasets may be gone, or have other names.
    fn review_datasets(&self) {
        for tree in self.trees.present() {
            if let Some(dataset) = tree.head() {
                let name = dataset.name().ok();
                let leaf = name.as_deref().map(|name| name.rsplit('/').next().unwrap_or(name).as_bytes());
                if let Some((above, seen)) = tree.seen_as()
                    && (leaf != Some(&seen) || !self.is_child(above, dataset.id(), &seen))
                    && let Some(above) = self.trees.find(above)
                {
                    self.forget_entry(&above, &seen);
                }
                if name.is_none() {
                    self.bury(&tree);
                    continue;
                }
            }
            if matches!(tree.place, Place::Head(_) | Place::Pool) {
                self.forget_node(&tree, InodeNumber::ROOT);
                self.forget_hidden(&tree);
            }
        }
        self.review_snapshots();
    }

    /// Files that a dataset of their name hides from now on are not to be found any more.
    fn forget_hidden(&self, tree: &Tree) {
        let Some(dataset) = tree.head() else { return };
        for (leaf, id) in self.pool.children(Some(dataset.id())).unwrap_or_default() {
            let seen_as = self.trees.find(Key::Head(id)).and_then(|child| child.seen_as());
            if seen_as.is_none_or(|(above, name)| above != tree.key || name != leaf.as_bytes()) {
                self.forget_entry(tree, leaf.as_bytes());
            }
        }
    }

    fn is_child(&self, above: Key, dataset: DatasetId, leaf: &[u8]) -> bool {
        let above = match above {
            Key::Head(id) => Some(id),
            _ => None,
        };
        let leaf = std::str::from_utf8(leaf).unwrap_or_default();
        matches!(self.pool.child(above, leaf), Ok(Some(found)) if found == dataset)
    }

    /// Some snapshots may be gone, or have other names.
    fn review_snapshots(&self) {
        let mut known: HashMap<DatasetId, HashMap<VersionId, String>> = HashMap::new();
        for tree in self.trees.present() {
            match tree.key {
                Key::Snapshot(dataset, version) => {
                    let names = known.entry(dataset).or_insert_with(|| {
                        let all = self.pool.snapshots_of(dataset).unwrap_or_default();
                        all.into_iter().map(|(name, version)| (version, name)).collect()
                    });
                    let name = names.get(&version);
                    if let Some((above, seen)) = tree.seen_as()
                        && name.map(String::as_bytes) != Some(&seen)
                        && let Some(above) = self.trees.find(above)
                    {
                        self.forget_entry(&above, &seen);
                    }
                    if name.is_none() {
                        self.bury(&tree);
                    }
                }
                Key::Snapshots(_) => self.forget_node(&tree, InodeNumber::ROOT),
                _ => {}
            }
        }
    }

    /// What a tree showed is gone.
    fn bury(&self, tree: &Tree) {
        let gate = tree.gate.write();
        self.trees.bury(tree);
        drop(gate);
        self.forget_lists(tree);
    }

    /// What is open in a dataset and in the way.
    fn users(&self, dataset: DatasetId, obstacle: Obstacle) -> Vec<String> {
        let tree = self.trees.find(Key::Head(dataset));
        tree.map(|tree| self.open_in_tree(&tree, obstacle)).unwrap_or_default()
    }

    fn open_inodes(&self, tree: &Tree, obstacle: Obstacle) -> Vec<InodeNumber> {
        let counts = |writes: bool| writes || obstacle == Obstacle::ToDestroy;
        let handles = self.handles.all();
        let open = handles.iter().filter(|handle| handle.tree.index == tree.index && counts(handle.writes));
        let mut inodes: Vec<InodeNumber> = open.map(|handle| handle.inode).collect();
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    /// What is open in a tree and in the way: files by their paths, or the mount itself.
    fn open_in_tree(&self, tree: &Tree, obstacle: Obstacle) -> Vec<String> {
        let begin = Instant::now();
        let mut inodes = self.open_inodes(tree, obstacle);
        while !inodes.is_empty() && begin.elapsed() < CLOSING {
            std::thread::sleep(LOOK);
            inodes = self.open_inodes(tree, obstacle);
        }
        let below = String::from_utf8_lossy(&self.trees.path(tree)).into_owned();
        let root =
            if below.is_empty() { self.mount_point.clone() } else { format!("{}/{below}", self.mount_point) };
        if inodes.is_empty() {
            let is_root = obstacle == Obstacle::ToDestroy && tree.seen_as().is_none();
            return if is_root { vec![format!("its mount on {root}")] } else { Vec::new() };
        }
        let view = self.view(tree).ok().flatten();
        let paths = view.and_then(|view| view.paths_of(&inodes).ok()).unwrap_or_default();
        let name = |inode: &InodeNumber| match paths.get(inode) {
            Some(path) => format!("{root}/{}", String::from_utf8_lossy(path)),
            None => format!("a file without a name in {root} (inode {inode})"),
        };
        inodes.iter().map(name).collect()
    }
}
