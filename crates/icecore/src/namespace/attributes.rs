//! Changing attributes.

use super::TreeWriter;
use super::inode::InodeItem;
use crate::error::Result;
use crate::units::{InodeNumber, Timestamp};

/// Which attributes to change, and to what. Sizes are changed by `TreeWriter::set_size`.
#[derive(serde::Serialize, serde::Deserialize, Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AttributeChange {
    /// Permission bits (the lower 12).
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last read.
    pub access: Option<Timestamp>,
    /// Last change of the content.
    pub modify: Option<Timestamp>,
    /// Last change of anything: the time now, or `None` to keep it (when only `access` changes).
    pub change: Option<Timestamp>,
}

impl TreeWriter<'_> {
    /// Changes attributes of an inode; answers all of them. `Stale` if there is no such inode.
    pub fn set_attributes(&mut self, inode: InodeNumber, change: &AttributeChange) -> Result<InodeItem> {
        self.atomically(|writer| {
            writer.update(inode, |item| {
                item.mode = change.mode.map_or(item.mode, |mode| mode & 0o7777);
                item.uid = change.uid.unwrap_or(item.uid);
                item.gid = change.gid.unwrap_or(item.gid);
                item.access = change.access.unwrap_or(item.access);
                item.modify = change.modify.unwrap_or(item.modify);
                item.change = change.change.unwrap_or(item.change);
            })
        })
    }
}
