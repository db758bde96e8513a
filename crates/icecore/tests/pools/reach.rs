//! Pools and the other processes that reach them, or cannot.

use icecore::admin::{Access, Client, Request, Response, SOCKET_NAME, connect_or_open};
use icecore::{Creation, OpenOptions, Pool};
use std::path::{Path, PathBuf};

fn new_pool() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pool");
    let options = icecore::InitOptions { segment_bytes: 2 << 20, ..icecore::InitOptions::default() };
    Pool::init_directory(&path, &options).unwrap();
    (folder, path)
}

fn open(path: &Path) -> Pool {
    Pool::open_directory(path, &OpenOptions::default()).unwrap()
}

#[test]
fn a_pool_opens_where_no_socket_can_be_made() {
    let (_folder, path) = new_pool();
    // Something that is no socket has taken its name, and cannot be removed as one.
    std::fs::create_dir(path.join(SOCKET_NAME)).unwrap();
    let pool = open(&path);
    let reason = pool.statistics().unreachable.expect("it says that no other process reaches it");
    assert!(reason.contains(SOCKET_NAME), "{reason}");
    pool.create_dataset("d", false, &[]).unwrap();
    let dataset = pool.dataset("d").unwrap();
    let file = dataset.open_or_create(b"f", &Creation::file()).unwrap();
    dataset.write(file, 0, b"hello").unwrap();
    dataset.sync().unwrap();
    drop(dataset);
    // A caller that asks from elsewhere learns which process has it, and does not wait for ever.
    let refused = connect_or_open(&path, true).unwrap_err().to_string();
    assert!(refused.contains("in use by"), "{refused}");
    pool.close().unwrap();
    std::fs::remove_dir(path.join(SOCKET_NAME)).unwrap();
    assert_eq!(open(&path).statistics().unreachable, None);
}

/// A connection to the pool's owner, as another process has one.
fn client(path: &Path) -> Access {
    let access = connect_or_open(path, true).unwrap();
    assert!(access.is_remote());
    access
}

#[test]
fn what_a_client_holds_does_not_keep_a_pool_open() {
    for drops_the_dataset_first in [true, false] {
        let (_folder, path) = new_pool();
        let pool = open(&path);
        pool.create_dataset("d", false, &[]).unwrap();
        let dataset = pool.dataset("d").unwrap();
        dataset.open_or_create(b"f", &Creation::file()).unwrap();
        let mut pinning = client(&path);
        let pinned = pinning.call(Request::Pin { path: b"d/f".to_vec() }).unwrap();
        assert!(matches!(pinned, Response::Pinned { .. }), "{pinned:?}");
        if drops_the_dataset_first {
            drop(dataset);
            drop(pool);
        } else {
            // Handles of the program itself do keep it open.
            drop(pool);
            assert!(matches!(client(&path).call(Request::Status), Ok(Response::Status(_))));
            drop(dataset);
        }
        assert!(Client::connect(&path).is_err());
        let read_only = OpenOptions { read_only: true, ..OpenOptions::default() };
        // Closed, and closed well: nothing is left to be recovered.
        Pool::open_directory(&path, &read_only).unwrap();
        pinning.call(Request::Status).unwrap_err();
    }
}
