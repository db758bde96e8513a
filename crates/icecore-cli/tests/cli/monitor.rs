//! What Nagios gets.

use crate::fixture::{Fixture, program};

/// Runs `monitor`, which must end with this code, and answers what it prints.
fn monitor(fixture: &Fixture, code: i32, arguments: &[&str]) -> String {
    let assert = fixture.run(&[&["monitor"], arguments].concat()).assert().code(code);
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

#[test]
fn a_pool_that_is_well_is_ok_with_its_figures() {
    let fixture = Fixture::with_db();
    let text = monitor(&fixture, 0, &[]);
    assert!(text.starts_with("ICECORE OK - ") && text.lines().count() == 1, "{text}");
    let (said, figures) = text.trim_end().split_once(" | ").unwrap();
    assert!(
        said.contains("% used") && said.contains("takes writes") && said.contains("never scrubbed"),
        "{said}"
    );
    for part in figures.split(' ') {
        let (label, value) = part.split_once('=').unwrap();
        assert!(label.starts_with('\'') && label.ends_with('\''), "{part}");
        assert!(value.starts_with(|first: char| first.is_ascii_digit()), "{part}");
    }
    assert!(figures.contains("'used'=") && figures.contains("'failed'=0"), "{figures}");
    let pool = fixture.own();
    assert!(monitor(&fixture, 0, &[]).contains("takes writes"));
    pool.close().unwrap();
}

#[test]
fn limits_of_space_are_shares() {
    let fixture = Fixture::with_db();
    let text = monitor(&fixture, 1, &["--space-warn", "0%"]);
    assert!(text.starts_with("ICECORE WARNING") && text.contains("\nWARNING: "), "{text}");
    let text = monitor(&fixture, 2, &["--space-warn", "0%", "--space-crit", "0%"]);
    assert!(text.starts_with("ICECORE CRITICAL") && text.contains("icecore prune"), "{text}");
    let document: serde_json::Value =
        serde_json::from_str(&monitor(&fixture, 1, &["--json", "--space-warn", "0%"])).unwrap();
    assert_eq!(document["state"], "WARNING");
    let space = document["checks"].as_array().unwrap().iter().find(|check| check["name"] == "space").unwrap();
    assert!(space["values"]["used"].as_u64().unwrap() > 0);
}

#[test]
fn ages_are_those_of_the_newest_snapshots() {
    let fixture = Fixture::with_db();
    fixture.done(&["create", "-p", "team/quiet"]);
    fixture.done(&["rollback", "db@one"]);
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let text = monitor(&fixture, 2, &["--age-crit", "1s"]);
    assert!(
        text.contains("db: newest snapshot is") && text.contains("team/quiet: no snapshot since"),
        "{text}"
    );
    assert!(text.contains("'age_db'="), "{text}");
    assert!(monitor(&fixture, 1, &["--age-warn", "1s", "--age-crit", "1d"]).starts_with("ICECORE WARNING"));
    fixture.done(&["set", "icecore:monitor.age-crit=1d", "db"]);
    fixture.done(&["set", "icecore:monitor.age-crit=0", "team"]);
    assert!(monitor(&fixture, 0, &["--age-crit", "1s"]).contains("newest snapshot"));
    fixture.done(&["set", "icecore:monitor.age-crit=1s", "team"]);
    assert!(monitor(&fixture, 2, &[]).contains("team/quiet"));
    fixture.done(&["snapshot", "-a"]);
    fixture.done(&["set", "icecore:monitor.age-crit=1h", "team"]);
    monitor(&fixture, 0, &[]);
    fixture.refused(1, &["set", "icecore:monitor.age-crit=soon", "team"]);
}

#[test]
fn the_last_scrub_is_remembered() {
    let fixture = Fixture::with_db();
    assert!(monitor(&fixture, 1, &["--scrub-warn", "30d"]).contains("never scrubbed"));
    let pool = fixture.own();
    fixture.done(&["scrub"]);
    assert!(monitor(&fixture, 0, &["--scrub-warn", "30d"]).contains("scrubbed"));
    pool.close().unwrap();
    assert!(monitor(&fixture, 0, &["--scrub-warn", "30d"]).contains("'damaged'=0"));
    damage(&fixture);
    fixture.refused(5, &["scrub"]);
    let text = monitor(&fixture, 2, &[]);
    assert!(text.contains("damaged block") && text.contains("run: icecore scrub"), "{text}");
    // What saw it is gone: a scrub that finds nothing has the last word.
    fixture.done(&["destroy", "db@one"]);
    fixture.done(&["scrub"]);
    monitor(&fixture, 0, &[]);
}

/// The check of this name in the document.
fn check(fixture: &Fixture, code: i32, name: &str) -> serde_json::Value {
    let document: serde_json::Value = serde_json::from_str(&monitor(fixture, code, &["--json"])).unwrap();
    let checks = document["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap().clone()
}

#[test]
fn damage_that_somebody_met_is_critical_without_a_scrub_and_after_the_process_has_gone() {
    let fixture = Fixture::with_db();
    damage(&fixture);
    let owner = fixture.own();
    fixture.refused(5, &["cat", "db@one/app"]);
    let text = monitor(&fixture, 2, &[]);
    assert!(text.starts_with("ICECORE CRITICAL") && text.contains("that nothing healed"), "{text}");
    assert!(text.contains("damage in segment.") && text.contains("run: icecore scrub "), "{text}");
    let check_of = check(&fixture, 2, "incidents");
    assert_eq!(check_of["values"]["unhealed"], 1);
    assert!(check_of["values"]["damaged_reads"].as_u64().unwrap() > 0, "{check_of}");
    assert!(check_of["details"][0].as_str().unwrap().contains("checksum"), "{check_of}");
    owner.close().unwrap();
    assert!(monitor(&fixture, 2, &[]).contains("that nothing healed"));
}

/// The timer's scrub opens the pool itself, and is the first to meet it.
#[test]
fn what_opening_the_pool_for_a_scrub_mends_is_reported_by_that_scrub() {
    let fixture = Fixture::with_db();
    fixture.done(&["scrub"]);
    let superblock = fixture.pool.join("superblock.1");
    let mut bytes = std::fs::read(&superblock).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&superblock, bytes).unwrap();
    let said = fixture.done(&["scrub"]);
    assert!(said.contains("damage in superblock.1") && said.contains("1 place is damaged"), "{said}");
    assert_eq!(said.matches("superblock.1").count(), 1, "{said}");
    assert!(monitor(&fixture, 1, &[]).contains("WARNING"));
    let said = fixture.done(&["scrub"]);
    assert!(!said.contains("nothing is lost"), "{said}");
    assert!(monitor(&fixture, 0, &[]).contains("OK"));
}

/// All of it was healed, so no person has to get up.
#[test]
fn a_file_that_was_made_again_from_its_copy_is_a_warning() {
    let fixture = Fixture::with_db();
    fixture.done(&["copies", "--set", "all"]);
    fixture.done(&["scrub"]);
    std::fs::remove_file(fixture.pool.join("segment.00000000")).unwrap();
    let said = fixture.done(&["scrub"]);
    assert!(said.contains("segment.00000000: it is missing; it was healed from its copy"), "{said}");
    let text = monitor(&fixture, 1, &[]);
    assert!(!text.contains("nothing healed"), "{text}");
    fixture.done(&["scrub"]);
    assert!(monitor(&fixture, 0, &[]).contains("OK"));
}

/// A person has removed it, or the disk has lost it: it is made again, and a reason to look.
#[test]
fn a_copy_that_vanished_is_a_warning_until_a_scrub_finds_nothing() {
    let fixture = Fixture::with_db();
    let copies =
        || crate::fixture::entries(&fixture.pool).into_iter().filter(|name| name.starts_with("copy."));
    let copy = copies().next().expect("copies of metadata are made by default");
    for owner in [None, Some(())] {
        let owner = owner.map(|()| fixture.own());
        std::fs::remove_file(fixture.pool.join(&copy)).unwrap();
        let said = fixture.done(&["scrub"]);
        assert!(said.contains(&format!("{copy}: it is missing or cut short; it was written anew")), "{said}");
        assert!(said.contains("1 place is damaged") && copies().any(|name| name == copy), "{said}");
        assert!(monitor(&fixture, 1, &[]).contains("WARNING"));
        let said = fixture.done(&["scrub"]);
        assert!(!said.contains("nothing is lost"), "{said}");
        assert!(monitor(&fixture, 0, &[]).contains("OK"));
        if let Some(owner) = owner {
            owner.close().unwrap();
        }
    }
}

#[test]
fn what_was_healed_is_a_warning_until_a_scrub_finds_nothing() {
    let fixture = Fixture::with_db();
    fixture.done(&["copies", "--set", "all"]);
    damage(&fixture);
    let owner = fixture.own();
    assert_eq!(fixture.done(&["cat", "db@one/app"]), "first");
    let text = monitor(&fixture, 1, &[]);
    assert!(text.contains("healed from its copy") && text.contains("'healed'=1c"), "{text}");
    assert!(monitor(&fixture, 1, &[]).contains("run: icecore scrub"), "looking ends nothing");
    fixture.done(&["scrub"]);
    monitor(&fixture, 0, &[]);
    owner.close().unwrap();
    monitor(&fixture, 0, &[]);
}

#[test]
fn what_a_scrub_has_healed_is_a_warning_until_the_next_one() {
    let fixture = Fixture::with_db();
    fixture.done(&["copies", "--set", "all"]);
    damage(&fixture);
    fixture.done(&["scrub"]);
    let text = monitor(&fixture, 1, &[]);
    assert!(text.contains("found 1 place damaged, and nothing lost"), "{text}");
    fixture.done(&["scrub"]);
    monitor(&fixture, 0, &[]);
}

#[test]
fn a_pool_that_takes_no_more_writes_is_critical_until_it_is_opened_again() {
    use rustix::process::{Pid, Resource, Rlimit, prlimit};
    let fixture = Fixture::with_db();
    let mut owner = crate::owned::spawn_owner(&fixture);
    monitor(&fixture, 0, &[]);
    // As a disk that refuses every write.
    let nothing = Rlimit { current: Some(0), maximum: Some(0) };
    prlimit(Some(Pid::from_child(&owner)), Resource::Fsize, nothing).unwrap();
    fixture.refused(1, &["snapshot", "db@two"]);
    let text = monitor(&fixture, 2, &[]);
    assert!(
        text.starts_with("ICECORE CRITICAL") && text.contains("takes no writes since a failure"),
        "{text}"
    );
    assert!(text.contains(&format!("process {}", owner.id())) && text.contains("'failed'=1"), "{text}");
    assert!(text.contains("cannot write") && text.contains("run: icecore status "), "{text}");
    owner.kill().unwrap();
    owner.wait().unwrap();
    // What was refused could not be written down either.
    fixture.done(&["snapshot", "db@two"]);
    monitor(&fixture, 0, &[]);
}

/// Copies the pool to a filesystem that is then mounted read-only, and runs the program with it there. It is
/// mounted where nothing else sees it and goes with the process. `None` where mounting is not allowed; says
/// so.
pub fn run_read_only(fixture: &Fixture, arguments: &[&str]) -> Option<std::process::Output> {
    const SCRIPT: &str = r#"
        mount -t tmpfs -o size=64m none "$1" && cp -a "$2" "$1/pool" && mount -o remount,ro "$1" || exit 77
        pool=$1/pool program=$3; shift 3; exec "$program" -P "$pool" "$@""#;
    let place = fixture.beside("mounted");
    std::fs::create_dir(&place).unwrap();
    let output = std::process::Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", SCRIPT, "sh"])
        .args([&place, &fixture.pool, &assert_cmd::cargo::cargo_bin("icecore")])
        .args(arguments)
        .output();
    std::fs::remove_dir(&place).unwrap();
    match output {
        Ok(output) if output.status.code() != Some(77) && !output.stderr.starts_with(b"unshare:") => {
            Some(output)
        }
        other => {
            eprintln!("left out: mounting is not allowed here: {other:?}");
            None
        }
    }
}

#[test]
fn a_pool_on_a_filesystem_that_is_read_only_is_critical() {
    let fixture = Fixture::with_db();
    let Some(output) = run_read_only(&fixture, &["monitor"]) else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("takes no writes: its filesystem is read-only") && said.contains("'failed'=1"),
        "{said}"
    );
    // One that was killed is recovered in memory.
    let mut owner = crate::owned::spawn_owner(&fixture);
    fixture.done(&["snapshot", "db@two"]);
    owner.kill().unwrap();
    owner.wait().unwrap();
    let output = run_read_only(&fixture, &["monitor"]).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("takes no writes: its filesystem is read-only"), "{said}");
}

