//! A run of several experiments: documents and report, also where one fails or the run is stopped.

use icecore_lab::all::{self, Event};
use icecore_lab::experiments::Experiment;
use icecore_lab::{EXPERIMENTS, Error, Options, Report};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// One that runs, and one that refuses the systems asked for.
fn experiments() -> [&'static Experiment; 2] {
    ["valuation-store", "shock"]
        .map(|name| EXPERIMENTS.iter().find(|experiment| experiment.name == name).expect("it is there"))
}

fn options(folder: &std::path::Path) -> Options {
    let mut options = Options::new(folder);
    options.quick = true;
    options.systems = vec!["no-such-system".to_owned()];
    options
}

#[test]
fn a_study_that_fails_is_missing_in_the_report_and_the_others_are_there() {
    let (measured, results) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
    let folder = results.path().join("new");
    let mut said = Vec::new();
    let outcome = all::run(&experiments(), &options(measured.path()), &folder, &mut |event| {
        said.push(match event {
            Event::Begins { number, count, name, .. } => format!("{number}/{count} {name}"),
            Event::Ended { name, error, .. } => format!("{name} {}", error.is_none()),
        });
    });
    let outcome = outcome.expect("a report");
    assert_eq!(said, ["1/2 valuation-store", "valuation-store true", "2/2 shock", "shock false"]);
    let text = fs::read_to_string(folder.join("valuation-store.json")).expect("a document");
    assert_eq!(Report::from_json("it", &text).expect("read back"), outcome.documents[0].report);
    let page = fs::read_to_string(outcome.report).expect("a page");
    assert!(outcome.missing[0].reason.contains("no-such-system"), "{:?}", outcome.missing);
    assert!(page.contains("The study shock has no result") && page.contains("valuation.vs_plain"));
    assert_eq!(fs::read_dir(measured.path()).expect("readable").count(), 0, "files are left");
}

#[test]
fn a_run_that_is_stopped_keeps_the_documents_before() {
    let (measured, results) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
    let stop = Arc::new(AtomicBool::new(false));
    let mut options = options(measured.path());
    let asked = Arc::clone(&stop);
    options.stop = Arc::new(move || asked.load(Ordering::Relaxed));
    let outcome = all::run(&experiments(), &options, results.path(), &mut |event| {
        if let Event::Ended { name, .. } = event {
            assert_eq!(name, "valuation-store", "a study that is stopped did not fail");
            stop.store(true, Ordering::Relaxed);
        }
    });
    assert!(matches!(outcome, Err(Error::Stopped)));
    let names: Vec<_> =
        fs::read_dir(results.path()).expect("readable").flatten().map(|one| one.file_name()).collect();
    assert_eq!(names, ["valuation-store.json"]);
}
