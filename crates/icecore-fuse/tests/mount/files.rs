//! Names, kinds of files, attributes.

use crate::fixture::{Fixture, Mount, can_mount, number};
use icecore_fuse::MountOptions;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    XattrFlags,
};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::process::Command;

#[test]
fn names_come_and_go() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let at = |name: &str| fixture.path(name);
    fs::write(at("a"), "one").unwrap();
    fs::hard_link(at("a"), at("b")).unwrap();
    assert_eq!(fs::metadata(at("a")).unwrap().nlink(), 2);
    fs::remove_file(at("a")).unwrap();
    assert_eq!(fs::metadata(at("b")).unwrap().nlink(), 1);
    symlink("b", at("link")).unwrap();
    assert_eq!(fs::read_link(at("link")).unwrap().as_os_str(), "b");
    assert_eq!(fs::read(at("link")).unwrap(), b"one");
    assert_eq!(number(fs::hard_link(at("."), at("c"))), libc::EPERM);
    fs::create_dir(at("d")).unwrap();
    fs::write(at("d/e"), "two").unwrap();
    assert_eq!(number(fs::remove_dir(at("d"))), libc::ENOTEMPTY);
    assert_eq!(number(fs::remove_file(at("d"))), libc::EISDIR);
    assert_eq!(number(fs::rename(at("d"), at("d/inside"))), libc::EINVAL);
    assert_eq!(fs::metadata(at(".")).unwrap().nlink(), 3);

    let swap = |from: &str, to: &str, flags| {
        rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags).map_err(std::io::Error::from)
    };
    assert_eq!(number(swap("b", "d/e", RenameFlags::NOREPLACE)), libc::EEXIST);
    swap("b", "d/e", RenameFlags::EXCHANGE).unwrap();
    assert_eq!(
        (fs::read(at("b")).unwrap(), fs::read(at("d/e")).unwrap()),
        (b"two".to_vec(), b"one".to_vec())
    );
    assert_eq!(number(swap("b", "c", RenameFlags::WHITEOUT)), libc::EINVAL);
    fs::rename(at("d/e"), at("b")).unwrap();
    assert_eq!(fs::read(at("b")).unwrap(), b"one");
    fs::remove_dir(at("d")).unwrap();
    assert_eq!(number(fs::read_dir(at("d"))), libc::ENOENT);
}

#[test]
fn names_of_any_bytes_and_255_of_them() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let root = fixture.path(".");
    let long = "x".repeat(255);
    for name in [OsStr::from_bytes(b"\xff\x01 \n"), OsStr::new("ü"), OsStr::new(&long)] {
        fs::write(root.join(name), name.as_bytes()).unwrap();
        assert_eq!(fs::read(root.join(name)).unwrap(), name.as_bytes());
    }
    let mut listed: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    listed.sort();
    assert_eq!(listed.len(), 3);
    assert_eq!(number(fs::write(root.join("x".repeat(256)), "")), libc::ENAMETOOLONG);
}

#[test]
fn a_file_without_a_name_lives_until_it_is_closed() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let mut file =
        File::options().read(true).write(true).create_new(true).open(fixture.path("gone")).unwrap();
    file.write_all(b"still here").unwrap();
    fs::remove_file(fixture.path("gone")).unwrap();
    assert_eq!(file.metadata().unwrap().nlink(), 0);
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    // One that another takes the place of, too.
    fs::write(fixture.path("old"), "old").unwrap();
    fs::write(fixture.path("new"), "new").unwrap();
    let mut old = File::open(fixture.path("old")).unwrap();
    fs::rename(fixture.path("new"), fixture.path("old")).unwrap();
    text.clear();
    old.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), fs::read_to_string(fixture.path("old")).unwrap().as_str()), ("old", "new"));
}

