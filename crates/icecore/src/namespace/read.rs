//! Reading a namespace: the same for a version, and for a head in the middle of an operation.

use super::TreeWriter;
use super::directory::{self, DirectoryEntry, NameHash, name_hash};
use super::inode::{self, InodeItem, SuperItem};
use super::{create, file, orphan, xattr};
use crate::error::Result;
use crate::tree::{Item, ItemKind, ItemRef, Key, NodeSource, Tree};
use crate::units::{FileBlock, InodeNumber, Run};

/// Reads a namespace. The first four methods are what an implementation provides.
pub trait Read {
    /// Looks at the item at a key where it lies.
    fn look(&self, key: Key, look: &mut dyn FnMut(Option<ItemRef<'_>>)) -> Result<()>;

    /// Visits items from `from` up to, not including, `to`, ascending, as long as `visit` answers true.
    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, Item) -> Result<bool>) -> Result<()>;

    /// The extent of a file with the greatest first block that is not above `block`: that block, and its run.
    fn extent_at_or_before(&self, inode: InodeNumber, block: FileBlock) -> Result<Option<(FileBlock, Run)>>;

    /// How names are hashed.
    fn name_hash(&self) -> NameHash;

    /// A copy of the item at a key.
    fn item(&self, key: Key) -> Result<Option<Item>> {
        let mut found = None;
        self.look(key, &mut |item| found = item.map(ItemRef::to_item))?;
        Ok(found)
    }

    /// Counters of the dataset. `Damaged` if it has none.
    fn super_item(&self) -> Result<SuperItem> {
        inode::read_super(self)
    }

    /// Attributes of an inode. `FileFault::Stale` if there is none of this number.
    fn inode(&self, inode: InodeNumber) -> Result<InodeItem> {
        inode::read(self, inode)
    }

    /// Attributes of a directory. `FileFault::NotADirectory` if it is something else.
    fn directory(&self, inode: InodeNumber) -> Result<InodeItem> {
        inode::read_directory(self, inode)
    }

    /// The entry with this name. `FileFault::NotFound` if there is none.
    fn lookup(&self, directory: InodeNumber, name: &[u8]) -> Result<DirectoryEntry> {
        directory::lookup(self, directory, name)
    }

    /// Visits the entries of a directory whose cookies are above `after` (0 for all), ascending by cookie,
    /// as long as `visit` answers true. Cookies stay what they are as long as the entry exists.
    fn entries(
        &self,
        directory: InodeNumber,
        after: u64,
        visit: &mut dyn FnMut(DirectoryEntry) -> Result<bool>,
    ) -> Result<()> {
        directory::entries(self, directory, after, visit)
    }

    /// The target of a symbolic link. `FileFault::Invalid` if it is something else.
    fn link_target(&self, inode: InodeNumber) -> Result<Vec<u8>> {
        create::link_target(self, inode)
    }

    /// The value of an extended attribute. `FileFault::NoSuchAttribute` if there is none of this name.
    fn xattr(&self, inode: InodeNumber, name: &[u8]) -> Result<Vec<u8>> {
        xattr::get(self, inode, name)
    }

    /// Names of the extended attributes, in no particular order.
    fn xattr_names(&self, inode: InodeNumber) -> Result<Vec<Vec<u8>>> {
        xattr::names(self, inode)
    }

    /// The run that holds a block of a file and what follows it; `None` for a hole. The fast way for one.
    fn run_at(&self, inode: InodeNumber, block: FileBlock) -> Result<Option<Run>> {
        file::run_at(self, inode, block)
    }

    /// Visits the extents of a file between two blocks, clipped to them, ascending, as long as `visit`
    /// answers true. What is not visited is a hole.
    fn extents(
        &self,
        inode: InodeNumber,
        first: FileBlock,
        end: FileBlock,
        visit: &mut dyn FnMut(FileBlock, Run) -> Result<bool>,
    ) -> Result<()> {
        file::extents(self, inode, first, end, visit)
    }

    /// Visits the inodes that have no name left and are still to be released, ascending.
    fn orphans(&self, visit: &mut dyn FnMut(InodeNumber) -> Result<bool>) -> Result<()> {
        orphan::orphans(self, visit)
    }
}

