//! The guest: a study in it, and its end at the wrong moment. Needs root and the programs that `make tools`
//! installs.
//!
//! `ICECORE_GUEST_CACHE` says where the guest is kept; it is built there if it is not. That takes three minutes
//! and the network.

use crate::runs::{schema, this_program};
use icecore_lab::disks::model::HardDisk;
use icecore_lab::guest::Guest;
use icecore_lab::report::Parameter;
use icecore_lab::{Error, Options, Report};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a guest can be built and booted. Without root or its programs there is none.
fn can_boot() -> bool {
    let programs = ["qemu-system-x86_64", "mmdebstrap", "unshare", "setpriv"];
    let there = |program: &&str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
    };
    let able = cfg!(target_arch = "x86_64") && rustix::process::geteuid().is_root();
    let can = able && programs.iter().all(there);
    if !can {
        println!("skipped: a guest needs x86-64, root and {programs:?}");
    }
    can
}

fn guest() -> Guest {
    let cache = std::env::var_os("ICECORE_GUEST_CACHE").map(PathBuf::from).or_else(Guest::default_cache);
    Guest { cache: cache.expect("a HOME"), zfs: false }
}

/// A quick run of `shock` on these systems in the guest.
fn options(folder: &Path, systems: &[&str]) -> Options {
    let mut options = Options::new(folder);
    options.quick = true;
    options.systems = systems.iter().map(|name| (*name).to_owned()).collect();
    options.guest = Some(guest());
    options.child = this_program();
    options
}

/// The processes that have this folder in their command line.
fn processes(folder: &Path) -> Vec<u32> {
    let name = folder.to_str().expect("a plain name");
    let numbers = fs::read_dir("/proc").expect("processes").flatten();
    numbers
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|number: &u32| {
            let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(name)
        })
        .collect()
}

