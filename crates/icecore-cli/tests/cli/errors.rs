//! Bad input: one clear sentence, the right exit code, nothing lost.

use crate::fixture::{Fixture, complaint, entries, program};
use crate::install::install;
use icecore::Creation;
use icecore::units::InodeNumber;

#[test]
fn there_is_no_pool() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["list"][..], &["list", "db"], &["list", "/nowhere/db"], &["-P", "/nowhere", "list"]] {
        let mut command = program();
        command.args(arguments).current_dir(folder.path());
        let said = complaint(command, 3);
        assert!(said.contains("pool"), "{said}");
    }
    let mut command = program();
    command.arg("-P").arg(folder.path()).arg("list");
    assert!(complaint(command, 3).contains("icecore init"));
    assert_eq!(crate::fixture::entries(folder.path()), Vec::<String>::new(), "looking leaves nothing behind");
}

#[test]
fn what_is_no_pool_is_named_as_what_it_is() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"text").unwrap();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    for (arguments, part) in [
        (&["status", "gone"][..], "gone is not a pool: there is no such folder"),
        (&["status", "file"], "file is not a pool: it is a file"),
        (&["status", "folder"], "there is no superblock in that folder"),
        (&["-P", "file", "status"], "it is a file"),
        (&["-P", "file", "create", "db"], "it is a file"),
        (&["-P", "gone", "list"], "there is no such directory"),
    ] {
        let mut command = program();
        command.args(arguments).current_dir(folder.path());
        let said = complaint(command, 3);
        assert!(said.contains(part) && said.contains("icecore init"), "{arguments:?}: {said}");
    }
}

/// A user who follows the advice to make a pool would have two.
#[test]
fn a_folder_with_copies_of_a_pool_is_called_that() {
    let fixture = Fixture::with_db();
    let copies = fixture.beside("copies");
    fixture.done(&["copies", "--set", "all", "--mirror", copies.to_str().unwrap()]);
    assert!(entries(&copies).iter().any(|name| name.starts_with("copy.")));
    for arguments in
        [["-P", "copies", "list"], ["status", "copies", "--json"], ["ls", "copies/db/x", "--json"]]
    {
        let mut command = program();
        command.args(arguments).current_dir(copies.parent().unwrap());
        let said = complaint(command, 3);
        assert!(said.contains("has copies of a pool in it") && !said.contains("icecore init"), "{said}");
    }
}

#[test]
fn a_pool_is_not_made_over_something() {
    let fixture = Fixture::new();
    let mut command = program();
    command.arg("init").arg(&fixture.pool);
    complaint(command, 1);
    for size in ["1M", "3M", "2G", "nonsense"] {
        let mut command = program();
        command.args(["init", "--segment-size", size]).arg(fixture.beside("other"));
        let code = if size == "nonsense" { 2 } else { 1 };
        complaint(command, code);
    }
}

#[test]
fn names_that_cannot_be_are_refused_with_the_reason() {
    let fixture = Fixture::with_db();
    let long = format!("db@{}", "x".repeat(255));
    for (name, part) in [
        ("db@", "empty"),
        ("@x", "empty"),
        ("db@a@b", "more than one '@'"),
        ("db@a%b", "'%'"),
        ("db@a/b", "'/'"),
        ("db@a\nb", "'\\n'"),
        (long.as_str(), "255 at most"),
    ] {
        let said = fixture.refused(2, &["snapshot", name]);
        assert!(said.contains(part), "{name:?}: {said}");
    }
    for name in ["", "a//b", "a/", "a b", "a/..", "a@b"] {
        fixture.refused(2, &["create", name]);
    }
    let said = fixture.refused(2, &["create", "a%b"]);
    assert!(said.contains("'%' is not allowed in a name; letters, digits"), "{said}");
    assert!(fixture.refused(1, &["snapshot", "db@one"]).contains("exists already"));
    assert!(fixture.refused(1, &["create", "db"]).contains("exists already"));
    assert!(fixture.refused(1, &["snapshot", "none@x"]).contains("none"));
    assert!(fixture.refused(1, &["create", "x/y/z"]).contains("-p"));
    assert_eq!(fixture.done(&["list", "-H", "-t", "all", "-o", "name"]), "db\ndb@one\n");
}

