//! `crowd`: one writer, and two, beside eight readers and a snapshot every 20 ms.
//!
//! Both sides keep one database for the whole experiment, with the same readers. Snapshots are taken on the
//! side of the store alone. The longest wait is that of all transactions of all writers in all slices.

use super::{Findings, open_options};
use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::pairs::interleave;
use crate::random::Random;
use crate::report::{Check, System};
use crate::sqlite::{self, Journal};
use crate::statistics::{bootstrap, paired_ratio};
use crate::stored::StoredDatabase;
use rusqlite::Connection;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const READERS: u64 = 8;
const SNAPSHOT_INTERVAL: Duration = Duration::from_millis(20);
const NAMES: [&str; 2] = ["plain_wal", "icecore"];
/// Rows that a reader adds up in a query.
const RANGE: u64 = 500;
/// No writer gives up, so that the longest wait is seen whole.
const BUSY_TIMEOUT: Duration = Duration::from_secs(60);

const SCHEMA: &str = "
    create table entry (id integer not null primary key, account integer not null,
                        amount real not null, note text not null);
    create index entry_account on entry(account);";
const FILL: &str = "
    with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
    insert into entry select i, i * 7919 % ?1, i * 0.5, 'a note of usual length, as people write it' from n";

struct Side {
    stored: Option<StoredDatabase>,
    rows: u64,
    snapshots: AtomicU64,
    /// Holds everything above, so it goes last.
    folder: TempDir,
}

/// What the writers met in a slice.
#[derive(Clone, Copy, Default)]
struct Slice {
    /// Transactions of all of them a second.
    rate: f64,
    /// The longest transaction, in seconds.
    longest: f64,
    /// Queries of all readers a second.
    queries: f64,
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(6, 2);
    let slice = options.size(Duration::from_secs(10), Duration::from_millis(500));
    let rows = options.size(100_000, 2_000);
    let sides = NAMES.iter().map(|name| Side::begin(name, rows, options)).collect::<Result<Vec<_>>>()?;
    let mut findings = Findings::default();
    for writers in [1, 2] {
        let before = sides.iter().map(Side::counters).collect::<Vec<_>>();
        let slices = interleave(rounds, sides.len(), |round, side| {
            let done = sides[side].run_slice(writers, slice, options.seed + round as u64)?;
            let (name, rate, longest) = (NAMES[side], done.rate, done.longest);
            let what = format!("{name}, writers: {writers}: {rate:.0}/s, longest {longest:.3} s");
            options.say(&format!("round {} of {rounds}: {what}", round + 1))?;
            Ok(done)
        })?;
        let counters = sides.iter().zip(&before).map(|(side, before)| side.counters().since(before));
        report(&mut findings, writers, &slices, counters, options.seed);
    }
    findings.parameter("rounds", rounds);
    findings.parameter("slice_s", slice.as_secs_f64());
    findings.parameter("rows", rows);
    findings.parameter("readers", READERS);
    findings.parameter("snapshots", sides[1].snapshots.load(Ordering::Relaxed));
    Ok(findings)
}

fn report(
    findings: &mut Findings,
    writers: u64,
    slices: &[Vec<Slice>],
    counters: impl Iterator<Item = Counters>,
    seed: u64,
) {
    let column = |side: usize, value: fn(&Slice) -> f64| slices[side].iter().map(value).collect::<Vec<f64>>();
    let longest = column(1, |slice| slice.longest * 1e3);
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let (wait, suffix) = match writers {
        1 => ("crowd.wait_ms", ""),
        _ => ("crowd.two_writers_wait_ms", "_two_writers"),
    };
    findings.check(Check::new(wait, bootstrap(&longest, most, seed)));
    let rates = [0, 1].map(|side| column(side, |slice| slice.rate));
    if writers == 1 {
        findings.check(Check::new("crowd.vs_wal", paired_ratio(&rates[1], &rates[0], seed)));
    }
    for ((side, rates), counters) in rates.into_iter().enumerate().zip(counters) {
        let name = format!("{}{suffix}", NAMES[side]);
        let longest = column(side, |slice| slice.longest * 1e3);
        let queries = column(side, |slice| slice.queries);
        findings.system(&name, System::new("transactions/s", rates).with_counters(counters.into_map()));
        findings.system(&format!("{name}_longest"), System::new("ms", longest));
        findings.system(&format!("{name}_queries"), System::new("queries/s", queries));
    }
}

