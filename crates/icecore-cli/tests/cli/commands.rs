//! Datasets, snapshots, clones, holds and properties.

use crate::fixture::Fixture;

fn names(fixture: &Fixture, more: &[&str]) -> Vec<String> {
    let arguments = [&["list", "-H", "-o", "name", "-t", "all"], more].concat();
    fixture.done(&arguments).lines().map(str::to_owned).collect()
}

#[test]
fn a_bare_list_shows_name_used_avail_refer() {
    let fixture = Fixture::with_db();
    let text = fixture.done(&["list"]);
    let mut lines = text.lines();
    let header: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["NAME", "USED", "AVAIL", "REFER"]);
    let row: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!((row[0], row.len(), lines.next()), ("db", 4, None));
    for size in &row[1..] {
        assert!(size.len() <= 5 && size.ends_with(|unit: char| "BKMGTPE".contains(unit)), "{size}");
    }
}

#[test]
fn lists_select_sort_and_print_for_scripts() {
    let fixture = Fixture::with_db();
    fixture.done(&["create", "-p", "team/reports"]);
    fixture.done(&["snapshot", "-r", "team@one", "db@two"]);
    assert_eq!(
        names(&fixture, &[]),
        ["db", "db@one", "db@two", "team", "team@one", "team/reports", "team/reports@one"]
    );
    assert_eq!(names(&fixture, &["-t", "snapshot", "db"]), ["db@one", "db@two"]);
    assert_eq!(names(&fixture, &["-t", "dataset", "-d", "0"]), ["db", "team"]);
    assert_eq!(names(&fixture, &["team"]), ["team", "team@one"]);
    assert_eq!(names(&fixture, &["-r", "team"]), ["team", "team@one", "team/reports", "team/reports@one"]);
    assert_eq!(names(&fixture, &["db@one", "db@one"]), ["db@one"]);
    assert_eq!(names(&fixture, &["-t", "snapshot", "-S", "name"])[0], "team@one");
    let line = fixture.done(&["list", "-Hp", "-o", "name,used,creation,type", "db@one"]);
    let columns: Vec<_> = line.trim_end().split('\t').collect();
    assert_eq!((columns[0], columns[3]), ("db@one", "snapshot"));
    assert!(columns[1].parse::<u64>().unwrap() >= 4096);
    assert!(columns[2].parse::<u64>().unwrap() > 1_600_000_000);
}

#[test]
fn a_name_can_be_a_path_through_the_pool() {
    let fixture = Fixture::with_db();
    let inside = fixture.pool.join("db@one/app");
    crate::fixture::program().arg("cat").arg(&inside).assert().success().stdout("first");
    crate::fixture::program().arg("list").arg(&fixture.pool).assert().success();
    crate::fixture::program().arg("list").current_dir(&fixture.pool).assert().success();
    crate::fixture::program()
        .args(["cat", "pool/db/app"])
        .current_dir(fixture.folder.path())
        .assert()
        .success();
}

#[test]
fn snapshots_never_change_and_clones_are_writable() {
    let fixture = Fixture::with_db();
    assert_eq!(fixture.done(&["snapshot", "-v", "db@two"]), "db@two\n");
    fixture.done(&["clone", "db@one", "try"]);
    assert_eq!(fixture.done(&["cat", "try/app"]), "first");
    fixture.run(&["import", "-f", "-", "try/app"]).write_stdin("third").assert().success();
    let all = ["cat", "db@one/app", "db@two/app", "db/app", "try/app"];
    assert_eq!(fixture.done(&all), "firstsecondsecondthird");
    assert_eq!(fixture.done(&["get", "-H", "-o", "value", "origin", "try"]), "db@one\n");
    assert_eq!(fixture.done(&["get", "-H", "-o", "value", "clones", "db@one"]), "try\n");
}

