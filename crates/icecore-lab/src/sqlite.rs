//! Opening both sides alike: one SQLite build, one set of pragmas, one durability.

use crate::error::{Error, Result};
use rusqlite::{Connection, OpenFlags};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

/// The journal mode of a plain database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Journal {
    /// The stock default.
    Delete,
    /// The write-ahead log.
    Wal,
}

impl Journal {
    /// As `PRAGMA journal_mode` spells it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Wal => "wal",
        }
    }
}

/// Opens a database on the plain filesystem, makes it if need be.
pub fn open_plain(path: &Path, journal: Journal) -> Result<Connection> {
    let connection = open(&plain_uri(path), false)?;
    let mode: String =
        connection.pragma_update_and_check(None, "journal_mode", journal.name(), |row| row.get(0))?;
    if mode != journal.name() {
        let reason = format!("SQLite chose journal mode {mode} instead of {}", journal.name());
        return Err(Error::Inconclusive { what: path.display().to_string(), reason });
    }
    Ok(connection)
}

/// The URI of a database on the plain filesystem.
pub(crate) fn plain_uri(path: &Path) -> String {
    format!("file:{}", encoded(path))
}

/// Everything that both sides have in common stands here and nowhere else.
pub(crate) fn open(uri: &str, read_only: bool) -> Result<Connection> {
    let access = if read_only {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
    };
    let flags = access | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.busy_timeout(Duration::from_secs(10))?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    Ok(connection)
}

/// A path as SQLite's URIs want it: what has a meaning there is written as `%XX`.
fn encoded(path: &Path) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    path.as_os_str().as_bytes().iter().fold(String::new(), |mut text, &byte| {
        if plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_database_is_opened_as_asked_even_in_an_odd_folder() {
        let folder = tempfile::Builder::new().prefix("odd ?#% ").tempdir().expect("a temporary folder");
        for journal in [Journal::Delete, Journal::Wal] {
            let path = folder.path().join(journal.name());
            let connection = open_plain(&path, journal).expect("opened");
            let full: u32 =
                connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).expect("an answer");
            assert_eq!(full, 2);
            connection.execute_batch("create table t (x)").expect("written");
            assert!(path.exists());
        }
    }
}
