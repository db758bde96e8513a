//! Databases: in, out, and asked in any version.

use crate::fixture::{Fixture, complaint};
use rusqlite::Connection;
use serde_json::json;
use std::time::{Duration, Instant};

/// A pool with a database of one row in `db@one`, and of two in its head.
fn with_database() -> Fixture {
    let fixture = Fixture::new();
    fixture.done(&["create", "db"]);
    fixture.done(&["sql", "-c", "db/app.db", "CREATE TABLE t(x, y); INSERT INTO t VALUES (1, 'one')"]);
    fixture.done(&["snapshot", "db@one"]);
    fixture.done(&["sql", "db/app.db", "INSERT INTO t VALUES (2, NULL)"]);
    fixture
}

#[test]
fn no_database_is_called_as_the_folder_of_snapshots() {
    let fixture = Fixture::with_db();
    let refusal = fixture.refused(1, &["sql", "--create", "db/.icecore", "CREATE TABLE t(a)"]);
    assert!(refusal.contains("has the snapshots"), "{refusal}");
    assert_eq!(fixture.done(&["ls", "db"]), "app\n");
}

#[test]
fn any_version_is_asked_and_only_the_head_is_changed() {
    let fixture = with_database();
    assert_eq!(fixture.done(&["sql", "-H", "db/app.db", "SELECT * FROM t"]), "1\tone\n2\tNULL\n");
    assert_eq!(fixture.done(&["sql", "db@one/app.db", "SELECT * FROM t"]), "x  y\n1  one\n");
    let count = ["SELECT count(*) FROM t", "SELECT sum(x) FROM t"];
    assert_eq!(fixture.done(&["sql", "-H", "db/app.db", count[0], count[1]]), "2\n3\n");
    let write = "INSERT INTO t VALUES (3, 3)";
    fixture.refused(1, &["sql", "db@one/app.db", write]);
    fixture.refused(1, &["sql", "-r", "db/app.db", write]);
    assert_eq!(fixture.done(&["sql", "-H", "db/app.db", count[0]]), "2\n");
}

#[test]
fn scripts_come_on_standard_input() {
    let fixture = with_database();
    let script = "SELECT 1;\n-- a remark\nSELECT x'00ff', 1.5;\n";
    fixture
        .run(&["sql", "-H", "db@one/app.db"])
        .write_stdin(script)
        .assert()
        .success()
        .stdout("1\nx'00ff'\t1.5\n");
}

#[test]
fn results_as_a_document() {
    let fixture = with_database();
    let document =
        fixture.json(&["sql", "--json", "db/app.db", "SELECT x, y, x'01' AS b FROM t; SELECT 1.5 AS r"]);
    assert_eq!((&document["version"], &document["command"]), (&json!(1), &json!("sql")));
    let expected = json!([
        { "columns": ["x", "y", "b"], "rows": [[1, "one", { "hex": "01" }], [2, null, { "hex": "01" }]] },
        { "columns": ["r"], "rows": [[1.5]] },
    ]);
    assert_eq!(document["results"], expected);
}

#[test]
fn mistakes_are_reported_in_a_sentence() {
    let fixture = with_database();
    let said = fixture.refused(1, &["sql", "db/app.db", "SELEC 1"]);
    assert!(said.contains("SELEC"), "{said}");
    assert!(fixture.refused(1, &["sql", "db/none.db", "SELECT 1"]).contains("no such file"));
    assert!(fixture.refused(1, &["sql", "db@none/app.db", "SELECT 1"]).contains("db@none"));
    fixture.refused(1, &["sql", "db", "SELECT 1"]);
    fixture.import("text", &b"this is no database at all".repeat(300));
    fixture.refused(1, &["sql", "db/text", "SELECT count(*) FROM sqlite_schema"]);
}

#[test]
fn the_past_joins_the_present() {
    let fixture = with_database();
    fixture.done(&["sql", "-c", "db/other.db", "CREATE TABLE u(x)"]);
    let pool = fixture.pool.display();
    for past in
        [format!("{pool}/db@one/app.db?vfs=icecore"), format!("{pool}/db/app.db?vfs=icecore&snapshot=one")]
    {
        let script = format!(
            "ATTACH 'file:{past}' AS past; SELECT (SELECT count(*) FROM main.t) - (SELECT count(*) FROM past.t)"
        );
        for how in [&["sql", "-H"][..], &["sql", "-H", "-r"]] {
            let begin = Instant::now();
            assert_eq!(fixture.done(&[how, &["db/app.db", &script]].concat()), "1\n");
            assert!(begin.elapsed() < Duration::from_secs(4), "it waited for itself");
        }
        // What one statement attaches the next one has, and both write.
        let both = format!("ATTACH 'file:{pool}/db/other.db?vfs=icecore' AS other");
        fixture.done(&["sql", "db/app.db", &both, "INSERT INTO other.u SELECT count(*) FROM t"]);
    }
}

#[test]
fn an_attached_pool_in_use_elsewhere_is_named() {
    let fixture = with_database();
    let pool = fixture.own();
    let script = format!("ATTACH 'file:{}/db@one/app.db?vfs=icecore' AS past", fixture.pool.display());
    let said = fixture.refused(1, &["sql", "db/app.db", &script]);
    assert!(said.contains("is in use by"), "{said}");
    pool.close().unwrap();
}

