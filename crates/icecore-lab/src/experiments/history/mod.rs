//! `history`: 100,000 snapshots in one pool, and what they cost: taking one more, listing, opening, memory,
//! and destroying 10,000 of them beside a writer.
//!
//! Snapshots are taken in turn with those of a pool that keeps 100 to a few hundred, one by one, so that both
//! meet the same disk; there is a p99 of each batch. A destruction is over, for the writer beside it, when a
//! checkpoint is durable that records what was freed; the windows before and after have a checkpoint in them,
//! too.

mod destroy;
pub mod idle;

use super::Findings;
use super::snapshots::{Subject, WRITE_BYTES, open_seconds};
use crate::error::Result;
use crate::options::Options;
use crate::pairs::order;
use crate::random::Random;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, median, paired_ratio, quantile};
use icecore::DestroyTarget;
use std::path::Path;
use std::time::Duration;

/// Names of the two pools in the result.
const NAMES: [&str; 2] = ["few", "all"];
const MEBIBYTE: f64 = (1 << 20) as f64;

/// Sizes of one run.
struct Sizes {
    snapshots: u64,
    few: u64,
    /// Snapshots that are timed together, and how often.
    batch: u64,
    batches: usize,
    file_bytes: u64,
    repeats: usize,
    /// Snapshots that are destroyed together, and how often.
    destroyed: u64,
    destructions: usize,
    /// How long writers are watched before and after: about as long as freeing takes, as the disk changes its
    /// speed by a tenth from one second to the next.
    window: Duration,
}

/// What was measured.
#[derive(Default)]
struct Measured {
    /// p99 and median of the batches, of few and of all.
    create_p99: [Vec<f64>; 2],
    create_median: [Vec<f64>; 2],
    list: Vec<f64>,
    open: Vec<f64>,
    resident: Vec<f64>,
    peak: Vec<f64>,
    destroyed: Vec<destroy::Destroyed>,
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let sizes = Sizes {
        snapshots: options.size(100_000, 200),
        few: options.size(100, 10),
        batch: options.size(500, 20),
        batches: options.rounds(12, 2),
        file_bytes: options.size(256 << 20, 4 << 20),
        repeats: options.size(5, 2),
        destroyed: options.size(10_000, 50),
        destructions: options.size(9, 2),
        window: options.size(Duration::from_millis(2500), Duration::from_millis(100)),
    };
    let folder = options.scratch()?;
    let path = folder.path().join(NAMES[1]);
    let mut measured = Measured::default();
    let mut random = Random::new(options.seed);
    let all = fill(&folder.path().join(NAMES[0]), &path, &sizes, options, &mut random, &mut measured)?;
    options.say("listing")?;
    for _ in 0..sizes.repeats {
        measured.list.push(all.list_seconds(sizes.snapshots)?);
    }
    all.file.pool().close()?;
    let taken = all.taken();
    drop(all);
    reopen(&path, &sizes, options, &mut measured)?;
    measured.destroyed = destroy::run(&path, &sizes, taken, options, &mut random)?;
    Ok(conclude(&sizes, &measured, options.seed))
}

/// Makes both pools, and times snapshots in them.
fn fill(
    few: &Path,
    all: &Path,
    sizes: &Sizes,
    options: &Options,
    random: &mut Random,
    measured: &mut Measured,
) -> Result<Subject> {
    let mut subjects =
        [Subject::create(few, sizes.file_bytes, random)?, Subject::create(all, sizes.file_bytes, random)?];
    options.say(&format!("taking {} snapshots", sizes.snapshots))?;
    for (subject, count) in subjects.iter_mut().zip([sizes.few, sizes.snapshots]) {
        subject.take_many(count, random)?;
        subject.file.settle()?;
    }
    for batch in 0..sizes.batches {
        let mut seconds = [Vec::new(), Vec::new()];
        for snapshot in 0..sizes.batch as usize {
            for subject in order(snapshot, subjects.len()) {
                seconds[subject].push(subjects[subject].change_and_snapshot(random)?);
            }
        }
        for (subject, seconds) in seconds.iter().enumerate() {
            measured.create_p99[subject].push(quantile(seconds, 0.99));
            measured.create_median[subject].push(median(seconds));
        }
        // The few stay few.
        let first = batch as u64 * sizes.batch + 1;
        destroy_range(&subjects[0], first, first + sizes.batch - 1)?;
        subjects[0].file.settle()?;
        subjects[1].file.settle()?;
    }
    let [_, all] = subjects;
    Ok(all)
}

