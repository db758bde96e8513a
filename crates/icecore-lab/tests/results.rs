//! Every experiment runs, small, and leaves a document that the published schema describes.

use icecore_lab::child::{self, ChildCommand, JOB_VARIABLE};
use icecore_lab::disks::model::HardDisk;
use icecore_lab::disks::real::EmptyDisk;
use icecore_lab::policies::Every;
use icecore_lab::report::{Parameter, System};
use icecore_lab::targets::TARGETS;
use icecore_lab::trace::{Event, Trace};
use icecore_lab::{DatabaseServer, EXPERIMENTS, LoadTool, Options, Report, figure};
use serde_json::{Value, json};
use std::fs;
use std::num::NonZeroU64;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn schema() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/lab-schema.json");
    let text = fs::read_to_string(path).expect("the schema is there");
    serde_json::from_str(&text).expect("the schema is JSON")
}

/// Plays the part of the hidden subcommand: the lab starts this test program again with this test alone.
#[test]
fn serve_as_a_child() {
    if std::env::var_os(JOB_VARIABLE).is_some() {
        child::serve().expect("the job was done");
    }
}

fn quick_run(name: &str, pairs: Option<usize>) -> Report {
    changed_run(name, |options| options.pairs = pairs)
}

fn changed_run(name: &str, change: impl FnOnce(&mut Options)) -> Report {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // Servers run as users of their own.
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("open to all users");
    let mut options = Options::new(folder.path());
    options.quick = true;
    options.child = ChildCommand {
        program: None,
        arguments: ["serve_as_a_child", "--exact", "--nocapture"].map(Into::into).to_vec(),
    };
    change(&mut options);
    let report = icecore_lab::run(name, &options).expect("the experiment runs");
    let left: Vec<_> = fs::read_dir(folder.path()).expect("readable").collect();
    assert!(left.is_empty(), "an experiment cleans up: {left:?}");
    report
}

fn runs_and_fits(name: &str, checks: &[&str]) -> Report {
    fits(name, quick_run(name, None), checks)
}

fn fits(name: &str, report: Report, checks: &[&str]) -> Report {
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

#[test]
fn valuation_store_and_its_figure() {
    let report = runs_and_fits(
        "valuation-store",
        &["valuation.vs_plain", "valuation.snapshot_cost", "valuation.snapshot_flushes"],
    );
    assert_eq!(report.systems["icecore_snapshots"].series["snapshot_s"][0].len(), 6);
    let svg = figure::time_per_iteration(&report).expect("drawn");
    assert_eq!(svg.matches("<polyline").count(), 3);
}

#[test]
fn connect() {
    runs_and_fits("connect", &["connect.vs_plain"]);
}

#[test]
fn commits() {
    runs_and_fits("commits", &["commits.vs_wal", "commits.vs_delete", "commits.snapshot_cost"]);
}

#[test]
fn crowd() {
    runs_and_fits("crowd", &["crowd.wait_ms", "crowd.vs_wal", "crowd.two_writers_wait_ms"]);
}

#[test]
fn randwrite() {
    runs_and_fits("randwrite", &["randwrite.1", "randwrite.8", "randwrite.snapshot_cost"]);
}

#[test]
fn randwrite_metadata() {
    runs_and_fits("randwrite-metadata", &["randwrite.metadata"]);
}

#[test]
fn randread() {
    let report = runs_and_fits("randread", &["randread.cold.1", "randread.cold.8", "randread.snapshot"]);
    for name in ["icecore_1_4k", "icecore_8_16k", "icecore_snapshot_8_4k"] {
        let counters = &report.systems[name].counters;
        for count in ["device_reads_per_read", "device_bytes_per_read", "metadata_reads_per_miss"] {
            assert!(counters[count] >= 0.0, "{name}: {counters:?}");
        }
        assert!(counters["read_calls"] > 0.0, "{name}: {counters:?}");
    }
}

#[test]
fn bulk() {
    let report = runs_and_fits("bulk", &["bulk.write", "bulk.scan"]);
    assert!(report.systems["icecore_write"].counters["write_bytes"] > 0.0);
}

#[test]
fn many_store() {
    runs_and_fits("many-store", &["many.create", "many.write", "many.list_s", "many.open_s"]);
}

#[test]
fn demo_rss() {
    runs_and_fits("demo-rss", &["demo.rss_mib"]);
}

#[test]
fn recovery() {
    runs_and_fits("recovery", &["recovery.seconds"]);
}

#[test]
fn footprint() {
    runs_and_fits("footprint", &["footprint.reader", "footprint.rest", "footprint.small_mib"]);
}

#[test]
fn spill() {
    runs_and_fits("spill", &["spill.bytes", "spill.time"]);
}

#[test]
fn collect() {
    runs_and_fits(
        "collect",
        &[
            "collect.uniform",
            "collect.skewed",
            "collect.throughput",
            "collect.flush_bound",
            "collect.p99",
            "collect.snapshots",
            "collect.rss_mib",
        ],
    );
}

#[test]
fn history() {
    runs_and_fits(
        "history",
        &[
            "history.create_p99",
            "history.list_s",
            "history.open_s",
            "history.destroy_s",
            "history.writers",
            "history.rss_mib",
        ],
    );
}

#[test]
fn soak() {
    let names =
        ["soak.memory_growth_mib", "soak.files_growth", "soak.space_growth_mib", "soak.unexplained_bytes"];
    let report = runs_and_fits("soak", &names);
    assert!(report.checks.iter().any(|check| check.name == "soak.unexplained_bytes" && check.met));
    let cycles = &report.systems["cycle"];
    assert!(cycles.samples.len() >= 8);
    for deed in ["transactions", "groups", "snapshots_destroyed", "views", "promotions", "rollbacks", "calls"]
    {
        assert!(cycles.counters[&format!("soak_{deed}")] > 0.0, "{deed}");
    }
}

/// The systems of a study that this machine can run; the others must say why they do not take part.
fn measured<'a>(report: &'a Report, name: &str) -> Vec<&'a str> {
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

