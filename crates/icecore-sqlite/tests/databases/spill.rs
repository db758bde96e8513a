//! Transactions that change more than SQLite's page cache holds.

use crate::common::{Place, one, open_plain, open_uri, run};
use icecore::{OpenOptions, Pool};
use rusqlite::Connection;

const FILL: &str = "
    PRAGMA cache_size = 20;
    CREATE TABLE t(id INTEGER PRIMARY KEY, a INTEGER, b TEXT);
    CREATE INDEX t_a ON t(a);
    CREATE INDEX t_b ON t(b);
    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30000)
    INSERT INTO t SELECT i, i * 7919 % 30000, printf('%08d and a name', i * 6007 % 30000) FROM n";

/// Everything that the database holds, as one number.
fn contents(db: &Connection) -> (i64, i64, String) {
    let sums = "SELECT count(*), total(id * 3 + a * 5 + length(b) * (id % 7)) FROM t";
    let (count, sum): (i64, f64) =
        db.query_row(sums, [], |row| Ok((row.get(0)?, row.get(1)?))).expect("an answer");
    (count, sum as i64, one::<String>(db, "PRAGMA integrity_check"))
}

/// SQLite writes a page of an index anew for each row. The store writes it ahead once, and once more with the
/// commit.
#[test]
fn pages_that_are_spilled_again_are_not_logged_again_and_again() {
    let place = Place::new();
    let plain = open_plain(&place.outside("plain.db"));
    let pool = Pool::open_directory(&place.pool_path(), &OpenOptions::default()).expect("the pool");
    icecore_sqlite::register().expect("the VFS");
    let registration = icecore_sqlite::register_pool("spill", pool.clone()).expect("a new name");
    let path = std::path::Path::new(&registration.prefix()).join("ds/app.db");
    let db = open_uri(&icecore_sqlite::uri(&path, None));
    [&plain, &db].into_iter().for_each(|db| run(db, FILL));
    let before = pool.statistics().logged_data_bytes;
    let size = one::<i64>(&db, "PRAGMA page_count") as u64 * 4096;
    for db in [&plain, &db] {
        run(db, "DELETE FROM t WHERE id % 2 = 0");
    }
    let logged = pool.statistics().logged_data_bytes - before;
    assert!(logged <= 2 * size, "{logged} bytes of log for a database of {size}");
    assert_eq!(contents(&db), contents(&plain));
    // Savepoints go back over pages that were spilled before and after them.
    for db in [&plain, &db] {
        run(
            db,
            "BEGIN; UPDATE t SET a = a + 1; SAVEPOINT s; DELETE FROM t WHERE id % 3 = 0; UPDATE t SET b = b || 'x';
             ROLLBACK TO s; UPDATE t SET a = 30000 - a WHERE id % 5 = 0; RELEASE s; COMMIT",
        );
    }
    assert_eq!(contents(&db), contents(&plain));
    let committed = contents(&db);
    run(&db, "BEGIN; UPDATE t SET b = a || b; DELETE FROM t WHERE id % 2 = 1; ROLLBACK");
    assert_eq!(contents(&db), committed);
    run(&db, "VACUUM");
    assert_eq!(contents(&db), committed);
    drop((db, registration, pool));
    assert_eq!(contents(&place.open("app.db")), committed);
}
