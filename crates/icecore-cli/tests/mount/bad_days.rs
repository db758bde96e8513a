//! What should not happen, and does.

use crate::fixture::{Fixture, can_mount, program};
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A shell command that must end within a minute.
fn shell(fixture: &Fixture, script: &str) -> Output {
    let icecore = assert_cmd::cargo::cargo_bin("icecore");
    Command::new("timeout")
        .args(["60", "sh", "-c", script])
        .env("ICECORE", icecore)
        .env("ICECORE_POOL", fixture.pool())
        .current_dir(fixture.folder.path())
        .output()
        .unwrap()
}

fn number<T>(outcome: std::io::Result<T>) -> Option<i32> {
    outcome.err().and_then(|error| error.raw_os_error())
}

/// The pool is on a file system that goes away: another mount, whose process is killed.
#[test]
fn a_pool_that_fails_is_an_error_once_and_read_only_after_that() {
    if !can_mount() {
        return;
    }
    let below = Fixture::new();
    below.mount();
    let (pool, point) = (below.path("db/pool"), below.folder.path().join("upper"));
    let log = below.folder.path().join("log");
    fs::create_dir(&point).unwrap();
    let icecore = |arguments: &[&std::ffi::OsStr]| {
        let output = program().args(arguments).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    icecore(&["init".as_ref(), pool.as_ref()]);
    icecore(&["-P".as_ref(), pool.as_ref(), "create".as_ref(), "db".as_ref()]);
    let option = format!("log={}", log.display());
    icecore(&["mount".as_ref(), "-o".as_ref(), option.as_ref(), pool.join("db").as_ref(), point.as_ref()]);
    let upper = Upper(&point);
    let file = File::create(point.join("f")).unwrap();
    file.write_all_at(b"durable", 0).unwrap();
    file.sync_all().unwrap();
    below.kill_owner();

    let data = vec![1; 100_000];
    let mut numbers = Vec::new();
    for round in 0..20 {
        numbers.extend(number(file.write_all_at(&data, round * 100_000).and_then(|()| file.sync_all())));
    }
    numbers.extend(number(fs::create_dir(point.join("d"))));
    numbers.extend(number(fs::remove_file(point.join("f"))));
    let mut expected = vec![libc::EROFS; numbers.len()];
    expected[0] = libc::EIO;
    assert_eq!((numbers.len(), &numbers), (22, &expected));
    drop(file);
    drop(upper);
    let said = fs::read_to_string(&log).unwrap();
    // While it was served: what closes the pool says it again, and what else fails on such a disk is said for
    // itself.
    let is_served = |line: &&str| line.starts_with("icecore mount: ") && line.contains("cannot write");
    let lines: Vec<&str> = said.lines().filter(is_served).collect();
    assert!(lines.len() == 1 && lines[0].contains("pool is read-only since a failure"), "{said}");
}

/// Takes the upper mount away before that which it is on.
struct Upper<'a>(&'a Path);

impl Drop for Upper<'_> {
    fn drop(&mut self) {
        // It is in use by nothing; its pool cannot be closed in good order.
        let _ = Command::new("timeout").args(["20", "umount"]).arg(self.0).output();
        let _ = Command::new("umount").arg("-l").arg(self.0).output();
    }
}

#[test]
fn a_small_limit_of_open_files_is_no_limit_of_files_on_the_mount() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    // Too few for a mount at all: it says so, and leaves nothing.
    for files in [10, 14, 16, 18, 63] {
        let output = shell(&fixture, &format!(r#"ulimit -n {files}; "$ICECORE" mount "$ICECORE_POOL" mnt"#));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_clear =
            said.contains("a mount needs 64") || said.to_lowercase().contains("too many open files");
        assert!(!output.status.success() && is_clear, "{files}: {output:?}");
        assert!(fs::read_dir(fixture.mount_point()).unwrap().next().is_none());
    }

    let output = shell(&fixture, r#"ulimit -n 64; "$ICECORE" mount "$ICECORE_POOL" mnt"#);
    assert!(output.status.success(), "{output:?}");
    let mut files: Vec<File> = Vec::new();
    for number in 0..500 {
        let mut file = File::create(fixture.path(&format!("db/{number}"))).unwrap();
        file.write_all(&[number as u8; 5000]).unwrap();
        files.push(file);
    }
    files[0].sync_all().unwrap();
    // More connections at once than there are descriptors: some may be refused, and none harms the mount.
    std::thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| fixture.run(&["list"]));
        }
    });
    fixture.done(&["snapshot", "db@s"]);
    for (number, file) in files.iter().enumerate() {
        let mut byte = [0];
        File::open(fixture.path(&format!("db/{number}"))).unwrap().read_exact_at(&mut byte, 4999).unwrap();
        assert_eq!(byte, [number as u8]);
        file.write_all_at(b"x", 0).unwrap();
    }
    drop(files);
    fixture.unmount();
    fixture.done(&["scrub"]);
}

#[test]
fn a_folder_that_is_removed_underneath_ends_the_mount() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fixture.mount();
    fs::write(fixture.path("db/f"), "kept").unwrap();
    assert_eq!(number(fs::remove_dir(fixture.mount_point())), Some(libc::EBUSY));
    // Where it is not mounted, it is an empty folder; with it goes what is mounted on it elsewhere.
    let output = shell(&fixture, "unshare --mount sh -c 'umount mnt && rmdir mnt'");
    assert!(output.status.success(), "{output:?}");
    assert!(!fixture.mount_point().exists());
    let began = Instant::now();
    // The mount closes the pool and ends.
    while fixture.done(&["status", "--json"]).contains("\"owner\":") && !is_free(&fixture) {
        assert!(began.elapsed() < Duration::from_secs(20), "the pool is still owned");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(fixture.done(&["cat", "db/f"]), "kept");
    fs::create_dir(fixture.mount_point()).unwrap();
    fixture.mount();
    assert_eq!(fs::read_to_string(fixture.path("db/f")).unwrap(), "kept");
}

fn is_free(fixture: &Fixture) -> bool {
    let status: serde_json::Value = serde_json::from_str(&fixture.done(&["status", "--json"])).unwrap();
    status["owner"].is_null()
}

#[test]
fn a_folder_whose_parent_is_renamed_stays_mounted() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.folder.path().join("one/mnt")).unwrap();
    let pool = fixture.pool();
    fixture.done(&["mount", pool.to_str().unwrap(), "one/mnt"]);
    fs::rename(fixture.folder.path().join("one"), fixture.folder.path().join("two")).unwrap();
    let moved = fixture.folder.path().join("two/mnt");
    fs::write(moved.join("db/f"), "kept").unwrap();
    let unmounted = fixture.run(&["umount", "two/mnt"]);
    let _ = Command::new("umount").arg("-l").arg(&moved).output();
    assert!(unmounted.status.success(), "{unmounted:?}");
    assert_eq!(fixture.done(&["cat", "db/f"]), "kept");
}
