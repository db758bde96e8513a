//! The hand-written bindings against what a C compiler makes of the headers that are installed.

use icecore_sqlite::layout::{
    ApiRoutines, File, IndexConstraint, IndexConstraintUsage, IndexInfo, IoMethods, Module, Vfs,
    VirtualCursor, VirtualTable, code, control, device, lock, number, open, slot,
};
use std::fmt::Write;
use std::mem::{offset_of, size_of};
use std::process::Command;

/// Pairs of a C expression and what we say it is.
fn claims() -> Vec<(String, usize)> {
    let mut claims = Vec::new();
    let mut offsets = |kind: &str, fields: &[(&str, usize)]| {
        for (field, offset) in fields {
            claims.push((format!("offsetof({kind}, {field})"), *offset));
        }
    };
    offsets("struct sqlite3_file", &[("pMethods", offset_of!(File, methods))]);
    offsets(
        "struct sqlite3_io_methods",
        &[
            ("iVersion", offset_of!(IoMethods, version)),
            ("xClose", offset_of!(IoMethods, close)),
            ("xRead", offset_of!(IoMethods, read)),
            ("xWrite", offset_of!(IoMethods, write)),
            ("xTruncate", offset_of!(IoMethods, truncate)),
            ("xSync", offset_of!(IoMethods, sync)),
            ("xFileSize", offset_of!(IoMethods, file_size)),
            ("xLock", offset_of!(IoMethods, lock)),
            ("xUnlock", offset_of!(IoMethods, unlock)),
            ("xCheckReservedLock", offset_of!(IoMethods, check_reserved_lock)),
            ("xFileControl", offset_of!(IoMethods, file_control)),
            ("xSectorSize", offset_of!(IoMethods, sector_size)),
            ("xDeviceCharacteristics", offset_of!(IoMethods, device_characteristics)),
            ("xShmMap", size_of::<IoMethods>()),
        ],
    );
    offsets(
        "struct sqlite3_vfs",
        &[
            ("szOsFile", offset_of!(Vfs, file_bytes)),
            ("mxPathname", offset_of!(Vfs, path_bytes_max)),
            ("pNext", offset_of!(Vfs, next)),
            ("zName", offset_of!(Vfs, name)),
            ("pAppData", offset_of!(Vfs, app_data)),
            ("xOpen", offset_of!(Vfs, open)),
            ("xDelete", offset_of!(Vfs, delete)),
            ("xAccess", offset_of!(Vfs, access)),
            ("xFullPathname", offset_of!(Vfs, full_pathname)),
            ("xDlOpen", offset_of!(Vfs, dl_open)),
            ("xDlError", offset_of!(Vfs, dl_error)),
            ("xDlSym", offset_of!(Vfs, dl_sym)),
            ("xDlClose", offset_of!(Vfs, dl_close)),
            ("xRandomness", offset_of!(Vfs, randomness)),
            ("xSleep", offset_of!(Vfs, sleep)),
            ("xCurrentTime", offset_of!(Vfs, current_time)),
            ("xGetLastError", offset_of!(Vfs, get_last_error)),
            ("xCurrentTimeInt64", offset_of!(Vfs, current_time_int64)),
            ("xSetSystemCall", offset_of!(Vfs, set_system_call)),
        ],
    );
    offsets(
        "struct sqlite3_module",
        &[
            ("xCreate", offset_of!(Module, create)),
            ("xConnect", offset_of!(Module, connect)),
            ("xBestIndex", offset_of!(Module, best_index)),
            ("xDisconnect", offset_of!(Module, disconnect)),
            ("xDestroy", offset_of!(Module, destroy)),
            ("xOpen", offset_of!(Module, open)),
            ("xClose", offset_of!(Module, close)),
            ("xFilter", offset_of!(Module, filter)),
            ("xNext", offset_of!(Module, next)),
            ("xEof", offset_of!(Module, eof)),
            ("xColumn", offset_of!(Module, column)),
            ("xRowid", offset_of!(Module, rowid)),
            ("xUpdate", offset_of!(Module, unused)),
        ],
    );
    offsets(
        "struct sqlite3_index_info",
        &[
            ("nConstraint", offset_of!(IndexInfo, constraint_count)),
            ("aConstraint", offset_of!(IndexInfo, constraints)),
            ("aConstraintUsage", offset_of!(IndexInfo, usages)),
            ("idxNum", offset_of!(IndexInfo, index_number)),
            ("idxStr", offset_of!(IndexInfo, index_text)),
            ("estimatedCost", offset_of!(IndexInfo, estimated_cost)),
            ("estimatedRows", offset_of!(IndexInfo, estimated_rows)),
        ],
    );
    offsets(
        "struct sqlite3_index_constraint",
        &[
            ("iColumn", offset_of!(IndexConstraint, column)),
            ("op", offset_of!(IndexConstraint, operator)),
            ("usable", offset_of!(IndexConstraint, usable)),
        ],
    );
    offsets(
        "struct sqlite3_index_constraint_usage",
        &[
            ("argvIndex", offset_of!(IndexConstraintUsage, argument_index)),
            ("omit", offset_of!(IndexConstraintUsage, omit)),
        ],
    );
    offsets("struct sqlite3_vtab", &[("zErrMsg", offset_of!(VirtualTable, error))]);
    offsets("struct sqlite3_vtab_cursor", &[("pVtab", offset_of!(VirtualCursor, table))]);
    for (size, ours) in [
        ("struct sqlite3_vfs", size_of::<Vfs>()),
        ("struct sqlite3_index_constraint", size_of::<IndexConstraint>()),
        ("struct sqlite3_index_constraint_usage", size_of::<IndexConstraintUsage>()),
        ("struct sqlite3_vtab", size_of::<VirtualTable>()),
        ("struct sqlite3_vtab_cursor", size_of::<VirtualCursor>()),
    ] {
        claims.push((format!("sizeof({size})"), ours));
    }
    claims.push(("sizeof(struct sqlite3_api_routines) >= 193 * sizeof(void*)".to_owned(), 1));
    assert_eq!(size_of::<ApiRoutines>(), slot::COUNT * size_of::<usize>());
    claims
}