#[test]
fn a_rollback_keeps_everything_and_can_be_undone() {
    let fixture = Fixture::with_db();
    fixture.done(&["snapshot", "db@two"]);
    assert!(fixture.done(&["rollback", "-n", "db@one"]).contains("would take db back to db@one"));
    assert_eq!(fixture.done(&["cat", "db/app"]), "second");
    let said = fixture.done(&["rollback", "db@one"]);
    assert_eq!(fixture.done(&["cat", "db/app", "db@two/app"]), "firstsecond");
    let saved = said.trim_end().rsplit(' ').next().unwrap();
    fixture.done(&["rollback", saved]);
    assert_eq!(fixture.done(&["cat", "db/app"]), "second");
}

#[test]
fn promote_turns_the_family_around() {
    let fixture = Fixture::with_db();
    fixture.done(&["clone", "db@one", "try"]);
    fixture.done(&["promote", "try"]);
    fixture.done(&["destroy", "-r", "db"]);
    assert_eq!(names(&fixture, &[]), ["try", "try@one"]);
    assert_eq!(fixture.done(&["cat", "try/app", "try@one/app"]), "firstfirst");
}

#[test]
fn a_clone_outlives_what_it_was_made_from() {
    let fixture = Fixture::with_db();
    fixture.done(&["clone", "db@one", "try"]);
    fixture.done(&["hold", "keep", "db@one"]);
    fixture.refused(7, &["destroy", "db@one"]);
    fixture.refused(7, &["destroy", "-r", "db"]);
    fixture.done(&["release", "keep", "db@one"]);
    fixture.done(&["destroy", "db@one"]);
    assert_eq!(fixture.done(&["list", "-H", "-o", "origin", "try"]).trim_end(), "-");
    fixture.refused(1, &["promote", "try"]);
    fixture.done(&["destroy", "-r", "db"]);
    assert_eq!(names(&fixture, &[]), ["try"]);
    assert_eq!(fixture.done(&["cat", "try/app"]), "first");
}

#[test]
fn datasets_and_snapshots_are_renamed() {
    let fixture = Fixture::with_db();
    fixture.done(&["rename", "db@one", "@monday"]);
    fixture.done(&["rename", "db@monday", "db@tuesday"]);
    fixture.done(&["create", "team"]);
    fixture.done(&["rename", "db", "team/db"]);
    assert_eq!(names(&fixture, &[]), ["team", "team/db", "team/db@tuesday"]);
    fixture.refused(2, &["rename", "team/db", "@short"]);
    fixture.refused(1, &["rename", "team/db", "team"]);
}

#[test]
fn destroy_says_before_what_goes_and_what_comes_back() {
    let fixture = Fixture::with_db();
    fixture.import("app", &[7; 100_000]);
    fixture.done(&["snapshot", "db@two"]);
    fixture.import("app", b"small");
    fixture.done(&["snapshot", "db@three"]);
    let planned = fixture.done(&["destroy", "-np", "db@one%two"]);
    let lines: Vec<_> = planned.lines().collect();
    assert_eq!(lines[..2], ["destroy\tdb@one", "destroy\tdb@two"]);
    let bytes: u64 = lines[2].strip_prefix("reclaim\t").unwrap().parse().unwrap();
    assert!((100_000..200_000).contains(&bytes), "{bytes}");
    assert_eq!(names(&fixture, &["-t", "snapshot"]).len(), 3);
    let done = fixture.done(&["destroy", "-vp", "db@one%two"]);
    assert_eq!(done, planned);
    assert_eq!(names(&fixture, &["-t", "snapshot"]), ["db@three"]);
    assert!(fixture.done(&["destroy", "-nv", "db@three"]).contains("would destroy db@three\nwould reclaim "));
    let refusal = fixture.refused(7, &["destroy", "db"]);
    assert!(refusal.contains("db@three"), "{refusal}");
    fixture.done(&["destroy", "-r", "db"]);
    assert!(names(&fixture, &[]).is_empty());
}

