//! Folders of pools, and paths within a pool: `dataset@snapshot/file`.

pub use crate::engine::Remains;
use crate::error::{Error, Result};
use crate::format::superblock::NAMES;
use crate::names::{SnapshotName, VersionName};
use crate::storage::LOCK_NAME;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Whether there is a pool in this folder: one of its two superblocks is enough. The error is the system's,
/// when it does not let us look.
pub fn is_pool(directory: &Path) -> io::Result<bool> {
    for name in NAMES {
        if exists(&directory.join(name))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// For how long the process that has the pool in this folder open has had it, by the clocks of this system
/// and its files; `None` if that is not known.
#[must_use]
pub fn owned_for(directory: &Path) -> Option<Duration> {
    let noted = std::fs::metadata(directory.join(LOCK_NAME)).and_then(|found| found.modified()).ok()?;
    noted.elapsed().ok()
}

/// What is left of a pool in this folder, which has no superblocks. Another pool should not be made there.
#[must_use]
pub fn remains(directory: &Path) -> Option<Remains> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    Remains::of(entries.filter_map(|entry| entry.file_name().into_string().ok()))
}

/// Whether what is in this folder was a pool: it has segments.
#[must_use]
pub fn was_pool(directory: &Path) -> bool {
    remains(directory) == Some(Remains::Segments)
}

fn exists(file: &Path) -> io::Result<bool> {
    match file.symlink_metadata() {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) if error.raw_os_error() == Some(36) => Ok(false), // ENAMETOOLONG: no such folder either
        Err(error) => Err(error),
    }
}

/// One way to read a path within a pool: a version, and a file in it (empty: its root).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading<'a> {
    /// Dataset or snapshot; whether it exists is not known here.
    pub version: VersionName,
    /// The rest of the path.
    pub file: &'a [u8],
}

/// The ways to read a path within a pool, longest version name first. Where datasets nest, a dataset goes
/// before a folder of the same name in the dataset above it.
#[must_use]
pub fn readings(path: &[u8]) -> Vec<Reading<'_>> {
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(index, _)| index);
    let mut readings: Vec<_> = ends
        .chain([path.len()])
        .filter_map(|end| {
            let version = std::str::from_utf8(&path[..end]).ok()?;
            let version = VersionName::parse(version).ok()?;
            Some(Reading { version, file: path.get(end + 1..).unwrap_or_default() })
        })
        .collect();
    readings.reverse();
    readings
}

/// Finds the first reading whose version exists, by asking `find`, which answers `NotFound` for those that do
/// not. A snapshot that is missing in a dataset that exists is that error, and not a file with an `@` in it.
pub fn find_reading<'a, T>(
    path: &'a [u8],
    mut find: impl FnMut(&VersionName) -> Result<T>,
) -> Result<(Reading<'a>, T)> {
    let mut missing: Option<Error> = None;
    for reading in readings(path) {
        match find(&reading.version) {
            Ok(found) => return Ok((reading, found)),
            Err(error @ Error::NotFound { .. }) => {
                if let VersionName::Snapshot(snapshot) = &reading.version
                    && dataset_exists(snapshot, &mut find)?
                {
                    return Err(error);
                }
                missing = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(missing.unwrap_or_else(|| Error::NotFound {
        what: format!("dataset of {:?}", String::from_utf8_lossy(path)),
    }))
}

fn dataset_exists<T>(
    snapshot: &SnapshotName,
    find: &mut impl FnMut(&VersionName) -> Result<T>,
) -> Result<bool> {
    match find(&VersionName::Head(snapshot.dataset())) {
        Ok(_) => Ok(true),
        Err(Error::NotFound { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_begin_with_the_longest_name() {
        let as_text = |path: &'static [u8]| -> Vec<(String, &[u8])> {
            readings(path)
                .into_iter()
                .map(|reading| (reading.version.as_str().to_owned(), reading.file))
                .collect()
        };
        assert_eq!(as_text(b"a/b"), [("a/b".into(), &b""[..]), ("a".into(), b"b")]);
        assert_eq!(as_text(b"a@x/b c"), [("a@x".into(), &b"b c"[..])]);
        assert_eq!(as_text(b"a/\xff"), [("a".into(), &b"\xff"[..])]);
        assert_eq!(as_text(b""), []);
    }

    #[test]
    fn a_missing_snapshot_of_a_known_dataset_is_not_taken_for_a_file() {
        let known = ["a", "a/b", "a/b@x"];
        let find = |name: &VersionName| match known.contains(&name.as_str()) {
            true => Ok(()),
            false => Err(Error::NotFound { what: name.to_string() }),
        };
        let found = |path: &'static [u8]| {
            find_reading(path, find).map(|(reading, ())| (reading.version.to_string(), reading.file))
        };
        assert_eq!(found(b"a/b@x/f").unwrap(), ("a/b@x".into(), &b"f"[..]));
        assert_eq!(found(b"a/c@x/f").unwrap(), ("a".into(), &b"c@x/f"[..]));
        assert!(found(b"a/b@y/f").unwrap_err().to_string().contains("a/b@y"));
        assert!(found(b"z/f").unwrap_err().to_string().contains('z'));
    }
}
