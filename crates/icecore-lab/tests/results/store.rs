//! Measurements of the store alone, or beside a plain file system.

use crate::runs::{runs_and_fits, runs_once_and_fits};
use icecore_lab::figure;

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
    runs_once_and_fits("crowd", &["crowd.wait_ms", "crowd.vs_wal", "crowd.two_writers_wait_ms"]);
}

#[test]
fn randwrite() {
    runs_once_and_fits("randwrite", &["randwrite.1", "randwrite.8", "randwrite.snapshot_cost"]);
}

#[test]
fn randwrite_metadata() {
    runs_and_fits("randwrite-metadata", &["randwrite.metadata"]);
}

#[test]
fn randread() {
    let report = runs_once_and_fits("randread", &["randread.cold.1", "randread.cold.8", "randread.snapshot"]);
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
    let report = runs_once_and_fits("bulk", &["bulk.write", "bulk.scan"]);
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
    runs_once_and_fits("footprint", &["footprint.reader", "footprint.rest", "footprint.small_mib"]);
}

#[test]
fn spill() {
    runs_once_and_fits("spill", &["spill.bytes", "spill.time"]);
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
