//! What was destroyed and is not deleted yet makes no difference. It is deleted sometime, and replaying the
//! log may find it there or not.

use crate::check::{CheckOptions, RepairOptions, check, repair};
use crate::format::superblock::LedgerPointer;
use crate::names::parse_target;
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::state::State;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, BlockCount, DatasetId, Run, Stream, VersionId};
use crate::{Creation, DestroyTarget, Error, ListFilter};
use std::sync::Arc;

fn dataset(pool: &Pool, name: &str) -> DatasetId {
    pool.engine().state().catalogue.find(name).unwrap()
}

fn snapshot(pool: &Pool, dataset: DatasetId, name: &str) -> VersionId {
    pool.engine().state().catalogue.find_snapshot(dataset, name).unwrap()
}

fn open(storage: &Arc<MemoryStorage>) -> Pool {
    let options = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
    Pool::open(storage.clone(), &options).unwrap()
}

/// A pool with a dataset `d` that has snapshots `a` and `b`.
fn with_snapshots() -> (Arc<MemoryStorage>, Pool) {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = open(&storage);
    pool.create_dataset("d", false, &[]).unwrap();
    let d = pool.dataset("d").unwrap();
    let file = d.open_or_create(b"file", &Creation::file()).unwrap();
    for name in ["a", "b", "c"] {
        d.write(file, 0, &vec![name.as_bytes()[0]; 8 * BLOCK_BYTES]).unwrap();
        if name != "c" {
            pool.snapshot(&[format!("d@{name}")], false, &[]).unwrap();
        }
    }
    drop(d);
    (storage, pool)
}

/// A dataset `d`, whose snapshot `b` belongs to its clone `x` and lies between two of its own: `a`, and what
/// it left by a rollback.
fn entangled() -> (Pool, String) {
    let (_, pool) = with_snapshots();
    let saved = pool.rollback("d@a", false).unwrap().saved_as;
    pool.clone_snapshot("d@b", "x", false).unwrap();
    pool.promote("x").unwrap();
    pool.promote("d").unwrap();
    pool.rollback(&saved, false).unwrap();
    (pool, saved)
}

/// Destroys `x` and its snapshot, without anything being deleted.
fn doom_what_is_between(pool: &Pool) -> VersionId {
    let x = dataset(pool, "x");
    let b = snapshot(pool, x, "b");
    let mut state = pool.engine().state();
    let head = state.catalogue.dataset(x).unwrap().head;
    state.catalogue.hide_snapshot(b);
    state.catalogue.remove_dataset(x);
    state.history.doom(b).unwrap();
    state.history.doom(head).unwrap();
    b
}

#[test]
fn what_is_between_and_stays_is_the_origin() {
    let (pool, saved) = entangled();
    let (d, x) = (dataset(&pool, "d"), dataset(&pool, "x"));
    let b = snapshot(&pool, x, "b");
    {
        let state = pool.engine().state();
        assert_eq!(state.origin(d), Some(b));
        assert_eq!(state.promoted(d), [b]);
    }
    // Destroying a range of `d` does not concern `b`, which hangs below the first of the range.
    let range = format!("d@a%{}", saved.split('@').next_back().unwrap());
    let report = pool.destroy(&parse_target(&range, true).unwrap()).unwrap();
    assert_eq!(report.names.len(), 2, "{:?}", report.names);
    assert_eq!(pool.engine().state().origin(d), Some(b));
    pool.verify().unwrap();
}

/// A dataset `a` with a snapshot, of which a clone `c` has overwritten half, and `a` the other half and some
/// of that.
fn cloned() -> (Arc<MemoryStorage>, Pool) {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = open(&storage);
    pool.create_dataset("a", false, &[]).unwrap();
    write(&pool, "a", 0, BLOCKS, 1);
    pool.snapshot(&["a@one".to_owned()], false, &[]).unwrap();
    pool.clone_snapshot("a@one", "c", false).unwrap();
    write(&pool, "c", 0, BLOCKS / 2, 2);
    write(&pool, "a", BLOCKS / 3, BLOCKS - BLOCKS / 3, 3);
    (storage, pool)
}

