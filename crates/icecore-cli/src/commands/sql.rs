//! `icecore sql`.
//!
//! A pool that this process can open is reached through the SQLite door, with everything the door can do. Of
//! a pool that another process has open the file is fetched as it is at one moment, and only read.

use super::database::fetch_all;
use super::files::{base_name, pin, regular, shown};
use super::finish;
use crate::format::escaped;
use crate::output::{Align, Output, Table};
use crate::owner::{self, waited_for_command};
use crate::pool::{Context, not_opened, warn_if_stale};
use anyhow::Context as _;
use clap::Args;
use icecore::OpenOptions;
use icecore::admin::protocol::Pinned;
use icecore::admin::{Access, ErrorCode, Failure, Request};
use rusqlite::fallible_iterator::FallibleIterator as _;
use rusqlite::types::ValueRef;
use rusqlite::{Batch, Connection, OpenFlags, Statement};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{BufRead as _, IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;

/// How often statements begin again that met another process's opening of the pool.
const ATTEMPTS: u32 = 5;

#[derive(Args, Debug)]
#[command(after_help = "\
Without SQL, statements are read from standard input. A version can be joined
with another: ATTACH 'file:/srv/pool/db@monday/app.db?vfs=icecore' AS monday.
While another process has the pool open, databases can only be read here.
Without --read-only this process has the pool while it runs: a program that
opens the pool meanwhile waits five seconds for it, and then fails.

Example:
  icecore sql db@monday/app.db 'SELECT count(*) FROM users'
  icecore sql -H db/app.db < queries.sql")]
pub struct Arguments {
    /// The database: a file in any version
    #[arg(value_name = "VERSION/FILE")]
    file: OsString,

    /// Statements
    #[arg(value_name = "SQL")]
    sql: Vec<String>,

    /// Make the database if it does not exist
    #[arg(short, long)]
    create: bool,

    /// Refuse to change anything
    #[arg(short, long)]
    read_only: bool,

    /// For scripts: no headers, tabs between columns
    #[arg(short = 'H', long)]
    no_header: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let location = context.locate(&arguments.file)?;
    let path = location.path()?;
    // The door sees to it that a snapshot is not written; opening to read is enough only for that.
    let read_only = arguments.read_only || path.contains(&b'@');
    let opened = open_pool(&location.pool, read_only);
    let mut access = opened.map_err(|failure| not_opened(&location.pool, failure))?;
    warn_if_stale(&access);
    let mut output = Output::new();
    let target = Target { folder: &location.pool, path, arguments };
    let done = converse(&mut access, &target, &mut output);
    let done = done.and(output.finish());
    finish(access, done)
}

/// What to open, and how.
struct Target<'a> {
    /// The pool's.
    folder: &'a Path,
    /// Version and file.
    path: &'a [u8],
    arguments: &'a Arguments,
}

/// Opens the pool; to write, it has to be owned.
fn open_pool(pool: &Path, read_only: bool) -> Result<Access, Failure> {
    let begin = Instant::now();
    loop {
        let options = OpenOptions { read_only, or_read_only: true, ..OpenOptions::default() };
        let access = Access::open(pool, options)?;
        if read_only || !access.is_remote() || !waited_for_command(pool, begin) {
            return Ok(access);
        }
    }
}

/// An open database, and what has to live as long as it does. Fields are dropped in their order.
struct Database {
    connection: Connection,
    _door: Option<icecore_sqlite::Registration>,
    /// A copy of a file of a pool in use.
    copy: Option<TempDir>,
}

fn open(access: &mut Access, target: &Target<'_>) -> anyhow::Result<Database> {
    let &Target { folder, path, arguments } = target;
    let pinned = pin(access, path)?;
    if pinned.found.is_some() || !arguments.create {
        regular(&pinned)?;
    }
    icecore_sqlite::register().map_err(anyhow::Error::msg)?;
    let database = match access.pool() {
        Some(pool) => open_through_door(folder, pool.clone(), &pinned, arguments)?,
        None => open_copy(access, &pinned, arguments)?,
    };
    database.connection.busy_timeout(owner::PATIENCE)?;
    Ok(database)
}

