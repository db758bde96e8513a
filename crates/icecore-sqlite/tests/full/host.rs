//! The filesystem under a pool is full, or its quota is: real ones, in mount namespaces of their own, so that
//! nothing is left behind whatever happens. Needs to be allowed to mount; says so where it is not.
//!
//! `tests/simulated/full.rs` of the simulator has the same on a simulated disk, always.

use crate::database::{Outcome, SEGMENT, Site, add};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// What the script answers when the machine does not allow it.
const NOT_HERE: i32 = 77;

/// Mounts `$1` and runs the rest of the command line there, all of it in a namespace that ends with it.
const TMPFS: &str = r#"
    mount -t tmpfs -o size=96m none "$1" || exit 77
    export ICECORE_TEST_LAST_BYTE=1
    shift; exec "$@""#;
const EXT4: &str = r#"
    truncate -s 112M "$1.image" && mkfs.ext4 -q "$1.image" || exit 77
    mount -o loop "$1.image" "$1" || exit 77
    export ICECORE_TEST_LAST_BYTE=1
    shift; exec "$@""#;
/// So much that copies begin sparse, before something else takes it.
const LARGE_TMPFS: &str = r#"
    mount -t tmpfs -o size=1300m none "$1" || exit 77
    shift; exec "$@""#;
/// A quota of the host, on a filesystem that has room. Not to the last byte: Btrfs counts what it writes
/// about files, too.
const BTRFS_QUOTA: &str = r#"
    truncate -s 512M "$1.image" && mkfs.btrfs -q "$1.image" || exit 77
    mount -o loop "$1.image" "$1" || exit 77
    btrfs subvolume create "$1/sub" && chattr +C "$1/sub" && btrfs quota enable "$1" || exit 77
    btrfs qgroup limit 96M "$1/sub" || exit 77
    ICECORE_TEST_HOST="$1/sub"
    shift; exec "$@""#;

/// Runs a process of this program on a filesystem that a script makes.
fn on(what: &str, script: &str, process: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("mounted");
    std::fs::create_dir(&place).expect("a directory");
    let this = std::env::current_exe().expect("this program");
    let shell = [OsStr::new("sh"), OsStr::new("-c"), OsStr::new(script), OsStr::new("sh"), place.as_os_str()];
    let outcome = Command::new("unshare")
        .args(["--mount", "--propagation", "private"])
        .args(shell)
        .arg(this)
        .args(["--exact", process, "--ignored", "--nocapture"])
        .env("ICECORE_TEST_HOST", &place)
        .output();
    let output = match outcome {
        Ok(output) => output,
        Err(error) => return eprintln!("left out: {what}: cannot run unshare: {error}"),
    };
    let said = String::from_utf8_lossy(&output.stderr);
    let is_allowed = output.status.code() != Some(NOT_HERE) && !said.starts_with("unshare:");
    if !is_allowed {
        return eprintln!("left out: {what}: it needs root and its tools: {}", said.trim());
    }
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{what}: {}\n{shown}\n{said}", output.status);
    assert!(shown.contains("1 passed"), "{shown}");
}

#[test]
fn a_full_tmpfs() {
    on("a full tmpfs", TMPFS, "host::host_process");
}

#[test]
fn a_full_ext4() {
    on("a full ext4", EXT4, "host::host_process");
}

#[test]
fn a_quota_of_btrfs() {
    on("a quota of btrfs", BTRFS_QUOTA, "host::host_process");
}

#[test]
fn a_medium_that_others_fill() {
    on("a large tmpfs", LARGE_TMPFS, "host::filled_process");
}

#[test]
fn a_medium_that_runs_short() {
    on("a large tmpfs", LARGE_TMPFS, "host::short_process");
}

