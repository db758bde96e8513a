//! `many`: 10,000 snapshots with a little change between them.
//!
//! The last 100 are taken in turn with the first 100 of a fresh pool, one by one, so that both meet the same
//! disk; likewise for writes. A round makes both pools anew.

use super::Findings;
use crate::error::Result;
use crate::options::Options;
use crate::pairs::{interleave, order};
use crate::random::Random;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, median, paired_ratio};
use crate::storefile::StoreFile;
use icecore::{ListFilter, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};

const CHANGE_BYTES: usize = 4 << 10;
const WRITE_BYTES: usize = 16 << 10;
const REPEATS: usize = 20;

/// Sizes of one run.
struct Sizes {
    snapshots: usize,
    timed: usize,
    file_bytes: u64,
    rounds: usize,
    write_rounds: usize,
    slice: Duration,
}

/// What the rounds measured, `[none, many]` where both are.
#[derive(Default)]
struct Measured {
    create: [Vec<f64>; 2],
    write: [Vec<f64>; 2],
    list: Vec<f64>,
    open: Vec<f64>,
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let sizes = Sizes {
        snapshots: options.size(10_000, 60),
        timed: options.size(100, 10),
        file_bytes: options.size(256 << 20, 4 << 20),
        rounds: options.size(3, 1),
        write_rounds: options.rounds(30, 2),
        slice: options.size(Duration::from_secs(1), Duration::from_millis(100)),
    };
    let mut measured = Measured::default();
    for round in 0..sizes.rounds {
        options.say(&format!("round {} of {}", round + 1, sizes.rounds));
        run_round(round, &sizes, options, &mut measured)?;
    }
    Ok(conclude(&sizes, measured, options.seed))
}

fn run_round(round: usize, sizes: &Sizes, options: &Options, measured: &mut Measured) -> Result<()> {
    let folder = options.scratch()?;
    let path = folder.path().join("many");
    let mut random = Random::new(options.seed + round as u64);
    let none = Subject::create(&folder.path().join("none"), sizes.file_bytes, &mut random)?;
    let mut many = Subject::create(&path, sizes.file_bytes, &mut random)?;
    options.say(&format!("taking {} snapshots", sizes.snapshots - sizes.timed));
    for _ in sizes.timed..sizes.snapshots {
        many.change_and_snapshot(&mut random)?;
    }
    many.file.settle()?;
    let mut subjects = [Subject::create(&folder.path().join("first"), sizes.file_bytes, &mut random)?, many];
    for snapshot in 0..sizes.timed {
        for subject in order(snapshot, subjects.len()) {
            measured.create[subject].push(subjects[subject].change_and_snapshot(&mut random)?);
        }
    }
    let [first, many] = subjects;
    drop(first);
    options.say("writing");
    let subjects = [none, many];
    let rates = interleave(sizes.write_rounds, subjects.len(), |_, subject| {
        subjects[subject].write_rate(sizes, &mut random)
    })?;
    for (all, rates) in measured.write.iter_mut().zip(rates) {
        all.extend(rates);
    }
    let [none, many] = subjects;
    drop(none);
    options.say("listing and opening");
    for _ in 0..REPEATS {
        measured.list.push(many.list_seconds(sizes)?);
    }
    many.file.pool().close()?;
    drop(many);
    for _ in 0..REPEATS {
        measured.open.push(open_seconds(&path)?);
    }
    Ok(())
}

/// A pool with a file that changes.
struct Subject {
    file: StoreFile,
    bytes: u64,
    taken: u64,
    data: Vec<u8>,
}

impl Subject {
    fn create(folder: &Path, bytes: u64, random: &mut Random) -> Result<Self> {
        let file = StoreFile::create_in(folder, &OpenOptions::default())?;
        file.fill(bytes, random)?;
        let mut data = vec![0; WRITE_BYTES];
        random.fill(&mut data);
        Ok(Self { file, bytes, taken: 0, data })
    }

    /// Changes one block, durably, then takes a snapshot; answers the seconds of the snapshot alone.
    fn change_and_snapshot(&mut self, random: &mut Random) -> Result<f64> {
        let offset = random.below(self.bytes / CHANGE_BYTES as u64) * CHANGE_BYTES as u64;
        self.file.write_durable(offset, &self.data[..CHANGE_BYTES])?;
        self.taken += 1;
        let name = format!("number-{:05}", self.taken);
        let begin = Instant::now();
        self.file.snapshot(&name)?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// Durable 16 KiB writes a second, background work included.
    fn write_rate(&self, sizes: &Sizes, random: &mut Random) -> Result<f64> {
        let begin = Instant::now();
        let mut count = 0;
        while begin.elapsed() < sizes.slice {
            let offset = random.below(self.bytes / WRITE_BYTES as u64) * WRITE_BYTES as u64;
            self.file.write_durable(offset, &self.data)?;
            count += 1;
        }
        let end = self.file.settle()?;
        Ok(f64::from(count) / (end - begin).as_secs_f64())
    }

    fn list_seconds(&self, sizes: &Sizes) -> Result<f64> {
        let filter = ListFilter { snapshots: true, ..ListFilter::default() };
        let begin = Instant::now();
        let entries = self.file.pool().list(&filter)?;
        let seconds = begin.elapsed().as_secs_f64();
        assert!(entries.len() >= sizes.snapshots, "every snapshot is listed");
        Ok(seconds)
    }
}

fn open_seconds(folder: &Path) -> Result<f64> {
    let begin = Instant::now();
    let file = StoreFile::open_in(folder, &OpenOptions::default())?;
    let seconds = begin.elapsed().as_secs_f64();
    file.pool().close()?;
    Ok(seconds)
}

fn conclude(sizes: &Sizes, measured: Measured, seed: u64) -> Findings {
    let mut findings = Findings::default();
    let [first, last] = measured.create;
    findings.check(Check::new("many.create", paired_ratio(&last, &first, seed)));
    let [none, many] = measured.write;
    findings.check(Check::new("many.write", paired_ratio(&many, &none, seed)));
    findings.check(Check::new("many.list_s", bootstrap(&measured.list, median, seed)));
    findings.check(Check::new("many.open_s", bootstrap(&measured.open, median, seed)));
    findings.system("create_first", System::new("s", first));
    findings.system("create_last", System::new("s", last));
    findings.system("write_none", System::new("writes/s", none));
    findings.system("write_many", System::new("writes/s", many));
    findings.system("list", System::new("s", measured.list));
    findings.system("open", System::new("s", measured.open));
    findings.parameter("snapshots", sizes.snapshots);
    findings.parameter("timed", sizes.timed);
    findings.parameter("file_bytes", sizes.file_bytes);
    findings.parameter("rounds", sizes.rounds);
    findings.parameter("write_rounds", sizes.write_rounds);
    findings.parameter("slice_s", sizes.slice.as_secs_f64());
    findings
}
