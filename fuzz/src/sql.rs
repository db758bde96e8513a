//! What SQL can say to the door: arguments of its functions and tables, parameters of its URIs, pragmas.

use super::simulated::new_pool;
use icecore::Pool;
use icecore_sqlite::Registration;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags};
use std::cell::RefCell;

const STATEMENTS: [&str; 9] = [
    "SELECT icecore_snapshot(?1)",
    "SELECT icecore_snapshot(?1, ?2)",
    "SELECT icecore_snapshot(?1, ?2, ?1)",
    "SELECT count(*) FROM icecore_snapshots(?1)",
    "SELECT count(*) FROM icecore_snapshots WHERE schema = ?1 AND name = ?2",
    "SELECT count(*) FROM icecore_stat(?1)",
    "SELECT icecore_last_error()",
    "SELECT icecore_last_error(?1)",
    "INSERT INTO t VALUES(?1)",
];

struct Door {
    connection: Connection,
    registration: Registration,
    pool: Pool,
    uses: u32,
}

thread_local! {
    static DOOR: RefCell<Option<Door>> = const { RefCell::new(None) };
}

/// The first byte says what is asked; the rest, cut at newlines, with what.
pub fn sql(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    let mut parts =
        rest.splitn(2, |byte| *byte == b'\n').map(|part| String::from_utf8_lossy(part).into_owned());
    let (first, second) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    // Another VFS would make real files of these names.
    if decoded(&first).contains("vfs") || decoded(&second).contains("vfs") {
        return;
    }
    DOOR.with_borrow_mut(|kept| {
        let door = kept.get_or_insert_with(new_door);
        match kind as usize % (STATEMENTS.len() + 4) {
            number if number < STATEMENTS.len() => {
                ask(&door.connection, STATEMENTS[number], &first, &second, kind)
            }
            9 => {
                // Below the pool whatever is said: paths elsewhere are real files.
                let uri = format!("file:{}/{first}?vfs=icecore&{second}", door.registration.prefix());
                let _ = door.connection.execute("ATTACH ?1 AS other", [uri]);
            }
            10 => open(&format!("file:{}/{first}?vfs=icecore&{second}", door.registration.prefix())),
            11 => open(&format!(
                "file:{}/ds/app.db?vfs=icecore&snapshot={first}&{second}",
                door.registration.prefix()
            )),
            _ => {
                let name = first.replace(|c: char| !c.is_ascii_alphabetic() && c != '_', "");
                let value = second.replace('\'', "''");
                // That one is the process's, and about real folders.
                if !name.eq_ignore_ascii_case("temp_store_directory") {
                    let _ = door.connection.execute_batch(&format!("PRAGMA {name} = '{value}'"));
                }
            }
        }
        door.check();
        door.uses += 1;
        if door.uses >= 200 {
            door.pool.verify().expect("the books");
            *kept = None;
        }
    });
}

/// What SQLite makes of a URI's percent signs.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(|_| bytes[at] == b'%') {
            Some(byte) => {
                out.push(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).to_ascii_lowercase()
}

impl Door {
    /// Whatever was asked, no panic was caught in the door, and the database is as good as ever.
    fn check(&mut self) {
        let shown = icecore_sqlite::last_error().unwrap_or_default();
        assert!(!shown.contains("a bug in icecore"), "{shown}");
        let _ = self.connection.execute_batch("ROLLBACK");
        let _ = self.connection.execute_batch("DETACH other");
        assert!(!self.pool.is_read_only());
    }
}

fn ask(connection: &Connection, sql: &str, first: &str, second: &str, kind: u8) {
    // The same text as other types.
    let value = |text: &str| match kind >> 5 {
        0 => Value::Null,
        1 => Value::Integer(text.len() as i64),
        2 => Value::Blob(text.as_bytes().to_vec()),
        3 => Value::Real(text.len() as f64),
        _ => Value::Text(text.to_owned()),
    };
    let Ok(mut statement) = connection.prepare(sql) else { return };
    let values = [value(first), value(second)];
    let count = statement.parameter_count();
    let Ok(mut rows) = statement.query(rusqlite::params_from_iter(values.into_iter().take(count))) else {
        return;
    };
    while let Ok(Some(_)) = rows.next() {}
}

fn open(uri: &str) {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if let Ok(connection) = Connection::open_with_flags(uri, flags) {
        let _ = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0));
    }
}

fn new_door() -> Door {
    let pool = new_pool("ds");
    icecore_sqlite::register().expect("the VFS");
    let name =
        format!("fuzz-{:?}", std::thread::current().id()).replace(|c: char| !c.is_ascii_alphanumeric(), "-");
    let registration = icecore_sqlite::register_pool(&name, pool.clone()).expect("a new name");
    let uri = format!("file:{}/ds/app.db?vfs=icecore", registration.prefix());
    let connection = Connection::open_with_flags(
        uri,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_URI,
    )
    .expect("a database");
    connection.execute_batch("CREATE TABLE t(x); SELECT icecore_snapshot('one')").expect("a table");
    Door { connection, registration, pool, uses: 0 }
}
