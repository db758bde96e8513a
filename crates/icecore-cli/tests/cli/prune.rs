//! Retention: what goes, what stays and why.

use crate::fixture::{Fixture, program};
use serde_json::Value;

/// Dataset `db` with so many snapshots `auto-0`, `auto-1`..., each of which alone holds 64 KiB.
fn with_snapshots(count: usize) -> Fixture {
    let fixture = Fixture::new();
    fixture.done(&["create", "db"]);
    for index in 0..count {
        fixture.import("app", &vec![index as u8 + 1; 64 << 10]);
        fixture.done(&["snapshot", &format!("db@auto-{index}")]);
    }
    fixture.import("app", b"now");
    fixture
}

fn snapshots(fixture: &Fixture) -> Vec<String> {
    let text = fixture.done(&["list", "-H", "-t", "snapshot", "-o", "name"]);
    text.lines().map(str::to_owned).collect()
}

/// Names and reasons of what has this action.
fn rows(document: &Value, action: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = document["snapshots"].as_array().unwrap().iter().filter(|row| row["action"] == action);
    rows.map(|row| {
        let reasons: Vec<String> = row["reasons"].as_array().unwrap().iter().map(text).collect();
        (text(&row["name"]), reasons.join(", "))
    })
    .collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, why)| ((*name).to_owned(), (*why).to_owned())).collect()
}

fn used(fixture: &Fixture) -> u64 {
    fixture.json(&["status", "--json"])["counters"]["used_bytes"].as_u64().unwrap()
}

#[test]
fn options_are_a_policy_and_dry_runs_tell_the_truth() {
    let fixture = with_snapshots(5);
    let shown = fixture.done(&["prune", "-n", "--keep-last", "2", "db"]);
    assert!(shown.contains("would destroy 3 snapshots, keeping 2; would reclaim"), "{shown}");
    assert_eq!(snapshots(&fixture).len(), 5);
    let planned = fixture.json(&["prune", "--json", "-n", "--keep-last", "2", "db"]);
    assert_eq!(rows(&planned, "destroy"), pairs(&[("db@auto-0", ""), ("db@auto-1", ""), ("db@auto-2", "")]));
    assert_eq!(rows(&planned, "keep"), pairs(&[("db@auto-3", "last"), ("db@auto-4", "last")]));
    let before = used(&fixture);
    assert_eq!(fixture.done(&["prune", "--keep-last", "2", "db"]), "");
    assert_eq!(snapshots(&fixture), ["db@auto-3", "db@auto-4"]);
    let freed = planned["freed_bytes"].as_u64().unwrap();
    assert!(freed >= 3 * (64 << 10));
    assert_eq!(before - used(&fixture), freed);
    let shown = fixture.done(&["prune", "-v", "--keep-within", "1d", "--keep-daily", "1", "db"]);
    assert!(shown.contains("within") && shown.contains("daily"), "{shown}");
    assert_eq!(snapshots(&fixture).len(), 2);
}

#[test]
fn a_timer_only_runs_prune_all() {
    let fixture = with_snapshots(3);
    fixture.done(&["create", "-p", "team/a"]);
    fixture.done(&["create", "other"]);
    for name in ["one", "two", "three"] {
        fixture.done(&["snapshot", "-r", &format!("team@{name}"), &format!("other@{name}")]);
    }
    fixture.done(&["set", "icecore:prune.last=1", "team"]);
    fixture.done(&["set", "icecore:prune.last=2", "team/a"]);
    let shown = fixture.done(&["prune", "-a", "-v"]);
    assert!(shown.contains("no policy"), "{shown}");
    let left = snapshots(&fixture);
    assert_eq!(left.iter().filter(|name| name.starts_with("team@")).collect::<Vec<_>>(), ["team@three"]);
    assert_eq!(left.iter().filter(|name| name.starts_with("team/a@")).count(), 2);
    assert_eq!(left.iter().filter(|name| name.starts_with("other@")).count(), 3);
    assert_eq!(left.iter().filter(|name| name.starts_with("db@")).count(), 3);
    // Set to 0, an inherited rule counts no more.
    fixture.done(&["set", "icecore:prune.last=0", "team/a"]);
    fixture.done(&["prune", "-r", "team"]);
    assert_eq!(snapshots(&fixture).len(), left.len());
    // The same through the folder of the pool, as a template of a unit has it.
    let pool = fixture.pool.to_str().unwrap();
    crate::fixture::program().args(["prune", "-a", pool]).assert().success();
}

