//! Databases in and out of pools: consistent copies of a plain file, whatever its mode and whichever process
//! uses it, and plain files of any version.

use crate::program::{Registration, register, register_pool, uri};
use crate::registry;
use crate::store::Pool;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Pages copied between two reports.
const PAGES_AT_A_TIME: i32 = 2048;
/// How long to wait for another connection that has locked the source, or the target.
const BUSY_WAIT: Duration = Duration::from_secs(10);

/// Why a database could not be brought in or out.
#[derive(Debug)]
pub struct TransferError(String);

impl std::fmt::Display for TransferError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for TransferError {}

type Result<T> = std::result::Result<T, TransferError>;

/// Says what was being done, and what the store had to say, if it was the store that failed.
fn failed<E: std::fmt::Display>(what: String) -> impl FnOnce(E) -> TransferError {
    move |error| TransferError(format!("{what}: {error}"))
}

fn failed_in_pool(what: String) -> impl FnOnce(rusqlite::Error) -> TransferError {
    move |error| match crate::errors::last_error() {
        Some(reason) if is_from_the_file(&error) => TransferError(format!("{what}: {reason}")),
        _ => TransferError(format!("{what}: {error}")),
    }
}

fn is_from_the_file(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode;
    let codes = [ErrorCode::CannotOpen, ErrorCode::SystemIoFailure, ErrorCode::DiskFull, ErrorCode::ReadOnly];
    error.sqlite_error_code().is_some_and(|code| codes.contains(&code))
}

/// Copies a database file into a dataset, as `path` below its root, in one transaction: no reader sees a part
/// of it, and a file that is there already is replaced as a whole. The source may be in use, in any journal
/// mode. `progress` gets the pages done and the pages in all, and stops the import by answering false. On
/// return the copy is durable.
///
/// # Errors
/// A sentence that names the file and what is wrong. Nothing is changed then, except that a new
/// file may be left, empty.
pub fn import(
    source: &Path,
    pool: &Pool,
    dataset: &str,
    path: &str,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    register().map_err(TransferError)?;
    let way = Way::into(pool)?;
    let target_path = format!("{}/{dataset}/{path}", way.prefix);
    let what = format!("cannot import {} into {dataset}/{path}", source.display());
    let from = open_source(source).map_err(failed(what.clone()))?;
    let target_uri = uri(Path::new(&target_path), None);
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_URI;
    let mut target = Connection::open_with_flags(&target_uri, flags).map_err(failed_in_pool(what.clone()))?;
    target.busy_timeout(BUSY_WAIT).map_err(failed(what.clone()))?;
    copy(&from, &mut target, &what, progress)
}

/// Opens a database that others may be using, and holds on to its present state.
fn open_source(source: &Path) -> rusqlite::Result<Connection> {
    // Writable if it can be: a write-ahead log may have to be read by way of its index, which is written.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(source, flags)
        .or_else(|_| Connection::open_with_flags(source, read_only))?;
    connection.busy_timeout(BUSY_WAIT)?;
    // One read transaction around all steps: otherwise every write to the source would start the copy anew.
    connection.execute_batch("BEGIN")?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

/// Copies a plain database file into another, consistently even if another process writes to it in any
/// journal mode. The target appears under its name complete and durable, or not at all; what was there is
/// replaced.
///
/// # Errors
/// A sentence that names the file and what is wrong; the target is then as it was.
pub fn copy_plain(source: &Path, target: &Path, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
    let what = format!("cannot copy {} to {}", source.display(), target.display());
    let from = open_source(source).map_err(failed(what.clone()))?;
    copy_to_file(&from, target, what, progress)
}

/// Copies a database in a pool into a plain file: `path` below the root of `version`, which is a dataset or
/// `dataset@snapshot`. The target appears under its name complete and durable, or not at all; what was there
/// is replaced. `progress` gets the pages done and the pages in all, and stops the export by answering false.
///
/// # Errors
/// A sentence that names the file and what is wrong; the target is then as it was.
pub fn export(
    pool: &Pool,
    version: &str,
    path: &str,
    target: &Path,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    register().map_err(TransferError)?;
    let way = Way::into(pool)?;
    export_uri(&uri(Path::new(&format!("{}/{version}/{path}", way.prefix)), None), target, progress)
}

/// As [`export`], for whatever a URI names (see [`uri`]).
///
/// # Errors
/// As there.
pub fn export_uri(source: &str, target: &Path, progress: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
    register().map_err(TransferError)?;
    let what = format!("cannot export to {}", target.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let from = Connection::open_with_flags(source, flags).map_err(failed_in_pool(what.clone()))?;
    let hold = "BEGIN; SELECT count(*) FROM sqlite_schema";
    from.execute_batch(hold).map_err(failed_in_pool(what.clone()))?;
    copy_to_file(&from, target, what, progress)
}

fn copy_to_file(
    from: &Connection,
    target: &Path,
    what: String,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    let partial = Partial::beside(target)?;
    {
        let mut to = Connection::open(&partial.path).map_err(failed(what.clone()))?;
        // If this is interrupted the file is thrown away: no need to be able to roll anything back.
        to.execute_batch("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF").map_err(failed(what.clone()))?;
        copy(from, &mut to, &what, progress)?;
    }
    partial.finish(target).map_err(failed(what))
}

/// How paths reach a pool that the caller has open.
struct Way {
    prefix: String,
    _registration: Option<Registration>,
}

impl Way {
    /// The way that is in use, so that there is one lock table; else a new one for as long as this lives.
    fn into(pool: &Pool) -> Result<Self> {
        static WAYS: AtomicU64 = AtomicU64::new(0);
        if let Some(prefix) = registry::current().name_of(pool) {
            return Ok(Self { prefix, _registration: None });
        }
        let name = format!("transfer-{}", WAYS.fetch_add(1, Ordering::Relaxed));
        let registration = register_pool(&name, pool.clone()).map_err(TransferError)?;
        Ok(Self { prefix: registration.prefix(), _registration: Some(registration) })
    }
}

fn copy(
    from: &Connection,
    to: &mut Connection,
    what: &str,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<()> {
    let backup = Backup::new(from, to).map_err(failed_in_pool(what.to_owned()))?;
    let count = |pages: i32| u64::try_from(pages).unwrap_or(0);
    loop {
        let result = backup.step(PAGES_AT_A_TIME).map_err(failed_in_pool(what.to_owned()))?;
        let state = backup.progress();
        let all = count(state.pagecount);
        let go_on = progress(all.saturating_sub(count(state.remaining)), all);
        match result {
            StepResult::Done => return Ok(()),
            StepResult::Busy | StepResult::Locked => {
                return Err(TransferError(format!("{what}: another connection keeps it locked")));
            }
            _ if !go_on => return Err(TransferError(format!("{what}: stopped"))),
            _ => {}
        }
    }
}

/// A file that is not complete yet; removed unless it is finished.
struct Partial {
    path: PathBuf,
}

impl Partial {
    fn beside(target: &Path) -> Result<Self> {
        let name = target
            .file_name()
            .ok_or_else(|| TransferError(format!("{} names no file to export to", target.display())))?;
        let mut partial = std::ffi::OsString::from(".");
        partial.push(name);
        partial.push(format!(".{}.partial", std::process::id()));
        let this = Self { path: target.with_file_name(partial) };
        // Left by a process of that number that was killed.
        let _ = std::fs::remove_file(&this.path);
        Ok(this)
    }

    fn finish(self, target: &Path) -> std::io::Result<()> {
        File::open(&self.path)?.sync_all()?;
        std::fs::rename(&self.path, target)?;
        let directory = match target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        File::open(directory)?.sync_all()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
