//! Commands that take long, on a pool that no other process has open: they are in no way.

use crate::fixture::{Fixture, wait_until};
use icecore::{OpenOptions, Pool};
use std::process::{Child, Stdio};
use std::time::Duration;

/// A command that goes on until this is dropped.
struct Running(Child);

impl Running {
    fn new(fixture: &Fixture, arguments: &[&str]) -> Self {
        // A shell that runs the tests in the background may have them ignore the signals, and all that they
        // start.
        let child = std::process::Command::new("env")
            .arg("--default-signal=INT,TERM")
            .arg(assert_cmd::cargo::cargo_bin("icecore"))
            .arg("-P")
            .arg(&fixture.pool)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    fn goes_on(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_scrub_lets_others_write_and_shows_how_far_it_is() {
    let fixture = Fixture::with_db();
    fixture.import("large", &vec![7; 4 << 20]);
    let mut scrub = Running::new(&fixture, &["scrub", "--rate", "1K"]);
    wait_until(|| fixture.done(&["status"]).contains("\nscrub  "));
    fixture.done(&["create", "other"]);
    fixture.done(&["snapshot", "-a"]);
    assert!(scrub.goes_on());
    drop(scrub);
    assert!(fixture.done(&["list", "-H", "-o", "name"]).contains("other\n"), "nothing is lost with it");
}

#[test]
fn a_scrub_makes_way_for_a_program_that_opens_the_pool_and_goes_on_through_it() {
    let fixture = Fixture::with_db();
    fixture.import("large", &vec![7; 8 << 20]);
    let mut scrub = Running::new(&fixture, &["scrub", "--rate", "64K"]);
    wait_until(|| fixture.done(&["status"]).contains("\nscrub  "));
    let mut opened = None;
    // It makes way from the first block on.
    wait_until(|| {
        opened = Pool::open_directory(&fixture.pool, &OpenOptions::default()).ok();
        opened.is_some()
    });
    let pool = opened.unwrap();
    wait_until(|| pool.scrubbing().is_some_and(|progress| progress.done > 0));
    assert!(scrub.goes_on());
    pool.close().expect("closed");
    wait_until(|| !scrub.goes_on());
    let kept = std::fs::read_to_string(fixture.pool.join("scrub-position")).unwrap();
    assert!(!kept.contains("verified_bytes 0\n"), "{kept}");
}

#[test]
fn a_scrub_that_is_interrupted_closes_the_pool_and_keeps_its_place() {
    use rustix::process::{Pid, Signal, kill_process};
    use std::os::unix::process::ExitStatusExt as _;
    let fixture = Fixture::with_db();
    fixture.import("large", &vec![7; 8 << 20]);
    for signal in [Signal::INT, Signal::TERM] {
        let mut scrub = Running::new(&fixture, &["scrub", "--rate", "64K"]);
        wait_until(|| {
            let status = fixture.run(&["status", "--json"]).output().unwrap();
            let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap_or_default();
            status["scrub"]["done_bytes"].as_u64().is_some_and(|done| done > 0)
        });
        kill_process(Pid::from_child(&scrub.0), signal).unwrap();
        assert_eq!(scrub.0.wait().unwrap().signal(), Some(signal.as_raw()));
        assert!(!fixture.pool.join(icecore::admin::SOCKET_NAME).exists());
        let kept = std::fs::read_to_string(fixture.pool.join("scrub-position")).unwrap();
        assert!(kept.contains("\nnext ") && !kept.contains("verified_bytes 0\n"), "{kept}");
    }
    assert_eq!(fixture.json(&["check", "--json"])["was_clean"], true);
    assert!(fixture.done(&["scrub"]).starts_with("goes on with the scrub that began "));
    assert!(!fixture.done(&["scrub"]).contains("goes on"));
}

#[test]
fn a_scrub_heals_what_has_a_copy() {
    let fixture = Fixture::with_db();
    fixture.done(&["copies", "--set", "all"]);
    crate::monitor::damage(&fixture);
    let said = fixture.done(&["scrub"]);
    assert!(said.contains("it was healed from its copy") && said.contains("no damage"), "{said}");
    let said = fixture.done(&["scrub"]);
    assert!(!said.contains("nothing is lost"), "{said}");
}

#[test]
fn a_scrub_makes_copies_that_are_missing() {
    let fixture = Fixture::with_db();
    let mirror = fixture.beside("mirror");
    fixture.done(&["copies", "--set", "all", "--mirror", mirror.to_str().unwrap()]);
    std::fs::rename(&mirror, fixture.beside("away")).unwrap();
    fixture.done(&["create", "more"]);
    std::fs::rename(fixture.beside("away"), &mirror).unwrap();
    assert!(fixture.done(&["copies"]).contains("DEGRADED"));
    fixture.done(&["scrub"]);
    assert!(fixture.done(&["copies"]).contains("everything has its copy"));
}

#[test]
fn a_scrub_that_may_not_write_reads_and_says_so() {
    let fixture = Fixture::with_db();
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let reader = Pool::open_directory(&fixture.pool, &options).unwrap();
    let assert = fixture.run(&["scrub"]).assert().success();
    let output = assert.get_output();
    assert!(String::from_utf8_lossy(&output.stdout).contains("no damage"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("nothing is healed") && said.lines().count() == 1, "{said}");
    reader.close().unwrap();
}

#[test]
fn top_does_not_keep_the_pool() {
    let fixture = Fixture::with_db();
    let mut top = Running::new(&fixture, &["top", "--json", "--interval", "0.05"]);
    // Several times, so that it cannot be that `top` has not begun yet.
    for round in 0..10 {
        let mut opened = None;
        wait_until(|| {
            opened = Pool::open_directory(&fixture.pool, &OpenOptions::default()).ok();
            opened.is_some()
        });
        let pool = opened.unwrap();
        pool.create_dataset(&format!("d{round}"), false, &[]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        pool.close().unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    fixture.done(&["create", "other"]);
    assert!(top.goes_on());
}
