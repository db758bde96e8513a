//! Command lines, and what packages carry.

use crate::fixture::{printed, program, refused};
use serde_json::{Value, json};

#[test]
fn a_small_demonstration_proves_every_snapshot() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().to_str().unwrap();
    let table = printed(&["demo", "--iterations", "2", "--directory", folder], &[]);
    assert!(
        table.contains("back to the snapshot in") || table.contains("The mount is not shown here"),
        "{table}"
    );
    assert!(table.contains("all 2 snapshots pass"), "{table}");
    let document = printed(&["demo", "--iterations", "2", "--directory", folder, "--json"], &[]);
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!((&document["version"], &document["kept"]), (&json!(1), &Value::Null));
    assert_eq!(document["proofs"].as_array().unwrap().len(), 2);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "something is left behind");
    refused(2, &["demo", "--iterations", "0"], &[]);
}

#[test]
fn the_lab_lists_its_experiments() {
    assert!(printed(&["list", "-H"], &[]).lines().any(|line| line.starts_with("commits\t")));
    assert!(refused(2, &["run", "nonsense"], &[]).contains("commits"));
    assert!(refused(2, &["run", "commits", "--minutes", "1"], &[]).contains("soak"));
    assert!(refused(2, &["run", "commits", "--only", "mount.write.1"], &[]).contains("mount"));
    assert!(refused(2, &["run", "mount", "--only", "mount.write"], &[]).contains("mount.write.8"));
    assert!(refused(2, &["run", "shock", "--systems", "btrfs,ntfs"], &[]).contains("xfs-reflink"));
    assert!(refused(2, &["run", "commits", "--systems", "btrfs"], &[]).contains("studies"));
    assert!(refused(2, &["run", "shock", "--iterations", "850"], &[]).contains("valuation"));
    assert!(refused(2, &["run", "fragment", "--size", "1K"], &[]).contains("8M"));
    assert!(refused(2, &["run", "full", "--size", "1G"], &[]).contains("fragment, backup, placement, and"));
    assert!(refused(2, &["run", "blog", "--rate", "100"], &[]).contains("shock"));
    for tool in ["fio", "bonnie++"] {
        assert!(refused(2, &["run", "blog", "--tool", tool], &[]).contains("goes with shock"));
    }
    for study in ["shock", "fragment"] {
        assert!(refused(2, &["run", study, "--tool", "blogbench"], &[]).contains("goes with blog"));
    }
    let in_guest = ["run", "blog", "--tool", "blogbench", "--guest"];
    assert!(refused(2, &in_guest, &[]).contains("no blogbench: leave out --guest"));
    assert!(refused(2, &["run", "blog", "--size", "4G"], &[]).contains("--tool blogbench"));
    let small = ["run", "blog", "--tool", "blogbench", "--size", "500M"];
    assert!(refused(2, &small, &[]).contains("less than 1G"));
    assert!(refused(2, &["run", "all", "--tool", "fio"], &[]).contains("goes with one experiment"));
    assert!(refused(1, &["run", "full", "--device", "/dev/null"], &[]).contains("no block device"));
    assert!(refused(1, &["run", "full", "--device", "/dev/icecore"], &[]).contains("/dev/icecore"));
    refused(2, &["run", "full", "--device", "/dev/null", "--disk", "hdd"], &[]);
    assert!(refused(2, &["run", "shock", "--tool", "dd"], &[]).contains("sysbench"));
    assert!(refused(2, &["run", "shock", "--tool", "sysbench", "--rate", "9"], &[]).contains("fio"));
    assert!(refused(2, &["run", "commits", "--guest"], &[]).contains("studies"));
    assert!(refused(2, &["run", "shock", "--with", "zfs"], &[]).contains("--guest"));
    refused(1, &["figure", "/no/such/file"], &[]);
    refused(1, &["child"], &[]);
}

#[test]
fn a_study_says_at_its_start_how_long_it_takes() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str| {
        let arguments = ["run", name, "--quick", "--directory", folder.path().to_str().unwrap()];
        let assert = program().args(arguments).assert().success();
        String::from_utf8(assert.get_output().stderr.clone()).unwrap()
    };
    let said = run("model");
    assert!(said.starts_with("model takes about 1 s with all systems"), "{said}");
    // Of experiments of the store no time is known.
    let said = run("demo-rss");
    assert!(!said.contains("takes about"), "{said}");
}

#[test]
fn a_run_of_all_on_chosen_systems_leaves_out_studies_that_compare_none() {
    let results = tempfile::tempdir().unwrap();
    // Results that are there keep the run from beginning.
    std::fs::write(results.path().join("old.json"), "").unwrap();
    let say = |systems: &[&str]| {
        let all = ["run", "all", "--quick", "--output", results.path().to_str().unwrap()];
        let assert = program().args(all).args(systems).assert().code(1);
        String::from_utf8(assert.get_output().stderr.clone()).unwrap()
    };
    let said = say(&["--systems", "btrfs,icecore-mount"]);
    for name in ["placement", "model"] {
        assert!(said.contains(&format!("{name} is left out, as --systems")), "{said}");
    }
    assert!(!say(&[]).contains("left out"));
}

#[test]
fn options_have_variables_and_commands_have_pages() {
    let listed = program().arg("list").env("ICECORE_LAB_LIST_NO_HEADER", "1").assert().success();
    assert!(!String::from_utf8_lossy(&listed.get_output().stdout).contains("Studies"));
    assert!(printed(&["--help"], &[]).contains("Usage: icecore lab"));
    assert!(
        printed(&["man", "run"], &[]).contains("--guest") || printed(&["man", "run"], &[]).contains("guest")
    );
    let folder = tempfile::tempdir().unwrap();
    printed(&["man"], &[folder.path()]);
    let pages: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|page| page.unwrap().file_name()).collect();
    assert!(
        pages.iter().any(|page| page == "icecore-lab.1")
            && pages.iter().any(|page| page == "icecore-lab-run.1")
    );
    assert!(!pages.iter().any(|page| page == "icecore-lab-child.1"), "it is nothing for people");
    assert!(printed(&["completions", "bash"], &[]).contains("doctor"));
}
