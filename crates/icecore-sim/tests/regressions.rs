//! Faults that were found by chance, each once more on purpose.

mod common;

use common::must;
use icecore::names::parse_target;
use icecore::{Creation, DestroyTarget, Error, FileFault, ListFilter, Pool};
use icecore_sim::explorer::{Explorer, Setting};

/// A pool on a new simulated disk, open, with a dataset `d`.
fn explorer(setting: &Setting) -> Explorer {
    let mut explorer = Explorer::new(1, setting).unwrap();
    explorer.open().unwrap();
    explorer.pool().create_dataset("d", false, &[]).unwrap();
    explorer
}

fn held(pool: &Pool) -> u64 {
    let filter = ListFilter { datasets: true, depth: Some(0), ..ListFilter::default() };
    pool.list(&filter).unwrap().iter().map(|entry| entry.used.0).sum()
}

fn snapshot(pool: &Pool, name: &str) {
    pool.snapshot(&[name.to_owned()], false, &[]).unwrap();
}

/// A snapshot that a rollback forked could not be destroyed: planning refused what hiding allows.
#[test]
fn a_forked_snapshot_is_hidden_when_destroyed_and_goes_with_its_last_fork() {
    let explorer = explorer(&Setting::default());
    let pool = explorer.pool();
    let dataset = pool.dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    dataset.write(file, 0, &[1; 40960]).unwrap();
    snapshot(pool, "d@one");
    dataset.write(file, 0, &[2; 8192]).unwrap();
    let saved = pool.rollback("d@one", false).unwrap().saved_as;
    dataset.write(file, 8192, &[3; 8192]).unwrap();
    let hidden = pool.destroy(&DestroyTarget::Snapshot("d@one".to_owned())).unwrap();
    assert_eq!(hidden.frees.0, 0);
    assert!(pool.view("d@one").is_err());
    pool.verify().unwrap();
    let before = held(pool);
    let gone = pool.destroy(&parse_target(&saved, false).unwrap()).unwrap();
    assert!(
        gone.frees.0 >= 16384,
        "what the fork had, and what the hidden one had beside the head: {gone:?}"
    );
    assert_eq!(before - held(pool), gone.frees.0);
    pool.verify().unwrap();
}

/// Punching behind the end of something that is no file was no error.
#[test]
fn punching_refuses_what_is_no_file_wherever_the_hole_is() {
    let explorer = explorer(&Setting::default());
    let dataset = explorer.pool().dataset("d").unwrap();
    let root = icecore::units::InodeNumber::ROOT;
    let link = dataset.create_symlink(root, b"l", b"to", &Creation::file()).unwrap();
    let found = dataset.punch_hole(link, 90_112, 1);
    assert!(matches!(found, Err(Error::File(FileFault::Invalid))), "{found:?}");
    let found = dataset.punch_hole(root, 90_112, 1);
    assert!(matches!(found, Err(Error::File(FileFault::IsADirectory))), "{found:?}");
    must(explorer.pool().verify().map_err(|error| error.to_string()));
}