/// `written` of a version is what is new in it, to the block: by column and as a property.
#[test]
fn what_was_written_since_the_snapshot_before_is_a_number() {
    let fixture = Fixture::new();
    let written = |name: &str| {
        let line = fixture.done(&["list", "-Hp", "-o", "written,referenced", name]);
        let figures: Vec<u64> = line.trim_end().split('\t').map(|figure| figure.parse().unwrap()).collect();
        let property = fixture.done(&["get", "-Hp", "-o", "value", "written", name]);
        assert_eq!(property.trim_end(), figures[0].to_string(), "{name}");
        (figures[0], figures[1])
    };
    // Beside the file, some nodes.
    let is_about = |figure: u64, bytes: u64| {
        figure.is_multiple_of(4096) && (bytes..=bytes + (64 << 10)).contains(&figure)
    };
    fixture.done(&["create", "db"]);
    fixture.import("app", &vec![1; 1 << 20]);
    assert!(is_about(written("db").0, 1 << 20), "{:?}", written("db"));
    fixture.done(&["snapshot", "db@one"]);
    let (one, referenced) = written("db@one");
    assert!(is_about(one, 1 << 20) && one == referenced, "{one} of {referenced}");
    // Nothing since then.
    assert_eq!(written("db").0, 0);
    fixture.done(&["snapshot", "db@same"]);
    assert_eq!(written("db@same"), (0, referenced));
    fixture.import("more", &vec![2; 3 << 20]);
    let (head, all) = written("db");
    assert!(is_about(head, 3 << 20) && is_about(all, 4 << 20), "{head} of {all}");
    fixture.done(&["snapshot", "db@two"]);
    assert_eq!((written("db").0, written("db@two")), (0, (head, all)));
    assert_eq!(written("db@one").0, one, "what comes later changes nothing");
    // What is gone is no snapshot before it any more.
    fixture.done(&["destroy", "db@one"]);
    assert_eq!(written("db@same"), (one, one));
    fixture.done(&["destroy", "db@same"]);
    assert_eq!(written("db@two"), (all, all));
    let listed = fixture.json(&["list", "--json", "-o", "name,written", "db@two"]);
    assert_eq!(listed["entries"][0]["written"], all);
}

#[test]
fn a_snapshot_of_many_datasets_is_destroyed_as_it_was_taken() {
    let fixture = Fixture::new();
    fixture.done(&["create", "-p", "a/b/c"]);
    fixture.done(&["snapshot", "-r", "a@x"]);
    fixture.done(&["snapshot", "a/b@y"]);
    fixture.done(&["hold", "keep", "a/b/c@x"]);
    let refusal = fixture.refused(7, &["destroy", "-r", "a@x"]);
    assert!(refusal.contains("keep"), "{refusal}");
    assert_eq!(names(&fixture, &["-t", "snapshot"]).len(), 4, "nothing goes when one cannot");
    fixture.done(&["release", "keep", "a/b/c@x"]);
    fixture.done(&["destroy", "-r", "a@x"]);
    assert_eq!(names(&fixture, &["-t", "snapshot"]), ["a/b@y"]);
    fixture.refused(1, &["destroy", "-r", "a@x"]);
}

#[test]
fn holds_keep_snapshots() {
    let fixture = Fixture::with_db();
    fixture.done(&["hold", "audit", "db@one"]);
    fixture.done(&["hold", "-r", "second", "db@one"]);
    fixture.refused(1, &["hold", "audit", "db@one"]);
    let refusal = fixture.refused(7, &["destroy", "db@one"]);
    assert!(refusal.contains("audit"), "{refusal}");
    let lines = fixture.done(&["holds", "-H", "db@one"]);
    let tags: Vec<_> = lines.lines().map(|line| line.split('\t').nth(1).unwrap()).collect();
    assert_eq!(tags, ["audit", "second"]);
    assert!(
        fixture.done(&["holds", "db@one"]).starts_with("NAME    TAG     TIMESTAMP             EXPIRES\n")
    );
    fixture.done(&["release", "audit", "db@one"]);
    fixture.done(&["release", "second", "db@one"]);
    fixture.refused(1, &["release", "second", "db@one"]);
    fixture.done(&["destroy", "db@one"]);
}

