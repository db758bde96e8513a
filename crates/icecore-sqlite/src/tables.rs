//! The virtual tables `icecore_snapshots` and `icecore_stat`. Both can be called like functions, with the
//! name of a schema: `SELECT * FROM icecore_snapshots('old')`; without one, main is meant.

use crate::bindings::{
    ConnectTable, Connection, Context, IndexInfo, Module, Value, VirtualCursor, VirtualTable, code, number,
};
use crate::doors::Door;
use crate::errors::{Fault, Result, panic_text};
use crate::functions::database_of_schema;
use crate::store;

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// One table: its columns (the hidden one, `schema`, comes last) and its rows.
struct Kind {
    name: &'static CStr,
    module: &'static Module,
    declaration: &'static CStr,
    schema_column: c_int,
    rows: fn(&crate::database::Database) -> Result<Vec<Row>>,
}

type Row = Vec<Cell>;

enum Cell {
    Text(String),
    Integer(i64),
    Null,
}

static SNAPSHOTS: Kind = Kind {
    name: c"icecore_snapshots",
    module: &SNAPSHOTS_MODULE,
    declaration:
        c"CREATE TABLE x(name TEXT, created TEXT, used INTEGER, referenced INTEGER, written INTEGER, \
                   holds INTEGER, clones TEXT, schema TEXT HIDDEN)",
    schema_column: 7,
    rows: snapshot_rows,
};

static STAT: Kind = Kind {
    name: c"icecore_stat",
    module: &STAT_MODULE,
    declaration: c"CREATE TABLE x(name TEXT, value INTEGER, schema TEXT HIDDEN)",
    schema_column: 2,
    rows: stat_rows,
};

fn snapshot_rows(database: &crate::database::Database) -> Result<Vec<Row>> {
    let bytes = |length: icecore::units::ByteLength| integer(length.get());
    let entries = store::list_snapshots(&database.pool.pool, &database.dataset()?)?;
    let row = |entry: store::ListEntry| {
        let clones = if entry.clones.is_empty() { Cell::Null } else { Cell::Text(entry.clones.join(",")) };
        vec![
            Cell::Text(entry.name),
            Cell::Text(entry.created.to_rfc3339()),
            bytes(entry.used),
            bytes(entry.referenced),
            bytes(entry.written),
            Cell::Integer(i64::from(entry.holds)),
            clones,
        ]
    };
    Ok(entries.into_iter().map(row).collect())
}

fn stat_rows(database: &crate::database::Database) -> Result<Vec<Row>> {
    let counters = store::counters(&database.pool.pool);
    Ok(counters.into_iter().map(|(name, value)| vec![Cell::Text(name), Cell::Integer(value)]).collect())
}

fn integer(number: u64) -> Cell {
    Cell::Integer(i64::try_from(number).unwrap_or(i64::MAX))
}

#[repr(C)]
struct Table {
    head: VirtualTable,
    connection: *mut Connection,
    door: &'static Door,
    kind: &'static Kind,
}

#[repr(C)]
struct Cursor {
    head: VirtualCursor,
    rows: Vec<Row>,
    schema: Option<String>,
    position: usize,
}

static SNAPSHOTS_MODULE: Module = module(connect_snapshots);
static STAT_MODULE: Module = module(connect_stat);

/// Only for reading, and without `xCreate`: the tables are there without being created.
const fn module(connect: ConnectTable) -> Module {
    Module {
        version: 1,
        create: None,
        connect: Some(connect),
        best_index: Some(best_index),
        disconnect: Some(disconnect),
        destroy: None,
        open: Some(open),
        close: Some(close),
        filter: Some(filter),
        next: Some(next),
        eof: Some(eof),
        column: Some(column),
        rowid: Some(rowid),
        unused: [None; 11],
    }
}

/// Gives a connection its tables.
///
/// # Safety
/// The connection must be open and used by this thread.
pub unsafe fn register(connection: *mut Connection, door: &'static Door) -> c_int {
    for kind in [&SNAPSHOTS, &STAT] {
        let data = ptr::from_ref(door).cast_mut().cast();
        // SAFETY: the caller's promise; module and data live for ever.
        let result = unsafe { door.api.create_module(connection, kind.name, kind.module, data) };
        if result != code::OK && result != code::BUSY {
            return result;
        }
    }
    code::OK
}

fn caught(body: impl FnOnce() -> Result<()>) -> Result<()> {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(result) => result,
        Err(panic) => Err(Fault::new(code::INTERNAL, format!("a bug in icecore: {}", panic_text(&*panic)))),
    }
}

unsafe extern "C" fn connect_snapshots(
    connection: *mut Connection,
    data: *mut c_void,
    _: c_int,
    _: *const *const c_char,
    table: *mut *mut VirtualTable,
    _: *mut *mut c_char,
) -> c_int {
    // SAFETY: as called by SQLite.
    unsafe { connect(connection, data, &SNAPSHOTS, table) }
}

unsafe extern "C" fn connect_stat(
    connection: *mut Connection,
    data: *mut c_void,
    _: c_int,
    _: *const *const c_char,
    table: *mut *mut VirtualTable,
    _: *mut *mut c_char,
) -> c_int {
    // SAFETY: as called by SQLite.
    unsafe { connect(connection, data, &STAT, table) }
}

