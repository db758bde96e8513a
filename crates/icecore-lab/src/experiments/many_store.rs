//! `many-store`: 10,000 snapshots with a little change between them.
//!
//! The last 100 are taken in turn with the first 100 of a fresh pool, one by one, so that both meet the same
//! disk; likewise for writes. A round makes both pools anew.

use super::Findings;
use super::snapshots::{Subject, open_seconds};
use crate::error::Result;
use crate::options::Options;
use crate::pairs::{interleave, order};
use crate::random::Random;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, median, paired_ratio};
use std::time::Duration;

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
        options.say(&format!("round {} of {}", round + 1, sizes.rounds))?;
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
    options.say(&format!("taking {} snapshots", sizes.snapshots - sizes.timed))?;
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
    options.say("writing")?;
    let subjects = [none, many];
    let rates = interleave(sizes.write_rounds, subjects.len(), |_, subject| {
        subjects[subject].write_rate(sizes.slice, &mut random)
    })?;
    for (all, rates) in measured.write.iter_mut().zip(rates) {
        all.extend(rates);
    }
    let [none, many] = subjects;
    drop(none);
    options.say("listing and opening")?;
    for _ in 0..REPEATS {
        measured.list.push(many.list_seconds(sizes.snapshots as u64)?);
    }
    many.file.pool().close()?;
    drop(many);
    for _ in 0..REPEATS {
        measured.open.push(open_seconds(&path)?);
    }
    Ok(())
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