#[test]
fn shock() {
    if !can_mount() {
        return;
    }
    let has_lvm = icecore_lab::systems::examine().contains(&("lvm", Ok(())));
    let lvm: &[&str] = if has_lvm { &["shock.lvm_factor"] } else { &[] };
    let report = runs_and_fits("shock", &[lvm, &["shock.icecore_factor", "shock.stall_ms"]].concat());
    let keys = measured(&report, "shock");
    for key in ["plain/sync/0", "icecore-mount/sync/1", "icecore-mount/small/1", "icecore-mount/randomio/1"] {
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
    }
    let driving = &report.parameters["driving_us_per_op"];
    assert!(matches!(driving, Parameter::Number(time) if (0.1..1000.0).contains(time)), "{driving:?}");
    let text = |name: &str| match &report.parameters[name] {
        Parameter::Text(text) => text.clone(),
        other => panic!("{name} is {other:?}"),
    };
    assert!(text("tool.fio").starts_with("fio-"), "{:?}", report.parameters);
    assert!(text("mount.icecore-mount").contains(" on ext4 rw"), "{:?}", report.parameters);
    let system = &report.systems["icecore-mount/sync/1"];
    let counters = &system.counters;
    assert!(
        counters["device_write_kib_per_op"] >= 16.0 && counters["device_flushes_per_op"] > 0.0,
        "{counters:?}"
    );
    assert!(!system.series["rate_per_s"][0].is_empty() && system.series["snapshot_at_s"][0][0] > 0.0);
}

#[test]
fn valuation() {
    if !can_mount() {
        return;
    }
    let report = runs_and_fits("valuation", &["valuation.vs_best_rival"]);
    let keys = measured(&report, "valuation");
    for key in [
        "plain/none",
        "xfs/none",
        "btrfs/snapshots",
        "xfs-reflink/snapshots-delete",
        "icecore-sqlite/snapshots",
    ] {
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
    }
    for (key, system) in report.systems.iter().filter(|(key, _)| key.contains("/snapshots")) {
        assert_eq!(system.counters["snapshots_verified"], 3.0, "{key}");
        assert_eq!(system.series["held_bytes"][0].len(), 3, "{key}");
        assert!(system.series["held_bytes"][0].iter().any(|bytes| *bytes > 0.0), "{key}");
    }
}