#[test]
fn rules_that_make_no_sense_destroy_nothing() {
    let fixture = with_snapshots(3);
    for (rule, value) in [("dayly", "7"), ("daily", "many"), ("within", "7")] {
        let said = fixture.refused(1, &["set", &format!("icecore:prune.{rule}={value}"), "db"]);
        assert!(said.contains(value) || said.contains(rule), "{said}");
    }
    assert!(fixture.refused(1, &["set", "icecore:nonsense=1", "db"]).contains("icecore's own"));
    assert!(fixture.refused(1, &["create", "-o", "icecore:prune.dayly=1", "x"]).contains("dayly"));
    fixture.refused(2, &["prune", "--keep-last", "0", "db"]);
    fixture.refused(2, &["prune", "--keep-daily", "x", "db"]);
    fixture.refused(2, &["prune"]);
    fixture.refused(2, &["prune", "-a", "db", "team"]);
    fixture.refused(2, &["prune", "--keep-last", "1", "db@auto-1"]);
    fixture.refused(2, &["prune", "--free", "120%", "db"]);
    // No user means 20 bytes.
    let said = fixture.refused(2, &["prune", "--free", "20", "db"]);
    assert!(said.contains("--free: 20 has no unit: write 20% or 20G"), "{said}");
    let said = fixture.refused(2, &["prune", "--max-used", "20", "db"]);
    assert!(said.contains("--max-used: 20 has no unit: write 20G"), "{said}");
    let said = fixture.refused(2, &["prune", "--keep-within", "1x", "db"]);
    assert!(
        said.contains("--keep-within: \"1x\"") && said.contains("s, m, h, d, w, mo or y, as in 90m"),
        "{said}"
    );
    fixture.refused(1, &["prune", "--keep-last", "1", "none"]);
    fixture.done(&["prune", "db"]);
    fixture.done(&["prune", "-a", "--free", "100B", "-v"]);
    assert_eq!(snapshots(&fixture).len(), 3);
}

#[test]
fn what_is_held_cloned_or_kept_by_a_rollback_stays() {
    let fixture = with_snapshots(6);
    fixture.done(&["hold", "audit", "db@auto-0"]);
    fixture.done(&["hold", "--expires", "30d", "later", "db@auto-1"]);
    fixture.done(&["hold", "--expires", "2001-01-01", "over", "db@auto-2"]);
    fixture.done(&["clone", "db@auto-3", "try"]);
    let saved = fixture.done(&["rollback", "db@auto-4"]);
    let saved = saved.trim_end().rsplit(' ').next().unwrap();
    let holds = fixture.done(&["holds", "-H", "db@auto-0", "db@auto-1", "db@auto-2"]);
    let expires: Vec<_> = holds.lines().map(|line| line.rsplit('\t').next().unwrap()).collect();
    assert_eq!((expires[0], expires[2]), ("-", "2001-01-01T00:00:00Z"));

    let planned = fixture.json(&["prune", "--json", "-n", "--keep-last", "1", "db"]);
    assert_eq!(rows(&planned, "destroy"), pairs(&[("db@auto-2", ""), ("db@auto-4", "")]));
    assert_eq!(
        rows(&planned, "keep"),
        pairs(&[
            ("db@auto-0", "held: audit"),
            ("db@auto-1", "held: later"),
            ("db@auto-3", "cloned: try"),
            ("db@auto-5", "last"),
            (saved, "kept by a rollback"),
        ])
    );
    assert_eq!(planned["released"][0]["name"], "db@auto-2");
    assert_eq!(fixture.done(&["holds", "-H", "db@auto-2"]).lines().count(), 1);
    let before = used(&fixture);
    let done = fixture.json(&["prune", "--json", "--keep-last", "1", "db"]);
    assert_eq!(done["freed_bytes"], planned["freed_bytes"]);
    assert_eq!(before - used(&fixture), done["freed_bytes"].as_u64().unwrap());
    assert_eq!(snapshots(&fixture).len(), 5);
    // A hold that is put on anew has no end unless one is given.
    fixture.done(&["release", "later", "db@auto-1"]);
    fixture.done(&["hold", "later", "db@auto-1"]);
    assert!(fixture.done(&["holds", "-H", "db@auto-1"]).ends_with("\t-\n"));
    assert!(fixture.refused(2, &["hold", "--expires", "soon", "x", "db@auto-1"]).contains("soon"));
}

