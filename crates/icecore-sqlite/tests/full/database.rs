//! A database that keeps a journal of what it acknowledged, and what an administrator does beside it.

use icecore::check::{self, CheckOptions, RepairOptions};
use icecore::units::ByteLength;
use icecore::{DestroyTarget, Error, InitOptions, ListFilter, OpenOptions, Pool};
use icecore_sqlite::Registration;
use rusqlite::{Connection, OpenFlags};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const FULL: i32 = 13;
pub const SEGMENT: u64 = 2 << 20;
/// Bytes of a row, a multiple of eight.
const ROW_BYTES: usize = 30_000;

/// A pool with datasets `db`, which has a database, and `other`, which has a file and a snapshot `first`.
pub struct Site {
    pub pool: Pool,
    registration: Registration,
}

impl Site {
    /// Makes a pool in an empty directory.
    pub fn make(directory: &Path, size_limit: Option<u64>) -> Self {
        let init = InitOptions {
            segment_bytes: SEGMENT,
            size_limit: size_limit.map(ByteLength),
            ..InitOptions::default()
        };
        Pool::init_directory(directory, &init).expect("a new pool");
        let this = Self::open(directory);
        this.pool.create_dataset("db", false, &[]).expect("a dataset");
        this.pool.create_dataset("other", false, &[]).expect("a dataset");
        let other = this.pool.dataset("other").expect("the dataset");
        let root = icecore::units::InodeNumber::ROOT;
        let file = other.create(root, b"file", &icecore::Creation::file()).expect("a file").inode;
        other.write(file, 0, &[1; 100_000]).expect("a write");
        drop(other);
        this.pool.snapshot(&["other@first".to_owned()], false, &[]).expect("a snapshot");
        this
    }

    /// Opens it.
    pub fn open(directory: &Path) -> Self {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let options =
            OpenOptions { control_socket: false, log_bytes_max: 16 << 20, ..OpenOptions::default() };
        let pool = Pool::open_directory(directory, &options).expect("the pool");
        icecore_sqlite::register().expect("the VFS");
        let name = format!("full-{}", NAMES.fetch_add(1, Ordering::Relaxed));
        let registration = icecore_sqlite::register_pool(&name, pool.clone()).expect("a new name");
        Self { pool, registration }
    }

    /// The name that SQLite opens a file of the pool by: `dataset/file`.
    pub fn uri_of(&self, path: &str, snapshot: Option<&str>) -> String {
        icecore_sqlite::uri(&Path::new(&self.registration.prefix()).join(path), snapshot)
    }

    fn uri(&self, snapshot: Option<&str>) -> String {
        self.uri_of("db/app.db", snapshot)
    }

    /// A connection for writing.
    pub fn connect(&self) -> Connection {
        let access = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let connection = open(&self.uri(None), access);
        let pragmas = "PRAGMA page_size = 4096; PRAGMA synchronous = FULL; PRAGMA cache_size = 50";
        connection.execute_batch(pragmas).expect("pragmas");
        connection.busy_timeout(Duration::from_secs(20)).expect("a timeout");
        connection
    }

