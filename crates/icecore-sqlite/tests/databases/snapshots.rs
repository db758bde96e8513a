//! Snapshots from SQL, and the past beside the present.

use crate::common::{Place, code_of, one, run, try_open};

fn place() -> Place {
    let place = Place::new();
    let db = place.open("app.db");
    run(&db, "CREATE TABLE t(id INTEGER PRIMARY KEY, a); INSERT INTO t VALUES (1, 'old')");
    assert_eq!(one::<String>(&db, "SELECT icecore_snapshot('monday')"), "ds@monday");
    run(&db, "UPDATE t SET a = 'new'; INSERT INTO t VALUES (2, 'more')");
    place
}

#[test]
fn a_snapshot_shows_what_was() {
    let place = place();
    let past = place.open_snapshot("app.db", "monday");
    assert_eq!(one::<String>(&past, "SELECT group_concat(a) FROM t"), "old");
    let path = place.pool_path().join("ds@monday/app.db");
    let past = try_open(&icecore_sqlite::uri(&path, None)).expect("the snapshot in the path");
    assert_eq!(one::<String>(&past, "SELECT group_concat(a) FROM t"), "old");
    assert_eq!(one::<String>(&place.open("app.db"), "SELECT group_concat(a) FROM t"), "new,more");
}

#[test]
fn the_past_joins_the_present() {
    let place = place();
    let db = place.open("app.db");
    let uri = icecore_sqlite::uri(&place.path("app.db"), Some("monday"));
    run(&db, &format!("ATTACH '{uri}' AS monday"));
    let sql =
        "SELECT t.a || '/' || coalesce(m.a, 'nothing') FROM t LEFT JOIN monday.t AS m USING (id) ORDER BY id";
    let mut statement = db.prepare(sql).expect("a join");
    let rows: Vec<String> =
        statement.query_map([], |row| row.get(0)).expect("rows").map(Result::unwrap).collect();
    assert_eq!(rows, ["new/old", "more/nothing"]);
    drop(statement);
    run(&db, "INSERT INTO t SELECT id + 10, a FROM monday.t");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 3);
}

#[test]
fn the_past_cannot_be_written() {
    let place = place();
    let past = place.open_snapshot("app.db", "monday");
    let error = past.execute_batch("INSERT INTO t VALUES (3, 'x')").expect_err("a snapshot");
    assert_eq!(code_of(&error), 8);
    let db = place.open("app.db");
    let uri = icecore_sqlite::uri(&place.path("app.db"), Some("monday"));
    run(&db, &format!("ATTACH '{uri}' AS monday"));
    for sql in ["DELETE FROM monday.t", "CREATE TABLE monday.u(a)", "VACUUM monday"] {
        let error = db.execute_batch(sql).expect_err("a snapshot");
        assert_eq!(code_of(&error) & 0xff, 8, "{sql}");
    }
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM monday.t"), 1);
}

#[test]
fn snapshots_have_names_or_times() {
    let place = place();
    let db = place.open("app.db");
    let stamped: String = one(&db, "SELECT icecore_snapshot()");
    let (dataset, name) = stamped.split_once('@').expect("a full name");
    assert_eq!(dataset, "ds");
    let moment = name.strip_prefix("auto-").expect("as the command names them");
    assert_eq!(moment.len(), "2026-11-21T20:01:02.123Z".len());
    assert!(moment.ends_with('Z') && moment.as_bytes()[10] == b'T');
    let past = place.open_snapshot("app.db", name);
    assert_eq!(one::<i64>(&past, "SELECT count(*) FROM t"), 2);
    let listed: i64 = one(&db, "SELECT count(*) FROM icecore_snapshots WHERE name LIKE 'ds@%'");
    assert_eq!(listed, 2);
    let bytes: i64 = one(&db, "SELECT referenced FROM icecore_snapshots WHERE name = 'ds@monday'");
    assert!(bytes >= 8192);
    let created: String = one(&db, "SELECT created FROM icecore_snapshots WHERE name = 'ds@monday'");
    assert!(created.ends_with('Z'));
}

#[test]
fn names_made_of_the_time_are_never_taken() {
    let place = place();
    let db = place.open("app.db");
    let names: i64 = one(
        &db,
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
         SELECT count(DISTINCT icecore_snapshot()) FROM n",
    );
    assert_eq!(names, 1000);
}