#[test]
fn a_disk_that_cannot_be_read_is_critical() {
    let fixture = Fixture::with_db();
    for name in ["superblock.0", "superblock.1"] {
        let path = fixture.pool.join(name);
        std::fs::remove_file(&path).unwrap();
        // Its beginning is not there: reading it is EIO.
        std::os::unix::fs::symlink("/proc/self/mem", path).unwrap();
    }
    let text = monitor(&fixture, 2, &[]);
    assert!(text.contains("os error 5") && text.contains("run: icecore check "), "{text}");
}

/// Nothing is made again without a word.
#[test]
fn a_superblock_that_is_made_again_from_its_twin_is_a_warning_until_a_scrub() {
    type Damage = fn(&std::path::Path);
    let kinds: [(&str, Damage); 3] = [
        ("checksum", |path| {
            let mut bytes = std::fs::read(path).unwrap();
            bytes[40] ^= 1;
            std::fs::write(path, bytes).unwrap();
        }),
        ("cut short", |path| std::fs::write(path, b"").unwrap()),
        ("there is no", |path| std::fs::remove_file(path).unwrap()),
    ];
    for (name, (why, damage)) in ["superblock.0", "superblock.1", "superblock.0"].into_iter().zip(kinds) {
        let fixture = Fixture::with_db();
        damage(&fixture.pool.join(name));
        fixture.done(&["snapshot", "db@two"]);
        let text = monitor(&fixture, 1, &[]);
        assert!(text.contains("nothing is lost: damage in ") && text.contains(name), "{text}");
        assert!(text.contains(why) && text.contains("made again from its twin"), "{text}");
        fixture.done(&["scrub"]);
        monitor(&fixture, 0, &[]);
        fixture.done(&["check"]);
    }
}

