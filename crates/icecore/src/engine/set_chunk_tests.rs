//! Pools whose sets lie in chunks, of which one is in memory.

use super::chunk_tests::flip;
use crate::check::{Area, CheckOptions, RepairOptions, check, repair};
use crate::format::segment::file_name;
use crate::format::superblock::LedgerPointer;
use crate::liveness::{HistoryFault, Pace, PartSource};
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, InodeNumber};
use crate::{Creation, Dataset, DestroyTarget, ListFilter};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Blocks of the file, a quarter of which, scattered, each round overwrites.
const BLOCKS: u64 = 3000;
const ROUNDS: u64 = 4;

fn open_with(storage: &Arc<MemoryStorage>, map_memory_bytes: u64) -> Pool {
    let options = OpenOptions {
        background: false,
        control_socket: false,
        block_cache_bytes: 0,
        node_cache_bytes: 0,
        map_memory_bytes,
        ..OpenOptions::default()
    };
    Pool::open(storage.clone(), &options).unwrap()
}

fn open(storage: &Arc<MemoryStorage>) -> Pool {
    open_with(storage, 0)
}

fn content(block: u64, round: u64) -> Vec<u8> {
    vec![(block as u8).wrapping_mul(7) ^ (round as u8).wrapping_mul(29); BLOCK_BYTES]
}

/// The round that wrote a block last, as a version sees it that was taken after `last`.
fn round_of(block: u64, last: u64) -> u64 {
    let mixed = |round: u64| ((block << 8) + round).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62;
    (0..=last).rev().find(|round| *round == 0 || mixed(*round) == 0).expect("the first wrote all")
}

fn with_file(pool: &Pool, name: &str) -> (Dataset, InodeNumber) {
    let db = pool.dataset(name).unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    (db, file)
}

fn write_round(pool: &Pool, name: &str, round: u64) {
    let (db, file) = with_file(pool, name);
    let mut group = db.begin().unwrap();
    for block in (0..BLOCKS).filter(|block| round_of(*block, round) == round) {
        group.write(file, block * BLOCK_BYTES as u64, &content(block, round)).unwrap();
    }
    pool.commit(vec![group]).unwrap();
}

/// A picture of everything, with all that is large put into chunks.
fn take_picture(pool: &Pool) {
    pool.engine()
        .with_line(|line| {
            line.full = 0;
            Ok(())
        })
        .unwrap();
    write_small(pool);
    pool.checkpoint().unwrap();
    for _ in 0..70 {
        write_small(pool);
        pool.checkpoint().unwrap();
    }
}

fn write_small(pool: &Pool) {
    pool.create_dataset("other", false, &[]).ok();
    let (other, file) = with_file(pool, "other");
    other.write(file, 0, &[9; 5000]).unwrap();
}

/// A file with scattered overwrites between snapshots.
fn made() -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = open(&storage);
    pool.create_dataset("db", false, &[]).unwrap();
    for round in 0..ROUNDS {
        write_round(&pool, "db", round);
        pool.snapshot(&[format!("db@{round}")], false, &[]).unwrap();
        pool.checkpoint().unwrap();
    }
    take_picture(&pool);
    pool.close().unwrap();
    storage
}

fn assert_there(pool: &Pool, name: &str, last: u64) {
    let view = pool.view(name).unwrap();
    let file = view.resolve(b"a").unwrap().unwrap();
    let mut bytes = vec![0; BLOCK_BYTES];
    for block in 0..BLOCKS {
        view.read(file, block * BLOCK_BYTES as u64, &mut bytes).unwrap();
        assert!(bytes == content(block, round_of(block, last)), "{name}, block {block}");
    }
}

fn places(pool: &Pool) -> Vec<LedgerPointer> {
    pool.engine().blocks.sets().read().places().collect()
}

fn used(pool: &Pool) -> Vec<(String, u64)> {
    let filter = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
    pool.list(&filter).unwrap().into_iter().map(|entry| (entry.name, entry.used.0)).collect()
}

fn destroy(pool: &Pool, name: &str) {
    pool.destroy(&DestroyTarget::Snapshot(name.to_owned())).unwrap();
}

#[test]
fn sets_of_which_one_chunk_is_in_memory_are_the_sets() {
    let storage = made();
    let pool = open(&storage);
    assert!(places(&pool).len() > 3, "{} chunks", places(&pool).len());
    let roomy = open_with(&storage.copy(), 1 << 30);
    assert_eq!(used(&pool), used(&roomy));
    pool.verify().unwrap();
    assert!(pool.engine().blocks.sets().read().resident() <= 1);
    (0..ROUNDS).for_each(|round| assert_there(&pool, &format!("db@{round}"), round));
    let report = check(storage.copy(), &CheckOptions { data: true }, &mut |_| {}).unwrap();
    assert_eq!(report.count, 0, "{report:?}");
    destroy(&pool, "db@1");
    pool.verify().unwrap();
    destroy(&pool, "db@3");
    pool.verify().unwrap();
    take_picture(&pool);
    pool.verify().unwrap();
    for round in [0, 2] {
        assert_there(&pool, &format!("db@{round}"), round);
    }
    let crashed = open(&storage.copy());
    crashed.verify().unwrap();
    // All of it goes, and with it the chunks.
    pool.destroy(&DestroyTarget::Dataset { name: "db".to_owned(), recursive: true }).unwrap();
    pool.checkpoint().unwrap();
    pool.verify().unwrap();
    take_picture(&pool);
    pool.verify().unwrap();
    assert!(places(&pool).len() <= 3, "{} chunks", places(&pool).len());
}

