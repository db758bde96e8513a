//! Operations whose tree nodes are not in memory.

use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::{MemoryStorage, When};
use crate::units::InodeNumber;
use crate::{Creation, Dataset, RenameHow};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ROOT: InodeNumber = InodeNumber::ROOT;
const FILES: u64 = 3000;

fn name(serial: u64) -> Vec<u8> {
    format!("{serial:0200}").into_bytes()
}

type Change = fn(&Dataset);

/// A pool whose tree has many nodes, and a file that is in many pieces.
fn made(storage: &Arc<MemoryStorage>) -> (Pool, Dataset) {
    Pool::init(storage.clone(), &InitOptions { segment_bytes: 2 << 20, ..InitOptions::small() }).unwrap();
    let options = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
    let pool = Pool::open(storage.clone(), &options).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    for serial in 0..FILES {
        db.create(ROOT, &name(serial), &Creation::file()).unwrap();
    }
    let file = db.view().unwrap().lookup(ROOT, &name(0)).unwrap().unwrap().inode;
    for block in 0..FILES {
        db.write(file, block << 13, &[1; 4096]).unwrap();
    }
    drop(db);
    pool.close().unwrap();
    let pool = Pool::open(storage.clone(), &options).unwrap();
    let db = pool.dataset("db").unwrap();
    (pool, db)
}

/// What an operation lacks is read while others may use the state.
#[test]
fn nodes_are_read_without_the_state_lock() {
    let changes: [(&str, Change); 6] = [
        ("create", |db| {
            db.create(ROOT, b"new", &Creation::file()).unwrap();
        }),
        ("unlink", |db| {
            db.unlink(ROOT, &name(FILES / 2)).unwrap();
        }),
        ("rename", |db| {
            db.rename((ROOT, &name(7)), (ROOT, &name(FILES - 9)), RenameHow::Replace).unwrap();
        }),
        ("link", |db| {
            db.link(InodeNumber(FILES / 3), ROOT, b"another").unwrap();
        }),
        ("write", |db| db.write(InodeNumber(2), FILES << 12, &[2; 8192]).unwrap()),
        ("write of a part", |db| db.write(InodeNumber(2), (FILES << 12) + 5, &[2; 100]).unwrap()),
    ];
    for (what, change) in changes {
        let storage = Arc::new(MemoryStorage::default());
        let (pool, db) = made(&storage);
        let (reads, locked) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (watched, counts) = (pool.clone(), (Arc::clone(&reads), Arc::clone(&locked)));
        storage.watch_reads(move |when, _, _| {
            let is_locked = watched.engine().state.try_lock().is_none();
            counts.0.fetch_add(u64::from(when == When::Before), Ordering::Relaxed);
            counts.1.fetch_add(u64::from(is_locked), Ordering::Relaxed);
        });
        change(&db);
        storage.unwatch();
        assert!(reads.load(Ordering::Relaxed) > 0, "{what}: everything was in memory");
        assert_eq!(locked.load(Ordering::Relaxed), 0, "{what}: reads under the lock");
        pool.verify().unwrap();
    }
}

/// With a cache that keeps nothing an operation reads under the lock in the end.
#[test]
fn a_cache_that_is_too_small_does_not_keep_an_operation_from_its_end() {
    let storage = Arc::new(MemoryStorage::default());
    drop(made(&storage));
    let options = OpenOptions {
        background: false,
        control_socket: false,
        node_cache_bytes: 0,
        ..OpenOptions::default()
    };
    let pool = Pool::open(storage, &options).unwrap();
    let db = pool.dataset("db").unwrap();
    for serial in (1..FILES).step_by(100) {
        db.unlink(ROOT, &name(serial)).unwrap();
    }
    pool.verify().unwrap();
}