#[test]
fn a_pool_without_its_superblocks_is_critical() {
    let fixture = Fixture::with_db();
    for name in ["superblock.0", "superblock.1"] {
        std::fs::remove_file(fixture.pool.join(name)).unwrap();
    }
    assert!(monitor(&fixture, 2, &[]).contains("--mirror"));
    let assert = program().arg("monitor").arg(&fixture.pool).assert().code(2);
    assert!(String::from_utf8_lossy(&assert.get_output().stdout).starts_with("ICECORE CRITICAL"));
}

/// Flips a byte of the only data block of `db@one`.
pub fn damage(fixture: &Fixture) {
    // The content stands at the beginning of a merged block.
    damage_where(fixture, |block| block.starts_with(b"first\0\0\0"));
}

/// Flips a byte of the first block that is meant.
pub fn damage_where(fixture: &Fixture, is_meant: impl Fn(&[u8]) -> bool) {
    for entry in std::fs::read_dir(&fixture.pool).unwrap() {
        let path = entry.unwrap().path();
        let Ok(mut bytes) = std::fs::read(&path) else { continue };
        if path.file_name().unwrap().to_str().unwrap().starts_with("copy") {
            continue;
        }
        if let Some(block) = bytes.chunks_exact(4096).position(&is_meant) {
            bytes[block * 4096 + 2] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            return;
        }
    }
    panic!("the block is nowhere");
}

