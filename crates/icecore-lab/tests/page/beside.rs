//! The table of published figures, with ours beside them.

use crate::fixture;
use icecore_lab::page::{self, Document};
use icecore_lab::report::{Report, System};
use icecore_lab::statistics::median;

/// The rows of the table, without its head.
fn rows(report: Report) -> Vec<String> {
    let document = Document { name: report.experiment.clone(), report };
    let page = page::render(&[document], &[]).expect("a page");
    let table = page.split_once("<table class=\"beside\">").expect("a table").1;
    let table = table.split_once("</table>").expect("it ends").0;
    table.split("<tr").skip(2).map(str::to_owned).collect()
}

/// The rows of ours about a system.
fn ours<'rows>(rows: &'rows [String], system: &str) -> Vec<&'rows String> {
    let begin = format!(" data-beside=\"{system}\"");
    let ours: Vec<&String> = rows.iter().filter(|row| row.starts_with(&begin)).collect();
    assert!(ours.iter().all(|row| row.contains("measured here") && !row.contains("published")), "{ours:?}");
    ours
}

/// Whether a row shows this value.
fn shows(row: &str, value: f64) -> bool {
    row.contains(&format!("title=\"{value}\""))
}

#[test]
fn our_placements_stand_beside_those_of_the_study() {
    let report = fixture::placement();
    let rows = rows(report.clone());
    for (system, printed) in [("hdd", 3447.0), ("ssd", 14_842.0), ("redo-and-system-on-tmpfs", 24_076.0)] {
        let at = rows.iter().position(|row| row.starts_with(&format!(" data-beside=\"{system}\"")));
        let at = at.unwrap_or_else(|| panic!("no {system} in {rows:?}"));
        let published = &rows[at - 1];
        assert!(published.contains("class=\"published\"") && published.contains(">published<"));
        assert!(
            published.contains(&format!("<td>{system}</td>")) && shows(published, printed),
            "{published}"
        );
        assert!(shows(&rows[at], median(&report.systems[system].samples)), "{}", rows[at]);
    }
    let mount = ours(&rows, "icecore-mount");
    assert!(mount.len() == 1 && shows(mount[0], 6000.0), "{mount:?}");
    // Ten were printed, and four are ours.
    assert_eq!(rows.len(), 14, "{rows:?}");
    // The study took no snapshot.
    assert!(rows.iter().all(|row| row.matches("class=\"number\"").count() == 1), "{rows:?}");
    let mut of_postgres = report;
    of_postgres.parameters.insert("server".to_owned(), "postgres".into());
    let document = Document { name: "placement".to_owned(), report: of_postgres };
    let page = page::render(&[document], &[]).expect("a page");
    assert!(!page.contains("class=\"beside\"") && page.contains("PostgreSQL does 12k new orders a minute"));
}

#[test]
fn what_our_placements_write_stands_beside_what_those_of_the_study_wrote() {
    let mut report = fixture::placement();
    let mut redo = System::new("orders/min", vec![9000.0]);
    redo.counters = [("ssd_written_mb", 30_000.0), ("hdd_written_mb", 2000.0)]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
    report.systems.insert("redo-on-hdd".to_owned(), redo);
    let rows = rows(report);
    for (disk, printed, measured) in [("SSD", 31_658.0, 30_000.0), ("hard disk", 1928.0, 2000.0)] {
        let of_disk =
            |row: &&String| row.contains("redo-on-hdd<") && row.contains(&format!("<td>{disk}</td>"));
        let found: Vec<&String> = rows.iter().filter(of_disk).collect();
        assert!(found.len() == 2 && shows(found[0], printed) && shows(found[1], measured), "{found:?}");
    }
}

#[test]
fn what_a_system_without_snapshots_did_stands_under_without() {
    let systems = ["btrfs", "plain"]
        .map(|system| ["fill", "update"].map(|run| (format!("{system}/{run}"), System::new("s", vec![3.0]))));
    let rows = rows(fixture::report("fragment", systems.into_iter().flatten().collect()));
    // The cells with numbers: without, with, and the ratio of both.
    let filled = |system: &str, run: &str| -> Vec<bool> {
        let of_run = |row: &&&String| row.contains(&format!("<td>{run}</td>"));
        let row = ours(&rows, system).into_iter().find(|row| of_run(&row)).expect("a row");
        row.split("class=\"number\">").skip(1).map(|cell| !cell.starts_with("</td>")).collect()
    };
    assert_eq!(filled("btrfs", "update"), [false, true, false], "{rows:?}");
    assert_eq!(filled("plain", "update"), [true, false, false], "{rows:?}");
    // The file is filled before there is a snapshot.
    assert_eq!(filled("btrfs", "fill"), [true, false, false], "{rows:?}");
}

