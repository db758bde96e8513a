//! What a writer feels of collection.

use super::{GROUP_WRITES, LIVE_SHARE, WRITE_BYTES};
use crate::counters::Counters;
use crate::error::{Doing, Error, Result};
use crate::experiments::Findings;
use crate::options::Options;
use crate::pairs::interleave;
use crate::random::Random;
use crate::report::{Check, System};
use crate::statistics::{paired_ratio, quantile};
use crate::storefile::{DATASET, StoreFile};
use icecore::storage::RealStorage;
use icecore::units::{BLOCK_BYTES, ByteLength};
use icecore::{DestroyTarget, InitOptions, OpenOptions};
use icecore_sim::SlowStorage;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NAMES: [&str; 6] =
    ["full", "half_empty", "no_snapshots", "snapshots", "full_flush_bound", "half_empty_flush_bound"];
/// What a flush takes at least where that is what binds the writer: a disk that answers it from its memory is
/// bound by bytes.
const SLOW_FLUSH: Duration = Duration::from_millis(1);
const SNAPSHOTS: u64 = 1000;
/// Writes between two of those snapshots that stay for as long as it is measured.
const CHANGE_WRITES: u64 = 4;
/// Nodes that such a snapshot keeps: a leaf for each write, and those above them.
const CHANGE_NODES: u64 = 8;
/// Where writes go while snapshots rotate, at most: what a snapshot that comes or goes keeps.
const ROTATION_BYTES: u64 = 4 << 20;
/// What snapshots that come or go keep together, of all segments, at most.
const ROTATING_SHARE: f64 = 0.12;
/// From one rotation of a snapshot to the next.
const ROTATION: Duration = Duration::from_secs(1);

struct Target {
    file: StoreFile,
    bytes: u64,
    /// Bytes from the beginning that are written over while it is measured.
    measured: u64,
    /// The oldest snapshot, and the number of the next.
    snapshots: Option<(u64, u64)>,
}

/// The snapshots that rotate. Each that goes keeps as much as each that comes, so that the pool is as full in
/// the last round as in the first, however many rounds there are.
#[derive(Clone, Copy)]
struct Rotating {
    /// Snapshots, all together.
    count: u64,
    /// How many of them, the oldest, will have gone by the end.
    going: u64,
    /// What each of those keeps, and each that comes: bytes that are written over again and again.
    bytes: u64,
}

impl Rotating {
    fn new(options: &Options, pool_bytes: u64, rounds: usize, slice: Duration) -> Self {
        let count = options.size(SNAPSHOTS, 20);
        let in_slice = slice.as_secs_f64().div_euclid(ROTATION.as_secs_f64()) as u64 + 1;
        let going = (rounds as u64 * in_slice).clamp(1, count);
        let most = (pool_bytes as f64 * ROTATING_SHARE) as u64 / going;
        let bytes = ROTATION_BYTES.min(most) / WRITE_BYTES * WRITE_BYTES;
        Self { count, going, bytes: bytes.max(WRITE_BYTES) }
    }

    /// Bytes that only snapshots keep, at any time.
    fn kept_bytes(self) -> u64 {
        let of_one = CHANGE_WRITES * WRITE_BYTES + CHANGE_NODES * BLOCK_BYTES as u64;
        self.going * self.bytes + (self.count - self.going) * of_one
    }
}

/// Groups made durable in one slice.
struct Slice {
    groups_per_s: f64,
    seconds: Vec<f64>,
}

