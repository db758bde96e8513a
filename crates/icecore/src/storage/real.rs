//! Real files in a directory.

use super::{Space, Storage, StorageFile, StorageLock};
use std::io;
use std::path::{Path, PathBuf};

/// A directory of a Linux filesystem.
pub struct RealStorage {
    directory: PathBuf,
}

impl RealStorage {
    /// The directory at `path`, which must exist.
    pub fn new(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self { directory: path.as_ref().canonicalize()? })
    }
}

#[allow(unused_variables)]
impl Storage for RealStorage {
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn StorageFile>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn remove(&self, name: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn sync_directory(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn space(&self) -> io::Result<Space> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn lock(&self, exclusive: bool) -> io::Result<Box<dyn StorageLock>> {
        Err(io::ErrorKind::Unsupported.into())
    }
    fn describe(&self) -> String {
        self.directory.display().to_string()
    }
}
