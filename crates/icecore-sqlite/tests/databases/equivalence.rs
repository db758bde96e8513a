//! Generated scripts: a database in a pool answers as one on a plain filesystem, alone and, with several
//! connections, as one in WAL mode.

use crate::common::{Place, code_of, dump, open_plain, run};
use proptest::prelude::*;
use rusqlite::Connection;
use rusqlite::types::Value;

/// All rows of a statement, or the code it fails with.
type Answer = Result<Vec<Vec<Value>>, i32>;

fn ask(connection: &Connection, sql: &str) -> Answer {
    let mut statement = connection.prepare(sql).map_err(|error| code_of(&error))?;
    let columns = statement.column_count();
    let mut rows = statement.query([]).map_err(|error| code_of(&error))?;
    let mut answer = Vec::new();
    while let Some(row) = rows.next().map_err(|error| code_of(&error))? {
        answer.push((0..columns).map(|column| row.get(column).expect("a cell")).collect());
    }
    Ok(answer)
}

fn write() -> impl Strategy<Value = String> {
    let table = prop_oneof![Just("t"), Just("u"), Just("other.t")];
    let id = 0..400_i64;
    let size = prop_oneof![0..50_i64, 0..3000_i64, 60_000..200_000_i64];
    prop_oneof![
        6 => (table.clone(), id.clone(), size.clone()).prop_map(|(table, id, size)| {
            format!("INSERT OR REPLACE INTO {table} VALUES ({id}, 'row {id}', zeroblob({size}))")
        }),
        2 => (table.clone(), 1..60_i64, size.clone()).prop_map(|(table, count, size)| {
            let rows = format!(
                "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < {count}) SELECT i FROM s"
            );
            format!("INSERT OR IGNORE INTO {table} SELECT i * 3, 'many', zeroblob({size} % 900 + i) FROM ({rows})")
        }),
        3 => (table.clone(), id.clone(), size).prop_map(|(table, id, size)| {
            format!("UPDATE {table} SET a = a || '!', b = zeroblob({size}) WHERE id % 7 = {id} % 7")
        }),
        2 => (table.clone(), id).prop_map(|(table, id)| format!("DELETE FROM {table} WHERE id > {id}")),
        1 => table.prop_map(|table| format!("UPDATE {table} SET id = id + 1 WHERE id < 50")),
    ]
}

fn control() -> impl Strategy<Value = String> {
    let fixed = [
        "BEGIN",
        "BEGIN IMMEDIATE",
        "BEGIN EXCLUSIVE",
        "COMMIT",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT s",
        "SAVEPOINT s",
        "ROLLBACK TO s",
        "RELEASE s",
        "VACUUM",
        "PRAGMA incremental_vacuum",
        "PRAGMA incremental_vacuum(3)",
        "CREATE INDEX IF NOT EXISTS i ON t(a)",
        "DROP INDEX IF EXISTS i",
        "CREATE TABLE IF NOT EXISTS v AS SELECT * FROM t",
        "DROP TABLE IF EXISTS v",
        "ALTER TABLE u ADD COLUMN c DEFAULT 5",
        "REINDEX",
        "ANALYZE",
        "PRAGMA cache_size=4",
        "PRAGMA cache_size=200",
        "PRAGMA cache_spill=2",
        "PRAGMA synchronous=OFF",
        "PRAGMA synchronous=FULL",
        "PRAGMA auto_vacuum=FULL",
        "PRAGMA user_version=9",
    ];
    proptest::sample::select(fixed.to_vec()).prop_map(str::to_owned)
}

fn read() -> impl Strategy<Value = String> {
    let fixed = [
        "SELECT count(*), sum(id), sum(length(b)) FROM t",
        "SELECT count(*), max(a) FROM u",
        "SELECT count(*), total(length(b)) FROM other.t",
        "SELECT id, a, length(b) FROM t ORDER BY a, id LIMIT 20",
        "PRAGMA integrity_check",
        "PRAGMA page_count",
        "PRAGMA freelist_count",
        "SELECT name, sql FROM sqlite_schema",
    ];
    proptest::sample::select(fixed.to_vec()).prop_map(str::to_owned)
}

fn statement() -> impl Strategy<Value = String> {
    prop_oneof![4 => write(), 3 => control(), 2 => read()]
}

const SCHEMA: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b BLOB);
    CREATE TABLE u(id INTEGER PRIMARY KEY, a TEXT, b BLOB);
    CREATE TABLE other.t(id INTEGER PRIMARY KEY, a TEXT, b BLOB);
";

