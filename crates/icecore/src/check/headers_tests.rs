//! Headers of records that are whole and not in their place: what they say is not believed where something
//! else says what is there.

use super::tests::{open, with_file};
use super::*;
use crate::format::segment::{SegmentKind, file_name};
use crate::storage::Kind;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, InodeNumber, Run, SegmentId, Slot};

/// Blocks of the file: more than a segment has.
const BLOCKS: u64 = 700;

/// A pool with a file of which each block is another, the log of it in a finished segment, and the slots of
/// the headers there.
fn made(alike: bool) -> (Arc<MemoryStorage>, InodeNumber, SegmentId, Vec<u32>) {
    let (storage, pool, db, file) = with_file();
    for block in 0..BLOCKS {
        let mut bytes = vec![7; BLOCK_BYTES * (1 + block as usize % 2)];
        if !alike {
            bytes[..8].copy_from_slice(&block.to_le_bytes());
        }
        db.write(file, 2 * block * BLOCK_BYTES as u64, &bytes).unwrap();
        if block % 5 == 0 {
            // A record of its own, without blocks.
            db.sync().unwrap();
            db.set_xattr(file, b"user.round", &block.to_le_bytes(), crate::XattrHow::Set).unwrap();
            db.sync().unwrap();
        }
    }
    drop(db);
    pool.close().unwrap();
    let pool = open(&storage);
    let engine = pool.engine();
    let segment = {
        let state = engine.state();
        let is_finished = |segment: &SegmentId| {
            state.segments.kind(*segment) == Some(SegmentKind::Log)
                && *segment != state.tail.position().segment
                && state.segments.live(*segment) > 0
        };
        state.segments.all().into_iter().find(is_finished).unwrap()
    };
    let mut slots = Vec::new();
    let mut visit = |slot: Slot, _: &_| slots.push(slot.0);
    engine.blocks.sums().survey(segment, Slot(u32::MAX), engine.blocks.files(), &mut visit).unwrap();
    drop(pool);
    (storage, file, segment, slots)
}

fn swap(storage: &MemoryStorage, segment: SegmentId, slots: [u32; 2]) {
    let file = storage.open(&file_name(segment), true).unwrap();
    let at = slots.map(|slot| u64::from(slot) * BLOCK_BYTES as u64);
    let [mut one, mut other] = [[0; BLOCK_BYTES]; 2];
    file.read_at(&mut one, at[0]).unwrap();
    file.read_at(&mut other, at[1]).unwrap();
    file.write_at(&[(Kind::Data, &other)], at[0]).unwrap();
    file.write_at(&[(Kind::Data, &one)], at[1]).unwrap();
}

fn stretches(pool: &Pool, segment: SegmentId) -> Vec<(u32, Run)> {
    let blocks = &pool.engine().blocks;
    blocks.sums().stretches(segment, Slot(u32::MAX), blocks.files()).unwrap()
}

fn content(pool: &Pool, file: InodeNumber) -> Vec<u8> {
    let mut bytes = vec![0; 2 * BLOCKS as usize * BLOCK_BYTES];
    pool.view("db").unwrap().read(file, 0, &mut bytes).unwrap();
    bytes
}

/// The table says what is where, and nothing is lost. A map that had to be made again would lack what those
/// headers have, and nothing else, and have nothing in the wrong place.
#[test]
fn headers_in_each_others_places_cost_nothing_and_are_not_believed() {
    for alike in [false, true] {
        let (storage, file, segment, slots) = made(alike);
        let pool = open(&storage);
        let (expected, before) = (content(&pool, file), stretches(&pool, segment));
        drop(pool);
        assert!(slots.len() > 60, "{slots:?}");
        for (one, other) in [(1, 30), (2, 41), (7, 8), (7, 9), (20, slots.len() - 2), (0, 35)] {
            if alike && one == 0 {
                // Nothing but its place in the chain distinguishes one from the other.
                continue;
            }
            let corrupt = storage.copy();
            swap(&corrupt, segment, [slots[one], slots[other]]);
            let said = format!("{one} and {other}, alike: {alike}");
            let report = check(corrupt.clone(), &CheckOptions::default(), &mut |_| {}).unwrap();
            assert!(report.is_sound(), "{said}: {report:?}");
            let report = check(corrupt.clone(), &CheckOptions { data: true }, &mut |_| {}).unwrap();
            assert!(report.is_sound() && report.count > 0, "{said}: {report:?}");
            let pool = open(&corrupt);
            assert!(content(&pool, file) == expected, "{said}");
            let after = stretches(&pool, segment);
            assert!(after.iter().all(|stretch| before.contains(stretch)), "{said}: one is in a wrong place");
            assert!(after.len() + 3 >= before.len(), "{said}: {} of {}", after.len(), before.len());
        }
    }
}
