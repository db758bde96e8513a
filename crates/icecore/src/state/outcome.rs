//! What an operation changed, found out while it changed it: a later lookup by name may find something else.

use crate::namespace::{InodeItem, Made, Release, RenameOutcome, Unlinked};
use crate::units::{InodeNumber, VersionId};

/// An inode of a head. A rollback makes another head, in which the number may be that of another file.
pub(crate) type HeadInode = (VersionId, InodeNumber);

/// What an operation changed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Changed {
    /// What files hold, extended attributes among it, or no file at all.
    Content,
    /// There is another inode.
    Made(Made),
    /// An inode has these attributes now.
    Attributes(InodeItem),
    /// A name is gone.
    Unlinked(Unlinked),
    /// Names changed.
    Renamed(RenameOutcome),
    /// An orphan was freed in part, or as a whole.
    Released(Release),
}

/// What an operation changed, and what its caller has to do about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub changed: Changed,
    /// This inode has lost its last name. From the engine: and no handle has it open, so that the caller has
    /// to free it.
    pub orphan: Option<HeadInode>,
}

impl Outcome {
    /// Of an operation that is none on files.
    pub(crate) const NONE: Self = Self { changed: Changed::Content, orphan: None };

    /// Of a change of this head.
    pub(super) fn of(head: VersionId, changed: Changed) -> Self {
        let orphan = match changed {
            Changed::Unlinked(Unlinked { inode, orphaned: true }) => Some(inode),
            Changed::Renamed(RenameOutcome { replaced, orphaned: true, .. }) => replaced,
            _ => None,
        };
        Self { changed, orphan: orphan.map(|inode| (head, inode)) }
    }
}
