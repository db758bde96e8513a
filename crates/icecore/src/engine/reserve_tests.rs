//! What is kept back stays kept back: nothing but what it is kept for takes of it, also of the part that is
//! room in segments which are being filled.

use super::Purpose;
use super::space::{Filling, for_deleting, with_those_for_deleting};
use crate::format::segment::SegmentKind;
use crate::names::parse_target;
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, ByteLength, InodeNumber};
use crate::{Creation, Dataset, Error};
use std::sync::Arc;

const SEGMENT: u64 = 2 << 20;
/// Blocks of a group that is too large to be kept in memory.
const GROUP_BLOCKS: u64 = 300;

/// A pool without threads, with a file in dataset `db`, and a segment of runs that has room for more merged
/// blocks.
fn begun() -> (Pool, Dataset, InodeNumber) {
    let storage = Arc::new(MemoryStorage::default());
    let size_limit = Some(ByteLength(20 * SEGMENT));
    let form = InitOptions { segment_bytes: SEGMENT, size_limit, ..InitOptions::small() };
    Pool::init(storage.clone(), &form).unwrap();
    let options = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
    let pool = Pool::open(storage, &options).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    db.write(file, 0, &vec![1; 64 * BLOCK_BYTES]).unwrap();
    db.write(file, 100, &[7; 50]).unwrap();
    pool.snapshot(&["db@one".to_owned(), "db@two".to_owned()], false, &[]).unwrap();
    pool.checkpoint().unwrap();
    (pool, db, file)
}

/// Others take what is free, but for so many segments, and no more can be made.
pub(super) fn leave_free(pool: &Pool, segments: usize) {
    let engine = pool.engine();
    let mut state = engine.state();
    while engine.make_segment(&mut state).is_ok() {}
    while state.segments.free() > segments {
        state.segments.take(SegmentKind::Run).unwrap();
    }
}

/// Blocks that the segment has room for that merged blocks go to.
fn room_for_merged(pool: &Pool) -> u64 {
    let engine = pool.engine();
    let cursor = engine.state().run_cursor;
    engine.room_behind(SegmentKind::Run, cursor)
}

/// Writes a group that is large enough for parts of it to be written ahead.
fn write_group(pool: &Pool, db: &Dataset, file: InodeNumber) -> crate::Result<()> {
    let mut group = db.begin().unwrap();
    for block in 0..GROUP_BLOCKS {
        group.write(file, block * BLOCK_BYTES as u64, &[2; BLOCK_BYTES])?;
    }
    pool.commit(vec![group]).map(drop)
}

/// What a group writes ahead goes where merged blocks go, and that room is part of what is kept back. One
/// group after the other was refused at its commit, when it had used up that room. Then nothing that frees
/// was logged any more.
#[test]
fn groups_that_are_refused_leave_the_room_that_is_kept_back() {
    for free in [0, 1] {
        let (pool, db, file) = begun();
        leave_free(&pool, free);
        let room = room_for_merged(&pool);
        for _ in 0..10 {
            let refused = write_group(&pool, &db, file);
            assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
        }
        assert_eq!(room_for_merged(&pool), room, "with {free} free");
        pool.rollback("db@one", true).unwrap();
        for name in ["db@one", "db@two"] {
            pool.destroy(&parse_target(name, true).unwrap()).unwrap();
        }
        pool.verify().unwrap();
    }
}

/// The same of groups that are given up: free segments make up for what they took of that room.
#[test]
fn groups_that_are_given_up_leave_the_room_that_is_kept_back() {
    for free in 2..6 {
        let (pool, db, file) = begun();
        leave_free(&pool, free);
        let refused = (0..40).find_map(|_| {
            let mut group = db.begin().unwrap();
            (0..GROUP_BLOCKS)
                .find_map(|block| group.write(file, block * BLOCK_BYTES as u64, &[3; BLOCK_BYTES]).err())
        });
        // Where there is more, what was filled by those before is used again.
        assert!(matches!(refused, None | Some(Error::NoSpace { .. })), "with {free} free: {refused:?}");
        let engine = pool.engine();
        let (left, kept) = {
            let state = engine.state();
            (state.segments.free(), engine.reserve(&state, Purpose::Data))
        };
        assert!(left >= kept, "{left} of {free} free, {kept} kept back");
        pool.rollback("db@one", true).unwrap();
        pool.verify().unwrap();
    }
}

/// While collection has one of the segments that are kept back, an operation that adds something goes on in
/// the room that there is. It gets no further, and nothing that it could not have had before.
#[test]
fn what_collection_has_borrowed_does_not_stop_those_who_add() {
    let (pool, db, file) = begun();
    let engine = pool.engine();
    let kept = engine.reserve(&engine.state(), Purpose::Data);
    leave_free(&pool, kept);
    let add = || db.write(file, 0, &[4; BLOCK_BYTES]);
    add().unwrap();
    {
        let mut state = engine.state();
        let taken = engine.allocate(&mut state, Filling::ColdData, 8, false, Purpose::Collecting).unwrap();
        assert!(taken.is_fresh && state.segments.free() < kept);
        // Something is being emptied into it.
        state.collection.vacated_frozen = 1;
    }
    add().unwrap();
    let another = engine.take_segment(&mut engine.state(), SegmentKind::Log, Purpose::Data);
    assert!(matches!(another, Err(Error::NoSpace { .. })));
    // It has been taken for good. One that is refused makes sure of that, by a checkpoint.
    engine.state().collection.gave_back();
    assert!(matches!(add(), Err(Error::NoSpace { .. })));
    pool.rollback("db@one", true).unwrap();
}

/// Only one is lent.
#[test]
fn what_somebody_else_has_taken_stops_those_who_add() {
    let (pool, db, file) = begun();
    let engine = pool.engine();
    let kept = engine.reserve(&engine.state(), Purpose::Data);
    leave_free(&pool, kept - 2);
    {
        let mut state = engine.state();
        (state.collection.has_taken, state.collection.vacated_frozen) = (true, 1);
    }
    assert!(matches!(db.write(file, 0, &[4; BLOCK_BYTES]), Err(Error::NoSpace { .. })));
    pool.rollback("db@one", true).unwrap();
}

/// Raising a size limit never leaves less room beside what is kept for deleting. The least that a limit has
/// to be suffices.
#[test]
fn what_is_kept_for_deleting_grows_no_faster_than_the_pool() {
    let rest = |segments: u64| segments - for_deleting(segments);
    for segments in 0..200 {
        assert!(rest(segments + 1) >= rest(segments), "{segments}");
        let least = with_those_for_deleting(segments, None);
        assert!(rest(least) >= segments, "{segments} in {least}");
    }
    assert_eq!((for_deleting(64), for_deleting(67)), (0, 2));
    assert_eq!(with_those_for_deleting(u64::MAX, None), u64::MAX);
}
