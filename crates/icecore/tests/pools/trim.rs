//! Segments in which nothing lives go back to the filesystem, and nothing is lost by it.

use icecore::units::InodeNumber;
use icecore::{CopyMode, Creation, Dataset, InitOptions, OpenOptions, Pool};
use std::path::Path;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const SEGMENT: u64 = 2 * MIB;

fn options(background: bool) -> OpenOptions {
    OpenOptions { background, control_socket: false, rest: Duration::from_secs(3), ..OpenOptions::default() }
}

/// A pool of small segments with a file of 1 MiB in it.
fn made(folder: &Path, background: bool) -> (Pool, Dataset, InodeNumber) {
    made_of(folder, SEGMENT, background)
}

fn made_of(folder: &Path, segment_bytes: u64, background: bool) -> (Pool, Dataset, InodeNumber) {
    let init = InitOptions { segment_bytes, copies: CopyMode::None, ..InitOptions::default() };
    Pool::init_directory(folder, &init).unwrap();
    let pool = Pool::open_directory(folder, &options(background)).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"kept", &Creation::file()).unwrap();
    db.write_durable(file, 0, &content()).unwrap();
    (pool, db, file)
}

fn content() -> Vec<u8> {
    (0..MIB).map(|at| (at / 4096) as u8 ^ at as u8).collect()
}

/// Fills so many MiB and removes them.
fn churn(db: &Dataset, mebibytes: u64) {
    let file = db.open_or_create(b"gone", &Creation::file()).unwrap();
    (0..mebibytes)
        .try_for_each(|at| db.write(file, at * MIB, &vec![(at % 250) as u8 + 1; MIB as usize]))
        .unwrap();
    db.sync().unwrap();
    db.unlink(InodeNumber::ROOT, b"gone").unwrap();
    db.sync().unwrap();
}

/// Segment files and their bytes.
fn files(folder: &Path) -> (usize, u64) {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let segments = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("segment."));
    // One may be removed meanwhile.
    let lengths: Vec<u64> = segments.filter_map(|entry| Some(entry.metadata().ok()?.len())).collect();
    (lengths.len(), lengths.iter().sum())
}

fn assert_kept(pool: &Pool, file: InodeNumber) {
    let mut read = vec![0; MIB as usize];
    let view = pool.view("db").unwrap();
    assert_eq!(view.read(file, 0, &mut read).unwrap(), read.len());
    assert!(read == content());
    pool.verify().unwrap();
    assert_eq!(pool.incidents(), []);
}

#[test]
fn free_segments_are_given_back_and_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, db, file) = made(folder.path(), false);
    for _ in 0..3 {
        churn(&db, 64);
        let (before, _) = files(folder.path());
        assert!(before > 30, "{before} segments");
        let report = pool.trim().unwrap();
        let (after, bytes) = files(folder.path());
        assert_eq!(
            (report.segments, report.bytes),
            ((before - after) as u64, (before - after) as u64 * SEGMENT)
        );
        assert!(bytes <= 16 * SEGMENT, "{after} segments are left");
        let statistics = pool.statistics();
        assert_eq!((statistics.segments, statistics.segments_free), (after as u64, report.segments_free));
        assert_eq!(pool.trim().unwrap().segments, 0, "there is nothing left to give back");
        assert_kept(&pool, file);
    }
    drop(db);
    pool.close().unwrap();
    let pool = Pool::open_directory(folder.path(), &options(false)).unwrap();
    assert_kept(&pool, file);
    churn(&pool.dataset("db").unwrap(), 16);
    assert_kept(&pool, file);
}

#[test]
fn a_snapshot_keeps_what_it_reaches() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, db, file) = made(folder.path(), false);
    let gone = db.open_or_create(b"gone", &Creation::file()).unwrap();
    (0..40).try_for_each(|at| db.write(gone, at * MIB, &content())).unwrap();
    pool.snapshot(&["db@full".to_owned()], false, &[]).unwrap();
    db.unlink(InodeNumber::ROOT, b"gone").unwrap();
    churn(&db, 20);
    pool.trim().unwrap();
    assert!(files(folder.path()).1 >= 40 * MIB);
    let mut read = vec![0; MIB as usize];
    let past = pool.view("db@full").unwrap();
    for at in 0..40 {
        assert_eq!(past.read(gone, at * MIB, &mut read).unwrap(), read.len());
        assert!(read == content());
    }
    assert_kept(&pool, file);
}

/// Each of these pools comes to rest after three seconds.
#[test]
fn pools_at_rest() {
    crate::side_by_side(&[
        ("give back by themselves", a_pool_at_rest_and_a_closed_one_give_back_by_themselves),
        ("give back what was there", a_file_from_before_the_pool_was_opened_is_given_back),
        ("beside a reader", a_pool_at_rest_beside_a_reader_writes_nothing),
        ("move what lives together", a_pool_at_rest_moves_what_lives_together),
    ]);
}

fn a_pool_at_rest_and_a_closed_one_give_back_by_themselves() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, db, file) = made(folder.path(), true);
    // More than what is kept for the next writes: 32 MiB.
    churn(&db, 300);
    let before = files(folder.path()).1;
    wait_until_given_back(folder.path());
    assert!(before > 290 * MIB && files(folder.path()).1 > 20 * MIB);
    assert_kept(&pool, file);
    churn(&db, 300);
    drop(db);
    pool.close().unwrap();
    assert!(files(folder.path()).1 <= 50 * MIB, "{:?}", files(folder.path()));
    assert_kept(&Pool::open_directory(folder.path(), &options(true)).unwrap(), file);
}

