//! What a snapshot has, and what a kill leaves.

use crate::fixture::{Fixture, can_mount};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

fn counter(file: &File) -> u64 {
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0).unwrap();
    u64::from_le_bytes(bytes)
}

/// A writer counts in one dataset and then in another. No recursive snapshot has the second count before the
/// first.
#[test]
fn a_recursive_snapshot_is_one_moment_of_all_datasets() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fixture.done(&["create", "db/a"]);
    fixture.done(&["create", "db/b"]);
    fixture.mount();
    let files = ["db/a/count", "db/b/count"].map(|path| {
        let file = File::create(fixture.path(path)).unwrap();
        file.write_all_at(&[0; 8], 0).unwrap();
        file
    });
    let stop = AtomicBool::new(false);
    let counts: Vec<[u64; 2]> = std::thread::scope(|scope| {
        scope.spawn(|| {
            for count in 1_u64.. {
                for file in &files {
                    file.write_all_at(&count.to_le_bytes(), 0).unwrap();
                }
                if stop.load(Ordering::SeqCst) {
                    break;
                }
            }
        });
        let _stop = StopAtEnd(&stop);
        let of_snapshot = |number: u32| {
            fixture.done(&["snapshot", "-r", &format!("db@{number}")]);
            ["a", "b"].map(|dataset| {
                let path = format!("db/{dataset}/.icecore/snapshots/{number}/count");
                counter(&File::open(fixture.path(&path)).unwrap())
            })
        };
        (0..60).map(of_snapshot).collect()
    });
    for [first, second] in &counts {
        assert!(first == second || *first == second + 1, "{counts:?}");
    }
    assert!(counts[59][0] > counts[0][0] + 60, "the writer stood still: {counts:?}");
}

/// Ends a thread also if what runs beside it fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A write that is synchronous has not waited for another one to make it durable: the process is killed right
/// after it.
#[test]
fn a_synchronous_write_survives_a_kill() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let ways = [libc::O_DSYNC, libc::O_SYNC, libc::O_DSYNC | libc::O_DIRECT, libc::O_SYNC | libc::O_APPEND];
    let data: Vec<u8> = (0..3 * 4096_u32).map(|byte| (byte % 251) as u8).collect();
    for (number, flags) in ways.into_iter().enumerate() {
        if number == 0 {
            fixture.mount();
        } else {
            fixture.mount_again();
        }
        let owner = fixture.owner();
        let name = format!("db/{number}");
        let written = write_synchronously(&fixture.path(&name), flags, &data);
        Fixture::kill(owner);
        written.unwrap();
    }
    fixture.mount_again();
    for number in 0..ways.len() {
        let found = fs::read(fixture.path(&format!("db/{number}"))).unwrap();
        assert!(found == data, "way {number}: {} bytes", found.len());
    }
}

fn write_synchronously(path: &Path, flags: i32, data: &[u8]) -> std::io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).custom_flags(flags).open(path)?;
    file.write_all_at(data, 0)
}

const LOCK: &str = "
import fcntl, sys
file = open(sys.argv[1], 'r+')
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, int(sys.argv[2]))
except OSError as error:
    sys.exit(error.errno)
print('locked', flush=True)
sys.stdin.read()
";

/// Another process that tries to lock ten bytes of a file (lockf(3), a lock of the process), and holds them
/// until its input ends.
fn lock(path: &Path, start: u64) -> std::process::Child {
    use std::process::{Command, Stdio};
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", LOCK]).arg(path).arg(start.to_string());
    python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap()
}

fn holds(child: &mut std::process::Child) -> bool {
    use std::io::BufRead as _;
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    line == "locked\n"
}

#[test]
fn locks_of_processes_exclude_each_other_and_end_with_them() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fixture.mount();
    let path = fixture.path("db/f");
    fs::write(&path, [0; 100]).unwrap();
    let mut one = lock(&path, 0);
    assert!(holds(&mut one));
    let mut beside = lock(&path, 10);
    assert!(holds(&mut beside), "ranges that do not meet");
    let mut refused = lock(&path, 5);
    assert!(!holds(&mut refused));
    assert_eq!(refused.wait().unwrap().code(), Some(libc::EAGAIN));
    // A lock ends with its process, however that ends.
    one.kill().unwrap();
    one.wait().unwrap();
    drop(beside.stdin.take());
    assert!(beside.wait().unwrap().success());
    let mut next = lock(&path, 5);
    assert!(holds(&mut next));
    drop(next.stdin.take());
    assert!(next.wait().unwrap().success());
}
