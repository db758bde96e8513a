//! Private files: the journals that SQLite writes for itself.
//!
//! A transaction that touches many pages writes the former content of each of them here, and hardly ever
//! reads any of it again. So this must cost no more than copying: memory comes in chunks that stay where they
//! are, and chunks that are not needed any more wait for the next journal.

use crate::bindings::Vfs;
use crate::errors::Result;
use crate::temporary::TemporaryFile;
use parking_lot::Mutex;

const CHUNK_BYTES: usize = 65536;
/// Chunks of one file in memory; the oldest of more go to a temporary file.
const CHUNKS_MAX: usize = 256;
/// Chunks of all files together that wait for their next use.
const SPARE_MAX: usize = 256;

type Chunk = Box<[u8; CHUNK_BYTES]>;

/// Only ever tried: in a forked child it may be locked for good.
static SPARE: Mutex<Vec<Chunk>> = Mutex::new(Vec::new());

fn fresh_chunk() -> Chunk {
    let spare = SPARE.try_lock().and_then(|mut spare| spare.pop());
    // What it held does not show: a file is read only up to its size, and gaps are cleared when they arise.
    spare.unwrap_or_else(|| vec![0; CHUNK_BYTES].into_boxed_slice().try_into().expect("it has this length"))
}

/// A private file: in memory, and in an unlinked temporary file when it is large.
pub struct MemoryFile {
    /// `None`: that part is in the temporary file.
    chunks: Vec<Option<Chunk>>,
    /// Chunks before this one are in the temporary file.
    spilled: usize,
    size: u64,
    file: Option<TemporaryFile>,
    /// Where temporary files come from.
    base: *mut Vfs,
}

// SAFETY: the VFS pointer is only used to open files, which SQLite allows from any thread.
unsafe impl Send for MemoryFile {}

impl MemoryFile {
    /// An empty file.
    pub fn new(base: *mut Vfs) -> Self {
        Self { chunks: Vec::new(), spilled: 0, size: 0, file: None, base }
    }

    /// Length in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Reads what there is; answers how much.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = self.size.saturating_sub(offset);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let mut rest = &mut buffer[..length];
        let mut at = offset;
        while !rest.is_empty() {
            let (index, within) = place(at);
            let (part, after) = rest.split_at_mut((CHUNK_BYTES - within).min(rest.len()));
            match (&self.chunks[index], &self.file) {
                (Some(chunk), _) => part.copy_from_slice(&chunk[within..within + part.len()]),
                (None, Some(file)) => file.read(at, part)?,
                (None, None) => unreachable!("what is not in memory was written to the file"),
            }
            at += part.len() as u64;
            rest = after;
        }
        Ok(length)
    }

    /// Writes all of `data`; a gap before it reads as zeros.
    pub fn write(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        if offset > self.size {
            self.clear_gap(offset)?;
        }
        self.put(offset, data)
    }

    fn clear_gap(&mut self, end: u64) -> Result<()> {
        const ZEROS: [u8; 4096] = [0; 4096];
        while self.size < end {
            let length = (end - self.size).min(ZEROS.len() as u64) as usize;
            self.put(self.size, &ZEROS[..length])?;
        }
        Ok(())
    }

    fn put(&mut self, offset: u64, data: &[u8]) -> Result<()> {
        let mut rest = data;
        let mut at = offset;
        while !rest.is_empty() {
            let (index, within) = place(at);
            let (part, after) = rest.split_at((CHUNK_BYTES - within).min(rest.len()));
            if index == self.chunks.len() {
                self.make_room()?;
                self.chunks.push(Some(fresh_chunk()));
            }
            match (&mut self.chunks[index], &self.file) {
                (Some(chunk), _) => chunk[within..within + part.len()].copy_from_slice(part),
                (None, Some(file)) => file.write(at, part)?,
                (None, None) => unreachable!("what is not in memory was written to the file"),
            }
            at += part.len() as u64;
            self.size = self.size.max(at);
            rest = after;
        }
        Ok(())
    }

    /// Sees to it that one more chunk may be in memory.
    fn make_room(&mut self) -> Result<()> {
        if self.chunks.len() - self.spilled < CHUNKS_MAX {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(TemporaryFile::open(self.base)?),
        };
        if let Some(chunk) = &self.chunks[self.spilled] {
            file.write((self.spilled * CHUNK_BYTES) as u64, &chunk[..])?;
        }
        let chunk = self.chunks[self.spilled].take();
        self.spilled += 1;
        keep(chunk);
        Ok(())
    }

    /// Makes the file shorter; never longer.
    pub fn truncate(&mut self, size: u64) -> Result<()> {
        if size >= self.size {
            return Ok(());
        }
        self.size = size;
        let chunks = usize::try_from(size.div_ceil(CHUNK_BYTES as u64)).unwrap_or(usize::MAX);
        keep(self.chunks.drain(chunks.min(self.chunks.len())..).flatten());
        self.spilled = self.spilled.min(self.chunks.len());
        match &self.file {
            Some(_) if self.spilled == 0 => self.file = None,
            Some(file) => file.truncate(size.min((self.spilled * CHUNK_BYTES) as u64))?,
            None => {}
        }
        Ok(())
    }
}

/// Chunk, and offset within it.
fn place(offset: u64) -> (usize, usize) {
    ((offset / CHUNK_BYTES as u64) as usize, (offset % CHUNK_BYTES as u64) as usize)
}

fn keep(chunks: impl IntoIterator<Item = Chunk>) {
    let Some(mut spare) = SPARE.try_lock() else { return };
    for chunk in chunks {
        if spare.len() < SPARE_MAX {
            spare.push(chunk);
        }
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        keep(self.chunks.drain(..).flatten());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn what_was_written_is_read_across_chunks_and_gaps_are_zero() {
        let mut file = MemoryFile::new(ptr::null_mut());
        file.write(0, &vec![0xFF; 3 * CHUNK_BYTES]).expect("written");
        drop(file);
        // The chunks come back with what they held.
        let mut file = MemoryFile::new(ptr::null_mut());
        let offset = CHUNK_BYTES as u64 - 3;
        file.write(offset, b"abcdef").expect("written");
        let mut buffer = [1; 10];
        assert_eq!(file.read(offset - 2, &mut buffer).expect("read"), 8);
        assert_eq!(&buffer[..8], b"\0\0abcdef");
        file.truncate(offset + 4).expect("cut");
        file.write(offset + 6, b"x").expect("written");
        assert_eq!(file.read(offset, &mut buffer).expect("read"), 7);
        assert_eq!(&buffer[..7], b"abcd\0\0x");
        assert_eq!(file.size(), offset + 7);
        assert_eq!(file.read(offset + 7, &mut buffer).expect("read"), 0);
    }
}
