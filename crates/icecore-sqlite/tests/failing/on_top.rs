//! A VFS on top of ours, as programs register them to watch or to encrypt.

use crate::common::{Place, one, open_uri, run};
use crate::{memory, shim};
use rusqlite::ffi;
use std::ffi::CString;

#[test]
fn functions_and_tables_find_the_database_below() {
    memory::install();
    shim::install();
    let place = Place::new();
    let uri = |name: &str| place.uri(name).replace("vfs=icecore", "vfs=failing");
    let db = open_uri(&uri("a.db"));
    run(&db, &format!("ATTACH '{}' AS b; CREATE TABLE main.t(x); CREATE TABLE b.t(x)", uri("b.db")));
    run(&db, "BEGIN; INSERT INTO main.t VALUES (1); INSERT INTO b.t VALUES (1); COMMIT");
    assert_eq!(one::<String>(&db, "SELECT icecore_snapshot('one')"), "ds@one");
    assert_eq!(one::<String>(&db, "SELECT icecore_snapshot('two', 'b')"), "ds@two");
    run(&db, "UPDATE t SET x = 2");
    assert_eq!(one::<i64>(&db, "SELECT count(*) FROM icecore_snapshots('b')"), 2);
    let past = place.uri("a.db").replace("vfs=icecore", "vfs=failing&snapshot=one");
    assert_eq!(one::<i64>(&open_uri(&past), "SELECT x FROM t"), 1);
}

/// A VFS that splits a database opens further parts as databases, and locks only the first.
#[test]
fn a_part_of_a_database_that_no_lock_covers_is_refused_with_the_reason() {
    memory::install();
    shim::install();
    let place = Place::new();
    drop(place.open("part.db"));
    let path = CString::new(place.path("part.db").to_str().expect("text")).expect("no zero in it");
    // SAFETY: the VFS is registered for good; the name is made as SQLite makes names of databases; the file
    // has as much room as the VFS asks for, is closed once, and the data is as long as is said.
    unsafe {
        let vfs = ffi::sqlite3_vfs_find(c"icecore".as_ptr());
        let name =
            ffi::sqlite3_create_filename(path.as_ptr(), c"".as_ptr(), c"".as_ptr(), 0, std::ptr::null_mut());
        let mut room = vec![0_u128; (*vfs).szOsFile as usize / 16 + 1];
        let file: *mut ffi::sqlite3_file = room.as_mut_ptr().cast();
        let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_MAIN_DB;
        let open = (*vfs).xOpen.expect("it opens");
        assert_eq!(open(vfs, name, file, flags, std::ptr::null_mut()), ffi::SQLITE_OK);
        let methods = &*(*file).pMethods;
        let data = [1_u8; 512];
        let written = methods.xWrite.expect("it writes")(file, data.as_ptr().cast(), 512, 0);
        assert_eq!(written, ffi::SQLITE_IOERR_WRITE);
        methods.xClose.expect("it closes")(file);
        ffi::sqlite3_free_filename(name);
    }
    let reason = icecore_sqlite::last_error().expect("a sentence");
    assert!(reason.contains("splits it into several files"), "{reason}");
}
