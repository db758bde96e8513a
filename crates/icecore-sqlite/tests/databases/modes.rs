//! Journal modes, page sizes, and the pragmas that concern a VFS.

use crate::common::{Place, code_of, dump, one, open_plain, run};

const WORK: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b BLOB);
    CREATE INDEX t_a ON t(a);
    INSERT INTO t SELECT value, 'row ' || value, x'' FROM generate_series(1, 500);
";

fn series(sql: &str) -> String {
    // Not every build has generate_series.
    let series = "(WITH RECURSIVE s(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM s WHERE value < 500) \
                  SELECT value FROM s)";
    sql.replace("generate_series(1, 500)", series)
}

#[test]
fn every_journal_mode_commits_and_rolls_back() {
    for mode in ["delete", "truncate", "persist", "memory", "off"] {
        let place = Place::new();
        let db = place.open("app.db");
        let set: String = one(&db, &format!("PRAGMA journal_mode={mode}"));
        assert_eq!(set, mode);
        run(&db, &series(WORK));
        run(&db, "BEGIN; UPDATE t SET a = 'gone'; DELETE FROM t WHERE id > 100;");
        if mode == "off" {
            // Without a journal SQLite cannot roll back, but the store does.
            let _ = db.execute_batch("ROLLBACK");
        } else {
            run(&db, "ROLLBACK");
        }
        assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t WHERE a LIKE 'row %'"), 500, "{mode}");
        run(&db, "BEGIN; DELETE FROM t WHERE id > 10; COMMIT; VACUUM;");
        let before = dump(&db);
        drop(db);
        let db = place.open("app.db");
        assert_eq!(dump(&db), before, "{mode}");
        assert!(!std::path::Path::new(&place.path("app.db-journal")).exists());
        drop(db);
        assert!(!place.has_file("app.db-journal"), "{mode}");
    }
}

#[test]
fn every_page_size() {
    for bits in 9..=16 {
        let bytes = 1 << bits;
        let place = Place::new();
        let db = place.open("app.db");
        run(&db, &format!("PRAGMA page_size={bytes}"));
        run(&db, &series(WORK));
        run(&db, "UPDATE t SET b = zeroblob(id * 37); DELETE FROM t WHERE id % 3 = 0;");
        assert_eq!(one::<i64>(&db, "PRAGMA page_size"), bytes);
        let before = dump(&db);
        drop(db);
        assert_eq!(dump(&place.open("app.db")), before, "{bytes}");
    }
}

#[test]
fn a_page_size_changes_with_vacuum() {
    let place = Place::new();
    let db = place.open("app.db");
    run(&db, &series(WORK));
    let before = dump(&db);
    for bytes in [512, 65536, 1024, 4096] {
        run(&db, &format!("PRAGMA page_size={bytes}; VACUUM"));
        assert_eq!(one::<i64>(&db, "PRAGMA page_size"), bytes);
        assert_eq!(dump(&db), before);
    }
}

#[test]
fn new_wal_mode_is_declined() {
    let place = Place::new();
    let db = place.open("app.db");
    assert_eq!(one::<String>(&db, "PRAGMA journal_mode=WAL"), "delete");
    run(&db, &series(WORK));
    assert_eq!(one::<String>(&db, "PRAGMA journal_mode=WAL"), "delete");
    run(&db, "PRAGMA journal_mode=TRUNCATE");
    assert_eq!(one::<String>(&db, "PRAGMA journal_mode=WAL"), "truncate");
    assert_eq!(one::<String>(&db, "PRAGMA locking_mode=EXCLUSIVE"), "exclusive");
    assert_eq!(one::<String>(&db, "PRAGMA journal_mode=WAL"), "truncate");
    run(&db, "DELETE FROM t");
    drop(db);
    let db = place.open("app.db");
    assert_eq!(one::<String>(&db, "PRAGMA journal_mode"), "delete");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 0);
}

#[test]
fn mapping_memory_is_ignored() {
    let place = Place::new();
    let db = place.open("app.db");
    run(&db, &series(WORK));
    assert_eq!(one::<i64>(&db, "PRAGMA mmap_size=268435456"), 0);
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 500);
    run(&db, "DELETE FROM t WHERE id > 5");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 5);
}

