//! A disk that keeps apart what is written and what is durable, and where other threads come in between at
//! every call. Of each block it keeps one number, which only grows.

use crate::sync::{Arc, Mutex, thread};
use icecore::storage::{AlignedBuffer, Kind, Space, Storage, StorageFile, StorageLock};
use icecore::units::BLOCK_BYTES;
use std::collections::BTreeMap;
use std::io;

type Blocks = BTreeMap<u64, u64>;
type Names = BTreeMap<String, Arc<File>>;

/// How long a flush takes.
const SYNC_STEPS: usize = 12;

/// A block that holds a number.
pub fn block(number: u64) -> AlignedBuffer {
    let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
    block[..8].copy_from_slice(&number.to_le_bytes());
    block
}

/// The number that a block holds.
pub fn number(block: &[u8]) -> u64 {
    u64::from_le_bytes(*block.first_chunk().expect("a block"))
}

/// A folder.
#[derive(Default)]
pub struct Disk(Mutex<Folder>);

#[derive(Default)]
struct Folder {
    written: Names,
    durable: Names,
    /// Another process writes here.
    is_handed_on: bool,
    refuses: Option<Refused>,
}

/// What a test may make a disk refuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    Write,
    Sync,
}

/// The call that is refused, once.
#[derive(Clone, Copy, Debug)]
pub struct Refused {
    pub call: Call,
    /// How the name of the file begins, when it was opened.
    pub prefix: &'static str,
    /// So many of these calls succeed before.
    pub after: usize,
}

/// What a file holds.
#[derive(Default)]
pub struct File(Mutex<Content>);

#[derive(Default)]
struct Content {
    written: Blocks,
    durable: Blocks,
}

struct Handle {
    disk: Arc<Disk>,
    name: String,
    file: Arc<File>,
    length: u64,
}

impl Disk {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn refuse(&self, refused: Refused) {
        self.0.lock().refuses = Some(refused);
    }

    /// Another process writes here from now on.
    pub fn hand_on(&self) {
        self.0.lock().is_handed_on = true;
    }

    fn is_refused(&self, call: Call, name: &str) -> io::Result<()> {
        let mut folder = self.0.lock();
        let Some(refused) = folder.refuses.as_mut().filter(|refused| refused.call == call) else {
            return Ok(());
        };
        if !name.starts_with(refused.prefix) {
            return Ok(());
        }
        if refused.after > 0 {
            refused.after -= 1;
            return Ok(());
        }
        folder.refuses = None;
        Err(io::Error::other("it was ordered"))
    }

    /// What may be found under a name after a crash at this moment, at the least: what is durable of the
    /// files that had the name since the folder was flushed. `None` for each time at which there was nothing.
    pub fn after_crash(&self, name: &str) -> Vec<Option<Blocks>> {
        let folder = self.0.lock();
        let found = [folder.written.get(name), folder.durable.get(name)];
        found.map(|file| file.map(|file| file.0.lock().durable.clone())).to_vec()
    }

    /// What is found under a name.
    pub fn content(&self, name: &str) -> Option<Blocks> {
        self.0.lock().written.get(name).map(|file| file.0.lock().written.clone())
    }
}

/// The storage of a disk.
pub struct Drive(pub Arc<Disk>);

impl Drive {
    fn handle(&self, name: &str, file: Arc<File>, length: u64) -> Box<dyn StorageFile> {
        Box::new(Handle { disk: Arc::clone(&self.0), name: name.to_owned(), file, length })
    }
}

/// Long enough for any segment.
const LENGTH: u64 = 1 << 40;

impl Storage for Drive {
    fn create(&self, name: &str, length: u64) -> io::Result<Box<dyn StorageFile>> {
        let file = Arc::<File>::default();
        let former = self.0.0.lock().written.insert(name.to_owned(), Arc::clone(&file));
        assert!(former.is_none(), "{name} is there already");
        Ok(self.handle(name, file, length))
    }

    fn open(&self, name: &str, _writable: bool) -> io::Result<Box<dyn StorageFile>> {
        let file = self.0.0.lock().written.get(name).map(Arc::clone);
        Ok(self.handle(name, file.ok_or(io::ErrorKind::NotFound)?, LENGTH))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let removed = self.0.0.lock().written.remove(name);
        removed.map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut folder = self.0.0.lock();
        let file = folder.written.remove(from).ok_or(io::ErrorKind::NotFound)?;
        folder.written.insert(to.to_owned(), file);
        Ok(())
    }

    fn list(&self) -> io::Result<Vec<(String, u64)>> {
        Ok(self.0.0.lock().written.keys().map(|name| (name.clone(), LENGTH)).collect())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let written = self.0.0.lock().written.clone();
        thread::yield_now();
        self.0.0.lock().durable = written;
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space { total: LENGTH, free: LENGTH })
    }

    fn lock(&self, _exclusive: bool) -> io::Result<Box<dyn StorageLock>> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn describe(&self) -> String {
        "the disk".to_owned()
    }
}

impl StorageFile for Handle {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let content = self.file.0.lock();
        let first = offset / BLOCK_BYTES as u64;
        for (index, bytes) in buffer.chunks_mut(BLOCK_BYTES).enumerate() {
            let number = content.written.get(&(first + index as u64)).copied().unwrap_or_default();
            bytes[..8].copy_from_slice(&number.to_le_bytes());
        }
        Ok(())
    }

    fn write_at(&self, parts: &[(Kind, &[u8])], offset: u64) -> io::Result<()> {
        self.disk.is_refused(Call::Write, &self.name)?;
        thread::yield_now();
        assert!(!self.disk.0.lock().is_handed_on, "{} is written, and somebody else has it", self.name);
        let blocks = parts.iter().flat_map(|(_, bytes)| bytes.chunks(BLOCK_BYTES));
        let mut content = self.file.0.lock();
        for (index, bytes) in blocks.enumerate() {
            content.written.insert(offset / BLOCK_BYTES as u64 + index as u64, number(bytes));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.is_refused(Call::Sync, &self.name)?;
        let written = self.file.0.lock().written.clone();
        // Others do a lot meanwhile.
        (0..SYNC_STEPS).for_each(|_| thread::yield_now());
        let mut content = self.file.0.lock();
        for (at, number) in written {
            let known = content.durable.entry(at).or_default();
            *known = number.max(*known);
        }
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.length)
    }
}
