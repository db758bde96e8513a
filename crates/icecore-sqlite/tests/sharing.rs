//! Connections that only read: several processes have them at once, and a connection of the same process that writes takes
//! the pool over.

mod common;

use common::{PATIENCE, Place, code_of, dump, one, open_uri, run, try_open};
use icecore::{Error, OpenOptions, Pool};
use rusqlite::Connection;
use std::time::{Duration, Instant};

const BUSY_SNAPSHOT: i32 = 517;

/// A closed pool with two rows, and a snapshot in which there was one.
fn place() -> Place {
    let place = Place::new();
    let db = open_uri(&at_once(&place.uri("app.db")));
    run(&db, "CREATE TABLE t(a); INSERT INTO t VALUES (1)");
    assert_eq!(one::<String>(&db, "SELECT icecore_snapshot('monday')"), "ds@monday");
    run(&db, "INSERT INTO t VALUES (2)");
    place
}

/// The pool is closed with the last connection.
fn at_once(uri: &str) -> String {
    format!("{uri}&linger=0")
}

fn to_read(place: &Place) -> Connection {
    open_uri(&at_once(&format!("{}&mode=ro", place.uri("app.db"))))
}

fn count(db: &Connection) -> i64 {
    one(db, "SELECT count(*) FROM t")
}

/// What another process finds that wants to read, or to write.
fn elsewhere(place: &Place, read_only: bool) -> icecore::Result<()> {
    let options = OpenOptions { read_only, control_socket: false, ..OpenOptions::default() };
    Pool::open_directory(&place.pool_path(), &options)?.close()
}

/// Another process that writes: a row more.
fn written_elsewhere(place: &Place) {
    place.with_pool(|pool| {
        let door = icecore_sqlite::register_pool("other", pool.clone()).expect("a name");
        let uri = format!("file:{}/ds/app.db?vfs=icecore", door.prefix());
        run(&open_uri(&uri), "INSERT INTO t VALUES (9)");
    });
}

#[test]
fn processes_read_a_pool_together() {
    let place = place();
    let db = to_read(&place);
    assert_eq!(count(&db), 2);
    elsewhere(&place, true).expect("a second reader");
    assert!(matches!(elsewhere(&place, false), Err(Error::PoolInUse { .. })));
    assert_eq!(count(&db), 2);
    drop(db);
    elsewhere(&place, false).expect("nobody reads it now");
}

#[test]
fn a_connection_that_writes_takes_the_pool_over() {
    let place = place();
    let reading = to_read(&place);
    let monday = icecore_sqlite::uri(&place.path("app.db"), Some("monday"));
    let monday = open_uri(&at_once(&format!("{monday}&mode=ro")));
    assert_eq!((count(&reading), count(&monday)), (2, 1));
    let writing = place.open("app.db");
    run(&writing, "INSERT INTO t VALUES (3)");
    assert_eq!((count(&writing), count(&reading), count(&monday)), (3, 3, 1));
    run(&writing, "UPDATE t SET a = a + 10");
    assert_eq!(dump(&reading), dump(&writing));
    assert_eq!(one::<i64>(&monday, "SELECT sum(a) FROM t"), 1);
    assert_eq!(code_of(&reading.execute_batch("DELETE FROM t").expect_err("it only reads")), 8);
    // The pool is the one that is written to, whatever order they end in.
    drop(writing);
    assert_eq!(count(&reading), 3);
}

#[test]
fn whoever_writes_waits_for_a_read_transaction() {
    let place = place();
    let reading = to_read(&place);
    run(&reading, "BEGIN");
    assert_eq!(count(&reading), 2);
    let refused = try_open(&place.uri("app.db")).and_then(|db| db.execute_batch("INSERT INTO t VALUES (3)"));
    refused.expect_err("it is being read");
    let sentence = icecore_sqlite::last_error().expect("a sentence");
    assert!(sentence.contains("mode=ro"), "{sentence}");
    assert_eq!(count(&reading), 2);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| run(&place.open("app.db"), "INSERT INTO t VALUES (3)"));
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(count(&reading), 2);
        run(&reading, "COMMIT");
        writer.join().expect("it has written");
    });
    assert_eq!(count(&reading), 3);
}

#[test]
fn a_head_as_it_was_keeps_the_pool_for_reading() {
    let place = place();
    let frozen = open_uri(&at_once(&format!("{}&mode=ro&immutable=1", place.uri("app.db"))));
    assert_eq!(count(&frozen), 2);
    assert!(try_open(&place.uri("app.db")).and_then(|db| db.execute_batch("DELETE FROM t")).is_err());
    assert_eq!(count(&frozen), 2);
    drop(frozen);
    run(&place.open("app.db"), "DELETE FROM t");
}

/// Nothing of a pool that is idle and was only read keeps another process waiting, and what that wrote is found.
#[test]
fn an_idle_pool_that_was_read_is_as_good_as_closed() {
    let place = place();
    let uri = format!("{}&mode=ro&linger=3600", place.uri("app.db"));
    assert_eq!(count(&open_uri(&uri)), 2);
    let begin = Instant::now();
    elsewhere(&place, false).expect("it is idle");
    assert!(begin.elapsed() < PATIENCE);
    assert_eq!(count(&open_uri(&uri)), 2);
    written_elsewhere(&place);
    assert_eq!(count(&open_uri(&uri)), 3);
}

/// A pool that was handed over by a program, and which it does not keep others from writing to.
#[test]
fn what_is_read_beside_a_writer_is_never_what_it_should_not_be() {
    let place = place();
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let pool = Pool::open_directory(&place.pool_path(), &options).expect("the pool");
    pool.disown();
    let door = icecore_sqlite::register_pool("disowned", pool.clone()).expect("a name");
    let db = open_uri(&format!("file:{}/ds/app.db?vfs=icecore&mode=ro", door.prefix()));
    assert_eq!(count(&db), 2);
    run(&db, "BEGIN");
    assert_eq!(count(&db), 2);
    run(&db, "PRAGMA shrink_memory");
    elsewhere(&place, false).expect("nobody owns it");
    assert!(pool.is_outdated() && !pool.own_again());
    let query = || db.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
    let met = query().expect_err("in the middle of a transaction");
    assert_eq!(met.sqlite_error().expect("a code").extended_code, BUSY_SNAPSHOT);
    run(&db, "ROLLBACK");
    assert_eq!(code_of(&query().expect_err("there is another pool")), 5);
}