#[test]
fn what_no_study_did_has_no_table_beside_theirs() {
    let runs = ["bonnie-seeks/0", "bonnie-seeks/1"];
    let systems = runs.map(|run| (format!("btrfs/{run}"), System::new("operations/s", vec![100.0])));
    let document = Document { name: "shock".to_owned(), report: fixture::report("shock", systems.into()) };
    assert!(!page::render(&[document], &[]).expect("a page").contains("class=\"beside\""));
}

#[test]
fn our_scores_of_blogbench_stand_beside_those_of_the_study() {
    let scores = [("before", 1000.0), ("after", 800.0)];
    let systems =
        scores.map(|(half, score)| (format!("btrfs/write/{half}"), System::new("score", vec![score])));
    let rows = rows(fixture::report("blog", systems.into()));
    // Four were printed, and one is ours.
    assert_eq!((rows.len(), ours(&rows, "btrfs").len()), (5, 1), "{rows:?}");
    let at = rows.iter().position(|row| row.starts_with(" data-beside")).expect("it is there");
    let values = [1000.0, 800.0, 0.8].map(|value| shows(&rows[at], value));
    assert!(values == [true; 3] && rows[at].contains("<td>score</td>"), "{}", rows[at]);
    assert!(shows(&rows[at - 1], 1436.0) && shows(&rows[at - 1], 964.0), "{}", rows[at - 1]);
}

#[test]
fn our_backups_stand_beside_those_of_the_study() {
    let report = fixture::backups();
    let rows = rows(report.clone());
    assert_eq!(rows.iter().filter(|row| row.contains(">published<")).count(), 2, "{rows:?}");
    for system in ["icecore-mount", "btrfs", "xfs-reflink"] {
        let ours = ours(&rows, system);
        assert_eq!(ours.len(), 1, "{rows:?}");
        let speed = |run: &str| median(&report.systems[&format!("{system}/{run}")].samples);
        let (idle, writing) = (speed("idle"), speed("writing"));
        let found = [idle, writing, writing / idle].map(|value| shows(ours[0], value));
        assert_eq!(found, [true; 3], "{}", ours[0]);
        assert!(ours[0].contains("reading a snapshot, MB/s"), "{}", ours[0]);
    }
    assert_eq!(rows.len(), 5, "{rows:?}");
}

#[test]
fn what_our_histories_do_stands_beside_what_those_of_the_study_did() {
    let iterations = |step: f64| vec![(0..20).map(|place| 1.0 + step * f64::from(place)).collect()];
    let system = System::new("s", vec![10.0])
        .with_series("iteration_s", iterations(1.0))
        .with_series("snapshot_s", vec![vec![0.1; 2]])
        .with_series("held_bytes", vec![vec![4e9, 1e9]]);
    let without = System::new("s", vec![8.0]).with_series("iteration_s", iterations(0.0));
    let mut of_some = system.clone();
    of_some.series.insert("held_bytes".to_owned(), vec![vec![3e9]]);
    let systems = [("lvm/snapshots", system), ("lvm/none", without), ("btrfs/snapshots", of_some)];
    let systems = systems.map(|(name, system)| (name.to_owned(), system)).into();
    let rows = rows(fixture::report("valuation", systems));
    let at = |what: &str| {
        let is_ours = |row: &&String| row.starts_with(" data-beside=\"lvm\"") && row.contains(what);
        let found = rows.iter().find(is_ours).unwrap_or_else(|| panic!("no {what} in {rows:?}"));
        let before = rows.iter().take_while(|row| *row != found).last().expect("not the first");
        assert!(before.contains(">published<") && before.contains(what), "{before}");
        found
    };
    // The last two took 19 and 20 times the unit, and the first two 1 and 2.
    let last = at("the last iterations, relative");
    assert!(shows(last, 13.0) && shows(last, 1.0), "{last}");
    assert!(shows(at("held by the first snapshot"), 4.0), "{rows:?}");
    let of_btrfs = ours(&rows, "btrfs");
    assert!(of_btrfs.iter().all(|row| !row.contains("held")), "not all snapshots are in it: {of_btrfs:?}");
}
