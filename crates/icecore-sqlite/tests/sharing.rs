//! Connections that only read: any number of processes have them, and no process waits for them. A writer
//! takes the pool over, and they go on in the pool as it is then.

mod common;

use common::{Place, code_of, dump, one, open_uri, run, try_open};
use icecore::{DestroyTarget, OpenOptions, Pool};
use rusqlite::Connection;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const BUSY_SNAPSHOT: i32 = 517;
const IOERR: i32 = 10;

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

fn monday(place: &Place) -> Connection {
    let uri = icecore_sqlite::uri(&place.path("app.db"), Some("monday"));
    open_uri(&at_once(&format!("{uri}&mode=ro")))
}

fn count(db: &Connection) -> i64 {
    one(db, "SELECT count(*) FROM t")
}

/// What a query meets that has to read from the pool.
fn refusal(db: &Connection) -> i32 {
    run(db, "PRAGMA shrink_memory");
    let met = db.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
    met.expect_err("it is not there any more").sqlite_error().expect("a code").extended_code
}

/// Another process that opens the pool to read, or to write, does something, and closes it.
fn elsewhere(place: &Place, read_only: bool, body: impl FnOnce(&Pool)) {
    let options = OpenOptions { read_only, control_socket: false, ..OpenOptions::default() };
    let pool = Pool::open_directory(&place.pool_path(), &options).expect("no process waits for readers");
    body(&pool);
    pool.close().expect("a clean close");
}

/// Another process that writes: a row more. Names of registered pools belong to the process, and tests run
/// side by side in it.
fn written_elsewhere(place: &Place) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    elsewhere(place, false, |pool| {
        let name = format!("elsewhere-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let door = icecore_sqlite::register_pool(&name, pool.clone()).expect("a name");
        run(&open_uri(&format!("file:{}/ds/app.db?vfs=icecore", door.prefix())), "INSERT INTO t VALUES (9)");
    });
}

#[test]
fn no_connection_waits_for_one_that_reads() {
    let place = place();
    let (db, past) = (to_read(&place), monday(&place));
    assert_eq!((count(&db), count(&past)), (2, 1));
    elsewhere(&place, true, |_| ());
    elsewhere(&place, false, |_| ());
    assert_eq!((count(&db), count(&past)), (2, 1));
    for expected in 3..6 {
        written_elsewhere(&place);
        run(&past, "PRAGMA shrink_memory");
        assert_eq!((count(&db), count(&past)), (expected, 1));
    }
    assert_eq!(code_of(&db.execute_batch("DELETE FROM t").expect_err("it only reads")), 8);
}

#[test]
fn a_connection_that_writes_takes_the_pool_over() {
    let place = place();
    let (reading, past) = (to_read(&place), monday(&place));
    assert_eq!((count(&reading), count(&past)), (2, 1));
    let writing = place.open("app.db");
    run(&writing, "INSERT INTO t VALUES (3)");
    assert_eq!((count(&writing), count(&reading), count(&past)), (3, 3, 1));
    run(&writing, "UPDATE t SET a = a + 10");
    assert_eq!(dump(&reading), dump(&writing));
    assert_eq!(one::<i64>(&past, "SELECT sum(a) FROM t"), 1);
    assert_eq!(one::<i64>(&reading, "SELECT count(*) FROM icecore_snapshots"), 1);
    assert_eq!(one::<String>(&writing, "SELECT icecore_snapshot('tuesday')"), "ds@tuesday");
    assert_eq!(one::<i64>(&past, "SELECT count(*) FROM icecore_snapshots"), 2);
    // The pool is the one that is written to, whatever order they end in.
    drop(writing);
    assert_eq!(count(&reading), 3);
}

/// A long report goes on beside commands that take snapshots, and beside a writer of its process that it met
/// in time.
#[test]
fn a_read_transaction_goes_on_where_its_version_is_found_again() {
    let place = place();
    let reading = to_read(&place);
    run(&reading, "BEGIN");
    assert_eq!(count(&reading), 2);
    for name in ["a", "b", "c"] {
        elsewhere(&place, false, |pool| {
            pool.snapshot(&[format!("ds@{name}")], false, &[]).expect("a snapshot");
        });
        run(&reading, "PRAGMA shrink_memory");
        assert_eq!(count(&reading), 2);
    }
    let writing = place.open("app.db");
    run(&reading, "PRAGMA shrink_memory");
    assert_eq!(count(&reading), 2);
    run(&writing, "INSERT INTO t VALUES (3); INSERT INTO t VALUES (4)");
    run(&reading, "PRAGMA shrink_memory");
    assert_eq!((count(&reading), count(&writing)), (2, 4));
    run(&reading, "COMMIT");
    assert_eq!(count(&reading), 4);
}