fn open_through_door(
    folder: &Path,
    pool: icecore::Pool,
    pinned: &Pinned,
    arguments: &Arguments,
) -> anyhow::Result<Database> {
    let file = std::str::from_utf8(&pinned.file).map_err(|_| {
        Failure::new(
            ErrorCode::BadName,
            format!("{}: SQLite opens no names that are not UTF-8", shown(pinned)),
        )
    })?;
    // By its directory, so that an ATTACH finds this pool, too. One whose path is no text has only a name.
    let door = match folder.to_str() {
        Some(_) => icecore_sqlite::register_pool_at(folder, pool),
        None => icecore_sqlite::register_pool("cli", pool),
    }
    .map_err(anyhow::Error::msg)?;
    let path = format!("{}/{}/{file}", door.prefix(), pinned.version);
    let uri = icecore_sqlite::uri(Path::new(&path), None);
    let access = if arguments.read_only || pinned.version.contains('@') {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else if arguments.create {
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE
    };
    let connection = Connection::open_with_flags(uri, access | OpenFlags::SQLITE_OPEN_URI)
        .map_err(|error| failure(&error, false))
        .with_context(|| format!("cannot open {}", shown(pinned)))?;
    Ok(Database { connection, _door: Some(door), copy: None })
}

/// Fetches the database, and the journal or write-ahead log that may have come with it.
fn open_copy(access: &mut Access, pinned: &Pinned, arguments: &Arguments) -> anyhow::Result<Database> {
    if arguments.create && pinned.found.is_none() {
        return Err(only_read(pinned).into());
    }
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    let target = folder.path().join("database");
    fetch_all(access, pinned, regular(pinned)?, &target)?;
    let connection = Connection::open(&target).with_context(|| format!("cannot open {}", shown(pinned)))?;
    // A journal may have to be rolled back in the copy, so it is open for writing. What is written to it
    // would be lost.
    connection.pragma_update(None, "query_only", true)?;
    Ok(Database { connection, _door: None, copy: Some(folder) })
}

fn only_read(pinned: &Pinned) -> Failure {
    let message = format!(
        "{} can only be read here while another process has the pool open: change it through that process",
        escaped(base_name(&pinned.file))
    );
    Failure::new(ErrorCode::PoolInUse, message)
}

/// Whether another process has opened a pool that is only read here.
fn is_outdated(access: &Access) -> bool {
    access.pool().is_some_and(icecore::Pool::is_outdated)
}

/// Finds the process that has the pool now. What was pinned here before is void, which any request says once.
fn look_around(access: &mut Access) {
    let _ = access.call(Request::Status);
}

/// Statements from the command line, from a script on standard input, or from a person.
fn converse(access: &mut Access, target: &Target<'_>, output: &mut Output) -> anyhow::Result<()> {
    let arguments = target.arguments;
    let mut script = String::new();
    if arguments.sql.is_empty() {
        if std::io::stdin().is_terminal() && !arguments.json {
            return converse_with_person(access, target, output);
        }
        std::io::stdin().lock().read_to_string(&mut script).context("cannot read standard input")?;
    }
    let statements = if arguments.sql.is_empty() { std::slice::from_ref(&script) } else { &arguments.sql };
    let mut results = Vec::new();
    for attempt in 1.. {
        results.clear();
        let done = open(access, target).and_then(|database| {
            let mut each = statements.iter();
            each.try_for_each(|sql| execute(&database, sql, arguments, output, &mut results))
        });
        match done {
            // Only what reads gives way: it can begin again.
            Err(_) if is_outdated(access) && output.is_blank() && attempt < ATTEMPTS => look_around(access),
            Err(_) if is_outdated(access) => return Err(outdated().into()),
            Err(error) => return Err(error),
            Ok(()) => break,
        }
    }
    if arguments.json {
        output.document("sql", target.folder, json!({ "results": results }))?;
    }
    Ok(())
}

/// What was printed is not all there is.
fn outdated() -> Failure {
    let message = "another process has opened the pool for writing meanwhile: what was printed is not all; \
                   run it again";
    Failure::new(ErrorCode::Busy, message)
}

/// A statement ends with a semicolon at the end of a line. Errors are shown, and the next statement waited
/// for.
fn converse_with_person(access: &mut Access, target: &Target<'_>, output: &mut Output) -> anyhow::Result<()> {
    let mut database = open(access, target)?;
    let mut pending = String::new();
    prompt(&pending);
    for line in std::io::stdin().lock().lines() {
        pending.push_str(&line.context("cannot read standard input")?);
        pending.push('\n');
        if pending.trim_end().ends_with(';') {
            let mut done = Ok(());
            if is_outdated(access) {
                // A transaction does not go on with another version.
                done = if database.connection.is_autocommit() { Ok(()) } else { Err(outdated().into()) };
                drop(database);
                look_around(access);
                database = open(access, target)?;
            }
            if done.is_ok() {
                done = execute(&database, &pending, target.arguments, output, &mut Vec::new());
            }
            let done = if is_outdated(access) { done.map_err(|_| outdated().into()) } else { done };
            output.flush()?;
            if let Err(error) = done {
                let _ = writeln!(std::io::stderr().lock(), "icecore: {error:#}");
            }
            pending.clear();
        }
        prompt(&pending);
    }
    execute(&database, &pending, target.arguments, output, &mut Vec::new())
}

fn prompt(pending: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(if pending.trim().is_empty() { b"sql> " } else { b"...> " });
}

fn execute(
    database: &Database,
    sql: &str,
    arguments: &Arguments,
    output: &mut Output,
    results: &mut Vec<Value>,
) -> anyhow::Result<()> {
    let failed = |error: rusqlite::Error| failure(&error, database.copy.is_some());
    let mut batch = Batch::new(&database.connection, sql);
    while let Some(mut statement) = batch.next().map_err(failed)? {
        if statement.column_count() == 0 {
            statement.raw_execute().map_err(failed)?;
        } else if arguments.json {
            results.push(document(&mut statement).map_err(failed)?);
        } else if arguments.no_header {
            let width = statement.column_count();
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next().map_err(failed)? {
                let cells: Result<Vec<_>, _> = (0..width).map(|index| row.get_ref(index).map(text)).collect();
                output.line(cells.map_err(failed)?.join("\t"))?;
            }
        } else {
            table(&mut statement).map_err(failed)?.print(output, false)?;
        }
    }
    Ok(())
}

fn table(statement: &mut Statement<'_>) -> rusqlite::Result<Table> {
    let headers: Vec<_> =
        statement.column_names().map(|name| (escaped(name.as_bytes()), Align::Left)).collect();
    let width = headers.len();
    let mut table = Table::new(headers);
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        table.row((0..width).map(|index| row.get_ref(index).map(text)).collect::<Result<_, _>>()?);
    }
    Ok(table)
}

