//! Extended attributes. Access control lists, which would have to be enforced, are refused.

use super::Inner;
use crate::protocol::{Errno, NodeId, Outcome, XattrHow};

impl Inner {
    pub(super) fn xattr(&self, node: NodeId, name: &[u8]) -> Outcome<Vec<u8>> {
        refuse_system(name)?;
        self.within(node, |tree, inode| {
            let view = self.view(tree)?.ok_or(Errno(libc::ENODATA))?;
            self.ok(view.xattr(inode, name))
        })
    }

    pub(super) fn xattrs(&self, node: NodeId) -> Outcome<Vec<u8>> {
        self.within(node, |tree, inode| {
            let Some(view) = self.view(tree)? else { return Ok(Vec::new()) };
            let mut names = self.ok(view.list_xattrs(inode))?;
            names.iter_mut().for_each(|name| name.push(0));
            Ok(names.concat())
        })
    }

    pub(super) fn set_xattr(&self, node: NodeId, name: &[u8], value: &[u8], how: XattrHow) -> Outcome<()> {
        refuse_system(name)?;
        self.within(node, |tree, inode| {
            let dataset = self.writable(tree)?;
            self.ok(dataset.set_xattr(inode, name, value, how))
        })
    }

    pub(super) fn remove_xattr(&self, node: NodeId, name: &[u8]) -> Outcome<()> {
        refuse_system(name)?;
        self.within(node, |tree, inode| {
            let dataset = self.writable(tree)?;
            self.ok(dataset.remove_xattr(inode, name))
        })
    }
}

/// Names that begin with `system.` stand for something that the system does, such as access control lists.
fn refuse_system(name: &[u8]) -> Outcome<()> {
    if name.starts_with(b"system.") { Err(Errno(libc::EOPNOTSUPP)) } else { Ok(()) }
}
