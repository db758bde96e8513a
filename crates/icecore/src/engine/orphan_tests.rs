//! Taking names away on a full pool: each call answers what it did, with or without room to free the file.

use super::Purpose;
use super::reserve_tests::leave_free;
use crate::namespace::{Read, TreeReader, XattrHow};
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::units::{ByteLength, InodeNumber};
use crate::{Creation, Dataset, Error};
use std::sync::Arc;

const ROOT: InodeNumber = InodeNumber::ROOT;
const SEGMENT: u64 = 2 << 20;
/// More than a block of the log has room for the names of.
const FILES: usize = 400;
/// Cases with names of other lengths: the log ends elsewhere in each.
const CASES: usize = 8;

fn name(case: usize, number: usize) -> Vec<u8> {
    format!("{number:0width$}", width = 3 + case).into_bytes()
}

/// Files without a name that are still to be freed.
fn orphans(dataset: &Dataset) -> usize {
    let view = dataset.view().unwrap();
    let mut count = 0;
    let reader = TreeReader::new(view.tree(), &*dataset.pool().engine().nodes);
    let visit = &mut |_| {
        count += 1;
        Ok(true)
    };
    reader.orphans(visit).unwrap();
    count
}

/// A pool without threads, with empty files in dataset `db`. The log has one block left.
/// There is no segment to go on in but what the next checkpoint may take.
fn full(storage: &Arc<MemoryStorage>, case: usize) -> (Pool, Dataset) {
    let size_limit = Some(ByteLength(20 * SEGMENT));
    let form = InitOptions { segment_bytes: SEGMENT, size_limit, ..InitOptions::small() };
    Pool::init(storage.clone(), &form).unwrap();
    let pool = Pool::open(storage.clone(), &options()).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let dataset = pool.dataset("db").unwrap();
    for number in 0..FILES {
        dataset.open_or_create(&name(case, number), &Creation::file()).unwrap();
    }
    pool.checkpoint().unwrap();
    let engine = pool.engine();
    while engine.state().tail.room() > 1 {
        dataset.set_xattr(ROOT, b"user.filler", b"filler", XattrHow::Set).unwrap();
        dataset.sync().unwrap();
    }
    // Nothing is kept back for collection, which has nothing to gather.
    engine.state().collection.is_exhausted = true;
    let kept = engine.reserve(&engine.state(), Purpose::Freeing);
    leave_free(&pool, kept);
    (pool, dataset)
}

fn options() -> OpenOptions {
    OpenOptions { background: false, control_socket: false, ..OpenOptions::default() }
}

/// In some cases there is room to take the name away, and none to free the file.
#[test]
fn a_full_pool_answers_whether_the_name_is_gone() {
    let mut left = 0;
    for case in 0..CASES {
        let storage = Arc::new(MemoryStorage::default());
        let (pool, dataset) = full(&storage, case);
        let refused = (0..FILES).find_map(|number| {
            let outcome = dataset.unlink(ROOT, &name(case, number));
            let is_gone = dataset.view().unwrap().lookup(ROOT, &name(case, number)).unwrap().is_none();
            assert_eq!(outcome.is_ok(), is_gone, "file {number}: {outcome:?}");
            outcome.err()
        });
        assert!(matches!(refused, Some(Error::NoSpace { .. })), "{refused:?}");
        left += orphans(&dataset);
        dataset.sync().unwrap();
        let crashed = Pool::open(storage.copy(), &options()).unwrap();
        assert_eq!(orphans(&crashed.dataset("db").unwrap()), 0);
        crashed.verify().unwrap();
        drop((dataset, pool));
    }
    assert!(left > 0, "there was always room to free the file, too");
}
