//! `commits`: one-row durable transactions a second.
//!
//! Each side keeps one database for the whole experiment and is measured in short slices, interleaved with
//! the slices of the others. So a side's slices together go through many checkpoints, while each slice has
//! its neighbours close by in time. A slice of the store lasts until the background work that it left
//! behind is done: it is charged for it, and the next side's slice is undisturbed.

use super::{Findings, open_options};
use crate::error::{Error, PLAIN, Result, STORED};
use crate::options::Options;
use crate::pairs::interleave;
use crate::random::Random;
use crate::report::{Check, System};
use crate::sqlite::{self, Journal};
use crate::statistics::paired_ratio;
use crate::stored::StoredDatabase;
use rusqlite::Connection;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SNAPSHOT_INTERVAL: Duration = Duration::from_secs(1);
const NAMES: [&str; 4] = ["plain_wal", "plain_delete", "icecore", "icecore_snapshots"];

const SCHEMA: &str = "
    create table entry (id integer not null primary key, account integer not null,
                        amount real not null, note text not null);
    create index entry_account on entry(account);";
const INSERT: &str = "insert into entry(account, amount, note) values (?1, ?2, ?3)";
const ACCOUNTS: u64 = 100_000;

struct Side {
    connection: Connection,
    stored: Option<StoredDatabase>,
    /// Takes a snapshot a second, from a thread of its own, over a connection of its own.
    snapshots: Option<Snapshots>,
    random: Random,
    /// Holds everything above, so it goes last.
    folder: TempDir,
}

struct Snapshots {
    connection: Connection,
    taken: u64,
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(40, 2);
    let slice = options.size(Duration::from_secs(2), Duration::from_millis(300));
    let mut sides = NAMES.iter().map(|name| Side::begin(name, options)).collect::<Result<Vec<_>>>()?;
    let samples = interleave(rounds, sides.len(), |round, side| {
        let rate = sides[side].run_slice(slice).map_err(|error| {
            let name = if sides[side].stored.is_some() { STORED } else { PLAIN };
            error.of_side(name, sides[side].folder.path())
        })?;
        options.say(&format!("round {} of {rounds}: {} {rate:.0} transactions/s", round + 1, NAMES[side]))?;
        Ok(rate)
    })?;
    let mut findings = Findings::default();
    let ratio = |numerator: usize, denominator: usize| {
        paired_ratio(&samples[numerator], &samples[denominator], options.seed)
    };
    findings.check(Check::new("commits.vs_wal", ratio(2, 0)));
    findings.check(Check::new("commits.vs_delete", ratio(2, 1)));
    findings.check(Check::new("commits.snapshot_cost", ratio(3, 2)));
    for ((name, side), samples) in NAMES.iter().zip(&sides).zip(&samples) {
        let system = System::new("transactions/s", samples.clone());
        let counters = side.stored.as_ref().map(StoredDatabase::counters).unwrap_or_default();
        findings.system(name, system.with_counters(counters.into_map()));
    }
    findings.parameter("rounds", rounds);
    findings.parameter("slice_s", slice.as_secs_f64());
    findings.parameter("snapshot_interval_s", SNAPSHOT_INTERVAL.as_secs_f64());
    findings.parameter("synchronous", "FULL");
    findings.parameter("log_bytes_max", open_options(options).log_bytes_max);
    Ok(findings)
}

impl Side {
    fn begin(name: &str, options: &Options) -> Result<Self> {
        let folder = options.scratch()?;
        let journal = match name {
            "plain_wal" => Some(Journal::Wal),
            "plain_delete" => Some(Journal::Delete),
            _ => None,
        };
        let (connection, stored) = match journal {
            Some(journal) => (sqlite::open_plain(&folder.path().join("commits.db"), journal)?, None),
            None => {
                let open = open_options(options);
                let database = StoredDatabase::create(&folder.path().join("pool"), &open)?;
                (database.connect(None)?, Some(database))
            }
        };
        connection.execute_batch(SCHEMA)?;
        let snapshots = match &stored {
            Some(database) if name == "icecore_snapshots" => {
                Some(Snapshots { connection: database.connect(None)?, taken: 0 })
            }
            _ => None,
        };
        Ok(Self { connection, stored, snapshots, random: Random::new(options.seed), folder })
    }

    /// Transactions a second over about `slice`.
    fn run_slice(&mut self, slice: Duration) -> Result<f64> {
        let begin = Instant::now();
        let count = thread::scope(|scope| {
            let (stop, stopped) = mpsc::channel::<()>();
            let snapshots = self.snapshots.as_mut();
            let taking = snapshots.map(|snapshots| scope.spawn(move || snapshots.take(&stopped)));
            let count = insert_until(&self.connection, &mut self.random, begin + slice);
            drop(stop);
            taking
                .map_or(Ok(Ok(())), thread::ScopedJoinHandle::join)
                .map_err(|_| Error::Panicked { what: "taking a snapshot a second".to_owned() })??;
            count
        })?;
        let end = match &self.stored {
            Some(stored) => stored.settle()?,
            None => Instant::now(),
        };
        Ok(count as f64 / (end - begin).as_secs_f64())
    }
}

fn insert_until(connection: &Connection, random: &mut Random, end: Instant) -> Result<u64> {
    let mut insert = connection.prepare(INSERT)?;
    let mut count = 0;
    while Instant::now() < end {
        let account = random.below(ACCOUNTS).cast_signed();
        insert.execute((account, random.fraction(), "a note of usual length, as people write it"))?;
        count += 1;
    }
    Ok(count)
}

impl Snapshots {
    /// Half an interval after the beginning, then once an interval, until the other end hangs up.
    fn take(&mut self, stopped: &mpsc::Receiver<()>) -> Result<()> {
        let mut wait = SNAPSHOT_INTERVAL / 2;
        while stopped.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
            self.taken += 1;
            StoredDatabase::snapshot(&self.connection, &format!("second-{}", self.taken))?;
            wait = SNAPSHOT_INTERVAL;
        }
        Ok(())
    }
}
