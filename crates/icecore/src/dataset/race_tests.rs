//! Operations on one name from several threads: each answers for the inode that it changed itself.

use super::{Creation, Dataset};
use crate::namespace::{Read, RenameHow, TreeReader};
use crate::options::{InitOptions, OpenOptions};
use crate::pool::Pool;
use crate::storage::memory::MemoryStorage;
use crate::units::InodeNumber;
use crate::{Error, FileFault, Result};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const ROOT: InodeNumber = InodeNumber::ROOT;
const NAME: &[u8] = b"contended";
const ROUNDS: u64 = 1500;

fn new_dataset() -> (Pool, Dataset) {
    let storage = Arc::new(MemoryStorage::default());
    Pool::init(storage.clone(), &InitOptions::small()).unwrap();
    let pool = Pool::open(storage, &OpenOptions { background: false, ..OpenOptions::default() }).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let dataset = pool.dataset("db").unwrap();
    (pool, dataset)
}

/// Inodes without a name that the head still has.
fn orphans(dataset: &Dataset) -> Vec<InodeNumber> {
    let view = dataset.view().unwrap();
    let mut found = Vec::new();
    let reader = TreeReader::new(view.tree(), &*dataset.pool().engine().nodes);
    let visit = &mut |inode| {
        found.push(inode);
        Ok(true)
    };
    reader.orphans(visit).unwrap();
    found
}

/// Whether it was done. The other threads may have taken the name, or made it, and nothing else may go wrong.
fn is_done<T>(outcome: Result<T>) -> Option<T> {
    match outcome {
        Ok(done) => Some(done),
        Err(Error::File(FileFault::Exists)) => None,
        Err(error) => panic!("{error:?}"),
    }
}

fn rename(dataset: &Dataset, from: &[u8], to: &[u8]) -> bool {
    match dataset.rename((ROOT, from), (ROOT, to), RenameHow::Replace) {
        Ok(_) => true,
        Err(Error::File(FileFault::NotFound)) => false,
        Err(error) => panic!("{error:?}"),
    }
}

/// Renames what the others make out of their way until they are done.
fn carry_off(dataset: &Dataset, is_over: &AtomicBool) {
    let mut carried = 0;
    while !is_over.load(Ordering::SeqCst) {
        carried += u64::from(rename(dataset, NAME, format!("carried-{carried}").as_bytes()));
    }
}

/// Two threads make something under one name, a third one renames it away. `make` answers what it made.
fn made_by_two(make: fn(&Dataset, u16) -> Option<InodeNumber>) {
    let (_pool, dataset) = new_dataset();
    let is_over = AtomicBool::new(false);
    let made = thread::scope(|scope| {
        scope.spawn(|| carry_off(&dataset, &is_over));
        let makers = [0o600, 0o640].map(|mode| {
            let dataset = &dataset;
            scope.spawn(move || {
                let made = (0..ROUNDS).filter_map(|_| make(dataset, mode));
                made.map(|inode| (inode, mode)).collect::<Vec<_>>()
            })
        });
        let made = makers.map(thread::ScopedJoinHandle::join);
        is_over.store(true, Ordering::SeqCst);
        made
    });
    let made: Vec<_> = made.into_iter().flat_map(|made| made.expect("nothing goes wrong")).collect();
    let view = dataset.view().unwrap();
    let distinct: BTreeSet<_> = made.iter().map(|(inode, _)| *inode).collect();
    assert_eq!(distinct.len(), made.len(), "one inode was answered to two makers");
    for (inode, mode) in made {
        assert_eq!(view.attributes(inode).unwrap().mode, mode, "inode {inode} is another maker's");
    }
}

#[test]
fn create_answers_what_it_made_whatever_happens_to_the_name() {
    made_by_two(|dataset, mode| {
        is_done(dataset.create(ROOT, NAME, &Creation { mode, ..Creation::file() })).map(|made| made.inode)
    });
}

#[test]
fn create_symlink_answers_what_it_made_whatever_happens_to_the_name() {
    made_by_two(|dataset, mode| {
        is_done(dataset.create_symlink(ROOT, NAME, b"target", &Creation { mode, ..Creation::file() }))
            .map(|made| made.inode)
    });
}

/// What one thread opens, another one renames away, between its lookup and its creation, or behind it.
#[test]
fn open_or_create_finds_or_makes_the_file_whatever_happens_to_the_name() {
    let (_pool, dataset) = new_dataset();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| carry_off(&dataset, &is_over));
        let opener =
            || (0..ROUNDS).try_for_each(|_| dataset.open_or_create(NAME, &Creation::file()).map(drop));
        let openers = [(); 4].map(|()| scope.spawn(opener));
        let outcomes = openers.map(thread::ScopedJoinHandle::join);
        is_over.store(true, Ordering::SeqCst);
        for outcome in outcomes {
            outcome.expect("no panic").unwrap();
        }
    });
}