#[test]
fn a_database_in_use_elsewhere_is_read_and_not_written() {
    let fixture = with_database();
    let pool = fixture.own();
    assert_eq!(fixture.done(&["sql", "-H", "db@one/app.db", "SELECT count(*) FROM t"]), "1\n");
    assert_eq!(fixture.done(&["sql", "-H", "db/app.db", "SELECT count(*) FROM t"]), "2\n");
    let said = fixture.refused(4, &["sql", "db/app.db", "INSERT INTO t VALUES (3, 3)"]);
    assert!(said.contains("through that process"), "{said}");
    fixture.refused(4, &["sql", "-c", "db/new.db", "CREATE TABLE t(x)"]);
    pool.close().unwrap();
}

/// What only reads keeps no program from opening the pool, and begins again where one has.
#[test]
fn a_program_that_starts_does_not_wait_for_a_query() {
    let fixture = with_database();
    let slow = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000)
                SELECT (SELECT max(i) FROM n) > 0, (SELECT count(*) FROM t)";
    for file in [&["-r", "db/app.db"][..], &["db@one/app.db"]] {
        let arguments = [&["sql", "-H"], file, &[slow]].concat();
        let output = std::thread::scope(|scope| {
            let query = scope.spawn(|| fixture.run(&arguments).output().unwrap());
            std::thread::sleep(Duration::from_millis(300));
            let begin = Instant::now();
            let pool = fixture.own();
            assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
            let output = query.join().unwrap();
            pool.close().unwrap();
            output
        });
        let expected = if file.len() == 2 { "1\t2\n" } else { "1\t1\n" };
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected, "{output:?}");
    }
}

#[test]
fn a_database_on_a_read_only_medium_is_read() {
    let fixture = with_database();
    let run = |sql| crate::monitor::run_read_only(&fixture, &["sql", "-H", "db/app.db", sql]);
    let Some(output) = run("SELECT count(*) FROM t") else { return };
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n", "{output:?}");
    let output = run("INSERT INTO t VALUES (3, 3)").unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("readonly database"), "{output:?}");
    // Also one that was killed: what it had written is recovered in memory.
    let mut owner = crate::owned::spawn_owner(&fixture);
    fixture.done(&["snapshot", "db@two"]);
    owner.kill().unwrap();
    owner.wait().unwrap();
    let output = run("SELECT count(*) FROM t").unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2\n", "{output:?}");
    let output =
        crate::monitor::run_read_only(&fixture, &["list", "-H", "-t", "snapshot", "-o", "name"]).unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("db@two"), "{output:?}");
    let output = run("INSERT INTO t VALUES (3, 3)").unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("readonly database"), "{output:?}");
}

#[test]
fn many_at_once_wait_for_each_other() {
    let fixture = with_database();
    std::thread::scope(|scope| {
        for number in 0..20 {
            let fixture = &fixture;
            scope.spawn(move || {
                let insert = format!("INSERT INTO t VALUES ({}, 0)", number + 100);
                fixture.done(&["sql", "db/app.db", &insert]);
                fixture.done(&["list"]);
            });
        }
    });
    assert_eq!(fixture.done(&["sql", "-H", "db/app.db", "SELECT count(*) FROM t WHERE x >= 100"]), "20\n");
}

#[test]
fn a_database_in_use_is_imported_as_of_one_moment() {
    let fixture = Fixture::new();
    fixture.done(&["create", "db"]);
    let path = fixture.beside("app.db");
    let user = Connection::open(&path).unwrap();
    let setup =
        "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(x); INSERT INTO t VALUES (1)";
    user.execute_batch(setup).unwrap();
    user.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)").unwrap();
    fixture.done(&["import", path.to_str().unwrap(), "db"]);
    user.execute_batch("COMMIT").unwrap();
    let check = "PRAGMA integrity_check; SELECT count(*) FROM t";
    assert_eq!(fixture.done(&["sql", "-H", "db/app.db", check]), "ok\n1\n");
    // A copy byte by byte has nothing of what is in the write-ahead log.
    fixture.done(&["import", "--raw", path.to_str().unwrap(), "db/raw.db"]);
    let mut sql = fixture.run(&["sql", "db/raw.db", "SELECT * FROM t"]);
    sql.write_stdin("");
    complaint(sql, 1);
}

#[test]
fn exports_of_any_version_are_plain_databases() {
    let fixture = with_database();
    for (name, rows) in [("db@one/app.db", 1), ("db/app.db", 2)] {
        let target = fixture.beside("out.db");
        fixture.done(&["export", "-f", name, target.to_str().unwrap()]);
        let plain = Connection::open(&target).unwrap();
        let count: i64 = plain.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(count, rows);
        let check: String = plain.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
    }
}

#[test]
fn damage_is_reported_with_its_place_and_what_to_run() {
    let fixture = Fixture::with_db();
    let create = "CREATE TABLE t(x); INSERT INTO t VALUES ('a needle in a database'), (zeroblob(20000))";
    fixture.done(&["sql", "-c", "db/app.db", create]);
    crate::monitor::damage_where(&fixture, |block| block.windows(8).any(|found| found == b"a needle"));
    let said = fixture.refused(5, &["sql", "db/app.db", "SELECT * FROM t"]);
    for part in ["file app.db", "segment.", "icecore scrub"] {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
}
