//! Attributes: reading and changing them, and room.

use super::{Inner, LIFETIME};
use crate::protocol::{Attributes, Caller, Changes, Errno, NewTime, NodeId, Outcome, Space};
use crate::trees::{Place, Tree};
use icecore::units::{BLOCK_BYTES, INODE_NUMBER_LIMIT, InodeNumber, Timestamp};
use icecore::{AttributeChange, Dataset, InodeItem, InodeKind};
use std::time::Duration;

const SET_USER: u16 = 0o4000;
const SET_GROUP: u16 = 0o2000;
const GROUP_EXECUTES: u16 = 0o010;

impl Inner {
    pub(super) fn attributes(&self, node: NodeId) -> Outcome<(Attributes, Duration)> {
        self.within(node, |tree, inode| self.attributes_in(tree, inode))
    }

    fn attributes_in(&self, tree: &Tree, inode: InodeNumber) -> Outcome<(Attributes, Duration)> {
        let attributes = match self.view(tree)? {
            Some(view) => {
                let item = self.ok(view.attributes(inode))?;
                self.attributes_of(tree, inode, &item)?
            }
            None => self.folder(tree)?,
        };
        Ok((attributes, LIFETIME))
    }

    pub(super) fn change(
        &self,
        caller: Caller,
        node: NodeId,
        changes: &Changes,
    ) -> Outcome<(Attributes, Duration)> {
        self.within(node, |tree, inode| {
            let dataset = self.writable(tree)?;
            if let Some(size) = changes.size {
                self.ok(dataset.truncate(inode, size))?;
                self.kill_privileges_of(caller, dataset, inode)?;
            }
            let now = Timestamp::now();
            let at = |time: NewTime| match time {
                NewTime::Now => now,
                NewTime::At(time) => time,
            };
            let change = AttributeChange {
                mode: changes.mode,
                uid: changes.uid,
                gid: changes.gid,
                access: changes.access.map(at),
                modify: changes.modify.map(at),
                change: None,
            };
            if change != AttributeChange::default() {
                let mode = change.mode.map_or_else(
                    || self.mode_after_change_of_owner(dataset, inode, &change),
                    |mode| Ok(Some(mode)),
                )?;
                let change = AttributeChange { mode, change: Some(now), ..change };
                self.ok(dataset.set_attributes(inode, &change))?;
            }
            self.attributes_in(tree, inode)
        })
    }

    /// A new owner does not inherit the right to lend their identity: chown(2) takes the set-id bits from
    /// what is executed.
    fn mode_after_change_of_owner(
        &self,
        dataset: &Dataset,
        inode: InodeNumber,
        change: &AttributeChange,
    ) -> Outcome<Option<u16>> {
        if change.uid.is_none() && change.gid.is_none() {
            return Ok(None);
        }
        let item = self.ok(dataset.view().and_then(|view| view.attributes(inode)))?;
        let is_directory = item.kind == InodeKind::Directory;
        Ok(without_privileges(&item).filter(|_| !is_directory))
    }

    /// As [`Inner::kill_privileges`], for a caller of whom no more is known than who it is: the superuser
    /// keeps them.
    pub(super) fn kill_privileges_of(
        &self,
        caller: Caller,
        dataset: &Dataset,
        inode: InodeNumber,
    ) -> Outcome<bool> {
        if caller.uid == 0 { Ok(false) } else { self.kill_privileges(dataset, inode) }
    }

    /// Takes the set-user bit away, and the set-group bit if the group may execute the file, as a change of
    /// its content does. Whether there was any.
    pub(super) fn kill_privileges(&self, dataset: &Dataset, inode: InodeNumber) -> Outcome<bool> {
        let item = self.ok(dataset.view().and_then(|view| view.attributes(inode)))?;
        let Some(mode) = without_privileges(&item) else { return Ok(false) };
        let change = AttributeChange {
            mode: Some(mode),
            change: Some(Timestamp::now()),
            ..AttributeChange::default()
        };
        self.ok(dataset.set_attributes(inode, &change))?;
        Ok(true)
    }

    pub(super) fn space(&self, node: NodeId) -> Outcome<Space> {
        self.within(node, |tree, _| {
            let dataset = match &tree.place {
                Place::Pool => None,
                Place::Head(dataset) => Some(dataset.id()),
                Place::Control(id) | Place::Snapshots(id) => Some(*id),
                Place::Snapshot(_) => match tree.key {
                    crate::trees::Key::Snapshot(id, _) => Some(id),
                    _ => None,
                },
            };
            let room = self.ok(self.pool.room(dataset))?;
            let block = BLOCK_BYTES as u64;
            let available = if tree.head().is_some() { room.available.0 } else { 0 };
            let free = if matches!(tree.place, Place::Pool) { room.available.0 } else { available } / block;
            Ok(Space {
                blocks: room.used.0 / block + free,
                free,
                files: INODE_NUMBER_LIMIT,
                files_free: INODE_NUMBER_LIMIT - 1,
            })
        })
    }

    pub(super) fn read_link(&self, node: NodeId) -> Outcome<Vec<u8>> {
        self.within(node, |tree, inode| {
            let view = self.view(tree)?.ok_or(Errno(libc::EINVAL))?;
            self.ok(view.read_link(inode))
        })
    }
}

/// The mode without set-id bits, if that is another one.
fn without_privileges(item: &InodeItem) -> Option<u16> {
    let mut mode = item.mode & !SET_USER;
    if item.mode & GROUP_EXECUTES != 0 {
        mode &= !SET_GROUP;
    }
    Some(mode).filter(|mode| *mode != item.mode)
}
