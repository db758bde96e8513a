//! A pool that no connection uses any more stays open for a while: the next connection finds it open, another
//! process gets it at once, and nothing is lost whatever ends the process.

mod common;

use common::{Place, one, open_uri, run, try_open};
use icecore::{Error, OpenOptions, Pool};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Where the process finds the database, and what it does when it is idle.
const URI: &str = "ICECORE_TEST_URI";
const END: &str = "ICECORE_TEST_END";

/// Whether a process has the pool open: an owner listens.
fn is_open(place: &Place) -> bool {
    place.pool_path().join("control.sock").exists()
}

fn becomes_closed(place: &Place) -> bool {
    let deadline = Instant::now() + common::PATIENCE;
    while is_open(place) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    !is_open(place)
}

fn lingering(place: &Place, seconds: u32) -> String {
    format!("{}&linger={seconds}", place.uri("app.db"))
}

/// A database with a number in it, in a pool that is open and that nothing uses.
fn idle(place: &Place) {
    let db = open_uri(&lingering(place, 3600));
    run(&db, "PRAGMA synchronous=OFF; CREATE TABLE t(x); INSERT INTO t VALUES (42)");
    drop(db);
    assert!(is_open(place));
}

fn opened_to_read(pool: &Path) -> icecore::Result<Pool> {
    Pool::open_directory(pool, &OpenOptions { read_only: true, ..OpenOptions::default() })
}

#[test]
fn the_next_connection_finds_the_pool_open() {
    let place = Place::new();
    idle(&place);
    let opened = "SELECT value FROM icecore_stat WHERE name = 'log_bytes'";
    let db = open_uri(&lingering(&place, 3600));
    assert_eq!(one::<i64>(&db, "SELECT x FROM t"), 42);
    // Counters begin with the opening of a pool, and this connection has written nothing.
    assert!(one::<i64>(&db, opened) > 0);
}

#[test]
fn linger_says_how_long() {
    let place = Place::new();
    idle(&place);
    drop(open_uri(&lingering(&place, 0)));
    assert!(!is_open(&place), "linger=0 closes at once");
    drop(open_uri(&lingering(&place, 1)));
    assert!(is_open(&place));
    assert!(becomes_closed(&place), "after a second");
    for nonsense in ["-1", "3601", "1.5", "", "long"] {
        let refused = try_open(&format!("{}&linger={nonsense}", place.uri("app.db")));
        refused.and_then(|db| db.query_row("SELECT x FROM t", [], |_| Ok(()))).expect_err(nonsense);
        assert!(icecore_sqlite::last_error().is_some_and(|text| text.contains("linger=")), "{nonsense}");
    }
}

#[test]
fn another_process_that_wants_an_idle_pool_gets_it_at_once() {
    let place = Place::new();
    idle(&place);
    let begin = Instant::now();
    let pool = Pool::open_directory(&place.pool_path(), &OpenOptions::default()).expect("it was let go");
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    pool.close().expect("a clean close");
    idle_again(&place);
    opened_to_read(&place.pool_path()).expect("also to read only").close().expect("a clean close");
    idle_again(&place);
    let options = icecore::check::CheckOptions { data: true };
    let report = icecore::check::check_directory(&place.pool_path(), &options, &mut |_| {}).expect("checked");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

fn idle_again(place: &Place) {
    drop(open_uri(&lingering(place, 3600)));
    assert!(is_open(place));
}

#[test]
fn a_pool_in_use_is_not_let_go() {
    let place = Place::new();
    idle(&place);
    let db = open_uri(&lingering(&place, 3600));
    assert_eq!(one::<i64>(&db, "SELECT x FROM t"), 42);
    let refused = Pool::open_directory(&place.pool_path(), &OpenOptions::default()).map(drop);
    assert!(matches!(refused, Err(Error::PoolInUse { .. })), "{refused:?}");
    assert_eq!(one::<i64>(&db, "SELECT x FROM t"), 42);
}

/// An idle pool must not stand for another one that has come to lie in its place.
#[test]
fn a_pool_that_was_put_in_its_place_is_found() {
    let (place, other) = (Place::new(), Place::new());
    idle(&place);
    let db = open_uri(&format!("{}&linger=0", other.uri("app.db")));
    run(&db, "CREATE TABLE t(x); INSERT INTO t VALUES (7)");
    drop(db);
    let aside = place.outside("aside");
    std::fs::rename(place.pool_path(), &aside).expect("moved away");
    std::fs::rename(other.pool_path(), place.pool_path()).expect("moved here");
    assert_eq!(one::<i64>(&open_uri(&lingering(&place, 0)), "SELECT x FROM t"), 7);
    // The one that was moved away was closed as it has to be.
    opened_to_read(&aside).expect("cleanly closed").close().expect("a clean close");
}

/// More than a program uses: none of them is kept from being used again.
#[test]
fn many_pools_are_idle_for_a_short_time_only() {
    let places: Vec<Place> = (0..12).map(|_| Place::in_memory()).collect();
    places.iter().for_each(idle);
    let deadline = Instant::now() + common::PATIENCE;
    while places.iter().filter(|place| is_open(place)).count() > 8 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(places.iter().filter(|place| is_open(place)).count() <= 8);
    for place in &places {
        assert_eq!(one::<i64>(&open_uri(&lingering(place, 0)), "SELECT x FROM t"), 42);
    }
}

#[test]
#[ignore = "a process for other tests"]
fn idle_process() {
    let uri = std::env::var(URI).expect("started by a test");
    let db = open_uri(&uri);
    run(&db, "PRAGMA synchronous=OFF; CREATE TABLE t(x); INSERT INTO t VALUES (42)");
    drop(db);
    println!("idle");
    std::io::stdout().flush().expect("the parent listens");
    if std::env::var(END).as_deref() == Ok("wait") {
        // Until the parent ends it.
        let _ = std::io::stdin().read(&mut [0]);
    }
}

/// A process that leaves the pool idle, and waits or ends then.
fn start(place: &Place, end: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", "idle_process", "--ignored", "--nocapture"])
        .env(URI, lingering(place, 3600))
        .env(END, end)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a process");
    let lines = BufReader::new(child.stdout.as_mut().expect("piped")).lines();
    assert!(lines.map_while(Result::ok).any(|line| line.ends_with("idle")), "it ended early");
    child
}

fn number_in(pool: PathBuf) -> i64 {
    one::<i64>(&open_uri(&icecore_sqlite::uri(&pool.join("ds/app.db"), None)), "SELECT x FROM t")
}

#[test]
fn the_end_of_the_process_closes_it() {
    let place = Place::new();
    let outcome = start(&place, "exit").wait_with_output().expect("it was started");
    assert!(outcome.status.success());
    // One that was not closed has to be recovered, which takes a writer.
    opened_to_read(&place.pool_path()).expect("cleanly closed").close().expect("a clean close");
    assert_eq!(number_in(place.pool_path()), 42);
}

#[test]
fn what_was_committed_outlives_a_kill() {
    let place = Place::new();
    let mut child = start(&place, "wait");
    child.kill().expect("it runs");
    child.wait().expect("it was started");
    assert_eq!(number_in(place.pool_path()), 42);
}

#[test]
fn another_process_lets_go() {
    let place = Place::new();
    let mut child = start(&place, "wait");
    let begin = Instant::now();
    assert_eq!(number_in(place.pool_path()), 42);
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    drop(child.stdin.take());
    assert!(child.wait().expect("it was started").success());
}