/// `db` was rolled back to `auto-0`, and both what it was before and what it is now have overwritten all that
/// this had.
fn overwritten_in_two_branches() -> (Fixture, u64) {
    let fixture = Fixture::new();
    fixture.done(&["create", "db"]);
    fixture.import("app", &[1; 4 << 20]);
    fixture.done(&["snapshot", "db@auto-0"]);
    fixture.import("app", &[2; 4 << 20]);
    fixture.done(&["rollback", "db@auto-0"]);
    fixture.import("app", &[3; 4 << 20]);
    fixture.done(&["snapshot", "db@auto-1"]);
    let listed = fixture.done(&["list", "-Hp", "-o", "used", "db@auto-0"]);
    let alone: u64 = listed.trim().parse().unwrap();
    assert!(alone >= 4 << 20, "{alone}");
    (fixture, alone)
}

#[test]
fn what_all_branches_have_replaced_comes_back_with_the_snapshot_that_had_it() {
    let (fixture, alone) = overwritten_in_two_branches();
    let shown = fixture.done(&["destroy", "-npv", "db@auto-0"]);
    assert!(shown.ends_with(&format!("reclaim\t{alone}\n")), "{shown}");
    let planned = fixture.json(&["prune", "--json", "-n", "--keep-last", "1", "db"]);
    assert_eq!(planned["freed_bytes"].as_u64(), Some(alone));
    let before = used(&fixture);
    let done = fixture.json(&["prune", "--json", "--keep-last", "1", "db"]);
    assert_eq!(done["freed_bytes"].as_u64(), Some(alone));
    assert_eq!(before - used(&fixture), alone);
    assert!(fixture.done(&["check", "--data"]).ends_with("nothing is wrong\n"));
    let saved = snapshots(&fixture).into_iter().find(|name| name.starts_with("db@rollback-")).unwrap();
    fixture.done(&["destroy", &saved]);
    assert!(fixture.done(&["check", "--data"]).ends_with("nothing is wrong\n"));
}

#[test]
fn pruning_for_space_gets_back_what_all_branches_have_replaced() {
    let (fixture, alone) = overwritten_in_two_branches();
    let before = used(&fixture);
    let goal = |used: u64| format!("{used}B");
    fixture.done(&["prune", "--max-used", &goal(before - alone), "db"]);
    assert_eq!(before - used(&fixture), alone);
    // Nothing is left that a snapshot held which is gone: what the program says of the rest is true.
    let shown = fixture.refused(6, &["prune", "--max-used", &goal(before / 10), "db"]);
    assert!(shown.contains("2 snapshots stay") && shown.contains("what the datasets hold now"), "{shown}");
}

#[test]
fn a_prefix_leaves_names_given_by_hand_alone() {
    let fixture = with_snapshots(3);
    fixture.done(&["snapshot", "db@before-upgrade"]);
    fixture.done(&["set", "icecore:prune.last=1", "icecore:prune.prefix=auto-", "db"]);
    let said = fixture.done(&["snapshot", "-a"]);
    assert!(said.starts_with("db@auto-2"), "{said}");
    let planned = fixture.done(&["prune", "-nv", "-a"]);
    assert!(planned.contains("other name"), "{planned}");
    // Also where rules are given beside it.
    let planned = fixture.done(&["prune", "-nv", "--keep-last", "1", "db"]);
    assert!(!planned.contains("destroy db@before-upgrade") && planned.contains("other name"), "{planned}");
    let planned = fixture.done(&["prune", "-np", "--keep-last", "1", "--prefix", "", "db"]);
    assert!(planned.contains("destroy\tdb@before-upgrade"), "{planned}");
    fixture.done(&["prune", "-a"]);
    assert_eq!(snapshots(&fixture), ["db@before-upgrade", said.trim_end()]);
    let said = fixture.done(&["snapshot", "-r", "db", "--prefix", "hourly-"]);
    assert!(said.starts_with("db@hourly-2"), "{said}");
}

