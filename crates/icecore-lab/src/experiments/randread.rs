//! `randread`: reads at random places of a file that was updated at random, nothing in memory before.
//!
//! Both files have the same bytes in the same places. Before every slice the pool is closed, the kernel's
//! page cache of its files dropped, and the pool opened again: so a slice of the store begins without nodes
//! and checksums, and gathers them within its time. The plain file is read past the page cache, in place. The
//! snapshot was taken before 1,000 younger ones.

use super::Findings;
use crate::counters::Counters;
use crate::device::{Device, DeviceCounts, drop_cached, in_threads, open_direct};
use crate::error::{Doing, Result};
use crate::options::Options;
use crate::pairs::interleave;
use crate::random::Random;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, median};
use crate::storefile::{DATASET, StoreFile};
use icecore::storage::AlignedBuffer;
use icecore::{File, OpenOptions, View};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const THREADS: [usize; 2] = [1, 8];
const READ_BYTES: [usize; 2] = [4 << 10, 16 << 10];
const NAMES: [&str; 3] = ["plain", "icecore", "icecore_snapshot"];
const BLOCK: u64 = 4 << 10;
const CHUNK: usize = 1 << 20;
const UPDATES_SYNC: u64 = 1000;
const YOUNGER: u64 = 1000;
const SNAPSHOT: &str = "old";

/// The files that are read.
struct Files {
    pool: PathBuf,
    plain: std::fs::File,
    bytes: u64,
    device: Device,
}

/// What one slice found.
#[derive(Clone, Default)]
struct Slice {
    rate: f64,
    reads: u64,
    device: DeviceCounts,
    counters: Counters,
}

/// One kind of slice.
#[derive(Clone, Copy)]
struct Cell {
    name: &'static str,
    threads: usize,
    read_bytes: usize,
}

fn cells() -> Vec<Cell> {
    let sizes = THREADS.into_iter().flat_map(|threads| READ_BYTES.map(|read_bytes| (threads, read_bytes)));
    sizes.flat_map(|(threads, read_bytes)| NAMES.map(|name| Cell { name, threads, read_bytes })).collect()
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(12, 4);
    // A debug build shows only that it runs.
    let quick_ms = if cfg!(debug_assertions) { 200 } else { 1_000 };
    let slice = Duration::from_millis(options.size(3_000, quick_ms));
    let bytes = super::file_bytes(options, 16 << 30);
    let updates = bytes / BLOCK / 10;
    let folder = options.scratch()?;
    let files = Files::make(folder.path(), bytes, updates, options)?;
    let mut random = Random::new(options.seed);
    let cells = cells();
    let samples = interleave(rounds, cells.len(), |round, index| {
        let Cell { name, threads, read_bytes } = cells[index];
        let slice = files.slice(cells[index], slice, random.next_u64())?;
        let rate = slice.rate;
        options.say(&format!(
            "round {} of {rounds}: {name}, {threads} threads, {read_bytes} bytes: {rate:.0} reads/s",
            round + 1
        ))?;
        Ok(slice)
    })?;
    let mut findings = conclude(&cells, &samples, options.seed);
    findings.parameter("rounds", rounds);
    findings.parameter("slice_s", slice.as_secs_f64());
    findings.parameter("file_bytes", bytes);
    findings.parameter("updates", updates);
    findings.parameter("younger_snapshots", YOUNGER);
    Ok(findings)
}

impl Files {
    fn make(folder: &Path, bytes: u64, updates: u64, options: &Options) -> Result<Self> {
        let pool = folder.join("pool");
        let plain = open_direct(&folder.join("plain"))?;
        options.say(&format!("writing {} MiB twice, and {updates} updates of a block", bytes >> 20))?;
        fill_plain(&plain, bytes, options.seed)?;
        let store = StoreFile::create_in(&pool, &OpenOptions::default())?;
        store.fill(bytes, &mut Random::new(options.seed))?;
        let mut random = Random::new(options.seed + 1);
        let mut block = AlignedBuffer::zeroed(BLOCK as usize);
        let mut update = |number: u64| {
            let offset = random.below(bytes / BLOCK) * BLOCK;
            block[..8].copy_from_slice(&number.to_le_bytes());
            plain.write_all_at(&block, offset).doing(|| "write the plain file".to_owned())?;
            store.write(offset, &block)
        };
        for number in 0..updates {
            update(number)?;
            if number % UPDATES_SYNC == 0 {
                store.sync()?;
            }
        }
        store.snapshot(SNAPSHOT)?;
        for number in 0..YOUNGER {
            update(updates + number)?;
            store.snapshot(&format!("younger-{number}"))?;
        }
        plain.sync_all().doing(|| "flush the plain file".to_owned())?;
        store.settle()?;
        store.close()?;
        Ok(Self { pool, plain, bytes, device: Device::of(folder)? })
    }

