//! Studies of which a test compares times, or that end after some: not more of them run at a time than there
//! are processors.

use crate::runs::{can_mount, measured, runs_and_fits, says_what_driving_costs, shock_of_two, written_disks};
use icecore_lab::report::Parameter;

#[test]
fn placement() {
    if !can_mount() {
        return;
    }
    let report = runs_and_fits("placement", &[]);
    let keys: Vec<&String> = report.systems.keys().collect();
    assert_eq!(keys.len(), 7, "{keys:?}");
    let system = |name: &str| &report.systems[name];
    assert!(system("hdd").samples[0] < system("ssd").samples[0], "a slow disk is slow: {report:?}");
    for (name, disks) in [
        ("hdd", &["hdd"][..]),
        ("redo-on-hdd", &["hdd", "ssd"]),
        ("redo-and-system-on-second-ssd", &["second_ssd", "ssd"]),
        ("redo-and-system-on-tmpfs", &["ssd"]),
        ("icecore-mount", &["ssd"]),
    ] {
        let counters = &system(name).counters;
        let written = written_disks(system(name));
        assert_eq!(written, disks, "{name}");
        assert!(
            written.iter().all(|disk| counters[&format!("{disk}_written_mb")] > 0.0),
            "{name}: {counters:?}"
        );
    }
    assert_eq!(report.parameters["server"], Parameter::Text("mariadb".to_owned()));
    let labels = report.labels();
    assert!(labels.iter().any(|label| label.starts_with("simulated disk: 7200 rpm")), "{labels:?}");
}

#[test]
fn blog() {
    if !can_mount() {
        return;
    }
    let report =
        runs_and_fits("blog", &["blog.write_vs_btrfs", "blog.read_vs_btrfs", "blog.stalled_periods"]);
    let keys = measured(&report, "blog");
    assert!(keys.contains(&"icecore-mount/write/after") && keys.contains(&"xfs/read/before"), "{keys:?}");
}

#[test]
fn many() {
    if !can_mount() {
        return;
    }
    let report = runs_and_fits("many", &[]);
    let keys = measured(&report, "many");
    says_what_driving_costs(&report, 0.1..10_000.0);
    assert!(matches!(&report.parameters["driving_us_per_program"], Parameter::Number(us) if *us > 10.0));
    assert!(keys.contains(&"icecore-sqlite/destroy") && keys.contains(&"xfs-reflink/take"), "{keys:?}");
    assert!(report.systems["plain"].unavailable.is_some());
    assert_eq!(report.systems["btrfs/destroy"].series["count"][0], [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
}

/// At a fixed rate.
#[test]
fn a_writer_is_no_faster_than_it_is_to_be() {
    if !can_mount() {
        return;
    }
    let paced = shock_of_two(|options| options.rate = Some(100));
    let counters = &paced.systems["icecore-mount/sync/1"].counters;
    assert!(counters["longest_wait_ms"] > 0.0 && counters["wait_before_ms"] > 0.0, "{counters:?}");
    let rates = &paced.systems["xfs-reflink/sync/1"].series["rate_per_s"][0];
    assert!(rates.iter().all(|rate| *rate < 200.0), "no faster than it is to be: {rates:?}");
}