pub(super) fn run(options: &Options, findings: &mut Findings) -> Result<()> {
    let rounds = options.rounds(20, 2);
    let slice = options.size(Duration::from_millis(1500), Duration::from_millis(200));
    let pool_bytes: u64 = options.size(2 << 30, 160 << 20);
    let folder = options.scratch()?;
    let mut random = Random::new(options.seed);
    let rotating = Rotating::new(options, pool_bytes, rounds, slice);
    let mut targets = Vec::new();
    for name in NAMES {
        targets.push(begin(&folder.path().join(name), name, pool_bytes, rotating, options, &mut random)?);
    }
    used_shares("begin", &targets, pool_bytes, findings);
    let samples = interleave(rounds, NAMES.len(), |round, index| {
        let result = targets[index].run_slice(slice, random.next_u64())?;
        options.say(&format!(
            "round {} of {rounds}: {}: {:.0} groups/s, p99 {:.2} ms, {}",
            round + 1,
            NAMES[index],
            result.groups_per_s,
            quantile(&result.seconds, 0.99) * 1e3,
            targets[index].file.pool().statistics().collector,
        ))?;
        Ok(result)
    })?;
    findings.parameter("foreground_pool_bytes", pool_bytes);
    findings.parameter("foreground_rounds", rounds);
    findings.parameter("foreground_slice_s", slice.as_secs_f64());
    findings.parameter("flush_bound_flush_s", SLOW_FLUSH.as_secs_f64());
    findings.parameter("snapshots", rotating.count);
    findings.parameter("snapshots_going", rotating.going);
    findings.parameter("snapshots_rotation_bytes", rotating.bytes);
    used_shares("end", &targets, pool_bytes, findings);
    conclude(&samples, &targets, options.seed, findings);
    Ok(())
}

/// What versions reach, of the pool, with snapshots and without, at a moment: they have to be alike.
fn used_shares(moment: &str, targets: &[Target], pool_bytes: u64, findings: &mut Findings) {
    for index in [2, 3] {
        let share = targets[index].file.pool().statistics().used_bytes as f64 / pool_bytes as f64;
        findings.parameter(&format!("{}_used_share_at_{moment}", NAMES[index]), share);
    }
}

fn begin(
    folder: &Path,
    name: &str,
    pool_bytes: u64,
    rotating: Rotating,
    options: &Options,
    random: &mut Random,
) -> Result<Target> {
    let init = InitOptions {
        segment_bytes: options.size(16 << 20, 2 << 20),
        size_limit: Some(ByteLength(pool_bytes)),
        ..InitOptions::default()
    };
    let open = OpenOptions::default();
    let share = if name.starts_with("half_empty") { 0.4 } else { LIVE_SHARE - options.size(0.01, 0.2) };
    let kept = if name == "snapshots" { rotating.kept_bytes() } else { 0 };
    let bytes = ((pool_bytes as f64 * share) as u64 - kept) / WRITE_BYTES * WRITE_BYTES;
    options.say(&format!("{name}: writing {} MiB, and over it", bytes >> 20))?;
    let file = if name.ends_with("flush_bound") {
        StoreFile::create_with(slow_to_flush(folder)?, &init, &open)?
    } else {
        StoreFile::create_in_with(folder, &init, &open)?
    };
    file.fill(bytes, random)?;
    let measured = if name.ends_with("snapshots") { bytes.min(rotating.bytes) } else { bytes };
    let mut target = Target { file, bytes, measured, snapshots: None };
    // So that what is overwritten is scattered, and every segment has been used.
    target.write_over(options.size(bytes * 2, bytes), random)?;
    if name == "snapshots" {
        target.take_snapshots(rotating, random)?;
    }
    Ok(target)
}

/// A new folder, where flushes take as long as they are meant to.
fn slow_to_flush(folder: &Path) -> Result<Arc<SlowStorage<RealStorage>>> {
    let real = std::fs::create_dir(folder).and_then(|()| RealStorage::new(folder));
    let real = real.doing(|| format!("make {}", folder.display()))?;
    Ok(Arc::new(SlowStorage::new(Arc::new(real), SLOW_FLUSH)))
}

impl Target {
    fn write_over(&self, bytes: u64, random: &mut Random) -> Result<()> {
        let mut data = vec![0; WRITE_BYTES as usize];
        random.fill(&mut data);
        for number in 0..bytes / WRITE_BYTES {
            self.file.write(random.below(self.bytes / WRITE_BYTES) * WRITE_BYTES, &data)?;
            if number % 256 == 255 {
                self.file.sync()?;
            }
        }
        self.file.sync()
    }

