//! A person who has nothing but SQL gets out of a full pool: deleting works, and what it frees comes back.

use crate::database::{Outcome, Site, add};
use rusqlite::Connection;

/// Rows that are deleted at a time.
const ROWS: u64 = 100;
/// Transactions of new rows that find room in pages of deleted ones.
const TRANSACTIONS: u64 = 20;

/// Fills a pool with rows of a database, up to the last one and beyond, and deletes half of the rows then.
/// Answers how many are left.
fn fill_and_delete(site: &Site, connection: &Connection) -> u64 {
    let mut rows = 0;
    for more in [50, 8, 1] {
        while add(connection, rows, more) == Outcome::Committed {
            rows += more;
        }
    }
    let full = rows;
    // The last ones first, as rows are checked without gaps.
    site.stuffed(|| {
        assert_eq!(add(connection, rows, 1), Outcome::Full);
        while rows > full / 2 {
            let deleted = connection.execute("DELETE FROM t WHERE id > ?1", [(rows - ROWS).cast_signed()]);
            assert_eq!(deleted, Ok(ROWS as usize), "{rows} of {full}: {:?}", icecore_sqlite::last_error());
            rows -= ROWS;
        }
    });
    assert_eq!(site.rows(None), rows);
    rows
}

#[test]
fn rows_can_be_deleted_in_a_full_pool_and_others_take_their_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::make(folder.path(), Some(256 << 20));
    let connection = site.connect();
    let mut rows = fill_and_delete(&site, &connection);
    for _ in 0..TRANSACTIONS {
        assert_eq!(
            add(&connection, rows, 8),
            Outcome::Committed,
            "{rows}: {:?}",
            icecore_sqlite::last_error()
        );
        rows += 8;
    }
    assert_eq!(site.rows(None), rows);
    site.administer();
    drop(connection);
    site.check(folder.path()).close();
}

#[test]
fn an_incremental_vacuum_gives_the_room_of_deleted_rows_back_to_a_full_pool() {
    let folder = tempfile::tempdir().expect("a folder");
    let site = Site::make(folder.path(), Some(256 << 20));
    let connection = site.connect();
    connection.execute_batch("PRAGMA auto_vacuum=INCREMENTAL").expect("before there is a table");
    let mut rows = fill_and_delete(&site, &connection);
    let free = || -> i64 {
        connection.query_row("PRAGMA freelist_count", [], |row| row.get(0)).expect("the pages that are free")
    };
    let mut left = free();
    while left > 0 {
        let done = vacuum_some(&connection);
        assert_eq!(done, Ok(()), "{left} pages are left: {:?}", icecore_sqlite::last_error());
        assert!(free() < left, "{left} pages stay");
        left = free();
    }
    let kept = rows;
    // As ever: half of the pool is free.
    while rows < kept * 3 / 2 {
        assert_eq!(add(&connection, rows, 50), Outcome::Committed, "{rows} after {kept}");
        rows += 50;
    }
    assert_eq!(site.rows(None), rows);
    drop(connection);
    site.check(folder.path()).close();
}

/// A step for each page, each of which is a row without columns.
fn vacuum_some(connection: &Connection) -> rusqlite::Result<()> {
    let mut statement = connection.prepare("PRAGMA incremental_vacuum(200)")?;
    let mut rows = statement.query([])?;
    while rows.next()?.is_some() {}
    Ok(())
}
