//! Room on a disk, looked at before something long begins.

use crate::error::{Doing, Error, Result};
use std::io;
use std::path::Path;

/// Bytes that the file system of a folder has free for users.
pub(crate) fn free(folder: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(folder)?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Refuses where the file system of a folder has fewer bytes free than this.
///
/// # Errors
/// [`Error::NoRoom`], and [`Error::Io`] where the folder cannot be examined.
pub(crate) fn require(folder: &Path, bytes: u64, what: &str) -> Result<()> {
    let free = free(folder).doing(|| format!("examine {}", folder.display()))?;
    if free >= bytes {
        return Ok(());
    }
    Err(Error::NoRoom { what: what.to_owned(), folder: folder.to_owned(), bytes, free })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_little_room_is_said_before() {
        let folder = tempfile::tempdir().expect("a folder");
        require(folder.path(), 1, "nothing").expect("room");
        let error = require(folder.path(), 1 << 60, "the disk").expect_err("refused").to_string();
        assert!(error.contains("the disk needs") && error.contains("MiB are free"), "{error}");
    }
}