    /// How many rows the present or a snapshot has. Checks that the database is sound, and each row.
    pub fn rows(&self, snapshot: Option<&str>) -> u64 {
        let connection = open(&self.uri(snapshot), OpenFlags::SQLITE_OPEN_READ_ONLY);
        let check: String =
            connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).expect("a check");
        assert_eq!(check, "ok", "{snapshot:?}");
        let mut statement = connection.prepare("SELECT id, b FROM t ORDER BY id").expect("a table");
        let mut rows = statement.query([]).expect("rows");
        let mut count = 0;
        while let Some(row) = rows.next().expect("a row") {
            count += 1;
            assert_eq!(row.get::<_, i64>(0).expect("a number").cast_unsigned(), count, "rows without a gap");
            let bytes = row.get_ref(1).expect("a blob").as_blob().expect("a blob");
            assert!(bytes == blob(count), "row {count} of {snapshot:?}");
        }
        count
    }

    /// What must work however full the pool is, while a database is open on it.
    pub fn administer(&self) {
        let everything = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
        assert!(self.pool.list(&everything).expect("a list").len() >= 3);
        let report = self.pool.rollback("other@first", false).expect("a rollback");
        let back = self.pool.rollback(&report.saved_as, false).expect("a rollback of the rollback");
        self.destroy(&[report.saved_as, back.saved_as]);
        self.pool.verify().expect("the books");
        let report = self.pool.scrub(&mut |_| true).expect("a scrub");
        assert_eq!((report.damaged, report.complete), (0, true), "{report:?}");
        assert!(!self.pool.is_read_only(), "{:?}", self.pool.statistics().failure);
    }

    /// Adds what is as small as can be until there is no room for that either, has something done, and takes
    /// it away again.
    pub fn stuffed(&self, body: impl FnOnce()) {
        let (key, value) = (|number: u64| format!("fill:{number}"), "x".repeat(1000));
        let added = |number: &u64| match self.pool.set_property("other", &key(*number), &value) {
            Ok(()) => true,
            Err(Error::NoSpace { .. }) => false,
            Err(error) => panic!("{error}"),
        };
        let count = (0..10_000).take_while(added).count() as u64;
        assert!(count < 10_000, "it never gets full");
        body();
        (0..count).for_each(|number| self.pool.inherit_property("other", &key(number)).expect("taken away"));
    }

    /// Takes the dataset of the database back to a snapshot, which has so many rows, and forward again, while
    /// an application has it open.
    pub fn go_back_and_forward(&self, snapshot: &str, rows: u64) {
        let connection = self.connect();
        let present = self.rows(None);
        let report = self.pool.rollback(&format!("db@{snapshot}"), true).expect("a rollback");
        assert_eq!(self.rows(None), rows, "{snapshot}");
        let back = self.pool.rollback(&report.saved_as, true).expect("a rollback of the rollback");
        assert_eq!(self.rows(None), present);
        drop(connection);
        self.destroy(&[report.saved_as, back.saved_as]);
    }

    /// Closes the pool, has its books and data checked, and a repair find nothing to do; opens it again.
    pub fn check(self, directory: &Path) -> Self {
        self.close();
        let options = CheckOptions { data: true };
        let report = check::check_directory(directory, &options, &mut |_| {}).expect("a check");
        assert_eq!((report.count, report.opened, report.was_clean), (0, true, true), "{report:?}");
        let options = RepairOptions { data: false, ..RepairOptions::default() };
        let report = check::repair_directory(directory, &options, &mut |_| {}).expect("a repair");
        assert_eq!((report.changed_blocks, report.after.count), (0, 0), "{report:?}");
        Self::open(directory)
    }

    /// Destroys snapshots in one step, as `prune` does.
    pub fn destroy(&self, names: &[String]) {
        let of = names.iter().map(|name| {
            let (dataset, short) = name.split_once('@').expect("a snapshot");
            (dataset.to_owned(), vec![short.to_owned()])
        });
        let target = DestroyTarget::Snapshots { of: of.collect() };
        let plan = self.pool.plan_destroy(&target).expect("a plan");
        assert_eq!(self.pool.destroy(&target).expect("destroyed"), plan);
    }

    /// Takes a snapshot of the database, if there is room for it.
    pub fn snapshot(&self, name: &str) -> bool {
        match self.pool.snapshot(&[format!("db@{name}")], false, &[]) {
            Ok(_) => true,
            Err(Error::NoSpace { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Ends well.
    pub fn close(self) {
        let Self { pool, registration } = self;
        drop(registration);
        pool.close().expect("a clean close");
    }
}

fn open(uri: &str, access: OpenFlags) -> Connection {
    let flags = access | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags)
        .unwrap_or_else(|error| panic!("cannot open {uri}: {error} ({:?})", icecore_sqlite::last_error()))
}

/// Eight bytes at a time: rows are compared many times over.
fn blob(id: u64) -> Vec<u8> {
    let mut state = id;
    let mut bytes = Vec::with_capacity(ROW_BYTES);
    while bytes.len() < ROW_BYTES {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // The low bits of the state alone come again soon.
        bytes.extend_from_slice(&(state ^ (state >> 32)).to_le_bytes());
    }
    bytes
}

/// How a transaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    Committed,
    Full,
}

/// Adds rows in one transaction, behind the `present` ones. Anything but "full" is a failure.
pub fn add(connection: &Connection, present: u64, rows: u64) -> Outcome {
    let body = || {
        connection.execute_batch("BEGIN; CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, b BLOB)")?;
        for id in present + 1..=present + rows {
            connection.execute("INSERT INTO t VALUES(?1, ?2)", (id.cast_signed(), blob(id)))?;
        }
        connection.execute_batch("COMMIT")
    };
    match body() {
        Ok(()) => Outcome::Committed,
        Err(rusqlite::Error::SqliteFailure(failure, _)) if failure.extended_code & 0xff == FULL => {
            if !connection.is_autocommit() {
                connection.execute_batch("ROLLBACK").expect("a rollback needs no room");
            }
            Outcome::Full
        }
        Err(error) => panic!("{error} ({:?})", icecore_sqlite::last_error()),
    }
}