#[test]
fn special_files() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let make = |name: &str, kind, device| {
        rustix::fs::mknodat(CWD, fixture.path(name), kind, Mode::from_raw_mode(0o640), device).unwrap();
        fs::symlink_metadata(fixture.path(name)).unwrap()
    };
    assert!(make("pipe", FileType::Fifo, 0).file_type().is_fifo());
    let device = rustix::fs::makedev(259, 70000);
    let made = make("disk", FileType::BlockDevice, device);
    assert!(made.file_type().is_block_device());
    assert_eq!(made.rdev(), device);
    assert!(make("null", FileType::CharacterDevice, rustix::fs::makedev(1, 3)).file_type().is_char_device());
    // Without the option `dev` they are names only.
    assert_eq!(number(File::open(fixture.path("null"))), libc::EACCES);
    let _listener = std::os::unix::net::UnixListener::bind(fixture.path("socket")).unwrap();
    std::os::unix::net::UnixStream::connect(fixture.path("socket")).unwrap();
}

#[test]
fn times_to_the_nanosecond() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fs::write(fixture.path("f"), "x").unwrap();
    let set = |access: Timespec, modify: Timespec| {
        let times = Timestamps { last_access: access, last_modification: modify };
        rustix::fs::utimensat(CWD, fixture.path("f"), &times, AtFlags::empty()).unwrap();
        fs::metadata(fixture.path("f")).unwrap()
    };
    let exact = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let omitted = exact(0, UTIME_OMIT);
    let first = set(exact(1, 2), exact(1_700_000_000, 123_456_789));
    assert_eq!((first.atime(), first.atime_nsec()), (1, 2));
    assert_eq!((first.mtime(), first.mtime_nsec()), (1_700_000_000, 123_456_789));
    // Before 1970 nanoseconds count forwards, too.
    for (seconds, nanoseconds) in [(-1, 999_999_999), (-315_619_200, 500_000_000), (-1, 0)] {
        let old = set(exact(seconds, nanoseconds), exact(1_700_000_000, 123_456_789));
        assert_eq!((old.atime(), old.atime_nsec()), (seconds, nanoseconds));
    }
    let second = set(exact(0, UTIME_NOW), omitted);
    assert!(second.atime() > 1_700_000_000);
    assert_eq!((second.mtime(), second.mtime_nsec()), (1_700_000_000, 123_456_789));
    assert!((second.ctime(), second.ctime_nsec()) > (first.ctime(), first.ctime_nsec()));
    fs::write(fixture.path("f"), "y").unwrap();
    assert!(fs::metadata(fixture.path("f")).unwrap().mtime() > 1_700_000_000);
}

#[test]
fn owners_modes_and_privileges() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let at = |name: &str| fixture.path(name);
    let mode = |name: &str| fs::metadata(at(name)).unwrap().mode() & 0o7777;
    let set_mode =
        |name: &str, mode| fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
    fs::write(at("f"), "x").unwrap();
    set_mode("f", 0o6755);
    assert_eq!(mode("f"), 0o6755);
    chown(at("f"), Some(65534), Some(65534)).unwrap();
    assert_eq!(mode("f"), 0o755, "a new owner does not get the rights of the old one");
    // A folder passes on its group, and to folders the bit that does so.
    fs::create_dir(at("shared")).unwrap();
    chown(at("shared"), Some(65534), Some(1234)).unwrap();
    set_mode("shared", 0o2777);
    fs::create_dir(at("shared/inner")).unwrap();
    fs::write(at("shared/file"), "").unwrap();
    assert_eq!((fs::metadata(at("shared/inner")).unwrap().gid(), mode("shared/inner")), (1234, 0o2755));
    assert_eq!((fs::metadata(at("shared/file")).unwrap().gid(), mode("shared/file")), (1234, 0o644));
    // Who writes to a file without being the superuser takes its set-id bits away, also while others look at
    // it.
    set_mode("f", 0o4777);
    assert_eq!(mode("f"), 0o4777);
    let run = |script: &str| {
        let status = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script])
            .current_dir(fixture.path("."))
            .stderr(std::process::Stdio::null())
            .status();
        status.unwrap().success()
    };
    set_mode(".", 0o755);
    assert!(run("echo more >> f"));
    let began = std::time::Instant::now();
    while mode("f") != 0o777 && began.elapsed().as_secs() < 10 {
        std::thread::yield_now();
    }
    assert_eq!(mode("f"), 0o777);
    set_mode("f", 0o4777);
    assert!(run("truncate -s 0 f"));
    assert_eq!(mode("f"), 0o777);
    // The kernel checks permissions, the sticky bit included.
    set_mode("f", 0o600);
    chown(at("f"), Some(0), Some(0)).unwrap();
    assert!(!run("cat f") && !run("touch new") && run("touch shared/new"));
    set_mode("shared", 0o1777);
    chown(at("shared"), Some(0), Some(0)).unwrap();
    assert!(!run("rm -f shared/file") && run("rm shared/new"));
}

