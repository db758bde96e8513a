//! The SQL functions.

use crate::bindings::{Connection, Context, Value, code, control, number};
use crate::database::{Database, Source};
use crate::doors::{self, Door, LIBRARIES_MAX};
use crate::errors::{Fault, Result, forget_last_error, last_error, panic_text};
use crate::locks::Level;
use crate::sqlite::SqlFunction;
use crate::store;
use crate::transaction::Transaction;
use icecore::retention::AUTOMATIC_PREFIX;
use std::ffi::{CStr, CString, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A function for each SQLite library in the process: which one is calling, only the function itself can
/// know.
type PerLibrary = [SqlFunction; LIBRARIES_MAX];

const SNAPSHOT: PerLibrary =
    [icecore_snapshot::<0>, icecore_snapshot::<1>, icecore_snapshot::<2>, icecore_snapshot::<3>];
const LAST_ERROR: PerLibrary =
    [icecore_last_error::<0>, icecore_last_error::<1>, icecore_last_error::<2>, icecore_last_error::<3>];

/// Gives a connection its functions.
///
/// # Safety
/// The connection must be open and used by this thread.
pub unsafe fn register(connection: *mut Connection, door: &'static Door) -> c_int {
    // Taking a snapshot has an effect outside of the database: not for triggers and views of a strange file.
    let direct = number::UTF8 | number::DIRECTONLY;
    let functions: [(&CStr, SqlFunction, c_int); 2] = [
        (c"icecore_snapshot", SNAPSHOT[door.library], direct),
        (c"icecore_last_error", LAST_ERROR[door.library], number::UTF8),
    ];
    for (name, function, flags) in functions {
        // SAFETY: the caller's promise; the door lives for ever.
        let result = unsafe { door.api.create_function(connection, name, flags, function) };
        // Busy: the function is there already, and a statement is running, such as the one that loads us
        // again.
        if result != code::OK && result != code::BUSY {
            return result;
        }
    }
    code::OK
}

/// What a function is called with.
struct Call<'call> {
    door: &'static Door,
    connection: *mut Connection,
    arguments: &'call [*mut Value],
}

impl Call<'_> {
    fn argument(&self, index: usize) -> Option<String> {
        // SAFETY: an argument of the running function.
        self.arguments.get(index).and_then(|&value| unsafe { self.door.api.text_of(value) })
    }

    fn at_most(&self, count: usize, usage: &str) -> Result<()> {
        if self.arguments.len() <= count {
            return Ok(());
        }
        Err(Fault::new(code::ERROR, format!("too many arguments: {usage}")))
    }
}

/// # Safety
/// Only from SQLite, for a function registered with this library's door.
unsafe fn run(
    library: usize,
    context: *mut Context,
    count: c_int,
    values: *mut *mut Value,
    body: impl FnOnce(&Call<'_>) -> Result<Option<String>>,
) {
    let Some(door) = doors::by_number(library) else { return };
    // SAFETY: SQLite hands over a context and as many values as it says.
    unsafe {
        let arguments: &[*mut Value] = match usize::try_from(count) {
            Ok(count) if count > 0 => std::slice::from_raw_parts(values, count),
            _ => &[],
        };
        let call = Call { door, connection: door.api.connection_of(context), arguments };
        match catch_unwind(AssertUnwindSafe(|| body(&call))) {
            Ok(Ok(Some(text))) => door.api.answer_text(context, &text),
            Ok(Ok(None)) => door.api.answer_null(context),
            Ok(Err(fault)) => door.api.answer_error(context, &fault.text),
            Err(panic) => {
                door.api.answer_error(context, &format!("a bug in icecore: {}", panic_text(&*panic)));
            }
        }
    }
}

unsafe extern "C" fn icecore_snapshot<const LIBRARY: usize>(
    context: *mut Context,
    count: c_int,
    values: *mut *mut Value,
) {
    // SAFETY: called by SQLite as registered.
    unsafe {
        run(LIBRARY, context, count, values, |call| {
            call.at_most(2, "icecore_snapshot([NAME [, SCHEMA]])")?;
            snapshot(call).map(Some)
        });
    }
}

fn snapshot(call: &Call<'_>) -> Result<String> {
    let name = call.argument(0).unwrap_or_else(|| format!("{AUTOMATIC_PREFIX}*"));
    // SAFETY: the connection that runs the function.
    let database = unsafe { database_of_schema(call.door, call.connection, call.argument(1).as_deref()) }?;
    database.check()?;
    let Source::Head { .. } = database.source else {
        let text =
            format!("{} never changes: there is nothing to take a snapshot of", database.names.database);
        return Err(Fault::new(code::ERROR, text));
    };
    let idle = matches!(database.transaction, Transaction::Idle);
    // In exclusive locking mode the lock outlives the transaction.
    if database.level >= Level::Reserved && !(idle && database.in_exclusive_mode()) {
        let text = format!(
            "cannot take a snapshot of {} inside a transaction that writes to it: commit first",
            database.names.database
        );
        return Err(Fault::new(code::ERROR, text));
    }
    let name = store::take_snapshot(&database.pool.pool, &database.dataset()?, &name)?;
    forget_last_error();
    Ok(name)
}

/// The file behind a schema, if it lies in a pool.
///
/// # Safety
/// The connection must be open and used by this thread; the result only while nothing else uses the file.
pub unsafe fn database_of_schema<'file>(
    door: &Door,
    connection: *mut Connection,
    schema: Option<&str>,
) -> Result<&'file mut Database> {
    let name = schema.unwrap_or("main");
    let schema =
        CString::new(name).map_err(|_| Fault::new(code::ERROR, "a schema has no zero in its name"))?;
    let mut database: *mut Database = std::ptr::null_mut();
    let argument = (&raw mut database).cast();
    // SAFETY: the caller's promise. Only our files know this operation, also below a VFS on top, and store
    // one pointer to what lives as long as the file.
    let database = unsafe {
        let result = door.api.file_control(connection, Some(&schema), control::DATABASE, argument);
        if result == code::OK { database.as_mut() } else { None }
    };
    let database = database.ok_or_else(|| {
        let text = format!("schema {name} is not a database in an icecore pool: open it with ?vfs=icecore");
        Fault::new(code::ERROR, text)
    })?;
    // No transaction need have done it.
    database.follow_pool()?;
    Ok(database)
}

unsafe extern "C" fn icecore_last_error<const LIBRARY: usize>(
    context: *mut Context,
    count: c_int,
    values: *mut *mut Value,
) {
    // SAFETY: called by SQLite as registered.
    unsafe {
        run(LIBRARY, context, count, values, |call| {
            call.at_most(0, "icecore_last_error()")?;
            Ok(last_error())
        });
    }
}
