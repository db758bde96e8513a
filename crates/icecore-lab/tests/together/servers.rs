//! Database servers on systems that are compared, on a mount, and on a clone of it.

use crate::runs::{can_mount, changed_run, fits, measured, quick_run, written_disks};
use crate::side_by_side;
use icecore_lab::report::Parameter;
use icecore_lab::{DatabaseServer, Report};

#[test]
fn studies_with_servers() {
    side_by_side(&[
        ("backup", backup),
        ("mariadb", mariadb),
        ("placement_of_postgres", placement_of_postgres),
        ("clone", clone),
        ("postgres", postgres),
    ]);
}

fn backup() {
    if !can_mount() {
        return;
    }
    let report = changed_run("backup", |options| options.size = Some(8 << 20));
    let report = fits("backup", report, &["backup.icecore_read", "backup.foreground"]);
    let rows = &report.parameters["sysbench_rows"];
    assert_eq!(*rows, Parameter::Count(8388), "a row takes 250 bytes, and there are four tables");
    let keys = measured(&report, "backup");
    for key in ["icecore-mount/idle", "btrfs/alone", "xfs-reflink/half"] {
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
    }
    let (half, all) = (&report.systems["icecore-mount/half"], &report.systems["icecore-mount/idle"]);
    assert!(half.counters["read_mb_per_s"] < 0.6 * all.samples[0], "the reader is held: {half:?}");
    assert!(half.series["foreground_per_s"][0].iter().any(|rate| *rate > 0.0), "{half:?}");
    for system in ["plain", "btrfs", "icecore-mount"] {
        let backup = &report.systems[&format!("{system}/mariadb-backup")];
        assert!(backup.unit == "MB/s" && backup.samples.iter().all(|speed| *speed > 0.0), "{backup:?}");
        assert!(backup.series["foreground_per_s"].iter().all(|rates| !rates.is_empty()), "{backup:?}");
    }
    assert!(!keys.contains(&"plain/idle"), "it has no snapshots");
    for parameter in ["tool.mariadb-backup", "driving_us_per_op"] {
        assert!(report.parameters.contains_key(parameter), "{:?}", report.parameters);
    }
}

fn placement_of_postgres() {
    if !can_mount() {
        return;
    }
    let report = changed_run("placement", |options| options.server = DatabaseServer::Postgres);
    let report = fits("placement", report, &[]);
    assert_eq!(report.parameters["server"], Parameter::Text("postgres".to_owned()));
    assert!(report.parameters.contains_key("tool.postgres"), "{:?}", report.parameters);
    assert!(!report.parameters.contains_key("tool.mariadbd"), "{:?}", report.parameters);
    // The disk of the log is written to in any case, and that of the tables at a checkpoint.
    for (name, disks, log) in [
        ("hdd", &["hdd"][..], Some("hdd")),
        ("ssd", &["ssd"], Some("ssd")),
        ("wal-on-hdd", &["hdd", "ssd"], Some("hdd")),
        ("wal-on-ssd", &["hdd", "ssd"], Some("ssd")),
        ("tmpfs", &[], None),
        ("icecore-mount", &["ssd"], Some("ssd")),
    ] {
        let system = &report.systems[name];
        if let Some(reason) = &system.unavailable {
            assert!(name == "tmpfs" && reason.contains("memory"), "{name}: {reason}");
            continue;
        }
        assert!(system.samples[0] > 0.0, "{name}: {system:?}");
        assert_eq!(written_disks(system), disks, "{name}");
        let is_written = |disk: &str| system.counters[&format!("{disk}_written_mb")] > 0.0;
        assert!(log.is_none_or(is_written), "{name}: {system:?}");
    }
    assert_eq!(report.systems.len(), 6, "{:?}", report.systems.keys());
}

fn clone() {
    if can_mount() {
        let report = fits("clone", quick_run("clone", Some(1)), &["clone.seconds"]);
        let last = |system: &str| report.systems[system].samples[0];
        assert!(last("snapshot") < last("clone") && last("clone") < last("until_answer"));
    }
}

fn mariadb() {
    if !can_mount() {
        return;
    }
    let report = quick_run("mariadb", Some(1));
    // Without Btrfs or loop devices there is no comparison with it, and the result says so.
    let checks: &[&str] = if report.parameters.contains_key("btrfs") {
        &["mariadb.default", "mariadb.advised"]
    } else {
        &["mariadb.default", "mariadb.advised", "mariadb.vs_btrfs"]
    };
    let report = fits("mariadb", report, checks);
    server_systems(&report, &["oltp_write_only", "oltp_read_write"]);
}

fn postgres() {
    if can_mount() {
        let report =
            fits("postgres", quick_run("postgres", Some(1)), &["postgres.default", "postgres.advised"]);
        server_systems(&report, &["tpcb-like"]);
    }
}

/// Every side was driven, and there were snapshots of the mount.
fn server_systems(report: &Report, workloads: &[&str]) {
    for side in ["plain", "icecore", "icecore_advised"] {
        for workload in workloads {
            let counters = &report.systems[&format!("{side}_{workload}")].counters;
            assert!(counters["transactions"] > 0.0);
            assert_eq!(counters.contains_key("mount_read_calls"), side != "plain");
        }
    }
    assert!(matches!(report.parameters["snapshots_taken"], Parameter::Count(taken) if taken > 0));
}
