//! What connections that only read keep from being used again.

use super::database::Site;
use rusqlite::{Connection, OpenFlags};

/// Bytes of the table of `db/app.db` that are written anew in each transaction.
const CHURN_BYTES: i64 = 2 << 20;
const TRANSACTIONS: u32 = 100;
const LIMIT: u64 = 64 << 20;

fn database(site: &Site, path: &str) -> Connection {
    let connection = Connection::open(site.uri_of(path, None)).expect("a connection");
    let row = "CREATE TABLE t(id INTEGER PRIMARY KEY, a BLOB); INSERT INTO t VALUES (1, zeroblob(2097152))";
    connection.execute_batch(row).expect("a table");
    connection
}

fn past(site: &Site, path: &str, snapshot: &str) -> Connection {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    Connection::open_with_flags(site.uri_of(path, Some(snapshot)), flags).expect("the past")
}

fn length(connection: &Connection) -> i64 {
    connection.query_row("SELECT sum(length(a)) FROM t", [], |row| row.get(0)).expect("a sum")
}

/// A pool with databases `db/app.db` and `other/app.db`, each with a snapshot.
fn site(folder: &std::path::Path, limit: u64) -> (Site, Connection) {
    let site = Site::make(folder, Some(limit));
    let app = database(&site, "db/app.db");
    drop(database(&site, "other/app.db"));
    let names = ["db@s", "other@s"].map(str::to_owned);
    site.pool.snapshot(&names, false, &[]).expect("snapshots");
    (site, app)
}

fn churn(site: &Site, app: &Connection, transactions: u32) {
    for number in 0..transactions {
        let written = app.execute("UPDATE t SET a = randomblob(?1)", [CHURN_BYTES]);
        assert!(written.is_ok(), "transaction {number}: {written:?}, {:?}", site.pool.readers());
    }
}

#[test]
fn an_idle_connection_to_a_snapshot_keeps_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let (site, app) = site(folder.path(), 256 << 20);
    app.execute_batch("CREATE TABLE more(a BLOB); INSERT INTO more VALUES (randomblob(35 << 20))")
        .expect("a table that stays");
    let used = site.pool.statistics().used_bytes >> 20;
    assert!((39..41).contains(&used), "{used} MiB are used");
    let idle = past(&site, "other/app.db", "s");
    assert_eq!(length(&idle), CHURN_BYTES);
    let attached = Connection::open_in_memory().expect("a connection");
    attached
        .execute("ATTACH ?1 AS past", [site.uri_of("db/app.db", Some("s"))])
        .expect("the past is attached");
    churn(&site, &app, 300);
    assert_eq!(length(&idle), CHURN_BYTES);
}

#[test]
fn a_transaction_in_a_snapshot_keeps_nothing_but_the_snapshot() {
    let folder = tempfile::tempdir().expect("a folder");
    let (site, app) = site(folder.path(), LIMIT);
    let reading = ["db/app.db", "other/app.db"].map(|path| past(&site, path, "s"));
    for connection in &reading {
        connection.execute_batch("BEGIN").expect("a transaction");
        assert_eq!(length(connection), CHURN_BYTES);
    }
    churn(&site, &app, TRANSACTIONS);
    site.pool.destroy(&icecore::DestroyTarget::Snapshot("db@s".to_owned())).expect("destroyed");
    churn(&site, &app, TRANSACTIONS);
    let readers = site.pool.readers();
    let said: Vec<_> = readers.iter().map(|reader| (&*reader.version, reader.what.as_deref())).collect();
    assert_eq!(said, [("db@s", Some("SQLite file app.db"))]);
    for connection in &reading {
        assert_eq!(length(connection), CHURN_BYTES);
    }
    drop(reading);
    assert!(site.pool.readers().is_empty());
}

#[test]
fn a_transaction_in_the_present_keeps_what_it_reads() {
    let folder = tempfile::tempdir().expect("a folder");
    let (site, app) = site(folder.path(), LIMIT);
    let reading = ["db/app.db", "other/app.db"].map(|path| {
        let connection = Connection::open(site.uri_of(path, None)).expect("a connection");
        connection.execute_batch("BEGIN").expect("a transaction");
        assert_eq!(length(&connection), CHURN_BYTES);
        connection
    });
    churn(&site, &app, TRANSACTIONS);
    for connection in &reading {
        assert_eq!(length(connection), CHURN_BYTES);
    }
}
