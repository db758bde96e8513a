//! `shock`: what a snapshot costs the writer, after "Write penalty of a snapshot" (2009).
//!
//! Each system has a file that is fully written. A *fixed number* of writes is counted on the device: what
//! copying costs depends on how many blocks were touched since the snapshot. Then the writer runs for some
//! time, with a snapshot in the middle.

mod curve;
mod report;

use super::{Bench, LVM, Lineup, Needs, PLAIN, SUBJECT};
use crate::bonnie;
use crate::device::DeviceCounts;
use crate::driving::{self, overhead_us};
use crate::error::{Doing, Error, Result};
use crate::experiments::Findings;
use crate::fileio::{self, FILE_NAME};
use crate::fio::{Driven, FileRun, MIXED, Until};
use crate::options::{LoadTool, Options};
use crate::programs;
use crate::snapshotting::while_taking;
use crate::systems::{Areas, Kind};
use crate::trace::Trace;
use curve::{Moment, Shape};
use report::{check, check_factor, report};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const BLOCK_BYTES: u64 = 16 << 10;
const FILL_BYTES: u64 = 1 << 20;
/// The file of the run `small`, as in the study.
const SMALL_BYTES: u64 = 64 << 20;
const SMALL_ROUNDS: usize = 6;
/// What the disk of the study wrote behind a snapshot in the first of these rounds, of 60 s. These are half
/// of the file's blocks, so each round meets fewer that LVM has to copy.
const SMALL_WRITES: u64 = 2_000;
/// The mix of randomio(1) in the study: threads, and bytes of a request.
const MIX: &str = "randomio";
const MIX_THREADS: u64 = 100;
const MIX_BLOCK_BYTES: u64 = 4 << 10;
/// The runs with a number of snapshots. The last is of the page cache, as in the study.
const RUNS: [Run; 3] = [DIRECT, SYNC, Run { name: "fsync100", sync_every: 100, direct: false }];
const DIRECT: Run = Run { name: "direct", sync_every: 0, direct: true };
const SYNC: Run = Run { name: "sync", sync_every: 1, direct: true };
/// What fio needs until it writes.
const FIO_BEGINS: Duration = Duration::from_millis(400);
/// How much slower each attempt takes the machine to be.
const SLOWER: Duration = Duration::from_secs(1);
const SYSBENCH_CURVE_MIN: Duration = Duration::from_secs(4);
/// Tests run other studies beside this one, so fio may begin late.
const CURVE_ATTEMPTS: u32 = if cfg!(debug_assertions) { 10 } else { 6 };

/// How a run writes.
struct Run {
    name: &'static str,
    /// Writes to a flush; 0 for none.
    sync_every: u32,
    /// Whether the page cache is left out.
    direct: bool,
}

/// How much is done.
struct Scope {
    file_bytes: u64,
    small_bytes: u64,
    device_bytes: u64,
    writes: u64,
    counts: &'static [usize],
    curve: Duration,
    small_writes: u64,
    small_rounds: usize,
    mix: Duration,
}

impl Scope {
    fn of(options: &Options) -> Self {
        // A debug build shows only that it runs.
        let toy = cfg!(debug_assertions);
        let quick = |quick: u64, in_debug: u64| if toy { in_debug } else { quick };
        Self {
            file_bytes: options.size(1 << 30, quick(128 << 20, 4 << 20)),
            small_bytes: options.size(SMALL_BYTES, quick(32 << 20, 2 << 20)),
            device_bytes: options.size(8 << 30, quick(1 << 30, 400 << 20)),
            writes: options.size(8_000, quick(400, 40)),
            counts: options.size(&[0, 1, 2, 4, 8, 16], if toy { &[0, 1] } else { &[0, 1, 4] }),
            curve: options.size(Duration::from_secs(60), Duration::from_millis(quick(8_000, 1_500))),
            small_rounds: if toy { 2 } else { SMALL_ROUNDS },
            small_writes: options.size(SMALL_WRITES, quick(800, 40)),
            mix: options.size(Duration::from_secs(15), Duration::from_millis(quick(300, 200))),
        }
    }