fn text(value: ValueRef<'_>) -> String {
    match value {
        ValueRef::Null => "NULL".to_owned(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => format!("{number:?}"),
        ValueRef::Text(bytes) => escaped(bytes),
        ValueRef::Blob(bytes) => format!("x'{}'", hex(bytes)),
    }
}

/// Columns by name, and rows as arrays. Blobs, and texts that are not UTF-8, become `{"hex": ...}`.
fn document(statement: &mut Statement<'_>) -> rusqlite::Result<Value> {
    let columns: Vec<String> = statement.column_names().map(str::to_owned).collect();
    let mut rows = statement.raw_query();
    let mut all = Vec::new();
    while let Some(row) = rows.next()? {
        let cells: rusqlite::Result<Vec<Value>> =
            (0..columns.len()).map(|index| row.get_ref(index).map(json_value)).collect();
        all.push(Value::Array(cells?));
    }
    Ok(json!({ "columns": columns, "rows": all }))
}

fn json_value(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => json!(number),
        ValueRef::Real(number) => json!(number),
        ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => json!(text),
            Err(_) => json!({ "hex": hex(bytes) }),
        },
        ValueRef::Blob(bytes) => json!({ "hex": hex(bytes) }),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What SQLite says, with the code that the program exits with.
fn failure(error: &rusqlite::Error, is_copy: bool) -> anyhow::Error {
    use rusqlite::ErrorCode as Sqlite;
    let code = match error.sqlite_error_code() {
        Some(Sqlite::ReadOnly) if is_copy => {
            let message = "the database can only be read here while another process has the pool open: change it \
                           through that process";
            return Failure::new(ErrorCode::PoolInUse, message).into();
        }
        Some(Sqlite::DiskFull) => ErrorCode::NoSpace,
        Some(Sqlite::SystemIoFailure | Sqlite::CannotOpen) if is_of_damage(error) => ErrorCode::Damaged,
        Some(Sqlite::SystemIoFailure | Sqlite::CannotOpen) => ErrorCode::Io,
        Some(Sqlite::DatabaseBusy | Sqlite::DatabaseLocked) => ErrorCode::Busy,
        Some(Sqlite::ReadOnly) => ErrorCode::ReadOnly,
        _ => ErrorCode::Invalid,
    };
    let message = match error {
        rusqlite::Error::SqlInputError { msg, sql, offset, .. } => {
            let near: String =
                sql.get(usize::try_from(*offset).unwrap_or(0)..).unwrap_or(sql).chars().take(40).collect();
            format!("SQL: {msg}, at {:?}", near.trim_end())
        }
        // SQLite has no words for what is full (the pool, or a quota), and for what is damaged.
        other => match icecore_sqlite::last_error().filter(|_| has_sentence(code)) {
            Some(sentence) => format!("SQL: {other}: {sentence}"),
            None => format!("SQL: {other}"),
        },
    };
    Failure::new(code, message).into()
}

/// Whether the door says why SQLite failed in this way.
const fn has_sentence(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::NoSpace | ErrorCode::Damaged | ErrorCode::Io)
}

/// Whether what the door read was not what had been written.
fn is_of_damage(error: &rusqlite::Error) -> bool {
    error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_IOERR_DATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_without_loss() {
        assert_eq!(text(ValueRef::Null), "NULL");
        assert_eq!(text(ValueRef::Integer(-7)), "-7");
        assert_eq!(text(ValueRef::Real(1.0)), "1.0");
        assert_eq!(text(ValueRef::Text(b"two\nlines\t")), "two\\nlines\\t");
        assert_eq!(text(ValueRef::Blob(&[0, 255])), "x'00ff'");
        assert_eq!(json_value(ValueRef::Text(b"\xff")), json!({ "hex": "ff" }));
        assert_eq!(json_value(ValueRef::Real(f64::INFINITY)), Value::Null);
    }
}
