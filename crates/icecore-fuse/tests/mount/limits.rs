//! Full pools and quotas.

use crate::fixture::{Fixture, can_mount, number};
use icecore::admin::Request;
use icecore::units::ByteLength;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;

/// Writes until it is refused; answers how much was written, and the number of the error.
fn fill(file: &File) -> (u64, i32) {
    let data = vec![7; 256 << 10];
    for at in (0..).step_by(data.len()) {
        if let Err(error) = file.write_all_at(&data, at) {
            return (at, error.raw_os_error().unwrap());
        }
    }
    unreachable!("the pool has a limit")
}

#[test]
fn a_full_pool_refuses_and_goes_on_when_there_is_room() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::with_limit(Some(ByteLength(64 << 20)));
    let room = rustix::fs::statvfs(fixture.path(".")).unwrap();
    assert!(room.f_bavail * room.f_frsize <= 64 << 20);
    let file = File::create(fixture.path("f")).unwrap();
    let (written, error) = fill(&file);
    assert_eq!(error, libc::ENOSPC);
    assert!(written > 16 << 20, "{written}");
    file.sync_all().unwrap();
    let mut byte = [0];
    File::open(fixture.path("f")).unwrap().read_exact_at(&mut byte, written - 1).unwrap();
    assert_eq!(byte, [7]);
    assert_eq!(
        number(
            rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 1 << 30,)
                .map_err(std::io::Error::from)
        ),
        libc::ENOSPC
    );
    drop(file);
    fs::remove_file(fixture.path("f")).unwrap();
    let again = File::create(fixture.path("g")).unwrap();
    again.write_all_at(&vec![8; 8 << 20], 0).unwrap();
    again.sync_all().unwrap();
}

#[test]
fn a_quota_is_what_statfs_shows() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let value = (8 << 20).to_string();
    fixture.ask(Request::SetProperty { name: "db".into(), key: "quota".into(), value }).unwrap();
    let room = rustix::fs::statvfs(fixture.path(".")).unwrap();
    assert!(room.f_blocks * room.f_frsize <= 8 << 20);
    assert!(room.f_bavail * room.f_frsize > 7 << 20);
    let file = File::create(fixture.path("f")).unwrap();
    let (written, error) = fill(&file);
    assert_eq!(error, libc::EDQUOT);
    assert!((6 << 20..=8 << 20).contains(&written), "{written}");
    let room = rustix::fs::statvfs(fixture.path(".")).unwrap();
    assert!(room.f_bavail * room.f_frsize < 1 << 20);
}

#[test]
fn a_snapshot_that_was_looked_at_keeps_no_space() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::with_limit(Some(ByteLength(96 << 20)));
    let file = File::create(fixture.path("f")).unwrap();
    file.write_all_at(&vec![1; 4 << 20], 0).unwrap();
    fixture.snapshot("db@one");
    let seen = fs::read(fixture.path(".icecore/snapshots/one/f")).unwrap();
    assert!(seen.len() == 4 << 20 && fs::read_dir(fixture.path(".icecore/snapshots")).unwrap().count() == 1);
    // What is overwritten has to be freed while the mount lives, many times the size of the pool.
    for round in 0..100 {
        file.write_all_at(&vec![round; 4 << 20], 0).unwrap();
    }
    assert!(fs::read(fixture.path(".icecore/snapshots/one/f")).unwrap() == seen);
}