fn cases() -> u32 {
    std::env::var("ICECORE_TEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(32)
}

fn alone(page_bytes: u32, mode: &str, vacuum: &str, script: &[String]) {
    let place = Place::new();
    let open = |ours: bool| {
        let (db, other) = if ours {
            (place.open("app.db"), place.uri("other.db"))
        } else {
            (open_plain(&place.outside("app.db")), place.outside("other.db").display().to_string())
        };
        run(
            &db,
            &format!("PRAGMA page_size={page_bytes}; PRAGMA auto_vacuum={vacuum}; ATTACH '{other}' AS other"),
        );
        run(&db, &format!("PRAGMA journal_mode={mode}; PRAGMA main.journal_mode={mode}"));
        db
    };
    let (mut ours, mut plain) = (open(true), open(false));
    for db in [&ours, &plain] {
        run(db, SCHEMA);
    }
    for (index, sql) in script.iter().enumerate() {
        assert_eq!(ask(&ours, sql), ask(&plain, sql), "{index}: {sql}");
        if index % 17 == 16 && ours.is_autocommit() && plain.is_autocommit() {
            drop((ours, plain));
            (ours, plain) = (open(true), open(false));
        }
    }
    for db in [&ours, &plain] {
        let _ = db.execute_batch("ROLLBACK");
    }
    assert_eq!(dump(&ours), dump(&plain));
    drop(ours);
    assert_eq!(dump(&place.open("app.db")), dump(&plain));
}

/// Several connections, each statement on one of them, beside the same on a plain file in WAL mode.
fn together(script: &[(usize, String)]) {
    let place = Place::new();
    let plain_path = place.outside("app.db");
    let setup = "CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b BLOB); CREATE TABLE u(id INTEGER PRIMARY KEY, a TEXT, b BLOB)";
    let open = |ours: bool| {
        let db = if ours { place.open("app.db") } else { open_plain(&plain_path) };
        db.busy_timeout(std::time::Duration::ZERO).expect("a timeout");
        run(&db, "PRAGMA journal_mode=WAL");
        db
    };
    let ours: Vec<Connection> = (0..3).map(|_| open(true)).collect();
    let plain: Vec<Connection> = (0..3).map(|_| open(false)).collect();
    run(&ours[0], setup);
    run(&plain[0], setup);
    // SQLite 3.51 and before empties a database if a connection that has read nothing runs `SAVEPOINT s`,
    // `BEGIN IMMEDIATE` (refused), `ROLLBACK TO s`: `sqlite3BtreeBeginTrans` takes its page count of 0 for an
    // empty file. Plain WAL escapes, since `journal_mode=WAL` makes the connection read the first page.
    for db in ours.iter().chain(&plain) {
        run(db, "SELECT count(*) FROM t");
    }
    for (index, (who, sql)) in script.iter().enumerate() {
        let (mine, theirs) = (ask(&ours[*who], sql), ask(&plain[*who], sql));
        assert_eq!(mine, theirs, "{index}: connection {who}: {sql}");
        assert_eq!(ours[*who].is_autocommit(), plain[*who].is_autocommit(), "{index}: {sql}");
    }
    for db in ours.iter().chain(&plain) {
        let _ = db.execute_batch("ROLLBACK");
    }
    assert_eq!(dump(&ours[0]), dump(&plain[0]));
    assert_eq!(dump(&ours[1]), dump(&ours[2]));
}

fn shared_statement() -> impl Strategy<Value = String> {
    let control = [
        "BEGIN",
        "BEGIN",
        "BEGIN IMMEDIATE",
        "BEGIN EXCLUSIVE",
        "COMMIT",
        "COMMIT",
        "COMMIT",
        "ROLLBACK",
        "SAVEPOINT s",
        "ROLLBACK TO s",
        "RELEASE s",
        "CREATE TABLE IF NOT EXISTS v(x)",
        "DROP TABLE IF EXISTS v",
        "PRAGMA cache_size=3",
    ];
    let control = proptest::sample::select(control.to_vec()).prop_map(str::to_owned);
    let inside =
        |sql: &String| !sql.contains("other.") && !sql.contains("page_count") && !sql.contains("freelist");
    prop_oneof![
        4 => write().prop_filter("one file only", inside),
        4 => control,
        3 => read().prop_filter("one file only", inside),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), max_shrink_iters: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_connection_like_a_plain_file(
        bits in 9..=16_u32,
        mode in proptest::sample::select(vec!["DELETE", "TRUNCATE", "PERSIST", "MEMORY"]),
        vacuum in proptest::sample::select(vec!["NONE", "FULL", "INCREMENTAL"]),
        script in proptest::collection::vec(statement(), 1..60),
    ) {
        alone(1 << bits, mode, vacuum, &script);
    }

    #[test]
    fn several_connections_like_wal_mode(
        script in proptest::collection::vec((0..3_usize, shared_statement()), 1..80),
    ) {
        together(&script);
    }
}
