//! Runs of the lab that are small, and documents that the published schema describes.
#![allow(dead_code, reason = "each test program uses a part of this")]

use icecore_lab::child::{self, ChildCommand, JOB_VARIABLE};
use icecore_lab::report::{Parameter, System};
use icecore_lab::{Options, Report};
use serde_json::Value;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

pub fn schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab-schema.json");
    let text = fs::read_to_string(path).expect("the schema is there");
    serde_json::from_str(&text).expect("the schema is JSON")
}

/// How the lab starts this test program again: with the test `serve_as_a_child` alone, which does this.
pub fn serve_as_a_child() {
    if std::env::var_os(JOB_VARIABLE).is_some() {
        child::serve().expect("the job was done");
    }
}

/// Plays the part of the hidden subcommand.
pub fn this_program() -> ChildCommand {
    ChildCommand {
        program: None,
        arguments: ["serve_as_a_child", "--exact", "--nocapture"].map(Into::into).to_vec(),
    }
}

/// Where nothing can be mounted there is nothing to measure.
pub fn can_mount() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    is_root && fs::File::options().read(true).write(true).open("/dev/fuse").is_ok()
}

/// A quick run with options that are changed.
pub fn changed_run(name: &str, change: impl FnOnce(&mut Options)) -> Report {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Servers run as users of their own.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("open to all users");
    let mut options = Options::new(folder.path());
    options.quick = true;
    options.child = this_program();
    change(&mut options);
    let report = icecore_lab::run(name, &options).expect("the experiment runs");
    let left: Vec<_> = fs::read_dir(folder.path()).expect("readable").collect();
    assert!(left.is_empty(), "an experiment cleans up: {left:?}");
    report
}

/// A quick run of so many rounds, or as many as a quick run has.
pub fn quick_run(name: &str, rounds: Option<usize>) -> Report {
    changed_run(name, |options| options.pairs = rounds)
}

pub fn runs_and_fits(name: &str, checks: &[&str]) -> Report {
    fits(name, quick_run(name, None), checks)
}

/// The same with one round: what several say together is for those to show whose rounds are short.
pub fn runs_once_and_fits(name: &str, checks: &[&str]) -> Report {
    fits(name, quick_run(name, Some(1)), checks)
}

pub fn fits(name: &str, report: Report, checks: &[&str]) -> Report {
    let document: Value = serde_json::from_str(&report.to_json()).expect("JSON");
    let validator = jsonschema::validator_for(&schema()).expect("the schema is one");
    let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{name}: {errors:?}");
    assert_eq!(Report::from_json(name, &report.to_json()).expect("read back"), report);
    let names: Vec<&str> = report.checks.iter().map(|check| check.name.as_str()).collect();
    assert_eq!(names, checks);
    for check in &report.checks {
        assert!(check.low <= check.value && check.value <= check.high, "{check:?}");
        // What did not grow is not above 0.
        assert!(check.value > 0.0 || ["soak", "full", "blog"].contains(&name), "{check:?}");
    }
    assert!(report.quick && report.summary().contains("not for quoting"));
    report
}

/// The systems of a study that this machine can run; the others must say why they do not take part.
pub fn measured<'a>(report: &'a Report, name: &str) -> Vec<&'a str> {
    for (key, system) in &report.systems {
        assert_eq!(system.samples.is_empty(), system.unavailable.is_some(), "{name}: {key}");
    }
    for (absent, _) in icecore_lab::systems::examine().iter().filter(|(_, probed)| probed.is_err()) {
        assert!(report.systems[*absent].unavailable.is_some(), "{name}: {absent}");
    }
    for (present, _) in icecore_lab::systems::examine().iter().filter(|(_, probed)| probed.is_ok()) {
        let reason = report.systems.get(*present).and_then(|system| system.unavailable.as_deref());
        // It does not fit the study; it did not fail in it.
        assert!(reason.is_none_or(|reason| reason.starts_with("it has ")), "{name}: {present}: {reason:?}");
    }
    report
        .systems
        .iter()
        .filter(|(_, system)| system.unavailable.is_none())
        .map(|(key, _)| key.as_str())
        .collect()
}

/// The result says what driving costs, within bounds that noise does not cross, in microseconds.
pub fn says_what_driving_costs(report: &Report, bounds_us: Range<f64>) {
    let cost = &report.parameters["driving_us_per_op"];
    assert!(matches!(cost, Parameter::Number(us) if bounds_us.contains(us)), "{cost:?}");
}

/// `shock` of two systems, by a tool or at a rate that is chosen.
pub fn shock_of_two(choose: impl FnOnce(&mut Options)) -> Report {
    changed_run("shock", |options| {
        options.systems = ["xfs-reflink", "icecore-mount"].map(str::to_owned).to_vec();
        choose(options);
    })
}

/// The disks of a placement, from the names of its counters.
pub fn written_disks(system: &System) -> Vec<&str> {
    system.counters.keys().filter_map(|counter| counter.strip_suffix("_written_mb")).collect()
}