#[test]
fn tables_take_a_schema() {
    let place = place();
    let db = place.open("other.db");
    run(&db, &format!("ATTACH '{}' AS app", place.uri("app.db")));
    for sql in [
        "SELECT count(*) FROM icecore_snapshots('app')",
        "SELECT count(*) FROM icecore_snapshots WHERE schema = 'app'",
        "SELECT count(*) FROM (SELECT 'app' AS s) JOIN icecore_snapshots(s)",
        "SELECT count(*) FROM icecore_snapshots",
    ] {
        assert_eq!(one::<i64>(&db, sql), 1, "{sql}");
    }
    assert!(one::<i64>(&db, "SELECT count(*) FROM icecore_stat('app')") > 5);
    assert_eq!(one::<String>(&db, "SELECT icecore_snapshot('via', 'app')"), "ds@via");
    // A statistic moves.
    let sql = "SELECT value FROM icecore_stat WHERE name = 'logged_header_bytes'";
    let before: i64 = one(&db, sql);
    run(&db, "CREATE TABLE u(a)");
    assert!(one::<i64>(&db, sql) > before);
}

#[test]
fn misuse_is_explained() {
    let place = place();
    let db = place.open("app.db");
    let plain = rusqlite::Connection::open_in_memory().expect("a connection");
    let complaint = |db: &rusqlite::Connection, sql: &str, part: &str| {
        let error = db.query_row(sql, [], |_| Ok(())).expect_err(sql).to_string();
        assert!(error.contains(part), "{sql}: {error}");
    };
    complaint(&db, "SELECT icecore_snapshot('monday')", "exists");
    complaint(&db, "SELECT icecore_snapshot('')", "usable name");
    complaint(&db, "SELECT icecore_snapshot('a/b')", "usable name");
    complaint(&db, "SELECT icecore_snapshot('a@b')", "usable name");
    complaint(&db, "SELECT icecore_snapshot('a%b')", "usable name");
    complaint(&db, "SELECT icecore_snapshot('a' || char(10))", "usable name");
    complaint(&db, &format!("SELECT icecore_snapshot('{}')", "x".repeat(300)), "usable name");
    complaint(&db, "SELECT icecore_snapshot('x', 'nowhere')", "schema nowhere");
    complaint(&db, "SELECT icecore_snapshot('x', 'temp')", "schema temp");
    complaint(&db, "SELECT icecore_snapshot(1, 2, 3)", "too many arguments");
    complaint(&plain, "SELECT icecore_snapshot('x')", "vfs=icecore");
    complaint(&plain, "SELECT * FROM icecore_snapshots", "vfs=icecore");
    complaint(&plain, "SELECT * FROM icecore_stat('x')", "schema x");
    run(&db, "BEGIN; UPDATE t SET a = 'open'");
    complaint(&db, "SELECT icecore_snapshot('x')", "commit first");
    run(&db, "COMMIT");
    let past = place.open_snapshot("app.db", "monday");
    complaint(&past, "SELECT icecore_snapshot('x')", "never changes");
    assert_eq!(one::<i64>(&past, "SELECT count(*) FROM icecore_snapshots"), 1);
    // Another connection's open transaction is no part of a snapshot.
    let other = place.open("app.db");
    run(&other, "PRAGMA cache_size=1; BEGIN; UPDATE t SET a = zeroblob(100000)");
    assert_eq!(one::<String>(&db, "SELECT icecore_snapshot('meanwhile')"), "ds@meanwhile");
    run(&other, "ROLLBACK");
    let past = place.open_snapshot("app.db", "meanwhile");
    assert_eq!(one::<String>(&past, "SELECT a FROM t LIMIT 1"), "open");
}

#[test]
fn a_pool_without_superblocks_is_not_to_be_made_again() {
    let place = place();
    for name in ["superblock.0", "superblock.1"] {
        std::fs::remove_file(place.pool_path().join(name)).expect("a superblock");
    }
    let error = try_open(&place.uri("app.db")).expect_err("there is no superblock");
    assert_eq!(code_of(&error) & 0xff, 14);
    let reason = icecore_sqlite::last_error().expect("a reason");
    assert!(reason.contains("check --repair --mirror") && !reason.contains("icecore init"), "{reason}");
    assert!(reason.starts_with(place.pool_path().to_str().expect("text")), "{reason}");
}