#[test]
fn synchronous_in_all_degrees() {
    for degree in ["OFF", "NORMAL", "FULL", "EXTRA"] {
        let place = Place::new();
        let db = place.open("app.db");
        run(&db, &format!("PRAGMA synchronous={degree}"));
        run(&db, &series(WORK));
        run(&db, "UPDATE t SET a = a || '!'; DELETE FROM t WHERE id % 2; VACUUM;");
        let before = dump(&db);
        let other = place.open("app.db");
        assert_eq!(dump(&other), before, "{degree}");
        drop((db, other));
        assert_eq!(dump(&place.open("app.db")), before, "{degree}");
    }
}

#[test]
fn vacuum_in_all_forms() {
    let place = Place::new();
    let db = place.open("app.db");
    run(&db, "PRAGMA auto_vacuum=INCREMENTAL");
    run(&db, &series(WORK));
    run(&db, "UPDATE t SET b = zeroblob(3000)");
    let full: i64 = one(&db, "PRAGMA page_count");
    run(&db, "DELETE FROM t WHERE id > 50; PRAGMA incremental_vacuum(50)");
    let some: i64 = one(&db, "PRAGMA page_count");
    assert!(some < full);
    run(&db, "PRAGMA incremental_vacuum");
    let few: i64 = one(&db, "PRAGMA page_count");
    assert!(few < some);
    run(&db, "PRAGMA auto_vacuum=FULL; VACUUM; DELETE FROM t WHERE id > 20");
    assert!(one::<i64>(&db, "PRAGMA page_count") < few);
    let into = place.uri("copy.db");
    run(&db, &format!("VACUUM INTO '{into}'"));
    assert_eq!(dump(&place.open("copy.db")), dump(&db));
}

#[test]
fn spilled_transactions_of_any_size() {
    let place = Place::new();
    let db = place.open("app.db");
    run(&db, "PRAGMA cache_size=5");
    run(&db, &series(WORK));
    let before = dump(&db);
    run(&db, "BEGIN; UPDATE t SET b = randomblob(20000)");
    // Far more than the journal keeps in memory.
    assert_eq!(one::<i64>(&db, "SELECT sum(length(b)) FROM t"), 500 * 20000);
    let other = place.open("app.db");
    assert_eq!(dump(&other), before);
    run(&db, "ROLLBACK");
    assert_eq!(dump(&db), before);
    run(&db, "BEGIN; UPDATE t SET b = zeroblob(20000); SAVEPOINT s; DELETE FROM t; ROLLBACK TO s; COMMIT");
    assert_eq!(one::<i64>(&other, "SELECT sum(length(b)) FROM t"), 500 * 20000);
    assert_eq!(dump(&other), dump(&db));
}

#[test]
fn exclusive_mode_with_every_journal() {
    for mode in ["delete", "truncate", "persist", "memory", "off"] {
        let place = Place::new();
        let db = place.open("app.db");
        run(&db, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA cache_size=5");
        run(&db, &format!("PRAGMA journal_mode={mode}"));
        run(&db, &series(WORK));
        if mode != "off" {
            let before = dump(&db);
            run(&db, "BEGIN; UPDATE t SET b = randomblob(5000); ROLLBACK");
            assert_eq!(dump(&db), before, "{mode}");
        }
        run(&db, "UPDATE t SET b = zeroblob(1000)");
        let before = dump(&db);
        let refused = crate::common::try_open(&place.uri("app.db")).expect("opening is possible");
        let error = refused.query_row("SELECT * FROM t", [], |_| Ok(())).expect_err("the file is locked");
        assert_eq!(code_of(&error), 5, "{mode}");
        run(&db, "PRAGMA locking_mode=NORMAL; SELECT count(*) FROM t");
        assert_eq!(dump(&refused), before, "{mode}");
    }
}

#[test]
fn a_plain_file_says_the_same() {
    let place = Place::new();
    let plain = open_plain(&place.outside("plain.db"));
    let db = place.open("app.db");
    for connection in [&plain, &db] {
        run(connection, &series(WORK));
        run(connection, "UPDATE t SET b = zeroblob(id) WHERE id % 7 = 0; DELETE FROM t WHERE id % 5 = 0");
    }
    assert_eq!(dump(&plain), dump(&db));
}
