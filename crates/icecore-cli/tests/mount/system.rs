//! Mounts as the system makes and ends them: mount(8), fstab, signals, and what it lacks or forbids.

use crate::fixture::{FORGET_OTHER_MOUNTS, Fixture, can_mount};
use crate::install::install;
use rustix::process::{Signal, kill_process};
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A shell script in mounts of its own, which must end within a minute. Whatever it leaves mounted on `mnt`
/// goes when it ends.
fn apart(fixture: &Fixture, script: &str) -> Output {
    let helper = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/mount/mount.fuse.icecore");
    let script = format!("{FORGET_OTHER_MOUNTS}trap 'umount -l mnt 2>/dev/null || true' EXIT\n{script}");
    Command::new("timeout")
        .args(["60", "unshare", "--mount", "sh", "-ec", &script])
        .env("ICECORE", assert_cmd::cargo::cargo_bin("icecore"))
        .env("HELPER", helper.canonicalize().unwrap())
        .env("POOL", fixture.pool())
        .env_remove("ICECORE_POOL")
        .current_dir(fixture.folder.path())
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The folder of mount's helpers is replaced by one of links, with the helper and the program among them.
const INSTALL: &str = r#"
sbin=$(realpath /sbin)
mkdir -p sbin
mount --bind "$sbin" sbin
mount -t tmpfs none "$sbin"
ln -s "$PWD"/sbin/* "$sbin"
install -m 755 "$HELPER" "$sbin/mount.fuse.icecore"
ln -s "$ICECORE" "$sbin/icecore"
"#;

#[test]
fn mount_and_fstab_find_the_installed_helper() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let output = apart(
        &fixture,
        &format!(
            r#"{INSTALL}
            mount -t fuse.icecore -o noatime "$POOL/db" mnt
            findmnt -n -o FSTYPE mnt
            echo by-type >mnt/f
            icecore umount mnt
            echo "$POOL/db $PWD/mnt fuse.icecore nofail,ro,log=$PWD/log 0 0" >fstab
            mount --fstab fstab --target "$PWD/mnt"
            cat mnt/f
            if echo x 2>/dev/null >mnt/g; then echo written; fi
            umount mnt
            while ! icecore umount mnt 2>&1 | grep -q nothing; do sleep 0.1; done
            echo "$POOL/db@none $PWD/mnt fuse.icecore defaults 0 0" >fstab
            if mount --fstab fstab "$PWD/mnt"; then echo mounted; fi
            ls log
            "#
        ),
    );
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = printed.lines().collect();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(lines, ["fuse.icecore", "by-type", "log"]);
    assert!(said(&output).contains("db@none"), "{output:?}");
    assert_eq!(fixture.done(&["cat", "db/f"]), "by-type\n");
}

#[test]
fn a_mount_that_only_reads_refuses_writes_and_lets_others_read() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fixture.mount();
    fs::write(fixture.path("db/f"), "x").unwrap();
    fixture.unmount();
    fixture.done(&["mount", "--read-only", "db", "mnt"]);
    let refused = fs::write(fixture.path("f"), "y").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert_eq!(fs::read_to_string(fixture.path("f")).unwrap(), "x");
    assert_eq!(fixture.done(&["cat", "db/f"]), "x");
    fixture.unmount();
}

/// SIGTERM to the process in the background, while a program has a file open. The mount is out of sight, and
/// the program may finish. Then the process ends and everything is there.
#[test]
fn a_signal_ends_a_mount_in_the_background_when_its_files_are_closed() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fixture.mount();
    let mut file = fs::File::create(fixture.path("db/f")).unwrap();
    file.write_all(b"before ").unwrap();
    let owner = fixture.owner();
    let process = rustix::process::pidfd_open(owner, rustix::process::PidfdFlags::empty()).unwrap();
    kill_process(owner, Signal::TERM).unwrap();
    let began = Instant::now();
    while fs::read_dir(fixture.mount_point()).unwrap().next().is_some() {
        assert!(began.elapsed() < Duration::from_secs(20), "the mount stays in sight");
        std::thread::sleep(Duration::from_millis(20));
    }
    file.write_all(b"after").unwrap();
    drop(file);
    let mut polled = [rustix::event::PollFd::new(&process, rustix::event::PollFlags::IN)];
    let patience = rustix::time::Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut polled, Some(&patience)).unwrap(), 1, "the process does not end");
    assert_eq!(fixture.done(&["cat", "db/f"]), "before after");
}

#[test]
fn a_missing_device_or_right_is_named_with_the_way_out() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let without_device = r#"
        touch null && mount --bind /dev/null null && mount -t tmpfs none /dev
        touch /dev/null && mount --bind null /dev/null
        exec "$ICECORE" mount "$POOL/db" mnt"#;
    let output = apart(&fixture, without_device);
    assert!(
        said(&output).contains("there is no /dev/fuse: load the module with `modprobe fuse`"),
        "{output:?}"
    );
    let without_right = r#"exec setpriv --bounding-set=-sys_admin "$ICECORE" mount "$POOL/db" mnt"#;
    let output = apart(&fixture, without_right);
    assert!(said(&output).contains("it lacks CAP_SYS_ADMIN"), "{output:?}");
    let another_user =
        r#"exec setpriv --reuid=nobody --regid=nogroup --clear-groups ./icecore mount "$POOL/db" mnt"#;
    copy_program(&fixture);
    let output = apart(&fixture, another_user);
    assert!(said(&output).contains("mount it as the user who owns it, or as root"), "{output:?}");
    assert_eq!(fs::read_dir(fixture.mount_point()).unwrap().count(), 0);
    fixture.done(&["check"]);
}

/// The program may be in a folder that only root may enter.
fn copy_program(fixture: &Fixture) {
    install(assert_cmd::cargo::cargo_bin("icecore"), &fixture.folder.path().join("icecore"));
}

#[test]
fn another_user_than_root_mounts_with_the_helper() {
    if !can_mount() {
        return;
    }
    if Command::new("fusermount3").arg("--version").output().is_err() {
        return eprintln!("left out: other users than root need fusermount3");
    }
    let fixture = Fixture::new();
    copy_program(&fixture);
    let (uid, gid) = crate::server::ids("nobody");
    for folder in [fixture.folder.path(), &fixture.mount_point()] {
        chown(folder, Some(uid), Some(gid)).unwrap();
    }
    let refused = apart(&fixture, &as_nobody(0o600));
    assert!(said(&refused).contains("chmod 666 /dev/fuse"), "{refused:?}");
    fs::remove_dir_all(fixture.folder.path().join("own")).unwrap();
    let output = apart(&fixture, &as_nobody(0o666));
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "mine\nnobody\nmine\n");
}

/// A script that mounts and uses a pool as another user, with a device of this mode.
fn as_nobody(mode: u32) -> String {
    let commands = r#"
        trap "fusermount3 -u -z mnt 2>/dev/null || true" EXIT
        ./icecore init own && ./icecore create own/db
        ./icecore mount own/db mnt
        echo mine >mnt/f
        ./icecore snapshot own/db@one
        cat mnt/.icecore/snapshots/one/f
        stat -c %U mnt/f
        ./icecore umount mnt
        ./icecore cat own/db/f"#;
    format!(
        "mkdir -p dev && mount -t tmpfs none dev && mknod -m {mode:o} dev/fuse c 10 229 && mount --bind dev/fuse /dev/fuse
        setpriv --reuid=nobody --regid=nogroup --clear-groups sh -ec '{commands}'"
    )
}
