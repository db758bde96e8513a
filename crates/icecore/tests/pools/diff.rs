//! What differs between two versions, by name.

use icecore::units::InodeNumber;
use icecore::{Change, Creation, Dataset, InitOptions, OpenOptions, Pool, RenameHow};
use tempfile::TempDir;

const ROOT: InodeNumber = InodeNumber::ROOT;

fn pool() -> (TempDir, Pool) {
    let folder = tempfile::tempdir().unwrap();
    Pool::init_directory(folder.path(), &InitOptions { segment_bytes: 2 << 20, ..InitOptions::default() })
        .unwrap();
    let options = OpenOptions { background: false, control_socket: false, ..OpenOptions::default() };
    let pool = Pool::open_directory(folder.path(), &options).unwrap();
    pool.create_dataset("db", false, &[]).unwrap();
    (folder, pool)
}

fn write(dataset: &Dataset, name: &str, content: &[u8]) -> InodeNumber {
    let file = dataset.open_or_create(name.as_bytes(), &Creation::file()).unwrap();
    dataset.write(file, 0, content).unwrap();
    file
}

/// Files alone, without the directories that they are in.
fn differ(pool: &Pool, from: &str, to: &str) -> Vec<String> {
    let entries = pool.diff(from, to).unwrap().into_iter().filter(|entry| !entry.directory);
    let said = entries.map(|entry| {
        let path = String::from_utf8(entry.path).unwrap();
        match entry.change {
            Change::Added => format!("+ {path}"),
            Change::Removed => format!("- {path}"),
            Change::Modified => format!("M {path} {}", entry.ranges.len()),
            Change::Renamed(former) => format!("R {} {path}", String::from_utf8(former).unwrap()),
        }
    });
    said.collect()
}

fn snapshot(pool: &Pool, name: &str) {
    pool.snapshot(&[name.to_owned()], false, &[]).unwrap();
}

/// Both make a file, which has the same number in each.
#[test]
fn a_file_of_one_branch_is_not_taken_for_that_of_another() {
    let (_folder, pool) = pool();
    let db = pool.dataset("db").unwrap();
    write(&db, "both", b"same");
    snapshot(&pool, "db@s");
    pool.clone_snapshot("db@s", "copy", false).unwrap();
    write(&db, "only-here", &[1; 9000]);
    write(&pool.dataset("copy").unwrap(), "only-there", &[2; 9000]);
    snapshot(&pool, "db@t");
    snapshot(&pool, "copy@t");
    assert_eq!(differ(&pool, "copy@t", "db@t"), ["+ only-here", "- only-there"]);
    let all = pool.diff("copy@t", "db@t").unwrap();
    let ranges: Vec<_> = all.iter().filter(|entry| !entry.directory).map(|entry| &entry.ranges[..]).collect();
    assert!(ranges.iter().all(|ranges| matches!(ranges, [range] if range.length == 9000)), "{ranges:?}");
    pool.rollback("db@s", true).unwrap();
    write(&pool.dataset("db").unwrap(), "other", b"x");
    assert_eq!(differ(&pool, "copy@t", "db"), ["- only-there", "+ other"]);
}

#[test]
fn each_name_of_a_file_is_named() {
    let (_folder, pool) = pool();
    let db = pool.dataset("db").unwrap();
    let file = write(&db, "f", b"content");
    db.link(file, ROOT, b"hard").unwrap();
    snapshot(&pool, "db@0");
    db.rename((ROOT, b"f"), (ROOT, b"g"), RenameHow::Replace).unwrap();
    snapshot(&pool, "db@1");
    assert_eq!(differ(&pool, "db@0", "db@1"), ["R f g"]);
    db.unlink(ROOT, b"hard").unwrap();
    snapshot(&pool, "db@2");
    assert_eq!(differ(&pool, "db@1", "db@2"), ["- hard"]);
    db.link(file, ROOT, b"third").unwrap();
    db.write(file, 0, b"changed").unwrap();
    snapshot(&pool, "db@3");
    assert_eq!(differ(&pool, "db@2", "db@3"), ["M g 1", "+ third"]);
    assert_eq!(differ(&pool, "db@0", "db@3"), ["R f g", "R hard third"]);
    db.unlink(ROOT, b"g").unwrap();
    db.unlink(ROOT, b"third").unwrap();
    assert_eq!(differ(&pool, "db@3", "db"), ["- g", "- third"]);
}
