//! `bulk`: filling a file in writes of 1 MiB and one flush, and reading it from beginning to end.
//!
//! Every round makes both files anew. What is read was dropped from the kernel's page cache before, and the
//! pool opened again. The plain side writes and reads past the page cache, 1 MiB at a time.

use super::Findings;
use crate::counters::Counters;
use crate::device::{Device, DeviceCounts, drop_cached, open_direct};
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::pairs::interleave;
use crate::random::Random;
use crate::report::{Check, System};
use crate::statistics::paired_ratio;
use crate::storefile::StoreFile;
use icecore::OpenOptions;
use icecore::storage::AlignedBuffer;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

const CHUNK: usize = 1 << 20;
const NAMES: [&str; 2] = ["plain", "icecore"];

/// One side of one round.
#[derive(Default)]
struct Pass {
    /// MiB a second.
    write: f64,
    scan: f64,
    scanned: DeviceCounts,
    counters: Counters,
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(6, 4);
    let bytes = super::file_bytes(options, 8 << 30);
    let folder = options.scratch()?;
    let device = Device::of(folder.path())?;
    let mut chunk = AlignedBuffer::zeroed(CHUNK);
    Random::new(options.seed).fill(&mut chunk);
    let samples = interleave(rounds, NAMES.len(), |round, side| {
        let path = folder.path().join(NAMES[side]);
        let pass = match side {
            0 => plain(&path, bytes, &mut chunk, &device)?,
            _ => stored(&path, bytes, &mut chunk, &device)?,
        };
        let Pass { write, scan, .. } = pass;
        let name = NAMES[side];
        let said = format!("round {} of {rounds}: {name}: write {write:.0}, scan {scan:.0} MiB/s", round + 1);
        options.say(&said)?;
        Ok(pass)
    })?;
    let mut findings = Findings::default();
    let [plain, stored] = [0, 1].map(|side: usize| &samples[side]);
    let rates = |side: &[Pass], rate: fn(&Pass) -> f64| side.iter().map(rate).collect::<Vec<f64>>();
    for (check, rate) in [("write", (|pass| pass.write) as fn(&Pass) -> f64), ("scan", |pass| pass.scan)] {
        let ratio = paired_ratio(&rates(stored, rate), &rates(plain, rate), options.seed);
        findings.check(Check::new(&format!("bulk.{check}"), ratio));
        for (name, side) in NAMES.iter().zip(&samples) {
            let mut counters = Counters::sum(side.iter().map(|pass| &pass.counters)).into_map();
            let sum = |of: fn(&Pass) -> u64| side.iter().map(of).sum::<u64>() as f64;
            let mebibytes = (bytes / CHUNK as u64 * rounds as u64) as f64;
            let (reads, read) = (sum(|pass| pass.scanned.reads), sum(|pass| pass.scanned.read_bytes));
            counters.insert("scan_device_reads_per_mib".to_owned(), reads / mebibytes);
            counters.insert("scan_device_bytes_per_mib".to_owned(), read / mebibytes);
            let system = System::new("MiB/s", rates(side, rate)).with_counters(counters);
            findings.system(&format!("{name}_{check}"), system);
        }
    }
    findings.parameter("rounds", rounds);
    findings.parameter("file_bytes", bytes);
    findings.parameter("chunk_bytes", CHUNK);
    Ok(findings)
}

fn plain(path: &Path, bytes: u64, chunk: &mut [u8], device: &Device) -> Result<Pass> {
    let doing = || format!("use {}", path.display());
    let file = open_direct(path)?;
    let write =
        timed(bytes, chunk, &mut |offset, chunk| file.write_all_at(chunk, offset).doing(doing), || {
            file.sync_data().doing(doing)
        })?;
    let before = device.counts();
    let mut buffer = AlignedBuffer::zeroed(CHUNK);
    let begin = Instant::now();
    for offset in (0..bytes).step_by(CHUNK) {
        file.read_exact_at(&mut buffer, offset).doing(doing)?;
        compare(&buffer, offset, chunk)?;
    }
    let scan = rate(bytes, begin);
    let scanned = device.counts() - before;
    std::fs::remove_file(path).doing(doing)?;
    Ok(Pass { write, scan, scanned, counters: Counters::default() })
}

fn stored(path: &Path, bytes: u64, chunk: &mut [u8], device: &Device) -> Result<Pass> {
    // As on the plain side: around the page cache.
    let open = OpenOptions { direct_reads: true, ..OpenOptions::default() };
    let store = StoreFile::create_in(path, &open)?;
    let write = timed(bytes, chunk, &mut |offset, chunk| store.write(offset, chunk), || store.sync())?;
    let mut counters = Counters::of(store.pool());
    store.settle()?;
    store.close()?;
    drop_cached(path)?;
    let store = StoreFile::open_in(path, &open)?;
    store.settle()?;
    let before = device.counts();
    let mut buffer = AlignedBuffer::zeroed(CHUNK);
    let file = store.file()?;
    let begin = Instant::now();
    for offset in (0..bytes).step_by(CHUNK) {
        file.read(offset, &mut buffer)?;
        compare(&buffer, offset, chunk)?;
    }
    let scan = rate(bytes, begin);
    let scanned = device.counts() - before;
    counters = Counters::sum([&counters, &Counters::of(store.pool())]);
    drop(file);
    store.close()?;
    std::fs::remove_dir_all(path).doing(|| format!("remove {}", path.display()))?;
    Ok(Pass { write, scan, scanned, counters })
}

/// Compares what was read with what was written: only the first bytes differ between chunks.
fn compare(read: &[u8], offset: u64, chunk: &[u8]) -> Result<()> {
    if read[..8] == offset.to_le_bytes() && read[8..] == chunk[8..] {
        return Ok(());
    }
    Err(Error::Mismatch { what: "the file".to_owned(), detail: format!("other bytes at {offset}") })
}

/// Writes the file, flushes it, and answers how fast that was.
fn timed(
    bytes: u64,
    chunk: &mut [u8],
    write: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    flush: impl FnOnce() -> Result<()>,
) -> Result<f64> {
    let begin = Instant::now();
    for offset in (0..bytes).step_by(CHUNK) {
        chunk[..8].copy_from_slice(&offset.to_le_bytes());
        write(offset, chunk)?;
    }
    flush()?;
    Ok(rate(bytes, begin))
}

fn rate(bytes: u64, begin: Instant) -> f64 {
    bytes as f64 / (1 << 20) as f64 / begin.elapsed().as_secs_f64()
}