fn origin(pool: &Pool, name: &str) -> Option<String> {
    let filter = ListFilter { root: Some(name.to_owned()), datasets: true, ..ListFilter::default() };
    pool.list(&filter).unwrap()[0].origin.clone()
}

fn content(pool: &Pool, name: &str) -> Vec<u8> {
    let view = pool.view(name).unwrap();
    let mut content = vec![0; BLOCKS * BLOCK_BYTES];
    view.read(view.resolve(b"file").unwrap().unwrap(), 0, &mut content).unwrap();
    content
}

/// Destroys a dataset: what comes back is what was said.
fn destroy_dataset(pool: &Pool, name: &str) -> u64 {
    let target = DestroyTarget::Dataset { name: name.to_owned(), recursive: true };
    let planned = pool.plan_destroy(&target).unwrap();
    let before = pool.statistics().used_bytes;
    assert_eq!(pool.destroy(&target).unwrap(), planned);
    pool.engine().finish_freeing().unwrap();
    assert_eq!(before - pool.statistics().used_bytes, planned.frees.0, "{name}");
    pool.verify().unwrap();
    planned.frees.0
}

#[test]
fn a_clone_does_not_tie_down_its_origin() {
    let (storage, pool) = cloned();
    let before = content(&pool, "c");
    assert_eq!(origin(&pool, "c").as_deref(), Some("a@one"));
    // What both have replaced.
    destroy_snapshot(&pool, "a@one", BLOCKS / 2 - BLOCKS / 3);
    for pool in [&pool, &open(&storage.copy())] {
        assert_eq!(origin(pool, "c"), None);
        assert!(pool.promote("c").is_err(), "it is no clone any more");
        assert_eq!(content(pool, "c"), before);
        pool.verify().unwrap();
        assert!(destroy_dataset(pool, "a") >= (BLOCKS * BLOCK_BYTES) as u64);
        assert_eq!(content(pool, "c"), before);
        assert!(destroy_dataset(pool, "c") >= (BLOCKS * BLOCK_BYTES) as u64);
        assert_eq!(pool.statistics().used_bytes, 0);
    }
}

#[test]
fn a_dataset_goes_although_its_snapshots_have_clones() {
    let (storage, pool) = cloned();
    pool.clone_snapshot("a@one", "b", false).unwrap();
    let both = ["b", "c"].map(|name| content(&pool, name));
    let target = DestroyTarget::Dataset { name: "a".to_owned(), recursive: true };
    pool.hold("keep", "a@one").unwrap();
    assert!(matches!(pool.destroy(&target), Err(Error::Busy { .. })), "it is held");
    pool.release("keep", "a@one").unwrap();
    destroy_dataset(&pool, "a");
    // Another one of that name has nothing to do with it.
    pool.create_dataset("a", false, &[]).unwrap();
    pool.checkpoint().unwrap();
    for pool in [&pool, &open(&storage.copy())] {
        assert_eq!(["b", "c"].map(|name| origin(pool, name)), [None, None]);
        assert_eq!(["b", "c"].map(|name| content(pool, name)), both);
        pool.verify().unwrap();
        write(pool, "b", 0, BLOCKS, 4);
        // With the last branch but one all goes that this one has replaced.
        destroy_dataset(pool, "c");
        assert_eq!(content(pool, "b"), vec![4; BLOCKS * BLOCK_BYTES]);
        assert_eq!(pool.engine().state().history.doomed().count(), 0);
        destroy_dataset(pool, "b");
    }
    pool.close().unwrap();
    let report = check(storage.copy(), &CheckOptions { data: true }, &mut |_| {}).unwrap();
    assert_eq!(report.count, 0, "{report:?}");
}

