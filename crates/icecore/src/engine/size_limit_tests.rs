//! The size limit of a pool that is open: changed, and kept.

use crate::format::copies::CopyMode;
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::Storage;
use crate::storage::memory::{Flushes, MemoryStorage};
use crate::units::{BLOCK_BYTES, ByteLength, InodeNumber};
use crate::{Creation, Dataset, Error};
use std::sync::Arc;

const SEGMENT: u64 = 2 << 20;
/// Files that a pool may have at first.
const FILES: u64 = 20;
const PIECE: u64 = 100_000;

fn options(background: bool) -> OpenOptions {
    OpenOptions { background, control_socket: false, ..OpenOptions::default() }
}

fn limit(files: u64) -> Option<ByteLength> {
    Some(ByteLength(files * SEGMENT))
}

fn make(copies: CopyMode, background: bool) -> (Arc<MemoryStorage>, Pool) {
    let storage = Arc::new(MemoryStorage::default());
    let init = InitOptions { copies, size_limit: limit(FILES), ..InitOptions::small() };
    Pool::init(storage.clone(), &init).unwrap();
    let pool = Pool::open(storage.clone(), &options(background)).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    (storage, pool)
}

/// A file that takes all the room there is: it, and how many pieces it has.
fn fill(pool: &Pool) -> (Dataset, InodeNumber, u64) {
    fill_from(pool, 0)
}