    fn slice(&self, cell: Cell, length: Duration, seed: u64) -> Result<Slice> {
        if cell.name == "plain" {
            let read = |offset, buffer: &mut [u8]| {
                self.plain.read_exact_at(buffer, offset).doing(|| "read the plain file".to_owned())
            };
            return self.measure(cell, length, seed, &read);
        }
        drop_cached(&self.pool)?;
        let open = OpenOptions { direct_reads: true, ..OpenOptions::default() };
        let store = StoreFile::open_in(&self.pool, &open)?;
        store.settle()?;
        let before = Counters::of(store.pool());
        let mut slice = if cell.name == "icecore" {
            let file: File = store.file()?;
            self.measure(cell, length, seed, &|offset, buffer| Ok(file.read(offset, buffer).map(|_| ())?))?
        } else {
            let view: View = store.pool().view(&format!("{DATASET}@{SNAPSHOT}"))?;
            let inode = store.inode();
            let read = |offset, buffer: &mut [u8]| Ok(view.read(inode, offset, buffer).map(|_| ())?);
            self.measure(cell, length, seed, &read)?
        };
        slice.counters = Counters::of(store.pool()).since(&before);
        store.close()?;
        Ok(slice)
    }

    fn measure(
        &self,
        cell: Cell,
        length: Duration,
        seed: u64,
        read: &(dyn Fn(u64, &mut [u8]) -> Result<()> + Sync),
    ) -> Result<Slice> {
        let places = self.bytes / cell.read_bytes as u64;
        let before = self.device.counts();
        let begin = Instant::now();
        let reads = in_threads(cell.threads, |number| {
            let mut random = Random::new(seed ^ number);
            let mut buffer = AlignedBuffer::zeroed(cell.read_bytes);
            let mut count = 0;
            while begin.elapsed() < length {
                read(random.below(places) * cell.read_bytes as u64, &mut buffer)?;
                count += 1;
            }
            Ok(count)
        })?;
        let rate = reads as f64 / begin.elapsed().as_secs_f64();
        Ok(Slice { rate, reads, device: self.device.counts() - before, counters: Counters::default() })
    }
}

fn fill_plain(file: &std::fs::File, bytes: u64, seed: u64) -> Result<()> {
    let mut chunk = AlignedBuffer::zeroed(CHUNK);
    Random::new(seed).fill(&mut chunk);
    for offset in (0..bytes).step_by(CHUNK) {
        chunk[..8].copy_from_slice(&offset.to_le_bytes());
        file.write_all_at(&chunk, offset).doing(|| "write the plain file".to_owned())?;
    }
    file.sync_all().doing(|| "flush the plain file".to_owned())
}

fn conclude(cells: &[Cell], samples: &[Vec<Slice>], seed: u64) -> Findings {
    let mut findings = Findings::default();
    let rates = |name: &str, threads: usize, read_bytes: usize| -> Vec<f64> {
        let is_it = |cell: &Cell| (cell.name, cell.threads, cell.read_bytes) == (name, threads, read_bytes);
        let index = cells.iter().position(is_it).expect("every cell is measured");
        samples[index].iter().map(|slice| slice.rate).collect()
    };
    // Of each round, the geometric mean over the sizes.
    let ratios = |above: &str, below: &str, threads: usize| -> Vec<f64> {
        let [small, large] = READ_BYTES.map(|read_bytes| {
            let (above, below) = (rates(above, threads, read_bytes), rates(below, threads, read_bytes));
            above.into_iter().zip(below).map(|(above, below)| above / below).collect::<Vec<_>>()
        });
        small.into_iter().zip(large).map(|(small, large)| (small * large).sqrt()).collect()
    };
    for threads in THREADS {
        let cold = ratios("icecore", "plain", threads);
        findings.check(Check::new(&format!("randread.cold.{threads}"), bootstrap(&cold, median, seed)));
    }
    let snapshot: Vec<f64> =
        THREADS.into_iter().flat_map(|threads| ratios("icecore_snapshot", "icecore", threads)).collect();
    findings.check(Check::new("randread.snapshot", bootstrap(&snapshot, median, seed)));
    for (cell, slices) in cells.iter().zip(samples) {
        let Cell { name, threads, read_bytes } = cell;
        let system = System::new("reads/s", slices.iter().map(|slice| slice.rate).collect());
        let system = system.with_counters(counts(slices, *read_bytes));
        findings.system(&format!("{name}_{threads}_{}k", read_bytes >> 10), system);
    }
    findings
}

/// The counters of the slices together, and what they come to for each read.
fn counts(slices: &[Slice], read_bytes: usize) -> std::collections::BTreeMap<String, f64> {
    let mut counters = Counters::sum(slices.iter().map(|slice| &slice.counters)).into_map();
    let sum = |of: fn(&Slice) -> u64| slices.iter().map(of).sum::<u64>() as f64;
    let (reads, device_reads) = (sum(|slice| slice.reads), sum(|slice| slice.device.reads));
    let device_bytes = sum(|slice| slice.device.read_bytes);
    // Blocks that memory had were not missed.
    let hits = counters.get("block_cache_hits").copied().unwrap_or(0.0);
    let misses = (reads - hits / (read_bytes as u64 / BLOCK) as f64).max(1.0);
    counters.insert("device_reads_per_read".to_owned(), device_reads / reads.max(1.0));
    counters.insert("device_bytes_per_read".to_owned(), device_bytes / reads.max(1.0));
    counters.insert("metadata_reads_per_miss".to_owned(), (device_reads / misses - 1.0).max(0.0));
    counters
}