#[test]
fn a_version_that_is_gone_is_never_mixed_with_another() {
    let place = place();
    let (reading, past) = (to_read(&place), monday(&place));
    let frozen = open_uri(&at_once(&format!("{}&mode=ro&immutable=1", place.uri("app.db"))));
    run(&reading, "BEGIN");
    assert_eq!((count(&reading), count(&past), count(&frozen)), (2, 1, 2));
    elsewhere(&place, false, |pool| {
        pool.destroy(&DestroyTarget::Snapshot("ds@monday".to_owned())).expect("destroyed");
        pool.snapshot(&["ds@monday".to_owned()], false, &[]).expect("another of that name");
    });
    assert_eq!(refusal(&past), BUSY_SNAPSHOT);
    run(&frozen, "PRAGMA shrink_memory");
    assert_eq!((count(&reading), count(&frozen)), (2, 2));
    elsewhere(&place, false, |pool| {
        pool.destroy(&DestroyTarget::Snapshot("ds@monday".to_owned())).expect("destroyed");
    });
    assert_eq!(refusal(&past), BUSY_SNAPSHOT, "there is none of that name");
    elsewhere(&place, false, |pool| {
        pool.snapshot(&["ds@monday".to_owned()], false, &[]).expect("a third of that name");
    });
    written_elsewhere(&place);
    assert_eq!(
        (refusal(&reading), refusal(&frozen), refusal(&past)),
        (BUSY_SNAPSHOT, BUSY_SNAPSHOT, BUSY_SNAPSHOT)
    );
    run(&reading, "ROLLBACK");
    assert_eq!((count(&reading), count(&monday(&place))), (3, 2));
}

#[test]
fn a_process_that_has_the_pool_to_write_is_waited_for() {
    let place = place();
    let reading = to_read(&place);
    assert_eq!(count(&reading), 2);
    let options = OpenOptions { control_socket: false, ..OpenOptions::default() };
    let pool = Pool::open_directory(&place.pool_path(), &options).expect("no process waits");
    let met = reading.execute_batch("PRAGMA shrink_memory; SELECT * FROM t").expect_err("the pool is in use");
    assert_eq!(code_of(&met), 5);
    reading.busy_timeout(Duration::from_secs(20)).expect("a timeout");
    std::thread::scope(|scope| {
        let closing = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(300));
            pool.close().expect("a clean close");
        });
        assert_eq!(count(&reading), 2);
        closing.join().expect("it was closed");
    });
}

#[test]
fn a_pool_for_reading_alone_keeps_writers_out() {
    let place = place();
    let shared = to_read(&place);
    let alone = open_uri(&at_once(&format!("{}&pool=ro", place.uri("app.db"))));
    assert_eq!((count(&shared), count(&alone)), (2, 2));
    let refused = try_open(&place.uri("app.db")).and_then(|db| db.execute_batch("DELETE FROM t"));
    refused.expect_err("it is only read");
    assert!(Pool::open_directory(&place.pool_path(), &OpenOptions::default()).is_err());
    drop(alone);
    run(&place.open("app.db"), "DELETE FROM t");
    assert_eq!(count(&shared), 0);
}

/// It would keep no process out, and SQLite would never end a read transaction.
#[test]
fn who_only_reads_has_no_exclusive_mode() {
    let place = place();
    let db = to_read(&place);
    assert_eq!(one::<String>(&db, "PRAGMA locking_mode=EXCLUSIVE"), "normal");
    assert_eq!(count(&db), 2);
    written_elsewhere(&place);
    assert_eq!(count(&db), 3);
}

/// Nothing of a pool that is idle and was only read keeps another process waiting, and what that wrote is
/// found.
#[test]
fn an_idle_pool_that_was_read_is_as_good_as_closed() {
    let place = place();
    let uri = format!("{}&mode=ro&linger=3600", place.uri("app.db"));
    assert_eq!(count(&open_uri(&uri)), 2);
    let begin = Instant::now();
    elsewhere(&place, false, |_| ());
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert_eq!(count(&open_uri(&uri)), 2);
    written_elsewhere(&place);
    assert_eq!(count(&open_uri(&uri)), 3);
    run(&place.open("app.db"), "INSERT INTO t VALUES (4)");
    assert_eq!(count(&open_uri(&uri)), 4);
}

/// Only a writer recovers a pool; a process that reads it then does not have it to write.
#[test]
fn a_pool_that_was_not_closed_is_recovered_and_read() {
    let place = place();
    let writing = place.open("app.db");
    run(&writing, "INSERT INTO t VALUES (3)");
    let killed = place.outside("killed");
    let copied = std::process::Command::new("cp").arg("-a").args([&place.pool_path(), &killed]).status();
    assert!(copied.expect("cp").success());
    let uri = icecore_sqlite::uri(&killed.join("ds/app.db"), None);
    let reading = open_uri(&at_once(&format!("{uri}&mode=ro")));
    assert_eq!(count(&reading), 3);
    Pool::open_directory(&killed, &OpenOptions::default())
        .expect("it is not in use")
        .close()
        .expect("closed");
    assert_eq!(count(&reading), 3);
}

/// A pool that a program handed over, and that it does not keep others from writing to.
#[test]
fn a_registered_pool_that_is_outdated_is_an_error() {
    let place = place();
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let pool = Pool::open_directory(&place.pool_path(), &options).expect("the pool");
    pool.disown();
    let door = icecore_sqlite::register_pool("disowned", pool.clone()).expect("a name");
    let db = open_uri(&format!("file:{}/ds/app.db?vfs=icecore&mode=ro", door.prefix()));
    run(&db, "BEGIN");
    assert_eq!(count(&db), 2);
    elsewhere(&place, false, |_| ());
    assert!(pool.is_outdated());
    assert_eq!(refusal(&db), IOERR);
    assert!(db.is_autocommit(), "the error ended the transaction");
    assert_eq!(refusal(&db), IOERR);
}