fn destroy_range(subject: &Subject, first: u64, last: u64) -> Result<()> {
    subject.file.pool().destroy(&range(first, last))?;
    Ok(())
}

/// Snapshots from one number to another.
fn range(first: u64, last: u64) -> DestroyTarget {
    DestroyTarget::Range {
        dataset: crate::storefile::DATASET.to_owned(),
        first: Subject::name(first),
        last: Subject::name(last),
    }
}

fn reopen(path: &Path, sizes: &Sizes, options: &Options, measured: &mut Measured) -> Result<()> {
    options.say("opening")?;
    for _ in 0..sizes.repeats {
        measured.open.push(open_seconds(path)?);
        let memory = idle::measure(options, path)?;
        measured.resident.push(memory.resident_bytes as f64 / MEBIBYTE);
        measured.peak.push(memory.peak_bytes as f64 / MEBIBYTE);
    }
    Ok(())
}

fn conclude(sizes: &Sizes, measured: &Measured, seed: u64) -> Findings {
    let mut findings = Findings::default();
    let [few, all] = &measured.create_p99;
    let of = |value: fn(&destroy::Destroyed) -> f64| measured.destroyed.iter().map(value).collect::<Vec<_>>();
    findings.check(Check::new("history.create_p99", paired_ratio(all, few, seed)));
    findings.check(Check::new("history.list_s", bootstrap(&measured.list, median, seed)));
    findings.check(Check::new("history.open_s", bootstrap(&measured.open, median, seed)));
    findings.check(Check::new("history.destroy_s", bootstrap(&of(|one| one.seconds), median, seed)));
    findings.check(Check::new("history.writers", bootstrap(&of(destroy::Destroyed::ratio), median, seed)));
    findings.check(Check::new("history.rss_mib", bootstrap(&measured.resident, median, seed)));
    for (index, name) in NAMES.iter().enumerate() {
        let system = System::new("s", measured.create_p99[index].clone())
            .with_series("median_s", vec![measured.create_median[index].clone()]);
        findings.system(&format!("create_{name}"), system);
    }
    findings.system("list", System::new("s", measured.list.clone()));
    findings.system("open", System::new("s", measured.open.clone()));
    findings.system("resident", System::new("MiB", measured.resident.clone()));
    findings.system("peak", System::new("MiB", measured.peak.clone()));
    findings.system("destroy", System::new("s", of(|one| one.seconds)));
    findings.system("freed_after", System::new("s", of(|one| one.freed_after)));
    findings.system("longest_write", System::new("s", of(|one| one.longest)));
    for (name, rates) in [
        ("writes_before", of(|one| one.before)),
        ("writes_meanwhile", of(|one| one.meanwhile)),
        ("writes_after", of(|one| one.after)),
    ] {
        findings.system(name, System::new("writes/s", rates));
    }
    findings.parameter("snapshots", sizes.snapshots);
    findings.parameter("few", sizes.few);
    findings.parameter("batch", sizes.batch);
    findings.parameter("batches", sizes.batches);
    findings.parameter("file_bytes", sizes.file_bytes);
    findings.parameter("write_bytes", WRITE_BYTES);
    findings.parameter("destroyed", sizes.destroyed);
    findings.parameter("window_s", sizes.window.as_secs_f64());
    findings
}