#[test]
fn extended_attributes_and_no_access_control_lists() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let file = fixture.path("f");
    fs::write(&file, "x").unwrap();
    let io = std::io::Error::from;
    let large = vec![7; 60 << 10];
    rustix::fs::setxattr(&file, "user.a", b"1", XattrFlags::CREATE).unwrap();
    assert_eq!(
        number(rustix::fs::setxattr(&file, "user.a", b"2", XattrFlags::CREATE).map_err(io)),
        libc::EEXIST
    );
    rustix::fs::setxattr(&file, "user.a", b"22", XattrFlags::REPLACE).unwrap();
    rustix::fs::setxattr(&file, "trusted.large", &large, XattrFlags::empty()).unwrap();
    let mut value = vec![0; 64 << 10];
    let read = rustix::fs::getxattr(&file, "trusted.large", &mut value).unwrap();
    assert_eq!(value[..read], large);
    assert_eq!(number(rustix::fs::getxattr(&file, "user.a", &mut [0; 1]).map_err(io)), libc::ERANGE);
    let mut names = [0; 100];
    let read = rustix::fs::listxattr(&file, &mut names).unwrap();
    let mut names: Vec<_> = names[..read].split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort();
    assert_eq!(names, [&b"trusted.large"[..], b"user.a"]);
    rustix::fs::removexattr(&file, "user.a").unwrap();
    assert_eq!(number(rustix::fs::getxattr(&file, "user.a", &mut [0; 9]).map_err(io)), libc::ENODATA);
}

#[test]
fn a_program_that_runs_is_not_truncated() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let program = fixture.path("sleep");
    // By another process: one that a test starts in that moment would inherit the open file, and keep it from
    // running.
    assert!(Command::new("cp").arg("/bin/sleep").arg(&program).status().unwrap().success());
    let length = fs::metadata(&program).unwrap().len();
    let mut running = Command::new(&program).arg("30").spawn().unwrap();
    // With the right to write, the kernel refuses it before the mount sees it; truncating needs no such
    // right.
    let ways = [OFlags::WRONLY, OFlags::RDWR | OFlags::TRUNC, OFlags::RDONLY | OFlags::TRUNC];
    let refused = ways.map(|flags| rustix::fs::open(&program, flags, Mode::empty()).map(drop));
    let after = fs::read(&program).unwrap().len() as u64;
    let ended = running.try_wait().unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!((refused, after, ended), ([Err(rustix::io::Errno::TXTBSY); 3], length, None));
    rustix::fs::open(&program, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()).unwrap();
    assert_eq!(fs::metadata(&program).unwrap().len(), 0);
}

/// An access control list as the kernel takes it: a version, then entries of tag, permissions and user.
fn access_list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, user) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(user.to_le_bytes());
    }
    list
}

