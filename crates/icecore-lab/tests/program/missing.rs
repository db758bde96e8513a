//! Programs that are not there: each is named, with the way to get it, before anything is measured.

use crate::fixture::{can_mount, program};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The server itself, which is not looked for in the PATH.
const SERVER: &str = "/usr/sbin/mariadbd";

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A folder with these programs alone, to be the whole PATH; `None` if this machine lacks one of them.
fn folder_of(programs: &[&str]) -> Option<TempDir> {
    let folder = tempfile::tempdir().unwrap();
    for name in programs {
        symlink(find(name)?, folder.path().join(name)).unwrap();
    }
    Some(folder)
}

/// What a quick run that fails says, where these programs are all that there are.
fn complaint(arguments: &[&str], path: &Path) -> String {
    let measured = tempfile::tempdir().unwrap();
    let mut command = program();
    command.args(["run", "--quick", "--directory"]).arg(measured.path()).args(arguments);
    let assert = command.env("PATH", path).assert().code(1);
    assert_eq!(fs::read_dir(measured.path()).unwrap().count(), 0, "files are left");
    String::from_utf8(assert.get_output().stderr.clone()).unwrap()
}

#[test]
fn a_study_without_its_program_says_what_to_install() {
    // The programs that are there, the arguments of the run, and its complaint.
    let cases: [(&[&str], &[&str], &str); 5] = [
        (&[], &["shock"], "shock needs fio, which is not there: apt-get install fio"),
        (&[], &["fragment"], "fragment needs fio, which is not there: apt-get install fio"),
        (
            &["fio"],
            &["shock", "--tool", "sysbench"],
            "shock needs sysbench, which is not there: apt-get install sysbench",
        ),
        (&[], &["backup"], "backup needs zstd, which is not there: apt-get install zstd"),
        (
            &[],
            &["blog", "--tool", "blogbench"],
            "blog needs blogbench, which is not there: build it from its source \
             (github.com/jedisct1/Blogbench)",
        ),
    ];
    for (there, arguments, said) in cases {
        let Some(path) = folder_of(there) else {
            eprintln!("left out: {there:?} are not all there");
            continue;
        };
        let shown = complaint(arguments, path.path());
        assert!(shown.contains(said), "{arguments:?} did not say {said:?}: {shown}");
    }
}

#[test]
fn a_study_of_servers_names_the_one_program_that_lacks() {
    let needed = [("sysbench", "sysbench"), ("setpriv", "util-linux")];
    let all = ["mariadb-install-db", "mariadb", "install", "sysbench", "setpriv"];
    if !Path::new(SERVER).is_file() || folder_of(&all).is_none() {
        eprintln!("left out: it needs {SERVER} and {all:?}");
        return;
    }
    for (lacks, package) in needed {
        let others: Vec<&str> = all.into_iter().filter(|name| *name != lacks).collect();
        let path = folder_of(&others).unwrap();
        let said = complaint(&["placement"], path.path());
        let expected = format!("placement needs {lacks}, which is not there: apt-get install {package}");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn a_system_without_its_program_is_left_out_with_the_reason() {
    if !can_mount() {
        return;
    }
    let none = folder_of(&[]).unwrap();
    let said = complaint(&["full", "--systems", "icecore-mount"], none.path());
    assert!(said.contains("icecore-mount: fusermount3 is not there: apt-get install fuse3"), "{said}");
}

#[test]
fn the_doctor_lists_all_programs_that_lack_with_their_packages() {
    let none = folder_of(&[]).unwrap();
    let assert = program().args(["doctor", "--json"]).env("PATH", none.path()).assert().success();
    let document: Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    let findings = document["findings"].as_array().unwrap();
    let packages = document["packages"].as_array().unwrap();
    for (name, package) in
        [("fio", "fio"), ("zstd", "zstd"), ("sysbench", "sysbench"), ("fusermount3", "fuse3")]
    {
        let finding = findings.iter().find(|finding| finding["name"] == name).unwrap();
        assert_eq!(finding["available"], false, "{finding}");
        assert_eq!(finding["detail"], format!("apt-get install {package}"), "{finding}");
        assert!(packages.iter().any(|found| found == package), "{packages:?}");
    }
    // Of this one there is no package to install.
    let finding = findings.iter().find(|finding| finding["name"] == "blogbench").unwrap();
    assert_eq!((&finding["available"], &finding["package"]), (&Value::from(false), &Value::Null));
    assert_eq!(finding["detail"], "build it from its source (github.com/jedisct1/Blogbench)", "{finding}");
    assert!(packages.iter().all(|found| found != "blogbench"), "{packages:?}");
}

#[test]
fn the_doctor_knows_whether_the_guest_is_built() {
    let caches = tempfile::tempdir().unwrap();
    let found = || {
        let assert =
            program().args(["doctor", "--json"]).env("XDG_CACHE_HOME", caches.path()).assert().success();
        let document: Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
        ["guest", "guest with ZFS"].map(|name| {
            let findings = document["findings"].as_array().unwrap();
            let finding = findings.iter().find(|finding| finding["name"] == name).unwrap();
            (finding["available"] == true, finding["detail"].as_str().unwrap().to_owned())
        })
    };
    let [(plain, advice), (zfs, zfs_advice)] = found();
    assert!(!plain && advice.ends_with("sudo icecore lab guest"), "{advice}");
    assert!(!zfs && zfs_advice.ends_with("sudo icecore lab guest --with zfs"), "{zfs_advice}");
    let guest = caches.path().join("icecore/guest/plain");
    fs::create_dir_all(&guest).unwrap();
    fs::write(guest.join("recipe"), include_str!("../../src/guest/build.sh")).unwrap();
    let [plain, (zfs, _)] = found();
    assert_eq!(plain, (true, guest.display().to_string()));
    assert!(!zfs);
    fs::write(guest.join("recipe"), "of another version").unwrap();
    assert!(!found()[0].0);
}
