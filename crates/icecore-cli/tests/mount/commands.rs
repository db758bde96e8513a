//! The commands themselves.

use crate::fixture::{Fixture, can_mount, program};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_mount_goes_into_the_background_and_comes_back() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fixture.done(&["mount", "db", "mnt"]);
    fs::write(fixture.path("f"), "x").unwrap();
    fixture.done(&["snapshot", "db@one"]);
    assert_eq!(fixture.done(&["cat", "db@one/f"]), "x");
    let (code, again) = fixture.refused(&["mount", "db", "mnt"]);
    assert!(code == 1 && again.contains("already"), "{again}");
    let busy = fs::File::open(fixture.path("f")).unwrap();
    let (_, refused) = fixture.refused(&["umount", "mnt"]);
    assert!(refused.contains("is in use"), "{refused}");
    drop(busy);
    fixture.unmount();
    // The pool is closed by now: this opens it.
    assert_eq!(fixture.done(&["cat", "db/f"]), "x");
    let (_, refused) = fixture.refused(&["umount", "mnt"]);
    assert!(refused.contains("nothing of icecore is mounted"), "{refused}");
}

#[test]
fn the_kernel_reads_ahead_by_the_largest_request() {
    if !can_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let fixture = Fixture::new();
    fixture.mount();
    let point = fs::canonicalize(fixture.mount_point()).unwrap();
    let mount = icecore_fuse::mounting::mounted_at(&point).unwrap().unwrap();
    let read_ahead = fs::read_to_string(format!("/sys/class/bdi/{}/read_ahead_kb", mount.device)).unwrap();
    assert_eq!(read_ahead.trim(), "1024");
}

#[test]
fn what_keeps_a_mount_from_being_made_is_said_by_the_command() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let (_, refused) = fixture.refused(&["mount", "other", "mnt"]);
    assert!(refused.contains("other"), "{refused}");
    let (_, refused) = fixture.refused(&["mount", "db", "missing"]);
    assert!(refused.contains("mkdir"), "{refused}");
    let (code, refused) = fixture.refused(&["mount", "-o", "nonempty", "db", "mnt"]);
    assert!(code == 2 && refused.contains("nonempty"), "{refused}");
    fs::write(fixture.path("file"), "").unwrap();
    let (_, refused) = fixture.refused(&["mount", "db", "mnt"]);
    assert!(refused.contains("is not empty"), "{refused}");
    fs::remove_file(fixture.path("file")).unwrap();
}

#[test]
fn no_copies_lie_on_a_mount_of_their_own_pool() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fixture.mount();
    let (_, refused) = fixture.refused(&["copies", "--set", "all", "--mirror", "mnt/db/copies"]);
    assert!(refused.contains("on a mount of the pool itself"), "{refused}");
    assert!(!fixture.path("db/copies").exists(), "the folder was made for nothing");
    fixture.done(&["copies", "--set", "all", "--mirror", "copies"]);
}

#[test]
fn a_mount_in_the_foreground_ends_with_a_signal() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let mut child = program()
        .args(["mount", "-f", "-P"])
        .arg(fixture.pool())
        .arg("db")
        .arg(fixture.mount_point())
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let began = std::time::Instant::now();
    while fs::metadata(fixture.path(".icecore")).is_err() {
        assert!(began.elapsed().as_secs() < 30);
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    fs::write(fixture.path("f"), "x").unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(fixture.done(&["cat", "db/f"]), "x");
}

#[test]
fn a_stale_mount_is_mounted_over() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fixture.mount();
    fs::write(fixture.path("db/f"), "durable").unwrap();
    fs::File::open(fixture.path("db/f")).unwrap().sync_all().unwrap();
    fixture.kill_owner();
    assert_eq!(fs::metadata(fixture.mount_point()).unwrap_err().raw_os_error(), Some(libc::ENOTCONN));
    fixture.mount_again();
    assert_eq!(fs::read_to_string(fixture.path("db/f")).unwrap(), "durable");
    fixture.kill_owner();
    fixture.unmount();
    assert!(fs::read_dir(fixture.mount_point()).unwrap().next().is_none());
}

#[test]
fn mount_finds_its_helper() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/mount/mount.fuse.icecore");
    let source = fixture.pool().join("db");
    let program = assert_cmd::cargo::cargo_bin("icecore");
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let run = |options: &str| {
        let mut command = Command::new(&helper);
        command.arg(&source).arg(fixture.mount_point()).args(["-n", "-o", options]).env("PATH", &path);
        command.output().unwrap()
    };
    let output = run("ro,noatime,_netdev");
    assert!(output.status.success(), "{output:?}");
    let refused = fs::write(fixture.path("f"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert!(Command::new("umount").arg(fixture.mount_point()).status().unwrap().success());
    let output = run("nonsense");
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("nonsense"));
}

#[test]
fn systemd_understands_the_unit_of_a_mount() {
    let unit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/mount/icecore-mount@.service");
    let text = fs::read_to_string(unit).unwrap();
    let program = assert_cmd::cargo::cargo_bin("icecore");
    let verified = |text: &str| {
        let place = tempfile::tempdir().unwrap();
        let instance = place.path().join("icecore-mount@mnt-db.service");
        fs::write(&instance, text.replace("/usr/bin/icecore", program.to_str().unwrap())).unwrap();
        let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(instance).output()?;
        // Units of this machine are another affair.
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok::<_, std::io::Error>(!said.lines().any(|line| line.contains("icecore-mount")))
    };
    match verified(&text) {
        Ok(fine) => assert!(fine),
        Err(error) => return eprintln!("left out: the unit of systemd: cannot run systemd-analyze: {error}"),
    }
    assert!(!verified(&text.replace("Type=forking", "Type=forked")).unwrap());
}
