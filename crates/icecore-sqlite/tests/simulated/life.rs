//! A history lived through on a simulated disk.

use crate::history::{Action, History, Setting, contents};
use icecore::units::ByteLength;
use icecore::{InitOptions, OpenOptions, Pool};
use icecore_sim::{SimulatedDisk, explorer};
use icecore_sqlite::Registration;
use rusqlite::{Connection, OpenFlags};
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// What went wrong, as the application sees it.
#[derive(Debug)]
pub enum Failure {
    /// The pool could not be opened, or made a checkpoint of.
    Store(#[allow(dead_code, reason = "shown with what fails")] icecore::Error),
    /// A statement failed.
    Sqlite(rusqlite::Error),
}

impl Failure {
    /// SQLite's primary code, if it is one of SQLite's errors.
    pub fn code(&self) -> Option<i32> {
        match self {
            Self::Sqlite(rusqlite::Error::SqliteFailure(failure, _)) => Some(failure.extended_code & 0xff),
            _ => None,
        }
    }
}

impl From<icecore::Error> for Failure {
    fn from(error: icecore::Error) -> Self {
        Self::Store(error)
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// A pool on a disk, and a connection to the database in it.
pub struct Life {
    // Dropped in this order, as in a program that ends well.
    connection: Option<Connection>,
    registration: Registration,
    pub pool: Pool,
    setting: Setting,
}

/// A disk with an empty pool.
pub fn new_disk(seed: u64, capacity: u64, size_limit: Option<u64>) -> SimulatedDisk {
    let config = icecore_sim::DiskConfig { capacity, stale_garbage: true, ..Default::default() };
    let disk = SimulatedDisk::new(seed, config);
    let init = InitOptions {
        segment_bytes: 2 << 20,
        size_limit: size_limit.map(ByteLength),
        ..InitOptions::default()
    };
    Pool::init(disk.storage(), &init).expect("a new pool");
    let pool = Pool::open(disk.storage(), &options(true)).expect("the pool");
    pool.create_dataset("ds", false, &[]).expect("a dataset");
    pool.create_dataset("ds/second", false, &[]).expect("another dataset");
    pool.close().expect("a clean close");
    disk
}

/// Everything in the order of calls, and a memory that large transactions do not fit.
fn options(caches: bool) -> OpenOptions {
    let small = explorer::small_options();
    if caches { small } else { OpenOptions { block_cache_bytes: 0, node_cache_bytes: 16 << 10, ..small } }
}

impl Life {
    /// Opens pool and database.
    pub fn begin(disk: &SimulatedDisk, setting: &Setting) -> Result<Self, Failure> {
        static NAMES: AtomicU64 = AtomicU64::new(0);
        let pool = Pool::open(disk.storage(), &options(setting.caches))?;
        icecore_sqlite::register().expect("the VFS");
        let name = format!("simulated-{}", NAMES.fetch_add(1, Ordering::Relaxed));
        let registration = icecore_sqlite::register_pool(&name, pool.clone()).expect("a new name");
        let mut life = Self { connection: None, registration, pool, setting: setting.clone() };
        life.connect()?;
        Ok(life)
    }

    pub fn connection(&self) -> &Connection {
        self.connection.as_ref().expect("a connection")
    }

    fn uri(&self, dataset: &str, snapshot: Option<&str>) -> String {
        let path = Path::new(&self.registration.prefix()).join(dataset).join("app.db");
        icecore_sqlite::uri(&path, snapshot)
    }

    /// Closes the connection.
    pub fn hang_up(&mut self) {
        self.connection = None;
    }

    /// Closes the connection, if there is one, and opens another.
    pub fn connect(&mut self) -> Result<(), Failure> {
        self.connection = None;
        let connection = open(&self.uri("ds", None), false)?;
        if self.setting.attached {
            connection.execute("ATTACH ?1 AS other", [self.uri("ds/second", None)])?;
        }
        connection.execute_batch(&self.setting.pragmas())?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Schemas of a connection, with the datasets that their files are in.
    fn schemas(&self) -> &'static [(&'static str, &'static str)] {
        if self.setting.attached { &[("main", "ds"), ("other", "ds/second")] } else { &[("main", "ds")] }
    }

    /// Does one action. After a failure there is no transaction open, and perhaps no connection.
    pub fn perform(&mut self, action: &Action) -> Result<(), Failure> {
        if self.connection.is_none() {
            self.connect()?;
        }
        match action {
            Action::Reconnect => self.connect(),
            Action::Checkpoint => Ok(self.pool.checkpoint()?),
            Action::Snapshot(name) => {
                for (schema, dataset) in self.schemas() {
                    // An earlier life may have taken it without reporting it.
                    if self.pool.view(&format!("{dataset}@{name}")).is_ok() {
                        continue;
                    }
                    let sql = "SELECT icecore_snapshot(?1, ?2)";
                    self.connection().query_row(sql, [name.as_str(), *schema], |_| Ok(()))?;
                }
                Ok(())
            }
            Action::Sql(statements) => {
                let connection = self.connection();
                let done = statements.iter().try_for_each(|statement| statement.run(connection));
                if done.is_err() && !connection.is_autocommit() {
                    // Nothing to be said about how it ends: what there is afterwards is looked at.
                    let _ = connection.execute_batch("ROLLBACK");
                }
                Ok(done?)
            }
        }
    }

    /// Does the actions from number `from` on, until one fails: answers how many of all are done, and the
    /// failure.
    pub fn live(&mut self, history: &History, from: usize, until: usize) -> (usize, Option<Failure>) {
        for (index, action) in history.actions.iter().enumerate().take(until).skip(from) {
            if let Err(failure) = self.perform(action) {
                return (index, Some(failure));
            }
        }
        (until.min(history.actions.len()), None)
    }

    fn has_snapshot(&self, name: &str) -> bool {
        self.schemas().iter().all(|(_, dataset)| self.pool.view(&format!("{dataset}@{name}")).is_ok())
    }

    /// Looks what there is: a sound database that holds one of the states allowed, and every snapshot that
    /// the first `acknowledged` actions took as it was then. Answers after how many actions it is.
    pub fn find(
        &self,
        history: &History,
        acknowledged: usize,
        allowed: RangeInclusive<usize>,
    ) -> Result<usize, String> {
        let found = self.look(None).map_err(|failure| format!("cannot read: {}", self.explain(&failure)))?;
        let (least, most) = (*allowed.start(), (*allowed.end()).min(history.actions.len()));
        // What changes nothing may have been done or not: it is done again.
        let position = (least..=most).find(|index| history.states[*index] == found).ok_or_else(|| {
            let known = history.states.iter().rposition(|state| *state == found);
            format!("found what there was after {known:?} actions, and {least} to {most} are allowed")
        })?;
        let look = |name: &str| {
            let message =
                |failure: Failure| format!("snapshot {name} cannot be read: {}", self.explain(&failure));
            self.look(Some(name)).map_err(message)
        };
        for (name, state) in history.snapshots(acknowledged) {
            if look(name)? != state {
                return Err(format!("snapshot {name} has changed"));
            }
        }
        // Those that were not reported may be there, but then they are what they would have been.
        for (name, state) in history.snapshots(most) {
            if self.has_snapshot(name) && look(name)? != state {
                return Err(format!("snapshot {name}, which was not acknowledged, is wrong"));
            }
        }
        Ok(position)
    }

    /// A failure with the sentence that the door has for it.
    pub fn explain(&self, failure: &Failure) -> String {
        let sentence = Connection::open_in_memory().and_then(|connection| {
            connection.query_row("SELECT icecore_last_error()", [], |row| row.get::<_, Option<String>>(0))
        });
        format!("{failure:?} ({sentence:?})")
    }

    /// The contents of the present, or of a snapshot, through a connection of their own.
    pub fn look(&self, snapshot: Option<&str>) -> Result<u64, Failure> {
        let connection = open(&self.uri("ds", snapshot), snapshot.is_some())?;
        if self.setting.attached {
            connection.execute("ATTACH ?1 AS other", [self.uri("ds/second", snapshot)])?;
        }
        for (schema, _) in self.schemas() {
            let sql = format!("PRAGMA {schema}.integrity_check");
            let check: String = connection.query_row(&sql, [], |row| row.get(0))?;
            assert_eq!(check, "ok", "{schema} of {snapshot:?}");
        }
        Ok(contents(&connection, &self.setting)?)
    }

    /// Ends well.
    pub fn close(mut self) -> icecore::Result<()> {
        self.connection = None;
        self.pool.verify()?;
        self.pool.close()
    }
}

fn open(uri: &str, read_only: bool) -> rusqlite::Result<Connection> {
    let access = if read_only {
        OpenFlags::SQLITE_OPEN_READ_ONLY
    } else {
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE
    };
    Connection::open_with_flags(uri, access | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}
