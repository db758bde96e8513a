//! Studies of files, on all systems that this machine has.

use crate::runs::{
    can_mount, changed_run, fits, measured, runs_and_fits, runs_once_and_fits, says_what_driving_costs,
    shock_of_two,
};
use crate::side_by_side;
use icecore_lab::LoadTool;
use icecore_lab::disks::model::HardDisk;
use icecore_lab::disks::real::EmptyDisk;
use icecore_lab::report::Parameter;
use icecore_lab::targets::TARGETS;
use icecore_lab::trace::{Event, Trace};
use std::fs;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
fn studies_of_files() {
    side_by_side(&[
        ("shock", shock),
        ("shock_by_sysbench", shock_by_sysbench),
        ("mount", mount),
        ("valuation", valuation),
        ("a_study_on_a_simulated_disk", a_study_on_a_simulated_disk_is_slow_and_says_so),
        ("shock_by_bonnie", shock_by_bonnie),
        ("fragment", fragment),
        ("full", full),
        ("a_whole_disk", a_whole_disk_is_used_if_it_is_empty_and_is_empty_again_afterwards),
        ("a_trace", what_shock_records_is_a_trace_for_the_model),
    ]);
}

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
    says_what_driving_costs(&report, 0.1..1_000.0);
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
    for key in ["plain/small/0", "icecore-mount/small/1", "icecore-mount/randomio/1"] {
        let kib = report.systems[key].counters["device_write_kib_per_op"];
        assert!(kib > 0.0, "{key} has written {kib} KiB for each request");
    }
    let small = &report.systems["icecore-mount/small/1"].series["round_requests_per_op"][0];
    assert!(small.len() == 2 && small.iter().all(|requests| *requests > 0.0), "{small:?}");
    assert!(!system.series["rate_per_s"][0].is_empty() && system.series["snapshot_at_s"][0][0] > 0.0);
}

fn shock_by_sysbench() {
    if !can_mount() {
        return;
    }
    let by_sysbench = shock_of_two(|options| options.tool = LoadTool::Sysbench);
    let system = &by_sysbench.systems["icecore-mount/sync/1"];
    assert!(system.samples[0] > 0.0 && system.counters["device_flushes_per_op"] > 0.0, "{system:?}");
    assert!(by_sysbench.checks.iter().all(|check| check.name != "shock.stall_ms"), "sysbench knows no gaps");
    assert!(by_sysbench.checks.iter().any(|check| check.name == "shock.icecore_factor"));
}

fn shock_by_bonnie() {
    if !can_mount() {
        return;
    }
    let by_bonnie = shock_of_two(|options| options.tool = LoadTool::Bonnie);
    // Its files are so small here that it may be too fast for each figure.
    assert_eq!(by_bonnie.parameters["tool"], Parameter::Text("bonnie++".to_owned()));
    assert!(!by_bonnie.parameters.contains_key("tool.fio"), "{:?}", by_bonnie.parameters);
}

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
    let labels = report.labels();
    assert!(
        labels.iter().any(|label| label.contains("7200 rpm") && label.contains("cache off")),
        "{labels:?}"
    );
}

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

fn valuation() {
    if !can_mount() {
        return;
    }
    let report = runs_and_fits("valuation", &["valuation.vs_best_rival"]);
    let keys = measured(&report, "valuation");
    says_what_driving_costs(&report, 100.0..1_000_000.0);
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
        if key.starts_with("bcachefs") {
            assert!(system.series["held_bytes"][0].is_empty(), "it does not say what a snapshot holds");
            continue;
        }
        assert_eq!(system.series["held_bytes"][0].len(), 3, "{key}");
        assert!(system.series["held_bytes"][0].iter().any(|bytes| *bytes > 0.0), "{key}");
    }
}

fn fragment() {
    if !can_mount() {
        return;
    }
    let report = runs_and_fits("fragment", &["fragment.update_vs_btrfs", "fragment.scan_vs_btrfs"]);
    let keys = measured(&report, "fragment");
    says_what_driving_costs(&report, 0.1..1_000.0);
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

fn full() {
    if !can_mount() {
        return;
    }
    let report = runs_and_fits("full", &["full.lost"]);
    let keys = measured(&report, "full");
    says_what_driving_costs(&report, 0.1..10_000.0);
    for key in ["btrfs", "icecore-mount", "icecore-sqlite", "xfs-reflink"] {
        assert!(keys.contains(&key), "{key} is not in {keys:?}");
        let counters = &report.systems[key].counters;
        assert!(counters["snapshots"] > 1.0 && counters["said_full"] == 1.0, "{key}: {counters:?}");
    }
    assert_eq!(report.checks[0].value, 0.0, "{:?}", report.checks);
}

fn mount() {
    if !can_mount() {
        return;
    }
    let checks: Vec<&str> =
        TARGETS.iter().map(|target| target.name).filter(|name| name.starts_with("mount.")).collect();
    let report = runs_once_and_fits("mount", &checks);
    assert_eq!(report.systems.len(), 21);
    let floor = &report.parameters["mount.write.1.floor"];
    assert!(matches!(floor, Parameter::Number(ratio) if *ratio > 0.0), "{floor:?}");
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
    let set = |flag: &str| {
        let set = Command::new("/usr/sbin/blockdev").arg(flag).arg(&disk.0).status().expect("started");
        assert!(set.success());
    };
    set("--setro");
    assert!(refused(&disk.0).contains("read-only"), "{}", refused(&disk.0));
    set("--setrw");
    let made = Command::new("/usr/sbin/mkfs.xfs").arg("-q").arg(&disk.0).status().expect("started");
    assert!(made.success());
    let said = refused(&disk.0);
    assert!(said.contains("xfs") && said.contains("wipefs -a"), "{said}");
    assert!(refused(&image).contains("no block device"));
}
