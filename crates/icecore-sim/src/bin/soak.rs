//! Lives of pools, one after the other and several at a time, for as long as one wants: `make soak`.
//!
//! `soak [--seconds N] [--lives N] [--seed N] [--jobs N] [--threaded PERCENT] [--keep FOLDER]`. A failure
//! names the seed of its life; `--seed N --lives 1` repeats it, with the same `--threaded`. It cannot repeat
//! a life of a pool with threads: `--threaded` is the percentage of these. So a failure reports what there is
//! to report. With `--keep` the files of the pool are kept in the folder, under the seed.

use icecore_sim::Random;
use icecore_sim::lives::{Deeds, Footprint, THREADED_PERCENT, live_guarded};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often it says how far it is.
const INTERVAL: Duration = Duration::from_secs(15);

struct Plan {
    seconds: u64,
    lives: u64,
    seed: Option<u64>,
    jobs: u64,
    threaded: u64,
    keep: Option<PathBuf>,
}

struct Run {
    plan: Plan,
    first: u64,
    begin: Instant,
    begun: AtomicU64,
    failed: AtomicBool,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    deeds: Deeds,
    samples: Vec<Footprint>,
    last: Option<Instant>,
}

fn main() -> ExitCode {
    let plan = match plan(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(text) => {
            eprintln!(
                "{text}\nusage: soak [--seconds N] [--lives N] [--seed N] [--jobs N] [--threaded PERCENT] [--keep FOLDER]"
            );
            return ExitCode::from(2);
        }
    };
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let first = plan.seed.unwrap_or_else(|| now.map_or(1, |now| now.as_secs()));
    println!("lives from seed {first} on, {} at a time, for {} seconds at most", plan.jobs, plan.seconds);
    let run = Run {
        plan,
        first,
        begin: Instant::now(),
        begun: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        progress: Mutex::default(),
    };
    std::thread::scope(|scope| {
        for _ in 0..run.plan.jobs {
            scope.spawn(|| work(&run));
        }
    });
    let progress = run.progress.into_inner().expect("no thread panics while it is locked");
    println!("{} seconds: {}", run.begin.elapsed().as_secs(), progress.deeds);
    if let Some(growth) = Footprint::growth(&progress.samples) {
        eprintln!("{growth}");
        return ExitCode::FAILURE;
    }
    if run.failed.into_inner() { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn plan(mut arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let jobs = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    let mut plan =
        Plan { seconds: 60, lives: u64::MAX, seed: None, jobs, threaded: THREADED_PERCENT, keep: None };
    while let Some(name) = arguments.next() {
        let value = arguments.next();
        if name == "--keep" {
            plan.keep = Some(value.ok_or("--keep wants a folder")?.into());
            continue;
        }
        let value = value.and_then(|text| text.parse().ok());
        let value: u64 = value.ok_or_else(|| format!("{name} wants a number"))?;
        match name.as_str() {
            "--seconds" => plan.seconds = value,
            "--lives" => plan.lives = value,
            "--seed" => plan.seed = Some(value),
            "--threaded" => plan.threaded = value.min(100),
            "--jobs" => plan.jobs = value.max(1),
            _ => return Err(format!("{name} is unknown")),
        }
    }
    Ok(plan)
}

fn work(run: &Run) {
    while run.begin.elapsed().as_secs() < run.plan.seconds && !run.failed.load(Ordering::Relaxed) {
        let number = run.begun.fetch_add(1, Ordering::Relaxed);
        if number >= run.plan.lives {
            break;
        }
        // The first life is that of the seed itself, so that one can be repeated alone.
        let seed =
            if number == 0 { run.first } else { Random::new(run.first.wrapping_add(number)).next() >> 16 };
        match live_guarded(seed, run.plan.threaded, run.plan.keep.as_deref()) {
            Ok(deeds) => tell(run, deeds),
            Err(text) => {
                eprintln!(
                    "the life of seed {seed} failed: {text}\nto repeat it alone: soak --seed {seed} --lives 1 --threaded {}",
                    run.plan.threaded
                );
                run.failed.store(true, Ordering::Relaxed);
            }
        }
    }
}

fn tell(run: &Run, deeds: Deeds) {
    let mut progress = run.progress.lock().expect("no thread panics while it is locked");
    progress.deeds += deeds;
    let footprint = Footprint::now();
    progress.samples.extend(footprint);
    if progress.last.is_none_or(|last| last.elapsed() >= INTERVAL) {
        progress.last = Some(Instant::now());
        let footprint = footprint.map_or_else(String::new, |footprint| footprint.to_string());
        println!("{:>6} s: {}; {footprint}", run.begin.elapsed().as_secs(), progress.deeds);
    }
}