/// What a thread of the crowd answered.
fn ended<T>(thread: ScopedJoinHandle<'_, Result<T>>) -> Result<T> {
    thread.join().map_err(|_| Error::Panicked { what: "a thread of the crowd".to_owned() })?
}

impl Side {
    fn begin(name: &str, rows: u64, options: &Options) -> Result<Self> {
        let folder = options.scratch()?;
        let stored = match name {
            "icecore" => Some(StoredDatabase::create(&folder.path().join("pool"), &open_options(options))?),
            _ => None,
        };
        let side = Self { stored, rows, snapshots: AtomicU64::new(0), folder };
        let connection = side.connect()?;
        connection.execute_batch(SCHEMA)?;
        connection.execute(FILL, [rows.cast_signed()])?;
        Ok(side)
    }

    /// What the store counted so far.
    fn counters(&self) -> Counters {
        self.stored.as_ref().map(StoredDatabase::counters).unwrap_or_default()
    }

    fn connect(&self) -> Result<Connection> {
        match &self.stored {
            Some(stored) => stored.connect(None),
            None => sqlite::open_plain(&self.folder.path().join("crowd.db"), Journal::Wal),
        }
    }

    fn run_slice(&self, writers: u64, slice: Duration, seed: u64) -> Result<Slice> {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let mut others: Vec<_> = (0..READERS)
                .map(|reader| {
                    let random = Random::new(seed * READERS + reader);
                    let stop = &stop;
                    scope.spawn(move || self.read(random, stop))
                })
                .collect();
            if self.stored.is_some() {
                others.push(scope.spawn(|| self.take_snapshots(&stop)));
            }
            let writing: Vec<_> = (0..writers)
                .map(|writer| {
                    let random = Random::new(seed + (writer << 32));
                    scope.spawn(move || self.write(random, slice))
                })
                .collect();
            let written: Vec<_> = writing.into_iter().map(ended).collect();
            stop.store(true, Ordering::Relaxed);
            let queries = others.into_iter().map(ended).sum::<Result<u32>>()?;
            let mut done = Slice { queries: f64::from(queries) / slice.as_secs_f64(), ..Slice::default() };
            for written in written {
                let (rate, longest) = written?;
                (done.rate, done.longest) = (done.rate + rate, done.longest.max(longest));
            }
            Ok(done)
        })
    }

    /// Transactions a second, and how long the longest took, in seconds.
    fn write(&self, mut random: Random, slice: Duration) -> Result<(f64, f64)> {
        let connection = self.connect()?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let mut update = connection.prepare("update entry set amount = amount + 1 where id = ?1")?;
        let (begin, mut count, mut longest) = (Instant::now(), 0_u32, Duration::ZERO);
        while begin.elapsed() < slice {
            let began = Instant::now();
            connection.execute_batch("begin immediate")?;
            for _ in 0..5 {
                update.execute([1 + random.below(self.rows).cast_signed()])?;
            }
            connection.execute_batch("commit")?;
            longest = longest.max(began.elapsed());
            count += 1;
        }
        Ok((f64::from(count) / begin.elapsed().as_secs_f64(), longest.as_secs_f64()))
    }

    fn read(&self, mut random: Random, stop: &AtomicBool) -> Result<u32> {
        let connection = self.connect()?;
        let mut sum = connection.prepare("select sum(amount) from entry where id between ?1 and ?1 + ?2")?;
        let mut queries = 0;
        while !stop.load(Ordering::Relaxed) {
            connection.execute_batch("begin")?;
            for _ in 0..2 {
                let first = random.below(self.rows).cast_signed();
                sum.query_row([first, RANGE.cast_signed()], |row| row.get::<_, Option<f64>>(0))?;
                queries += 1;
            }
            connection.execute_batch("commit")?;
        }
        Ok(queries)
    }

    /// Makes no queries.
    fn take_snapshots(&self, stop: &AtomicBool) -> Result<u32> {
        let connection = self.connect()?;
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(SNAPSHOT_INTERVAL);
            let number = self.snapshots.fetch_add(1, Ordering::Relaxed);
            StoredDatabase::snapshot(&connection, &format!("s-{number}"))?;
        }
        Ok(0)
    }
}