/// Reads a version.
#[derive(Clone, Copy)]
pub struct TreeReader<'a> {
    tree: &'a Tree,
    source: &'a dyn NodeSource,
    pub(super) name_hash: NameHash,
}

impl<'a> TreeReader<'a> {
    /// A reader of the version that `tree` is.
    pub fn new(tree: &'a Tree, source: &'a dyn NodeSource) -> Self {
        Self { tree, source, name_hash }
    }
}

impl Read for TreeReader<'_> {
    fn look(&self, key: Key, look: &mut dyn FnMut(Option<ItemRef<'_>>)) -> Result<()> {
        self.tree.view(self.source, key, look)
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, Item) -> Result<bool>) -> Result<()> {
        for entry in self.tree.range(self.source, from, to) {
            let (key, item) = entry?;
            if !visit(key, item)? {
                break;
            }
        }
        Ok(())
    }

    fn extent_at_or_before(&self, inode: InodeNumber, block: FileBlock) -> Result<Option<(FileBlock, Run)>> {
        file::extent_at_or_before(self.tree, self.source, inode, block)
    }

    fn name_hash(&self) -> NameHash {
        self.name_hash
    }
}

impl TreeWriter<'_> {
    /// The staged extent with the greatest first block that is not above `block`; without a run if it goes.
    fn staged_extent_at_or_before(
        &self,
        inode: InodeNumber,
        block: FileBlock,
    ) -> Option<(FileBlock, Option<Run>)> {
        let limit = Key::new(inode, ItemKind::Extent, block.0);
        let after = self.staged.partition_point(|(key, _)| *key <= limit);
        let (key, item) = self.staged[..after].last()?;
        let is_extent = key.inode() == inode && key.kind() == Some(ItemKind::Extent);
        let run = item.as_ref().and_then(|item| item.extent()).map(|extent| extent.run);
        is_extent.then_some((FileBlock(key.offset()), run))
    }
}

impl Read for TreeWriter<'_> {
    fn look(&self, key: Key, look: &mut dyn FnMut(Option<ItemRef<'_>>)) -> Result<()> {
        match self.staged.binary_search_by_key(&key, |(staged, _)| *staged) {
            Ok(index) => look(self.staged[index].1.as_ref().map(Item::as_ref)),
            Err(_) => self.tree.view(self.source, key, look)?,
        }
        Ok(())
    }

    fn scan(&self, from: Key, to: Key, visit: &mut dyn FnMut(Key, Item) -> Result<bool>) -> Result<()> {
        let first = self.staged.partition_point(|(key, _)| *key < from);
        let end = self.staged.partition_point(|(key, _)| *key < to).max(first);
        let mut staged = self.staged[first..end].iter().peekable();
        let mut stored = self.tree.range(self.source, from, to);
        let mut next = stored.next().transpose()?;
        loop {
            let (key, item) = match (&next, staged.peek()) {
                (None, None) => return Ok(()),
                (Some((key, _)), overlay) if overlay.is_none_or(|(overlay, _)| key < overlay) => {
                    let (key, item) = next.take().expect("it was just seen");
                    next = stored.next().transpose()?;
                    (key, Some(item))
                }
                (_, Some(_)) => {
                    let (key, item) = staged.next().expect("it was just seen");
                    if next.as_ref().is_some_and(|(stored, _)| stored == key) {
                        next = stored.next().transpose()?;
                    }
                    (*key, item.clone())
                }
                (Some(_), None) => unreachable!("the second arm has it"),
            };
            if let Some(item) = item
                && !visit(key, item)?
            {
                return Ok(());
            }
        }
    }

    fn extent_at_or_before(&self, inode: InodeNumber, block: FileBlock) -> Result<Option<(FileBlock, Run)>> {
        let mut block = block;
        loop {
            let stored = file::extent_at_or_before(self.tree, self.source, inode, block)?;
            let Some((staged, item)) = self.staged_extent_at_or_before(inode, block) else {
                return Ok(stored);
            };
            if let Some(found) = stored.filter(|(start, _)| *start > staged) {
                return Ok(Some(found));
            }
            match (item, staged.0.checked_sub(1)) {
                (Some(run), _) => return Ok(Some((staged, run))),
                (None, Some(before)) => block = FileBlock(before),
                (None, None) => return Ok(None),
            }
        }
    }

    fn name_hash(&self) -> NameHash {
        self.name_hash
    }
}