#[test]
fn what_is_between_and_goes_is_not_there() {
    let (pool, saved) = entangled();
    let d = dataset(&pool, "d");
    let b = doom_what_is_between(&pool);
    {
        let state = pool.engine().state();
        assert_eq!(state.history.next_doomed().map(|version| state.history.is_doomed(version)), Some(true));
        assert!(state.history.is_doomed(b) && state.history.version(b).is_ok(), "it is still in the tree");
        assert_eq!(state.origin(d), None);
        assert!(state.promoted(d).is_empty());
    }
    assert!(pool.promote("d").is_err(), "it is no clone");
    let range = format!("d@a%{}", saved.split('@').next_back().unwrap());
    let report = pool.destroy(&parse_target(&range, true).unwrap()).unwrap();
    assert_eq!(report.names.len(), 2, "{:?}", report.names);
    assert!(pool.engine().state().history.version(b).is_err(), "it went with the call");
    pool.verify().unwrap();
}

/// When `d` was destroyed `a` was gone, and there is nothing of it but `b`, which belongs to the clone. When
/// that is replayed, `a` is there: destroyed, not deleted yet, and `b` hangs below it.
#[test]
fn what_a_dataset_had_and_is_destroyed_hinders_nothing_when_it_goes() {
    let (storage, pool) = with_snapshots();
    pool.destroy(&parse_target("d@a", false).unwrap()).unwrap();
    assert_eq!(pool.engine().state().history.doomed().count(), 0);
    pool.clone_snapshot("d@b", "x", false).unwrap();
    pool.promote("x").unwrap();
    pool.destroy(&parse_target("d", true).unwrap()).unwrap();
    let crashed = open(&storage.copy());
    let everything = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
    let names: Vec<String> = crashed.list(&everything).unwrap().into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["x", "x@b"]);
    crashed.verify().unwrap();
    pool.verify().unwrap();
}

/// Blocks that [`overwritten`] writes.
const BLOCKS: usize = 300;

fn write(pool: &Pool, name: &str, first: usize, blocks: usize, byte: u8) {
    let dataset = pool.dataset(name).unwrap();
    let file = dataset.open_or_create(b"file", &Creation::file()).unwrap();
    dataset.write(file, (first * BLOCK_BYTES) as u64, &vec![byte; blocks * BLOCK_BYTES]).unwrap();
    dataset.sync().unwrap();
}

/// A pool in which `a` was rolled back to its snapshot `one`, and both branches have overwritten all that the
/// snapshot had.
fn overwritten() -> (Arc<MemoryStorage>, Pool, String) {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = open(&storage);
    pool.create_dataset("a", false, &[]).unwrap();
    write(&pool, "a", 0, BLOCKS, 1);
    pool.snapshot(&["a@one".to_owned()], false, &[]).unwrap();
    write(&pool, "a", 0, BLOCKS, 2);
    let saved = pool.rollback("a@one", false).unwrap().saved_as;
    write(&pool, "a", 0, BLOCKS, 3);
    (storage, pool, saved)
}

fn used(pool: &Pool, name: &str) -> u64 {
    let filter = ListFilter { root: Some(name.to_owned()), snapshots: true, ..ListFilter::default() };
    pool.list(&filter).unwrap()[0].used.0
}

/// Destroys a snapshot: what comes back is what every figure said, and at least so many blocks.
fn destroy_snapshot(pool: &Pool, name: &str, at_least: usize) {
    let target = DestroyTarget::Snapshot(name.to_owned());
    let (used, planned) = (used(pool, name), pool.plan_destroy(&target).unwrap());
    assert_eq!(used, planned.frees.0, "{name}");
    assert!(used >= (at_least * BLOCK_BYTES) as u64, "{name} gives back {used} bytes");
    let live = || pool.engine().settled_state().unwrap().history.live_in_all().bytes().0;
    let (before, live_before) = (pool.statistics().used_bytes, live());
    assert_eq!(pool.destroy(&target).unwrap(), planned);
    assert_eq!(before - pool.statistics().used_bytes, used, "{name}");
    assert_eq!(live_before - live(), used, "{name}");
    assert_eq!(pool.statistics().freeing_versions, 0, "nothing is left to be done");
    pool.verify().unwrap();
}