#[test]
fn usage_errors_have_code_2_and_say_what_is_wrong() {
    let fixture = Fixture::new();
    for arguments in [
        &["nonsense"][..],
        &["list", "--nonsense"],
        &["snapshot"],
        &["list", "-o", "nonsense"],
        &["list", "-t", "volume"],
        &["destroy"],
        &["destroy", "db@x%"],
        &["create", "-o", "novalue", "db"],
        &["holds"],
        &["completions", "nonsense"],
        &["ls", "-0", "--json", "db"],
    ] {
        fixture.refused(2, arguments);
    }
    let other = Fixture::new();
    let (one, two) = (fixture.pool.join("a@x"), other.pool.join("a@x"));
    let said = fixture.refused(2, &["snapshot", one.to_str().unwrap(), two.to_str().unwrap()]);
    assert!(said.contains("two"), "{said}");
}

#[test]
fn help_and_version_are_no_failure() {
    program().arg("--version").assert().success().stdout(concat!(
        "icecore ",
        env!("CARGO_PKG_VERSION"),
        "\n"
    ));
    let help = program().arg("--help").assert().success();
    let text = String::from_utf8(help.get_output().stdout.clone()).unwrap();
    for part in ["First steps", "Exit codes", "ICECORE_POOL", "db@monday"] {
        assert!(text.contains(part), "{part} is missing");
    }
    program().args(["help", "destroy"]).assert().success();
    program().args(["list", "-h"]).assert().success().stderr("");
    program().assert().code(2).stdout("");
}

#[test]
fn damage_is_found_and_named() {
    let fixture = Fixture::new();
    fixture.done(&["create", "db"]);
    let content: Vec<u8> = (0..400_000u32).flat_map(u32::to_le_bytes).collect();
    fixture.import("app", &content);
    // A stretch of the file's content, wherever the pool keeps it, is overwritten.
    let needle = &content[800_000..800_064];
    let mut hit = false;
    for entry in std::fs::read_dir(&fixture.pool).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(position) = bytes.windows(needle.len()).position(|window| window == needle) {
            bytes[position] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            hit = true;
        }
    }
    assert!(hit, "the content lies in no file of the pool");
    let scrub = fixture.run(&["scrub"]).assert().code(5);
    let output = scrub.get_output();
    assert!(String::from_utf8_lossy(&output.stdout).contains("seen by db"), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("in app (inode"), "{output:?}");
    let log = std::fs::read_to_string(fixture.pool.join("errors.log")).unwrap_or_default();
    assert!(log.contains("does not match its checksum"), "{log}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 block is damaged"), "{output:?}");
    let document = fixture.run(&["scrub", "--json"]).assert().code(5);
    let document: serde_json::Value = serde_json::from_slice(&document.get_output().stdout).unwrap();
    assert_eq!(document["damaged_blocks"], 1);
    assert_eq!(document["findings"][0]["versions"][0], "db");
    assert_eq!(document["findings"][0]["path"], "app");
    let stretch = ["length", "blocks", "version_count"].map(|field| &document["findings"][0][field]);
    assert_eq!(stretch, [4096, 1, 1]);
    assert_eq!(document["unlisted_blocks"], 0);
    // The process that has the pool open reports it: in its status, and in the log beside the pool.
    let owner = fixture.own();
    let said = fixture.refused(5, &["cat", "db/app"]);
    assert!(said.contains("db, file app (inode") && said.contains("offset 798720"), "{said}");
    assert!(said.contains("icecore scrub"), "{said}");
    assert!(fixture.done(&["status"]).contains("damage in segment."), "the status does not tell");
    let status = fixture.json(&["status", "--json"]);
    assert!(status["incidents"][0]["what"].as_str().unwrap().contains("checksum"), "{status}");
    assert!(status["counters"]["damaged_reads"].as_u64().unwrap() > 0);
    let log = std::fs::read_to_string(fixture.pool.join("errors.log")).unwrap();
    assert!(log.contains("checksum"), "{log}");
    drop(owner);
    assert!(fixture.refused(5, &["export", "db/app", "out"]).contains("db"));
    assert!(!fixture.beside("out").exists(), "half a file was left");
}

