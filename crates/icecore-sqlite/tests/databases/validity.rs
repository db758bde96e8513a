//! A page cache must not outlive what it was read from, and a handle not the history it belongs to.

use crate::common::{Place, code_of, dump, one, open_uri, run};
use icecore::units::{ByteLength, InodeNumber};
use icecore::{InitOptions, OpenOptions, Pool};

/// A pool that the test works on beside SQLite.
struct Shared {
    pool: Pool,
    registration: icecore_sqlite::Registration,
    _place: tempfile::TempDir,
}

impl Shared {
    fn new(name: &str, options: &InitOptions) -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let path = place.path().join("pool");
        Pool::init_directory(&path, options).expect("a new pool");
        let pool = Pool::open_directory(&path, &OpenOptions::default()).expect("the pool");
        pool.create_dataset("ds", false, &[]).expect("a dataset");
        let registration = icecore_sqlite::register_pool(name, pool.clone()).expect("a free name");
        Self { pool, registration, _place: place }
    }

    fn uri(&self) -> String {
        icecore_sqlite::uri(format!("{}/ds/app.db", self.registration.prefix()).as_ref(), None)
    }

    fn inode(&self) -> InodeNumber {
        self.pool.view("ds").expect("the head").resolve(b"app.db").expect("a path").expect("the file")
    }
}

#[test]
fn equal_change_counters_do_not_mean_equal_contents() {
    let shared = Shared::new("equal", &InitOptions::default());
    let db = open_uri(&shared.uri());
    run(&db, "CREATE TABLE t(a); INSERT INTO t VALUES ('before')");
    assert_eq!(one::<String>(&db, "SELECT a FROM t"), "before");
    // Another way into the pool changes a page, and not the header.
    let view = shared.pool.view("ds").expect("the head");
    let mut page = vec![0; 4096];
    view.read(shared.inode(), 4096, &mut page).expect("a read");
    let at = page.windows(6).position(|window| window == b"before").expect("the row");
    let dataset = shared.pool.dataset("ds").expect("the dataset");
    dataset.write(shared.inode(), 4096 + at as u64, b"behind").expect("a write");
    assert_eq!(one::<String>(&db, "SELECT a FROM t"), "behind");
    // And between two statements of a transaction nothing changes.
    run(&db, "BEGIN");
    assert_eq!(one::<String>(&db, "SELECT a FROM t"), "behind");
    dataset.write(shared.inode(), 4096 + at as u64, b"beyond").expect("a write");
    assert_eq!(one::<String>(&db, "SELECT a FROM t"), "behind");
    let error = db.execute_batch("INSERT INTO t VALUES ('x')").expect_err("the picture is stale");
    assert_eq!(code_of(&error), 5 | (2 << 8));
    run(&db, "COMMIT");
    assert_eq!(one::<String>(&db, "SELECT a FROM t"), "beyond");
    run(&db, "INSERT INTO t VALUES ('x')");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 2);
}

#[test]
fn a_rollback_is_refused_while_a_file_is_open_and_forced_makes_handles_useless() {
    let shared = Shared::new("back", &InitOptions::default());
    let db = open_uri(&shared.uri());
    run(&db, "CREATE TABLE t(a); INSERT INTO t VALUES ('old')");
    assert_eq!(one::<String>(&db, "SELECT icecore_snapshot('s')"), "ds@s");
    run(&db, "UPDATE t SET a = 'new'");
    let refused = shared.pool.rollback("ds@s", false).expect_err("a file is open");
    assert!(refused.to_string().contains("SQLite file app.db"), "{refused}");
    let writing = open_uri(&shared.uri());
    run(&writing, "BEGIN; UPDATE t SET a = 'lost'");
    shared.pool.rollback("ds@s", true).expect("it is forced");
    for sql in ["SELECT a FROM t", "DELETE FROM t"] {
        let error = db.query_row(sql, [], |_| Ok(())).expect_err("the handle is stale");
        assert_eq!(code_of(&error) & 0xff, 10, "{sql}");
    }
    assert!(one::<String>(&open_memory(), "SELECT icecore_last_error()").contains("rolled back"));
    assert!(writing.execute_batch("COMMIT").is_err());
    let fresh = open_uri(&shared.uri());
    assert_eq!(one::<String>(&fresh, "SELECT a FROM t"), "old");
    run(&fresh, "INSERT INTO t VALUES ('more')");
    drop((db, writing));
    assert_eq!(one::<i64>(&fresh, "SELECT count(*) FROM t"), 2);
    assert_eq!(one::<String>(&fresh, "PRAGMA integrity_check"), "ok");
}

