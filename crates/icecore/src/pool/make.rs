//! Making a pool in a folder, so that nothing is left of it where that fails.

use super::{Pool, real};
use crate::copies::is_name_of_pool;
use crate::error::{Error, Result};
use crate::incidents;
use crate::options::InitOptions;
use crate::storage::{LOCK_NAME, RealStorage, Storage as _};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

impl Pool {
    /// Makes an empty pool in a directory, which is made if it does not exist. Durable on return. After an
    /// error the directory is as it was before, or does not exist.
    ///
    /// # Errors
    /// [`Error::CannotInit`] if there is a pool already, or for sizes that cannot be; [`Error::Invalid`] for
    /// a folder that cannot take copies; [`Error::NoSpace`]; [`Error::Io`].
    pub fn init_directory(path: &Path, options: &InitOptions) -> Result<()> {
        let is_new = match fs::create_dir(path) {
            Ok(()) => true,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => false,
            Err(error) => return Err(Error::io("create", path.display().to_string(), error)),
        };
        let mirror = options.mirror.as_deref().map(Path::new);
        let before: Vec<Before> = [Some(path), mirror].into_iter().flatten().map(Before::look).collect();
        let outcome = real(path).and_then(|storage| Self::init(storage, options));
        if outcome.is_err() {
            before.iter().for_each(Before::restore);
            if is_new {
                // Files of other programs keep it.
                let _ = fs::remove_dir(path);
            }
        }
        outcome
    }
}

/// What a folder lacked of the files that a process leaves there beside those of a pool.
struct Before {
    folder: PathBuf,
    lacked: Vec<&'static str>,
}

impl Before {
    fn look(folder: &Path) -> Self {
        let is_missing = |name: &&str| fs::symlink_metadata(folder.join(name)).is_err();
        let lacked = [incidents::FILE_NAME, LOCK_NAME].into_iter().filter(is_missing).collect();
        Self { folder: folder.to_owned(), lacked }
    }

    /// Removes what it lacked, unless another process has made a pool there by now. Failing is no error: the
    /// caller gets one already.
    fn restore(&self) {
        let Ok(storage) = RealStorage::new(&self.folder) else { return };
        let Ok(_lock) = storage.lock(true) else { return };
        let is_pool =
            storage.list().map_or(true, |files| files.iter().any(|(name, _)| is_name_of_pool(name)));
        if !is_pool {
            for name in &self.lacked {
                let _ = fs::remove_file(self.folder.join(name));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::copies::CopyMode;
    use crate::units::ByteLength;

    fn entries(folder: &Path) -> Vec<std::ffi::OsString> {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn what_cannot_be_made_leaves_no_trace() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("there");
        let mirror = folder.path().join("mirror");
        fs::create_dir(&there).unwrap();
        fs::create_dir(&mirror).unwrap();
        fs::create_dir(folder.path().join("taken")).unwrap();
        Pool::init_directory(&folder.path().join("taken"), &InitOptions::small()).unwrap();
        let text = |name: &str| Some(folder.path().join(name).to_str().unwrap().to_owned());
        let small = InitOptions { segment_bytes: 2 << 20, ..InitOptions::default() };
        let wrong = [
            InitOptions { segment_bytes: 1, ..small.clone() },
            InitOptions { size_limit: Some(ByteLength(1)), ..small.clone() },
            InitOptions { copies: CopyMode::None, mirror: text("mirror"), ..small.clone() },
            InitOptions { mirror: text("taken"), ..small.clone() },
            InitOptions { mirror: text("no such folder"), ..small.clone() },
            InitOptions { mirror: Some("mirror".to_owned()), ..small.clone() },
            // When all of the pool but its copies could be made.
            InitOptions { mirror: text("there"), ..small.clone() },
        ];
        for options in wrong {
            let new = folder.path().join("new");
            for path in [&new, &there] {
                if options.mirror == text("there") && *path == new {
                    continue;
                }
                Pool::init_directory(path, &options).unwrap_err();
            }
            assert!(!new.exists(), "{options:?}");
            assert!(entries(&there).is_empty() && entries(&mirror).is_empty(), "{options:?}");
        }
        // With a reason to fail once it has begun.
        let new = folder.path().join("new");
        fs::create_dir(&new).unwrap();
        fs::create_dir(new.join("segment.00000001")).unwrap();
        Pool::init_directory(&new, &InitOptions { mirror: text("mirror"), ..small.clone() }).unwrap_err();
        assert_eq!(entries(&new), ["segment.00000001"]);
        assert!(entries(&mirror).is_empty());
        // And nothing is in the way of another try.
        fs::remove_dir_all(&new).unwrap();
        Pool::init_directory(&new, &InitOptions { mirror: text("mirror"), ..small }).unwrap();
    }

    #[test]
    fn a_pool_that_is_there_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        Pool::init_directory(folder.path(), &InitOptions::small()).unwrap();
        let mut before = entries(folder.path());
        fs::remove_file(folder.path().join(LOCK_NAME)).unwrap();
        Pool::init_directory(folder.path(), &InitOptions::small()).unwrap_err();
        let mut after = entries(folder.path());
        before.sort();
        after.sort();
        assert_eq!(after, before);
    }

    #[test]
    fn the_folder_of_the_pool_is_no_other_folder() {
        let folder = tempfile::tempdir().unwrap();
        let pool = folder.path().join("pool");
        fs::create_dir(&pool).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&pool, &link).unwrap();
        let below = pool.join("below");
        fs::create_dir(&below).unwrap();
        for mirror in [pool.clone(), link.clone(), folder.path().join("pool/../pool/."), link.join("below")] {
            let mirror = Some(mirror.to_str().unwrap().to_owned());
            let options = InitOptions { segment_bytes: 2 << 20, mirror, ..InitOptions::default() };
            let refused = Pool::init_directory(&pool, &options).unwrap_err().to_string();
            assert!(refused.contains("the folder of the pool itself"), "{refused}");
        }
        fs::remove_dir(below).unwrap();
        assert!(entries(&pool).is_empty());
        Pool::init_directory(&pool, &InitOptions::small()).unwrap();
        let open = Pool::open_directory(&pool, &crate::OpenOptions::default()).unwrap();
        let same = Some(pool.to_str().unwrap().to_owned());
        let refused = open.set_copies(CopyMode::Metadata, same.clone()).unwrap_err().to_string();
        assert!(refused.contains("the folder of the pool itself"), "{refused}");
        open.set_copies(CopyMode::None, same).unwrap_err();
        open.close().unwrap();
    }
}