fn slots() -> Vec<(String, usize)> {
    let claims = [
        ("declare_vtab", slot::DECLARE_VTAB),
        ("free", slot::FREE),
        ("libversion_number", slot::LIBVERSION_NUMBER),
        ("malloc", slot::MALLOC),
        ("result_error", slot::RESULT_ERROR),
        ("result_int64", slot::RESULT_INT64),
        ("result_null", slot::RESULT_NULL),
        ("result_text", slot::RESULT_TEXT),
        ("value_bytes", slot::VALUE_BYTES),
        ("value_text", slot::VALUE_TEXT),
        ("value_type", slot::VALUE_TYPE),
        ("create_module_v2", slot::CREATE_MODULE_V2),
        ("file_control", slot::FILE_CONTROL),
        ("mutex_alloc", slot::MUTEX_ALLOC),
        ("mutex_enter", slot::MUTEX_ENTER),
        ("mutex_leave", slot::MUTEX_LEAVE),
        ("vfs_find", slot::VFS_FIND),
        ("vfs_register", slot::VFS_REGISTER),
        ("context_db_handle", slot::CONTEXT_DB_HANDLE),
        ("create_function_v2", slot::CREATE_FUNCTION_V2),
        ("log", slot::LOG),
        ("uri_boolean", slot::URI_BOOLEAN),
        ("uri_parameter", slot::URI_PARAMETER),
        ("auto_extension", slot::AUTO_EXTENSION),
    ];
    let offset = |name| format!("offsetof(struct sqlite3_api_routines, {name}) / sizeof(void*)");
    claims.into_iter().map(|(name, slot)| (offset(name), slot)).collect()
}

macro_rules! named {
    ($prefix:literal, $module:ident: $($name:ident)*) => {
        [$((concat!($prefix, stringify!($name)).to_owned(), $module::$name as usize)),*]
    };
}

fn constants() -> Vec<(String, usize)> {
    let mut claims = Vec::new();
    claims.extend(named!("SQLITE_", code: OK ERROR INTERNAL BUSY NOMEM READONLY IOERR NOTFOUND FULL CANTOPEN
        CONSTRAINT MISUSE BUSY_SNAPSHOT OK_LOAD_PERMANENTLY IOERR_SHORT_READ IOERR_WRITE IOERR_DATA));
    claims.extend(
        named!("SQLITE_OPEN_", open: READONLY READWRITE CREATE DELETEONCLOSE EXCLUSIVE MAIN_DB TEMP_DB
        TRANSIENT_DB MAIN_JOURNAL TEMP_JOURNAL SUBJOURNAL SUPER_JOURNAL WAL),
    );
    claims.extend(named!("SQLITE_LOCK_", lock: NONE SHARED RESERVED EXCLUSIVE));
    claims.extend(named!("SQLITE_FCNTL_", control: LOCKSTATE LAST_ERRNO SIZE_HINT CHUNK_SIZE
        PERSIST_WAL VFSNAME POWERSAFE_OVERWRITE PRAGMA TEMPFILENAME MMAP_SIZE HAS_MOVED SYNC COMMIT_PHASETWO PDB));
    claims.extend(named!("SQLITE_IOCAP_", device: SAFE_APPEND SEQUENTIAL POWERSAFE_OVERWRITE IMMUTABLE));
    claims.extend(named!("SQLITE_", number: UTF8 DIRECTONLY MUTEX_STATIC_VFS3));
    claims.push(("SQLITE_NULL".to_owned(), number::VALUE_NULL as usize));
    claims.push(("SQLITE_INDEX_CONSTRAINT_EQ".to_owned(), usize::from(number::INDEX_CONSTRAINT_EQ)));
    claims
}

#[test]
fn the_bindings_fit_the_headers() {
    let mut program = String::from("#include <stddef.h>\n#include <stdio.h>\n#include <sqlite3ext.h>\n");
    program.push_str("int main(void) { int wrong = 0;\n");
    let all = [claims(), slots(), constants()].concat();
    for (expression, ours) in &all {
        writeln!(
            program,
            "if ((size_t)({expression}) != {ours}) {{ wrong = 1; printf(\"%s is %zu, and not {ours}\\n\", \
             \"{expression}\", (size_t)({expression})); }}"
        )
        .expect("writing to a string");
    }
    program.push_str("return wrong; }\n");
    let directory = tempfile::tempdir().expect("a temporary directory");
    let source = directory.path().join("layout.c");
    let binary = directory.path().join("layout");
    std::fs::write(&source, program).expect("writing the program");
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let built = Command::new(&compiler).arg("-w").arg(&source).arg("-o").arg(&binary).output();
    let built = built.unwrap_or_else(|error| panic!("this test needs a C compiler as {compiler}: {error}"));
    let errors = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "this test needs SQLite's headers (libsqlite3-dev): {errors}");
    let result = Command::new(&binary).output().expect("running the program");
    assert!(result.status.success(), "{}", String::from_utf8_lossy(&result.stdout));
    assert!(all.len() > 100);
}
