//! What was destroyed and is not deleted yet makes no difference: it is deleted sometime, and replaying the log may find it
//! there or not.

use crate::names::parse_target;
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::units::{BLOCK_BYTES, DatasetId, VersionId};
use crate::{Creation, Error, ListFilter};
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

/// A dataset `d`, whose snapshot `b` belongs to its clone `x` and lies between two of its own: `a`, and what it left by a rollback.
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
    // It is no business of whoever destroys a range of `d`, and hangs below its first.
    let range = format!("d@a%{}", saved.split('@').next_back().unwrap());
    let refused = pool.destroy(&parse_target(&range, true).unwrap());
    assert!(
        matches!(&refused, Err(Error::Busy { blockers, .. }) if blockers.contains("x is a clone")),
        "{refused:?}"
    );
    pool.verify().unwrap();
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

/// When `d` was destroyed `a` was gone, and there is nothing of it but `b`, which belongs to the clone. When that is replayed, `a` is there:
/// destroyed, not deleted yet, and `b` hangs below it.
#[test]
fn what_a_dataset_had_and_is_destroyed_is_in_nobodys_way_when_it_goes() {
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
