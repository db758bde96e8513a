//! Pools in temporary directories, and connections to databases in them.
#![allow(dead_code, reason = "each test file uses a part of this")]

use icecore::{InitOptions, OpenOptions, Pool};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// A directory with a pool and a dataset `ds` in it.
pub struct Place {
    directory: TempDir,
}

/// How long a test waits for a lock that should be there at once.
pub const PATIENCE: Duration = Duration::from_secs(20);

impl Place {
    /// A new pool with an empty dataset `ds`.
    pub fn new() -> Self {
        Self::in_directory(tempfile::tempdir().expect("a temporary directory"))
    }

    /// The same in memory, where there is such a place: for tests that make many and ask nothing of the disk.
    pub fn in_memory() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
        Self::in_directory(directory.expect("a temporary directory"))
    }

    /// The same with segments of this size.
    pub fn with_segments_of(segment_bytes: u64) -> Self {
        Self::with_segments(tempfile::tempdir().expect("a temporary directory"), segment_bytes)
    }

    fn in_directory(directory: TempDir) -> Self {
        // Small segments: a pool starts with several of them.
        Self::with_segments(directory, 4 << 20)
    }

    fn with_segments(directory: TempDir, segment_bytes: u64) -> Self {
        let this = Self { directory };
        let options = InitOptions { segment_bytes, ..InitOptions::default() };
        Pool::init_directory(&this.pool_path(), &options).expect("a new pool");
        let pool = Pool::open_directory(&this.pool_path(), &OpenOptions::default()).expect("the pool");
        pool.create_dataset("ds", false, &[]).expect("a new dataset");
        pool.close().expect("a clean close");
        this
    }

    /// Where the pool is.
    pub fn pool_path(&self) -> PathBuf {
        self.directory.path().canonicalize().expect("a real path").join("pool")
    }

    /// A path outside the pool.
    pub fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().canonicalize().expect("a real path").join(name)
    }

    /// The path of a file in the dataset.
    pub fn path(&self, name: &str) -> PathBuf {
        self.pool_path().join("ds").join(name)
    }

    /// The URI of a database in the dataset.
    pub fn uri(&self, name: &str) -> String {
        icecore_sqlite::uri(&self.path(name), None)
    }

    /// A connection to a database in the dataset.
    pub fn open(&self, name: &str) -> Connection {
        open_uri(&self.uri(name))
    }

    /// A connection to a database in a snapshot of the dataset.
    pub fn open_snapshot(&self, name: &str, snapshot: &str) -> Connection {
        open_uri(&icecore_sqlite::uri(&self.path(name), Some(snapshot)))
    }

    /// Works on the pool directly, while no connection has it open.
    pub fn with_pool<T>(&self, work: impl FnOnce(&Pool) -> T) -> T {
        let pool = Pool::open_directory(&self.pool_path(), &OpenOptions::default()).expect("the pool");
        let result = work(&pool);
        pool.close().expect("a clean close");
        result
    }

    /// Puts a plain file into the dataset as it is, byte by byte.
    pub fn put_raw(&self, name: &str, bytes: &[u8]) {
        self.with_pool(|pool| put_raw(pool, name, bytes));
    }

    /// Whether the dataset has a file of that name.
    pub fn has_file(&self, name: &str) -> bool {
        self.with_pool(|pool| {
            let view = pool.view("ds").expect("the head");
            view.lookup(icecore::units::InodeNumber::ROOT, name.as_bytes()).expect("a look-up").is_some()
        })
    }
}

/// Puts bytes into a new file of dataset `ds`.
pub fn put_raw(pool: &Pool, name: &str, bytes: &[u8]) {
    let dataset = pool.dataset("ds").expect("the dataset");
    let root = icecore::units::InodeNumber::ROOT;
    let file = dataset.create(root, name.as_bytes(), &icecore::Creation::file()).expect("a new file").inode;
    for (index, part) in bytes.chunks(1 << 20).enumerate() {
        dataset.write(file, (index as u64) << 20, part).expect("a write");
    }
    dataset.sync().expect("a sync");
}

/// A connection to a database by its URI, made if it is not there.
pub fn open_uri(uri: &str) -> Connection {
    try_open(uri).unwrap_or_else(|error| panic!("cannot open {uri}: {error}"))
}

/// The same, if it works.
pub fn try_open(uri: &str) -> rusqlite::Result<Connection> {
    icecore_sqlite::register().expect("the VFS");
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(uri, flags)?;
    connection.busy_timeout(Duration::ZERO)?;
    Ok(connection)
}

/// A connection to a plain file.
pub fn open_plain(path: &Path) -> Connection {
    Connection::open(path).expect("a plain database")
}

/// The first column of the first row.
pub fn one<T: rusqlite::types::FromSql>(connection: &Connection, sql: &str) -> T {
    connection.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

/// Runs statements that must succeed.
pub fn run(connection: &Connection, sql: &str) {
    connection.execute_batch(sql).unwrap_or_else(|error| {
        let reason: Option<String> = one(connection, "SELECT icecore_last_error()");
        panic!("{sql}: {error} ({reason:?})")
    });
}

/// The extended code of an error.
pub fn code_of(error: &rusqlite::Error) -> i32 {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => failure.extended_code,
        other => panic!("not an error of SQLite: {other}"),
    }
}

/// Everything in a database as text, and that it is sound.
pub fn dump(connection: &Connection) -> String {
    let check: String = one(connection, "PRAGMA integrity_check");
    assert_eq!(check, "ok");
    let mut out = String::new();
    let names = "SELECT name, coalesce(sql, '') FROM sqlite_schema WHERE type = 'table' ORDER BY name";
    let mut statement = connection.prepare(names).expect("the schema");
    let tables: Vec<(String, String)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .expect("the schema")
        .collect::<rusqlite::Result<_>>()
        .expect("the schema");
    for (table, sql) in tables {
        out.push_str(&format!("{sql}\n"));
        let mut rows = connection.prepare(&format!("SELECT * FROM \"{table}\"")).expect("a table");
        let columns = rows.column_count();
        let mut rows = rows.query([]).expect("rows");
        let mut lines = Vec::new();
        while let Some(row) = rows.next().expect("a row") {
            let cell = |column| text_of(row.get_ref(column).expect("a cell"));
            lines.push((0..columns).map(cell).collect::<Vec<_>>().join("|"));
        }
        lines.sort();
        out.push_str(&lines.join("\n"));
        out.push('\n');
    }
    out
}

fn text_of(value: rusqlite::types::ValueRef<'_>) -> String {
    use rusqlite::types::ValueRef;
    match value {
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        // Long ones would make a failed comparison unreadable.
        ValueRef::Blob(bytes) => {
            let sum =
                bytes.iter().fold(0_u64, |sum, &byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
            format!("{} bytes {sum:x}", bytes.len())
        }
        other => format!("{other:?}"),
    }
}
