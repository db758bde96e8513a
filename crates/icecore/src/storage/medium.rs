//! What the mount under a folder allows.

use rustix::fs::{StatVfs, StatVfsMountFlags};
use std::path::Path;

/// Whether the mount of a folder takes no writes, from any user (statvfs(3), `ST_RDONLY`). Not whether this
/// user may write there. `false` if the folder cannot be examined.
#[must_use]
pub fn is_medium_read_only(folder: &Path) -> bool {
    rustix::fs::statvfs(folder).is_ok_and(|status| has_read_only_flag(&status))
}

fn has_read_only_flag(status: &StatVfs) -> bool {
    status.f_flag.contains(StatVfsMountFlags::RDONLY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_read_only_by_its_flag() {
        let mut medium = rustix::fs::statvfs("/").unwrap();
        medium.f_flag = StatVfsMountFlags::NOATIME;
        assert!(!has_read_only_flag(&medium));
        medium.f_flag |= StatVfsMountFlags::RDONLY;
        assert!(has_read_only_flag(&medium));
        assert!(!is_medium_read_only(Path::new("/gone")));
    }
}
