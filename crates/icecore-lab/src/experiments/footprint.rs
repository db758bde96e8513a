//! `footprint`: what a pool takes up beside what its versions reach.
//!
//! One database is overwritten at random, transaction by transaction, in two pools that are made alike. In
//! one of them a connection to a snapshot of another dataset is open meanwhile, and does nothing: it is not
//! to cost any room. The log is short, so that what dies is used again many times over. Then the pool comes
//! to rest, which takes it five minutes, and gives back what it does not need. A third pool has nothing but a
//! database of 1 MiB.

use super::Findings;
use crate::error::Result;
use crate::options::Options;
use crate::random::Random;
use crate::report::{Check, System};
use crate::statistics::{bootstrap, median, paired_ratio};
use crate::stored::StoredDatabase;
use icecore::OpenOptions;
use rusqlite::Connection;
use std::path::Path;
use std::time::{Duration, Instant};

const ROW_BYTES: usize = 16 << 10;
/// Rows that a transaction writes anew: half a MiB.
const ROWS_CHANGED: u64 = 32;
const LOG_BYTES: u64 = 64 << 20;
/// The files of a pool at rest stay as they are for so long.
const REST: Duration = Duration::from_secs(5);

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(3, 2);
    let rows: u64 = options.size(9_280, 1_024);
    let transactions: u64 = options.size(2_000, 400);
    let mut samples = [Vec::new(), Vec::new()];
    let (mut at_rest, mut small) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        for (with_reader, samples) in [false, true].into_iter().zip(&mut samples) {
            let folder = options.scratch()?;
            let (stored, _idle) =
                churn(&folder.path().join("pool"), rows, transactions, with_reader, options)?;
            let bytes = stored.sizes()?.file_bytes;
            if !with_reader {
                options.say(&format!("round {} of {rounds}: the pool comes to rest", round + 1))?;
                options.wait(rest_of(options))?;
                at_rest.push(over_live_at_rest(&stored, options)?);
                small.push(small_pool(&folder.path().join("small"))? as f64 / f64::from(1 << 20));
            }
            let beside = if with_reader { "beside an idle connection" } else { "alone" };
            let (round, mebibytes) = (round + 1, bytes >> 20);
            options.say(&format!("round {round} of {rounds}: {beside}: {mebibytes} MiB of files"))?;
            samples.push(bytes as f64);
        }
    }
    let [alone, beside] = samples;
    let mut findings = Findings::default();
    findings.check(Check::new("footprint.reader", paired_ratio(&beside, &alone, options.seed)));
    findings.check(Check::new("footprint.rest", bootstrap(&at_rest, median, options.seed)));
    findings.check(Check::new("footprint.small_mib", bootstrap(&small, median, options.seed)));
    findings.system("alone", System::new("bytes", alone));
    findings.system("idle_reader", System::new("bytes", beside));
    findings.parameter("rounds", rounds);
    findings.parameter("rows", rows);
    findings.parameter("row_bytes", ROW_BYTES);
    findings.parameter("transactions", transactions);
    findings.parameter("rows_changed", ROWS_CHANGED);
    findings.parameter("log_bytes_max", LOG_BYTES);
    Ok(findings)
}

/// Without a write for so long, a pool is at rest.
fn rest_of(options: &Options) -> Duration {
    options.size(OpenOptions::default().rest, Duration::from_secs(2))
}

/// Makes a pool and overwrites its database. Answers the pool, and the idle connection if there is to be one.
fn churn(
    folder: &Path,
    rows: u64,
    transactions: u64,
    with_reader: bool,
    options: &Options,
) -> Result<(StoredDatabase, Option<Connection>)> {
    let open = OpenOptions { log_bytes_max: LOG_BYTES, rest: rest_of(options), ..OpenOptions::default() };
    let stored = StoredDatabase::create(folder, &open)?;
    let idle = beside(&stored)?;
    // Without a reader nothing is left of the connection; what it read is there in both pools.
    let idle = with_reader.then_some(idle);
    let mut random = Random::new(options.seed);
    let mut row = vec![0; ROW_BYTES];
    let mut connection = stored.connect(None)?;
    connection.execute_batch("CREATE TABLE t(id INTEGER PRIMARY KEY, data BLOB)")?;
    for first in (0..rows).step_by(256) {
        let transaction = connection.transaction()?;
        for id in first..rows.min(first + 256) {
            random.fill(&mut row);
            transaction.prepare_cached("INSERT INTO t VALUES (?1, ?2)")?.execute((id as i64, &row))?;
        }
        transaction.commit()?;
    }
    for _ in 0..transactions {
        options.go_on()?;
        let transaction = connection.transaction()?;
        for _ in 0..ROWS_CHANGED {
            random.fill(&mut row[..64]);
            let id = random.below(rows);
            transaction.prepare_cached("UPDATE t SET data = ?2 WHERE id = ?1")?.execute((id as i64, &row))?;
        }
        transaction.commit()?;
    }
    stored.settle()?;
    Ok((stored, idle))
}

/// Waits until the files of a pool stay as they are, and answers their bytes over those of the database.
fn over_live_at_rest(stored: &StoredDatabase, options: &Options) -> Result<f64> {
    let mut sizes = stored.sizes()?;
    let mut since = Instant::now();
    while since.elapsed() < REST {
        options.wait(REST / 20)?;
        let now = stored.sizes()?;
        if now.file_bytes != sizes.file_bytes {
            (sizes, since) = (now, Instant::now());
        }
    }
    Ok(sizes.file_bytes as f64 / sizes.referenced_bytes as f64)
}

/// Makes a pool with a database of 1 MiB, and answers what the pool's files take up.
fn small_pool(folder: &Path) -> Result<u64> {
    let stored = StoredDatabase::create(folder, &OpenOptions::default())?;
    let connection = stored.connect(None)?;
    connection.execute_batch("CREATE TABLE t(data BLOB); INSERT INTO t VALUES (randomblob(1000000))")?;
    stored.settle()?;
    Ok(stored.sizes()?.file_bytes)
}

/// A connection to a snapshot of another dataset, which has read once.
fn beside(stored: &StoredDatabase) -> Result<Connection> {
    const DATASET: &str = "other";
    stored.add_dataset(DATASET)?;
    let present = stored.connect_in(DATASET, None)?;
    present.execute_batch("CREATE TABLE t(a); INSERT INTO t VALUES (1)")?;
    StoredDatabase::snapshot(&present, "kept")?;
    let idle = stored.connect_in(DATASET, Some("kept"))?;
    idle.query_row("SELECT a FROM t", [], |_| Ok(()))?;
    Ok(idle)
}
