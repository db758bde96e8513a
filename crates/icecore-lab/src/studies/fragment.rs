//! `fragment`: what random updates after a snapshot do to a file, after "Btrfs against LVM + ext4" (2015),
//! experiment 1.
//!
//! A file is filled by eight workers, 4,000 bytes at a time, and read from beginning to end. A snapshot is
//! taken, and so many places are updated at random as in the study, in proportion to the size of the file.
//! The file and its snapshot are then read. The caches are empty before the updates, and before each reading.

use super::{Bench, Lineup, Needs, RIVAL, SUBJECT, rounds_of};
use crate::device::in_threads;
use crate::driving;
use crate::error::{Doing, Result};
use crate::experiments::Findings;
use crate::fio::{FileRun, Until};
use crate::options::Options;
use crate::programs;
use crate::random::Random;
use crate::report::{Check, System as Measured};
use crate::statistics::{mean, paired_ratio};
use crate::systems::{Areas, Kind};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Instant;

const BLOCK_BYTES: u64 = 4000;
const WORKERS: u64 = 8;
/// Of the study: 250,000 updates of 100 GB.
const BYTES_PER_UPDATE: u64 = 400_000;
const READ_BYTES: usize = 1 << 20;
const NAME: &str = "file";
/// Every phase, in its order.
const PHASES: [&str; 5] = ["fill", "read-before", "update", "read", "read-snapshot"];

/// How much is done.
struct Scope {
    bytes: u64,
    updates: u64,
    device_bytes: u64,
}

impl Scope {
    fn of(options: &Options) -> Self {
        let quick = if cfg!(debug_assertions) { 8 << 20 } else { 256 << 20 };
        let bytes = options.size.unwrap_or(options.size(2 << 30, quick));
        Self {
            bytes,
            updates: (bytes / BYTES_PER_UPDATE / WORKERS).max(1) * WORKERS,
            device_bytes: bytes.saturating_mul(2).saturating_add(1 << 30),
        }
    }
}

/// Seconds and extents of one round.
#[derive(Default)]
struct Round {
    seconds: BTreeMap<&'static str, f64>,
    /// Before and after the updates, where the system says.
    extents: Option<(u64, u64)>,
    space_bytes: f64,
}

/// Bytes that the study needs at the same time, without copy areas of LVM.
pub(crate) fn room(options: &Options) -> u64 {
    Scope::of(options).device_bytes
}

pub(crate) fn run(options: &Options) -> Result<Findings> {
    programs::require("fragment", "")?;
    let mut lineup = Lineup::of(options, Needs::Files)?;
    let (scope, rounds) = (Scope::of(options), options.rounds(3, 1));
    let areas = Areas { count: 1, bytes: scope.bytes / 4 * 5 };
    lineup.require_room(room(options), areas, options)?;
    let measured = lineup.measure(rounds, options, |round, kind| {
        let mut bench = Bench::begin(kind, scope.device_bytes, areas, options)?;
        let seed = options.seed + round as u64;
        let round = bench.attempt(kind, |bench| one(bench, kind, &scope, seed, options))?;
        let extents = round.extents.map_or_else(String::new, |(before, after)| {
            format!(", {before} extents before and {after} after the updates")
        });
        options.say(&format!("  {}: {:.3?}{extents}", kind.name, round.seconds))?;
        Ok(round)
    })?;
    let mut findings = Findings::default();
    lineup.report(&mut findings, "s");
    if let (Some(ours), Some(rival)) = (rounds_of(&measured, SUBJECT), rounds_of(&measured, RIVAL)) {
        for (check, phase) in [("fragment.update_vs_btrfs", "update"), ("fragment.scan_vs_btrfs", "read")] {
            let seconds =
                |rounds: &[Round]| -> Vec<f64> { rounds.iter().map(|round| round.seconds[phase]).collect() };
            findings.check(Check::new(check, paired_ratio(&seconds(ours), &seconds(rival), options.seed)));
        }
    }
    for (kind, rounds) in &measured {
        report(&mut findings, kind, rounds);
    }
    findings.parameter("rounds", rounds);
    findings.parameter("file_bytes", scope.bytes);
    findings.parameter("updates", scope.updates);
    findings.parameter("block_bytes", BLOCK_BYTES);
    findings.parameter("workers", WORKERS);
    driving::report(&mut findings, Some(driving::overhead_us(BLOCK_BYTES, options)?));
    Ok(findings)
}