#[test]
fn fragment() {
    if !can_mount() {
        return;
    }
    let report = runs_and_fits("fragment", &["fragment.update_vs_btrfs", "fragment.scan_vs_btrfs"]);
    let keys = measured(&report, "fragment");
    for key in ["icecore-mount/read-before", "icecore-mount/read-snapshot", "plain/update"] {
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
    }
    // Each write of the workers is a record of the log: an update may also bring blocks together.
    let stored = &report.systems["icecore-mount/read"].counters;
    assert!(stored["extents_before"] >= 1.0 && stored["extents_after"] >= 1.0, "{stored:?}");
    let extents = &report.systems["btrfs/read"].counters;
    assert!(extents["extents_after"] > extents["extents_before"], "{extents:?}");
    assert!(
        report.systems["icecore-sqlite"]
            .unavailable
            .as_ref()
            .is_some_and(|reason| reason.contains("no files"))
    );
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
fn backup() {
    if !can_mount() {
        return;
    }
    let report = runs_and_fits("backup", &["backup.icecore_read", "backup.foreground"]);
    let keys = measured(&report, "backup");
    for key in ["icecore-mount/idle", "btrfs/alone", "xfs-reflink/half"] {
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
    }
    let (half, all) = (&report.systems["icecore-mount/half"], &report.systems["icecore-mount/idle"]);
    assert!(half.counters["read_mb_per_s"] < 0.6 * all.samples[0], "the reader is held: {half:?}");
    assert!(half.series["foreground_per_s"][0].iter().any(|rate| *rate > 0.0), "{half:?}");
    assert!(report.systems["plain"].unavailable.is_some());
}

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
    let labels = icecore_lab::charts::labels(&report);
    assert!(labels.iter().any(|label| label.starts_with("simulated disk: 7200 rpm")), "{labels:?}");
}

#[test]
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

/// The disks of a placement, from the names of its counters.
fn written_disks(system: &System) -> Vec<&str> {
    system.counters.keys().filter_map(|counter| counter.strip_suffix("_written_mb")).collect()
}

#[test]
fn a_study_on_a_simulated_disk_is_slow_and_says_so() {
    if !can_mount() {
        return;
    }
    let report = changed_run("shock", |options| {
        options.systems = vec!["plain".to_owned()];
        options.disk = HardDisk::named("hdd");
    });
    // A durable write waits for half a turn of 8.3 ms on average.
    let rate = report.systems["plain/sync/0"].samples[0];
    assert!(rate < 300.0, "{rate}");
    let labels = icecore_lab::charts::labels(&report);
    assert!(
        labels.iter().any(|label| label.contains("7200 rpm") && label.contains("cache off")),
        "{labels:?}"
    );
}

#[test]
fn full() {
    if !can_mount() {
        return;
    }
    let report = runs_and_fits("full", &["full.lost"]);
    let keys = measured(&report, "full");
    for key in ["btrfs", "icecore-mount", "icecore-sqlite", "xfs-reflink"] {
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
        let counters = &report.systems[key].counters;
        assert!(counters["snapshots"] > 1.0 && counters["said_full"] == 1.0, "{key}: {counters:?}");
    }
    assert_eq!(report.checks[0].value, 0.0, "{:?}", report.checks);
}