    /// A copy area has room for the whole of either file, and for the table of what was copied.
    fn areas(&self) -> Areas {
        let count = self.counts.iter().max().map_or(0, |count| *count as u64);
        Areas { count, bytes: self.file_bytes.max(self.small_bytes) / 4 * 5 }
    }
}

/// What one round found out, by run and number of snapshots.
#[derive(Default)]
struct Round {
    fixed: BTreeMap<(&'static str, usize), Counted>,
    curves: BTreeMap<&'static str, Shape>,
    /// The six rounds on the small file, with so many snapshots before the first.
    small: BTreeMap<usize, Vec<Counted>>,
    /// Reads and writes of the mix, without and with a snapshot.
    mixed: BTreeMap<usize, Counted>,
    /// What bonnie++ says, without and with a snapshot.
    bonnie: BTreeMap<usize, bonnie::Figures>,
    space_bytes: f64,
}

/// Requests, and what the device did for all of them.
struct Counted {
    rate: f64,
    requests: f64,
    /// `None` where the kernel does not count it.
    counts: Option<DeviceCounts>,
}

/// Bytes that the study needs at the same time, without copy areas of LVM.
pub(crate) fn room(options: &Options) -> u64 {
    Scope::of(options).device_bytes
}

pub(crate) fn run(options: &Options) -> Result<Findings> {
    if options.tool == LoadTool::Blogbench {
        let reason = "blogbench drives the study blog".to_owned();
        return Err(Error::Inconclusive { what: "shock".to_owned(), reason });
    }
    programs::require("shock", &format!("--tool {}", options.tool.name()))?;
    let mut lineup = Lineup::of(options, Needs::Files)?;
    let (scope, rounds) = (Scope::of(options), options.rounds(3, 1));
    lineup.require_room(room(options), scope.areas(), options)?;
    if let Some(record) = &options.record {
        // Rather now than when everything was written.
        can_be_written(record).doing(|| format!("write {}", record.display()))?;
    }
    let driving = (options.tool == LoadTool::Fio).then(|| overhead_us(BLOCK_BYTES, options)).transpose()?;
    let runs = lineup.measure(rounds, options, |round, kind| {
        let mut bench = Bench::begin(kind, scope.device_bytes, scope.areas(), options)?;
        bench.attempt(kind, |bench| Driver { bench, kind, scope: &scope, options, taken: 0 }.round(round))
    })?;
    let mut findings = Findings::default();
    lineup.report(&mut findings, "writes/s");
    for (kind, rounds) in &runs {
        match kind.name {
            // bonnie++ makes new files, which no snapshot has.
            _ if options.tool == LoadTool::Bonnie => {}
            SUBJECT => check(&mut findings, rounds, options),
            LVM => check_factor(&mut findings, "shock.lvm_factor", rounds, options.seed),
            _ => {}
        }
        report(&mut findings, kind.name, rounds, options);
        if rounds.iter().flat_map(|round| round.fixed.values()).any(|fixed| fixed.counts.is_none()) {
            let reason = "the kernel counts no requests of its file system";
            findings.parameter(&format!("uncounted_{}", kind.name), reason);
        }
    }
    findings.parameter("rounds", rounds);
    findings.parameter("file_bytes", scope.file_bytes);
    findings.parameter("small_bytes", scope.small_bytes);
    findings.parameter("block_bytes", BLOCK_BYTES);
    findings.parameter("writes", scope.writes);
    let cached: Vec<&str> = RUNS.iter().filter(|run| !run.direct).map(|run| run.name).collect();
    findings.parameter("page_cache", cached.join(" ").as_str());
    findings.parameter("curve_s", scope.curve.as_secs_f64());
    findings.parameter("small_writes", scope.small_writes);
    findings.parameter("mix_s", scope.mix.as_secs_f64());
    findings.parameter("tool", options.tool.name());
    if let Some(rate) = options.rate {
        findings.parameter("rate_per_s", u64::from(rate));
    }
    driving::report(&mut findings, driving);
    Ok(findings)
}

/// One system at work.
struct Driver<'a> {
    bench: &'a mut Bench,
    kind: &'static Kind,
    scope: &'a Scope,
    options: &'a Options,
    taken: usize,
}

