//! 90, 95, 99 and 100 % of what a pool with a size limit can hold, while an application writes.

use crate::database::{Outcome, Site, add};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Rows of a transaction.
const ROWS: u64 = 8;

/// An application that writes so many rows, or until there is no room. Answers how many are there by what
/// SQLite reported.
fn write(site: &Site, present: u64, wanted: u64, acknowledged: &AtomicU64) -> (u64, Outcome) {
    let connection = site.connect();
    let mut present = present;
    while present < wanted {
        if add(&connection, present, ROWS) == Outcome::Full {
            return (present, Outcome::Full);
        }
        present += ROWS;
        acknowledged.store(present, Ordering::Release);
    }
    (present, Outcome::Committed)
}

/// Writes, and administers the pool meanwhile, again and again.
fn fill(site: &Site, present: u64, wanted: u64) -> (u64, Outcome) {
    let acknowledged = AtomicU64::new(present);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| write(site, present, wanted, &acknowledged));
        while !writer.is_finished() {
            site.administer();
            std::thread::sleep(Duration::from_millis(50));
        }
        let (rows, outcome) = writer.join().expect("the application");
        assert_eq!(rows, acknowledged.load(Ordering::Acquire));
        (rows, outcome)
    })
}

/// Back to a snapshot, under a connection that is open. Answers what keeps the present.
fn go_back(site: &Site, snapshot: &str) -> String {
    let connection = site.connect();
    let report = site.pool.rollback(&format!("db@{snapshot}"), true).expect("a rollback on a full pool");
    drop(connection);
    report.saved_as
}

#[test]
fn an_application_goes_on_in_the_same_process_when_there_is_room_again() {
    let folder = tempfile::tempdir().expect("a folder");
    // Of so many segments that one more, in which something is being filled, is 1.6 % of them.
    let mut site = Site::make(folder.path(), Some(128 << 20));
    let (start, _) = write(&site, 0, ROWS, &AtomicU64::new(0));
    assert!(site.snapshot("start"));
    // What it can hold.
    let (full, outcome) = fill(&site, start, u64::MAX);
    assert_eq!(outcome, Outcome::Full);
    let saved = go_back(&site, "start");
    assert_eq!(site.rows(None), start);
    site.destroy(&[saved]);
    // All of it again, in the same process.
    let mut present = start;
    let mut snapshots: Vec<(String, u64)> = Vec::new();
    for percent in [50, 90, 95, 99, 100] {
        let wanted = if percent == 100 { u64::MAX } else { full * percent / 100 };
        let (rows, outcome) = fill(&site, present, wanted);
        present = rows;
        // The pool does not promise the last percents again to the block.
        assert!(outcome == Outcome::Committed || percent > 95, "full at {percent} %: {present} of {full}");
        assert!(percent < 100 || outcome == Outcome::Full);
        assert_eq!(site.rows(None), present, "at {percent} %");
        site.administer();
        let name = format!("at-{percent}");
        if site.snapshot(&name) {
            snapshots.push((name, present));
        } else {
            assert!(percent > 90, "no snapshot at {percent} %: {:?}", site.pool.statistics());
        }
        site.go_back_and_forward("start", start);
        if percent == 100 {
            site.stuffed(|| site.go_back_and_forward("start", start));
        }
        site = site.check(folder.path());
        assert_eq!(site.rows(None), present, "at {percent} %");
    }
    assert!(present > full * 95 / 100, "{present} of {full}");
    // Full is full, for everybody, and again and again; nothing is damaged by that.
    let connection = site.connect();
    for rows in [500, ROWS, 2000, 1] {
        while add(&connection, present, rows) == Outcome::Committed {
            present += rows;
        }
    }
    assert_eq!(site.rows(None), present);
    site.administer();
    for (name, rows) in &snapshots {
        assert_eq!(site.rows(Some(name)), *rows, "{name}");
    }
    // Back, and forward again, with the application still there.
    let saved = go_back(&site, "at-50");
    assert_eq!(site.rows(None), snapshots[0].1);
    let back = go_back(&site, saved.split_once('@').expect("a snapshot").1);
    assert_eq!(site.rows(None), present);
    drop(connection);
    site.destroy(&[saved, back]);
    // Room is made.
    let saved = go_back(&site, "at-50");
    present = snapshots[0].1;
    let mut doomed: Vec<String> = snapshots.iter().map(|(name, _)| format!("db@{name}")).collect();
    doomed.push(saved);
    site.destroy(&doomed);
    let (rows, outcome) = fill(&site, present, full * 90 / 100);
    assert_eq!(outcome, Outcome::Committed, "there is room again: {:?}", site.pool.statistics());
    assert_eq!(site.rows(None), rows);
    site.administer();
    site.close();
    let site = Site::open(folder.path());
    assert_eq!(site.rows(None), rows);
    site.close();
}

#[test]
fn a_full_pool_is_closed_and_opened_as_any_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut site = Site::make(folder.path(), Some(48 << 20));
    let (present, outcome) = write(&site, 0, u64::MAX, &AtomicU64::new(0));
    assert_eq!(outcome, Outcome::Full);
    for _ in 0..3 {
        site.close();
        site = Site::open(folder.path());
        assert_eq!(site.rows(None), present);
        site.administer();
        let connection = site.connect();
        assert_eq!(add(&connection, present, 400), Outcome::Full);
    }
    site.close();
}