#[test]
fn many() {
    if !can_mount() {
        return;
    }
    let report = runs_and_fits("many", &[]);
    let keys = measured(&report, "many");
    assert!(keys.contains(&"icecore-sqlite/destroy") && keys.contains(&"xfs-reflink/take"), "{keys:?}");
    assert!(report.systems["plain"].unavailable.is_some());
    assert_eq!(report.systems["btrfs/destroy"].series["count"][0], [6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
}

#[test]
fn model() {
    let report = runs_and_fits("model", &["model.error"]);
    assert!(report.checks[0].met && report.checks[0].value <= 0.15, "{:?}", report.checks);
    let keys: Vec<&str> = report.systems.keys().map(String::as_str).collect();
    for key in ["lvm/16", "lvm-thin/1", "shared-store/4", "delta/2", "btrfs/0", "icecore-mount/16"] {
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
    }
    let counters = &report.systems["lvm/1"].counters;
    for what in ["reads", "read_kib", "writes", "write_kib", "flushes"] {
        let of = |device: &str| counters[&format!("{device}_{what}_per_op")];
        assert!((of("origin_device") + of("copy_device") - of("device")).abs() < 1e-6, "{counters:?}");
        // Copies are only written there.
        assert_eq!(of("copy_device") > 0.0, !what.starts_with("read"), "{what}: {counters:?}");
    }
    assert!(!report.systems["btrfs/1"].counters.contains_key("copy_device_writes_per_op"));
}

#[test]
fn model_with_another_chunk_and_a_schedule() {
    let chunks = changed_run("model", |options| options.chunk = Some(64 << 10));
    let chunks = fits("model", chunks, &[]);
    // A whole chunk is copied for each write of 16 KiB, but for those into a chunk that was.
    let read_kib = chunks.systems["lvm/1"].counters["device_read_kib_per_op"];
    assert!((32.0..=64.0).contains(&read_kib), "{read_kib}");
    let every = Every::Writes(NonZeroU64::new(100).expect("not zero"));
    let scheduled = fits("model", changed_run("model", |options| options.every = Some(every)), &[]);
    assert_eq!(scheduled.parameters["every"], Parameter::Text("100 writes".to_owned()));
    let held = |key: &str| scheduled.systems[key].counters["held_bytes"];
    // At most a hundred writes of 16 KiB for each snapshot that is kept.
    assert!(held("icecore-mount/1") <= 100.0 * 16384.0 && held("icecore-mount/1") > 0.0);
    assert!(held("icecore-mount/16") > 10.0 * held("icecore-mount/1"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut options = Options::new(folder.path());
    options.every = Some(Every::Time(Duration::from_secs(1)));
    let error = icecore_lab::run("model", &options).expect_err("refused").to_string();
    assert!(error.contains("every 1 s") && error.contains("have no times"), "{error}");
}

/// Where nothing can be mounted there is nothing to measure.
fn can_mount() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    is_root && fs::File::options().read(true).write(true).open("/dev/fuse").is_ok()
}

#[test]
fn mount() {
    if !can_mount() {
        return;
    }
    let checks: Vec<&str> =
        TARGETS.iter().map(|target| target.name).filter(|name| name.starts_with("mount.")).collect();
    let report = runs_and_fits("mount", &checks);
    assert_eq!(report.systems.len(), 21);
    let floor = &report.parameters["mount.write.1.floor"];
    assert!(matches!(floor, Parameter::Number(ratio) if *ratio > 0.0), "{floor:?}");
}

#[test]
fn clone() {
    if can_mount() {
        let report = fits("clone", quick_run("clone", Some(1)), &["clone.seconds"]);
        let last = |system: &str| report.systems[system].samples[0];
        assert!(last("snapshot") < last("clone") && last("clone") < last("until_answer"));
    }
}

#[test]
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

#[test]
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

#[test]
fn an_unknown_experiment_is_refused_and_the_known_ones_named() {
    let error = icecore_lab::run("nothing", &Options::new(".")).expect_err("refused").to_string();
    assert!(EXPERIMENTS.iter().all(|experiment| error.contains(experiment.name)), "{error}");
}

#[test]
fn the_schema_knows_exactly_the_checks_and_experiments_that_there_are() {
    let schema = schema();
    let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(schema["$defs"]["check"]["properties"]["name"]["enum"], json!(names));
    let names: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
    assert_eq!(schema["properties"]["experiment"]["enum"], json!(names));
}

#[test]
fn documents_of_another_version_or_kind_are_refused() {
    let refused = |text: &str| Report::from_json("x.json", text).expect_err("refused").to_string();
    assert!(refused("{}").contains("x.json"));
    assert!(refused("not JSON").contains("x.json"));
}

#[test]
fn shock_with_each_tool_and_at_a_fixed_rate() {
    if !can_mount() {
        return;
    }
    let with = |choose: fn(&mut Options)| {
        changed_run("shock", |options| {
            options.systems = ["xfs-reflink", "icecore-mount"].map(str::to_owned).to_vec();
            choose(options);
        })
    };
    let by_sysbench = with(|options| options.tool = LoadTool::Sysbench);
    let system = &by_sysbench.systems["icecore-mount/sync/1"];
    assert!(system.samples[0] > 0.0 && system.counters["device_flushes_per_op"] > 0.0, "{system:?}");
    assert!(by_sysbench.checks.iter().all(|check| check.name != "shock.stall_ms"), "sysbench knows no gaps");
    assert!(by_sysbench.checks.iter().any(|check| check.name == "shock.icecore_factor"));
    let by_bonnie = with(|options| options.tool = LoadTool::Bonnie);
    // Its files are so small here that it may be too fast for each figure.
    assert_eq!(by_bonnie.parameters["tool"], Parameter::Text("bonnie++".to_owned()));
    assert!(!by_bonnie.parameters.contains_key("tool.fio"), "{:?}", by_bonnie.parameters);
    let paced = with(|options| options.rate = Some(100));
    let counters = &paced.systems["icecore-mount/sync/1"].counters;
    assert!(counters["longest_wait_ms"] > 0.0 && counters["wait_before_ms"] > 0.0, "{counters:?}");
    let rates = &paced.systems["xfs-reflink/sync/1"].series["rate_per_s"][0];
    assert!(rates.iter().all(|rate| *rate < 200.0), "no faster than it is to be: {rates:?}");
}

#[test]
fn what_shock_records_is_a_trace_for_the_model() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("writes.log");
    // What was there before has no part in it.
    fs::write(&path, "something else\n").expect("written");
    let report = changed_run("shock", |options| {
        options.systems = vec!["plain".to_owned()];
        options.record = Some(path.clone());
    });
    let trace = Trace::read(&path).expect("it is one");
    assert_eq!(report.parameters["writes"], Parameter::Count(trace.writes()));
    let flushes = trace.events.iter().filter(|(_, event)| *event == Event::Flush).count() as u64;
    assert!(flushes + 1 >= trace.writes(), "{flushes} flushes of {} writes, durable each", trace.writes());
    let replayed = fits("model", changed_run("model", |options| options.trace = Some(path.clone())), &[]);
    assert_eq!(replayed.parameters["writes"], Parameter::Count(trace.writes()));
    assert!(replayed.systems["lvm/1"].counters["copy_device_writes_per_op"] > 0.0);
}

/// A loop device, which goes with the value.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn over(image: &Path) -> Self {
        let output = Command::new("/usr/sbin/losetup")
            .args(["--find", "--show"])
            .arg(image)
            .output()
            .expect("started");
        assert!(output.status.success(), "{output:?}");
        Self(String::from_utf8(output.stdout).expect("a path").trim().into())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = Command::new("/usr/sbin/losetup").arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_whole_disk_is_used_if_it_is_empty_and_is_empty_again_afterwards() {
    if !can_mount() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("disk");
    fs::File::create(&image).and_then(|file| file.set_len(2 << 30)).expect("an image");
    let disk = LoopDevice::over(&image);
    let run = || {
        changed_run("fragment", |options| {
            options.systems = ["plain", "xfs-reflink"].map(str::to_owned).to_vec();
            options.device = Some(disk.0.clone());
        })
    };
    // The second run finds it as the first one did.
    for report in [run(), run()] {
        assert!(report.systems["xfs-reflink/update"].samples[0] > 0.0);
        let device = disk.0.file_name().expect("a name").to_string_lossy().into_owned();
        assert!(report.machine.device.contains(&device), "{:?} is not {device}", report.machine);
    }
    let refused = |what: &Path| EmptyDisk::examine(what).expect_err("refused").to_string();
    let exclusive = fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::EXCL.bits() as i32)
        .open(&disk.0)
        .expect("open");
    assert!(refused(&disk.0).contains("in use"), "{}", refused(&disk.0));
    drop(exclusive);
    let made = Command::new("/usr/sbin/mkfs.xfs").arg("-q").arg(&disk.0).status().expect("started");
    assert!(made.success());
    let said = refused(&disk.0);
    assert!(said.contains("xfs") && said.contains("wipefs -a"), "{said}");
    assert!(refused(&image).contains("no block device"));
}
