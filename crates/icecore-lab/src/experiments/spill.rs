//! `spill`: statements that change more than SQLite's page cache holds, beside plain WAL.
//!
//! SQLite writes a changed page when its cache is full, reads it again for the next row, and writes it again.
//! Each round fills a database on both sides and runs the same statements there, with SQLite's default cache.
//! Bytes are those that the kernel counts for the process (`write_bytes` of proc(5)), until both sides are at
//! rest. The plain side rests with the checkpoint of the WAL, the side of the store with what the background
//! writes. SQLite's temporary files, which are alike on both sides, are in memory.

use super::Findings;
use crate::error::{Doing, Error, Result};
use crate::options::Options;
use crate::pairs::interleave;
use crate::report::{Check, System};
use crate::sqlite::{self, Journal};
use crate::statistics::{bootstrap, median};
use crate::stored::StoredDatabase;
use icecore::OpenOptions;
use rusqlite::Connection;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;
use tempfile::TempDir;

const NAMES: [&str; 2] = ["plain_wal", "icecore"];
const STATEMENTS: [(&str, &str); 4] = [
    ("index", "create index entry_amount on entry(amount)"),
    ("update", "update entry set amount = amount + 1"),
    ("delete", "delete from entry where id % 2 = 0"),
    ("vacuum", "vacuum"),
];
const SCHEMA: &str = "
    create table entry (id integer primary key, account integer not null, name text not null,
                        amount integer not null, note text not null);
    create index entry_account on entry(account);
    create index entry_name on entry(name);";
/// The factor is prime, so accounts and names come in another order than rows.
const FILL: &str = "
    with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)
    insert into entry
    select i, i * 4999999 % ?1, printf('%09d of the people', i * 7999993 % ?1), i,
           'a note of the length that people write, which is some hundred and twenty bytes ' || i from n";

struct Side {
    stored: Option<StoredDatabase>,
    connection: Connection,
    /// Holds everything above, so it goes last.
    folder: TempDir,
}

/// What a statement took.
#[derive(Clone, Copy)]
struct Cost {
    bytes: f64,
    seconds: f64,
}

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(5, 2);
    let rows: u64 = options.size(550_000, 20_000);
    let costs = interleave(rounds, NAMES.len(), |round, side| {
        let costs = Side::begin(NAMES[side], rows, options)?.run()?;
        for ((statement, _), cost) in STATEMENTS.iter().zip(&costs) {
            let (name, mebibytes, seconds) = (NAMES[side], cost.bytes / f64::from(1 << 20), cost.seconds);
            let round = round + 1;
            options.say(&format!(
                "round {round} of {rounds}: {name} {statement} {mebibytes:.0} MiB, {seconds:.2} s"
            ))?;
        }
        Ok(costs)
    })?;
    let mut findings = Findings::default();
    let ratio = |value: fn(&Cost) -> f64| {
        let [plain, stored] = [0, 1].map(|side: usize| &costs[side]);
        let of_round = |round: usize| {
            geometric_mean(&[0, 1, 2, 3].map(|at| value(&stored[round][at]) / value(&plain[round][at])))
        };
        bootstrap(&(0..rounds).map(of_round).collect::<Vec<_>>(), median, options.seed)
    };
    findings.check(Check::new("spill.bytes", ratio(|cost| cost.bytes)));
    findings.check(Check::new("spill.time", ratio(|cost| cost.seconds)));
    for (name, costs) in NAMES.iter().zip(&costs) {
        for (at, (statement, _)) in STATEMENTS.iter().enumerate() {
            let column = |value: fn(&Cost) -> f64| costs.iter().map(|costs| value(&costs[at])).collect();
            let bytes = System::new("bytes", column(|cost| cost.bytes));
            findings.system(&format!("{name}_{statement}_bytes"), bytes);
            findings.system(&format!("{name}_{statement}"), System::new("s", column(|cost| cost.seconds)));
        }
    }
    findings.parameter("rounds", rounds);
    findings.parameter("rows", rows);
    Ok(findings)
}

fn geometric_mean(values: &[f64; STATEMENTS.len()]) -> f64 {
    (values.iter().map(|value| value.ln()).sum::<f64>() / values.len() as f64).exp()
}

impl Side {
    fn begin(name: &str, rows: u64, options: &Options) -> Result<Self> {
        let folder = options.scratch()?;
        let (stored, connection) = if name == "icecore" {
            let stored = StoredDatabase::create(&folder.path().join("pool"), &OpenOptions::default())?;
            let connection = stored.connect(None)?;
            (Some(stored), connection)
        } else {
            (None, sqlite::open_plain(&folder.path().join("spill.db"), Journal::Wal)?)
        };
        connection.pragma_update(None, "temp_store", "memory")?;
        connection.execute_batch(SCHEMA)?;
        connection.execute(FILL, [rows.cast_signed()])?;
        let side = Self { stored, connection, folder };
        side.rest()?;
        Ok(side)
    }

    fn run(self) -> Result<[Cost; STATEMENTS.len()]> {
        let mut costs = [Cost { bytes: 0.0, seconds: 0.0 }; STATEMENTS.len()];
        for ((_, statement), cost) in STATEMENTS.iter().zip(&mut costs) {
            let (before, began) = (bytes_written()?, Instant::now());
            self.connection.execute_batch(statement)?;
            cost.seconds = began.elapsed().as_secs_f64();
            self.rest()?;
            cost.bytes = (bytes_written()? - before) as f64;
        }
        let whole: String = self.connection.query_row("pragma integrity_check", [], |row| row.get(0))?;
        if whole != "ok" {
            let what = self.folder.path().display().to_string();
            return Err(Error::Inconclusive { what, reason: format!("the database is damaged: {whole}") });
        }
        Ok(costs)
    }

    /// Returns when nothing more is to be written for what was done.
    fn rest(&self) -> Result<()> {
        match &self.stored {
            Some(stored) => stored.settle().map(drop),
            None => Ok(self.connection.query_row("pragma wal_checkpoint(truncate)", [], |_| Ok(()))?),
        }
    }
}

/// Bytes that this process has had written to block devices.
fn bytes_written() -> Result<u64> {
    let path = PathBuf::from("/proc/self/io");
    let text = fs::read_to_string(&path).doing(|| format!("read {}", path.display()))?;
    let bytes = text.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok());
    bytes.ok_or_else(|| Error::Inconclusive {
        what: path.display().to_string(),
        reason: "it does not say how many bytes were written".to_owned(),
    })
}
