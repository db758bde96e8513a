//! A database that is to be made where there is no room for it: the application gets the error "full", as of
//! any write.

use crate::database::{Outcome, Site, add};
use icecore::ListFilter;
use rusqlite::{Connection, OpenFlags, Result};

const FULL: i32 = 13;

/// Opens a database, which is made if it is not there.
fn open(uri: &str) -> Result<Connection> {
    let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let flags = access | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags)
}

/// Asserts that a call of SQLite reported that it is full, and that the last error says why.
fn is_full<T>(outcome: Result<T>, why: &str) {
    match outcome.map(|_| ()) {
        Err(rusqlite::Error::SqliteFailure(failure, _)) => assert_eq!(failure.extended_code, FULL),
        other => panic!("{other:?}"),
    }
    let sentence = icecore_sqlite::last_error().expect("a sentence");
    assert!(sentence.contains(why), "{sentence}");
}

#[test]
fn a_new_database_on_a_full_pool_is_refused_as_full_and_made_once_there_is_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::make(folder.path(), Some(48 << 20));
    let beside = site.connect();
    let mut rows = 0;
    for more in [20, 1] {
        while add(&beside, rows, more) == Outcome::Committed {
            rows += more;
        }
    }
    let new = site.uri_of("db/new.db", None);
    site.stuffed(|| {
        is_full(open(&new), "no space left in pool");
        let attach = format!("ATTACH '{new}' AS other");
        is_full(beside.execute_batch(&attach), "no space left in pool");
        // What is there is opened as ever.
        assert_eq!(site.rows(None), rows);
    });
    site.pool.set_size_limit(None).expect("a higher limit");
    let connection = open(&new).expect("there is room");
    assert_eq!(add(&connection, 0, 20), Outcome::Committed);
    drop((connection, beside));
    site.close();
}

#[test]
fn a_new_database_beyond_a_quota_is_refused_as_full() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::make(folder.path(), None);
    // From here on, a file more is a node more, which is what the snapshot keeps.
    site.pool.snapshot(&["other@kept".to_owned()], false, &[]).expect("a snapshot");
    let filter =
        ListFilter { root: Some("other".to_owned()), depth: Some(0), datasets: true, snapshots: false };
    let used = site.pool.list(&filter).expect("a list")[0].used.0;
    site.pool.set_property("other", "quota", &used.to_string()).expect("a quota");
    let new = site.uri_of("other/new.db", None);
    is_full(open(&new), "other has a quota of");
    site.pool.set_property("other", "quota", "none").expect("no quota");
    assert_eq!(add(&open(&new).expect("there is room"), 0, 20), Outcome::Committed);
    site.close();
}