#[test]
fn what_cannot_be_asked_is_unknown() {
    let fixture = Fixture::new();
    let gone = fixture.beside("gone");
    let assert = program().arg("monitor").arg(&gone).assert().code(3).stderr("");
    let said = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    assert!(said.starts_with("ICECORE UNKNOWN - ") && said.contains("gone is not a pool"), "{said}");
    for (arguments, part) in [
        (&["--age-warn", "soon"][..], "--age-warn: \"soon\""),
        (&["--space-warn", "80"], "--space-warn: \"80\""),
        (&["--space-warn", "95%"], "--space-warn 95% is above --space-crit 90%"),
        (&["--age-warn", "2h", "--age-crit", "1h"], "--age-warn 2h is above --age-crit 1h"),
        (&["--scrub-warn", "2w", "--scrub-crit", "1w"], "--scrub-warn 2w is above --scrub-crit 1w"),
        (&["--nonsense"], "--nonsense"),
        (&["--age-warn"], "--age-warn"),
        (&["a", "b"], "'b'"),
    ] {
        let assert = fixture.run(&[&["monitor"], arguments].concat()).assert().code(3).stderr("");
        let said = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
        let first = said.lines().next().unwrap();
        assert!(first.starts_with("ICECORE UNKNOWN - ") && first.contains(part), "{arguments:?}: {said}");
    }
    // Other commands end as they always do, and help is help.
    fixture.refused(2, &["list", "monitor", "--nonsense"]);
    program().args(["monitor", "--help"]).assert().success();
    let said = monitor(&fixture, 3, &["--json", "--age-warn", "soon"]);
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["state"], "UNKNOWN");
    let said = monitor(&fixture, 3, &["--json", "--nonsense"]);
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    assert_eq!(document["state"], "UNKNOWN");
    assert!(document["checks"][0]["text"].as_str().unwrap().contains("--nonsense"), "{said}");
    let options = icecore::OpenOptions { control_socket: false, ..icecore::OpenOptions::default() };
    let pool = icecore::Pool::open_directory(&fixture.pool, &options).unwrap();
    assert!(monitor(&fixture, 3, &[]).starts_with("ICECORE UNKNOWN"));
    pool.close().unwrap();
}
