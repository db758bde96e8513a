//! A reader whose segment is emptied and used for something else while it reads.

use crate::format::segment::file_name;
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::Storage;
use crate::storage::memory::{MemoryStorage, When};
use crate::units::{BLOCK_BYTES, InodeNumber, LogAddress, Run, SegmentId, Slot, Stream};
use crate::{Creation, Dataset};
use parking_lot::Mutex;
use std::sync::Arc;

/// A pool with so many files that their names fill more than a segment of nodes, and some data.
fn made() -> (Arc<MemoryStorage>, Arc<Pool>, Dataset) {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions { segment_bytes: 2 << 20, ..InitOptions::small() }).unwrap();
    let options = OpenOptions {
        background: false,
        block_cache_bytes: 0,
        node_cache_bytes: 0,
        control_socket: false,
        ..OpenOptions::default()
    };
    let pool = Pool::open(storage.clone(), &options).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    for piece in 0..40_u64 {
        db.write(file, piece << 16, &[piece as u8 + 1; 1 << 16]).unwrap();
    }
    for serial in 0..6000 {
        db.open_or_create(format!("{serial:0240}").as_bytes(), &Creation::file()).unwrap();
    }
    pool.checkpoint().unwrap();
    // Segments with holes are worth being emptied.
    for piece in (1..40_u64).filter(|piece| piece % 8 != 0) {
        db.write(file, piece << 16, &[0xff; 1 << 16]).unwrap();
    }
    for serial in (0..6000).filter(|serial| serial % 1000 > 200) {
        db.unlink(InodeNumber::ROOT, format!("{serial:0240}").as_bytes()).unwrap();
    }
    drop(db);
    pool.close().unwrap();
    // Nothing of it is in memory.
    let pool = Pool::open(storage.clone(), &options).unwrap();
    let db = pool.dataset("db").unwrap();
    (storage, Arc::new(pool), db)
}

/// The first live block of a stream, and where it lies.
fn first(pool: &Pool, stream: Stream) -> (LogAddress, SegmentId, Slot) {
    let state = pool.engine().state();
    let address = state.history.live_runs(stream).next().unwrap().unwrap().start;
    let (segment, slot, _) = pool.engine().blocks.locate(stream, address).unwrap();
    (address, segment, slot)
}

/// A block as it is on disk.
fn block(storage: &MemoryStorage, segment: SegmentId, offset: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    storage.open(&file_name(segment), false).unwrap().read_at(&mut block, offset).unwrap();
    block
}

/// Empties segments, and writes until a block of one of them has changed.
fn use_again(storage: &MemoryStorage, pool: &Pool, db: &Dataset, segment: SegmentId, offset: u64) {
    let before = block(storage, segment, offset);
    pool.collect(usize::MAX).unwrap();
    // The log goes on in what was written before, if there is such a segment.
    pool.engine().state().segments.mark_written(segment);
    let other = db.open_or_create(b"b", &Creation::file()).unwrap();
    for round in 0.. {
        if block(storage, segment, offset) != before {
            return;
        }
        assert!(round < 2000, "{} is not used again", file_name(segment));
        db.write(other, 0, &[round as u8; 1 << 16]).unwrap();
        if round % 64 == 63 {
            pool.checkpoint().unwrap();
        }
    }
}

/// What a reader found was compared, and noted as damage, before it was known whether the blocks lay there
/// still.
#[test]
fn what_moves_while_it_is_read_is_no_damage() {
    let cases = [(Stream::Data, When::After), (Stream::Data, When::Before), (Stream::Node, When::Before)];
    for (stream, moment) in cases {
        let (storage, pool, db) = made();
        let (address, segment, slot) = first(&pool, stream);
        let engine = pool.engine();
        let offset = engine.geometry.offset(slot);
        let (disk, others) = (Arc::clone(&storage), Arc::clone(&pool));
        let at = if moment == When::After { 0 } else { offset };
        let deed = Arc::new(Mutex::new(Some(move || use_again(&disk, &others, &db, segment, at))));
        let awaited = Arc::clone(&deed);
        storage.watch_reads(move |when, name, place| {
            if (when, place) == (moment, offset) && name == file_name(segment) {
                let deed = awaited.lock().take();
                deed.into_iter().for_each(|deed| deed());
            }
        });
        match stream {
            Stream::Node => drop(engine.nodes.read(address).unwrap()),
            stream => {
                let run = Run { stream, start: address, length: crate::units::BlockCount(1) };
                let mut block = [0; BLOCK_BYTES];
                engine.blocks.read_run(run, &mut block, crate::blocks::Access::default()).unwrap();
            }
        }
        storage.unwatch();
        assert!(deed.lock().is_none(), "{stream:?}: nothing happened while it was read");
        assert_ne!(first(&pool, stream), (address, segment, slot));
        let incidents = engine.blocks.files().incidents();
        assert_eq!((incidents.last(), incidents.tally().damage), (Vec::new(), 0), "{stream:?}");
        pool.verify().unwrap();
    }
}
