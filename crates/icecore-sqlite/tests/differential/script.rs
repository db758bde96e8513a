//! What a script is made of: a setting, and actions that read as SQL.

use std::fmt;

/// Who uses the databases, and so what icecore is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// One connection, beside plain files in a rollback mode or in WAL mode.
    Alone,
    /// Several connections whose transactions overlap, beside plain files in WAL mode.
    Together,
    /// Several connections, one transaction after the other, beside plain files in a rollback mode. What a
    /// connection keeps between its transactions is the lock of `locking_mode=EXCLUSIVE`.
    Turns,
}

/// What is decided once for a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    pub seed: u64,
    pub profile: Profile,
    /// The plain files are in WAL mode.
    pub wal: bool,
    pub page_bytes: u32,
    pub auto_vacuum: &'static str,
    pub encoding: &'static str,
    /// Icecore's pool stays open by another connection, which is quicker.
    pub pool_stays_open: bool,
    /// Databases: `f0.db`, `f1.db` and so on.
    pub files: usize,
}

/// A connection, by its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LinkId(pub usize);

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

/// How a database is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    ReadOnly,
    ReadWrite,
    Create,
}

/// A schema of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schema {
    pub link: LinkId,
    pub name: String,
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.link, self.name)
    }
}

/// A file control.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Control {
    PowersafeOverwrite,
    PersistWal,
    TemporaryName,
    HasMoved,
    LastErrno,
    ExternalReader,
    LockState,
    DataVersion,
}

/// One step of a script. In SQL, `{f1.db}` is the URI of that file on the side that runs it, and `{out0.db}`
/// that of a file that both sides keep outside of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    Open {
        link: LinkId,
        file: String,
        how: Opening,
    },
    Close {
        link: LinkId,
    },
    Run {
        link: LinkId,
        sql: String,
    },
    /// A whole transaction: all of it, whatever fails, and `ROLLBACK` where it stays open.
    Turn {
        link: LinkId,
        sql: Vec<String>,
    },
    /// `PRAGMA journal_mode=WAL` in a pool; on the plain side only the question which mode it is.
    DeclineWal {
        schema: Schema,
    },
    /// Interrupted after so many steps of SQLite's machine.
    Interrupt {
        link: LinkId,
        steps: i32,
        sql: String,
    },
    /// The commit of a file fails, after that of so many others of the same transaction.
    FailCommit {
        link: LinkId,
        after: u32,
        sql: Vec<String>,
    },
    StartCursor {
        link: LinkId,
        slot: usize,
        sql: String,
    },
    StepCursor {
        slot: usize,
        rows: usize,
    },
    EndCursor {
        slot: usize,
    },
    StartBackup {
        slot: usize,
        from: Schema,
        to: Schema,
    },
    StepBackup {
        slot: usize,
        pages: i32,
    },
    EndBackup {
        slot: usize,
    },
    /// A backup from its beginning to its end, so many pages a step.
    Backup {
        from: Schema,
        to: Schema,
        pages: i32,
    },
    OpenBlob {
        schema: Schema,
        slot: usize,
        row: i64,
        for_writing: bool,
    },
    ReadBlob {
        slot: usize,
        offset: i32,
        length: i32,
    },
    WriteBlob {
        slot: usize,
        offset: i32,
        length: i32,
        byte: u8,
    },
    ReopenBlob {
        slot: usize,
        row: i64,
    },
    CloseBlob {
        slot: usize,
    },
    Control {
        schema: Schema,
        control: Control,
    },
    /// What a fresh connection finds in a file.
    Look {
        file: String,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Open { link, file, how } => write!(f, "{link}: .open {file} -- {how:?}"),
            Self::Close { link } => write!(f, "{link}: .close"),
            Self::Run { link, sql } => write!(f, "{link}: {sql};"),
            Self::Turn { link, sql } => {
                write!(f, "{link}: {}; -- and ROLLBACK if still open", sql.join("; "))
            }
            Self::DeclineWal { schema } => {
                let name = &schema.name;
                let link = schema.link;
                write!(
                    f,
                    "{link}: SELECT count(*) FROM {name}.sqlite_schema; PRAGMA {name}.journal_mode=WAL; \
                     -- plain: PRAGMA {name}.journal_mode"
                )
            }
            Self::Interrupt { link, steps, sql } => {
                write!(f, "{link}: {sql}; -- interrupted after {steps} steps")
            }
            Self::FailCommit { link, after, sql } => {
                write!(
                    f,
                    "{link}: {}; -- I/O error in the commit of file {after}, if it has so many",
                    sql.join("; ")
                )
            }
            Self::StartCursor { link, slot, sql } => {
                write!(f, "{link}: {sql}; -- cursor {slot}, no step yet")
            }
            Self::StepCursor { slot, rows } => write!(f, "-- cursor {slot}: {rows} rows"),
            Self::EndCursor { slot } => write!(f, "-- cursor {slot}: finalize"),
            Self::StartBackup { slot, from, to } => write!(f, "-- backup {slot}: init {from} into {to}"),
            Self::StepBackup { slot, pages } => write!(f, "-- backup {slot}: step {pages} pages"),
            Self::EndBackup { slot } => write!(f, "-- backup {slot}: finish"),
            Self::Backup { from, to, pages } => {
                write!(f, "-- backup of {from} into {to}, {pages} pages a step")
            }
            Self::OpenBlob { schema, slot, row, for_writing } => {
                let how = if *for_writing { "writing" } else { "reading" };
                write!(f, "-- blob {slot}: open {schema}.t.b of row {row} for {how}")
            }
            Self::ReadBlob { slot, offset, length } => {
                write!(f, "-- blob {slot}: read {length} bytes at {offset}")
            }
            Self::WriteBlob { slot, offset, length, byte } => {
                write!(f, "-- blob {slot}: write {length} times {byte} at {offset}")
            }
            Self::ReopenBlob { slot, row } => write!(f, "-- blob {slot}: reopen row {row}"),
            Self::CloseBlob { slot } => write!(f, "-- blob {slot}: close"),
            Self::Control { schema, control } => write!(f, "-- file control of {schema}: {control:?}"),
            Self::Look { file } => write!(f, "-- dump of {file} by a new connection"),
        }
    }
}