    /// Those that will go first, each of which keeps what is measured as it was at its time; the others keep
    /// little.
    fn take_snapshots(&mut self, rotating: Rotating, random: &mut Random) -> Result<()> {
        let mut data = vec![0; WRITE_BYTES as usize];
        random.fill(&mut data);
        for number in 0..rotating.count {
            self.file.snapshot(&number.to_string())?;
            if number < rotating.going {
                for offset in (0..self.measured).step_by(WRITE_BYTES as usize) {
                    self.file.write(offset, &data)?;
                }
                self.file.sync()?;
            } else {
                self.write_over(CHANGE_WRITES * WRITE_BYTES, random)?;
            }
        }
        self.snapshots = Some((0, rotating.count));
        Ok(())
    }

    fn run_slice(&mut self, slice: Duration, seed: u64) -> Result<Slice> {
        let done = AtomicBool::new(false);
        let (file, bytes) = (&self.file, self.measured);
        let mut snapshots = self.snapshots;
        let outcome = thread::scope(|scope| {
            let rotation = snapshots.as_mut().map(|snapshots| {
                let done = &done;
                scope.spawn(move || rotate(file, snapshots, done))
            });
            let outcome = write_groups(file, bytes, slice, Random::new(seed));
            done.store(true, Ordering::Relaxed);
            let rotated = rotation.map_or(Ok(Ok(())), |thread| thread.join());
            rotated.unwrap_or_else(|_| Err(Error::Panicked { what: "rotating snapshots".to_owned() }))?;
            outcome
        });
        self.snapshots = snapshots;
        outcome
    }
}

fn write_groups(file: &StoreFile, bytes: u64, slice: Duration, mut random: Random) -> Result<Slice> {
    let mut data = vec![0; WRITE_BYTES as usize];
    random.fill(&mut data);
    let mut seconds = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < slice {
        let group = Instant::now();
        for _ in 0..GROUP_WRITES {
            file.write(random.below(bytes / WRITE_BYTES) * WRITE_BYTES, &data)?;
        }
        file.sync()?;
        seconds.push(group.elapsed().as_secs_f64());
    }
    Ok(Slice { groups_per_s: seconds.len() as f64 / begin.elapsed().as_secs_f64(), seconds })
}

/// The oldest out, a new one in.
fn rotate(file: &StoreFile, snapshots: &mut (u64, u64), done: &AtomicBool) -> Result<()> {
    let mut next = Instant::now();
    while !done.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            let (oldest, new) = *snapshots;
            file.snapshot(&new.to_string())?;
            file.pool().destroy(&DestroyTarget::Snapshot(format!("{DATASET}@{oldest}")))?;
            *snapshots = (oldest + 1, new + 1);
            next += ROTATION;
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn conclude(samples: &[Vec<Slice>], targets: &[Target], seed: u64, findings: &mut Findings) {
    let rates =
        |index: usize| -> Vec<f64> { samples[index].iter().map(|slice| slice.groups_per_s).collect() };
    let p99 = |index: usize| -> Vec<f64> {
        samples[index].iter().map(|slice| quantile(&slice.seconds, 0.99)).collect()
    };
    findings.check(Check::new("collect.throughput", paired_ratio(&rates(0), &rates(1), seed)));
    findings.check(Check::new("collect.flush_bound", paired_ratio(&rates(4), &rates(5), seed)));
    findings.check(Check::new("collect.p99", paired_ratio(&p99(0), &p99(1), seed)));
    findings.check(Check::new("collect.snapshots", paired_ratio(&rates(3), &rates(2), seed)));
    for (index, name) in NAMES.iter().enumerate() {
        let counters = Counters::of(targets[index].file.pool());
        let system = System::new("groups/s", rates(index))
            .with_series("p99_s", vec![p99(index)])
            .with_counters(counters.into_map());
        findings.system(name, system);
    }
}
