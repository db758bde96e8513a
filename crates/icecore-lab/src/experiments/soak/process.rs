//! The process that soaks: one pool, open all the time, in cycles of work and rest.

use super::pieces::{PIECE_BYTES, Pieces};
use super::sample::{Deeds, Sample};
use super::snapshots::Rotation;
use super::{branches, database, snapshots, watch};
use crate::counters::Counters;
use crate::error::{Doing, Error, Result, STORED};
use crate::random::Random;
use crate::settle::settle;
use icecore::units::ByteLength;
use icecore::{DestroyTarget, EntryKind, InitOptions, ListFilter, OpenOptions, Pool};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// What is written over at a time, and how often: some two MiB a second.
const GROUP_PIECES: usize = 8;
const PACE: Duration = Duration::from_millis(62);
/// Of a cycle, so much is work; the rest is for coming to rest.
const WORK_SHARE: f64 = 0.85;
/// Two seconds after the last write, collection tidies up. It has to have begun before the test looks whether
/// it is done.
const IDLE: Duration = Duration::from_millis(2500);
/// Longer than freeing takes; then something is wrong.
const PATIENCE: Duration = Duration::from_secs(120);
/// Where the pool does not take what it may after so many times the length of the large file, it never will.
const FILL_ROUNDS_MAX: u64 = 4;
const POLL: Duration = Duration::from_millis(5);
/// Threads that read the past.
const READERS: usize = 2;
const PLAIN: &str = "soak/plain";
/// What stands in the paths of the database for the pool.
const NAME: &str = "soak";

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Soak {
    /// The pool's folder, which does not exist yet.
    pub folder: PathBuf,
    /// Where second copies go. In the pool's folder they would count in its limit, and where a pool is as
    /// full as this one, some would be missing: a scrub says so, and is to have nothing to say.
    pub mirror: PathBuf,
    /// How long to go on.
    pub duration: Duration,
    /// How long a cycle is.
    pub cycle: Duration,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// What the pool may take.
    pub pool_bytes: u64,
    /// The file that groups overwrite.
    pub plain_bytes: u64,
    /// The file that is cloned and rolled back.
    pub base_bytes: u64,
    /// Entries in the database.
    pub rows: u32,
    /// Seed of all that is random.
    pub seed: u64,
}

/// What the process says, a line of JSON each.
#[derive(Serialize, Deserialize)]
pub(super) enum Line {
    Cycle(Sample),
    Done(Deeds),
    Failed(String),
}

/// What a worker needs to know in one cycle.
pub(super) struct Turn<'cycle> {
    pub pool: &'cycle Pool,
    pub folder: &'cycle Path,
    /// What paths of databases begin with.
    pub prefix: &'cycle str,
    pub cycle: u64,
    pub random: Random,
    pub rotation: &'cycle Rotation,
    until: Instant,
    next: Instant,
    failed: &'cycle AtomicBool,
}

/// Does its part of the work of a cycle, and says what.
type Worker<'cycle> = Box<dyn FnOnce(&mut Turn<'_>) -> Result<Deeds> + Send + 'cycle>;

impl Turn<'_> {
    /// Waits until it is time for the next deed, one for each `pace`; false when the cycle is over, or
    /// something failed. Who is late does not hurry.
    pub(super) fn goes_on(&mut self, pace: Duration) -> bool {
        let now = Instant::now();
        let at = self.next.max(now);
        self.next = at + pace;
        thread::sleep(at.min(self.until).saturating_duration_since(now));
        !self.is_over()
    }

    /// Until the cycle is over.
    pub(super) fn remaining(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until || self.failed.load(Ordering::Relaxed)
    }
}

/// Runs in the process of its own. What goes wrong is said to the process that started it, which has no other
/// way to know.
pub(crate) fn serve(soak: &Soak) -> Result<()> {
    let outcome = live(soak);
    let line = match &outcome {
        Ok(deeds) => Line::Done(deeds.clone()),
        Err(error) => Line::Failed(error.to_string()),
    };
    say(&line)?;
    outcome.map(drop)
}

/// If no process listens any more, this fails, and the process ends.
fn say(line: &Line) -> Result<()> {
    let failure = |reason: String| Error::Child { job: "soaking".to_owned(), reason };
    let text = serde_json::to_string(line).map_err(|error| failure(error.to_string()))?;
    println!("\n{text}");
    Ok(())
}

