//! Ledgers of any length.

use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::units::InodeNumber;
use crate::{Creation, Dataset};
use std::sync::Arc;

const SNAPSHOTS: usize = 700;

fn open(storage: &Arc<MemoryStorage>) -> Pool {
    let options = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
    Pool::open(storage.clone(), &options).unwrap()
}

/// Of 4000 bytes each.
fn note(number: usize) -> String {
    format!("{number:08}").repeat(500)
}

fn assert_there(pool: &Pool, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        let properties = pool.properties(&format!("db@{number}")).unwrap();
        let found = properties.iter().find(|property| property.name == "user:note");
        assert_eq!(found.unwrap().value, note(number));
    }
    pool.verify().unwrap();
}

fn write(db: &Dataset, file: InodeNumber, number: usize) {
    db.write(file, (number as u64 % 50) << 16, &[number as u8; 9000]).unwrap();
}

/// Changes, and the picture of everything, of more bytes than a segment has; and what they took is given
/// back.
#[test]
fn a_ledger_may_be_longer_than_a_segment() {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = open(&storage);
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    for number in 0..SNAPSHOTS {
        write(&db, file, number);
        let properties = [("user:note".to_owned(), note(number))];
        pool.snapshot(&[format!("db@{number}")], false, &properties).unwrap();
    }
    let written = pool.statistics().checkpoint_bytes;
    pool.checkpoint().unwrap();
    assert!(pool.statistics().checkpoint_bytes - written > 2 << 20);
    assert_there(&open(&storage.copy()), 0..SNAPSHOTS);
    // Those changes are longer than what they build on: with the next a picture of everything is due.
    write(&db, file, 1);
    pool.checkpoint().unwrap();
    let line = |pool: &Pool| {
        let line = pool.engine().checkpoint.lock();
        (line.full, line.blobs.len(), line.blobs.iter().map(|blob| u64::from(blob.blocks)).sum::<u64>())
    };
    let (full, blobs, blocks) = line(&pool);
    assert!(full == blobs && full > 20 && blocks > 512, "{full} of {blobs} blobs, {blocks} blocks");
    let crashed = open(&storage.copy());
    assert_there(&crashed, 0..SNAPSHOTS);
    assert_eq!(line(&crashed).0, full);
    for number in 0..SNAPSHOTS - 10 {
        pool.destroy(&crate::names::parse_target(&format!("db@{number}"), true).unwrap()).unwrap();
    }
    for number in 0..140 {
        write(&db, file, number);
        pool.checkpoint().unwrap();
    }
    let (full, _, blocks) = line(&pool);
    assert!(full < 6 && blocks < 400, "{full} parts, {blocks} blocks");
    let left = SNAPSHOTS - 10..SNAPSHOTS;
    assert_there(&pool, left.clone());
    assert_there(&open(&storage.copy()), left.clone());
    pool.close().unwrap();
    assert_there(&open(&storage), left);
}
