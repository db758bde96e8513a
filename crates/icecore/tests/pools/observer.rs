//! What a front end learns of changes that it did not make, and what it can stand in the way of.

use icecore::units::{DatasetId, InodeNumber, VersionId};
use icecore::{
    Creation, DestroyTarget, Error, InitOptions, Obstacle, OpenOptions, Pool, PoolChange, PoolObserver,
};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Eye {
    seen: Mutex<Vec<String>>,
    users: Mutex<Vec<String>>,
    readers: Mutex<Vec<String>>,
}

impl Eye {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }
}

impl PoolObserver for Eye {
    fn changed(&self, change: &PoolChange) {
        self.seen.lock().unwrap().push(format!("{change:?}"));
    }

    fn roll_back(&self, dataset: DatasetId, act: &mut dyn FnMut() -> bool) {
        self.seen.lock().unwrap().push(format!("hold {dataset}"));
        let done = act();
        self.seen.lock().unwrap().push(format!("go on, {done}"));
    }

    fn users(&self, _dataset: DatasetId, _obstacle: Obstacle) -> Vec<String> {
        self.users.lock().unwrap().clone()
    }

    fn readers(&self, _dataset: DatasetId, _snapshot: VersionId) -> Vec<String> {
        self.readers.lock().unwrap().clone()
    }
}

#[test]
fn an_observer_learns_what_happens_and_can_stand_in_the_way() {
    let folder = tempfile::tempdir().unwrap();
    let options = InitOptions { segment_bytes: 2 << 20, ..InitOptions::default() };
    Pool::init_directory(folder.path(), &options).unwrap();
    let pool = Pool::open_directory(folder.path(), &OpenOptions::default()).unwrap();
    let eye = Arc::new(Eye::default());
    let observer: Arc<dyn PoolObserver> = eye.clone();
    pool.observe(&observer);
    pool.create_dataset("db", false, &[]).unwrap();
    pool.snapshot(&["db@one".to_owned()], false, &[]).unwrap();
    assert_eq!(eye.take(), ["Datasets", "Snapshots"]);
    let id = pool.dataset("db").unwrap().id();

    *eye.users.lock().unwrap() = vec!["/mnt/f".to_owned()];
    let refused = pool.rollback("db@one", false).unwrap_err();
    assert!(
        matches!(&refused, Error::Busy { .. }) && refused.to_string().contains("/mnt/f is open"),
        "{refused}"
    );
    let whole = DestroyTarget::Dataset { name: "db".to_owned(), recursive: true };
    assert!(matches!(pool.destroy(&whole).unwrap_err(), Error::Busy { .. }));
    assert!(eye.take().is_empty(), "what is refused holds nothing still");
    pool.rollback("db@one", true).unwrap();
    assert_eq!(eye.take(), [format!("hold {id}"), "go on, true".to_owned(), "Snapshots".to_owned()]);
    // What is refused changes nothing, and no observer learns of it.
    pool.rollback("db@missing", false).unwrap_err();
    pool.create_dataset("db", false, &[]).unwrap_err();
    assert!(eye.take().is_empty());

    eye.users.lock().unwrap().clear();
    *eye.readers.lock().unwrap() = vec!["/mnt/.icecore/snapshots/one/f".to_owned()];
    for target in [&whole, &DestroyTarget::Snapshot("db@one".to_owned())] {
        let refused = pool.destroy(target).unwrap_err().to_string();
        assert!(refused.contains("db@one") && refused.contains("one/f is open; close it first"), "{refused}");
    }
    assert!(eye.take().is_empty());
    eye.readers.lock().unwrap().clear();
    pool.destroy(&whole).unwrap();
    assert_eq!(eye.take(), ["Datasets"]);
    drop((observer, eye));
    pool.create_dataset("db", false, &[]).unwrap();
    pool.close().unwrap();
}

#[test]
fn names_and_room_are_found_by_number() {
    let folder = tempfile::tempdir().unwrap();
    let options = InitOptions { segment_bytes: 2 << 20, ..InitOptions::default() };
    Pool::init_directory(folder.path(), &options).unwrap();
    let pool = Pool::open_directory(folder.path(), &OpenOptions::default()).unwrap();
    for name in ["a", "a/b", "a/b/c", "a/d", "ab"] {
        pool.create_dataset(name, false, &[]).unwrap();
    }
    let leaves =
        |above| -> Vec<String> { pool.children(above).unwrap().into_iter().map(|(leaf, _)| leaf).collect() };
    let id = pool.child(None, "a").unwrap().unwrap();
    assert_eq!(leaves(None), ["a", "ab"]);
    assert_eq!(leaves(Some(id)), ["b", "d"]);
    assert_eq!(pool.child(Some(id), "x").unwrap(), None);
    let dataset = pool.dataset_by_id(id).unwrap();
    assert_eq!(dataset.name().unwrap(), "a");

    let file = dataset.create(InodeNumber::ROOT, b"f", &Creation::file()).unwrap().inode;
    let used = pool.room(Some(id)).unwrap().used;
    dataset.write(file, 0, &vec![1; 1 << 20]).unwrap();
    assert_eq!(pool.room(Some(id)).unwrap().used.0 - used.0, 1 << 20);
    pool.set_property("a", "quota", &(4 << 20).to_string()).unwrap();
    assert!(pool.room(Some(id)).unwrap().available.0 <= 3 << 20);
    assert!(pool.room(None).unwrap().available.0 > 3 << 20);
    assert_eq!(dataset.view().unwrap().paths_of(&[file]).unwrap()[&file], b"f");

    pool.snapshot(&["a@one".to_owned()], false, &[]).unwrap();
    let one = pool.snapshot_of(id, "one").unwrap().unwrap();
    assert_eq!(pool.snapshots_of(id).unwrap(), [("one".to_owned(), one)]);
    pool.rename("a@one", "a@two", false).unwrap();
    assert!(pool.snapshot_of(id, "one").unwrap().is_none());
    assert_eq!(pool.snapshot_of(id, "two").unwrap(), Some(one));
    assert_eq!(pool.snapshot_view(one).unwrap().name(), "a@two");
    pool.destroy(&DestroyTarget::Snapshot("a@two".to_owned())).unwrap();
    assert!(matches!(pool.snapshot_view(one), Err(Error::NotFound { .. })));
    pool.close().unwrap();
}