#[test]
fn openings_that_fail_say_why() {
    let place = place();
    let reason = |uri: &str, part: &str| {
        let error = try_open(uri).expect_err(uri);
        assert_eq!(code_of(&error) & 0xff, 14, "{uri}");
        let db = rusqlite::Connection::open_in_memory().expect("a connection");
        let reason: String = one(&db, "SELECT icecore_last_error()");
        assert!(reason.contains(part), "{uri}: {reason}");
    };
    let pool = place.pool_path();
    let uri = |path: &str| icecore_sqlite::uri(&pool.join(path), None);
    reason(&uri("nothing/app.db"), "no dataset nothing");
    reason(&uri("app.db"), "names no file in a dataset");
    reason(&uri("ds/directory/app.db"), "does not exist");
    reason(&uri("ds@tuesday/app.db"), "tuesday");
    reason(&uri("ds@monday/other.db"), "when the snapshot was taken");
    reason(&icecore_sqlite::uri(&pool.join("ds@monday/app.db"), Some("monday")), "twice");
    reason(&icecore_sqlite::uri(&place.outside("plain.db"), None), "in no icecore pool");
    reason(&format!("{}&nolock=1", uri("ds/app.db")), "nolock");
    reason("file:/@nothing/ds/app.db?vfs=icecore", "registered");
    assert!(!place.has_file("other.db"));
}

#[test]
fn what_is_opened_for_reading_only_makes_nothing() {
    let place = place();
    let uri = format!("{}&mode=ro", place.uri("app.db"));
    let db = try_open(&uri).expect("the database");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 2);
    let error = db.execute_batch("DELETE FROM t").expect_err("for reading only");
    assert_eq!(code_of(&error), 8);
    drop(db);
    assert!(try_open(&format!("{}&mode=ro", place.uri("new.db"))).is_err());
    assert!(try_open(&format!("{}&mode=rw", place.uri("new.db"))).is_err());
    assert!(!place.has_file("new.db"));
    // Others may read at the same time, if all of them leave the pool alone.
    let uri = format!("{}&pool=ro", place.uri("app.db"));
    let db = try_open(&uri).expect("the database");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 2);
    assert_eq!(code_of(&db.execute_batch("DELETE FROM t").expect_err("for reading only")), 8);
    assert!(try_open(&place.uri("app.db")).is_err());
    let options = icecore::OpenOptions { read_only: true, ..Default::default() };
    icecore::Pool::open_directory(&place.pool_path(), &options).expect("a second reader");
    drop(db);
    // With immutable=1 a connection sees the head as it was when it opened it.
    let writer = place.open("app.db");
    let frozen = try_open(&format!("{}&immutable=1", place.uri("app.db"))).expect("the database");
    run(&writer, "DELETE FROM t");
    assert_eq!(one::<i64>(&frozen, "SELECT count(*) FROM t"), 2);
    assert_eq!(one::<i64>(&writer, "SELECT count(*) FROM t"), 0);
}

#[test]
fn directories_and_nested_datasets() {
    let place = Place::new();
    place.with_pool(|pool| {
        pool.create_dataset("ds/inner", false, &[]).expect("a nested dataset");
        let dataset = pool.dataset("ds").expect("the dataset");
        let root = icecore::units::InodeNumber::ROOT;
        dataset.create(root, b"directory", &icecore::Creation::directory()).expect("a directory");
        dataset.sync().expect("a sync");
    });
    for path in ["a.db", "directory/a.db", "inner/a.db", "a b%20@c.db"] {
        let db = place.open(path);
        run(&db, &format!("CREATE TABLE t(a); INSERT INTO t VALUES ('{path}')"));
        assert_eq!(one::<String>(&db, "SELECT icecore_snapshot(NULL)").split('@').count(), 2);
    }
    for path in ["a.db", "directory/a.db", "inner/a.db", "a b%20@c.db"] {
        assert_eq!(one::<String>(&place.open(path), "SELECT a FROM t"), path);
    }
    place.with_pool(|pool| {
        assert!(pool.view("ds/inner").expect("the head").resolve(b"a.db").expect("a path").is_some());
        assert!(pool.view("ds").expect("the head").resolve(b"directory/a.db").expect("a path").is_some());
    });
}
