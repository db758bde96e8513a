//! Orphans: inodes without a name, that a caller may still have open. They survive a crash, and are released
//! in steps that hold up no other operation.

use super::TreeWriter;
use super::inode::{damaged, inode_end, inode_key, valid};
use super::read::Read;
use crate::error::{Error, Result};
use crate::tree::{Item, ItemKind, Key};
use crate::units::InodeNumber;

/// How far the release of an orphan has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Release {
    /// Call again.
    Unfinished,
    /// The inode is gone.
    Done,
}

pub(super) const fn orphan_key(inode: InodeNumber) -> Key {
    Key::new(InodeNumber(0), ItemKind::Orphan, inode.0)
}

pub(super) fn orphans(
    items: &(impl Read + ?Sized),
    visit: &mut dyn FnMut(InodeNumber) -> Result<bool>,
) -> Result<()> {
    let end = Key::new(InodeNumber(0), ItemKind::Super, 0);
    items.scan(orphan_key(InodeNumber(0)), end, &mut |key, _| visit(valid(InodeNumber(key.offset()))?))
}

impl TreeWriter<'_> {
    /// Frees up to `limit` items (at least one) of an orphan that no caller has open; at last the inode
    /// itself. Each call is all or nothing. `Stale` if there is no such inode, `Invalid` if it is no orphan.
    pub fn release_orphan(&mut self, inode: InodeNumber, limit: usize) -> Result<Release> {
        self.atomically(|writer| writer.stage_release(valid(inode)?, limit.max(1)))
    }

    fn stage_release(&mut self, inode: InodeNumber, limit: usize) -> Result<Release> {
        let mut item = self.inode(inode)?;
        if self.item(orphan_key(inode))?.is_none() {
            return Err(Error::Invalid(format!("inode {inode} is not an orphan")));
        }
        let mut found = Vec::with_capacity(limit.min(1024));
        self.scan(inode_key(inode).next(), inode_end(inode), &mut |key, item| {
            found.push((key, item));
            Ok(found.len() <= limit)
        })?;
        let unfinished = found.len() > limit;
        for (key, content) in found.into_iter().take(limit) {
            self.stage(key, None);
            match content {
                Item::Extent(extent) => {
                    let left = item.blocks.checked_sub(extent.run.length.0);
                    item.blocks = left.ok_or_else(|| damaged(inode, "it has more blocks than it says"))?;
                    self.dropped.push(extent.run);
                }
                // What is left of a link is as long as it says.
                Item::Bytes(bytes) if key.kind() == Some(ItemKind::Symlink) => {
                    item.size = item.size.saturating_sub(bytes.len() as u64);
                }
                Item::Bytes(_) => {}
            }
        }
        if unfinished {
            self.stage_inode(inode, &item);
            return Ok(Release::Unfinished);
        }
        self.stage(inode_key(inode), None);
        self.stage(orphan_key(inode), None);
        let mut counters = self.super_item()?;
        counters.inodes = counters.inodes.saturating_sub(1);
        self.stage_super(counters);
        Ok(Release::Done)
    }
}