fn nothing_is_left(folder: &Path) {
    assert_eq!(processes(folder), [0; 0]);
    let left: Vec<_> = fs::read_dir(folder).expect("readable").collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The result of a quick study of these systems in the guest, with what `change` chooses. `None` where there
/// can be no guest.
fn study(name: &str, systems: &[&str], change: impl FnOnce(&mut Options)) -> Option<Report> {
    if !can_boot() {
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(folder.path(), systems);
    change(&mut options);
    let report = icecore_lab::run(name, &options).expect("it runs");
    nothing_is_left(folder.path());
    fits(&report);
    Some(report)
}

#[test]
fn lvm_reads_once_and_writes_twice_more_for_each_write_behind_a_snapshot() {
    let Some(report) = study("shock", &["plain", "lvm", "lvm-thin"], |_| {}) else { return };
    assert_eq!(report.parameters["emulated"], Parameter::Switch(true));
    for name in ["tool.lvm", "mount.lvm"] {
        assert!(report.parameters.contains_key(name), "{name} is not in {:?}", report.parameters);
    }
    let count = |key: &str, name: &str| {
        let system = report.systems.get(key);
        system.unwrap_or_else(|| panic!("no {key}: {:?}", report.systems)).counters[name]
    };
    // The block layer merges the four reads that copy a block into one, or into more on a slow machine. So the
    // requests have a lower bound, and what they carry an upper one: of two blocks.
    let reads = count("lvm/sync/1", "device_reads_per_op");
    let read_kib = count("lvm/sync/1", "device_read_kib_per_op");
    assert!(reads >= 0.8 && (16.0..32.0).contains(&read_kib), "{reads} reads of {read_kib} KiB");
    assert!(count("lvm/sync/0", "device_reads_per_op") < 0.2);
    let more = |name| count("lvm/sync/1", name) - count("lvm/sync/0", name);
    let (writes, write_kib) = (more("device_writes_per_op"), more("device_write_kib_per_op"));
    assert!(writes >= 2.0 && (16.0..40.0).contains(&write_kib), "{writes} more writes of {write_kib} KiB");
    assert!(count("lvm-thin/sync/1", "device_write_kib_per_op") > 16.0);
    // Counts do not depend on what else the machine does. The time of so few writes does.
    let [factor] = &report.checks[..] else { panic!("{:?}", report.checks) };
    assert!(factor.name == "shock.lvm_factor" && factor.value > 0.0, "{factor:?}");
}

#[test]
#[ignore = "ten minutes, and a release build: `make guest-studies`"]
fn one_snapshot_makes_lvm_three_to_twelve_times_slower() {
    if cfg!(debug_assertions) {
        println!("skipped: the few writes of a debug build say nothing about time");
        return;
    }
    let Some(report) = study("shock", &["plain", "lvm", "icecore-mount"], |_| {}) else { return };
    let factor = report.checks.iter().find(|check| check.name == "shock.lvm_factor").expect("LVM ran");
    assert!((3.0..=12.0).contains(&factor.value), "{factor:?}");
    // What is overwritten is read and copied before, and the table of the snapshot says so. What the page cache
    // collects is written in fewer requests.
    for run in ["direct", "sync", "fsync100"] {
        let count = |snapshots: u64, name: &str| {
            report.systems[&format!("lvm/{run}/{snapshots}")].counters[&format!("device_{name}_per_op")]
        };
        let more = |name| count(1, name) - count(0, name);
        let (reads, writes) = (count(1, "reads"), more("writes"));
        let (read_kib, write_kib) = (count(1, "read_kib"), more("write_kib"));
        assert!(read_kib >= 12.8 && write_kib >= 16.0, "{run}: {read_kib} KiB read, {write_kib} KiB more");
        let writes_min = if run == "fsync100" { 0.0 } else { 2.0 };
        assert!(reads >= 0.8 && writes >= writes_min, "{run}: {reads} reads, {writes} more writes");
        assert!(count(0, "reads") < 0.2, "{run}: {} reads without a snapshot", count(0, "reads"));
    }
    let ours = report.systems["icecore-mount/sync/1"].counters["device_reads_per_op"];
    assert!(ours < 0.2, "{ours} reads");
}

#[test]
#[ignore = "two minutes more: `make guest-studies`"]
fn a_backup_of_lvm_is_also_made_by_the_program_of_the_study() {
    let Some(report) = study("backup", &["lvm"], |_| {}) else { return };
    let backup = &report.systems["lvm/mylvmbackup"];
    assert!(backup.unit == "MB/s" && backup.samples.iter().all(|speed| *speed > 0.0), "{backup:?}");
    assert!(backup.counters["foreground_per_s"] > 0.0);
}

#[test]
#[ignore = "some minutes more: `make guest-studies`"]
fn lvm_lies_on_a_simulated_disk_in_the_guest() {
    let disk = Some(HardDisk { time_scale: 0.5, ..HardDisk::of_7200() });
    let report = study("valuation", &["plain", "lvm"], |options| options.disk = disk);
    let Some(report) = report else { return };
    let disk = &report.parameters["disk"];
    assert!(matches!(disk, Parameter::Text(words) if words.starts_with("7200 rpm")), "{disk:?}");
    assert_eq!(report.parameters["emulated"], Parameter::Switch(true));
    let time = |run: &str| report.systems[run].samples[0];
    // Each transaction waits for a turn of the disk or more, halved here. Behind snapshots it waits for copies.
    let turns_s = report.count("iterations").expect("counted") as f64 * 60.0 / 7200.0 / 2.0;
    assert!(time("plain/none") > turns_s && time("lvm/snapshots") > time("lvm/none"), "{:?}", report.systems);
}

#[test]
#[ignore = "ten minutes more: `make guest-studies`"]
fn lvm_comes_to_the_end_of_each_study() {
    for name in ["fragment", "blog", "many", "full"] {
        let Some(report) = study(name, &["lvm", "lvm-thin"], |_| {}) else { return };
        came_to_the_end(&report, &["lvm", "lvm-thin"]);
    }
}

/// Each of these systems is in the result, and each of its runs has a sample.
fn came_to_the_end(report: &Report, kinds: &[&str]) {
    let study = &report.experiment;
    for kind in kinds {
        let of_kind = |key: &str| key.split('/').next() == Some(*kind);
        let mut found = report.systems.iter().filter(|(key, _)| of_kind(key)).peekable();
        assert!(found.peek().is_some(), "{study} has no {kind}: {:?}", report.systems);
        for (key, system) in found {
            let is_measured = system.unavailable.is_none() && !system.samples.is_empty();
            assert!(is_measured, "{study}: {key} has {system:?}");
        }
    }
}

#[test]
#[ignore = "twenty minutes at first, as OpenZFS is compiled: `make guest-studies`"]
fn zfs_comes_to_the_end_of_a_study() {
    let guest = Some(Guest { zfs: true, ..guest() });
    let report = study("full", &["zfs", "icecore-mount"], |options| options.guest = guest);
    let Some(report) = report else { return };
    came_to_the_end(&report, &["zfs", "icecore-mount"]);
    assert_eq!(report.systems["icecore-mount"].samples, [0.0]);
}

fn fits(report: &Report) {
    let document: Value = serde_json::from_str(&report.to_json()).expect("JSON");
    let validator = jsonschema::validator_for(&schema()).expect("the schema is one");
    let errors: Vec<String> = validator.iter_errors(&document).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

#[test]
fn a_guest_that_is_killed_is_an_error_and_leaves_nothing() {
    if !can_boot() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(folder.path(), &["plain"]);
    let path = folder.path().to_owned();
    let killed = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&killed);
    options.stop = Arc::new(move || {
        if let Some(number) = processes(&path).first()
            && !once.swap(true, Ordering::Relaxed)
        {
            let status = Command::new("kill").args(["-9", &number.to_string()]).status();
            assert!(status.expect("kill runs").success());
        }
        false
    });
    let error = icecore_lab::run("shock", &options).expect_err("killed").to_string();
    assert!(killed.load(Ordering::Relaxed) && error.contains("ended before the study did"), "{error}");
    nothing_is_left(folder.path());
}

/// Crashes the first kernel of the guest as soon as its study has made a step.
const CRASH_ONCE: &str = "#!/bin/bash
if ! [[ -e /job/crashed ]]; then
    touch /job/crashed
    { until [[ -s /job/progress ]]; do sleep 1; done; echo c >/proc/sysrq-trigger; } &
fi
";

#[test]
#[ignore = "two minutes more: `make guest-studies`"]
fn a_study_begins_anew_in_a_guest_whose_kernel_crashed() {
    let changed = AtomicBool::new(false);
    let report = study("shock", &["plain"], |options| {
        let path = options.directory.clone();
        options.stop = Arc::new(move || {
            let folders = fs::read_dir(&path).expect("readable").flatten();
            // The guest reads it seconds later, when it has booted.
            for init in folders.map(|folder| folder.path().join("init")).filter(|init| init.exists()) {
                if !changed.swap(true, Ordering::Relaxed) {
                    let rest = fs::read_to_string(&init).expect("readable");
                    fs::write(&init, format!("{CRASH_ONCE}{rest}")).expect("written");
                }
            }
            false
        });
    });
    let Some(report) = report else { return };
    let Parameter::Text(crashes) = &report.parameters["crashes"] else { panic!("{:?}", report.parameters) };
    assert!(crashes.contains("sysrq"), "{crashes}");
    assert!(!report.systems["plain/sync/0"].samples.is_empty(), "{:?}", report.systems);
}

#[test]
fn a_run_that_is_stopped_takes_the_guest_with_it() {
    if !can_boot() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut options = options(folder.path(), &["plain"]);
    let path = folder.path().to_owned();
    // As soon as the machine runs.
    options.stop = Arc::new(move || !processes(&path).is_empty());
    let error = icecore_lab::run("shock", &options).expect_err("stopped");
    assert!(matches!(error, Error::Stopped), "{error}");
    nothing_is_left(folder.path());
}
