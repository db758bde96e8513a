//! Paths that lead into a pool: `/path/to/pool/dataset@snapshot/file`.

use icecore::admin::locate::is_pool;
use icecore::format::superblock::NAMES;
use icecore::{Error, Result};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Splits a path at the pool: the longest leading part that is a pool's folder, and what follows, without
/// empty and `.` components. [`Error::NotAPool`] when no part of it is one.
pub fn split_at_pool(path: &Path) -> Result<(PathBuf, Vec<u8>)> {
    let bytes = path.as_os_str().as_bytes();
    let mut denied = None;
    let mut end = bytes.len();
    loop {
        let prefix = Path::new(OsStr::from_bytes(if end == 0 { b"." } else { &bytes[..end] }));
        match is_pool(prefix) {
            Ok(true) => return Ok((prefix.to_owned(), clean(&bytes[end..], path)?)),
            Ok(false) => {}
            Err(error) => denied = denied.or(Some((prefix.to_owned(), error))),
        }
        if end == 0 {
            break;
        }
        end = match bytes[..end].iter().rposition(|byte| *byte == b'/') {
            Some(0) if end > 1 => 1,
            Some(position) => position,
            None => 0,
        };
        if end == 0 && bytes[0] == b'/' {
            break;
        }
    }
    match denied {
        Some((prefix, source)) => {
            Err(Error::Io { action: "look into", what: prefix.display().to_string(), source })
        }
        None => Err(Error::NotAPool {
            path: path.display().to_string(),
            reason: format!("no folder of this path contains {} or {}", NAMES[0], NAMES[1]),
        }),
    }
}

/// A path within a pool, cleaned of empty and `.` components. `..` is refused: what it would lead to depends
/// on the version.
fn clean(rest: &[u8], whole: &Path) -> Result<Vec<u8>> {
    let mut cleaned = Vec::with_capacity(rest.len());
    for component in rest.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => continue,
            b".." => {
                let path = whole.display();
                return Err(Error::Invalid(format!(
                    "{path} leads up with '..' inside a pool: write the path without it"
                )));
            }
            _ => {}
        }
        if !cleaned.is_empty() {
            cleaned.push(b'/');
        }
        cleaned.extend_from_slice(component);
    }
    Ok(cleaned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool_in(parent: &Path, name: &str) -> PathBuf {
        let path = parent.join(name);
        std::fs::create_dir_all(&path).unwrap();
        // Its twin is as good.
        std::fs::write(path.join(NAMES[usize::from(name == "outer")]), b"").unwrap();
        path
    }

    #[test]
    fn the_longest_folder_that_is_a_pool_counts() {
        let folder = tempfile::tempdir().unwrap();
        let outer = pool_in(folder.path(), "outer");
        let inner = pool_in(&outer, "inner");
        let split = |path: &Path| split_at_pool(path).unwrap();
        assert_eq!(split(&outer), (outer.clone(), vec![]));
        assert_eq!(split(&outer.join("db@x/file")), (outer.clone(), b"db@x/file".to_vec()));
        assert_eq!(split(&inner.join("db/./a//b/")), (inner.clone(), b"db/a/b".to_vec()));
        assert!(matches!(split_at_pool(&inner.join("db/../x")), Err(Error::Invalid(_))));
        assert!(matches!(split_at_pool(folder.path()), Err(Error::NotAPool { .. })));
        assert!(matches!(split_at_pool(Path::new("/")), Err(Error::NotAPool { .. })));
        assert!(matches!(split_at_pool(Path::new("")), Err(Error::NotAPool { .. })));
        assert!(matches!(split_at_pool(Path::new("no/such/pool")), Err(Error::NotAPool { .. })));
    }
}