#[test]
fn access_lists_and_files_without_a_name_are_refused() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    let folder = fixture.path("d");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("f");
    fs::write(&file, "x").unwrap();
    let no_id = u32::MAX;
    // Owner, user 1, group, mask, others: more than a mode can say.
    let list = access_list(&[(1, 7, no_id), (2, 4, 1), (4, 4, no_id), (0x10, 4, no_id), (0x20, 0, no_id)]);
    for (path, name) in [
        (&file, "system.posix_acl_access"),
        (&folder, "system.posix_acl_access"),
        (&folder, "system.posix_acl_default"),
    ] {
        let refused =
            rustix::fs::setxattr(path, name, &list, XattrFlags::empty()).map_err(std::io::Error::from);
        assert_eq!(number(refused), libc::EOPNOTSUPP, "{name} of {path:?}");
        let read = rustix::fs::getxattr(path, name, &mut [0; 100]).map_err(std::io::Error::from);
        assert!([libc::EOPNOTSUPP, libc::ENODATA].contains(&number(read)), "{name} of {path:?}");
    }
    let mode = fs::metadata(&file).unwrap().mode();
    assert_eq!(mode & 0o7777, 0o644);
    let nameless = OFlags::TMPFILE | OFlags::RDWR;
    let refused = rustix::fs::open(&folder, nameless, Mode::RUSR | Mode::WUSR).map_err(std::io::Error::from);
    assert_eq!(number(refused), libc::EOPNOTSUPP);
    // What libraries do then: a file with a name, removed while it is open.
    let mut file = tempfile::tempfile_in(&folder).unwrap();
    file.write_all(b"x").unwrap();
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn a_mount_without_extended_attributes() {
    if !can_mount() {
        return;
    }
    let mut fixture = Fixture::new();
    let value = |fixture: &Fixture| {
        let read = rustix::fs::getxattr(fixture.path("f"), "user.a", &mut [0; 9]);
        read.map_err(|error| error.raw_os_error())
    };
    fs::write(fixture.path("f"), "x").unwrap();
    rustix::fs::setxattr(fixture.path("f"), "user.a", b"1", XattrFlags::empty()).unwrap();
    fixture.unmount();
    let options = MountOptions { xattrs: false, ..fixture.options(Some("db")) };
    fixture.mount = Some(Mount::start(options).unwrap());
    let file = fixture.path("f");
    assert_eq!(value(&fixture), Err(libc::EOPNOTSUPP));
    let refused = rustix::fs::setxattr(&file, "user.b", b"1", XattrFlags::empty()).unwrap_err();
    assert_eq!(refused.raw_os_error(), libc::EOPNOTSUPP);
    fs::write(&file, "longer").unwrap();
    assert_eq!(fs::read(&file).unwrap(), b"longer");
    // What a file had, it keeps.
    fixture.unmount();
    fixture.mount(Some("db"));
    assert_eq!(value(&fixture), Ok(1));
}

#[test]
fn a_large_directory_that_shrinks_while_it_is_read() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("d")).unwrap();
    const COUNT: usize = 3000;
    for number in 0..COUNT {
        File::create(fixture.path(&format!("d/{number}"))).unwrap();
    }
    let names = || -> std::collections::BTreeSet<_> {
        fs::read_dir(fixture.path("d")).unwrap().map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(names().len(), COUNT);
    let mut seen = std::collections::BTreeSet::new();
    for entry in fs::read_dir(fixture.path("d")).unwrap() {
        let name = entry.unwrap().file_name();
        fs::remove_file(fixture.path("d").join(&name)).unwrap();
        assert!(seen.insert(name), "seen twice");
    }
    assert_eq!(seen.len(), COUNT);
    assert!(names().is_empty());
    fs::remove_dir(fixture.path("d")).unwrap();
}

#[test]
fn a_directory_that_moves_lists_its_new_parent() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    for name in ["a/d", "b/e"] {
        fs::create_dir_all(fixture.path(name)).unwrap();
    }
    let parent = |of: &str| {
        let directory = File::open(fixture.path(of)).unwrap();
        let mut entries = rustix::fs::Dir::read_from(&directory).unwrap().map(Result::unwrap);
        entries.find(|entry| entry.file_name().to_bytes() == b"..").unwrap().ino()
    };
    let number = |of: &str| fs::metadata(fixture.path(of)).unwrap().ino();
    assert_eq!([parent("a/d"), parent("b/e")], [number("a"), number("b")]);
    fs::rename(fixture.path("a/d"), fixture.path("b/d")).unwrap();
    assert_eq!(parent("b/d"), number("b"));
    fs::create_dir(fixture.path("a/f")).unwrap();
    assert_eq!(parent("a/f"), number("a"));
    let exchange = rustix::fs::RenameFlags::EXCHANGE;
    let here = rustix::fs::CWD;
    rustix::fs::renameat_with(here, fixture.path("a/f"), here, fixture.path("b/e"), exchange).unwrap();
    assert_eq!([parent("a/f"), parent("b/e")], [number("a"), number("b")]);
}