impl Driver<'_> {
    fn round(mut self, round: usize) -> Result<Round> {
        let seed = self.options.seed + 1000 * round as u64;
        if self.options.tool == LoadTool::Bonnie {
            return self.bonnie(seed);
        }
        let file = self.fill_large()?;
        let mut found = Round::default();
        let counts = if self.kind.snapshots { self.scope.counts } else { &[0] };
        self.warm_up(&file, round, seed)?;
        // What changes with time must not look like the cost of snapshots.
        let mut order = counts.to_vec();
        if round % 2 == 1 {
            order.reverse();
        }
        // All counts come before the first time.
        for run in &RUNS {
            for &count in &order {
                self.fill_large()?;
                let drive = FileRun {
                    // fio flushes before a write. One more than the flushes are for, or what is in the page
                    // cache at the end would be in no rate.
                    until: Until::Requests(self.scope.writes + u64::from(!run.direct)),
                    seed: seed + count as u64,
                    ..self.drive(&file, self.scope.file_bytes, run)
                };
                let fixed = self.with_snapshots(count, |driver| driver.counted(&drive))?;
                let rate = fixed.rate;
                self.options
                    .say(&format!("  {}/{}/{count}: {rate:.0} writes/s", self.kind.name, run.name))?;
                found.fixed.insert((run.name, count), fixed);
            }
        }
        if self.kind.snapshots {
            // At a fixed rate each write is durable by itself, or none is.
            let is_paced = self.options.rate.is_some();
            for run in RUNS.iter().filter(|run| !is_paced || run.sync_every <= 1) {
                let shape = self.curve(&file, run, seed)?;
                let said = match self.options.tool {
                    LoadTool::Fio => format!("gap {} ms", shape.longest_gap_ms),
                    _ => format!("dip of {:.0} %", 100.0 * shape.dip),
                };
                self.options.say(&format!("  {}/{}: {said}", self.kind.name, run.name))?;
                found.curves.insert(run.name, shape);
            }
        }
        let mixed = counts.iter().filter(|count| **count < 2 && self.options.tool == LoadTool::Fio);
        for &count in mixed {
            self.fill_large()?;
            let mixed = self.with_snapshots(count, |driver| driver.mixed(&file, seed))?;
            let (system, rate) = (self.kind.name, mixed.rate);
            self.options.say(&format!("  {system}/{MIX}/{count}: {rate:.0} operations/s"))?;
            found.mixed.insert(count, mixed);
        }
        for &count in &order {
            let file = self.fill("small", self.scope.small_bytes)?;
            let rounds = self.with_snapshots(count, |driver| driver.small(&file, seed))?;
            let rates = rounds.iter().map(|round| format!("{:.0}", round.rate)).collect::<Vec<_>>();
            let (system, rates) = (self.kind.name, rates.join(", "));
            self.options.say(&format!("  {system}/small/{count}: {rates} writes/s"))?;
            found.small.insert(count, rounds);
        }
        found.space_bytes = self.bench.system.space_bytes()? as f64;
        Ok(found)
    }

    /// What a system does for the first writes of its life is not counted. This is also the run that is
    /// recorded, on the filesystem as it is: no figure has fio's list of the writes in it.
    fn warm_up(&self, file: &Path, round: usize, seed: u64) -> Result<()> {
        let record = self.options.record.as_ref().filter(|_| self.kind.name == PLAIN && round == 0);
        // fio appends to a file that is there, so it does not get the one that was asked for.
        let list = self.bench.folder.path().join("writes");
        let run = FileRun {
            until: Until::Requests(self.scope.writes),
            // Other places than those of the runs that count.
            seed: seed + 500,
            record: record.map(|_| list.as_path()),
            ..self.drive(file, self.scope.file_bytes, &SYNC)
        };
        self.write(&run)?;
        if let Some(record) = record {
            let writes = Trace::read(&list)?.writes();
            fs::copy(&list, record).doing(|| format!("write {}", record.display()))?;
            self.options.say(&format!("  {PLAIN}: {writes} writes are in {}", record.display()))?;
        }
        self.bench.system.rest()
    }

    fn drive<'a>(&self, file: &'a Path, bytes: u64, run: &Run) -> FileRun<'a> {
        FileRun {
            file,
            bytes,
            how: "randwrite",
            block: BLOCK_BYTES,
            direct: run.direct,
            jobs: 1,
            sync_every: run.sync_every,
            rate: None,
            until: Until::End,
            seed: 0,
            log: None,
            record: None,
        }
    }

    /// Writes the large file anew, so that nothing is left of runs before. Thin LVM, for one, goes on copying
    /// what a destroyed snapshot had.
    fn fill_large(&self) -> Result<PathBuf> {
        self.fill("large", self.scope.file_bytes)
    }

    fn fill(&self, name: &str, bytes: u64) -> Result<PathBuf> {
        let folder = self.bench.system.data()?.join(name);
        fs::create_dir_all(&folder).doing(|| format!("make {}", folder.display()))?;
        let file = folder.join(FILE_NAME);
        let fill = FileRun { how: "write", block: FILL_BYTES, ..self.drive(&file, bytes, &DIRECT) };
        fill.drive(self.options)?;
        self.bench.system.rest()?;
        Ok(file)
    }

    /// Does the work with so many snapshots, all taken at once before it.
    fn with_snapshots<T>(&mut self, count: usize, work: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let names: Vec<String> = (0..count).map(|place| format!("s{}", self.taken + place)).collect();
        self.taken += count;
        for name in &names {
            self.bench.system.snapshot(name)?;
        }
        self.bench.system.rest()?;
        let done = work(self)?;
        for name in &names {
            self.bench.system.destroy(name)?;
        }
        if count > 0 {
            self.bench.system.rest()?;
        }
        Ok(done)
    }

    /// What the device does until all of the writes, and what they leave to be done, is durable.
    fn counted(&mut self, drive: &FileRun<'_>) -> Result<Counted> {
        let before = self.bench.system.counts();
        let driven = self.write(drive)?;
        self.bench.system.rest()?;
        let counts = self.bench.system.counts().zip(before).map(|(after, before)| after - before);
        Ok(Counted { rate: driven.rate, requests: driven.requests, counts })
    }

    fn write(&self, run: &FileRun<'_>) -> Result<Driven> {
        match self.options.tool {
            LoadTool::Sysbench => Ok(fileio::drive(run, self.options)?.driven),
            _ => run.drive(self.options),
        }
    }

    /// New files, without a snapshot and beside one.
    fn bonnie(mut self, seed: u64) -> Result<Round> {
        let mut found = Round::default();
        let (bytes, options) = (self.scope.file_bytes, self.options);
        for count in 0..=usize::from(self.kind.snapshots) {
            let figures = self.with_snapshots(count, |driver| {
                bonnie::run(&driver.bench.system.data()?, bytes, seed + count as u64, options)
            })?;
            let shown = bonnie::FIGURES.iter().zip(figures).map(|((name, unit, _), figure)| {
                let figure =
                    figure.map_or_else(|| "too soon to tell".to_owned(), |figure| format!("{figure} {unit}"));
                format!("{name} {figure}")
            });
            let shown = shown.collect::<Vec<_>>().join(", ");
            options.say(&format!("  {}/bonnie++/{count}: {shown}", self.kind.name))?;
            found.bonnie.insert(count, figures);
        }
        found.space_bytes = self.bench.system.space_bytes()? as f64;
        Ok(found)
    }

    /// On a busy machine fio begins late, and a snapshot takes long: it may miss the run, or outlast it. Each
    /// attempt has the run last longer before the snapshot and after it.
    fn curve(&mut self, file: &Path, run: &Run, seed: u64) -> Result<Shape> {
        for attempt in 0..CURVE_ATTEMPTS {
            self.fill_large()?;
            let slower = attempt * SLOWER;
            let (begins, time) = (FIO_BEGINS + slower / 2, self.scope.curve + 2 * slower);
            if let Some(shape) = self.try_curve(file, run, seed, begins, time)? {
                return Ok(shape);
            }
        }
        Err(Error::Inconclusive {
            what: "the rate around a snapshot".to_owned(),
            reason: "too few writes were made before it or after it".to_owned(),
        })
    }

    /// The snapshot comes in the middle of the curve if fio needs so long until it writes.
    fn try_curve(
        &mut self,
        file: &Path,
        run: &Run,
        seed: u64,
        begins: Duration,
        time: Duration,
    ) -> Result<Option<Shape>> {
        let log = self.bench.folder.path().join("fio");
        let drive = FileRun {
            until: Until::Time(time),
            seed,
            rate: self.options.rate,
            log: Some(&log),
            ..self.drive(file, self.scope.file_bytes, run)
        };
        let name = format!("s{}", self.taken);
        self.taken += 1;
        let mut moment = None;
        let (system, options) = (&mut self.bench.system, self.options);
        let take = || {
            if moment.is_none() {
                let begin_ms = now_ms();
                system.snapshot(&name)?;
                moment = Some(Moment { begin_ms, end_ms: now_ms() });
            }
            Ok(())
        };
        // The first snapshot comes after half of this.
        let shape = if options.tool == LoadTool::Sysbench {
            // It begins at once, and says how much it did once a second.
            let time = time.max(SYSBENCH_CURVE_MIN);
            let drive = FileRun { until: Until::Time(time), ..drive };
            let begin_ms = now_ms();
            let found = while_taking(time, take, || fileio::drive(&drive, options))?;
            let at_s = |moment: &Moment| (moment.begin_ms - begin_ms) as f64 / 1e3;
            moment.as_ref().and_then(|moment| Shape::of_rates(found.rate_per_s, at_s(moment)))
        } else {
            while_taking(time + 2 * begins, take, || drive.drive(options))?;
            let path = log.with_file_name("fio_lat.1.log");
            let text = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
            let writes = curve::parse(&text);
            let writes = match options.rate {
                Some(rate) => curve::from_due(writes, rate),
                None => writes,
            };
            moment.and_then(|moment| Shape::of(&writes, moment))
        };
        if moment.is_some() {
            self.bench.system.destroy(&name)?;
            self.bench.system.rest()?;
        }
        Ok(shape)
    }

    fn mixed(&mut self, file: &Path, seed: u64) -> Result<Counted> {
        let drive = FileRun {
            how: MIXED,
            block: MIX_BLOCK_BYTES,
            jobs: MIX_THREADS,
            until: Until::Time(self.scope.mix),
            seed,
            ..self.drive(file, self.scope.file_bytes, &DIRECT)
        };
        self.counted(&drive)
    }

    /// Six runs on the small file, one after the other.
    fn small(&mut self, file: &Path, seed: u64) -> Result<Vec<Counted>> {
        let scope = self.scope;
        let round = |number: usize| {
            let drive = FileRun {
                until: Until::Requests(scope.small_writes),
                seed: seed + number as u64,
                ..self.drive(file, scope.small_bytes, &DIRECT)
            };
            self.counted(&drive)
        };
        (0..scope.small_rounds).map(round).collect()
    }
}

/// Whether a file can be written. Nothing is changed: one that is there is replaced at the end.
fn can_be_written(path: &Path) -> std::io::Result<()> {
    let is_there = path.try_exists()?;
    fs::File::options().append(true).create(true).open(path)?;
    if is_there { Ok(()) } else { fs::remove_file(path) }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
