//! What surrounds the program: variables, pipes, full disks.

use crate::fixture::{Fixture, program};
use crate::install::install;
use std::process::Stdio;

#[test]
fn every_option_can_be_a_variable() {
    let fixture = Fixture::with_db();
    program()
        .env("ICECORE_POOL", &fixture.pool)
        .args(["list", "-H", "-o", "name"])
        .assert()
        .success()
        .stdout("db\n");
    // A variable that is empty is none.
    let none = program().env("ICECORE_POOL", "").args(["list"]).current_dir("/").assert().failure();
    assert!(String::from_utf8_lossy(&none.get_output().stderr).contains("no pool is given"));
    program().args(["-P", "", "list"]).assert().code(2);
    program().args(["-P", "", "list"]).env("ICECORE_POOL", &fixture.pool).assert().code(2);
    let with = |name: &str, value: &str| {
        let assert = fixture.run(&["list"]).env(name, value).assert().success();
        String::from_utf8(assert.get_output().stdout.clone()).unwrap()
    };
    assert!(with("ICECORE_LIST_JSON", "1").starts_with('{'));
    assert!(with("ICECORE_LIST_JSON", "no").starts_with("NAME"));
    assert!(with("ICECORE_LIST_JSON", "").starts_with("NAME"));
    assert_eq!(with("ICECORE_LIST_COLUMNS", "name"), "NAME\ndb\n");
    // The variable of one command does not concern another.
    assert!(with("ICECORE_GET_JSON", "1").starts_with("NAME"));
    fixture.run(&["list"]).env("ICECORE_LIST_DEPTH", "nonsense").assert().code(2);
}

#[test]
fn an_option_goes_before_its_variable() {
    let fixture = Fixture::with_db();
    fixture
        .run(&["list", "-o", "type"])
        .env("ICECORE_LIST_COLUMNS", "name")
        .assert()
        .stdout("TYPE\ndataset\n");
    let other = Fixture::new();
    let names = fixture.run(&["list", "-Ho", "name"]).env("ICECORE_POOL", &other.pool).assert().success();
    names.stdout("db\n");
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let fixture = Fixture::with_db();
    let large = vec![b'x'; 4 << 20];
    fixture.import("large", &large);
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("icecore"))
        .arg("-P")
        .arg(&fixture.pool)
        .args(["cat", "db/large"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
}

#[test]
fn a_full_standard_output_is_an_error() {
    let fixture = Fixture::with_db();
    // `monitor` has codes of its own, of which 3 says that nothing is known.
    for (command, code) in [("list", 6), ("monitor", 3)] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = std::process::Command::new(assert_cmd::cargo::cargo_bin("icecore"))
            .arg("-P")
            .arg(&fixture.pool)
            .arg(command)
            .stdout(full)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{command}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("standard output"));
    }
}

#[test]
fn nothing_is_drawn_without_a_terminal() {
    let fixture = Fixture::with_db();
    fixture.import("large", &[1; 3 << 20]);
    fixture.run(&["scrub"]).assert().success().stderr("");
    fixture.run(&["export", "db/large", "out"]).assert().success().stdout("").stderr("");
}

/// `ICECORE_POOL` is set for a whole shell: a relative path that leads through a pool is meant as it stands.
#[test]
fn a_relative_path_through_a_pool_goes_before_the_variable() {
    let (fixture, other) = (Fixture::with_db(), Fixture::new());
    other.done(&["create", "db"]);
    let cat = |path: &str| {
        let mut command = program();
        command.env("ICECORE_POOL", &other.pool).args(["cat", path]).current_dir(fixture.folder.path());
        command
    };
    cat("pool/db@one/app").assert().success().stdout("first");
    cat("./pool/db/app").assert().success().stdout("second");
    cat("db/app").assert().failure();
    // In the folder of a pool a name is one of the pool of the shell, with a `/` in it and without.
    let here = |path: &str| {
        let mut command = program();
        command.env("ICECORE_POOL", &other.pool).args(["cat", path]).current_dir(&fixture.pool);
        command
    };
    here("db/app").assert().failure();
    here("./db/app").assert().success().stdout("second");
}

/// The lab is a program of its own: beside this one, or in the path. Its exit code is what there is to say.
#[test]
fn the_lab_is_found_or_it_is_said_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let [alone, elsewhere] = ["bin", "elsewhere"].map(|name| folder.path().join(name));
    std::fs::create_dir(&alone).unwrap();
    std::fs::create_dir(&elsewhere).unwrap();
    let icecore = alone.join("icecore");
    install(assert_cmd::cargo::cargo_bin("icecore"), &icecore);
    let run = |arguments: &[&str]| {
        let mut command = std::process::Command::new(&icecore);
        command
            .args(arguments)
            .env("PATH", format!("{}:/usr/bin:/bin", elsewhere.display()))
            .output()
            .unwrap()
    };
    let missing = run(&["lab", "list"]);
    let said = String::from_utf8(missing.stderr).unwrap();
    assert!(
        missing.status.code() == Some(1) && said.contains("icecore-lab") && said.lines().count() == 1,
        "{said}"
    );
    let put = |folder: &std::path::Path, word: &str| {
        let script = folder.join("script");
        std::fs::write(&script, format!("#!/bin/sh\necho {word} \"$@\"\nexit 9\n")).unwrap();
        install(&script, &folder.join("icecore-lab"));
    };
    put(&elsewhere, "path");
    let found = run(&["lab", "run", "shock", "--quick", "--help"]);
    assert_eq!(
        (found.status.code(), found.stdout.as_slice()),
        (Some(9), &b"path run shock --quick --help\n"[..])
    );
    put(&alone, "beside");
    let found = run(&["demo", "--keep", "-h"]);
    assert_eq!((found.status.code(), found.stdout.as_slice()), (Some(9), &b"beside demo --keep -h\n"[..]));
}
