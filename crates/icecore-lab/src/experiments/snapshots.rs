//! A pool with a file that changes a little between snapshots: what `many` and `history` measure.

use crate::error::Result;
use crate::random::Random;
use crate::storefile::StoreFile;
use icecore::{ListFilter, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};

/// What changes before a snapshot.
const CHANGE_BYTES: usize = 4 << 10;
/// What is written at a time where the speed of writes is measured.
pub(super) const WRITE_BYTES: usize = 16 << 10;

/// A pool with a file, and snapshots numbered from 1.
pub(super) struct Subject {
    pub file: StoreFile,
    bytes: u64,
    taken: u64,
    data: Vec<u8>,
}

impl Subject {
    pub(super) fn create(folder: &Path, bytes: u64, random: &mut Random) -> Result<Self> {
        let file = StoreFile::create_in(folder, &OpenOptions::default())?;
        file.fill(bytes, random)?;
        let mut data = vec![0; WRITE_BYTES];
        random.fill(&mut data);
        Ok(Self { file, bytes, taken: 0, data })
    }

    /// Opens a pool in which so many snapshots were taken.
    pub(super) fn reopen(folder: &Path, taken: u64) -> Result<Self> {
        let file = StoreFile::open_in(folder, &OpenOptions::default())?;
        let bytes = file.size()?;
        Ok(Self { file, bytes, taken, data: vec![7; WRITE_BYTES] })
    }

    /// The short name of the snapshot of that number.
    pub(super) fn name(number: u64) -> String {
        format!("number-{number:06}")
    }

    /// Snapshots taken so far.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Changes one block, durably, then takes a snapshot; answers the seconds of the snapshot alone.
    pub(super) fn change_and_snapshot(&mut self, random: &mut Random) -> Result<f64> {
        let offset = random.below(self.bytes / CHANGE_BYTES as u64) * CHANGE_BYTES as u64;
        self.file.write_durable(offset, &self.data[..CHANGE_BYTES])?;
        self.taken += 1;
        let name = Self::name(self.taken);
        let begin = Instant::now();
        self.file.snapshot(&name)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Takes so many snapshots as fast as it goes: what changed becomes durable with the snapshot.
    pub(super) fn take_many(&mut self, count: u64, random: &mut Random) -> Result<()> {
        for _ in 0..count {
            let offset = random.below(self.bytes / CHANGE_BYTES as u64) * CHANGE_BYTES as u64;
            self.file.write(offset, &self.data[..CHANGE_BYTES])?;
            self.taken += 1;
            self.file.snapshot(&Self::name(self.taken))?;
        }
        Ok(())
    }

    /// One durable write somewhere.
    pub(super) fn write_once(&self, random: &mut Random) -> Result<()> {
        let offset = random.below(self.bytes / WRITE_BYTES as u64) * WRITE_BYTES as u64;
        self.file.write_durable(offset, &self.data)
    }

    /// Durable writes a second, background work included.
    pub(super) fn write_rate(&self, slice: Duration, random: &mut Random) -> Result<f64> {
        let begin = Instant::now();
        let mut count = 0;
        while begin.elapsed() < slice {
            self.write_once(random)?;
            count += 1;
        }
        let end = self.file.settle()?;
        Ok(f64::from(count) / (end - begin).as_secs_f64())
    }

    /// Seconds to list all snapshots, of which there are so many at least.
    pub(super) fn list_seconds(&self, expected: u64) -> Result<f64> {
        let filter = ListFilter { snapshots: true, ..ListFilter::default() };
        let begin = Instant::now();
        let entries = self.file.pool().list(&filter)?;
        let seconds = begin.elapsed().as_secs_f64();
        assert!(entries.len() as u64 >= expected, "every snapshot is listed");
        Ok(seconds)
    }
}

/// Seconds to open a pool and find the file in it.
pub(super) fn open_seconds(folder: &Path) -> Result<f64> {
    let begin = Instant::now();
    let file = StoreFile::open_in(folder, &OpenOptions::default())?;
    let seconds = begin.elapsed().as_secs_f64();
    file.pool().close()?;
    Ok(seconds)
}
