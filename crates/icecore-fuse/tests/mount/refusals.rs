//! Mounts that cannot be.

use crate::fixture::{Fixture, Mount, can_mount};
use icecore_fuse::MountOptions;
use std::fs;

#[test]
fn a_mount_that_cannot_be_says_why_and_leaves_nothing() {
    if !can_mount() {
        return;
    }
    let mut fixture = Fixture::unmounted(None);
    let refused = |options: MountOptions| match Mount::start(options) {
        Ok(_) => panic!("it was mounted"),
        Err(error) => error.to_string(),
    };
    let missing = refused(fixture.options(Some("other")));
    assert!(missing.contains("other"), "{missing}");
    let missing = refused(fixture.options(Some("db@other")));
    assert!(missing.contains("db@other"), "{missing}");
    let options = fixture.options(Some("db"));
    let elsewhere = MountOptions { point: fixture.folder.path().join("nowhere"), ..options.clone() };
    assert!(refused(elsewhere).contains("mkdir"));
    let no_pool = MountOptions { pool: fixture.folder.path().join("mnt"), ..options.clone() };
    assert!(refused(no_pool).contains("not an icecore pool"));

    fixture.mount(Some("db"));
    assert!(refused(options.clone()).contains("already"));
    let second = fixture.folder.path().join("second");
    fs::create_dir(&second).unwrap();
    let in_use = refused(MountOptions { point: second, ..options.clone() });
    assert!(in_use.contains("in use"), "{in_use}");
    fixture.unmount();
    fs::write(fixture.folder.path().join("mnt/file"), "").unwrap();
    assert!(refused(options).contains("is not empty"));
}

#[test]
fn several_may_read_one_pool() {
    if !can_mount() {
        return;
    }
    let mut fixture = Fixture::new();
    fs::write(fixture.path("f"), "x").unwrap();
    fixture.unmount();
    let second = fixture.folder.path().join("second");
    fs::create_dir(&second).unwrap();
    let options = MountOptions { read_only: true, ..fixture.options(Some("db")) };
    let one = Mount::start(options.clone()).unwrap();
    let other = Mount::start(MountOptions { point: second, ..options }).unwrap();
    for mount in [&one, &other] {
        assert_eq!(fs::read_to_string(mount.root.join("f")).unwrap(), "x");
        let refused = fs::write(mount.root.join("f"), "y").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    }
    one.end().unwrap();
    other.end().unwrap();
}

#[test]
fn a_mount_that_is_taken_away_by_others_closes_the_pool() {
    if !can_mount() {
        return;
    }
    let mut fixture = Fixture::new();
    fs::write(fixture.path("f"), "x").unwrap();
    let status = std::process::Command::new("umount").arg(fixture.path(".")).status().unwrap();
    assert!(status.success());
    let began = std::time::Instant::now();
    // It ends by itself: what owns the pool is this process, which could not open it otherwise.
    loop {
        match icecore::Pool::open_directory(&fixture.pool(), &icecore::OpenOptions::default()) {
            Ok(pool) => break pool.close().unwrap(),
            Err(error) => assert!(began.elapsed().as_secs() < 20, "{error}"),
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    fixture.unmount();
}

#[test]
fn files_closed_right_before_the_mount_goes_do_no_harm() {
    if !can_mount() {
        return;
    }
    let mut fixture = Fixture::new();
    const FILES: u32 = 800;
    for name in 0..FILES {
        fs::write(fixture.path(&name.to_string()), "x").unwrap();
    }
    for _ in 0..30 {
        // The kernel lets close(2) return before it sends the request for it.
        let open: Vec<_> =
            (0..FILES).map(|name| fs::File::open(fixture.path(&name.to_string())).unwrap()).collect();
        drop(open);
        icecore_fuse::mounting::unmount(&fixture.path("")).unwrap();
        fixture.unmount();
        fixture.mount(Some("db"));
    }
}