/// Waits until the pool has no more than a pool at rest keeps.
fn wait_until_given_back(folder: &Path) {
    let (before, begin) = (files(folder).1, Instant::now());
    while files(folder).1 > 50 * MIB {
        assert!(begin.elapsed() < Duration::from_secs(60), "{before} bytes came to {:?}", files(folder));
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A file is removed in a pool that has just been opened and frees nothing else, and in one that is closed
/// right after that.
fn a_file_from_before_the_pool_was_opened_is_given_back() {
    for waits in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (pool, db, file) = made(folder.path(), true);
        let large = db.open_or_create(b"large", &Creation::file()).unwrap();
        // Pieces that fill the segments: so the pool is hardly larger than what lives in it.
        let piece = vec![7; 128 << 10];
        (0..2400).try_for_each(|at| db.write(large, at * (128 << 10), &piece)).unwrap();
        drop(db);
        pool.trim().unwrap();
        pool.close().unwrap();
        assert!(files(folder.path()).1 < 350 * MIB, "{:?}", files(folder.path()));
        let pool = Pool::open_directory(folder.path(), &options(true)).unwrap();
        pool.dataset("db").unwrap().unlink(InodeNumber::ROOT, b"large").unwrap();
        if waits {
            wait_until_given_back(folder.path());
            assert_kept(&pool, file);
        }
        pool.close().unwrap();
        assert!(files(folder.path()).1 <= 50 * MIB, "{:?}", files(folder.path()));
        assert_kept(&Pool::open_directory(folder.path(), &options(true)).unwrap(), file);
    }
}

/// Readers and a writer go on while files come and go, and the books agree with the files all the time.
#[test]
fn readers_and_writers_do_not_notice() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, db, file) = made(folder.path(), true);
    let end = Instant::now() + Duration::from_secs(3);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut read = vec![0; MIB as usize];
                while Instant::now() < end {
                    let view = pool.view("db").unwrap();
                    assert_eq!(view.read(file, 0, &mut read).unwrap(), read.len());
                    assert!(read == content());
                }
            });
        }
        scope.spawn(|| {
            while Instant::now() < end {
                pool.trim().unwrap();
            }
        });
        scope.spawn(|| {
            while Instant::now() < end {
                pool.verify().unwrap();
            }
        });
        while Instant::now() < end {
            churn(&db, 24);
            db.write(file, 0, &content()).unwrap();
            pool.collect(4).unwrap();
        }
    });
    assert_kept(&pool, file);
    drop(db);
    pool.close().unwrap();
    assert_kept(&Pool::open_directory(folder.path(), &options(true)).unwrap(), file);
}

/// A reader keeps what the head has dropped. No checkpoint frees that, so none is written for it again and
/// again.
fn a_pool_at_rest_beside_a_reader_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    // So large that a pool always has more of them than it wants at rest.
    let (pool, db, file) = made_of(folder.path(), 64 * MIB, true);
    let gone = db.open_or_create(b"gone", &Creation::file()).unwrap();
    (0..200).try_for_each(|at| db.write(gone, at * MIB, &content())).unwrap();
    let reader = db.view().unwrap();
    db.unlink(InodeNumber::ROOT, b"gone").unwrap();
    db.sync().unwrap();
    assert_comes_to_rest(&pool);
    assert!(files(folder.path()).1 >= 200 * MIB, "the reader keeps it");
    drop(reader);
    assert_kept(&pool, file);
}

/// Waits until the pool writes no checkpoint for three seconds.
fn assert_comes_to_rest(pool: &Pool) {
    let begin = Instant::now();
    let (mut count, mut since) = (pool.statistics().checkpoints, Instant::now());
    while since.elapsed() < Duration::from_secs(3) {
        assert!(begin.elapsed() < Duration::from_secs(30), "checkpoints go on at rest: {count} so far");
        std::thread::sleep(Duration::from_millis(100));
        let now = pool.statistics().checkpoints;
        if now != count {
            (count, since) = (now, Instant::now());
        }
    }
}

/// Every segment is two thirds full of what lives, which is more than a pool at rest should take.
fn a_pool_at_rest_moves_what_lives_together() {
    let folder = tempfile::tempdir().unwrap();
    let (pool, db, file) = made(folder.path(), true);
    let [stays, goes] =
        [&b"stays"[..], b"goes"].map(|name| db.open_or_create(name, &Creation::file()).unwrap());
    for at in 0..400 {
        db.write(stays, at * MIB, &content()[..MIB as usize * 11 / 16]).unwrap();
        db.write(goes, at * MIB, &content()[..MIB as usize * 5 / 16]).unwrap();
    }
    db.unlink(InodeNumber::ROOT, b"goes").unwrap();
    db.sync().unwrap();
    let begin = Instant::now();
    let lives = 276 * MIB;
    while files(folder.path()).1 > lives + lives / 4 + 40 * MIB {
        assert!(begin.elapsed() < Duration::from_secs(120), "{lives} live: {:?}", files(folder.path()));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_kept(&pool, file);
}