/// Takes all that is left of the filesystem.
fn hog(path: &Path) {
    let mut file = std::fs::File::create(path).expect("a file");
    for size in [1 << 20, 4096, 1] {
        let bytes = vec![7; size];
        loop {
            match file.write_all(&bytes).and_then(|()| file.sync_data()) {
                Ok(()) => {}
                Err(error) if matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded) => {
                    break;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

/// Adds rows until there is no room.
fn fill(connection: &rusqlite::Connection, present: &mut u64) {
    while add(connection, *present, 20) == Outcome::Committed {
        *present += 20;
        assert!(*present < 10_000, "it never gets full");
    }
}

/// Not a test of its own: what is done on a small filesystem, in a process that has it to itself.
#[test]
#[ignore = "a process for other tests"]
fn host_process() {
    let Some(place) = std::env::var_os("ICECORE_TEST_HOST") else { return };
    let place = Path::new(&place);
    let [pool, ballast, other] = ["pool", "ballast", "other"].map(|name| place.join(name));
    std::fs::write(&ballast, vec![7; 24 << 20]).expect("a file of somebody else");
    let mut site = Site::make(&pool, None);
    let connection = site.connect();
    assert_eq!(add(&connection, 0, 400), Outcome::Committed);
    assert!(site.snapshot("first"));
    connection.execute_batch("DELETE FROM t WHERE id > 100; VACUUM").expect("there is much room");
    let mut present = 100;
    fill(&connection, &mut present);
    assert_eq!(site.rows(None), present);
    assert_eq!(site.rows(Some("first")), 400);
    site.administer();
    // That ends what is open on the database.
    drop(connection);
    site.go_back_and_forward("first", 400);
    let connection = site.connect();
    fill(&connection, &mut present);
    // Room is made in the pool: the same connection goes on, in the segments that there are.
    let segments = site.pool.statistics().segments;
    site.destroy(&["db@first".to_owned()]);
    let before = present;
    fill(&connection, &mut present);
    assert!(present >= before + 160, "{} rows, where 300 were destroyed", present - before);
    assert_eq!(site.pool.statistics().segments, segments);
    if std::env::var_os("ICECORE_TEST_LAST_BYTE").is_some() {
        hog(&other);
    }
    site.administer();
    fill(&connection, &mut present);
    assert_eq!(site.rows(None), present);
    // Closed and opened where nothing is left.
    drop(connection);
    site = site.check(&pool);
    assert_eq!(site.rows(None), present);
    site.administer();
    let connection = site.connect();
    fill(&connection, &mut present);
    // Others make room: the same process goes on.
    let _ = std::fs::remove_file(&other);
    std::fs::remove_file(&ballast).expect("removed");
    for _ in 0..15 {
        assert_eq!(add(&connection, present, 20), Outcome::Committed, "there is room on the host again");
        present += 20;
    }
    assert_eq!(site.rows(None), present);
    assert!(site.pool.statistics().segments > segments);
    site.administer();
    drop(connection);
    site.close();
}

/// Not a test of its own: copies are sparse while the filesystem has plenty of room, are allocated when it
/// has not, and outlive that it is full.
#[test]
#[ignore = "a process for other tests"]
fn filled_process() {
    let Some(place) = std::env::var_os("ICECORE_TEST_HOST") else { return };
    let place = Path::new(&place);
    let [pool, ballast, other] = ["pool", "ballast", "other"].map(|name| place.join(name));
    let site = Site::make(&pool, None);
    let copies = || -> BTreeMap<String, bool> {
        let entries = std::fs::read_dir(&pool).expect("a folder").map(|entry| entry.expect("an entry"));
        let of = entries.map(|entry| (entry.file_name().into_string().expect("a name"), entry.metadata()));
        let copies = of.filter(|(name, _)| name.starts_with("copy."));
        let is_sparse = |copy: Metadata| copy.blocks() * 512 < copy.len();
        copies.map(|(name, copy)| (name, is_sparse(copy.expect("a copy")))).collect()
    };
    let some_sparse = || copies().into_values().any(|is_sparse| is_sparse);
    let connection = site.connect();
    assert_eq!(add(&connection, 0, 400), Outcome::Committed);
    assert!(some_sparse(), "this filesystem allocated them whole, and nothing can be seen");
    std::fs::write(&ballast, vec![7; 400 << 20]).expect("a file of somebody else");
    let until = Instant::now() + Duration::from_secs(30);
    while some_sparse() {
        assert!(Instant::now() < until, "copies are sparse though the filesystem has no plenty of room");
        std::thread::sleep(Duration::from_millis(50));
    }
    let before = copies();
    hog(&other);
    assert_eq!(add(&connection, 400, 20), Outcome::Committed);
    let after = copies();
    assert!(before.keys().all(|name| after.contains_key(name)), "{before:?}, then {after:?}");
    drop(connection);
    site.close();
}

/// Not a test of its own: a pool that is mostly free keeps its segments for the next minutes, until the
/// filesystem under it has less than one part in fifty left.
#[test]
#[ignore = "a process for other tests"]
fn short_process() {
    const MIB: u64 = 1 << 20;
    let Some(place) = std::env::var_os("ICECORE_TEST_HOST") else { return };
    let place = Path::new(&place);
    let site = Site::make(&place.join("pool"), None);
    let connection = site.connect();
    assert_eq!(add(&connection, 0, 40), Outcome::Committed);
    let other = site.pool.dataset("other").expect("the dataset");
    let file = other.open_or_create(b"gone", &icecore::Creation::file()).expect("a file");
    for at in 0..200 {
        other.write(file, at * MIB, &vec![7; MIB as usize]).expect("a write");
    }
    other.unlink(icecore::units::InodeNumber::ROOT, b"gone").expect("removed");
    site.pool.checkpoint().expect("a checkpoint");
    let segments = || site.pool.statistics().segments;
    std::thread::sleep(Duration::from_secs(3));
    let before = segments();
    assert!(before * SEGMENT > 150 * MIB, "{before} segments, where 200 MiB were written a moment ago");
    let mut ballast = std::fs::File::create(place.join("ballast")).expect("a file of somebody else");
    let free = || {
        let status = rustix::fs::statvfs(place).expect("figures of the filesystem");
        status.f_bavail * status.f_frsize
    };
    while free() > 20 * MIB {
        ballast.write_all(&vec![7; MIB as usize]).expect("there is room");
    }
    let until = Instant::now() + Duration::from_secs(30);
    // Segments are given back one after the other: the first look may come between two of them.
    while free() < 100 * MIB || segments() >= before / 2 {
        assert!(Instant::now() < until, "{} segments of {before} are kept", segments());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(site.rows(None), 40);
    drop(connection);
    site.check(&place.join("pool")).close();
}
