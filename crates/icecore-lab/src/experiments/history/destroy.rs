//! Destroying many snapshots beside a writer.

use super::super::snapshots::Subject;
use super::{Sizes, range};
use crate::error::{Error, Result};
use crate::options::Options;
use crate::random::Random;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether everything is freed.
const POLL: Duration = Duration::from_millis(20);

/// One destruction.
pub(super) struct Destroyed {
    /// Until the call returned.
    pub seconds: f64,
    /// From the call until a checkpoint was durable that records all that was freed.
    pub freed_after: f64,
    /// Writes a second before, from the call until that checkpoint, and after it.
    pub before: f64,
    pub meanwhile: f64,
    pub after: f64,
    /// The longest that one write took meanwhile.
    pub longest: f64,
}

impl Destroyed {
    /// Writers' speed meanwhile, against before and after.
    pub(super) fn ratio(&self) -> f64 {
        self.meanwhile / ((self.before + self.after) / 2.0)
    }
}

/// What the writer has done since it was asked last.
#[derive(Default)]
struct Tally {
    writes: u64,
    longest: f64,
}

pub(super) fn run(
    path: &Path,
    sizes: &Sizes,
    taken: u64,
    options: &Options,
    random: &mut Random,
) -> Result<Vec<Destroyed>> {
    let subject = Subject::reopen(path, taken)?;
    let done = AtomicBool::new(false);
    let tally = Mutex::new(Tally::default());
    let mut own = Random::new(random.next_u64());
    thread::scope(|scope| {
        let writer = scope.spawn(|| write(&subject, &mut own, &tally, &done));
        let outcome = (0..sizes.destructions as u64)
            .map(|round| {
                let outcome = destroy(&subject, sizes, round, &tally)?;
                options.say(&format!(
                    "destroyed {} in {:.3} s, freed after {:.2} s, writes/s {:.0}, {:.0}, {:.0}",
                    sizes.destroyed,
                    outcome.seconds,
                    outcome.freed_after,
                    outcome.before,
                    outcome.meanwhile,
                    outcome.after
                ))?;
                Ok(outcome)
            })
            .collect::<Result<Vec<_>>>();
        done.store(true, Ordering::Relaxed);
        let written = writer.join().unwrap_or_else(|_| Err(Error::Panicked { what: "writing".to_owned() }));
        written.and(outcome)
    })
}

fn write(subject: &Subject, random: &mut Random, tally: &Mutex<Tally>, done: &AtomicBool) -> Result<()> {
    while !done.load(Ordering::Relaxed) {
        let begin = Instant::now();
        subject.write_once(random)?;
        let seconds = begin.elapsed().as_secs_f64();
        let mut tally = tally.lock().expect("no thread panics with it");
        tally.writes += 1;
        tally.longest = tally.longest.max(seconds);
    }
    Ok(())
}

fn destroy(subject: &Subject, sizes: &Sizes, round: u64, tally: &Mutex<Tally>) -> Result<Destroyed> {
    let take = || std::mem::take(&mut *tally.lock().expect("no thread panics with it"));
    let pool = subject.file.pool();
    let watch = || -> Result<f64> {
        take();
        let begin = Instant::now();
        pool.checkpoint()?;
        thread::sleep(sizes.window.saturating_sub(begin.elapsed()));
        Ok(take().writes as f64 / begin.elapsed().as_secs_f64())
    };
    let before = watch()?;
    let begin = Instant::now();
    pool.destroy(&range(1 + round * sizes.destroyed, (round + 1) * sizes.destroyed))?;
    let seconds = begin.elapsed().as_secs_f64();
    while is_freeing(subject) {
        thread::sleep(POLL);
    }
    pool.checkpoint()?;
    let freed_after = begin.elapsed().as_secs_f64();
    let tally = take();
    let meanwhile = tally.writes as f64 / freed_after;
    Ok(Destroyed { seconds, freed_after, before, meanwhile, after: watch()?, longest: tally.longest })
}

/// Whether destroyed versions wait for their blocks to be freed.
fn is_freeing(subject: &Subject) -> bool {
    let counters = subject.file.pool().statistics().counters();
    counters.into_iter().any(|(name, value)| name == "freeing_versions" && value > 0)
}