#[test]
fn for_space_the_oldest_go_and_only_as_many_as_it_takes() {
    let fixture = with_snapshots(6);
    let counters = fixture.json(&["status", "--json"])["counters"].clone();
    let (now, capacity) =
        (counters["used_bytes"].as_u64().unwrap(), counters["capacity_bytes"].as_u64().unwrap());
    assert!(capacity > now);
    let most = format!("{}B", now - (100 << 10));
    let planned = fixture.json(&["prune", "--json", "-n", "--max-used", &most, "db"]);
    assert_eq!(rows(&planned, "destroy"), pairs(&[("db@auto-0", ""), ("db@auto-1", "")]));
    assert_eq!(planned["space"]["needed_bytes"], 100 << 10);
    let kept = rows(&planned, "keep");
    assert_eq!(kept[0], ("db@auto-2".to_owned(), "not needed for space".to_owned()));
    assert_eq!(kept[3], ("db@auto-5".to_owned(), "newest".to_owned()));
    fixture.done(&["prune", "--max-used", &most, "db"]);
    assert!(used(&fixture) <= now - (100 << 10));
    assert_eq!(snapshots(&fixture).len(), 4);
    // Rules go before space.
    let said = fixture.refused(6, &["prune", "--max-used", "1B", "--keep-last", "3", "db"]);
    assert!(said.contains("3 snapshots stay"), "{said}");
    assert_eq!(snapshots(&fixture), ["db@auto-3", "db@auto-4", "db@auto-5"]);
    fixture.done(&["prune", "--free", "0%", "db"]);
    assert_eq!(snapshots(&fixture).len(), 3);
    fixture.refused(6, &["prune", "--free", "100%", "db"]);
    assert_eq!(snapshots(&fixture), ["db@auto-5"]);
}

/// A share that some of the snapshots stand in the way of: those go, and not one more.
#[test]
fn a_share_that_lies_in_the_middle_is_reached_and_pruning_stops_there() {
    let folder = tempfile::tempdir().unwrap();
    let pool = folder.path().join("pool");
    program().args(["init", "--segment-size", "2M", "--size-limit", "96M"]).arg(&pool).assert().success();
    let fixture = Fixture { folder, pool };
    fixture.done(&["create", "db"]);
    for index in 0..12 {
        fixture.import("app", &vec![index + 1; 6 << 20]);
        fixture.done(&["snapshot", &format!("db@auto-{index}")]);
    }
    fixture.import("app", b"now");
    // What is free beside what is kept back from data.
    let space = || {
        let status = fixture.json(&["status", "--json"]);
        let counter = |name: &str| status["counters"][name].as_u64().unwrap();
        let capacity = counter("capacity_bytes");
        (capacity, (capacity - counter("used_bytes")).saturating_sub(counter("kept_bytes")))
    };
    let (capacity, before) = space();
    let wanted = capacity * 3 / 10;
    assert!(before < wanted, "{before} of {capacity} are free already");
    // Each gives back its file, and what nodes it has.
    let planned = fixture.json(&["prune", "--json", "-n", "--free", "30%", "db"]);
    let needed = wanted - before;
    let expected = needed.div_ceil((6 << 20) + (64 << 10))..=needed.div_ceil(6 << 20);
    let doomed: Vec<String> = rows(&planned, "destroy").into_iter().map(|(name, _)| name).collect();
    let count = doomed.len();
    assert!(expected.contains(&(count as u64)) && (2..8).contains(&count), "{count}, not {expected:?}");
    assert_eq!(doomed, (0..count).map(|index| format!("db@auto-{index}")).collect::<Vec<_>>());
    let last = &doomed[count - 1];
    let freed = |names: &[&str]| {
        let listed = fixture.json(&[&["list", "--json", "--reclaim"], names].concat());
        listed["reclaim_bytes"].as_u64().unwrap()
    };
    let names: Vec<&str> = doomed.iter().map(String::as_str).collect();
    assert!(freed(&names) >= needed, "{last} goes, and that is enough");
    assert!(freed(&names[..count - 1]) < needed, "without {last} it is not");
    assert_eq!(fixture.done(&["prune", "--free", "30%", "db"]), "");
    let (_, after) = space();
    assert!(after >= wanted, "{after} of {capacity} are free");
    let left: Vec<String> = (count..12).map(|index| format!("db@auto-{index}")).collect();
    assert_eq!(snapshots(&fixture), left);
    // Once reached it stays, however often a timer asks for it.
    fixture.done(&["prune", "--free", "30%", "db"]);
    assert_eq!(snapshots(&fixture), left);
}

#[test]
fn prune_works_on_a_pool_in_use() {
    let fixture = with_snapshots(4);
    let pool = fixture.own();
    fixture.done(&["set", "icecore:prune.last=2", "db"]);
    fixture.done(&["hold", "--expires", "0", "over", "db@auto-1"]);
    let shown = fixture.done(&["prune", "-a", "-v"]);
    assert!(shown.contains("released hold over on db@auto-1"), "{shown}");
    assert_eq!(snapshots(&fixture), ["db@auto-2", "db@auto-3"]);
    let said = fixture.done(&["snapshot", "db"]);
    assert!(said.starts_with("db@auto-"), "{said}");
    pool.close().unwrap();
}