#[test]
fn what_depends_on_a_damaged_chunk_is_not_freed_and_a_repair_makes_it_again() {
    let storage = made();
    let all = places(&open(&storage.copy()));
    // Some of them, from the first to the last.
    for place in all.iter().step_by((all.len() / 2).max(1)) {
        let corrupt = storage.copy();
        flip(&corrupt, place);
        let name = file_name(place.segment);
        let report = check(corrupt.clone(), &CheckOptions::default(), &mut |_| {}).unwrap();
        assert!(report.opened && !report.is_sound(), "{report:?}");
        let named = report.problems.iter().find(|problem| problem.what.contains(&name));
        assert_eq!(named.expect("it is named").area, Area::Sets, "{report:?}");
        let scrubbed = open(&corrupt.copy()).scrub(&mut |_| true).unwrap();
        assert!(scrubbed.findings.iter().any(|finding| finding.damage.contains("chunk of sets")));

        // It can be lived with.
        let pool = open(&corrupt.copy());
        (0..ROUNDS).for_each(|round| assert_there(&pool, &format!("db@{round}"), round));
        used(&pool);
        for round in 0..ROUNDS {
            destroy(&pool, &format!("db@{round}"));
        }
        write_round(&pool, "db", 1);
        take_picture(&pool);
        assert!(pool.statistics().failure.is_none());
        pool.close().unwrap();

        let outcome = repair(corrupt.clone(), &RepairOptions::default(), &mut |_| {}).unwrap();
        assert!(outcome.after.is_sound(), "{outcome:?}");
        let pool = open(&corrupt);
        (0..ROUNDS).for_each(|round| assert_there(&pool, &format!("db@{round}"), round));
        pool.verify().unwrap();
    }
}

/// What cannot be freed because a part cannot be read is freed when it can.
#[test]
fn what_cannot_be_freed_waits() {
    let storage = made();
    let pool = open(&storage);
    let all = places(&pool);
    all.iter().for_each(|place| flip(&storage, place));
    (0..ROUNDS).for_each(|round| destroy(&pool, &format!("db@{round}")));
    pool.checkpoint().unwrap();
    let left = |pool: &Pool| pool.engine().state().history.doomed_count();
    assert!(left(&pool) > 0);
    assert_there(&pool, "db", ROUNDS - 1);
    all.iter().for_each(|place| flip(&storage, place));
    pool.checkpoint().unwrap();
    pool.verify().unwrap();
    assert_eq!(left(&pool), 0);
    assert_there(&pool, "db", ROUNDS - 1);
}

/// The state is locked for so much at a time, and in between everything goes on.
#[test]
fn a_large_set_is_freed_a_part_at_a_time() {
    let storage = made();
    let pool = open(&storage);
    let engine = pool.engine();
    let version = {
        let state = engine.state();
        let id = state.catalogue.find("db").unwrap();
        state.catalogue.find_snapshot(id, "0").unwrap()
    };
    {
        let mut state = engine.state();
        state.catalogue.hide_snapshot(version);
        state.history.doom(version).unwrap();
    }
    assert!(free_in_pieces(&pool) > 5);
    pool.verify().unwrap();
}

/// Does what there is to do about destroyed versions, each time as little as can be done. Answers in how many
/// pieces something was freed.
fn free_in_pieces(pool: &Pool) -> u32 {
    let engine = pool.engine();
    let mut held = Vec::new();
    let mut pieces = 0;
    loop {
        let mut state = engine.state();
        let before = state.graveyard.pending_blocks();
        let mut at_once = 0..1;
        let mut enough = || at_once.next().is_none();
        let mut pace = Pace { runs: 32, held: Some(&held), enough: &mut enough };
        match state.free_doomed(&mut pace) {
            Ok(false) => return pieces,
            Ok(true) => {}
            Err(HistoryFault::Absent(row)) => {
                drop(state);
                let part = PartSource::read(&*engine.blocks, &row).unwrap();
                held.push((*row, part));
                assert!(held.len() <= 40, "{} parts at once", held.len());
                continue;
            }
            Err(fault) => panic!("{fault}"),
        }
        let freed = state.graveyard.pending_blocks() - before;
        assert!(freed <= 300, "{freed} blocks at once");
        state.history.check().unwrap();
        pieces += u32::from(freed > 0);
        held.clear();
    }
}

