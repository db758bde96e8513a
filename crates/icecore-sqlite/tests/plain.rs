//! What an application is answered is what SQLite answers on a plain file.

mod common;

use common::{Place, code_of, one, open_plain, open_uri, run, try_open};
use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags, ffi};
use std::ffi::{CStr, c_char, c_int, c_void};

/// The answer of a file control, and its argument afterwards.
fn control(db: &Connection, operation: c_int, argument: c_int) -> (c_int, c_int) {
    let mut value = argument;
    // SAFETY: an open connection; these operations read and write one integer.
    let result = unsafe {
        ffi::sqlite3_file_control(db.handle(), std::ptr::null(), operation, (&raw mut value).cast::<c_void>())
    };
    (result, value)
}

fn both(place: &Place) -> [Connection; 2] {
    let pair = [open_plain(&place.outside("plain.db")), place.open("app.db")];
    for db in &pair {
        run(db, "CREATE TABLE IF NOT EXISTS t(x)");
    }
    pair
}

#[test]
fn a_backup_of_a_database_in_wal_mode_can_be_used_at_once() {
    let place = Place::new();
    let source = open_plain(&place.outside("wal.db"));
    run(&source, "PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES (1), (2)");
    for pages in [1, 100] {
        let mut db = place.open("copy.db");
        run(&db, "CREATE TABLE IF NOT EXISTS former(x)");
        {
            let backup = Backup::new(&source, &mut db).expect("a backup");
            backup.run_to_completion(pages, std::time::Duration::ZERO, None).expect("all pages");
        }
        assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 2);
        run(&db, "BEGIN; INSERT INTO t VALUES (3); ROLLBACK");
        assert_eq!(one::<String>(&db, "PRAGMA journal_mode"), "delete");
        assert_eq!(one::<i64>(&place.open("copy.db"), "SELECT count(*) FROM t"), 2);
    }
}

#[test]
fn a_sole_connection_leaves_exclusive_locking_mode_and_writes() {
    let place = Place::new();
    for db in both(&place) {
        run(&db, "PRAGMA locking_mode=exclusive; SELECT * FROM t; PRAGMA locking_mode=normal");
        run(&db, "INSERT INTO t VALUES (1)");
        run(&db, "PRAGMA locking_mode=exclusive; BEGIN; SELECT * FROM t; PRAGMA locking_mode=normal");
        run(&db, "INSERT INTO t VALUES (2); COMMIT");
        assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 2);
    }
    let reader = place.open("app.db");
    run(&reader, "PRAGMA locking_mode=exclusive; SELECT * FROM t");
    let db = place.open("app.db");
    let error = db.execute_batch("INSERT INTO t VALUES (3)").expect_err("another one is in exclusive mode");
    assert_eq!(code_of(&error), 5);
}

#[test]
fn file_controls_answer_as_those_of_a_plain_file() {
    let place = Place::new();
    let answers = both(&place).map(|db| {
        let mut answers = Vec::new();
        for operation in [ffi::SQLITE_FCNTL_POWERSAFE_OVERWRITE, ffi::SQLITE_FCNTL_PERSIST_WAL] {
            for argument in [-1, 0, -1, 1, -1] {
                answers.push(control(&db, operation, argument));
            }
        }
        run(&db, "INSERT INTO t VALUES (1)");
        let mut name: *mut c_char = std::ptr::null_mut();
        // SAFETY: an open connection; the operation stores a pointer to text that the caller frees.
        let name = unsafe {
            let operation = ffi::SQLITE_FCNTL_TEMPFILENAME;
            let argument = (&raw mut name).cast::<c_void>();
            answers.push((ffi::sqlite3_file_control(db.handle(), std::ptr::null(), operation, argument), 0));
            let text = CStr::from_ptr(name).to_str().expect("text").to_owned();
            ffi::sqlite3_free(name.cast());
            text
        };
        let directory = std::path::Path::new(&name).parent().expect("a directory").to_owned();
        (answers, directory)
    });
    assert_eq!(answers[0], answers[1]);
}

/// Code, extended code and number of the operating system of a failed opening.
fn open_fails(uri: &str, flags: OpenFlags) -> (c_int, c_int, c_int) {
    icecore_sqlite::register().expect("the VFS");
    let uri = std::ffi::CString::new(uri).expect("text");
    let mut db = std::ptr::null_mut();
    // SAFETY: a connection is made even if opening fails, and closed here.
    unsafe {
        let mut result = ffi::sqlite3_open_v2(uri.as_ptr(), &raw mut db, flags.bits(), std::ptr::null());
        if result == ffi::SQLITE_OK {
            let sql = c"CREATE TABLE t(x)";
            let none = std::ptr::null_mut();
            result = ffi::sqlite3_exec(db, sql.as_ptr(), None, none, std::ptr::null_mut());
        }
        let answer = (result & 0xff, ffi::sqlite3_extended_errcode(db), ffi::sqlite3_system_errno(db));
        ffi::sqlite3_close(db);
        answer
    }
}