fn live(soak: &Soak) -> Result<Deeds> {
    let mut life = Life::begin(soak)?;
    let begin = Instant::now();
    let mut cycle = 0;
    while begin.elapsed() < soak.duration || cycle < u64::from(super::CYCLES_MIN) {
        cycle += 1;
        let sample = life.cycle(cycle).map_err(|error| error.of_side(STORED, &soak.folder))?;
        say(&Line::Cycle(sample))?;
    }
    life.end()
}

/// The pool and what has to be in it.
struct Life<'soak> {
    soak: &'soak Soak,
    pool: Pool,
    registration: icecore_sqlite::Registration,
    open: OpenOptions,
    plain: Pieces,
    base: Pieces,
    deeds: Deeds,
}

impl<'soak> Life<'soak> {
    fn begin(soak: &'soak Soak) -> Result<Self> {
        let init = InitOptions {
            segment_bytes: soak.segment_bytes,
            size_limit: Some(ByteLength(soak.pool_bytes)),
            mirror: Some(soak.mirror.to_string_lossy().into_owned()),
            ..InitOptions::default()
        };
        let open = OpenOptions::default();
        std::fs::create_dir(&soak.mirror).doing(|| format!("make {}", soak.mirror.display()))?;
        Pool::init_directory(&soak.folder, &init)?;
        let pool = Pool::open_directory(&soak.folder, &open)?;
        icecore_sqlite::register().map_err(Error::Door)?;
        let registration = icecore_sqlite::register_pool(NAME, pool.clone()).map_err(Error::Door)?;
        let mut random = Random::new(soak.seed);
        let mut plain = Pieces::create(&pool, PLAIN, soak.plain_bytes, &mut random)?;
        let base = Pieces::create(&pool, branches::BASE, soak.base_bytes, &mut random)?;
        pool.create_dataset(database::DATASET, true, &[])?;
        database::create(&registration.prefix(), soak.rows)?;
        fill_up(&pool, soak, &mut plain, &mut random)?;
        // So that no cycle begins with what filling the pool left behind.
        pool.checkpoint()?;
        Ok(Self { soak, pool, registration, open, plain, base, deeds: Deeds::default() })
    }

    fn cycle(&mut self, cycle: u64) -> Result<Sample> {
        let begin = Instant::now();
        let rotation = Rotation::default();
        self.work(cycle, begin + self.soak.cycle.mul_f64(WORK_SHARE), &rotation)?;
        let mut random = Random::new(self.soak.seed ^ cycle);
        self.go_back(rotation.newest(), &mut random)?;
        self.destroy_snapshots()?;
        self.rest()?;
        self.verify()?;
        self.rest()?;
        self.deeds.store = Counters::of(&self.pool).into_map();
        let seconds = begin.elapsed().as_secs_f64();
        Sample::take(&self.pool, self.soak, cycle, seconds, &self.deeds)
    }

