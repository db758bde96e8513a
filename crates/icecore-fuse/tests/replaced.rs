//! A file that a rename replaces, for a program that has found it by its name and opens it after that.

use icecore::{InitOptions, OpenOptions, Pool};
use icecore_fuse::filesystem::StoreFileSystem;
use icecore_fuse::protocol::{Caller, FileSystem as _, HandleId, NodeId, RenameHow};
use std::time::{Duration, Instant};

const ROOT: Caller = Caller { uid: 0, gid: 0 };

fn make(filesystem: &StoreFileSystem, name: &[u8]) -> HandleId {
    let (_, opened) = filesystem.create(ROOT, NodeId::ROOT, name, 0o644, libc::O_RDWR).unwrap();
    opened.handle
}

#[test]
fn what_was_found_by_its_name_can_be_opened_after_it_was_replaced() {
    let folder = tempfile::tempdir().unwrap();
    Pool::init_directory(folder.path(), &InitOptions::default()).unwrap();
    let pool = Pool::open_directory(folder.path(), &OpenOptions::default()).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    let dataset = pool.dataset("db").unwrap();
    let filesystem = StoreFileSystem::new(pool.clone(), Some("db"), "a test", false, true).unwrap();

    for name in [&b"state"[..], b"new"] {
        let handle = make(&filesystem, name);
        filesystem.release(handle);
    }
    let found = filesystem.lookup(NodeId::ROOT, b"state").unwrap();
    let inode = dataset.view().unwrap().resolve(b"state").unwrap().unwrap();
    dataset.write(inode, 0, b"old").unwrap();
    filesystem.rename((NodeId::ROOT, b"new"), (NodeId::ROOT, b"state"), RenameHow::Replace).unwrap();

    let opened = filesystem.open(found.attributes.node, libc::O_RDONLY).unwrap();
    let mut contents = [0; 8];
    assert_eq!(filesystem.read(opened.handle, 0, &mut contents).unwrap(), 3);
    assert_eq!(&contents[..3], b"old");
    filesystem.release(opened.handle);

    // It is freed a second later, with nothing else to make it so.
    let deadline = Instant::now() + Duration::from_secs(60);
    while dataset.view().unwrap().attributes(inode).is_ok() {
        assert!(Instant::now() < deadline, "a file that was replaced is never freed");
        std::thread::sleep(Duration::from_millis(50));
    }
    filesystem.detach();
    pool.close().unwrap();
}
