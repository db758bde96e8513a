//! Copies that were given up come back by themselves once there is room for them.

use crate::format::copies::CopyMode;
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::units::ByteLength;
use crate::{Creation, DestroyTarget, Error};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SEGMENT: u64 = 2 << 20;
/// Files that the pool may have.
const FILES: u64 = 20;
/// What is kept back for copies.
const KEPT_BACK: u64 = 3;
/// Longer than it takes; then it does not happen.
const PATIENCE: Duration = Duration::from_secs(30);

fn options(background: bool) -> OpenOptions {
    OpenOptions { background, control_socket: false, ..OpenOptions::default() }
}

fn make(background: bool) -> (Arc<MemoryStorage>, Pool) {
    let storage = Arc::new(MemoryStorage::default());
    let size_limit = Some(ByteLength(FILES * SEGMENT));
    let init = InitOptions { copies: CopyMode::Metadata, size_limit, ..InitOptions::small() };
    Pool::init(storage.clone(), &init).unwrap();
    let pool = Pool::open(storage.clone(), &options(background)).unwrap();
    (storage, pool)
}

fn destroy(pool: &Pool, name: &str) {
    pool.destroy(&DestroyTarget::Dataset { name: name.to_owned(), recursive: true }).unwrap();
    // The first records what died, and what it leaves empty is free with the second.
    pool.checkpoint().unwrap();
    pool.checkpoint().unwrap();
}

/// Has the pool take all segments that it may have, and empties it: they are never given back.
fn grow(pool: &Pool) {
    pool.create_dataset("data", false, &[]).unwrap();
    let data = pool.dataset("data").unwrap();
    let file = data.open_or_create(b"f", &Creation::file()).unwrap();
    for piece in 0.. {
        match data.write(file, piece << 18, &vec![1; 1 << 18]) {
            Ok(()) => {}
            Err(Error::NoSpace { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    drop(data);
    destroy(pool, "data");
    assert_eq!(pool.statistics().segment_file_bytes, (FILES - KEPT_BACK) * SEGMENT);
}

/// A dataset that takes a segment of nodes and more.
fn names(pool: &Pool, dataset: &str) {
    pool.create_dataset(dataset, false, &[]).unwrap();
    let names = pool.dataset(dataset).unwrap();
    for serial in 0..6000 {
        names.open_or_create(format!("{serial:0240}").as_bytes(), &Creation::file()).unwrap();
    }
    pool.checkpoint().unwrap();
}

/// Fills a pool with datasets until there is no room for all copies, and answers with how many.
fn without_room(pool: &Pool) -> usize {
    grow(pool);
    let mut made = 0;
    while pool.statistics().copies_missing < 2 {
        made += 1;
        assert!(made < 8, "there was room for all copies");
        names(pool, &format!("n{made}"));
    }
    assert!(!pool.copies().is_whole());
    assert_eq!(pool.statistics().copy_file_bytes, KEPT_BACK * SEGMENT);
    made
}

/// A pool in which there was no room for all copies, and of which all but the dataset that is named are gone
/// again.
fn with_room_again(pool: &Pool) -> String {
    let made = without_room(pool);
    (1..made).for_each(|number| destroy(pool, &format!("n{number}")));
    format!("n{made}")
}

/// Whether there are as many copies as there is room for: segments that were made once are never given back.
fn has_what_there_is_room_for(pool: &Pool) -> bool {
    let statistics = pool.statistics();
    assert!(statistics.segment_file_bytes + statistics.copy_file_bytes <= FILES * SEGMENT);
    statistics.copies_missing == 0 || statistics.copy_file_bytes == KEPT_BACK * SEGMENT
}

/// All that should have a copy has one.
fn assert_whole(pool: &Pool) {
    let stand = pool.copies();
    assert!(stand.is_whole() && stand.missing == 0, "{stand:?}");
    assert!(pool.statistics().copy_file_bytes > 0);
    let report = pool.scrub(&mut |_| true).unwrap();
    assert_eq!((report.damaged, report.complete), (0, true), "{report:?}");
}

#[test]
fn with_room_again_copies_come_back_with_calls() {
    let (storage, pool) = make(false);
    let checkpoints = || (0..KEPT_BACK).for_each(|_| pool.checkpoint().unwrap());
    let last = with_room_again(&pool);
    checkpoints();
    assert!(has_what_there_is_room_for(&pool), "{:?}", pool.copies());
    destroy(&pool, &last);
    checkpoints();
    assert_whole(&pool);
    // A crash finds them as they should be, too.
    let crashed = Pool::open(storage.copy(), &options(false)).unwrap();
    assert_whole(&crashed);
}

#[test]
fn why_copies_are_missing_is_known_after_the_pool_was_closed() {
    let (storage, pool) = make(false);
    without_room(&pool);
    let stand = pool.copies();
    let why = stand.why.as_deref().unwrap_or_default();
    assert!(why.contains("the size limit leaves no room for it"), "{stand:?}");
    pool.close().unwrap();
    let options = OpenOptions { read_only: true, ..options(false) };
    assert_eq!(Pool::open(storage, &options).unwrap().copies(), stand);
}

#[test]
fn with_room_again_copies_come_back_in_the_background() {
    let (_storage, pool) = make(true);
    let wait_for = |done: fn(&Pool) -> bool| {
        let begin = Instant::now();
        while !done(&pool) && begin.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let last = with_room_again(&pool);
    wait_for(has_what_there_is_room_for);
    assert!(has_what_there_is_room_for(&pool), "{:?}", pool.copies());
    destroy(&pool, &last);
    wait_for(|pool| pool.copies().is_whole());
    assert_whole(&pool);
    pool.close().unwrap();
}
