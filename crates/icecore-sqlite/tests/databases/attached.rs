//! Transactions over several attached files.

use crate::common::{Place, code_of, dump, one, open_plain, run};
use rusqlite::Connection;

const MISUSE: i32 = 21;

fn attached(place: &Place) -> Connection {
    let db = place.open("a.db");
    run(&db, &format!("ATTACH '{}' AS b; ATTACH '{}' AS c", place.uri("b.db"), place.uri("c.db")));
    run(&db, "CREATE TABLE main.t(x); CREATE TABLE b.t(x); CREATE TABLE c.t(x)");
    run(&db, "INSERT INTO main.t VALUES (0); INSERT INTO b.t VALUES (0); INSERT INTO c.t VALUES (0)");
    db
}

fn values(place: &Place) -> [i64; 3] {
    ["a.db", "b.db", "c.db"].map(|name| one(&place.open(name), "SELECT sum(x) FROM t"))
}

const UPDATE: &str =
    "BEGIN; UPDATE main.t SET x = x + 1; UPDATE b.t SET x = x + 10; UPDATE c.t SET x = x + 100";

#[test]
fn all_files_commit_in_one_record() {
    for mode in ["DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF"] {
        let place = Place::new();
        let db = attached(&place);
        run(&db, &format!("PRAGMA journal_mode={mode}"));
        run(&db, UPDATE);
        assert_eq!(values(&place), [0, 0, 0], "{mode}");
        let chains = "SELECT value FROM icecore_stat WHERE name = 'flushes'";
        let before: i64 = one(&db, chains);
        run(&db, "COMMIT");
        let after: i64 = one(&db, chains);
        assert_eq!(values(&place), [1, 10, 100], "{mode}");
        assert_eq!(after - before, 1, "{mode}: one flush for all");
        run(&db, UPDATE);
        if mode != "OFF" {
            run(&db, "ROLLBACK");
            assert_eq!(values(&place), [1, 10, 100], "{mode}");
            run(&db, UPDATE);
        }
        run(&db, "COMMIT");
        drop(db);
        assert_eq!(values(&place), [2, 20, 200], "{mode}");
        for name in ["a.db-journal", "b.db-journal", "c.db-journal"] {
            assert!(!place.has_file(name));
        }
    }
}

#[test]
fn shrinking_and_spilling_files_commit_together() {
    let place = Place::new();
    let db = attached(&place);
    run(&db, "PRAGMA cache_size=3; PRAGMA b.cache_size=3");
    for schema in ["main", "b"] {
        run(&db, &format!("PRAGMA {schema}.auto_vacuum=FULL; VACUUM {schema}"));
        let rows =
            "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 300) SELECT i FROM s";
        run(&db, &format!("CREATE TABLE {schema}.big AS SELECT i, randomblob(900) AS b FROM ({rows})"));
    }
    let pages: i64 = one(&db, "PRAGMA main.page_count");
    run(
        &db,
        "BEGIN; DELETE FROM main.big WHERE i > 3; DELETE FROM b.big WHERE i % 50; UPDATE c.t SET x = 5; COMMIT",
    );
    assert!(one::<i64>(&db, "PRAGMA main.page_count") < pages);
    let seen = ["a.db", "b.db", "c.db"].map(|name| dump(&place.open(name)));
    drop(db);
    let later = ["a.db", "b.db", "c.db"].map(|name| dump(&place.open(name)));
    assert_eq!(seen, later);
    // Nothing but what is in use is left at the end of the file.
    let size = place.with_pool(|pool| {
        let view = pool.view("ds").expect("the head");
        let inode = view.resolve(b"a.db").expect("a path").expect("the file");
        view.attributes(inode).expect("attributes").size
    });
    let db = place.open("a.db");
    let pages: i64 = one(&db, "PRAGMA page_count");
    assert_eq!(size, 4096 * pages as u64);
}

#[test]
fn a_refused_commit_changes_no_file() {
    let place = Place::new();
    let db = attached(&place);
    // A reader in exclusive mode lets no commit pass, of the last file that SQLite comes to.
    let reader = place.open("c.db");
    run(&reader, "PRAGMA locking_mode=EXCLUSIVE; SELECT x FROM t");
    run(&db, UPDATE);
    let error = db.execute_batch("COMMIT").expect_err("a reader is in the way");
    assert_eq!(code_of(&error), 5);
    assert_eq!(values_ab(&place), [0, 0]);
    drop(reader);
    run(&db, "COMMIT");
    assert_eq!(values(&place), [1, 10, 100]);
}

fn values_ab(place: &Place) -> [i64; 2] {
    ["a.db", "b.db"].map(|name| one(&place.open(name), "SELECT sum(x) FROM t"))
}

#[test]
fn files_outside_the_pool_with_a_journal_cannot_take_part() {
    let place = Place::new();
    let db = place.open("a.db");
    run(&db, "CREATE TABLE t(x); INSERT INTO t VALUES (1)");
    run(&db, &format!("ATTACH '{}' AS plain", place.outside("plain.db").display()));
    run(&db, "CREATE TABLE plain.p(x)");
    // One at a time is fine, also reading from one and writing to the other.
    run(&db, "INSERT INTO plain.p SELECT x FROM t; INSERT INTO t SELECT x + 1 FROM plain.p");
    run(&db, "BEGIN; INSERT INTO t VALUES (50); INSERT INTO plain.p VALUES (50)");
    assert_eq!(code_of(&db.execute_batch("COMMIT").expect_err("no way")), MISUSE);
    let reason: String = one(&db, "SELECT icecore_last_error()");
    assert!(reason.contains("separate transactions"), "{reason}");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 2);
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM plain.p"), 1);
    drop(db);
    // The other way round.
    let db = open_plain(&place.outside("plain.db"));
    run(&db, &format!("ATTACH '{}' AS ice", place.uri("a.db")));
    run(&db, "BEGIN; INSERT INTO p VALUES (60); INSERT INTO ice.t VALUES (60)");
    assert_eq!(code_of(&db.execute_batch("COMMIT").expect_err("no way")), MISUSE);
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM p"), 1);
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM ice.t"), 2);
    run(&db, "INSERT INTO ice.t SELECT x FROM p; INSERT INTO p SELECT x FROM ice.t");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM p"), 4);
    // In WAL mode each file commits by itself, as SQLite documents.
    run(
        &db,
        "PRAGMA journal_mode=WAL; BEGIN; INSERT INTO p VALUES (70); INSERT INTO ice.t VALUES (70); COMMIT",
    );
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM p"), 5);
    assert_eq!(one::<i64>(&place.open("a.db"), "SELECT max(x) FROM t"), 70);
}

#[test]
fn each_pool_commits_by_itself_where_no_journal_is_asked_for() {
    let (place, other) = (Place::new(), Place::new());
    let db = place.open("a.db");
    run(&db, &format!("ATTACH '{}' AS b; ATTACH '{}' AS c", place.uri("b.db"), other.uri("c.db")));
    for schema in ["main", "b", "c"] {
        run(&db, &format!("CREATE TABLE {schema}.t(x); INSERT INTO {schema}.t VALUES (0)"));
    }
    run(&db, UPDATE);
    assert_eq!(code_of(&db.execute_batch("COMMIT").expect_err("two pools")), MISUSE);
    run(&db, "PRAGMA main.synchronous=OFF; PRAGMA b.synchronous=OFF; PRAGMA c.synchronous=OFF");
    run(&db, UPDATE);
    run(&db, "COMMIT");
    assert_eq!(values_ab(&place), [1, 10]);
    assert_eq!(one::<i64>(&other.open("c.db"), "SELECT x FROM t"), 100);
}