impl Action {
    /// The text that SQLite gets to see, if it is SQL.
    pub fn sql(&self) -> String {
        match self {
            Self::Run { sql, .. } | Self::Interrupt { sql, .. } | Self::StartCursor { sql, .. } => {
                sql.clone()
            }
            Self::Turn { sql, .. } | Self::FailCommit { sql, .. } => sql.join("; "),
            Self::DeclineWal { .. } => "PRAGMA journal_mode=WAL".to_owned(),
            _ => String::new(),
        }
    }
}

/// A setting and what is done in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Script {
    pub setting: Setting,
    pub actions: Vec<Action>,
}

impl Setting {
    /// What is in each file before the script begins.
    pub fn schema(&self) -> String {
        let Self { page_bytes, auto_vacuum, encoding, .. } = self;
        format!(
            "PRAGMA page_size={page_bytes}; PRAGMA auto_vacuum={auto_vacuum}; PRAGMA encoding='{encoding}'; \
             PRAGMA synchronous=OFF; BEGIN;{SCHEMA}    COMMIT"
        )
    }
}

const SCHEMA: &str = "
    CREATE TABLE t(id INTEGER PRIMARY KEY, a TEXT, b BLOB);
    CREATE TABLE u(k TEXT PRIMARY KEY, v) WITHOUT ROWID;
    CREATE TABLE n(id INTEGER PRIMARY KEY AUTOINCREMENT, x UNIQUE);
    CREATE TABLE log(what, id);
    CREATE INDEX t_a ON t(a);
    CREATE TRIGGER t_deleted AFTER DELETE ON t BEGIN INSERT INTO log VALUES ('deleted', old.id); END;
    INSERT INTO t VALUES (1, 'one', zeroblob(100)), (2, 'two', zeroblob(5000)), (3, 'three', x'');
    INSERT INTO u VALUES ('first', 1);
";

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setting { seed, profile, wal, files, .. } = &self.setting;
        let journal = if *wal { "WAL" } else { "DELETE" };
        writeln!(f, "-- seed {seed}, profile {profile:?}: plain files in journal_mode={journal}")?;
        writeln!(f, "-- in each of f0.db to f{}.db: {}", files - 1, self.setting.schema())?;
        self.actions.iter().enumerate().try_for_each(|(index, action)| writeln!(f, "/* {index} */ {action}"))
    }
}
