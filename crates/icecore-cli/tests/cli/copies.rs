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
fn a_mirror_that_goes_away_is_told_and_made_again() {
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

#[test]
fn a_pool_with_lost_superblocks_is_repaired_from_its_mirror() {
    let fixture = Fixture::with_db();
    let mirror = tempfile::tempdir().unwrap();
    let path = mirror.path().to_str().unwrap();
    // Without what is available: that is the host's, and others write there.
    let list = || fixture.done(&["list", "-t", "all", "-o", "name,used,refer"]);
    let before = list();
    fixture.done(&["copies", "--mirror", path]);
    for name in ["superblock.0", "superblock.1"] {
        std::fs::remove_file(fixture.pool.join(name)).unwrap();
    }
    let pool = fixture.pool.to_str().unwrap();
    fixture.run(&["list"]).assert().failure();
    fixture.done(&["check", "-P", pool, "--repair", "--mirror", path]);
    assert_eq!(list(), before);
}
