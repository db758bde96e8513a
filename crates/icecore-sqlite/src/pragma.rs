//! The pragmas that concern us: SQLite shows each one to the file before it acts on it.

use crate::bindings::code;
use crate::database::{Database, Source};
use crate::errors::{Fault, Result};
use crate::locks::Level;
use std::ffi::{CStr, c_char};
use std::sync::atomic::Ordering;

/// Looks at a pragma. `NOTFOUND` lets SQLite go on with it.
///
/// # Safety
/// `arguments` must be what SQLite passes for `SQLITE_FCNTL_PRAGMA`: room for an answer, name, value or null.
pub unsafe fn run(database: &mut Database, arguments: *mut *mut c_char) -> Result<()> {
    // SAFETY: the caller's promise.
    let (name, value) = unsafe { (lower(*arguments.add(1)), lower(*arguments.add(2))) };
    let go_on = Err(Fault::quiet(code::NOTFOUND));
    let (Some(name), Some(value)) = (name, value) else { return go_on };
    match name.as_str() {
        // A connection that only reads keeps no other out: in a mode without effect, SQLite would never
        // unlock.
        "locking_mode" if value == "exclusive" && database.pool.is_shared() => {
            // SAFETY: room for the answer, which SQLite frees.
            unsafe { *arguments = database.api.owned_text("normal") };
            return Ok(());
        }
        "locking_mode" => match value.as_str() {
            "exclusive" => enter_exclusive_mode(database, arguments)?,
            "normal" => leave_exclusive_mode(database),
            _ => {}
        },
        // In exclusive mode SQLite would do without shared memory, and not ask us.
        "journal_mode" if value == "wal" && database.in_exclusive_mode() => {
            let mode = database.modes.journal.as_deref().unwrap_or("delete");
            // SAFETY: room for the answer, which SQLite frees.
            unsafe { *arguments = database.api.owned_text(mode) };
            return Ok(());
        }
        "journal_mode" if value != "wal" => database.modes.journal = Some(value),
        _ => {}
    }
    go_on
}

/// # Safety
/// `text` must be null or end in a zero byte.
unsafe fn lower(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().to_ascii_lowercase())
}

/// Without a schema the pragma concerns every file of the connection, but only the main one hears of it; so
/// all that hear of it spread it. A file that wrongly thinks itself exclusive only excludes more than it
/// must.
fn enter_exclusive_mode(database: &mut Database, arguments: *mut *mut c_char) -> Result<()> {
    if !database.modes.counted
        && let Source::Head { state, .. } = &database.source
    {
        let entered = state.enter_exclusive_mode(database.id, database.level, database.pinned_version());
        if entered.is_err() {
            let text = "locking_mode=EXCLUSIVE: another connection is writing or has written since this \
                        transaction began; set it outside of a transaction";
            // SAFETY: room for the error message, which SQLite frees.
            unsafe { *arguments = database.api.owned_text(text) };
            return Err(Fault::new(code::BUSY, text));
        }
        database.modes.counted = database.level >= Level::Shared;
    }
    database.modes.exclusive = true;
    if let Some(connection) = &database.modes.connection {
        connection.exclusive.store(true, Ordering::Relaxed);
    }
    Ok(())
}

/// What is locked stays locked until SQLite unlocks it, at the end of its next transaction.
fn leave_exclusive_mode(database: &mut Database) {
    database.modes.exclusive = false;
    if let Some(connection) = &database.modes.connection {
        connection.exclusive.store(false, Ordering::Relaxed);
    }
}
