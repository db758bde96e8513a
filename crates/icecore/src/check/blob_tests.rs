//! Headers of ledger blobs that are whole, and another's: a misdirected write. The CRC in the pointer to a
//! blob matches all the same.

use super::tests::{line, open};
use super::*;
use crate::CopyMode;
use crate::copies::copy_name;
use crate::format::ledger::Blob;
use crate::format::segment::file_name;
use crate::format::superblock::LedgerPointer;
use crate::options::InitOptions;
use crate::storage::Kind;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, SegmentId, Slot};

const SNAPSHOTS: usize = 5;

fn names() -> Vec<String> {
    (0..SNAPSHOTS).map(|number| format!("db@{number}")).collect()
}

/// A pool of which each hold on a snapshot is a checkpoint of its own.
fn made(copies: CopyMode) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions { copies, ..InitOptions::small() }).unwrap();
    let pool = open(&storage);
    pool.create_dataset("db", false, &[]).unwrap();
    for name in names() {
        pool.snapshot(&[name], false, &[]).unwrap();
    }
    pool.checkpoint().unwrap();
    for name in names() {
        pool.hold("keep", &name).unwrap();
        pool.checkpoint().unwrap();
    }
    pool.close().unwrap();
    storage
}

fn block(storage: &MemoryStorage, segment: SegmentId, slot: Slot) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    let file = storage.open(&file_name(segment), false).unwrap();
    file.read_at(&mut block, u64::from(slot.0) * BLOCK_BYTES as u64).unwrap();
    block
}

fn bytes_of(storage: &MemoryStorage, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; 2 << 20];
    storage.open(name, false).unwrap().read_at(&mut bytes, 0).unwrap();
    bytes
}

/// What may lie in the place of the header of each blob, and where that is.
fn misdirected(storage: &MemoryStorage) -> Vec<(LedgerPointer, Vec<u8>)> {
    let line: Vec<(LedgerPointer, Blob)> = line(storage);
    assert!(line.len() > 3);
    let header = |pointer: &LedgerPointer| block(storage, pointer.segment, pointer.slot);
    let mut all = Vec::new();
    for pair in line.windows(2) {
        let (before, after) = (pair[0].0, pair[1].0);
        all.push((after, header(&before)));
        all.push((before, header(&after)));
        all.push((after, block(storage, after.segment, Slot(0))));
    }
    all
}

#[test]
fn a_blob_with_the_header_of_another_is_taken_from_its_copy() {
    let storage = made(CopyMode::Metadata);
    for (pointer, wrong) in misdirected(&storage) {
        let corrupt = storage.copy();
        let file = corrupt.open(&file_name(pointer.segment), true).unwrap();
        file.write_at(&[(Kind::Data, &wrong)], u64::from(pointer.slot.0) * BLOCK_BYTES as u64).unwrap();
        let pool = open(&corrupt);
        for name in names() {
            assert_eq!(pool.holds(&name).unwrap().len(), 1, "{name}, {pointer:?}");
        }
        let report = pool.scrub(&mut |_| true).unwrap();
        assert_eq!(report.damaged, 0, "{report:?}");
        let copy = copy_name(pointer.segment);
        let at = pointer.slot.0 as usize * BLOCK_BYTES;
        let is_there =
            |storage: &MemoryStorage, name: &str| bytes_of(storage, name)[at..at + BLOCK_BYTES].to_vec();
        assert!(is_there(&corrupt, &copy) == is_there(&storage, &copy), "the copy was whole: {pointer:?}");
        assert!(is_there(&corrupt, &file_name(pointer.segment)) == is_there(&storage, &copy), "{pointer:?}");
    }
}

#[test]
fn a_blob_with_the_header_of_another_is_damaged_where_it_has_no_copy() {
    let storage = made(CopyMode::None);
    for (pointer, wrong) in misdirected(&storage) {
        let corrupt = storage.copy();
        let file = corrupt.open(&file_name(pointer.segment), true).unwrap();
        file.write_at(&[(Kind::Data, &wrong)], u64::from(pointer.slot.0) * BLOCK_BYTES as u64).unwrap();
        let opened = Pool::open(corrupt, &crate::OpenOptions { read_only: true, ..Default::default() });
        let Err(error) = opened else { panic!("{pointer:?} is believed") };
        assert!(error.to_string().contains(&file_name(pointer.segment)), "{error}");
    }
}
