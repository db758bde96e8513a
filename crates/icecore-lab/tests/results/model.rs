//! The ways to keep a snapshot, replayed without a kernel.

use crate::runs::{changed_run, fits, runs_and_fits};
use icecore_lab::Options;
use icecore_lab::page;
use icecore_lab::policies::Every;
use icecore_lab::report::Parameter;
use std::num::NonZeroU64;
use std::time::Duration;

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
fn model_with_a_copy_area() {
    let with = |area: u64| {
        fits("model", changed_run("model", |options| options.area = Some(area)), &["model.error"])
    };
    let small = with(4 << 20);
    let needed = small.count("copy_area_bytes").expect("how much it takes");
    let full_after = small.count("area_full_after_writes").expect("it is full");
    // 256 writes of 16 KiB are 4 MiB, and few of so many meet the same place.
    assert!((240..300).contains(&full_after), "{full_after}");
    let sentence = page::sentences(&small).concat();
    assert!(sentence.contains(&format!("One of 4 MiB is full after {full_after} of them.")), "{sentence}");
    // As large as it says, it takes all writes.
    let enough = with(needed);
    assert_eq!(enough.count("area_full_after_writes"), None);
    assert!(page::sentences(&enough).concat().ends_with("is not full at their end."));
    assert_eq!(small.checks, enough.checks, "an area changes no prediction");
}

#[test]
fn model_with_another_chunk_and_a_schedule() {
    let chunks = changed_run("model", |options| options.chunk = Some(64 << 10));
    let chunks = fits("model", chunks, &[]);
    // A whole chunk is copied for each write of 16 KiB, but for those into a chunk that was.
    let read_kib = chunks.systems["lvm/1"].counters["device_read_kib_per_op"];
    assert!((32.0..=64.0).contains(&read_kib), "{read_kib}");
    let every = Every::Writes(NonZeroU64::new(20).expect("not zero"));
    let scheduled = fits("model", changed_run("model", |options| options.every = Some(every)), &[]);
    assert_eq!(scheduled.parameters["every"], Parameter::Text("20 writes".to_owned()));
    let held = |key: &str| scheduled.systems[key].counters["held_bytes"];
    // At most twenty writes of 16 KiB for each snapshot that is kept.
    assert!(held("icecore-mount/1") <= 20.0 * 16384.0 && held("icecore-mount/1") > 0.0);
    assert!(held("icecore-mount/16") > 10.0 * held("icecore-mount/1"));
    // Of three snapshots in 400 writes no more than three can be kept.
    let every = Every::Writes(NonZeroU64::new(150).expect("not zero"));
    let few = fits("model", changed_run("model", |options| options.every = Some(every)), &[]);
    assert!(
        few.systems.contains_key("lvm/2") && !few.systems.contains_key("lvm/4"),
        "{:?}",
        few.systems.keys()
    );
    let folder = tempfile::tempdir().expect("a temporary folder");
    let mut options = Options::new(folder.path());
    options.every = Some(Every::Time(Duration::from_secs(1)));
    let error = icecore_lab::run("model", &options).expect_err("refused").to_string();
    assert!(error.contains("every 1 s") && error.contains("have no times"), "{error}");
}