/// # Safety
/// Only from the constructor of a table whose module was registered with a [`Door`] as its data.
unsafe fn connect(
    connection: *mut Connection,
    data: *mut c_void,
    kind: &'static Kind,
    table: *mut *mut VirtualTable,
) -> c_int {
    // SAFETY: the caller's promise; doors live for ever.
    unsafe {
        let door: &'static Door = &*data.cast();
        let result = door.api.declare_table(connection, kind.declaration);
        if result == code::OK {
            let head = VirtualTable { module: ptr::null(), references: 0, error: ptr::null_mut() };
            *table = Box::into_raw(Box::new(Table { head, connection, door, kind })).cast();
        }
        result
    }
}

unsafe extern "C" fn disconnect(table: *mut VirtualTable) -> c_int {
    // SAFETY: made in `connect`, and not used afterwards.
    drop(unsafe { Box::from_raw(table.cast::<Table>()) });
    code::OK
}

unsafe extern "C" fn best_index(table: *mut VirtualTable, info: *mut IndexInfo) -> c_int {
    // SAFETY: SQLite's description of a query, with as many constraints and usages as it says.
    unsafe {
        let schema_column = (*table.cast::<Table>()).kind.schema_column;
        let count = usize::try_from((*info).constraint_count).unwrap_or(0);
        for index in 0..count {
            let constraint = &*(*info).constraints.add(index);
            if constraint.column != schema_column || constraint.operator != number::INDEX_CONSTRAINT_EQ {
                continue;
            }
            if constraint.usable == 0 {
                // The schema depends on a table that comes later in this plan: not a possible plan.
                return code::CONSTRAINT;
            }
            let usage = &mut *(*info).usages.add(index);
            usage.argument_index = 1;
            usage.omit = 1;
            (*info).index_number = 1;
        }
        (*info).estimated_cost = 1000.0;
        (*info).estimated_rows = 100;
    }
    code::OK
}

unsafe extern "C" fn open(_: *mut VirtualTable, cursor: *mut *mut VirtualCursor) -> c_int {
    let head = VirtualCursor { table: ptr::null_mut() };
    let new = Box::new(Cursor { head, rows: Vec::new(), schema: None, position: 0 });
    // SAFETY: SQLite wants the cursor there, and sets its table itself.
    unsafe { *cursor = Box::into_raw(new).cast() };
    code::OK
}

unsafe extern "C" fn close(cursor: *mut VirtualCursor) -> c_int {
    // SAFETY: made in `open`, and not used afterwards.
    drop(unsafe { Box::from_raw(cursor.cast::<Cursor>()) });
    code::OK
}

unsafe extern "C" fn filter(
    cursor: *mut VirtualCursor,
    with_schema: c_int,
    _: *const c_char,
    count: c_int,
    values: *mut *mut Value,
) -> c_int {
    // SAFETY: a cursor and its table as made above, and as many values as SQLite says.
    unsafe {
        let table = (*cursor).table.cast::<Table>();
        let cursor = &mut *cursor.cast::<Cursor>();
        let Table { connection, door, kind, .. } = &*table;
        let result = caught(|| {
            cursor.position = 0;
            cursor.rows.clear();
            cursor.schema = match with_schema == 1 && count > 0 {
                true => door.api.text_of(*values),
                false => None,
            };
            let database = database_of_schema(door, *connection, cursor.schema.as_deref())?;
            database.check()?;
            cursor.rows = (kind.rows)(database)?;
            Ok(())
        });
        let Err(fault) = result else { return code::OK };
        let head = &mut (*table).head;
        door.api.free_text(head.error);
        head.error = door.api.owned_text(&fault.text);
        code::ERROR
    }
}

unsafe extern "C" fn next(cursor: *mut VirtualCursor) -> c_int {
    // SAFETY: a cursor as made above.
    unsafe { (*cursor.cast::<Cursor>()).position += 1 };
    code::OK
}

unsafe extern "C" fn eof(cursor: *mut VirtualCursor) -> c_int {
    // SAFETY: a cursor as made above.
    let cursor = unsafe { &*cursor.cast::<Cursor>() };
    c_int::from(cursor.position >= cursor.rows.len())
}

unsafe extern "C" fn column(cursor: *mut VirtualCursor, context: *mut Context, column: c_int) -> c_int {
    // SAFETY: a cursor and its table as made above, and SQLite's context for the answer.
    unsafe {
        let api = (*(*cursor).table.cast::<Table>()).door.api;
        let cursor = &*cursor.cast::<Cursor>();
        let row = cursor.rows.get(cursor.position);
        let index = usize::try_from(column).unwrap_or(usize::MAX);
        match row.map(|row| row.get(index)) {
            Some(Some(Cell::Text(text))) => api.answer_text(context, text),
            Some(Some(Cell::Integer(number))) => api.answer_integer(context, *number),
            // Behind the last column comes the hidden one.
            Some(None) => match &cursor.schema {
                Some(schema) => api.answer_text(context, schema),
                None => api.answer_null(context),
            },
            Some(Some(Cell::Null)) | None => api.answer_null(context),
        }
    }
    code::OK
}

unsafe extern "C" fn rowid(cursor: *mut VirtualCursor, rowid: *mut i64) -> c_int {
    // SAFETY: a cursor as made above, and room for the answer.
    unsafe { *rowid = i64::try_from((*cursor.cast::<Cursor>()).position).unwrap_or(i64::MAX) };
    code::OK
}
