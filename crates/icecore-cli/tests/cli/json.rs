//! The shape of every JSON document.

use crate::fixture::Fixture;
use serde_json::{Value, json};

fn keys(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

fn sorted(mut names: Vec<&str>) -> Vec<&str> {
    names.sort_unstable();
    names
}

#[test]
fn every_document_begins_the_same() {
    let fixture = Fixture::with_db();
    for arguments in [
        &["list", "--json"][..],
        &["get", "--json", "all", "db"],
        &["holds", "--json", "db@one"],
        &["diff", "--json", "db@one"],
        &["ls", "--json", "db"],
        &["scrub", "--json"],
        &["check", "--json"],
        &["status", "--json"],
        &["snapshot", "--json", "db@two"],
        &["rollback", "--json", "-n", "db@two"],
        &["prune", "--json", "-n", "--keep-last", "1", "db"],
        &["destroy", "--json", "-n", "db@one"],
        &["destroy", "--json", "db@one"],
        &["rollback", "--json", "db@two"],
    ] {
        let document = fixture.json(arguments);
        assert_eq!(document["version"], 1, "{arguments:?}");
        assert_eq!(document["command"], arguments[0]);
        assert_eq!(document["pool"], fixture.pool.to_str().unwrap());
    }
}

#[test]
fn lists() {
    let fixture = Fixture::with_db();
    fixture.done(&["clone", "db@one", "try"]);
    let document = fixture.json(&["list", "--json", "-t", "all"]);
    let entries = document["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 3);
    let expected = [
        "available",
        "clones",
        "creation",
        "holds",
        "name",
        "origin",
        "quota",
        "referenced",
        "refquota",
        "refreservation",
        "reservation",
        "type",
        "used",
        "written",
    ];
    for entry in entries {
        assert_eq!(sorted(keys(entry)), expected);
        assert!(entry["used"].is_u64() && entry["referenced"].is_u64());
        assert!(entry["creation"].as_str().unwrap().ends_with('Z'));
    }
    assert_eq!(entries[1]["name"], "db@one");
    assert_eq!(entries[1]["clones"], json!(["try"]));
    assert_eq!((&entries[1]["available"], &entries[1]["holds"]), (&Value::Null, &json!(0)));
    assert_eq!(entries[2]["origin"], "db@one");
    let chosen = fixture.json(&["list", "--json", "-o", "name,team:owner", "db"]);
    assert_eq!(chosen["entries"], json!([{ "name": "db", "team:owner": null }]));
}

#[test]
fn properties_and_holds() {
    let fixture = Fixture::with_db();
    fixture.done(&["set", "team:owner=ada", "db"]);
    let document = fixture.json(&["get", "--json", "type,team:owner", "db", "db@one"]);
    let expected = json!([
        { "name": "db", "properties": {
            "type": { "value": "dataset", "source": null },
            "team:owner": { "value": "ada", "source": "local" } } },
        { "name": "db@one", "properties": {
            "type": { "value": "snapshot", "source": null },
            "team:owner": { "value": "ada", "source": "inherited from db" } } },
    ]);
    assert_eq!(document["entries"], expected);
    fixture.done(&["hold", "keep", "db@one"]);
    let document = fixture.json(&["holds", "--json", "db@one"]);
    assert_eq!(sorted(keys(&document["holds"][0])), ["created", "expires", "name", "tag"]);
    assert_eq!(document["holds"][0]["tag"], "keep");
}

#[test]
fn differences() {
    let fixture = Fixture::with_db();
    fixture.import("new", b"x");
    let document = fixture.json(&["diff", "--json", "db@one"]);
    assert_eq!((&document["from"], &document["to"]), (&json!("db@one"), &json!("db")));
    let expected = json!([
        { "change": "modified", "directory": true, "path": "/", "ranges": [] },
        { "change": "modified", "directory": false, "path": "app", "ranges": [{ "offset": 0, "length": 6 }] },
        { "change": "added", "directory": false, "path": "new", "ranges": [{ "offset": 0, "length": 1 }] },
    ]);
    assert_eq!(document["changes"], expected);
}

#[test]
fn what_was_done() {
    let fixture = Fixture::with_db();
    let snapshot = fixture.json(&["snapshot", "--json", "db@two"]);
    assert_eq!(snapshot["snapshots"], json!(["db@two"]));
    let rollback = fixture.json(&["rollback", "--json", "db@one"]);
    assert_eq!(rollback["snapshot"], "db@one");
    assert!(rollback["saved_as"].as_str().unwrap().starts_with("db@"));
    let destroy = fixture.json(&["destroy", "--json", "db@two"]);
    assert_eq!((&destroy["dry_run"], &destroy["destroyed"]), (&json!(false), &json!(["db@two"])));
    assert!(destroy["freed_bytes"].is_u64());
    let mut import = fixture.run(&["import", "--json", "-", "db/x"]);
    let import = import.write_stdin("abc").assert().success();
    let import: Value = serde_json::from_slice(&import.get_output().stdout).unwrap();
    assert_eq!(
        (&import["path"], &import["bytes"], &import["replaced"]),
        (&json!("db/x"), &json!(3), &json!(false))
    );
}

#[test]
fn files_scrub_and_status() {
    let fixture = Fixture::with_db();
    let document = fixture.json(&["ls", "--json", "db@one"]);
    assert_eq!(document["dataset_or_snapshot"], "db@one");
    let expected = ["gid", "inode", "links", "mode", "modified", "name", "size", "stored", "type", "uid"];
    assert_eq!(sorted(keys(&document["files"][0])), expected);
    let document = fixture.json(&["scrub", "--json"]);
    assert_eq!((&document["damaged_blocks"], &document["findings"]), (&json!(0), &json!([])));
    assert_eq!(document["complete"], true);
    assert!(document["verified_bytes"].as_u64().unwrap() > 0);
    let document = fixture.json(&["status", "--json"]);
    for key in [
        "id",
        "owner",
        "program",
        "read_only",
        "counters",
        "flush_nanoseconds",
        "snapshot_nanoseconds",
        "collector",
        "write_amplification",
    ] {
        assert!(document.get(key).is_some(), "{key} is missing");
    }
    assert_eq!(document["owner"], Value::Null);
    assert!(document["counters"]["live_bytes"].is_u64());
}
