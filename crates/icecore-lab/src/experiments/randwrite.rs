//! `randwrite`: 16 KiB writes at random places of a 1 GiB file, each durable before the next.
//!
//! The plain side overwrites in place a file that is allocated and fully written: the least that a
//! filesystem can be asked for. Both sides of the store keep their pool for the whole experiment and are
//! measured in slices, interleaved with the plain side's; a slice of the store lasts until the background
//! work that it left behind is done. Where there is a snapshot, a new one is taken before every slice and
//! the one before is destroyed: so nearly every write of the slice is the first to its place since the
//! snapshot, which is when other systems pay for it.

use super::{Findings, open_options};
use crate::counters::Counters;
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::pairs::interleave;
use crate::random::Random;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, median, paired_ratio};
use crate::storefile::{DATASET, StoreFile};
use icecore::DestroyTarget;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const WRITE_BYTES: usize = 16 << 10;
const THREADS: [usize; 2] = [1, 8];

enum Target {
    Plain(File),
    Stored { file: StoreFile, snapshots: Option<u64> },
}

const NAMES: [&str; 3] = ["plain", "icecore", "icecore_snapshot"];

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(30, 2);
    let slice = options.size(Duration::from_secs(2), Duration::from_millis(200));
    let bytes: u64 = options.size(1 << 30, 16 << 20);
    let folder = options.scratch()?;
    let mut targets = begin(&folder, bytes, options)?;
    let mut random = Random::new(options.seed);
    // Index: thread count first, target second.
    let samples = interleave(rounds, THREADS.len() * NAMES.len(), |round, index| {
        let (threads, target) = (THREADS[index / NAMES.len()], index % NAMES.len());
        let rate = targets[target].run_slice(threads, slice, bytes, random.next_u64())?;
        let name = NAMES[target];
        options.say(&format!(
            "round {} of {rounds}: {name}, {threads} threads: {rate:.0} writes/s",
            round + 1
        ))?;
        Ok(rate)
    })?;
    let mut findings = conclude(&samples, &targets, options.seed)?;
    findings.parameter("rounds", rounds);
    findings.parameter("slice_s", slice.as_secs_f64());
    findings.parameter("file_bytes", bytes);
    findings.parameter("write_bytes", WRITE_BYTES);
    findings.parameter("log_bytes_max", open_options(options).log_bytes_max);
    Ok(findings)
}

fn begin(folder: &TempDir, bytes: u64, options: &Options) -> Result<Vec<Target>> {
    let mut random = Random::new(options.seed);
    let open = open_options(options);
    NAMES
        .iter()
        .map(|&name| {
            options.say(&format!("writing {} MiB: {name}", bytes >> 20))?;
            let path = folder.path().join(name);
            if name == "plain" {
                return Ok(Target::Plain(plain_file(&path, bytes, &mut random)?));
            }
            let file = StoreFile::create_in(&path, &open)?;
            file.fill(bytes, &mut random)?;
            Ok(Target::Stored { file, snapshots: (name == "icecore_snapshot").then_some(0) })
        })
        .collect()
}

/// Allocates the file as one piece, then writes all of it, so that no later write allocates or converts.
fn plain_file(path: &Path, bytes: u64, random: &mut Random) -> Result<File> {
    let doing = || format!("write {}", path.display());
    let file = File::options().read(true).write(true).create_new(true).open(path).doing(doing)?;
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes).doing(doing)?;
    let mut chunk = vec![0; 1 << 20];
    random.fill(&mut chunk);
    for offset in (0..bytes).step_by(chunk.len()) {
        let length = chunk.len().min((bytes - offset) as usize);
        file.write_all_at(&chunk[..length], offset).doing(doing)?;
    }
    file.sync_all().doing(doing)?;
    Ok(file)
}

impl Target {
    /// Writes a second over about `slice`.
    fn run_slice(&mut self, threads: usize, slice: Duration, bytes: u64, seed: u64) -> Result<f64> {
        self.renew_snapshot()?;
        let begin = Instant::now();
        let end = begin + slice;
        let target = &*self;
        let counts: Vec<Result<u64>> = thread::scope(|scope| {
            let writers: Vec<_> = (0..threads as u64)
                .map(|number| scope.spawn(move || target.write_until(end, bytes, Random::new(seed ^ number))))
                .collect();
            let panicked = || Error::Panicked { what: "writing".to_owned() };
            writers.into_iter().map(|writer| writer.join().unwrap_or_else(|_| Err(panicked()))).collect()
        });
        let count: u64 = counts.into_iter().sum::<Result<u64>>()?;
        let end = match self {
            Self::Plain(_) => Instant::now(),
            Self::Stored { file, .. } => file.settle()?,
        };
        Ok(count as f64 / (end - begin).as_secs_f64())
    }

    fn renew_snapshot(&mut self) -> Result<()> {
        let Self::Stored { file, snapshots: Some(taken) } = self else { return Ok(()) };
        let former = (*taken > 0).then(|| format!("{DATASET}@slice-{taken}"));
        *taken += 1;
        file.snapshot(&format!("slice-{taken}"))?;
        if let Some(former) = former {
            file.pool().destroy(&DestroyTarget::Snapshot(former))?;
        }
        file.settle()?;
        Ok(())
    }

    fn write_until(&self, end: Instant, bytes: u64, mut random: Random) -> Result<u64> {
        let mut data = vec![0; WRITE_BYTES];
        random.fill(&mut data);
        let mut count: u64 = 0;
        while Instant::now() < end {
            let offset = random.below(bytes / WRITE_BYTES as u64) * WRITE_BYTES as u64;
            data[..8].copy_from_slice(&count.to_le_bytes());
            self.write_durably(offset, &data)?;
            count += 1;
        }
        Ok(count)
    }

    fn write_durably(&self, offset: u64, data: &[u8]) -> Result<()> {
        match self {
            Self::Plain(file) => {
                file.write_all_at(data, offset).doing(|| "write the plain file".to_owned())?;
                file.sync_data().doing(|| "flush the plain file".to_owned())
            }
            Self::Stored { file, .. } => file.write_durable(offset, data),
        }
    }
}

fn conclude(samples: &[Vec<f64>], targets: &[Target], seed: u64) -> Result<Findings> {
    let mut findings = Findings::default();
    let mut snapshot_ratios = Vec::new();
    for (samples, threads) in samples.chunks(NAMES.len()).zip(THREADS) {
        let [plain, icecore, snapshot] = [0, 1, 2].map(|target: usize| &samples[target]);
        findings.check(Check::new(&format!("randwrite.{threads}"), paired_ratio(icecore, plain, seed)));
        snapshot_ratios.extend(snapshot.iter().zip(icecore).map(|(with, without)| with / without));
        for ((name, samples), target) in NAMES.iter().zip(samples).zip(targets) {
            let counters = match target {
                Target::Plain(_) => Counters::default(),
                Target::Stored { file, .. } => Counters::of(file.pool()),
            };
            let system = System::new("writes/s", samples.clone()).with_counters(counters.into_map());
            findings.system(&format!("{name}_{threads}"), system);
        }
    }
    // One promise for any number of threads: the pairs of both count alike.
    findings.check(Check::new("randwrite.snapshot_cost", bootstrap(&snapshot_ratios, median, seed)));
    Ok(findings)
}
