//! The unit in which a snapshot is measured: one flush of this disk.

use crate::error::{Doing, Result};
use crate::statistics::median;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

/// Flushes timed where nothing else is asked for.
pub const COUNT: usize = 101;

const BLOCK: usize = 4096;
/// Overwriting goes round a file of this many blocks, so that no flush rewrites what the last one did.
const BLOCKS: usize = 256;

/// A file to flush: allocated and fully written.
///
/// Each flush overwrites 4 KiB of it, and waits for `fdatasync`: the least that any durable change costs on
/// this disk.
pub struct Flusher {
    file: File,
    /// Where the next one goes.
    next: usize,
}

impl Flusher {
    /// A temporary file in `directory`.
    pub fn new(directory: &Path) -> Result<Self> {
        let file = tempfile::tempfile_in(directory)
            .doing(|| format!("make a temporary file in {}", directory.display()))?;
        for index in 0..BLOCKS {
            write(&file, index)?;
        }
        file.sync_all().doing(|| "flush a temporary file".to_owned())?;
        Ok(Self { file, next: 0 })
    }

    /// One flush, in seconds.
    pub fn flush(&mut self) -> Result<f64> {
        let index = self.next;
        self.next = (index + 1) % BLOCKS;
        let begin = Instant::now();
        write(&self.file, index)?;
        self.file.sync_data().doing(|| "flush a temporary file".to_owned())?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

fn write(file: &File, index: usize) -> Result<()> {
    let offset = (index * BLOCK) as u64;
    file.write_all_at(&[0xA5; BLOCK], offset).doing(|| "write a temporary file".to_owned())
}

/// The median of `count` flushes in `directory`, one right after the other, in seconds.
pub fn median_seconds(directory: &Path, count: usize) -> Result<f64> {
    let mut flusher = Flusher::new(directory)?;
    let seconds = (0..count).map(|_| flusher.flush()).collect::<Result<Vec<_>>>()?;
    Ok(median(&seconds))
}