#[test]
fn an_opening_that_fails_has_the_number_of_the_operating_system() {
    let place = Place::new();
    place.with_pool(|pool| {
        let dataset = pool.dataset("ds").expect("the dataset");
        let root = icecore::units::InodeNumber::ROOT;
        dataset.create(root, b"folder", &icecore::Creation::directory()).expect("a directory");
    });
    std::fs::create_dir(place.outside("folder")).expect("a directory");
    let write = OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_READ_WRITE;
    let read = OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_READ_ONLY;
    let create = write | OpenFlags::SQLITE_OPEN_CREATE;
    let plain = |name: &str| format!("file:{}", place.outside(name).display());
    for (name, flags) in [
        ("missing.db", write),
        ("missing.db", read),
        ("missing/app.db", create),
        ("folder", write),
        ("folder", create),
    ] {
        let expected = open_fails(&plain(name), flags);
        assert_eq!(open_fails(&place.uri(name), flags), expected, "{name} {flags:?}");
    }
    // A plain directory can be opened for reading, and every read fails. Here the opening says so.
    assert_eq!(open_fails(&plain("folder"), read), (10, 266, 21));
    assert_eq!(open_fails(&place.uri("folder"), read), (14, 14, 21));
    let pool = format!("file:{}/ds?vfs=icecore", place.pool_path().display());
    assert_eq!(open_fails(&pool, write), open_fails(&plain("folder"), write), "a dataset");
    let pool = format!("file:{}?vfs=icecore", place.pool_path().display());
    assert_eq!(open_fails(&pool, write), open_fails(&plain("folder"), write), "a pool");
}

#[test]
fn the_last_error_is_gone_after_a_success() {
    let place = Place::new();
    let db = place.open("app.db");
    run(&db, "CREATE TABLE t(x)");
    let last = |db: &Connection| one::<Option<String>>(db, "SELECT icecore_last_error()");
    assert!(try_open(&place.uri("missing/app.db")).is_err());
    assert!(last(&db).is_some_and(|text| text.contains("missing/app.db")));
    assert!(last(&db).is_some(), "asking does not change it");
    run(&db, "INSERT INTO t VALUES (1)");
    assert_eq!(last(&db), None);
    assert!(try_open(&place.uri("missing/app.db")).is_err());
    let other = place.open("app.db");
    assert_eq!(last(&other), None);
    // Of another thread it is seen by who has had no success since.
    let failing = place.uri("missing/app.db");
    std::thread::spawn(move || assert!(try_open(&failing).is_err())).join().expect("the thread");
    assert!(last(&other).is_some());
    run(&other, "SELECT icecore_snapshot('one')");
    assert_eq!(last(&other), None);
}

#[test]
fn a_dataset_is_not_renamed_under_a_write_transaction() {
    let place = Place::new();
    icecore_sqlite::register().expect("the VFS");
    let pool = icecore::Pool::open_directory(&place.pool_path(), &icecore::OpenOptions::default());
    let pool = pool.expect("the pool");
    pool.create_dataset("parent", false, &[]).expect("a dataset");
    pool.create_dataset("parent/child", false, &[]).expect("a dataset");
    let registration = icecore_sqlite::register_pool("renames", pool.clone()).expect("a new name");
    let path = std::path::Path::new(&registration.prefix()).join("parent/child/app.db");
    let db = open_uri(&icecore_sqlite::uri(&path, None));
    run(&db, "CREATE TABLE t(x); BEGIN; INSERT INTO t VALUES (1)");
    for (from, to) in [("parent/child", "parent/other"), ("parent", "other")] {
        let error = pool.rename(from, to, false).expect_err("a transaction is open");
        assert!(matches!(error, icecore::Error::Busy { .. }), "{error}");
        assert!(error.to_string().contains("app.db"), "{error}");
    }
    run(&db, "COMMIT; INSERT INTO t VALUES (2)");
    pool.rename("parent", "other", false).expect("no transaction is open");
    run(&db, "BEGIN; INSERT INTO t VALUES (3); INSERT INTO t VALUES (4); COMMIT");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM t"), 4);
    drop(db);
    drop(registration);
    pool.close().expect("a clean close");
}
