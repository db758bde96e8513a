//! SQLite databases inside an icecore pool.
//!
//! A VFS named `icecore` serves `file:/path/to/pool/dataset/app.db?vfs=icecore`, and with `&snapshot=monday`
//! the same file as it was. It comes as an extension that any SQLite since 3.31 can load (`.load
//! libicecore_sqlite`), and for Rust programs as a library (feature `static`, [`register`]).
//!
//! Readers never block the writer, nor the writer readers, whatever the journal mode. `README.md` beside this
//! crate says what holds, and how it is done.

mod arrival;
mod bindings;
mod database;
mod doors;
mod errors;
mod file;
mod functions;
mod idle;
mod journal;
mod locks;
mod memory;
mod opening;
mod overlay;
mod path;
mod pragma;
mod prepared;
mod reading;
mod recent;
mod registry;
mod rollback;
mod sharing;
mod sqlite;
mod store;
mod superjournal;
mod tables;
mod temporary;
mod transaction;
mod turns;
mod vfs;
mod wal;

#[cfg(feature = "static")]
mod program;
#[cfg(feature = "static")]
mod transfer;

#[cfg(feature = "static")]
pub use errors::last_error;
#[cfg(feature = "static")]
pub use program::{Registration, register, register_pool, register_pool_at, uri};
#[cfg(feature = "static")]
pub use transfer::{TransferError, copy_plain, export, export_uri, import};

/// What the layout test compares with a C compiler's opinion.
#[doc(hidden)]
pub mod layout {
    pub use crate::bindings::*;
}

use bindings::{ApiRoutines, Connection, code};
use std::ffi::{c_char, c_int};

/// The entry point of the extension.
///
/// # Safety
/// Only for SQLite: with an open connection, room for an error message, and its table of routines.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_icecore_init(
    connection: *mut Connection,
    error: *mut *mut c_char,
    routines: *const ApiRoutines,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { load(connection, error, routines) }
}

/// The same under the name that SQLite makes of the file name `libicecore_sqlite.so`.
///
/// # Safety
/// As for [`sqlite3_icecore_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_icecoresqlite_init(
    connection: *mut Connection,
    error: *mut *mut c_char,
    routines: *const ApiRoutines,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { load(connection, error, routines) }
}

/// # Safety
/// As for [`sqlite3_icecore_init`].
unsafe fn load(connection: *mut Connection, error: *mut *mut c_char, routines: *const ApiRoutines) -> c_int {
    // SAFETY: SQLite's own table.
    let opened = std::panic::catch_unwind(|| unsafe { doors::open(routines, connect_loaded) });
    let opened =
        opened.unwrap_or_else(|panic| Err(format!("a bug in icecore: {}", errors::panic_text(&*panic))));
    match opened {
        // SAFETY: the connection that loads us.
        Ok(opened) => match unsafe { opened.connect(connection) } {
            // The VFS and its files live here: the library must stay.
            code::OK => code::OK_LOAD_PERMANENTLY,
            failed => failed,
        },
        Err(text) => {
            // SAFETY: the table of routines is one, or the text says so and there is nothing to answer with.
            let api = unsafe { sqlite::Api::from_routines(routines) };
            if let (Ok(api), false) = (api, error.is_null()) {
                // SAFETY: room for the message, which SQLite frees.
                unsafe { *error = api.owned_text(&format!("icecore: {text}")) };
            }
            code::ERROR
        }
    }
}

/// Called by SQLite for every connection that is opened after the extension was loaded.
unsafe extern "C" fn connect_loaded(
    connection: *mut Connection,
    error: *mut *mut c_char,
    routines: *const ApiRoutines,
) -> c_int {
    // SAFETY: as called by SQLite. Loading again finds the VFS, and connects to it.
    match unsafe { load(connection, error, routines) } {
        code::OK_LOAD_PERMANENTLY => code::OK,
        failed => failed,
    }
}