/// One thread takes a name away, two others rename files over it. What loses its last name is freed,
/// whichever thread took it.
#[test]
fn what_loses_its_last_name_is_freed_whatever_happens_to_the_name() {
    let (_pool, dataset) = new_dataset();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let remover = scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                match dataset.unlink(ROOT, NAME) {
                    Ok(_) | Err(Error::File(FileFault::NotFound)) => {}
                    Err(error) => panic!("{error:?}"),
                }
            }
        });
        let renamers = [0, 1].map(|renamer| {
            let dataset = &dataset;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let name = format!("{renamer}-{round}");
                    dataset.create(ROOT, name.as_bytes(), &Creation::file()).unwrap();
                    assert!(rename(dataset, name.as_bytes(), NAME));
                }
            })
        });
        let outcomes = renamers.map(thread::ScopedJoinHandle::join);
        is_over.store(true, Ordering::SeqCst);
        remover.join().expect("nothing goes wrong");
        for outcome in outcomes {
            outcome.expect("nothing goes wrong");
        }
    });
    let _ = dataset.unlink(ROOT, NAME);
    assert_eq!(orphans(&dataset), [], "no handle has them open");
}

/// A directory that is removed has no handle that would free it later.
#[test]
fn a_directory_is_freed_when_it_is_removed() {
    let (_pool, dataset) = new_dataset();
    dataset.create(ROOT, b"directory", &Creation::directory()).unwrap();
    dataset.remove_directory(ROOT, b"directory").unwrap();
    assert_eq!(orphans(&dataset), []);
}

#[test]
fn an_open_file_without_a_name_is_freed_when_its_last_handle_is_closed() {
    let (_pool, dataset) = new_dataset();
    let inode = dataset.create(ROOT, NAME, &Creation::file()).unwrap().inode;
    let (first, second) = (dataset.file(inode).unwrap(), dataset.file(inode).unwrap());
    assert!(dataset.unlink(ROOT, NAME).unwrap().orphaned);
    first.close().unwrap();
    assert_eq!(orphans(&dataset), [inode]);
    drop(second);
    assert_eq!(orphans(&dataset), []);
    assert!(matches!(dataset.file(inode), Err(Error::File(FileFault::Stale))));
}

/// A handle of the former head frees nothing in the new one, where the number may be that of another file.
#[test]
fn a_handle_from_before_a_rollback_frees_nothing() {
    let (pool, dataset) = new_dataset();
    pool.snapshot(&["db@empty".to_owned()], false, &[]).unwrap();
    let inode = dataset.create(ROOT, NAME, &Creation::file()).unwrap().inode;
    let former = dataset.file(inode).unwrap();
    dataset.unlink(ROOT, NAME).unwrap();
    pool.rollback("db@empty", false).unwrap();
    let other = dataset.create(ROOT, NAME, &Creation::file()).unwrap().inode;
    assert_eq!(other, inode, "numbers go on where the snapshot was");
    let opened = dataset.file(inode).unwrap();
    dataset.unlink(ROOT, NAME).unwrap();
    former.close().unwrap();
    assert_eq!(orphans(&dataset), [inode], "it is open");
    opened.close().unwrap();
    assert_eq!(orphans(&dataset), []);
}

/// An orphan that a snapshot has comes back with it, and goes when it is closed.
#[test]
fn an_orphan_that_came_back_is_freed_by_the_handle_that_opens_it() {
    let (pool, dataset) = new_dataset();
    let inode = dataset.create(ROOT, NAME, &Creation::file()).unwrap().inode;
    let held = dataset.file(inode).unwrap();
    dataset.unlink(ROOT, NAME).unwrap();
    pool.snapshot(&["db@orphan".to_owned()], false, &[]).unwrap();
    held.close().unwrap();
    pool.rollback("db@orphan", false).unwrap();
    assert_eq!(orphans(&dataset), [inode]);
    dataset.file(inode).unwrap().close().unwrap();
    assert_eq!(orphans(&dataset), []);
}

/// A file is opened and closed by two threads while its name goes.
#[test]
fn opening_and_closing_while_the_name_goes_leaves_no_orphan() {
    let (_pool, dataset) = new_dataset();
    for _ in 0..ROUNDS / 10 {
        let inode = dataset.create(ROOT, NAME, &Creation::file()).unwrap().inode;
        let open = || while dataset.file(inode).map(drop).is_ok() {};
        thread::scope(|scope| {
            let openers = [scope.spawn(open), scope.spawn(open)];
            dataset.unlink(ROOT, NAME).unwrap();
            for opener in openers {
                opener.join().expect("nothing goes wrong");
            }
        });
        assert_eq!(orphans(&dataset), []);
    }
}
