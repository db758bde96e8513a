//! Files of a pool that are missing or cut short, and a log that is damaged: what the guide for a failing
//! disk says happens.

use crate::fixture::Fixture;
use crate::owned::spawn_owner;
use std::collections::BTreeMap;
use std::path::Path;

const BLOCK: usize = 4096;

/// A file of whole blocks, none of which is like another.
fn content(mark: u8, blocks: usize) -> Vec<u8> {
    (0..blocks * BLOCK).map(|at| mark ^ (at / BLOCK * 31 + at % 241) as u8).collect()
}

/// The segment with most blocks of a file.
fn segment_with(fixture: &Fixture, file: &[u8]) -> String {
    let mut found: Vec<(usize, String)> = Vec::new();
    for name in crate::fixture::entries(&fixture.pool).into_iter().filter(|name| name.starts_with("segment."))
    {
        let bytes = std::fs::read(fixture.pool.join(&name)).unwrap();
        let count = bytes.chunks(BLOCK).filter(|block| file.chunks(BLOCK).any(|other| *block == other));
        found.push((count.count(), name));
    }
    found.into_iter().max().filter(|(count, _)| *count > 100).expect("it is in the log").1
}

/// What ends with a code, and its standard output.
fn said(fixture: &Fixture, code: i32, arguments: &[&str]) -> String {
    let assert = fixture.run(arguments).assert().code(code);
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

/// A pool with a large file, of which a segment is missing or cut short; its name, and what was in it.
fn with_loss(left: Option<u64>) -> (Fixture, Vec<u8>, String, Vec<u8>) {
    let fixture = Fixture::with_db();
    let big = content(7, 2000);
    fixture.import("big", &big);
    fixture.import("last", b"last");
    fixture.done(&["create", "other"]);
    let name = segment_with(&fixture, &big);
    let path = fixture.pool.join(&name);
    let bytes = std::fs::read(&path).unwrap();
    match left {
        None => std::fs::remove_file(&path).unwrap(),
        Some(left) => std::fs::File::options().write(true).open(&path).unwrap().set_len(left).unwrap(),
    }
    (fixture, big, name, bytes)
}

#[test]
fn a_segment_that_is_gone_is_reported_and_the_rest_goes_on() {
    for left in [None, Some(0), Some(1 << 20)] {
        let (fixture, big, name, bytes) = with_loss(left);
        let why = if left.is_none() { "it is missing" } else { "it is cut short" };
        fixture.done(&["list", "-t", "all"]);
        assert_eq!(fixture.done(&["cat", "db/app", "db@one/app", "db/last"]), "secondfirstlast");
        assert!(fixture.refused(5, &["cat", "db/big"]).contains(&name), "{left:?}");

        let text = said(&fixture, 2, &["monitor"]);
        assert!(text.starts_with("ICECORE CRITICAL") && text.contains(&name), "{text}");
        let status = fixture.json(&["status", "--json"]);
        let incidents = status["incidents"].as_array().unwrap();
        let is_reported = incidents.iter().any(|incident| {
            let what = incident["what"].as_str().unwrap();
            what.contains(&name) && what.contains(why)
        });
        assert!(is_reported, "{status:#}");
        assert!(fixture.done(&["status"]).contains(why));

        let text = said(&fixture, 5, &["scrub"]);
        assert!(
            text.contains(&name) && text.contains("  in big (inode ") && text.contains(" bytes at offset "),
            "{text}"
        );
        assert!(text.contains("  seen by db\n") && !text.contains("db@one"), "{text}");
        let document: serde_json::Value =
            serde_json::from_str(&said(&fixture, 5, &["scrub", "--json"])).unwrap();
        let lost = lost_of_big(&document);
        assert!(lost.len() > 100 && lost.len() < 600, "{} blocks", lost.len());

        for arguments in [
            &["check"][..],
            &["check", "--data"],
            &["check", "--repair"],
            &["check", "--repair", "--cut-log"],
        ] {
            let text = said(&fixture, 5, arguments);
            assert!(text.contains(&name), "{arguments:?}: {text}");
            assert!(!text.contains("given up"), "{arguments:?}: {text}");
        }
        assert_eq!(fixture.done(&["cat", "db/app", "db@one/app", "db/last"]), "secondfirstlast");

        // It goes on, and what is not damaged can be read; then the file turns up again.
        fixture.import("new", &content(9, 700));
        fixture.done(&["snapshot", "db@after"]);
        assert!(fixture.run(&["cat", "db@after/new"]).output().unwrap().stdout == content(9, 700));
        let after: serde_json::Value =
            serde_json::from_str(&said(&fixture, 5, &["scrub", "--json"])).unwrap();
        assert_eq!(lost_of_big(&after), lost, "{left:?}");
        std::fs::write(fixture.pool.join(&name), bytes).unwrap();
        fixture.done(&["scrub"]);
        assert!(fixture.run(&["cat", "db/big"]).output().unwrap().stdout == big);
        fixture.done(&["check", "--data"]);
        said(&fixture, 0, &["monitor"]);
    }
}

#[test]
fn a_segment_that_lost_nothing_but_its_checksum_table_is_corrupt_and_nothing_is_lost() {
    let table_at = (2 << 20) - BLOCK as u64;
    let (fixture, big, name, bytes) = with_loss(Some(table_at));
    assert!(bytes[bytes.len() - 44..].starts_with(b"ICESUMS\n"), "it was full");
    assert!(fixture.run(&["cat", "db/big"]).output().unwrap().stdout == big);
    let text = said(&fixture, 1, &["monitor"]);
    assert!(text.starts_with("ICECORE WARNING") && text.contains(&name), "{text}");
    let text = said(&fixture, 0, &["scrub"]);
    for part in
        [&name, "nothing that lives is gone with it", "1 place is damaged, and nothing is lost", "no damage"]
    {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let text = said(&fixture, 1, &["monitor"]);
    assert!(text.contains("nothing lost"), "{text}");
    let text = said(&fixture, 0, &["check", "--data"]);
    assert!(text.contains(&name) && text.contains("(harmless)"), "{text}");
    assert_eq!(std::fs::metadata(fixture.pool.join(&name)).unwrap().len(), table_at);

    // What is damaged in the rest is found by headers alone.
    let at = bytes.chunks(BLOCK).position(|block| big.chunks(BLOCK).any(|other| block == other)).unwrap();
    let mut damaged = bytes[..table_at as usize].to_vec();
    damaged[at * BLOCK] ^= 1;
    std::fs::write(fixture.pool.join(&name), damaged).unwrap();
    let document: serde_json::Value = serde_json::from_str(&said(&fixture, 5, &["scrub", "--json"])).unwrap();
    assert_eq!(lost_of_big(&document).len(), 1, "{document:#}");

    // The file turns up again.
    std::fs::write(fixture.pool.join(&name), bytes).unwrap();
    fixture.done(&["scrub"]);
    fixture.done(&["check", "--data"]);
    said(&fixture, 0, &["monitor"]);
}

/// The blocks of the file `big` that a scrub found damaged.
fn lost_of_big(document: &serde_json::Value) -> Vec<u64> {
    let findings = document["findings"].as_array().unwrap();
    let mut blocks = Vec::new();
    for finding in findings.iter().filter(|finding| finding["path"] == "big") {
        let (offset, length) = (finding["offset"].as_u64().unwrap(), finding["length"].as_u64().unwrap());
        blocks.extend(offset / BLOCK as u64..(offset + length) / BLOCK as u64);
    }
    blocks.sort_unstable();
    blocks.dedup();
    blocks
}

/// Where records of the log begin, by their number.
fn records(pool: &Path) -> BTreeMap<u64, (String, u64)> {
    let mut found = BTreeMap::new();
    for name in crate::fixture::entries(pool).into_iter().filter(|name| name.starts_with("segment.")) {
        let bytes = std::fs::read(pool.join(&name)).unwrap();
        for (index, block) in bytes.chunks(BLOCK).enumerate() {
            if block.starts_with(b"ICERECD\n") && block[82] & 4 == 0 {
                let number = u64::from_le_bytes(block[32..40].try_into().unwrap());
                found.insert(number, (name.clone(), (index * BLOCK) as u64));
            }
        }
    }
    found
}

/// A pool that was killed after three files were made in it, and the numbers of the last record before each
/// of them and at the end.
fn killed() -> (Fixture, Vec<u64>) {
    let fixture = Fixture::with_db();
    let last = || *records(&fixture.pool).last_key_value().unwrap().0;
    let mut owner = spawn_owner(&fixture);
    let mut numbers = vec![last()];
    for name in ["a", "b", "c"] {
        fixture.import(name, &content(name.as_bytes()[0], 20));
        numbers.push(last());
    }
    fixture.done(&["snapshot", "db@two"]);
    owner.kill().unwrap();
    owner.wait().unwrap();
    (fixture, numbers)
}

fn files(pool: &Path) -> BTreeMap<String, Vec<u8>> {
    let names = crate::fixture::entries(pool).into_iter();
    let names = names.filter(|name| {
        name.starts_with("segment.") || name.starts_with("superblock.") || name.starts_with("copy")
    });
    names.map(|name| (name.clone(), std::fs::read(pool.join(&name)).unwrap())).collect()
}

fn copy_back(pool: &Path, files: &BTreeMap<String, Vec<u8>>) {
    for name in crate::fixture::entries(pool) {
        let _ = std::fs::remove_file(pool.join(name));
    }
    for (name, bytes) in files {
        std::fs::write(pool.join(name), bytes).unwrap();
    }
}

fn ls(fixture: &Fixture) -> String {
    fixture.done(&["ls", "db"])
}

#[test]
fn a_damaged_log_is_cut_on_request_alone() {
    use std::os::unix::fs::FileExt as _;
    let (fixture, numbers) = killed();
    // The first record of what made `b`.
    let (name, offset) = records(&fixture.pool)[&(numbers[1] + 1)].clone();
    let file = std::fs::File::options().write(true).open(fixture.pool.join(&name)).unwrap();
    file.write_all_at(&[0x5a; 64], offset + 8).unwrap();
    let damaged = files(&fixture.pool);

    let error = fixture.refused(5, &["list"]);
    assert!(error.contains(&format!("{name} at offset {offset}")), "{error}");
    let text = said(&fixture, 2, &["monitor"]);
    assert!(text.starts_with("ICECORE CRITICAL"), "{text}");
    assert!(said(&fixture, 5, &["check"]).contains("the pool cannot be opened"));
    let text = said(&fixture, 5, &["check", "--repair"]);
    let number = numbers[1] + 1;
    for part in [
        &format!("not mended: the log could be cut before record {number}"),
        "--cut-log",
        "the snapshot db@two",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let text = said(&fixture, 5, &["check", "--repair", "--cut-log", "--dry-run"]);
    assert!(
        text.contains("would be given up: ") && text.contains("would be mended: the log is cut"),
        "{text}"
    );
    assert!(files(&fixture.pool) == damaged, "nothing was cut so far");
    fixture.refused(2, &["check", "--cut-log"]);

    let text = said(&fixture, 5, &["check", "--repair", "--cut-log", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let given_up = document["given_up"].as_array().unwrap();
    assert!(given_up.iter().any(|line| line == "the snapshot db@two"), "{document:#}");
    assert_eq!((&document["after"]["sound"], &document["before"]["opened"]), (&true.into(), &false.into()));
    assert!(document["refused"].as_array().unwrap().is_empty(), "{document:#}");

    copy_back(&fixture.pool, &damaged);
    let output = fixture.run(&["check", "--repair", "--cut-log"]).assert().code(5).get_output().clone();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in [
        &format!("mended: the log is cut before record {number}"),
        "given up: the snapshot db@two",
        "before-repair.0",
    ] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(complaint.contains("sound, without what its log lost"), "{complaint}");
    goes_on_without(&fixture, "a\napp\n");
}

/// What was given up is not there, nor does it come back.
fn goes_on_without(fixture: &Fixture, listed: &str) {
    assert_eq!(ls(fixture), listed);
    assert_eq!(fixture.done(&["cat", "db/app", "db@one/app"]), "secondfirst");
    let versions = fixture.done(&["list", "-H", "-t", "all", "-o", "name"]);
    assert!(!versions.contains("db@two"), "{versions}");
    said(fixture, 0, &["check", "--data"]);
    assert!(!said(fixture, 0, &["check", "--repair", "--cut-log"]).contains("given up"));
    let mut owner = spawn_owner(fixture);
    fixture.import("later", &content(1, 30));
    owner.kill().unwrap();
    owner.wait().unwrap();
    assert!(fixture.run(&["cat", "db/later"]).output().unwrap().stdout == content(1, 30));
    assert_eq!(ls(fixture), format!("{listed}later\n"));
    fixture.done(&["scrub"]);
    said(fixture, 0, &["monitor"]);
}

#[test]
fn a_killed_pool_without_a_segment_of_its_log_ends_with_its_last_checkpoint() {
    let (fixture, numbers) = killed();
    // Without copies, which would do instead.
    let (name, offset) = records(&fixture.pool)[&(numbers[1] + 1)].clone();
    let path = fixture.pool.join(&name);
    // What lies before the log since the checkpoint is still there.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(offset).unwrap();
    let error = fixture.refused(5, &["list"]);
    assert!(error.contains(&name) && error.contains("missing or cut short"), "{error}");
    said(&fixture, 5, &["check", "--repair"]);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), offset);
    let text = said(&fixture, 5, &["check", "--repair", "--cut-log"]);
    assert!(text.contains("given up: records of which none can be read any more"), "{text}");
    goes_on_without(&fixture, "a\napp\n");
}

/// A new segment stands for it while that is tried, and the user does not know that one.
#[test]
fn a_log_whose_segment_is_gone_is_reported_by_the_name_of_that_segment() {
    let (fixture, numbers) = killed();
    let (name, _) = records(&fixture.pool)[&(numbers[1] + 1)].clone();
    std::fs::remove_file(fixture.pool.join(&name)).unwrap();
    let text = said(&fixture, 5, &["check", "--repair"]);
    let refusal = text.lines().find(|line| line.contains("could be cut")).expect(&text);
    assert!(refusal.contains(&name), "{text}");
}