fn one(bench: &mut Bench, kind: &Kind, scope: &Scope, seed: u64, options: &Options) -> Result<Round> {
    let mut round = Round::default();
    let file = bench.system.data()?.join(NAME);
    let begin = Instant::now();
    fill(&file, scope.bytes, seed, options)?;
    round.seconds.insert("fill", begin.elapsed().as_secs_f64());
    bench.system.rest()?;
    let before = bench.system.extents(NAME, options)?;
    bench.system.cool()?;
    round.seconds.insert("read-before", read(&file)?);
    options.go_on()?;
    if kind.snapshots {
        bench.system.snapshot("filled")?;
    }
    bench.system.cool()?;
    round.seconds.insert("update", update(&file, scope, seed)?);
    bench.system.rest()?;
    round.space_bytes = bench.system.space_bytes()? as f64;
    round.extents = before.zip(bench.system.extents(NAME, options)?);
    options.go_on()?;
    bench.system.cool()?;
    round.seconds.insert("read", read(&file)?);
    if kind.snapshots {
        options.go_on()?;
        bench.system.cool()?;
        let past = bench.system.snapshot_folder("filled")?.join(NAME);
        round.seconds.insert("read-snapshot", read(&past)?);
    }
    Ok(round)
}

fn fill(file: &Path, bytes: u64, seed: u64, options: &Options) -> Result<()> {
    let fill = FileRun {
        file,
        bytes,
        how: "write",
        block: BLOCK_BYTES,
        direct: false,
        jobs: WORKERS,
        sync_every: 0,
        rate: None,
        until: Until::End,
        seed,
        log: None,
        record: None,
    };
    fill.drive(options).map(|_| ())
}

/// The seconds until all updates are durable.
fn update(path: &Path, scope: &Scope, seed: u64) -> Result<f64> {
    let doing = || format!("update {}", path.display());
    let file = File::options().write(true).open(path).doing(doing)?;
    let blocks = scope.bytes / BLOCK_BYTES;
    let begin = Instant::now();
    in_threads(WORKERS as usize, |number| {
        let mut random = Random::new(seed ^ (number << 32));
        let mut data = vec![0; BLOCK_BYTES as usize];
        let updates = scope.updates / WORKERS;
        for _ in 0..updates {
            random.fill(&mut data[..BLOCK_BYTES as usize / 2]);
            file.write_all_at(&data, random.below(blocks) * BLOCK_BYTES).doing(doing)?;
        }
        Ok(updates)
    })?;
    file.sync_all().doing(doing)?;
    Ok(begin.elapsed().as_secs_f64())
}

/// The seconds to read a file from beginning to end.
fn read(path: &Path) -> Result<f64> {
    let doing = || format!("read {}", path.display());
    let mut file = File::open(path).doing(doing)?;
    let mut chunk = vec![0; READ_BYTES];
    let begin = Instant::now();
    while file.read(&mut chunk).doing(doing)? > 0 {}
    Ok(begin.elapsed().as_secs_f64())
}

fn report(findings: &mut Findings, kind: &Kind, rounds: &[Round]) {
    for phase in PHASES {
        let seconds: Vec<f64> = rounds.iter().filter_map(|round| round.seconds.get(phase)).copied().collect();
        if seconds.is_empty() {
            continue;
        }
        let mut counters = BTreeMap::new();
        if phase == "read" {
            let all = rounds.iter().filter_map(|round| round.extents);
            let (before, after): (Vec<f64>, Vec<f64>) =
                all.map(|(before, after)| (before as f64, after as f64)).unzip();
            if !before.is_empty() {
                counters.insert("extents_before".to_owned(), mean(&before));
                counters.insert("extents_after".to_owned(), mean(&after));
            }
            let space: Vec<f64> = rounds.iter().map(|round| round.space_bytes).collect();
            counters.insert("space_bytes".to_owned(), mean(&space));
        }
        findings
            .system(&format!("{}/{phase}", kind.name), Measured::new("s", seconds).with_counters(counters));
    }
}
