//! A pool from its making to its end: what is written is read, snapshots stay, and a restart changes nothing.

use icecore::{Creation, DestroyTarget, InitOptions, ListFilter, OpenOptions, Pool};

fn options() -> OpenOptions {
    OpenOptions { background: false, control_socket: false, ..OpenOptions::default() }
}

fn small() -> InitOptions {
    InitOptions { segment_bytes: 2 << 20, ..InitOptions::default() }
}

fn content(seed: u64, length: usize) -> Vec<u8> {
    (0..length).map(|index| (index as u64).wrapping_mul(seed.wrapping_mul(2) + 1).to_le_bytes()[1]).collect()
}

#[test]
fn a_snapshot_keeps_what_was_there_through_restarts() {
    let folder = tempfile::tempdir().unwrap();
    Pool::init_directory(folder.path(), &small()).unwrap();
    {
        let pool = Pool::open_directory(folder.path(), &options()).unwrap();
        pool.create_dataset("db", false, &[]).unwrap();
        let db = pool.dataset("db").unwrap();
        let file = db.open_or_create(b"a", &Creation::file()).unwrap();
        db.write(file, 0, &content(1, 100_000)).unwrap();
        pool.snapshot(&["db@one".to_owned()], false, &[]).unwrap();
        db.write(file, 4096, &content(2, 8192)).unwrap();
        db.write(file, 50_000, b"small").unwrap();
        db.sync().unwrap();
    }
    for _ in 0..3 {
        let pool = Pool::open_directory(folder.path(), &options()).unwrap();
        let one = pool.view("db@one").unwrap();
        let file = one.resolve(b"a").unwrap().unwrap();
        let mut buffer = vec![0; 200_000];
        assert_eq!(one.read(file, 0, &mut buffer).unwrap(), 100_000);
        assert_eq!(buffer[..100_000], content(1, 100_000));
        let mut expected = content(1, 100_000);
        expected[4096..4096 + 8192].copy_from_slice(&content(2, 8192));
        expected[50_000..50_005].copy_from_slice(b"small");
        let head = pool.view("db").unwrap();
        assert_eq!(head.read(file, 0, &mut buffer).unwrap(), 100_000);
        assert!(buffer[..100_000] == expected[..]);
        let report = pool.scrub(&mut |_| true).unwrap();
        assert_eq!((report.damaged, report.complete), (0, true));
        let all = ListFilter { datasets: true, snapshots: true, ..ListFilter::default() };
        let entries = pool.list(&all).unwrap();
        assert_eq!(entries.len(), 2);
        pool.close().unwrap();
    }
}

#[test]
fn overwriting_for_long_recycles_segments() {
    let folder = tempfile::tempdir().unwrap();
    Pool::init_directory(folder.path(), &small()).unwrap();
    let options = OpenOptions { log_bytes_max: 8 << 20, ..options() };
    let pool = Pool::open_directory(folder.path(), &options).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    for round in 0..200 {
        db.write(file, 0, &content(round, 1 << 20)).unwrap();
        db.sync().unwrap();
    }
    let statistics = pool.statistics();
    assert!(statistics.segments < 20, "{statistics:?}");
    assert!(statistics.checkpoints >= 10, "{statistics:?}");
    pool.snapshot(&["db@x".to_owned()], false, &[]).unwrap();
    db.write(file, 0, &content(1000, 1 << 20)).unwrap();
    let plan = pool.plan_destroy(&DestroyTarget::Snapshot("db@x".to_owned())).unwrap();
    assert!(plan.frees.0 >= 1 << 20, "{plan:?}");
    let done = pool.destroy(&DestroyTarget::Snapshot("db@x".to_owned())).unwrap();
    assert_eq!(plan, done);
    pool.close().unwrap();
}

#[test]
fn a_large_group_is_atomic_and_spills() {
    let folder = tempfile::tempdir().unwrap();
    Pool::init_directory(folder.path(), &InitOptions { segment_bytes: 4 << 20, ..InitOptions::default() })
        .unwrap();
    {
        let pool = Pool::open_directory(folder.path(), &options()).unwrap();
        pool.create_dataset("db", false, &[]).unwrap();
        let db = pool.dataset("db").unwrap();
        let file = db.open_or_create(b"a", &Creation::file()).unwrap();
        let big = content(7, 40 << 20);
        let mut group = db.begin().unwrap();
        for (index, part) in big.chunks(4096).enumerate() {
            group.write(file, index as u64 * 4096, part).unwrap();
        }
        let view = pool.view("db").unwrap();
        let mut buffer = vec![0; 4096];
        assert_eq!(group.read(&view, file, 20 << 20, &mut buffer).unwrap(), 4096);
        assert_eq!(buffer[..], big[20 << 20..][..4096]);
        assert_eq!(pool.view("db").unwrap().attributes(file).unwrap().size, 0);
        let point = pool.commit(vec![group]).unwrap();
        pool.make_durable(point).unwrap();
        std::mem::forget(pool);
    }
    // The former owner is still alive in this process: take its lock away as a kill would.
    let copy = tempfile::tempdir().unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "lock" {
            std::fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    let pool = Pool::open_directory(copy.path(), &options()).unwrap();
    let view = pool.view("db").unwrap();
    let file = view.resolve(b"a").unwrap().unwrap();
    let mut buffer = vec![0; 40 << 20];
    assert_eq!(view.read(file, 0, &mut buffer).unwrap(), 40 << 20);
    assert!(buffer == content(7, 40 << 20));
}

#[test]
fn rollback_keeps_what_it_leaves_and_can_be_undone() {
    let folder = tempfile::tempdir().unwrap();
    Pool::init_directory(folder.path(), &small()).unwrap();
    let pool = Pool::open_directory(folder.path(), &options()).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let db = pool.dataset("db").unwrap();
    let file = db.open_or_create(b"a", &Creation::file()).unwrap();
    let read = || {
        let mut buffer = vec![0; 3];
        pool.view("db").unwrap().read(file, 0, &mut buffer).unwrap();
        buffer
    };
    db.write(file, 0, b"one").unwrap();
    pool.snapshot(&["db@one".to_owned()], false, &[]).unwrap();
    db.write(file, 0, b"two").unwrap();
    pool.snapshot(&["db@two".to_owned()], false, &[]).unwrap();
    db.write(file, 0, b"tri").unwrap();
    let report = pool.rollback("db@one", false).unwrap();
    assert_eq!(read(), b"one");
    pool.rollback(&report.saved_as, false).unwrap();
    assert_eq!(read(), b"tri");
    pool.rollback("db@two", false).unwrap();
    assert_eq!(read(), b"two");
    pool.clone_snapshot("db@one", "copy", false).unwrap();
    pool.promote("copy").unwrap();
    assert!(pool.view("copy@one").is_ok());
    assert!(pool.view("db@one").is_err());
    pool.close().unwrap();
}
