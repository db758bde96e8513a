//! `connect`: a connection for each request. Opening a database, one `SELECT`, and closing it, as the only
//! connection.
//!
//! Both databases are alike and stay as they are. In each round both sides make as many connections, one
//! after the other, and the median of a side is what is compared. The first connection of a side and round is
//! left out: it opens the pool, as the first request of a process does.

use super::Findings;
use crate::error::{Error, Result};
use crate::options::Options;
use crate::pairs::interleave;
use crate::report::{Check, System};
use crate::sqlite::{self, Journal};
use crate::statistics::{median, paired_ratio};
use icecore::{InitOptions, OpenOptions, Pool};
use rusqlite::Connection;
use std::time::Instant;

const NAMES: [&str; 2] = ["plain", "icecore"];
const ROWS: u64 = 1_000;
const DATASET: &str = "db";
const FILE: &str = "app.db";

const FILL: &str = "
    CREATE TABLE page (id INTEGER PRIMARY KEY, title TEXT NOT NULL);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
    INSERT INTO page SELECT i, 'page ' || i FROM n";

pub(super) fn run(options: &Options) -> Result<Findings> {
    let rounds = options.rounds(10, 3);
    let connections: usize = options.size(500, 50);
    let folder = options.scratch()?;
    let pool = folder.path().join("pool");
    Pool::init_directory(&pool, &InitOptions::default())?;
    let made = Pool::open_directory(&pool, &OpenOptions::default())?;
    made.create_dataset(DATASET, false, &[])?;
    made.close()?;
    icecore_sqlite::register().map_err(Error::Door)?;
    let plain = folder.path().join(FILE);
    sqlite::open_plain(&plain, Journal::Delete)?.execute_batch(FILL)?;
    let uris = [sqlite::plain_uri(&plain), icecore_sqlite::uri(&pool.join(DATASET).join(FILE), None)];
    sqlite::open(&uris[1], false)?.execute_batch(FILL)?;
    let samples = interleave(rounds, NAMES.len(), |round, side| {
        let times = visits(&uris[side], connections)?;
        let micros = median(&times) * 1e6;
        options.say(&format!("round {} of {rounds}: {}: {micros:.0} us", round + 1, NAMES[side]))?;
        Ok(micros)
    })?;
    // The folder goes now, and the pool in it must not be open any more.
    close(sqlite::open(&format!("{}&linger=0", uris[1]), false)?)?;
    let mut findings = Findings::default();
    findings.check(Check::new("connect.vs_plain", paired_ratio(&samples[1], &samples[0], options.seed)));
    for (name, times) in NAMES.iter().zip(samples) {
        findings.system(name, System::new("us", times));
    }
    findings.parameter("rounds", rounds);
    findings.parameter("connections", connections);
    findings.parameter("rows", ROWS);
    Ok(findings)
}

/// Seconds of each connection but the first.
fn visits(uri: &str, connections: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(connections);
    for number in 0..=connections {
        let id = (number as u64 % ROWS + 1) as i64;
        let begin = Instant::now();
        let connection = sqlite::open(uri, false)?;
        let title: String =
            connection.query_row("SELECT title FROM page WHERE id = ?1", [id], |row| row.get(0))?;
        close(connection)?;
        let time = begin.elapsed().as_secs_f64();
        if title != format!("page {id}") {
            return Err(Error::Mismatch { what: uri.to_owned(), detail: format!("row {id} is {title}") });
        }
        if number > 0 {
            times.push(time);
        }
    }
    Ok(times)
}

fn close(connection: Connection) -> Result<()> {
    connection.close().map_err(|(_, error)| error.into())
}