#[test]
fn user_properties_are_set_inherited_and_shown() {
    let fixture = Fixture::new();
    fixture.done(&["create", "-p", "-o", "team:owner=ada", "team/db"]);
    fixture.done(&["set", "team:owner=grace", "team:note=a b=c", "team"]);
    let value = |name: &str| fixture.done(&["get", "-H", "-o", "value,source", "team:owner", name]);
    assert_eq!(value("team/db"), "ada\tlocal\n");
    fixture.done(&["inherit", "team:owner", "team/db"]);
    assert_eq!(value("team/db"), "grace\tinherited from team\n");
    let listed = fixture.done(&["list", "-H", "-o", "name,team:note,team:none"]);
    assert_eq!(listed, "team\ta b=c\t-\nteam/db\ta b=c\t-\n");
    fixture.done(&["snapshot", "-o", "team:ticket=7", "team/db@x"]);
    assert_eq!(fixture.done(&["get", "-H", "-o", "value", "team:ticket", "team/db@x"]), "7\n");
    let all = fixture.done(&["get", "all", "team/db"]);
    for word in ["NAME", "PROPERTY", "VALUE", "SOURCE", "creation", "used", "referenced", "team:note"] {
        assert!(all.contains(word), "{word} is missing:\n{all}");
    }
    fixture.refused(1, &["set", "used=1", "team"]);
    fixture.refused(2, &["set", "owner=ada", "team"]);
    fixture.refused(2, &["set", "team", "team/db"]);
    fixture.refused(2, &["get", "nonsense", "team"]);
    fixture.refused(1, &["inherit", "team:none", "team"]);
}

#[test]
fn differences_are_files_and_byte_ranges() {
    let fixture = Fixture::with_db();
    fixture.import("new", b"x");
    assert_eq!(fixture.done(&["diff", "-H", "db@one"]), "M\t/\nM\t/app\n+\t/new\n");
    fixture.done(&["snapshot", "db@two"]);
    let with_bytes = fixture.done(&["diff", "-HbF", "db@one", "@two"]);
    assert_eq!(with_bytes, "M\t/\t/\t\nM\tF\t/app\t0+6\n+\tF\t/new\t0+1\n");
    assert_eq!(fixture.done(&["diff", "db@two", "db"]), "");
    assert!(fixture.done(&["diff", "-b", "db@one", "db@two"]).contains("     bytes 0 to 6 (6)\n"));
}

/// Inode numbers of datasets that have nothing in common name different files.
#[test]
fn only_versions_with_a_common_history_are_compared() {
    let fixture = Fixture::with_db();
    fixture.done(&["create", "other"]);
    fixture.done(&["snapshot", "other@one"]);
    for pair in [["db@one", "other@one"], ["db", "other"]] {
        let said = fixture.refused(1, &["diff", pair[0], pair[1]]);
        assert!(said.contains("no history in common"), "{said}");
    }
    fixture.done(&["clone", "db@one", "trial"]);
    assert_eq!(fixture.done(&["diff", "-H", "db@one", "trial"]), "");
    fixture.done(&["promote", "trial"]);
    assert_eq!(fixture.done(&["diff", "-H", "trial", "db"]), "M\t/app\n");
}

#[test]
fn a_healthy_pool_scrubs_clean_and_has_a_status() {
    let fixture = Fixture::with_db();
    assert!(fixture.done(&["scrub"]).ends_with("no damage\n"));
    let refused = fixture.run(&["scrub", "--rate", "0"]).assert().code(2);
    assert!(String::from_utf8_lossy(&refused.get_output().stderr).contains("never end"));
    let status = fixture.done(&["status"]);
    assert!(status.contains("owner  none"), "{status}");
    assert!(status.contains("live_bytes"), "{status}");
    assert!(status.contains("collection: nothing to do"), "{status}");
}

