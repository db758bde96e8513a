//! Names that pass, names that do not and the sentence that says why.

use super::*;
use proptest::prelude::*;

fn reason<T>(result: Result<T>) -> String {
    match result.map(drop) {
        Err(Error::BadName { reason, .. }) => reason,
        other => panic!("expected a bad name, got {other:?}"),
    }
}

#[test]
fn datasets_are_components_between_slashes() {
    let name = DatasetName::parse("team/db-1/x.y_z:0").unwrap();
    assert_eq!(name.as_str(), "team/db-1/x.y_z:0");
    assert_eq!(name.parent().unwrap().as_str(), "team/db-1");
    assert_eq!(DatasetName::parse("db").unwrap().parent(), None);
}

#[test]
fn within_compares_whole_components() {
    let name = |text| DatasetName::parse(text).unwrap();
    assert!(name("a/b").is_within(&name("a")));
    assert!(name("a").is_within(&name("a")));
    assert!(!name("ab").is_within(&name("a")));
    assert!(!name("a").is_within(&name("a/b")));
}

#[test]
fn a_bad_dataset_name_says_why() {
    for (text, part) in [
        ("", "empty"),
        ("/a", "starts nor ends"),
        ("a/", "starts nor ends"),
        ("a//b", "two '/'"),
        ("a/../b", "'.' and '..'"),
        ("a/.icecore", "has the snapshots"),
        (".", "'.' and '..'"),
        ("-r", "starts with '-'"),
        ("a b", "' ' is not allowed"),
        ("a\nb", "'\\n' is not allowed"),
        ("a\0", "'\\0' is not allowed"),
        ("a%b", "'%' is not allowed in a name; letters, digits, '_', '.', ':' and '-' are allowed"),
        ("a@b", "the name of a snapshot"),
        ("größe", "'ö' is not allowed"),
    ] {
        let said = reason(DatasetName::parse(text));
        assert!(said.contains(part), "{text:?}: {said}");
    }
}

#[test]
fn a_bad_snapshot_name_says_why() {
    for (text, part) in [
        ("", "a snapshot is meant"),
        ("a", "a snapshot is meant"),
        ("@x", "dataset is empty"),
        ("a@", "snapshot is empty"),
        ("a@x@y", "more than one '@'"),
        ("a@x/y", "no '/'"),
        ("a@x%y", "'%' makes a range"),
        ("a@x\n", "'\\n' is not allowed"),
        ("a@..", "'.' and '..'"),
        ("a/@x", "starts nor ends"),
    ] {
        let said = reason(SnapshotName::parse(text));
        assert!(said.contains(part), "{text:?}: {said}");
    }
}

#[test]
fn length_is_counted_over_everything() {
    let longest = "a".repeat(NAME_BYTES_MAX);
    assert!(DatasetName::parse(&longest).is_ok());
    assert!(reason(DatasetName::parse(&format!("{longest}a"))).contains("256 bytes long"));
    let dataset = DatasetName::parse(&longest[..NAME_BYTES_MAX - 2]).unwrap();
    assert!(dataset.snapshot("x").is_ok());
    assert!(reason(dataset.snapshot("xy")).contains("256 bytes long"));
    let message = DatasetName::parse(&"a".repeat(100_000)).unwrap_err().to_string();
    assert!(message.len() < 200, "{message}");
}

#[test]
fn snapshots_come_apart() {
    let name = SnapshotName::parse("team/db@monday").unwrap();
    assert_eq!((name.dataset_str(), name.short()), ("team/db", "monday"));
    assert_eq!(name.dataset().as_str(), "team/db");
    assert_eq!(name.to_string(), "team/db@monday");
    assert_eq!(VersionName::parse("team/db@monday").unwrap(), VersionName::Snapshot(name));
    assert!(matches!(VersionName::parse("team/db").unwrap(), VersionName::Head(_)));
}

#[test]
fn targets_are_datasets_snapshots_and_ranges() {
    let range = DestroyTarget::Range { dataset: "a/b".into(), first: "x".into(), last: "y".into() };
    assert_eq!(parse_target("a/b@x%y", false).unwrap(), range);
    assert_eq!(range.to_string(), "a/b@x%y");
    assert_eq!(parse_target("a@x", true).unwrap(), DestroyTarget::Snapshot("a@x".into()));
    let dataset = DestroyTarget::Dataset { name: "a".into(), recursive: true };
    assert_eq!(parse_target("a", true).unwrap(), dataset);
    for (text, part) in [
        ("a@x%", "both its ends"),
        ("a@%y", "both its ends"),
        ("a@%", "both its ends"),
        ("a@x%y%z", "two ends"),
        ("a@x%@y", "more than one '@'"),
        ("@x%y", "dataset is empty"),
        ("a%b", "'%' makes a range"),
        ("", "empty"),
    ] {
        let said = reason(parse_target(text, false));
        assert!(said.contains(part), "{text:?}: {said}");
    }
}

#[test]
fn properties_and_tags_have_rules() {
    assert!(check_property_name("team:owner").is_ok());
    assert!(reason(check_property_name("owner")).contains("':'"));
    assert!(reason(check_property_name("")).contains("empty"));
    assert!(reason(check_property_name("a:=")).contains("'='"));
    assert!(check_property_value("a:b", "any text, größer = besser").is_ok());
    assert!(check_property_value("a:b", "two\nlines").unwrap_err().to_string().contains("'\\n'"));
    assert!(check_property_value("a:b", &"x".repeat(VALUE_BYTES_MAX + 1)).is_err());
    assert!(check_tag("keep").is_ok());
    assert!(reason(check_tag("")).contains("empty"));
    assert!(reason(check_tag(&"k".repeat(256))).contains("256 bytes"));
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("ICECORE_PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(64);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn whatever_is_accepted_comes_back_the_same(text in "[a-c./@%:_ -]{0,12}|\\PC{0,20}") {
        if let Ok(name) = VersionName::parse(&text) {
            prop_assert_eq!(name.as_str(), &text);
            if let VersionName::Snapshot(name) = &name {
                prop_assert_eq!(DatasetName::parse(name.dataset_str()).unwrap(), name.dataset());
            }
            prop_assert!(!text.split(['/', '@']).any(|part| part == ".."));
        }
        if let Ok(target) = parse_target(&text, false) {
            prop_assert_eq!(target.to_string(), text);
            prop_assert!(target.check().is_ok());
        }
    }

    #[test]
    fn well_formed_names_pass(parts in proptest::collection::vec("[A-Za-z0-9_:][A-Za-z0-9_.:-]{0,8}", 1..5), short in "[A-Za-z0-9_:][A-Za-z0-9_.:-]{0,8}") {
        let dataset = DatasetName::parse(&parts.join("/")).unwrap();
        let snapshot = dataset.snapshot(&short).unwrap();
        prop_assert_eq!(snapshot.short(), short.as_str());
        prop_assert_eq!(snapshot.dataset(), dataset);
    }
}