    /// All threads at once, until the time is up.
    fn work(&mut self, cycle: u64, until: Instant, rotation: &Rotation) -> Result<()> {
        let (pool, folder, prefix) = (&self.pool, &self.soak.folder, self.registration.prefix());
        let failed = AtomicBool::new(false);
        let mut seeds = Random::new(self.soak.seed.wrapping_add(cycle));
        let mut turn = || Turn {
            pool,
            folder,
            prefix: &prefix,
            cycle,
            random: Random::new(seeds.next_u64()),
            rotation,
            until,
            next: Instant::now(),
            failed: &failed,
        };
        let (plain, base) = (&mut self.plain, &mut self.base);
        let done = thread::scope(|scope| {
            let mut workers: Vec<Worker<'_>> = vec![
                Box::new(database::work),
                Box::new(|turn| overwrite(plain, turn)),
                Box::new(snapshots::take),
                Box::new(|turn| branches::work(base, turn)),
                Box::new(watch::work),
            ];
            workers.extend((0..READERS).map(|_| Box::new(snapshots::read) as Worker<'_>));
            let threads: Vec<_> = workers
                .into_iter()
                .map(|work| {
                    let (mut turn, failed) = (turn(), &failed);
                    scope.spawn(move || {
                        let outcome = work(&mut turn);
                        failed.fetch_or(outcome.is_err(), Ordering::Relaxed);
                        outcome
                    })
                })
                .collect();
            threads.into_iter().map(join).collect::<Vec<_>>()
        });
        for deeds in done {
            self.deeds.add(&deeds?);
        }
        Ok(())
    }

    /// Takes the large file back to before some writes, and the database to a snapshot that was taken while
    /// it was written.
    fn go_back(&mut self, newest: Option<String>, random: &mut Random) -> Result<()> {
        let before = format!("{PLAIN}@before");
        self.pool.snapshot(std::slice::from_ref(&before), false, &[])?;
        self.plain.clone().overwrite(&self.pool, 64, true, random)?;
        self.pool.rollback(&before, false)?;
        self.deeds.rollbacks += 1;
        let Some(newest) = newest else { return Ok(()) };
        self.pool.rollback(&format!("{}@{newest}", database::DATASET), false)?;
        self.deeds.rollbacks += 1;
        database::tidy(&self.registration.prefix())
    }

    /// Destroys whatever snapshots there are, in one step.
    fn destroy_snapshots(&mut self) -> Result<()> {
        let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
        let mut of: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for entry in self.pool.list(&filter)? {
            let known = [NAME, PLAIN, branches::BASE, database::DATASET];
            match (entry.kind, entry.name.split_once('@')) {
                (EntryKind::Snapshot, Some((dataset, name))) => {
                    of.entry(dataset.to_owned()).or_default().push(name.to_owned());
                }
                _ if known.contains(&entry.name.as_str()) => {}
                _ => {
                    let detail = "it was destroyed, and is still there".to_owned();
                    return Err(Error::Mismatch { what: entry.name, detail });
                }
            }
        }
        self.deeds.snapshots_destroyed += of.values().map(|names| names.len() as u64).sum::<u64>();
        self.pool.destroy(&DestroyTarget::Snapshots { of: of.into_iter().collect() })?;
        Ok(())
    }

    /// Waits until everything is freed, recorded and tidied up.
    fn rest(&self) -> Result<()> {
        let begin = Instant::now();
        while self.pool.statistics().freeing_versions > 0 {
            if begin.elapsed() > PATIENCE {
                let reason = "what was destroyed is not freed".to_owned();
                return Err(Error::Inconclusive { what: self.pool.describe(), reason });
            }
            thread::sleep(POLL);
        }
        // The first records what died, and what it leaves empty is free with the second.
        self.pool.checkpoint()?;
        self.pool.checkpoint()?;
        thread::sleep(IDLE.min(self.soak.cycle / 20));
        settle(&self.pool, &self.open)?;
        Ok(())
    }

    /// Compares contents with what they have to be, and the books with the trees.
    fn verify(&self) -> Result<()> {
        self.plain.verify(&self.pool)?;
        self.base.verify(&self.pool)?;
        database::verify(&self.registration.prefix())?;
        self.pool.verify()?;
        let statistics = self.pool.statistics();
        let refused = statistics.failed_reads + statistics.failed_writes + statistics.failed_flushes;
        let incidents = self.pool.incidents();
        if statistics.failure.is_some() || refused + statistics.damaged_reads > 0 || !incidents.is_empty() {
            let detail = format!("{:?}, {refused} refused, {incidents:?}", statistics.failure);
            return Err(Error::Mismatch { what: "the pool".to_owned(), detail });
        }
        Ok(())
    }

    fn end(self) -> Result<Deeds> {
        let Self { pool, registration, deeds, .. } = self;
        drop(registration);
        pool.close()?;
        Ok(deeds)
    }
}

/// Overwrites the large file until the pool has taken nearly all that it may take: a pool that is still
/// growing would show growth.
fn fill_up(pool: &Pool, soak: &Soak, plain: &mut Pieces, random: &mut Random) -> Result<()> {
    const FILLED: f64 = 0.95;
    const STEP_PIECES: usize = 256;
    let steps = FILL_ROUNDS_MAX * soak.plain_bytes / (STEP_PIECES * PIECE_BYTES) as u64;
    for _ in 0..steps {
        let statistics = pool.statistics();
        if statistics.segment_file_bytes as f64 >= soak.pool_bytes as f64 * FILLED {
            break;
        }
        plain.overwrite(pool, STEP_PIECES, false, random)?;
    }
    Ok(())
}

fn join(worker: ScopedJoinHandle<'_, Result<Deeds>>) -> Result<Deeds> {
    worker.join().unwrap_or_else(|_| Err(Error::Panicked { what: "soaking".to_owned() }))
}

/// Overwrites pieces at random, in groups and one by one.
fn overwrite(plain: &mut Pieces, turn: &mut Turn<'_>) -> Result<Deeds> {
    let mut deeds = Deeds::default();
    while turn.goes_on(PACE) {
        plain.overwrite(turn.pool, GROUP_PIECES, deeds.groups.is_multiple_of(2), &mut turn.random)?;
        deeds.groups += 1;
    }
    Ok(deeds)
}
