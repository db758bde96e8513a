//! A SQLite database in which transactions move amounts: whatever version one looks at, they sum up to
//! nothing.

use super::process::Turn;
use super::sample::Deeds;
use crate::error::{Error, Result};
use crate::sqlite;
use rusqlite::Connection;
use std::path::Path;
use std::time::Duration;

pub(super) const DATASET: &str = "soak/db";
const ACCOUNTS: i64 = 500;
const PACE: Duration = Duration::from_millis(50);
/// Transactions from one `incremental_vacuum` to the next.
const VACUUM_EVERY: u64 = 50;
const NOTE_BYTES: i64 = 1200;

/// The URI of the database, as it is or as it was.
pub(super) fn uri(prefix: &str, snapshot: Option<&str>) -> String {
    icecore_sqlite::uri(&Path::new(prefix).join(DATASET).join("app.db"), snapshot)
}

/// Makes the tables, with so many entries.
pub(super) fn create(prefix: &str, rows: u32) -> Result<()> {
    let connection = sqlite::open(&uri(prefix, None), false)?;
    connection.execute_batch(
        "PRAGMA auto_vacuum=INCREMENTAL; VACUUM;
         CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
         CREATE TABLE entry(id INTEGER PRIMARY KEY, account INTEGER NOT NULL, amount INTEGER NOT NULL, note BLOB);
         CREATE INDEX entry_account ON entry(account);
         BEGIN",
    )?;
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO account SELECT i, 0 FROM n",
        [ACCOUNTS],
    )?;
    connection.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
         INSERT INTO entry(account, amount, note)
         SELECT i / 2 % ?2 + 1, CASE i % 2 WHEN 0 THEN 1 ELSE -1 END, randomblob(1 + abs(random() % ?3)) FROM n",
        [i64::from(rows / 2 * 2), ACCOUNTS, NOTE_BYTES],
    )?;
    connection.execute_batch("COMMIT")?;
    check(&connection, true)
}

/// Moves amounts until the cycle is over, over a connection of its own.
pub(super) fn work(turn: &mut Turn<'_>) -> Result<Deeds> {
    let mut deeds = Deeds::default();
    let mut connection = sqlite::open(&uri(turn.prefix, None), false)?;
    while turn.goes_on(PACE) {
        transfer(&mut connection, turn)?;
        deeds.transactions += 1;
        if deeds.transactions.is_multiple_of(VACUUM_EVERY) {
            drain(&connection, "PRAGMA incremental_vacuum(100)")?;
        }
    }
    check(&connection, false)?;
    Ok(deeds)
}

/// Writes the database anew, without what is free in it: always equally long for equally many entries.
pub(super) fn tidy(prefix: &str) -> Result<()> {
    Ok(sqlite::open(&uri(prefix, None), false)?.execute_batch("VACUUM")?)
}

/// One transaction: an amount goes from one account to another, with two new entries for two old ones.
fn transfer(connection: &mut Connection, turn: &mut Turn<'_>) -> Result<()> {
    let (from, to) = (1 + below(ACCOUNTS, turn), 1 + below(ACCOUNTS, turn));
    let amount = below(1000, turn);
    let transaction = connection.transaction()?;
    {
        let mut update =
            transaction.prepare_cached("UPDATE account SET balance = balance + ?2 WHERE id = ?1")?;
        let mut insert = transaction
            .prepare_cached("INSERT INTO entry(account, amount, note) VALUES (?1, ?2, randomblob(?3))")?;
        for (account, amount) in [(from, -amount), (to, amount)] {
            update.execute(rusqlite::params![account, amount])?;
            insert.execute(rusqlite::params![account, amount, 1 + below(NOTE_BYTES, turn)])?;
        }
        // Entries come in pairs with consecutive numbers, and go in the order in which they came.
        transaction
            .prepare_cached("DELETE FROM entry WHERE id IN (SELECT id FROM entry ORDER BY id LIMIT 2)")?
            .execute([])?;
    }
    Ok(transaction.commit()?)
}

/// A number from 0 up to but not including `limit`, as SQLite counts.
fn below(limit: i64, turn: &mut Turn<'_>) -> i64 {
    turn.random.below(limit.unsigned_abs()) as i64
}

/// Steps through all that a statement answers.
fn drain(connection: &Connection, sql: &str) -> Result<()> {
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}

/// Verifies that nothing was lost on the way, and with `whole` that SQLite finds nothing wrong.
pub(super) fn check(connection: &Connection, whole: bool) -> Result<()> {
    let sum: i64 = connection.query_row(
        "SELECT (SELECT sum(balance) FROM account) * 1000003 + (SELECT sum(amount) FROM entry)",
        [],
        |row| row.get(0),
    )?;
    let accounts: i64 = connection.query_row("SELECT count(*) FROM account", [], |row| row.get(0))?;
    let wrong = |detail: String| Err(Error::Mismatch { what: "the database".to_owned(), detail });
    if (sum, accounts) != (0, ACCOUNTS) {
        return wrong(format!("{accounts} accounts, and amounts that come to {sum}"));
    }
    if whole {
        let answer: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        if answer != "ok" {
            return wrong(answer);
        }
    }
    Ok(())
}

/// Verifies the present, over a connection of its own.
pub(super) fn verify(prefix: &str) -> Result<()> {
    check(&sqlite::open(&uri(prefix, None), true)?, true)
}
