//! SQLite's door and a mount in one pool: it belongs to one of the two at a time.

use crate::fixture::{Fixture, can_mount};
use rusqlite::Connection;
use std::thread;
use std::time::Duration;

fn through_door(fixture: &Fixture) -> rusqlite::Result<Connection> {
    let connection = Connection::open(format!("file:{}/db/app.db?vfs=icecore", fixture.pool().display()))?;
    connection.busy_timeout(Duration::from_secs(5))?;
    Ok(connection)
}

/// A connection to a new database with one row.
fn with_a_row(fixture: &Fixture) -> Connection {
    icecore_sqlite::register().unwrap();
    let connection = through_door(fixture).unwrap();
    connection.execute_batch("create table t (x); insert into t values (1)").unwrap();
    connection
}

fn sum(connection: &Connection) -> i64 {
    connection.query_row("select sum(x) from t", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_mount_waits_for_a_program_that_has_the_pool_for_a_moment() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let connection = with_a_row(&fixture);
    let closing = thread::spawn(move || {
        thread::sleep(Duration::from_secs(1));
        drop(connection);
    });
    fixture.mount();
    closing.join().unwrap();
    assert_eq!(sum(&Connection::open(fixture.path("db/app.db")).unwrap()), 1);
}

#[test]
fn the_door_and_a_mount_refuse_each_other_and_say_why() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let connection = with_a_row(&fixture);
    let pool = fixture.pool();
    let (_, refused) = fixture.refused(&["mount", pool.to_str().unwrap(), "mnt"]);
    let process = format!("in use by {} ", std::process::id());
    assert!(refused.contains(&process) && refused.contains("end that process"), "{refused}");
    // The refusal has not disturbed the connection.
    connection.execute_batch("insert into t values (2)").unwrap();
    drop(connection);

    fixture.mount();
    let on_mount = Connection::open(fixture.path("db/app.db")).unwrap();
    assert_eq!(sum(&on_mount), 3);
    on_mount.execute_batch("insert into t values (4)").unwrap();
    let refused = through_door(&fixture).unwrap_err();
    assert_eq!(refused.sqlite_error_code(), Some(rusqlite::ErrorCode::CannotOpen), "{refused}");
    let asks = Connection::open_in_memory().unwrap();
    let said: String = asks.query_row("select icecore_last_error()", [], |row| row.get(0)).unwrap();
    let process = format!("in use by {} ", fixture.owner().as_raw_nonzero());
    assert!(said.contains(&process) && said.contains("on its mount"), "{said}");
    on_mount.execute_batch("insert into t values (8)").unwrap();
    drop(on_mount);
    fixture.unmount();

    assert_eq!(sum(&through_door(&fixture).unwrap()), 15);
}
