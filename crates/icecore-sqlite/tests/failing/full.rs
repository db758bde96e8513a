//! A commit over several files of which one does not fit, into the pool or into the quota of its dataset.

use crate::common::{Place, code_of, one, run};
use crate::{FILES, attach};
use icecore::limits::Limit;
use icecore::units::ByteLength;
use icecore::{OpenOptions, Pool};
use rusqlite::Connection;

const FULL: i32 = 13;
const ROOM: u64 = 32 << 20;

fn connect(place: &Place, files: usize, pragmas: &str) -> Connection {
    let db = attach(files, |name| place.uri(name));
    for (schema, _) in &FILES[..files] {
        run(&db, &format!("PRAGMA {schema}.cache_size=-200000; PRAGMA {schema}.{pragmas}"));
    }
    run(&db, "PRAGMA cache_spill=OFF");
    db
}

/// Fails a commit because of file number `large`, and looks at what every file holds then.
fn fail_and_check(place: &Place, files: usize, large: usize, pragmas: &str) {
    let what = format!("{files} files, number {large} is large, {pragmas}");
    let db = connect(place, files, pragmas);
    for (schema, _) in &FILES[..files] {
        run(&db, &format!("CREATE TABLE IF NOT EXISTS {schema}.t(x, b)"));
    }
    let rows = |db: &Connection, schema: &str| one::<i64>(db, &format!("SELECT count(*) FROM {schema}.t"));
    let before: Vec<i64> = FILES[..files].iter().map(|(schema, _)| rows(&db, schema)).collect();
    run(&db, "BEGIN");
    for (number, (schema, _)) in FILES[..files].iter().enumerate() {
        let bytes = if number == large { 2 * ROOM } else { 10 };
        run(&db, &format!("INSERT INTO {schema}.t VALUES (1, randomblob({bytes}))"));
    }
    let error = db.execute_batch("COMMIT").expect_err("it does not fit");
    assert_eq!(code_of(&error), FULL, "{what}");
    if !db.is_autocommit() {
        run(&db, "ROLLBACK");
    }
    let seen: Vec<i64> = FILES[..files].iter().map(|(schema, _)| rows(&db, schema)).collect();
    assert_eq!(seen, before, "{what}, on the same connection");
    let stored =
        || FILES[..files].iter().map(|(_, name)| rows(&place.open(name), "main")).collect::<Vec<_>>();
    assert_eq!(stored(), before, "{what}, on another connection");
    drop(db);
    assert_eq!(stored(), before, "{what}, after reopening");
    let db = connect(place, files, pragmas);
    run(&db, "BEGIN");
    for (schema, _) in &FILES[..files] {
        run(&db, &format!("INSERT INTO {schema}.t VALUES (2, 'fits')"));
    }
    run(&db, "COMMIT");
    drop(db);
    let after: Vec<i64> = before.iter().map(|rows| rows + 1).collect();
    assert_eq!(stored(), after, "{what}, of a transaction that fits");
}

fn fail_in_all_ways(place: &Place) {
    for files in 1..=4 {
        for large in 0..files {
            let pragmas =
                ["synchronous=FULL", "synchronous=NORMAL", "synchronous=OFF", "journal_mode=MEMORY"];
            fail_and_check(place, files, large, pragmas[(2 * files + large) % 4]);
        }
    }
}

#[test]
fn a_commit_that_does_not_fit_into_the_pool_changes_no_file() {
    crate::memory::install();
    let place = Place::new();
    place.with_pool(|pool| pool.set_size_limit(Some(ByteLength(2 * ROOM))).expect("a limit"));
    fail_in_all_ways(&place);
}

#[test]
fn a_commit_above_a_quota_changes_no_file() {
    crate::memory::install();
    let place = Place::new();
    place.with_pool(|pool| pool.set_limit("ds", Limit::Quota, Some(ByteLength(ROOM))).expect("a quota"));
    fail_in_all_ways(&place);
    let pool = Pool::open_directory(&place.pool_path(), &OpenOptions::default()).expect("the pool");
    pool.close().expect("nothing is left open");
}
