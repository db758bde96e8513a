//! Several connections: which waits for which, and what SQLite answers it.

mod common;

use common::{PATIENCE, Place, code_of, one, run, try_open};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BUSY: i32 = 5;
const BUSY_SNAPSHOT: i32 = 5 | (2 << 8);

fn place() -> Place {
    let place = Place::new();
    let db = place.open("app.db");
    run(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 0)");
    place
}

#[test]
fn a_reader_keeps_its_version_and_blocks_no_writer() {
    let place = place();
    let (reader, writer) = (place.open("app.db"), place.open("app.db"));
    run(&reader, "BEGIN");
    assert_eq!(one::<i64>(&reader, "SELECT a FROM t"), 0);
    for value in 1..=10 {
        run(&writer, &format!("UPDATE t SET a = {value}"));
        assert_eq!(one::<i64>(&reader, "SELECT a FROM t"), 0);
    }
    run(&reader, "COMMIT");
    assert_eq!(one::<i64>(&reader, "SELECT a FROM t"), 10);
}

#[test]
fn a_writer_blocks_no_reader_at_any_moment() {
    let place = place();
    let (reader, writer) = (place.open("app.db"), place.open("app.db"));
    run(&writer, "PRAGMA cache_size=2; BEGIN EXCLUSIVE; UPDATE t SET a = 7");
    assert_eq!(one::<i64>(&reader, "SELECT a FROM t"), 0);
    run(&writer, "INSERT INTO t SELECT value, zeroblob(5000) FROM json_each('[2,3,4,5,6,7,8,9,10,11,12]')");
    assert_eq!(one::<i64>(&reader, "SELECT count(*) FROM t"), 1);
    run(&writer, "COMMIT");
    assert_eq!(one::<i64>(&reader, "SELECT count(*) FROM t"), 12);
    assert_eq!(one::<i64>(&reader, "SELECT a FROM t WHERE id = 1"), 7);
}

#[test]
fn one_writer_at_a_time() {
    let place = place();
    let (first, second) = (place.open("app.db"), place.open("app.db"));
    run(&first, "BEGIN IMMEDIATE");
    let error = second.execute_batch("BEGIN IMMEDIATE").expect_err("there is a writer");
    assert_eq!(code_of(&error), BUSY);
    let error = second.execute_batch("UPDATE t SET a = 1").expect_err("there is a writer");
    assert_eq!(code_of(&error), BUSY);
    run(&first, "ROLLBACK");
    run(&second, "UPDATE t SET a = 1");
}

#[test]
fn a_stale_picture_cannot_be_written() {
    let place = place();
    let (first, second) = (place.open("app.db"), place.open("app.db"));
    run(&second, "BEGIN");
    assert_eq!(one::<i64>(&second, "SELECT a FROM t"), 0);
    run(&first, "UPDATE t SET a = 1");
    let error = second.execute_batch("UPDATE t SET a = a + 1").expect_err("the picture is stale");
    assert_eq!(code_of(&error), BUSY_SNAPSHOT);
    assert_eq!(one::<i64>(&second, "SELECT a FROM t"), 0);
    run(&second, "ROLLBACK; UPDATE t SET a = a + 1");
    assert_eq!(one::<i64>(&second, "SELECT a FROM t"), 2);
}

#[test]
fn the_busy_handler_waits_for_a_writer() {
    let place = place();
    let first = place.open("app.db");
    run(&first, "BEGIN IMMEDIATE; UPDATE t SET a = 5");
    thread::scope(|scope| {
        scope.spawn(|| {
            let second = place.open("app.db");
            second.busy_timeout(PATIENCE).expect("a timeout");
            run(&second, "UPDATE t SET a = a + 1");
        });
        thread::sleep(Duration::from_millis(100));
        run(&first, "COMMIT");
    });
    assert_eq!(one::<i64>(&first, "SELECT a FROM t"), 6);
    // Where waiting cannot help, no connection waits.
    let second = place.open("app.db");
    second.busy_timeout(PATIENCE).expect("a timeout");
    run(&second, "BEGIN");
    assert_eq!(one::<i64>(&second, "SELECT a FROM t"), 6);
    run(&first, "UPDATE t SET a = 0");
    let before = Instant::now();
    let error = second.execute_batch("UPDATE t SET a = 1").expect_err("the picture is stale");
    assert_eq!(code_of(&error), BUSY_SNAPSHOT);
    assert!(before.elapsed() < Duration::from_secs(5));
}

#[test]
fn no_increment_is_lost() {
    const THREADS: i64 = 4;
    const ROUNDS: i64 = 50;
    let place = place();
    // Open all the time, so that the pool is not closed and opened in between.
    let kept = place.open("app.db");
    thread::scope(|scope| {
        for number in 0..THREADS {
            let place = &place;
            scope.spawn(move || {
                let db = place.open("app.db");
                db.busy_timeout(PATIENCE).expect("a timeout");
                if number % 2 == 1 {
                    run(&db, "PRAGMA journal_mode=MEMORY; PRAGMA synchronous=OFF");
                }
                for _ in 0..ROUNDS {
                    run(&db, "UPDATE t SET a = a + 1");
                }
            });
        }
    });
    assert_eq!(one::<i64>(&kept, "SELECT a FROM t"), THREADS * ROUNDS);
}

