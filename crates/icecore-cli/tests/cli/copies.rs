//! Second copies, as people handle them.

use crate::fixture::Fixture;

fn monitor(fixture: &Fixture, code: i32) -> String {
    let assert = fixture.run(&["monitor"]).assert().code(code);
    String::from_utf8(assert.get_output().stdout.clone()).unwrap()
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn what_is_copied_is_shown_and_changed() {
    let fixture = Fixture::with_db();
    assert_eq!(fixture.done(&["copies"]), "metadata: everything has its copy\n");
    assert!(fixture.done(&["status"]).contains("\ncopies metadata: everything has its copy\n"));
    assert!(fixture.done(&["copies", "--set", "all"]).starts_with("all: everything"));
    assert_eq!(fixture.done(&["copies", "--set", "none"]), "none\n");
    assert!(!names(&fixture.pool).iter().any(|name| name.starts_with("copy")));
    fixture.run(&["copies", "--set", "some"]).assert().code(2);
    assert!(monitor(&fixture, 0).contains("no second copies"));
}

#[test]
fn a_mirror_that_goes_away_is_reported_and_made_again() {
    let fixture = Fixture::with_db();
    let elsewhere = tempfile::tempdir().unwrap();
    let mirror = elsewhere.path().join("copies");
    let path = mirror.to_str().unwrap();
    let text = fixture.done(&["copies", "--set", "all", "--mirror", path]);
    assert!(text.starts_with("all in ") && text.ends_with("copies: everything has its copy\n"), "{text}");
    assert!(names(&mirror).iter().any(|name| name == "copy.superblock.1"), "{:?}", names(&mirror));
    assert!(!names(&fixture.pool).iter().any(|name| name.starts_with("copy")));
    // Taken by this pool.
    let other = tempfile::tempdir().unwrap();
    let refused = ["init", "--mirror", path, other.path().to_str().unwrap()];
    fixture.run(&refused).assert().failure();

    std::fs::rename(&mirror, elsewhere.path().join("away")).unwrap();
    fixture.done(&["create", "more"]);
    assert!(fixture.done(&["copies"]).contains("DEGRADED since 20"));
    let text = monitor(&fixture, 1);
    assert!(text.contains("DEGRADED") && text.contains("No such file"), "{text}");
    fixture.run(&["copies", "--restore"]).assert().failure();

    std::fs::rename(elsewhere.path().join("away"), &mirror).unwrap();
    fixture.done(&["list"]);
    assert!(fixture.done(&["copies"]).contains("DEGRADED"), "it may be behind");
    assert!(fixture.done(&["copies", "--restore"]).contains("everything has its copy"));
    monitor(&fixture, 0);
    let document: serde_json::Value = serde_json::from_str(&fixture.done(&["copies", "--json"])).unwrap();
    assert_eq!((document["mode"].as_str(), document["whole"].as_bool()), (Some("all"), Some(true)));
    assert!(fixture.done(&["copies", "--here"]).starts_with("all: everything"));
    assert!(names(&mirror).iter().all(|name| !name.starts_with("copy")));
}

fn contents(folder: &std::path::Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    names(folder).into_iter().map(|name| (name.clone(), std::fs::read(folder.join(name)).unwrap())).collect()
}

fn put_back(folder: &std::path::Path, files: &std::collections::BTreeMap<String, Vec<u8>>) {
    std::fs::remove_dir_all(folder).unwrap();
    std::fs::create_dir(folder).unwrap();
    files.iter().for_each(|(name, bytes)| std::fs::write(folder.join(name), bytes).unwrap());
}

/// A pool with copies of everything in the folder `copies` of another one.
fn with_mirror() -> (Fixture, tempfile::TempDir) {
    let (fixture, elsewhere) = (Fixture::with_db(), tempfile::tempdir().unwrap());
    let mirror = elsewhere.path().join("copies");
    fixture.done(&["copies", "--set", "all", "--mirror", mirror.to_str().unwrap()]);
    (fixture, elsewhere)
}

fn lose_superblocks(fixture: &Fixture) {
    for name in ["superblock.0", "superblock.1"] {
        std::fs::remove_file(fixture.pool.join(name)).unwrap();
    }
}

/// A user who puts the folder of a pool back from a backup may find out next that the mirror has what the
/// backup has not.
#[test]
fn a_mirror_that_is_newer_than_the_pool_is_not_written_over() {
    let (fixture, elsewhere) = with_mirror();
    let mirror = elsewhere.path().join("copies");
    let path = mirror.to_str().unwrap();
    let backup = contents(&fixture.pool);
    for name in ["one", "two", "three", "four", "five", "six", "seven", "eight"] {
        fixture.done(&["create", name]);
    }
    let (lost, newest) = (fixture.done(&["list"]), contents(&mirror));

    put_back(&fixture.pool, &backup);
    assert!(fixture.done(&["copies"]).contains("newer than the pool"));
    let text = fixture.refused(1, &["copies", "--restore"]);
    assert!(text.contains("newer than the pool") && text.contains("move what is in"), "{text}");
    // Also when the pool has been written to more often than they were.
    for _ in 0..12 {
        fixture.done(&["scrub"]);
    }
    fixture.refused(1, &["copies", "--restore"]);
    assert!(monitor(&fixture, 1).contains("newer than the pool"));
    assert!(contents(&mirror) == newest, "the copies are not what they were");

    // Nor are copies of it made there by a pool that has whole ones elsewhere, which stay what they are.
    assert!(fixture.done(&["copies", "--here"]).contains("everything has its copy"));
    put_back(&fixture.pool, &backup);
    assert!(fixture.done(&["copies", "--set", "metadata", "--here"]).contains("everything has its copy"));
    fixture.refused(1, &["copies", "--mirror", path]);
    assert!(fixture.done(&["copies"]).contains("everything has its copy"));
    assert!(contents(&mirror) == newest, "the copies are not what they were");

    // One way on: with what the mirror has.
    put_back(&fixture.pool, &backup);
    lose_superblocks(&fixture);
    let pool = fixture.pool.to_str().unwrap();
    crate::fixture::program().args(["check", pool, "--repair", "--mirror", path]).assert().success();
    let datasets = |list: &str| -> Vec<String> {
        list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect()
    };
    assert_eq!(datasets(&fixture.done(&["list"])), datasets(&lost));

    // The other one: with the pool.
    put_back(&fixture.pool, &backup);
    put_back(&mirror, &newest);
    std::fs::rename(&mirror, elsewhere.path().join("kept")).unwrap();
    std::fs::create_dir(&mirror).unwrap();
    assert!(fixture.done(&["copies", "--restore"]).contains("everything has its copy"));
    monitor(&fixture, 0);
}

/// A backup lacks the segments that the pool has made since, and its repair says what to do instead.
#[test]
fn a_pool_that_has_grown_since_its_backup_comes_back_from_its_mirror() {
    let (fixture, elsewhere) = with_mirror();
    let mirror = elsewhere.path().join("copies");
    let path = mirror.to_str().unwrap();
    let backup = contents(&fixture.pool);
    let rows = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c WHERE x < 2000)
                INSERT INTO t SELECT randomblob(2000) FROM c";
    fixture.done(&["sql", "-c", "db/grown.db", "CREATE TABLE t(b)"]);
    for _ in 0..3 {
        fixture.done(&["sql", "db/grown.db", rows]);
    }
    put_back(&fixture.pool, &backup);
    lose_superblocks(&fixture);
    let pool = fixture.pool.to_str().unwrap();
    let output =
        crate::fixture::program().args(["check", pool, "--repair", "--mirror", path]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && text.contains("rename copy.superblock.* to superblock.*"), "{text}");

    let renamed = |name: &str| match name.strip_prefix("copy.") {
        Some(superblock) if superblock.starts_with("superblock") => superblock.to_owned(),
        Some(number) => format!("segment.{number}"),
        None => name.to_owned(),
    };
    let copies = contents(&mirror).into_iter();
    put_back(&fixture.pool, &copies.map(|(name, bytes)| (renamed(&name), bytes)).collect());
    fixture.done(&["scrub"]);
    assert_eq!(fixture.done(&["sql", "-H", "db/grown.db", "SELECT count(*) FROM t"]), "6000\n");
    assert!(fixture.done(&["copies"]).contains("everything has its copy"));
}