/// What two branches have replaced of a snapshot is found where all of these sets lie on disk.
#[test]
fn what_no_branch_reaches_is_freed_a_part_at_a_time() {
    let storage = made();
    let pool = open(&storage);
    let last = format!("db@{}", ROUNDS - 1);
    (ROUNDS..ROUNDS + 3).for_each(|round| write_round(&pool, "db", round));
    let saved = pool.rollback(&last, false).unwrap().saved_as;
    (ROUNDS..ROUNDS + 4).for_each(|round| write_round(&pool, "db", round));
    take_picture(&pool);
    pool.close().unwrap();

    let pool = open(&storage);
    let target = DestroyTarget::Snapshot(last.clone());
    let planned = pool.plan_destroy(&target).unwrap();
    {
        let mut state = pool.engine().state();
        let id = state.catalogue.find("db").unwrap();
        let version = state.catalogue.find_snapshot(id, &(ROUNDS - 1).to_string()).unwrap();
        state.catalogue.hide_snapshot(version);
        state.history.doom(version).unwrap();
        assert_eq!(state.history.freeing().unwrap().bytes(), planned.frees);
    }
    let live = || pool.engine().state().history.live_in_all().bytes().0;
    let before = live();
    let pieces = free_in_pieces(&pool);
    assert!(pieces > 5, "{pieces} pieces");
    assert_eq!(before - live(), planned.frees.0);
    pool.verify().unwrap();
    assert_there(&pool, "db", ROUNDS + 3);
    assert_there(&pool, &saved, ROUNDS + 2);
    take_picture(&pool);
    pool.verify().unwrap();
    let crashed = open(&storage.copy());
    crashed.verify().unwrap();
    assert_there(&crashed, &saved, ROUNDS + 2);
    let checked = check(storage.copy(), &CheckOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(checked.count, 0, "{checked:?}");
}

/// A head without a dataset goes as a snapshot does, also after a crash, and is in the way of nothing.
#[test]
fn the_head_of_a_destroyed_dataset_goes_a_part_at_a_time() {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = open(&storage);
    pool.create_dataset("db", false, &[]).unwrap();
    (0..ROUNDS).for_each(|round| write_round(&pool, "db", round));
    pool.snapshot(&["db@base".to_owned()], false, &[]).unwrap();
    pool.clone_snapshot("db@base", "clone", false).unwrap();
    // Each beside something of another's.
    for block in 0..400 {
        for name in ["clone", "db"] {
            let (dataset, file) = with_file(&pool, name);
            dataset.write(file, block * BLOCK_BYTES as u64, &content(block, 9)).unwrap();
        }
    }
    take_picture(&pool);
    let before = pool.engine().state().history.versions().len();
    {
        let target = DestroyTarget::Dataset { name: "clone".to_owned(), recursive: true };
        pool.destroy(&target).unwrap();
        pool.sync().unwrap();
    }
    let state = pool.engine().state();
    assert_eq!((state.history.versions().len(), state.history.doomed_count()), (before, 1));
    drop(state);
    let crashed = open(&storage.copy());
    crashed.verify().unwrap();
    assert_eq!(crashed.engine().state().history.versions().len(), before - 1);
    pool.checkpoint().unwrap();
    let checked = check(storage.copy(), &CheckOptions::default(), &mut |_| {}).unwrap();
    assert!(checked.is_sound(), "{checked:?}");
    // What it was cloned from may be destroyed while it waits.
    pool.destroy(&DestroyTarget::Dataset { name: "db".to_owned(), recursive: true }).unwrap();
    pool.verify().unwrap();
}

/// However large the sets, what is in memory of them is what is allowed.
#[test]
fn memory_for_sets_is_bounded() {
    let storage = made();
    let allowed = 64 << 10;
    let pool = open_with(&storage, allowed);
    for round in 0..40 {
        write_round(&pool, "db", ROUNDS + round);
        pool.snapshot(&[format!("db@more{round}")], false, &[]).unwrap();
        pool.checkpoint().unwrap();
        let state = pool.engine().state();
        let heavy = state.history.in_memory();
        let resident = pool.engine().blocks.sets().read().resident_bytes();
        assert!(heavy + resident <= allowed, "{heavy} and {resident} bytes");
    }
    let distinct: BTreeSet<_> = places(&pool).iter().map(|place| (place.segment, place.slot)).collect();
    assert!(distinct.len() > 20);
    used(&pool);
    for round in 0..40 {
        destroy(&pool, &format!("db@more{round}"));
        pool.checkpoint().unwrap();
        let heavy = pool.engine().state().history.in_memory();
        let resident = pool.engine().blocks.sets().read().resident_bytes();
        assert!(heavy + resident <= allowed, "{heavy} and {resident} bytes");
    }
    pool.verify().unwrap();
}
