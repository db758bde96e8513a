//! Whose the files of a pool are: the owner's of its folder. What root makes there would keep that owner out.

use rustix::fd::AsFd;
use rustix::fs::{Gid, Stat, Uid};

/// Gives a file to the owner of the folder that it is in, if root made it just now. One that was there may be
/// a link of that owner's to a file of somebody else. Where a filesystem refuses it, the file stays as it is.
pub(crate) fn hand_over(file: impl AsFd, folder: &Stat) {
    if rustix::process::geteuid().is_root() && folder.st_uid != Uid::ROOT.as_raw() {
        let (owner, group) = (Uid::from_raw(folder.st_uid), Gid::from_raw(folder.st_gid));
        let _ = rustix::fs::fchown(file, Some(owner), Some(group));
    }
}
