//! A simulated disk as programs see it.

use super::state::State;
use icecore::storage::{Kind, Space, Storage, StorageFile, StorageLock};
use parking_lot::Mutex;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

/// The disk between one crash and the next.
pub(super) struct Mounting {
    state: Arc<Mutex<State>>,
    number: u64,
}

impl Mounting {
    pub(super) const fn new(state: Arc<Mutex<State>>, number: u64) -> Self {
        Self { state, number }
    }

    fn handle(&self, file: u64, writable: bool) -> Box<dyn StorageFile> {
        Box::new(OpenFile { state: Arc::clone(&self.state), mounting: self.number, file, writable })
    }
}

impl Storage for Mounting {
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        let file = self.state.lock().create(self.number, name, length)?;
        Ok(self.handle(file, true))
    }

    fn open(&self, name: &str, writable: bool) -> io::Result<Box<dyn StorageFile>> {
        let file = self.state.lock().open(self.number, name, writable)?;
        Ok(self.handle(file, writable))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.state.lock().remove(self.number, name)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.state.lock().rename(self.number, from, to)
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        let state = self.state.lock();
        state.admit(self.number)?;
        Ok(state.list())
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.state.lock().sync_directory(self.number)
    }

    fn space(&self) -> io::Result<Space> {
        let state = self.state.lock();
        state.admit(self.number)?;
        Ok(state.space())
    }

    fn lock(&self, exclusive: bool) -> io::Result<Box<dyn StorageLock>> {
        Ok(Box::new(self.state.lock().lock(self.number, exclusive)?))
    }

    fn lock_owner(&self) -> Option<String> {
        self.state.lock().is_locked().then(|| "1 a simulated process".to_owned())
    }

    fn describe(&self) -> String {
        "the simulated disk".to_owned()
    }

    fn sibling(&self, path: &str) -> io::Result<Arc<dyn Storage>> {
        let mirror = self.state.lock().mirror.clone();
        let mirror = mirror.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no {path}")))?;
        Ok(mirror.storage())
    }

    fn directory(&self) -> Option<PathBuf> {
        self.state.lock().folder.clone()
    }
}

struct OpenFile {
    state: Arc<Mutex<State>>,
    mounting: u64,
    file: u64,
    writable: bool,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.state.lock().close(self.mounting, self.file);
    }
}

impl StorageFile for OpenFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.state.lock().read(self.mounting, self.file, buffer, offset)
    }

    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        if !self.writable {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.state.lock().write(self.mounting, self.file, parts, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.state.lock().sync(self.mounting, self.file)
    }

    fn length(&self) -> io::Result<u64> {
        self.state.lock().length(self.mounting, self.file)
    }
}