#[test]
fn what_both_branches_have_replaced_comes_back_with_the_snapshot() {
    let (_, pool, saved) = overwritten();
    destroy_snapshot(&pool, "a@one", BLOCKS);
    assert_eq!(pool.engine().state().history.doomed().count(), 1, "it has to stay in the tree");
    // The branch that was left has its own blocks only; with it goes what stayed.
    destroy_snapshot(&pool, &saved, BLOCKS);
    assert_eq!(pool.engine().state().history.doomed().count(), 0);
}

#[test]
fn what_a_branch_replaces_later_comes_back_when_it_is_replaced() {
    let (_, pool, saved) = overwritten();
    let again = pool.rollback("a@one", false).unwrap().saved_as;
    destroy_snapshot(&pool, "a@one", 0);
    let used_before = pool.statistics().used_bytes;
    // Every block that is replaced dies with what replaces it: two branches have done without them already.
    for part in 0..3 {
        write(&pool, "a", part * BLOCKS / 3, BLOCKS / 3, 4);
        assert!(pool.statistics().used_bytes < used_before + (20 * BLOCK_BYTES) as u64);
    }
    pool.verify().unwrap();
    destroy_snapshot(&pool, &again, BLOCKS);
    destroy_snapshot(&pool, &saved, BLOCKS);
}

#[test]
fn a_snapshot_below_one_that_is_gone_counts_what_only_it_still_holds() {
    let (_, pool, saved) = overwritten();
    let again = pool.rollback("a@one", false).unwrap().saved_as;
    pool.snapshot(&["a@two".to_owned()], false, &[]).unwrap();
    write(&pool, "a", 0, BLOCKS, 4);
    destroy_snapshot(&pool, "a@one", 0);
    // What `one` had is reached by `two` alone.
    destroy_snapshot(&pool, "a@two", BLOCKS);
    destroy_snapshot(&pool, &saved, BLOCKS);
    destroy_snapshot(&pool, &again, BLOCKS);
    assert_eq!(pool.engine().state().history.doomed().count(), 0);
}

#[test]
fn a_pool_with_part_of_a_snapshot_is_sound_whenever_it_ends() {
    let (storage, pool, saved) = overwritten();
    let is_sound = |storage: &Arc<MemoryStorage>| {
        let report = check(storage.copy(), &CheckOptions { data: true }, &mut |_| {}).unwrap();
        assert_eq!(report.count, 0, "{report:?}");
    };
    pool.destroy(&parse_target("a@one", false).unwrap()).unwrap();
    is_sound(&storage);
    // Its blocks are free, and used for something else.
    for round in 5..12 {
        pool.checkpoint().unwrap();
        is_sound(&storage);
        write(&pool, "a", 0, BLOCKS, round);
        is_sound(&storage);
    }
    let crashed = open(&storage.copy());
    crashed.verify().unwrap();
    assert_eq!(crashed.engine().state().history.doomed().count(), 1);
    destroy_snapshot(&crashed, &saved, BLOCKS);
    pool.close().unwrap();
    is_sound(&storage);
    let opened = open(&storage);
    assert_eq!(opened.scrub(&mut |_| true).unwrap().damaged, 0);
    destroy_snapshot(&opened, &saved, BLOCKS);
}

#[test]
fn sets_are_made_again_although_part_of_a_snapshot_is_gone() {
    let (storage, pool, saved) = overwritten();
    pool.rollback("a@one", false).unwrap();
    write(&pool, "a", 0, BLOCKS / 2, 5);
    pool.destroy(&parse_target("a@one", false).unwrap()).unwrap();
    for round in 6..10 {
        pool.checkpoint().unwrap();
        write(&pool, "a", 0, BLOCKS / 2, round);
    }
    {
        let mut state = pool.engine().settled_state().unwrap();
        let id = state.catalogue.find("a").unwrap();
        let head = state.head(id).unwrap();
        let owned = state.history.owned_of(head, Stream::Data).unwrap().first().unwrap();
        let State { history, graveyard, .. } = &mut *state;
        let run = Run { stream: Stream::Data, start: owned, length: BlockCount(1) };
        history.dropped(head, run, graveyard.sink(crate::pins::Readers::Any)).unwrap();
    }
    pool.close().unwrap();
    assert!(!check(storage.copy(), &CheckOptions::default(), &mut |_| {}).unwrap().is_sound());
    let report = repair(storage.clone(), &RepairOptions::default(), &mut |_| {}).unwrap();
    assert_eq!(report.after.count, 0, "{report:?}");
    let pool = open(&storage);
    pool.verify().unwrap();
    destroy_snapshot(&pool, &saved, BLOCKS);
}

