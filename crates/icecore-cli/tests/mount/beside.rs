//! Every kind of command beside a mount, which owns the pool.

use crate::fixture::{Fixture, can_mount, program};
use std::fs;
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn every_command_works_beside_a_mount() {
    if !can_mount() {
        return;
    }
    let fixture = Fixture::new();
    fixture.mount();
    fs::write(fixture.path("db/app"), "first").unwrap();
    fixture.done(&["snapshot", "db@one"]);
    fs::write(fixture.path("db/app"), "second").unwrap();
    asks(&fixture);
    datasets_and_properties(&fixture);
    snapshots(&fixture);
    prune_beside_a_reader(&fixture);
    files(&fixture);
    the_pool(&fixture);
    fixture.unmount();
    assert_eq!(fixture.done(&["cat", "db/app"]), "first");
    fixture.done(&["check"]);
}

fn asks(fixture: &Fixture) {
    let owner = fixture.owner().as_raw_nonzero();
    assert!(fixture.done(&["status"]).contains(&format!("process {owner}")));
    assert_eq!(fixture.done(&["ls", "db"]), "app\n");
    assert_eq!(fixture.done(&["cat", "db/app"]), "second");
    assert_eq!(fixture.done(&["cat", "db@one/app"]), "first");
    assert_eq!(fixture.done(&["diff", "-H", "db@one"]), "M\t/app\n");
    assert!(fixture.done(&["list", "-t", "all"]).contains("db@one"));
    assert!(!fixture.run(&["monitor"]).stdout.is_empty());
}

fn datasets_and_properties(fixture: &Fixture) {
    fixture.done(&["create", "-p", "-o", "team:owner=ada", "team/x"]);
    assert!(fixture.path("team/x").is_dir());
    fixture.done(&["set", "team:owner=grace", "team"]);
    fixture.done(&["inherit", "team:owner", "team/x"]);
    assert_eq!(fixture.done(&["get", "-H", "-o", "value", "team:owner", "team/x"]), "grace\n");
    fixture.done(&["rename", "team/x", "team/y"]);
    assert!(fixture.path("team/y").is_dir() && !fixture.path("team/x").exists());
    fs::write(fixture.path("team/y/open"), "x").unwrap();
    let open = fs::File::open(fixture.path("team/y/open")).unwrap();
    let (code, refused) = fixture.refused(&["destroy", "-r", "team"]);
    assert!(code == 7 && refused.contains("team/y/open is open"), "{refused}");
    // The mount learns of a close(2) some time after it has returned.
    let closing = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(400));
        drop(open);
    });
    fixture.done(&["destroy", "-r", "team"]);
    closing.join().unwrap();
    assert!(!fixture.path("team").exists());
}

fn snapshots(fixture: &Fixture) {
    fixture.done(&["clone", "db@one", "try"]);
    assert_eq!(fs::read_to_string(fixture.path("try/app")).unwrap(), "first");
    fixture.done(&["promote", "try"]);
    fixture.done(&["rename", "try@one", "@first"]);
    assert!(fixture.path("try/.icecore/snapshots/first").is_dir());
    fixture.done(&["hold", "keep", "try@first"]);
    assert!(fixture.done(&["holds", "try@first"]).contains("keep"));
    let (code, refused) = fixture.refused(&["destroy", "try@first"]);
    assert!(code == 7 && refused.contains("keep"), "{refused}");
    fixture.done(&["release", "keep", "try@first"]);
    for name in ["db@two", "db@three"] {
        fixture.done(&["snapshot", name]);
    }
    assert!(fixture.done(&["destroy", "-nv", "db@three"]).contains("would reclaim"));
    fixture.done(&["prune", "--keep-last", "1", "db"]);
    assert!(!fixture.path("db/.icecore/snapshots/two").exists());
    fs::write(fixture.path("db/app"), "third").unwrap();
    fixture.done(&["rollback", "db@three"]);
    assert_eq!(fs::read_to_string(fixture.path("db/app")).unwrap(), "second");
}

/// What a program reads stays, and no other snapshot stays for it.
fn prune_beside_a_reader(fixture: &Fixture) {
    let names = ["four", "five", "six", "seven", "eight"];
    for name in names {
        fixture.done(&["snapshot", &format!("db@{name}")]);
    }
    let past = |name: &str| fixture.path(&format!("db/.icecore/snapshots/{name}"));
    let reader = fs::File::open(past("six").join("app")).unwrap();
    let (code, refused) = fixture.refused(&["prune", "--keep-last", "1", "db"]);
    let said = ["db@six", "close it first", "the others are pruned"];
    assert!(code == 7 && said.iter().all(|part| refused.contains(part)), "{refused}");
    assert_eq!(names.map(|name| past(name).exists()), [false, false, true, false, true]);
    drop(reader);
    fixture.done(&["prune", "--keep-last", "1", "db"]);
    assert!(!past("six").exists() && past("eight").exists());
}

fn files(fixture: &Fixture) {
    let mut import = program()
        .arg("-P")
        .arg(fixture.pool())
        .args(["import", "-f", "-", "db/app"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    import.stdin.take().unwrap().write_all(b"first").unwrap();
    assert!(import.wait().unwrap().success());
    assert_eq!(fs::read_to_string(fixture.path("db/app")).unwrap(), "first");
    assert_eq!(fixture.done(&["export", "db/app", "-"]), "first");
    let made = std::process::Command::new("sqlite3")
        .arg(fixture.path("db/bank.db"))
        .arg("pragma journal_mode=wal; create table t(x); insert into t values (42);")
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    assert_eq!(fixture.done(&["sql", "-H", "db/bank.db", "select x from t"]), "42\n");
}

fn the_pool(fixture: &Fixture) {
    assert!(fixture.done(&["scrub"]).contains("no damage"));
    fixture.done(&["resize", "--size-limit", "1G"]);
    fixture.done(&["resize", "--size-limit", "none"]);
    let (_, refused) = fixture.refused(&["init", fixture.pool().to_str().unwrap()]);
    assert!(refused.contains(&format!("in use by {} ", fixture.owner().as_raw_nonzero())), "{refused}");
}