#[test]
fn readers_see_whole_transactions_while_a_writer_works() {
    let place = Place::new();
    let writer = place.open("app.db");
    run(&writer, "PRAGMA cache_size=5; CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, b BLOB)");
    let rows =
        "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 200) SELECT i FROM s";
    run(&writer, &format!("INSERT INTO t SELECT i, 0, zeroblob(300) FROM ({rows})"));
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let db = place.open("app.db");
                let mut last = 0;
                while !done.load(Ordering::Relaxed) {
                    let sql = "SELECT min(a), max(a), count(*) FROM t";
                    let get = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
                    let (least, most, count): (i64, i64, i64) =
                        db.query_row(sql, [], get).expect("readers never wait");
                    assert_eq!((least, count), (most, 200));
                    assert!(most >= last);
                    last = most;
                }
            });
        }
        for _ in 0..60 {
            run(&writer, "UPDATE t SET a = a + 1");
            run(&writer, "BEGIN; UPDATE t SET a = -1, b = zeroblob(900); ROLLBACK");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(one::<String>(&writer, "PRAGMA integrity_check"), "ok");
}

#[test]
fn exclusive_mode_has_the_file_for_itself() {
    let place = place();
    let (owner, other) = (place.open("app.db"), place.open("app.db"));
    run(&owner, "PRAGMA locking_mode=EXCLUSIVE");
    assert_eq!(one::<i64>(&owner, "SELECT a FROM t"), 0);
    // It has read: others may read, and prepare to write, but not overtake it.
    assert_eq!(one::<i64>(&other, "SELECT a FROM t"), 0);
    let error = other.execute_batch("UPDATE t SET a = 1").expect_err("the picture of the owner must stay");
    assert_eq!(code_of(&error), BUSY);
    run(&owner, "UPDATE t SET a = 2");
    // It has written: no other connection may even read.
    let error = other.query_row("SELECT a FROM t", [], |_| Ok(())).expect_err("the file is locked");
    assert_eq!(code_of(&error), BUSY);
    run(&owner, "PRAGMA locking_mode=NORMAL; SELECT 1 FROM t");
    assert_eq!(one::<i64>(&other, "SELECT a FROM t"), 2);
    run(&other, "UPDATE t SET a = 3");
}

#[test]
fn exclusive_mode_waits_for_readers() {
    let place = place();
    let (owner, other) = (place.open("app.db"), place.open("app.db"));
    run(&other, "BEGIN");
    assert_eq!(one::<i64>(&other, "SELECT a FROM t"), 0);
    run(&owner, "PRAGMA locking_mode=EXCLUSIVE");
    let error = owner.execute_batch("UPDATE t SET a = 2").expect_err("there is a reader");
    assert_eq!(code_of(&error), BUSY);
    run(&other, "COMMIT");
    run(&owner, "UPDATE t SET a = 2");
    drop(owner);
    assert_eq!(one::<i64>(&other, "SELECT a FROM t"), 2);
}

#[test]
fn exclusive_mode_reaches_attached_files() {
    let place = place();
    let owner = place.open("main.db");
    run(&owner, "CREATE TABLE m(a)");
    run(&owner, &format!("ATTACH '{}' AS app", place.uri("app.db")));
    run(&owner, "PRAGMA locking_mode=EXCLUSIVE");
    assert_eq!(one::<i64>(&owner, "SELECT a FROM app.t"), 0);
    let other = place.open("app.db");
    let error = other.execute_batch("UPDATE t SET a = 1").expect_err("the picture of the owner must stay");
    assert_eq!(code_of(&error), BUSY);
    run(&owner, "UPDATE app.t SET a = 4");
    let error = other.query_row("SELECT a FROM t", [], |_| Ok(())).expect_err("the file is locked");
    assert_eq!(code_of(&error), BUSY);
    drop(owner);
    assert_eq!(one::<i64>(&other, "SELECT a FROM t"), 4);
}

#[test]
fn exclusive_mode_is_refused_to_an_overtaken_reader() {
    let place = place();
    let (late, other) = (place.open("app.db"), place.open("app.db"));
    run(&late, "BEGIN");
    assert_eq!(one::<i64>(&late, "SELECT a FROM t"), 0);
    run(&other, "UPDATE t SET a = 1");
    let error =
        late.execute_batch("PRAGMA locking_mode=EXCLUSIVE").expect_err("its picture is stale for good");
    assert!(error.to_string().contains("outside of a transaction"), "{error}");
    run(&late, "COMMIT; PRAGMA locking_mode=EXCLUSIVE; UPDATE t SET a = a + 1");
    assert_eq!(one::<i64>(&late, "SELECT a FROM t"), 2);
}

#[test]
fn statements_that_read_go_on_through_a_commit_of_their_connection() {
    let place = place();
    let db = place.open("app.db");
    run(&db, "INSERT INTO t VALUES (2, 0), (3, 0), (4, 0)");
    let mut reading = db.prepare("SELECT id FROM t ORDER BY id").expect("a statement");
    let mut rows = reading.query([]).expect("rows");
    assert!(rows.next().expect("a row").is_some());
    run(&db, "UPDATE t SET a = a + 1");
    run(&place.open("app.db"), "SELECT count(*) FROM t");
    let mut count = 1;
    while rows.next().expect("a row").is_some() {
        count += 1;
    }
    assert_eq!(count, 4);
    drop(rows);
    assert_eq!(one::<i64>(&db, "SELECT sum(a) FROM t"), 4);
}

#[test]
fn shared_cache_connections_work_too() {
    let place = place();
    let uri = format!("{}&cache=shared", place.uri("app.db"));
    let (first, second) = (try_open(&uri).expect("a connection"), try_open(&uri).expect("a connection"));
    run(&first, "BEGIN; UPDATE t SET a = 9");
    assert!(second.execute_batch("UPDATE t SET a = 8").is_err());
    run(&first, "COMMIT");
    assert_eq!(one::<i64>(&second, "SELECT a FROM t"), 9);
}