#[test]
fn damage_is_seen_by_those_who_can_be_read() {
    let (storage, pool, _) = overwritten();
    let doomed = snapshot(&pool, dataset(&pool, "a"), "one");
    pool.rollback("a@one", false).unwrap();
    destroy_snapshot(&pool, "a@one", 0);
    let address = {
        let state = pool.engine().state();
        state.history.owned_of(doomed, Stream::Data).unwrap().first().unwrap()
    };
    let (segment, slot, _) = pool.engine().blocks.lookup(Stream::Data, address).unwrap().unwrap();
    pool.close().unwrap();
    super::chunk_tests::flip(&storage, &LedgerPointer { segment, slot, blocks: 1, crc: 0 });
    let report = open(&storage).scrub(&mut |_| true).unwrap();
    assert_eq!(report.findings.len(), 1, "{report:?}");
    let finding = &report.findings[0];
    assert_eq!((&finding.versions[..], finding.version_count), (&["a".to_owned()][..], 1), "{finding:?}");
    assert_eq!(finding.path.as_deref(), Some(&b"file"[..]), "{finding:?}");
}

/// A quota that is met exactly allows what replaces the last use of what a destroyed snapshot owns, and
/// nothing more.
#[test]
fn what_comes_back_from_above_makes_room_below_a_quota() {
    let (_, pool, saved) = overwritten();
    let again = pool.rollback("a@one", false).unwrap().saved_as;
    pool.destroy(&parse_target("a@one", false).unwrap()).unwrap();
    let dataset = pool.dataset("a").unwrap();
    let file = dataset.view().unwrap().resolve(b"file").unwrap().unwrap();
    let used_by_a = || {
        let filter = ListFilter { root: Some("a".to_owned()), datasets: true, ..ListFilter::default() };
        pool.list(&filter).unwrap()[0].used.0
    };
    let limit = |bytes: u64| pool.set_property("a", "quota", &bytes.to_string()).unwrap();
    let refused = |outcome: crate::Result<()>| matches!(outcome, Err(crate::Error::QuotaExceeded { .. }));
    // The path to a block is born with the first change; from then on a block takes the place of one.
    dataset.write(file, 0, &[4; BLOCK_BYTES]).unwrap();
    let used = used_by_a();
    limit(used);
    for block in 1..20 {
        dataset.write(file, block * BLOCK_BYTES as u64, &[4; BLOCK_BYTES]).unwrap();
        assert_eq!(used_by_a(), used, "{block}");
    }
    // The rollbacks have kept what they left; here nothing comes back.
    pool.snapshot(&["a@two".to_owned()], false, &[]).unwrap();
    assert!(refused(dataset.write(file, 30 * BLOCK_BYTES as u64, &[4; BLOCK_BYTES])));
    pool.destroy(&parse_target("a@two", false).unwrap()).unwrap();
    dataset.write(file, 30 * BLOCK_BYTES as u64, &[4; BLOCK_BYTES]).unwrap();
    // All at once is as good as one by one.
    let mut group = dataset.begin().unwrap();
    group.write(file, 0, &vec![5; BLOCKS * BLOCK_BYTES]).unwrap();
    pool.commit(vec![group]).unwrap();
    assert!(used_by_a() <= used);
    limit(used_by_a());
    assert!(refused(dataset.write(file, (BLOCKS * BLOCK_BYTES) as u64, &[6; BLOCK_BYTES])));
    pool.verify().unwrap();
    drop(dataset);
    for name in [saved, again] {
        pool.destroy(&parse_target(&name, false).unwrap()).unwrap();
    }
    pool.verify().unwrap();
}
