//! What happens to a pool that is left alone.

use super::*;
use std::time::{Duration, Instant};

/// What the background does when no writer is active, until it has nothing to do any more. Answers how often
/// it had.
fn left_alone(pool: &Pool) -> u64 {
    left_alone_to(pool, Keep::Rest)
}

/// The same of a pool that is to become so small.
fn left_alone_to(pool: &Pool, keep: Keep) -> u64 {
    let mut turns = 0;
    loop {
        let before = pool.statistics().written_bytes();
        pool.engine().collect_idle(keep).unwrap();
        if pool.statistics().written_bytes() == before {
            return turns;
        }
        turns += 1;
        assert!(turns < 100, "it never comes to rest");
    }
}

/// Everything that lies in the storage.
fn bytes(storage: &MemoryStorage) -> Vec<(String, Vec<u8>)> {
    let mut files = storage.list().unwrap();
    files.sort();
    let read = |(name, length): (String, u64)| {
        let mut bytes = vec![0; length as usize];
        storage.open(&name, false).unwrap().read_at(&mut bytes, 0).unwrap();
        (name, bytes)
    };
    files.into_iter().map(read).collect()
}

/// Segments less than half full that together have more than a segment's room.
fn is_thin(pool: &Pool) -> bool {
    let engine = pool.engine();
    let victims = engine.victims(&engine.state());
    let thin = victims.iter().filter(|victim| victim.live * 2 <= victim.capacity);
    let dead: u64 = thin.map(|victim| victim.capacity - victim.live).sum();
    victims.first().is_some_and(|victim| dead > victim.capacity)
}

#[test]
fn a_pool_that_is_left_alone_gathers_what_is_thin_and_then_rests() {
    let storage = make(None);
    let pool = open(&storage);
    pool.engine().collector.hush();
    let (_, file) = thinned(&pool, 1000);
    assert!(is_thin(&pool));
    let before = pool.statistics();
    // A few segments at a time, in case a writer comes.
    assert!(left_alone(&pool) > 1);
    let after = pool.statistics();
    assert!(after.segments_collected >= 6, "{after:?}");
    assert!(after.segments_free > before.segments_free + 3, "{before:?} {after:?}");
    assert_eq!((after.segments_vacated, after.collector.as_str()), (0, "nothing to do"));
    assert!(!is_thin(&pool));
    let still = bytes(&storage);
    for _ in 0..10 {
        assert_eq!(left_alone(&pool), 0);
    }
    assert!(bytes(&storage) == still, "a pool at rest writes nothing");
    assert_eq!(pool.statistics().segments_collected, after.segments_collected);
    assert_thinned(&pool, "db", file, 1000);
    assert_sound(&pool);
    pool.close().unwrap();
    assert_thinned(&open_as(&storage, false, 0), "db", file, 1000);
}

/// What is more than half full is not worth the writing, though a third of it is dead.
#[test]
fn a_pool_that_nothing_is_to_be_gained_from_rests() {
    for overwritten in [0, 3] {
        let storage = make(None);
        let pool = open(&storage);
        pool.engine().collector.hush();
        let (db, file) = with_file(&pool);
        (0..1000).for_each(|piece| write(&db, file, piece, 0));
        pool.checkpoint().unwrap();
        let some = (0..1000).filter(|piece| overwritten > 0 && piece % overwritten == 0);
        some.for_each(|piece| write(&db, file, piece, 1));
        pool.checkpoint().unwrap();
        let still = bytes(&storage);
        assert_eq!(left_alone(&pool), 0);
        assert!(bytes(&storage) == still, "{overwritten}");
        assert_eq!(pool.statistics().segments_collected, 0);
    }
}

/// No four segments of a pool that takes too much have a whole segment's room between them, but more than
/// four have.
#[test]
fn a_pool_that_takes_too_much_gathers_from_segments_that_are_nearly_full() {
    for overwritten in [5, 7] {
        let storage = make(None);
        let pool = open(&storage);
        pool.engine().collector.hush();
        let (db, file) = with_file(&pool);
        let round = |piece: u64| u64::from(piece.is_multiple_of(overwritten));
        (0..3000).for_each(|piece| write(&db, file, piece, 0));
        pool.checkpoint().unwrap();
        (0..3000).filter(|piece| round(*piece) > 0).for_each(|piece| write(&db, file, piece, 1));
        pool.checkpoint().unwrap();
        let before = pool.statistics();
        assert!(left_alone_to(&pool, Keep::Reserve) > 0, "{overwritten}: {before:?}");
        let after = pool.statistics();
        assert!(after.segments_free >= before.segments_free + 2, "{overwritten}: {before:?} {after:?}");
        // What it wrote for it is bounded: each segment that lived there once.
        assert!(after.segments_collected <= before.segments - before.segments_free, "{after:?}");
        (0..3000).for_each(|piece| assert!(read(&pool, "db", file, piece) == content(piece, round(piece))));
        assert_sound(&pool);
    }
}

/// No caller asks for it: the thread that collects notices that no writer is active.
#[test]
fn the_background_gathers_when_no_thread_writes() {
    let storage = make(None);
    let pool = open_as(&storage, true, 1 << 20);
    pool.engine().collector.hush();
    let (_, file) = thinned(&pool, 1000);
    let deadline = Instant::now() + Duration::from_secs(120);
    while is_thin(&pool) {
        assert!(Instant::now() < deadline, "it did not come about: {:?}", pool.statistics());
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(pool.statistics().segments_collected >= 6);
    let said = pool.engine().collector.said();
    assert!(!said.is_empty() && said.iter().all(|what| what.ends_with(": nothing else to do")), "{said:?}");
    assert_thinned(&pool, "db", file, 1000);
    assert_sound(&pool);
    pool.close().unwrap();
}