#[test]
fn a_pool_with_lost_superblocks_is_repaired_from_its_mirror() {
    let fixture = Fixture::with_db();
    let mirror = tempfile::tempdir().unwrap();
    let path = mirror.path().to_str().unwrap();
    // Without what is available: that is the host's, and others write there.
    let list = || fixture.done(&["list", "-t", "all", "-o", "name,used,refer"]);
    let before = list();
    fixture.done(&["copies", "--mirror", path]);
    lose_superblocks(&fixture);
    let pool = fixture.pool.to_str().unwrap();
    for arguments in [&["list"][..], &["list", pool], &["check", pool]] {
        let text = fixture.refused(3, arguments);
        assert!(!text.contains("icecore init") && text.contains("--mirror"), "{text}");
    }
    crate::fixture::program().args(["check", pool, "--repair", "--mirror", path]).assert().success();
    assert_eq!(list(), before);
}

#[test]
fn a_folder_in_the_place_of_a_segment_is_refused_by_the_repair_of_another() {
    let fixture = Fixture::with_db();
    fixture.done(&["copies", "--set", "all"]);
    fixture.import("data", &vec![7; 1 << 20]);
    let copy = fixture.pool.join("copy.00000001");
    std::fs::write(&copy, vec![1; 8192]).unwrap();
    let segment = fixture.pool.join("segment.00000000");
    std::fs::remove_file(&segment).unwrap();
    std::fs::create_dir(&segment).unwrap();
    let pool = fixture.pool.to_str().unwrap();
    let text = fixture.done(&["check", "--repair", "--data", pool]);
    assert!(text.contains("segment.00000000: not a regular file; move it away"), "{text}");
    // As it says.
    std::fs::rename(&segment, fixture.pool.join("away")).unwrap();
    crate::fixture::program().args(["check", "--repair", "--data", pool]).assert().success();
    assert_eq!(fixture.done(&["cat", "db/data"]).len(), 1 << 20);
}