#[test]
fn top_shows_so_many_views_and_ends() {
    let fixture = Fixture::with_db();
    let pool = fixture.own();
    let views = fixture.done(&["top", "-n", "2", "--interval", "0.02"]);
    assert_eq!(views.matches("collector  ").count(), 2, "{views}");
    assert!(!views.contains('\x1b'), "{views}");
    let lines = fixture.done(&["top", "-n", "3", "--interval", "0.02", "--json"]);
    let views: Vec<serde_json::Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(views.len(), 3);
    assert!(views[0]["seconds"].is_null() && views[1]["seconds"].as_f64().unwrap() > 0.0);
    assert!(views.iter().all(|view| view["version"] == 1 && view["collector"].is_string()));
    pool.close().unwrap();
}

/// Of a process that writes and does not end: `status` and `top` say the same, and it is what the counters
/// say.
#[test]
fn what_writing_costs_is_reported_as_it_is_counted() {
    let fixture = Fixture::with_db();
    let pool = fixture.own();
    let dataset = pool.dataset("db").unwrap();
    let file = dataset.open_or_create(b"more", &icecore::Creation::file()).unwrap();
    (0..200).for_each(|at| dataset.write(file, at * 10_000, &[7; 10_000]).unwrap());
    dataset.sync().unwrap();
    pool.checkpoint().unwrap();
    let document = fixture.json(&["status", "--json"]);
    let counters = &document["counters"];
    let counted = |name: &str| counters[name].as_u64().unwrap() as f64;
    let kinds = ["logged_data", "logged_header", "node", "checkpoint", "frame", "ahead"];
    let moved = ["moved_data", "moved_node", "moved_header"];
    let copied = ["copy_node", "copy_checkpoint", "copy_frame", "copy_data", "copy_restored"];
    let written: f64 =
        [&kinds[..], &moved, &copied].concat().iter().map(|kind| counted(&format!("{kind}_bytes"))).sum();
    assert!(counted("copy_node_bytes") > 0.0 && counted("write_bytes") == 2e6, "{counters}");
    let expected = written / counted("write_bytes");
    assert!(expected > 1.0 && (document["write_amplification"].as_f64().unwrap() - expected).abs() < 1e-9);
    let said = fixture.done(&["status"]);
    let sentence = format!("\nwritten to disk for each byte written by callers: {expected:.2}\n");
    assert!(said.contains(&sentence), "{said}");
    assert!(said.contains("\nsegments that were emptied were 0 % full on average\n"), "{said}");
    let view = fixture.done(&["top", "-n", "1"]);
    assert!(view.contains(&format!("\namplified  {expected:.2} since the pool was opened\n")), "{view}");
    assert!(view.contains("/s moved, 0B/s copies, "), "{view}");
    pool.close().unwrap();
}

#[test]
fn completions_and_manual_pages_are_made() {
    let fixture = Fixture::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(fixture.done(&["completions", shell]).contains("snapshot"));
    }
    assert!(fixture.done(&["man"]).contains(".TH icecore"));
    assert!(
        fixture.done(&["man", "destroy"]).contains(".TH icecore\\-destroy")
            || fixture.done(&["man", "destroy"]).contains(".TH icecore-destroy")
    );
    let folder = fixture.beside("man1");
    std::fs::create_dir(&folder).unwrap();
    fixture.done(&["man", folder.to_str().unwrap()]);
    let pages = crate::fixture::entries(&folder);
    assert!(pages.contains(&"icecore.1".to_owned()) && pages.contains(&"icecore-list.1".to_owned()));
    fixture.refused(2, &["man", "nonsense"]);
}

#[test]
fn every_shell_gets_completions() {
    let fixture = Fixture::new();
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        assert!(fixture.done(&["completions", shell]).contains("snapshot"), "{shell}");
    }
}
