//! SQLite databases as files: copies that are consistent, of those in a pool and of others.
//!
//! A journal or a write-ahead log holds a part of a database. One file alone may lack commits, or have half a
//! transaction.

use super::files::{read_all, regular, shown, write_piece};
use super::take;
use crate::owner;
use crate::progress::Progress;
use anyhow::Context as _;
use icecore::InodeKind;
use icecore::admin::protocol::{FileAttributes, Pinned};
use icecore::admin::{Access, Request, Response};
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use tempfile::{NamedTempFile, TempDir};

/// Pages copied between two reports.
const PAGES_AT_A_TIME: i32 = 2048;
/// The first bytes of every SQLite database.
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// What the names of the files end with that hold a part of a database.
const LOGS: [&str; 2] = ["-journal", "-wal"];
/// The same with the index of the log.
pub const COMPANIONS: [&str; 3] = [LOGS[0], LOGS[1], "-shm"];

/// Whether a file is a SQLite database, by its first bytes.
pub fn is_database(file: &File) -> bool {
    let mut start = [0; MAGIC.len()];
    file.read_exact_at(&mut start, 0).is_ok() && is_beginning(&start)
}

/// Whether these bytes are the first of a SQLite database.
pub fn is_beginning(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// A file of a version that a database in the same version has beside it.
fn companion(access: &mut Access, pinned: &Pinned, suffix: &str) -> anyhow::Result<Option<FileAttributes>> {
    let file = [&pinned.file, suffix.as_bytes()].concat();
    let response = access.call(Request::Find { pin: pinned.pin, file })?;
    let found = take!(response, Response::Found(found) => found);
    Ok(found.filter(|found| found.kind == InodeKind::File && found.size > 0))
}

/// Fetches a database into a folder, with the journal or write-ahead log that it has beside it in the same
/// version.
pub fn fetch_all(
    access: &mut Access,
    pinned: &Pinned,
    attributes: &FileAttributes,
    target: &Path,
) -> anyhow::Result<()> {
    fetch(access, pinned, attributes, target)?;
    for suffix in LOGS {
        if let Some(found) = companion(access, pinned, suffix)? {
            let mut name = target.as_os_str().to_owned();
            name.push(suffix);
            fetch(access, pinned, &found, Path::new(&name))?;
        }
    }
    Ok(())
}

/// A database in one file, below `folder`: what its journal or write-ahead log holds is in it. `None` if the
/// file is no database, or has neither: it is whole as it stands.
pub fn whole(access: &mut Access, pinned: &Pinned, folder: &Path) -> anyhow::Result<Option<Whole>> {
    let attributes = regular(pinned)?;
    let request =
        Request::ReadFile { pin: pinned.pin, inode: attributes.inode, offset: 0, length: MAGIC.len() as u32 };
    let start = take!(access.call(request)?, Response::Data(start) => start);
    if !is_beginning(&start) {
        return Ok(None);
    }
    let mut has_log = false;
    for suffix in LOGS {
        has_log |= companion(access, pinned, suffix)?.is_some();
    }
    if !has_log {
        return Ok(None);
    }
    let failed = || format!("cannot copy the database {} (--raw copies its bytes)", shown(pinned));
    let folder = tempfile::Builder::new().prefix(".icecore-").tempdir_in(folder).with_context(failed)?;
    let path = folder.path().join("database");
    fetch_all(access, pinned, attributes, &path)?;
    let connection = Connection::open(&path).with_context(failed)?;
    // Rolls the journal back, or takes the log in and removes it.
    connection.query_row("PRAGMA journal_mode=DELETE", [], |_| Ok(())).with_context(failed)?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).with_context(failed)?;
    connection.close().map_err(|(_, error)| error).with_context(failed)?;
    let file = File::open(&path).with_context(failed)?;
    Ok(Some(Whole { file, _folder: folder }))
}

/// See [`whole`].
pub struct Whole {
    pub file: File,
    _folder: TempDir,
}

/// A copy of a database as it is at one moment, whichever program uses it and in whatever journal mode.
pub fn consistent_copy(path: &Path) -> anyhow::Result<NamedTempFile> {
    let failed = || format!("cannot copy the database {}", path.display());
    let copy = tempfile::Builder::new().prefix("icecore-").tempfile().with_context(failed)?;
    let source = open_source(path).with_context(failed)?;
    {
        let mut target = Connection::open(copy.path()).with_context(failed)?;
        // If this is interrupted the copy is thrown away.
        target.execute_batch("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF").with_context(failed)?;
        back_up(&source, &mut target).with_context(failed)?;
        // The header of a source in WAL mode says so, and the copy has no write-ahead log.
        target.execute_batch("PRAGMA journal_mode=DELETE").with_context(failed)?;
    }
    Ok(copy)
}

/// Opens a database and holds on to its present state: one read transaction around the whole copy, or else
/// every write to the source would start it anew.
fn open_source(path: &Path) -> rusqlite::Result<Connection> {
    // Writable if it can be: the index of a write-ahead log is written by readers too.
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_WRITE)
        .or_else(|_| Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY))?;
    connection.busy_timeout(owner::PATIENCE)?;
    connection.execute_batch("BEGIN")?;
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(()))?;
    Ok(connection)
}

fn back_up(source: &Connection, target: &mut Connection) -> anyhow::Result<()> {
    let page_bytes: u64 =
        source.query_row("PRAGMA page_size", [], |row| row.get::<_, i64>(0))?.unsigned_abs();
    let backup = Backup::new(source, target)?;
    let progress = Progress::new("copying", 0);
    loop {
        let step = backup.step(PAGES_AT_A_TIME)?;
        let now = backup.progress();
        progress.set_total(u64::from(now.pagecount.unsigned_abs()) * page_bytes);
        progress.set(u64::from((now.pagecount - now.remaining).unsigned_abs()) * page_bytes);
        match step {
            StepResult::Done => return Ok(()),
            StepResult::More => {}
            _ => anyhow::bail!("another connection keeps it locked"),
        }
    }
}

fn fetch(
    access: &mut Access,
    pinned: &Pinned,
    attributes: &FileAttributes,
    target: &Path,
) -> anyhow::Result<()> {
    let failed = || format!("cannot write {}", target.display());
    let file = File::create_new(target).with_context(failed)?;
    let progress = Progress::new("fetching", attributes.size);
    read_all(access, pinned.pin, attributes, |offset, data| {
        write_piece(&file, offset, data).with_context(failed)?;
        progress.set(offset + data.len() as u64);
        Ok(())
    })?;
    file.set_len(attributes.size).with_context(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_database_in_use_is_of_one_moment() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        let user = Connection::open(&path).unwrap();
        user.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(x); INSERT INTO t VALUES (1)").unwrap();
        user.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (2)").unwrap();
        assert!(is_database(&File::open(&path).unwrap()));
        let copy = consistent_copy(&path).unwrap();
        user.execute_batch("COMMIT").unwrap();
        drop(user);
        let mut header = [0; 20];
        File::open(copy.path()).unwrap().read_exact_at(&mut header, 0).unwrap();
        assert_eq!(header[18..], [1, 1], "not in WAL mode");
        let copied = Connection::open(copy.path()).unwrap();
        let count: i64 = copied.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(count, 1);
    }
}