/// Before anything is written: what would be overwritten has to be kept aside first.
#[test]
fn a_folder_in_the_place_of_a_superblock_is_refused_by_its_repair() {
    let fixture = Fixture::with_db();
    let superblock = fixture.pool.join("superblock.1");
    std::fs::remove_file(&superblock).unwrap();
    std::fs::create_dir(&superblock).unwrap();
    let pool = fixture.pool.to_str().unwrap();
    let text = fixture.refused(1, &["check", "--repair", pool]);
    assert!(text.contains("superblock.1: not a regular file; move it away, and repair again"), "{text}");
    assert!(names(&fixture.pool).iter().all(|name| !name.starts_with("before-repair")), "{text}");
    // As it says.
    std::fs::rename(&superblock, fixture.pool.join("away")).unwrap();
    crate::fixture::program().args(["check", "--repair", pool]).assert().success();
    assert!(superblock.is_file());
    assert_eq!(fixture.done(&["cat", "db/app"]), "second");
}

#[test]
fn a_folder_in_the_place_of_a_copy_is_named_by_a_repair() {
    let fixture = Fixture::with_db();
    fixture.done(&["copies", "--set", "all"]);
    fixture.import("data", &vec![7; 1 << 20]);
    let pool = fixture.pool.to_str().unwrap();
    for name in std::fs::read_dir(&fixture.pool).unwrap().map(|entry| entry.unwrap().file_name()) {
        let copy = fixture.pool.join(&name);
        if name.to_str().unwrap().starts_with("copy.") {
            std::fs::remove_file(&copy).unwrap();
            std::fs::create_dir(&copy).unwrap();
        }
    }
    for arguments in [&["check", pool][..], &["check", "--repair", "--data", pool], &["scrub", pool]] {
        let output = crate::fixture::program().args(arguments).output().unwrap();
        let said = [&output.stdout[..], &output.stderr[..]].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.code().is_some_and(|code| code != 101) && !said.contains("panicked"), "{said}");
        assert!(
            arguments[0] == "scrub" || said.contains("second copy") || said.contains("copy.0000"),
            "{said}"
        );
    }
    assert_eq!(fixture.done(&["cat", "db/data"]).len(), 1 << 20);
}

#[test]
fn a_pool_is_found_by_either_of_its_superblocks() {
    for (lost, left) in [("superblock.0", "superblock.1"), ("superblock.1", "superblock.0")] {
        let fixture = Fixture::with_db();
        std::fs::remove_file(fixture.pool.join(lost)).unwrap();
        let pool = fixture.pool.to_str().unwrap();
        for arguments in [&["list", pool][..], &["scrub", pool], &["check", "--repair", pool]] {
            crate::fixture::program().args(arguments).assert().success();
        }
        let repaired = std::fs::read(fixture.pool.join(lost)).unwrap();
        assert!(
            !repaired.is_empty() && repaired.len() == std::fs::read(fixture.pool.join(left)).unwrap().len()
        );
    }
}