/// Flips a byte of every leaf of a tree that is meant, in all that segments hold.
fn damage_leaves(fixture: &Fixture, is_meant: impl Fn(&[u8]) -> bool) {
    let mut damaged = 0;
    for file in entries(&fixture.pool).iter().filter(|file| file.starts_with("segment.")) {
        let path = fixture.pool.join(file);
        let mut bytes = std::fs::read(&path).unwrap();
        let is_leaf = |block: &[u8]| block.starts_with(b"IcTn") && block[9] == 0;
        for block in bytes.chunks_exact_mut(4096).filter(|block| is_leaf(block) && is_meant(block)) {
            block[0] ^= 1;
            damaged += 1;
        }
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(damaged > 0, "no leaf is meant");
}

fn holds(block: &[u8], text: &[u8]) -> bool {
    block.windows(text.len()).any(|part| part == text)
}

/// What a file is found by does not say what is lost, if it is named only by its place in a segment.
#[test]
fn damage_in_what_files_are_found_by_names_what_was_looked_for() {
    let fixture = Fixture::with_db();
    fixture.done(&["copies", "--set", "none"]);
    damage_leaves(&fixture, |block| holds(block, b"app"));
    let destination = fixture.beside("app");
    let destination = destination.to_str().unwrap();
    let lookups =
        [&["cat", "db/app"][..], &["export", "db/app", destination], &["sql", "db/app", "SELECT 1"]];
    let assert_named = |arguments: &[&str], what: &str| {
        let text = fixture.refused(5, arguments);
        assert!(text.starts_with(&format!("icecore: damage in {what} (segment.")), "{text}");
        assert!(text.matches("`icecore scrub`").count() == 1, "{text}");
    };
    lookups.iter().for_each(|arguments| assert_named(arguments, "db, app in the root directory"));
    assert_named(&["cat", "db@one/app"], "db@one, app in the root directory");
    assert_named(&["ls", "db"], "db, the root directory");
    // So it is for a command that asks the process which has the pool open.
    let owner = fixture.own();
    lookups.iter().for_each(|arguments| assert_named(arguments, "db, app in the root directory"));
    owner.close().unwrap();
}

/// Of a directory with many entries, the leaves with the names are there and those with what the files are
/// like are not.
#[test]
fn damage_in_what_describes_a_file_names_the_file() {
    let fixture = Fixture::with_db();
    fixture.done(&["copies", "--set", "none"]);
    let owner = fixture.own();
    let dataset = owner.dataset("db").unwrap();
    for number in 0..300 {
        let name = format!("letter {number}");
        dataset.create(InodeNumber::ROOT, name.as_bytes(), &Creation::file()).unwrap();
    }
    owner.close().unwrap();
    damage_leaves(&fixture, |block| !holds(block, b"letter") && !holds(block, b"app"));
    let text = fixture.refused(5, &["cat", "db/letter 290"]);
    assert!(text.contains("damage in db, file letter 290 (inode "), "{text}");
    let text = fixture.refused(5, &["ls", "db"]);
    assert!(text.contains("damage in db, file letter "), "{text}");
    // Programs that have the pool open read more of a file than commands do.
    let owner = fixture.own();
    let view = owner.view("db").unwrap();
    let inode = view.resolve(b"letter 290").unwrap().unwrap();
    let file = format!("file letter 290 (inode {inode}) (segment.");
    let assert_named = |error: icecore::Error, what: &str| {
        let text = error.to_string();
        assert!(text.starts_with(&format!("damage in db, {what}")) && text.contains("scrub"), "{text}");
    };
    assert_named(view.xattr(inode, b"user.colour").unwrap_err(), &format!("attribute user.colour of {file}"));
    assert_named(view.list_xattrs(inode).unwrap_err(), &file);
    assert_named(view.data_ranges(inode).unwrap_err(), &file);
    drop(view);
    owner.close().unwrap();
}

/// By a real system: no file may grow beyond a length for this process. What it says is beside the pool when
/// the process has gone.
#[test]
fn a_write_that_the_system_refuses_is_in_the_log_with_the_file() {
    let fixture = Fixture::with_db();
    // Of what is ignored a program that is begun knows nothing: the call fails then, instead of ending it.
    let script = r#"trap '' XFSZ && ulimit -f 2048 && exec "$@""#;
    let mut command = assert_cmd::Command::new("sh");
    command
        .args(["-c", script, "sh"])
        .arg(assert_cmd::cargo::cargo_bin("icecore"))
        .arg("-P")
        .arg(&fixture.pool);
    command.args(["import", "-", "db/more"]).write_stdin(vec![7; 8 << 20]);
    let said = complaint(command, 1);
    let refused = std::io::Error::from_raw_os_error(rustix::io::Errno::FBIG.raw_os_error()).to_string();
    assert!(said.contains(&refused), "{said}");
    let log = std::fs::read_to_string(fixture.pool.join("errors.log")).unwrap();
    let (when, what) = log.lines().next().unwrap().split_once(' ').unwrap();
    // To make another segment, if that is what comes first.
    let action = if what.contains(" of segment.0000000") { "write " } else { "create segment.0000000" };
    assert!(when.ends_with('Z') && what.starts_with(&format!("cannot {action}")), "{log}");
    assert!(what.ends_with(&refused) && said.contains(what), "{log}{said}");
    let monitor = fixture.run(&["monitor"]).output().unwrap();
    let shown = String::from_utf8_lossy(&monitor.stdout);
    assert!(monitor.status.code() == Some(1) && shown.contains(what), "{shown}");
    // It was not acknowledged, and everything else is there.
    assert!(fixture.done(&["scrub"]).ends_with("no damage\n"));
    assert!(fixture.done(&["check", "--data"]).ends_with("nothing is wrong\n"));
    assert_eq!(fixture.done(&["cat", "db/app"]), "second");
    fixture.done(&["monitor"]);
}

#[test]
fn a_full_pool_says_so_and_still_lets_go() {
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("pool");
    program().args(["init", "--segment-size", "2M", "--size-limit", "32M"]).arg(&pool).assert().success();
    let run = |arguments: &[&str]| {
        let mut command = program();
        command.arg("-P").arg(&pool).args(arguments);
        command
    };
    run(&["create", "db"]).assert().success();
    run(&["import", "-", "db/small"]).write_stdin("small").assert().success();
    run(&["snapshot", "db@one"]).assert().success();
    let mut too_large = run(&["import", "-", "db/large"]);
    too_large.write_stdin(vec![7; 60 << 20]);
    let said = complaint(too_large, 6);
    assert!(said.contains("space"), "{said}");
    run(&["ls", "db"]).assert().success().stdout("small\n");
    run(&["cat", "db/small", "db@one/small"]).assert().success().stdout("smallsmall");
    run(&["destroy", "db@one"]).assert().success();
    run(&["import", "-f", "-", "db/small"]).write_stdin("smaller").assert().success();
    run(&["scrub"]).assert().success();
}

#[test]
fn what_is_not_a_pool_any_more_is_refused() {
    let fixture = Fixture::with_db();
    for name in ["superblock.0", "superblock.1"] {
        std::fs::write(fixture.pool.join(name), b"").unwrap();
    }
    let assert = fixture.run(&["list"]).assert().failure();
    let code = assert.get_output().status.code().unwrap();
    assert!([3, 5].contains(&code), "{code}");
}

#[test]
fn a_user_who_may_not_look_into_a_folder_gets_that_error() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let fixture = Fixture::with_db();
    let set_mode = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // Where others find it: this one may be where they may not look either.
    let copied = fixture.beside("icecore");
    install(assert_cmd::cargo::cargo_bin("icecore"), &copied);
    set_mode(fixture.folder.path(), 0o755);
    set_mode(&fixture.pool, 0);
    let is_root = rustix::process::geteuid().is_root();
    let run = |arguments: &[&str]| {
        let mut run = std::process::Command::new(&copied);
        run.args(arguments).arg(&fixture.pool).current_dir("/");
        if is_root {
            run.uid(65_534).gid(65_534);
        }
        run.output().unwrap()
    };
    for (command, code) in [("status", 1), ("monitor", 3), ("check", 1)] {
        let output = run(&[command]);
        let said =
            String::from_utf8_lossy(if command == "monitor" { &output.stdout } else { &output.stderr });
        assert_eq!(output.status.code(), Some(code), "{command}: {said}");
        assert!(said.contains("Permission denied") && !said.contains("icecore init"), "{command}: {said}");
    }
    // Into the folder, but not into its files.
    set_mode(&fixture.pool, 0o755);
    if is_root {
        let said = String::from_utf8(run(&["snapshot", "db@two", "-P"]).stderr).unwrap();
        let pool = fixture.pool.to_str().unwrap();
        assert!(said.contains(pool) && said.contains("as the user who owns the pool"), "{said}");
    }
}