#[test]
fn several_snapshots_are_destroyed_in_one_step_and_the_sum_is_exact() {
    let fixture = with_snapshots(6);
    let planned = fixture.done(&["destroy", "-np", "db@auto-0%auto-1", "db@auto-3", "db@auto-1"]);
    let names: Vec<_> = planned.lines().filter_map(|line| line.strip_prefix("destroy\t")).collect();
    assert_eq!(names, ["db@auto-0", "db@auto-1", "db@auto-3"]);
    let bytes: u64 = planned.lines().last().unwrap().strip_prefix("reclaim\t").unwrap().parse().unwrap();
    fixture.done(&["hold", "keep", "db@auto-3"]);
    assert!(fixture.refused(7, &["destroy", "db@auto-0%auto-1", "db@auto-3"]).contains("keep"));
    assert_eq!(snapshots(&fixture).len(), 6);
    // A list can say it of what is held, too.
    let listed = fixture.done(&["list", "-Hp", "--reclaim", "db@auto-0%auto-1", "db@auto-3"]);
    assert_eq!(listed.lines().last().unwrap().split('\t').nth(1).unwrap(), bytes.to_string());
    assert_eq!(listed.lines().count(), 4);
    let document = fixture.json(&["list", "--json", "--reclaim", "db@auto-0%auto-1", "db@auto-3"]);
    assert_eq!(document["reclaim_bytes"], bytes);
    fixture.done(&["release", "keep", "db@auto-3"]);
    let before = used(&fixture);
    fixture.done(&["destroy", "db@auto-0%auto-1", "db@auto-3"]);
    assert_eq!(before - used(&fixture), bytes);
    fixture.refused(2, &["destroy", "db@auto-4", "db"]);
}

/// After a rollback, a clone and a promotion a snapshot of one dataset hangs on one of another, which is no
/// clone's origin. That goes like any other.
#[test]
fn what_a_rollback_kept_of_another_dataset_keeps_nothing() {
    let fixture = Fixture::new();
    fixture.done(&["create", "a"]);
    fixture.import_to("a/f", &[1; 100_000]);
    fixture.done(&["snapshot", "a@1"]);
    fixture.import_to("a/f", &[2; 200_000]);
    let said = fixture.done(&["rollback", "a@1"]);
    let saved = said.trim_end().rsplit(' ').next().unwrap();
    fixture.import_to("a/f", &[3; 50_000]);
    fixture.done(&["snapshot", "a@2"]);
    fixture.done(&["clone", "a@2", "c"]);
    fixture.done(&["promote", "c"]);
    fixture.done(&["snapshot", "c@3"]);
    fixture.done(&["create", "z"]);
    for number in ["1", "2", "3"] {
        fixture.import_to("z/f", &[4; 10_000]);
        fixture.done(&["snapshot", &format!("z@{number}")]);
    }
    fixture.done(&["set", "icecore:prune.last=1", "c", "z"]);
    let kept = fixture.done(&["list", "-H", "-o", "clones", "c@1"]);
    assert_eq!(kept.trim_end(), "-");
    let planned = fixture.json(&["prune", "--json", "-n", "-a"]);
    assert_eq!(rows(&planned, "destroy"), pairs(&[("c@1", ""), ("z@1", ""), ("z@2", "")]));
    fixture.done(&["prune", "-a"]);
    let all = snapshots(&fixture);
    assert!(!all.contains(&"z@2".to_owned()) && !all.contains(&"c@1".to_owned()), "{all:?}");
    fixture.done(&["destroy", saved]);
}

/// Snapshots that SQL takes without a name are named as those that the command takes: a policy finds them.
#[test]
fn names_that_sql_makes_are_found_by_their_prefix() {
    let fixture = Fixture::new();
    fixture.done(&["create", "db"]);
    fixture.done(&["set", "icecore:prune.prefix=auto-", "db"]);
    let taken =
        "CREATE TABLE t(x); SELECT icecore_snapshot(); INSERT INTO t VALUES (1); SELECT icecore_snapshot()";
    fixture.done(&["sql", "-c", "db/app.db", taken]);
    fixture.done(&["snapshot", "db@kept-by-hand"]);
    assert_eq!(snapshots(&fixture).len(), 3);
    fixture.done(&["prune", "--keep-last", "1", "db"]);
    let left = snapshots(&fixture);
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(
        left.contains(&"db@kept-by-hand".to_owned()) && left.iter().any(|name| name.starts_with("db@auto-"))
    );
}