/// A pool with copies of everything in a folder, which was away while something changed; and where a file of
/// its data lies.
fn mirror_that_was_away(mirror: &std::path::Path, data: &[u8]) -> (Fixture, u64) {
    let fixture = Fixture::with_db();
    fixture.done(&["copies", "--set", "all", "--mirror", mirror.to_str().unwrap()]);
    fixture.import("data", data);
    let away = mirror.with_extension("away");
    std::fs::rename(mirror, &away).unwrap();
    fixture.done(&["create", "more"]);
    std::fs::rename(&away, mirror).unwrap();
    let segment = std::fs::read(fixture.pool.join("segment.00000000")).unwrap();
    let found = segment.windows(64).position(|bytes| bytes == &data[..64]).expect("it lies in the log");
    (fixture, found as u64)
}

fn block_of_data(number: u8) -> Vec<u8> {
    (0..64 << 10_u32).map(|index: u32| (index / 4096 * 7 + index % 251) as u8 ^ number).collect()
}

fn damage(file: &std::path::Path, at: u64) {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0xff], at).unwrap();
}

#[test]
fn a_copy_that_is_made_again_keeps_what_is_damaged_elsewhere() {
    let elsewhere = tempfile::tempdir().unwrap();
    let mirror = elsewhere.path().join("mirror");
    let data = block_of_data(1);
    let (fixture, at) = mirror_that_was_away(&mirror, &data);
    damage(&fixture.pool.join("segment.00000000"), at);
    assert!(fixture.done(&["copies"]).contains("DEGRADED"));
    assert!(fixture.done(&["copies", "--restore"]).contains("everything has its copy"));
    let copy = std::fs::read(mirror.join("copy.00000000")).unwrap();
    assert!(copy[at as usize..].starts_with(&data[..4096]), "the copy was what it should be");
    let segment = std::fs::read(fixture.pool.join("segment.00000000")).unwrap();
    assert!(segment[at as usize..].starts_with(&data[..4096]), "and what it is a copy of is healed");
    fixture.done(&["scrub"]);
    // So it is where copies move on to another folder.
    damage(&fixture.pool.join("segment.00000000"), at);
    let other = elsewhere.path().join("other");
    assert!(
        fixture.done(&["copies", "--mirror", other.to_str().unwrap()]).contains("everything has its copy")
    );
    let copy = std::fs::read(other.join("copy.00000000")).unwrap();
    assert!(copy[at as usize..].starts_with(&data[..4096]), "the copy was what it should be");
    assert!(names(&mirror).iter().all(|name| !name.starts_with("copy")), "{:?}", names(&mirror));
}

#[test]
fn a_copy_of_what_is_damaged_everywhere_is_not_called_whole() {
    let elsewhere = tempfile::tempdir().unwrap();
    let mirror = elsewhere.path().join("mirror");
    let (fixture, at) = mirror_that_was_away(&mirror, &block_of_data(2));
    damage(&fixture.pool.join("segment.00000000"), at);
    damage(&mirror.join("copy.00000000"), at);
    let text = fixture.done(&["copies", "--restore"]);
    assert!(text.contains("DEGRADED") && text.contains("segment.00000000"), "{text}");
}

/// It is written anew whenever the pool is opened, and the damage is reported.
#[test]
fn a_superblock_among_the_copies_that_is_corrupt_is_reported() {
    let fixture = Fixture::with_db();
    let mirror = fixture.beside("mirror");
    fixture.done(&["copies", "--set", "all", "--mirror", mirror.to_str().unwrap()]);
    fixture.done(&["scrub"]);
    let superblock = mirror.join("copy.superblock.1");
    let mut bytes = std::fs::read(&superblock).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&superblock, bytes).unwrap();
    let said = fixture.done(&["scrub"]);
    assert!(said.contains("damage in copy.superblock.1") && said.contains("1 place is damaged"), "{said}");
    assert!(!fixture.done(&["scrub"]).contains("nothing is lost"));
    let owner = fixture.own();
    let mut bytes = std::fs::read(&superblock).unwrap();
    bytes[100] ^= 1;
    std::fs::write(&superblock, bytes).unwrap();
    let said = fixture.done(&["scrub"]);
    assert!(said.contains("damage in copy.superblock.1") && said.contains("1 place is damaged"), "{said}");
    owner.close().unwrap();
}
