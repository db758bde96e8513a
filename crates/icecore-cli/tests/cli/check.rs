//! `icecore check`: what it says, what it mends, and how it ends.

use crate::fixture::Fixture;
use crate::owned::spawn_owner;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::io::{Seek as _, SeekFrom, Write as _};
use std::time::Duration;

fn damage(fixture: &Fixture, name: &str, offset: u64) {
    let path = fixture.pool.join(name);
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(offset)).unwrap();
    file.write_all(&[0x5a; 16]).unwrap();
}

/// The file that the newest ledger lies in, and where it begins.
fn ledger(fixture: &Fixture) -> (String, u64) {
    let block = std::fs::read(fixture.pool.join("superblock.0")).unwrap();
    let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
    (format!("segment.{:08}", word(88)), u64::from(word(92)) * 4096)
}

#[test]
fn a_sound_pool_is_sound() {
    let fixture = Fixture::with_db();
    assert!(fixture.done(&["check"]).ends_with("nothing is wrong\n"));
    let said = fixture.done(&["check", "--data"]);
    assert!(said.contains("of data: nothing is wrong"), "{said}");
    let document = fixture.json(&["check", "--data", "--json"]);
    assert_eq!((&document["sound"], &document["was_clean"]), (&true.into(), &true.into()));
    assert!(document["versions"] == 2 && document["verified_bytes"].as_u64().unwrap() > 0, "{document}");
    assert!(fixture.done(&["check", "--repair"]).ends_with("nothing is wrong\n"));
    assert!(!fixture.pool.join("before-repair.0").exists());
    fixture.refused(2, &["check", "--dry-run"]);
    let _owner = fixture.own();
    let said = fixture.refused(4, &["check"]);
    let owner = format!("is in use by {} ", std::process::id());
    assert!(said.contains(&owner) && said.contains("end that process first"), "{said}");
    assert!(!said.contains("use the icecore command"), "{said}");
}

#[test]
fn a_check_waits_for_a_command_that_has_the_pool_for_a_moment() {
    let fixture = Fixture::with_db();
    let mut owner = spawn_owner(&fixture);
    std::thread::scope(|scope| {
        let check = scope.spawn(|| fixture.done(&["check"]));
        // On a busy machine the check may begin late: the owner is a command that has just begun all the
        // time.
        let lock = std::fs::File::options().write(true).open(fixture.pool.join("lock")).unwrap();
        for _ in 0..8 {
            lock.set_modified(std::time::SystemTime::now()).unwrap();
            std::thread::sleep(Duration::from_millis(100));
        }
        // It ends as a command does that is done.
        drop(owner.stdin.take());
        assert!(check.join().unwrap().ends_with("nothing is wrong\n"));
    });
    owner.wait().unwrap();
}

/// Opening a pipe waits for a process at its other end.
#[test]
fn pipes_in_place_of_the_text_files_hold_up_no_command() {
    let fixture = Fixture::with_db();
    for name in ["errors.log", "last-scrub", "last-scrub.new", "scrub-position"] {
        mknodat(CWD, fixture.pool.join(name), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    damage(&fixture, "superblock.1", 50);
    for command in ["status", "scrub", "monitor", "status"] {
        let output = fixture.run(&[command]).timeout(Duration::from_secs(60)).output().unwrap();
        assert!(output.status.code().is_some(), "{command} was still waiting");
    }
}

#[test]
fn what_follows_from_the_rest_is_mended_and_reported() {
    let fixture = Fixture::with_db();
    // Else a damaged ledger is read from its copy.
    fixture.done(&["copies", "--set", "none"]);
    let content = fixture.done(&["cat", "db/app", "db@one/app"]);
    damage(&fixture, "superblock.1", 50);
    let said = fixture.done(&["check"]);
    assert!(said.contains("superblock.1") && said.contains("(harmless)"), "{said}");
    let (name, offset) = ledger(&fixture);
    damage(&fixture, &name, offset + 100);
    let pool = fixture.pool.to_str().unwrap();
    for command in [
        &["list"][..],
        &["status"],
        &["scrub"],
        &["export", "db/app", "-"],
        &["create", "other"],
        &["sql", "db/app"],
    ] {
        let said = fixture.refused(5, command);
        assert!(said.contains(&name) && said.contains(&format!("run `icecore check {pool}`")), "{said}");
    }
    let checked = fixture.run(&["check"]).assert().code(5);
    assert!(String::from_utf8_lossy(&checked.get_output().stdout).contains("cannot be opened"));
    let said = fixture.done(&["check", "--repair", "--dry-run"]);
    assert!(said.contains("would be mended: the last checkpoint"), "{said}");
    assert!(!fixture.pool.join("before-repair.0").exists());
    let said = fixture.done(&["check", "--repair"]);
    for part in ["mended: superblock.1", "mended: the last checkpoint", "before-repair.0", "nothing is wrong"]
    {
        assert!(said.contains(part), "{part} is missing: {said}");
    }
    assert!(fixture.pool.join("before-repair.0").exists());
    assert_eq!(fixture.done(&["cat", "db/app", "db@one/app"]), content);
    fixture.done(&["scrub"]);
    assert!(fixture.done(&["check", "--data"]).ends_with("nothing is wrong\n"));
}
