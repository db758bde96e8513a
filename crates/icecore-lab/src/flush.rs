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

/// Times of `count` flushes in `directory`, in seconds.
///
/// Each overwrites 4 KiB of a file that is allocated and fully written, and waits for `fdatasync`: the
/// least that any durable change costs on this disk.
pub fn seconds(directory: &Path, count: usize) -> Result<Vec<f64>> {
    let file = tempfile::tempfile_in(directory)
        .doing(|| format!("make a temporary file in {}", directory.display()))?;
    let block = [0xA5_u8; BLOCK];
    for index in 0..BLOCKS {
        file.write_all_at(&block, (index * BLOCK) as u64).doing(|| "write a temporary file".to_owned())?;
    }
    file.sync_all().doing(|| "flush a temporary file".to_owned())?;
    (0..count).map(|index| one(&file, &block, index % BLOCKS)).collect()
}

/// The median of [`seconds`].
pub fn median_seconds(directory: &Path, count: usize) -> Result<f64> {
    Ok(median(&seconds(directory, count)?))
}

fn one(file: &File, block: &[u8], index: usize) -> Result<f64> {
    let begin = Instant::now();
    file.write_all_at(block, (index * BLOCK) as u64).doing(|| "write a temporary file".to_owned())?;
    file.sync_data().doing(|| "flush a temporary file".to_owned())?;
    Ok(begin.elapsed().as_secs_f64())
}