#[test]
fn a_commit_of_several_files_fails_as_a_whole() {
    for mode in ["DELETE", "MEMORY"] {
        let shared = Shared::new(&format!("several-{mode}"), &InitOptions::default());
        let other = shared.uri().replace("app.db", "other.db");
        let db = open_uri(&shared.uri());
        run(&db, &format!("ATTACH '{other}' AS other; CREATE TABLE t(a); CREATE TABLE other.t(a)"));
        run(&db, &format!("PRAGMA journal_mode={mode}; SELECT icecore_snapshot('s')"));
        run(&db, "BEGIN; INSERT INTO t VALUES (1); INSERT INTO other.t VALUES (1)");
        shared.pool.rollback("ds@s", true).expect("it is forced");
        assert!(db.execute_batch("COMMIT").is_err(), "{mode}");
        let reason: String = one(&open_memory(), "SELECT icecore_last_error()");
        assert!(reason.contains("rolled back"), "{mode}: {reason}");
        drop(db);
        for uri in [shared.uri(), other] {
            let db = open_uri(&uri);
            assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 0, "{mode}");
            run(&db, "INSERT INTO t VALUES (2)");
        }
    }
}

fn open_memory() -> rusqlite::Connection {
    rusqlite::Connection::open_in_memory().expect("a connection")
}

#[test]
fn a_full_pool_fails_whole_transactions_and_nothing_else() {
    let options = InitOptions {
        segment_bytes: 2 << 20,
        size_limit: Some(ByteLength(48 << 20)),
        ..InitOptions::default()
    };
    for (index, mode) in ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF"].into_iter().enumerate() {
        for exclusive in [false, true] {
            let shared = Shared::new(&format!("full-{index}-{exclusive}"), &options);
            let db = open_uri(&shared.uri());
            if exclusive {
                run(&db, "PRAGMA locking_mode=EXCLUSIVE");
            }
            run(&db, &format!("PRAGMA journal_mode={mode}; PRAGMA cache_size=20"));
            run(
                &db,
                "CREATE TABLE t(id INTEGER PRIMARY KEY, b BLOB); INSERT INTO t VALUES (1, randomblob(100000))",
            );
            let before = dump(&db);
            let rows = "WITH RECURSIVE s(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM s WHERE i < 200) SELECT i FROM s";
            let error = db
                .execute_batch(&format!("BEGIN; INSERT INTO t SELECT i, randomblob(1000000) FROM ({rows})"))
                .expect_err("it does not fit");
            assert_eq!(code_of(&error) & 0xff, 13, "{mode} {exclusive}: {error}");
            let _ = db.execute_batch("ROLLBACK");
            assert_eq!(dump(&db), before, "{mode} {exclusive}");
            run(
                &db,
                "INSERT INTO t VALUES (2, randomblob(100000)); UPDATE t SET b = zeroblob(5) WHERE id = 1",
            );
            let after = dump(&db);
            drop(db);
            assert_eq!(dump(&open_uri(&shared.uri())), after, "{mode} {exclusive}");
        }
    }
}

#[test]
fn a_file_that_loses_its_name_is_not_written() {
    let place = Place::new();
    let db = place.open("app.db");
    run(&db, "CREATE TABLE t(a)");
    drop(db);
    let shared = Shared::new("unlinked", &InitOptions::default());
    let db = open_uri(&shared.uri());
    run(&db, "CREATE TABLE t(a); INSERT INTO t VALUES (1)");
    shared.pool.dataset("ds").expect("the dataset").unlink(InodeNumber::ROOT, b"app.db").expect("an unlink");
    assert_eq!(one::<i64>(&db, "SELECT a FROM t"), 1);
    let error = db.execute_batch("INSERT INTO t VALUES (2)").expect_err("the file has no name");
    assert_eq!(code_of(&error), 8 | (4 << 8));
}
