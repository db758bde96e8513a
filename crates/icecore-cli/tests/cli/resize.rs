//! The size limit of a pool, changed from outside.

use crate::fixture::{Fixture, complaint, program};
use crate::full::fill;
use icecore::{OpenOptions, Pool};

const MIB: u64 = 1 << 20;

fn with_limit(limit: &str) -> Fixture {
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("pool");
    program().args(["init", "--size-limit", limit]).arg(&pool).assert().success();
    let fixture = Fixture { folder, pool };
    fixture.done(&["create", "db"]);
    fixture
}

fn limit(fixture: &Fixture) -> u64 {
    fixture.json(&["status", "--json"])["counters"]["size_limit_bytes"].as_u64().unwrap()
}

#[test]
fn a_process_with_a_full_pool_goes_on_when_its_limit_is_raised() {
    let fixture = with_limit("48M");
    let owner = fixture.own();
    let first = fill(&owner, b"first");
    // There is nothing that could be destroyed, and no room to write what would free some.
    fixture.run(&["import", "-", "db/more"]).write_stdin(vec![7; 1 << 20]).assert().code(6);
    assert_eq!(fixture.done(&["resize", "--size-limit", "96M"]), "");
    let second = fill(&owner, b"second");
    assert!(second >= first && second > 30 * MIB, "{first}, then {second}");
    assert_eq!(limit(&fixture), 96 * MIB);
    fixture.done(&["resize", "--size-limit", "none"]);
    assert!(
        fixture
            .done(&["status"])
            .lines()
            .any(|line| line.split_whitespace().eq(["size_limit_bytes", "none"]))
    );
    fixture.import("more", &vec![7; 64 << 20]);
    owner.close().unwrap();
    assert_eq!(limit(&fixture), 0);
    let said = fixture.done(&["status"]);
    assert!(
        said.lines().any(|line| line.starts_with("files  ") && line.ends_with(" segments of 2M")),
        "{said}"
    );
    assert_eq!(fixture.json(&["status", "--json"])["segment_bytes"], 2 * MIB);
    fixture.done(&["check"]);
}

#[test]
fn the_limit_of_a_pool_that_no_process_has_open_is_changed() {
    let fixture = with_limit("48M");
    let owner = fixture.own();
    fill(&owner, b"first");
    owner.close().unwrap();
    let pool = fixture.pool.to_str().unwrap();
    program().args(["resize", pool, "--size-limit", "64M"]).assert().success();
    assert_eq!(limit(&fixture), 64 * MIB);
    let owner = Pool::open_directory(&fixture.pool, &OpenOptions::default()).unwrap();
    assert!(fill(&owner, b"second") > 8 * MIB);
    owner.close().unwrap();
}

#[test]
fn a_limit_that_is_too_low_is_refused_with_the_least() {
    let fixture = with_limit("64M");
    let owner = fixture.own();
    fill(&owner, b"first");
    let here = fixture.refused(1, &["resize", "--size-limit", "10M"]);
    assert!(here.contains("must be") && here.contains("10M"), "{here}");
    assert_eq!(limit(&fixture), 64 * MIB);
    owner.close().unwrap();
    let there = fixture.refused(1, &["resize", "--size-limit", "0"]);
    assert!(there.contains("must be"), "{there}");
    fixture.refused(2, &["resize", "--size-limit", "much"]);
    fixture.refused(2, &["resize"]);
    // The figure that the refusal names is taken.
    let least = there.split("must be ").nth(1).and_then(|rest| rest.split_whitespace().next()).unwrap();
    fixture.done(&["resize", "--size-limit", least]);
    assert!(limit(&fixture) <= 64 * MIB);
    let mut nowhere = program();
    nowhere.args(["resize", "--size-limit", "1G"]).arg(fixture.beside("nothing"));
    complaint(nowhere, 3);
}