/// The same of a file that has so many pieces.
fn fill_from(pool: &Pool, pieces: u64) -> (Dataset, InodeNumber, u64) {
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"f", &Creation::file()).unwrap();
    for piece in pieces.. {
        match db.write(file, piece * PIECE, &vec![piece as u8; PIECE as usize]) {
            Ok(()) => {}
            Err(Error::NoSpace { detail }) => {
                assert!(detail.contains("icecore resize"), "{detail}");
                return (db, file, piece);
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!("every pool is full some time")
}

/// Bytes that the files of a pool take up.
fn taken(storage: &MemoryStorage) -> u64 {
    let files = storage.list().unwrap();
    files.iter().map(|(_, length)| *length).filter(|length| *length >= SEGMENT).sum()
}

/// Takes all the room that is not reserved for others.
fn fill_beside(pool: &Pool) {
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"f", &Creation::file()).unwrap();
    let mut at = 0;
    for length in [PIECE, BLOCK_BYTES as u64] {
        loop {
            match db.write(file, at, &vec![1; length as usize]) {
                Ok(()) => at += length,
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

fn read_back(db: &Dataset, file: InodeNumber, pieces: u64) {
    let view = db.view().unwrap();
    for piece in 0..pieces {
        let mut bytes = vec![0; PIECE as usize];
        assert_eq!(view.read(file, piece * PIECE, &mut bytes).unwrap(), PIECE as usize);
        assert!(bytes.iter().all(|byte| *byte == piece as u8), "piece {piece}");
    }
}

#[test]
fn a_full_pool_goes_on_with_a_higher_limit_and_keeps_it() {
    for copies in [CopyMode::None, CopyMode::Metadata, CopyMode::All] {
        for background in [false, true] {
            let (storage, pool) = make(copies, background);
            let (db, file, pieces) = fill(&pool);
            assert_eq!(pool.statistics().size_limit_bytes, FILES * SEGMENT);
            pool.set_size_limit(limit(2 * FILES)).unwrap();
            let statistics = pool.statistics();
            assert_eq!(statistics.size_limit_bytes, 2 * FILES * SEGMENT);
            assert!(statistics.available_bytes > 0, "{statistics:?}");
            drop(db);
            let (db, file_again, more) = fill_from(&pool, pieces);
            assert_eq!(file_again, file);
            assert!(more >= pieces + 8 * SEGMENT / PIECE, "{copies:?}: {pieces}, then {more}");
            read_back(&db, file, more);
            drop(db);
            assert!(taken(&storage) <= 2 * FILES * SEGMENT, "{copies:?}: {}", taken(&storage));
            pool.close().unwrap();
            let pool = Pool::open(storage.clone(), &options(background)).unwrap();
            assert_eq!(pool.statistics().size_limit_bytes, 2 * FILES * SEGMENT);
            let (db, _, last) = fill_from(&pool, more);
            read_back(&db, file, last);
            drop(db);
            assert!(taken(&storage) <= 2 * FILES * SEGMENT, "{copies:?}: {}", taken(&storage));
            pool.verify().unwrap();
            pool.close().unwrap();
        }
    }
}

#[test]
fn a_limit_is_taken_away() {
    let (storage, pool) = make(CopyMode::Metadata, false);
    let (db, file, pieces) = fill(&pool);
    pool.set_size_limit(None).unwrap();
    for piece in pieces..3 * pieces {
        db.write(file, piece * PIECE, &vec![piece as u8; PIECE as usize]).unwrap();
    }
    // Also for who comes after a crash.
    let crashed = Pool::open(storage.copy(), &options(false)).unwrap();
    assert_eq!(crashed.statistics().size_limit_bytes, 0);
    assert!(taken(&storage) > FILES * SEGMENT);
}

/// The least limit that a pool says it can have, and how it says that.
fn least_limit(pool: &Pool) -> (u64, String) {
    let refused = pool.set_size_limit(limit(1)).unwrap_err().to_string();
    let least = refused.split("it must be ").nth(1).and_then(|rest| rest.split('M').next());
    let least = least.and_then(|number| number.parse::<u64>().ok()).expect("the least limit is said");
    (least << 20, refused)
}

/// The least limit that the refusal names is taken, and the pool is as one that is full at it.
#[test]
fn a_limit_below_what_the_pool_has_is_refused_with_the_least() {
    for copies in [CopyMode::None, CopyMode::Metadata, CopyMode::All] {
        let (storage, pool) = make(copies, false);
        pool.set_size_limit(None).unwrap();
        let db = pool.dataset("db").unwrap();
        let file = db.open_or_create(b"f", &Creation::file()).unwrap();
        let pieces = 12 * SEGMENT / PIECE;
        for piece in 0..pieces {
            db.write(file, piece * PIECE, &vec![piece as u8; PIECE as usize]).unwrap();
        }
        let refused = pool.set_size_limit(Some(ByteLength(0))).unwrap_err();
        assert!(matches!(refused, Error::Invalid(_)), "{refused}");
        let (least, refused) = least_limit(&pool);
        assert!(least >= taken(&storage), "{refused}");
        assert!(pool.set_size_limit(Some(ByteLength(least - 1))).is_err());
        assert_eq!(pool.statistics().size_limit_bytes, 0, "nothing has changed");
        pool.set_size_limit(Some(ByteLength(least))).unwrap();
        drop(db);
        let more = fill_from(&pool, pieces).2;
        assert!(taken(&storage) <= least, "{copies:?}: {} of {least}", taken(&storage));
        // What works on every full pool.
        let db = pool.dataset("db").unwrap();
        read_back(&db, file, more);
        pool.checkpoint().unwrap();
        db.truncate(file, 0).unwrap();
        drop(db);
        pool.close().unwrap();
        let pool = Pool::open(storage, &options(false)).unwrap();
        assert_eq!(pool.statistics().size_limit_bytes, least);
        pool.verify().unwrap();
    }
}

/// What was promised to a dataset is kept in spite of a lower limit, however others fill the pool.
#[test]
fn a_limit_below_what_is_reserved_is_refused_with_the_least_that_keeps_the_promise() {
    let reserved = 6 * SEGMENT;
    for name in ["reservation", "refreservation"] {
        for copies in [CopyMode::None, CopyMode::Metadata, CopyMode::All] {
            let (_storage, pool) = make(copies, false);
            pool.set_size_limit(None).unwrap();
            pool.create_dataset("owner", false, &[]).unwrap();
            let (without, refused) = least_limit(&pool);
            assert!(!refused.contains("reserved"), "{refused}");
            pool.set_property("owner", name, &reserved.to_string()).unwrap();
            let (least, refused) = least_limit(&pool);
            assert!(refused.contains("reserved for datasets (`icecore get reservation"), "{refused}");
            let factor = if copies == CopyMode::All { 2 } else { 1 };
            assert!(least >= without + factor * reserved, "{copies:?}: {least}, and without {without}");
            assert!(pool.set_size_limit(Some(ByteLength(without))).is_err());
            assert!(pool.set_size_limit(Some(ByteLength(least - 1))).is_err());
            assert_eq!(pool.statistics().size_limit_bytes, 0, "nothing has changed");
            pool.set_size_limit(Some(ByteLength(least))).unwrap();
            // Nothing more can be promised now.
            let more = (reserved + SEGMENT).to_string();
            let refused = pool.set_property("owner", name, &more).unwrap_err();
            assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
            fill_beside(&pool);
            let owner = pool.dataset("owner").unwrap();
            let file = owner.open_or_create(b"f", &Creation::file()).unwrap();
            for block in 0..(reserved - SEGMENT / 4) / BLOCK_BYTES as u64 {
                let written = owner.write(file, block * BLOCK_BYTES as u64, &[7; BLOCK_BYTES]);
                written.unwrap_or_else(|error| panic!("{copies:?}, block {block}: {error}"));
            }
            pool.verify().unwrap();
        }
    }
}

/// Who has used up what was reserved for it needs no room for it any more.
#[test]
fn what_was_reserved_and_is_used_counts_once() {
    let (_storage, pool) = make(CopyMode::None, false);
    pool.set_size_limit(None).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"f", &Creation::file()).unwrap();
    for piece in 0..4 * SEGMENT / PIECE {
        db.write(file, piece * PIECE, &vec![1; PIECE as usize]).unwrap();
    }
    let (without, _) = least_limit(&pool);
    pool.set_property("db", "reservation", &SEGMENT.to_string()).unwrap();
    let (least, refused) = least_limit(&pool);
    assert!(least == without && !refused.contains("reserved"), "{refused}");
}

/// Also by little, where what the pool needs is more than that.
#[test]
fn whatever_is_more_than_before_is_taken() {
    let (_storage, pool) = make(CopyMode::None, false);
    let mut pieces = fill(&pool).2;
    for files in FILES + 1..FILES + 4 {
        pool.set_size_limit(limit(files)).unwrap();
        pieces = fill_from(&pool, pieces).2;
    }
    // The same again, and a refusal, change nothing.
    pool.set_size_limit(limit(FILES + 3)).unwrap();
    pool.set_size_limit(limit(FILES)).unwrap_err();
    assert_eq!(pool.statistics().size_limit_bytes, (FILES + 3) * SEGMENT);
    pool.verify().unwrap();
}

#[test]
fn a_limit_that_cannot_be_written_does_not_count() {
    let (storage, pool) = make(CopyMode::None, false);
    fill(&pool);
    pool.sync().unwrap();
    storage.set_flushes(Flushes::Refused);
    pool.set_size_limit(limit(2 * FILES)).unwrap_err();
    assert_eq!(pool.statistics().size_limit_bytes, FILES * SEGMENT);
    let refused = pool.set_size_limit(None).unwrap_err();
    assert!(matches!(refused, Error::ReadOnlyAfterFailure { .. }), "{refused}");
    let reader = Pool::open(storage.copy(), &options(false)).unwrap();
    let found = reader.statistics().size_limit_bytes;
    // What was written and not flushed may be there.
    assert!([FILES, 2 * FILES].contains(&(found / SEGMENT)), "{found}");
    reader.verify().unwrap();
}

#[test]
fn who_only_reads_changes_nothing() {
    let (storage, pool) = make(CopyMode::None, false);
    pool.close().unwrap();
    let reader = Pool::open(storage, &OpenOptions { read_only: true, ..options(false) }).unwrap();
    assert!(matches!(reader.set_size_limit(None), Err(Error::ReadOnly)));
}
