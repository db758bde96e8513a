//! Small results with the names that studies use.

use icecore_lab::machine::Machine;
use icecore_lab::page::Document;
use icecore_lab::report::{Check, REPORT_VERSION, Report, System, Versions};
use icecore_lab::statistics::Estimate;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A name that would end an element and start a script, if a page let it.
pub const EVIL: &str = "</script><script>window.broken=1</script><img src=x onerror=window.broken=1>&\"'";

pub fn report(experiment: &str, systems: Vec<(String, System)>) -> Report {
    Report {
        version: REPORT_VERSION,
        experiment: experiment.to_owned(),
        started: "2026-11-24T09:00:00Z".to_owned(),
        duration_s: 61.5,
        quick: true,
        machine: Machine {
            cpu: format!("Processor {EVIL}"),
            cores: 2,
            memory_bytes: 8 << 30,
            kernel: "Linux 6.12".to_owned(),
            filesystem: "ext4".to_owned(),
            device: "/dev/vda".to_owned(),
            flush_us: 400.0,
        },
        versions: Versions {
            icecore: "0.1.0".to_owned(),
            sqlite: "3.50".to_owned(),
            rustc: "rustc 1.95".to_owned(),
            profile: "release".to_owned(),
        },
        parameters: BTreeMap::from([("note".to_owned(), EVIL.into()), ("seed".to_owned(), 7_u64.into())]),
        systems: systems.into_iter().collect(),
        checks: Vec::new(),
    }
}

/// The study of a snapshot's shock: counts for three numbers of snapshots, and a run with one in its midst.
pub fn shock() -> Report {
    let mut systems = Vec::new();
    for (place, (name, factor)) in
        [("plain", 1.0), ("btrfs", 1.6), ("xfs-reflink", 3.2), ("icecore-mount", 0.8)].into_iter().enumerate()
    {
        for run in ["direct", "sync"] {
            for count in [0_u32, 1, 4] {
                if name == "plain" && count > 0 {
                    continue;
                }
                let cost = 1.0 + (factor - 0.7) * f64::from(count);
                let system = System::new("writes/s", vec![1000.0 / cost, 1100.0 / cost, 990.0 / cost]);
                let counters = [
                    ("device_reads_per_op", 0.25 * f64::from(count)),
                    ("device_read_kib_per_op", 4.0 * f64::from(count)),
                    ("device_writes_per_op", 1.5 + cost),
                    ("device_write_kib_per_op", 16.0 * cost),
                    ("device_flushes_per_op", 1.0 + place as f64 / 4.0),
                ];
                let counters = counters.map(|(name, value)| (name.to_owned(), value)).into();
                systems.push((format!("{name}/{run}/{count}"), system.with_counters(counters)));
            }
        }
        systems.push((format!("{name}/curve"), curve(factor)));
    }
    let small = System::new("writes/s", vec![450.0])
        .with_series("round_per_s", vec![vec![400.0, 450.0, 500.0]])
        .with_series("round_requests_per_op", vec![vec![4.5, 3.0, 1.5]]);
    systems.push(("icecore-mount/small/1".to_owned(), small));
    systems.push(("lvm".to_owned(), System::unavailable("writes/s", "no device-mapper in this kernel")));
    systems.push((EVIL.to_owned(), System::unavailable(EVIL, EVIL)));
    let mut report = report("shock", systems);
    report.checks = vec![
        Check::new("commits.vs_wal", Estimate { value: 1.25, low: 1.125, high: 1.5 }),
        Check::new("commits.snapshot_cost", Estimate { value: 0.980_123_4, low: 0.95, high: 1.0 }),
        Check::new("commits.vs_delete", Estimate { value: 1.5, low: 1.25, high: 1.75 }),
    ];
    report
}

/// Two rounds of twelve seconds. After six the rate breaks down, and comes back.
fn curve(factor: f64) -> System {
    let round = |shift: f64| -> Vec<f64> {
        (0..12)
            .map(|second| f64::from(if second == 6 { 200 } else { 900 + second }) / factor + shift)
            .collect()
    };
    let latencies = |shift: f64| -> Vec<f64> {
        (0..2000)
            .map(|place| {
                100.0 * factor
                    + f64::from(place * 37 % 501)
                    + shift
                    + if place == 1000 { 40_000.0 } else { 0.0 }
            })
            .collect()
    };
    System::new("writes/s", vec![800.0 / factor, 820.0 / factor])
        .with_series("rate_per_s", vec![round(0.0), round(10.0)])
        .with_series("snapshot_at_s", vec![vec![6.0], vec![6.0]])
        .with_series("latency_us", vec![latencies(0.0), latencies(1.0)])
}

/// Iterations with a snapshot each.
pub fn valuation() -> Report {
    let system = |scale: f64| {
        let list = |from: f64| (0..6).map(|place| from + scale * f64::from(place)).collect::<Vec<f64>>();
        System::new("s", vec![scale, scale * 1.1])
            .with_series("iteration_s", vec![list(0.05), list(0.06)])
            .with_series("snapshot_s", vec![list(0.001), list(0.002)])
            .with_series("held_bytes", vec![list(1e6).iter().map(|bytes| bytes * scale).collect()])
    };
    report("valuation", vec![("btrfs".to_owned(), system(2.0)), ("icecore-sqlite".to_owned(), system(0.5))])
}

/// Costs of up to 10,000 snapshots.
pub fn many() -> Report {
    let system = |scale: f64| {
        System::new("s", vec![scale])
            .with_series("count", vec![vec![1.0, 100.0, 10_000.0]])
            .with_series("cost_s", vec![vec![0.001 * scale, 0.002 * scale, 0.5 * scale]])
    };
    let name = |name: &str| format!("{name}/take");
    report("many", vec![(name("btrfs"), system(3.0)), (name("icecore-mount"), system(0.2))])
}

/// A backup beside a database, second by second.
pub fn backup() -> Report {
    let system = |scale: f64| {
        System::new("MB/s", vec![100.0 * scale])
            .with_series(
                "read_mb_per_s",
                vec![(0..20).map(|second| scale * f64::from(100 + second)).collect()],
            )
            .with_series(
                "foreground_per_s",
                vec![(0..20).map(|second| f64::from(400 - second) / scale).collect()],
            )
    };
    report("backup", vec![("btrfs".to_owned(), system(0.6)), ("icecore-mount".to_owned(), system(1.3))])
}

/// A backup of three sides: how fast it reads, and what the database does alone and beside one at half speed.
pub fn backups() -> Report {
    let mut systems = Vec::new();
    for (name, alone, half, idle, writing) in [
        ("icecore-mount", 1130.0, 833.0, 293.0, 150.0),
        ("btrfs", 538.0, 384.0, 294.0, 202.0),
        ("xfs-reflink", 1741.0, 1052.0, 363.0, 183.0),
    ] {
        let rate = |value: f64| System::new("transactions/s", vec![value, value * 1.1, value * 0.9]);
        let speed = |value: f64| System::new("MB/s", vec![value * 0.9, value, value * 1.1]);
        let runs = [
            ("alone", rate(alone)),
            ("half", rate(half)),
            ("idle", speed(idle)),
            ("writing", speed(writing)),
        ];
        systems.extend(runs.map(|(run, system)| (format!("{name}/{run}"), system)));
    }
    report("backup", systems)
}

/// Reading a file that was updated at random. A system without snapshots is no rival.
pub fn fragment() -> Report {
    let seconds = |value: f64| System::new("s", vec![value * 1.2, value, value * 0.8]);
    let systems = [
        ("icecore-mount/read", 3.1),
        ("icecore-mount/read-snapshot", 3.2),
        ("btrfs/read", 1.5),
        ("btrfs/read-snapshot", 1.2),
        ("xfs-reflink/read", 2.5),
        ("xfs-reflink/read-snapshot", 2.0),
        ("xfs/read", 0.5),
    ];
    report("fragment", systems.map(|(name, value)| (name.to_owned(), seconds(value))).into())
}

/// Acknowledged writes that systems lost when they ran full.
pub fn full() -> Report {
    let systems = [
        ("icecore-mount", [0.0; 3]),
        ("icecore-sqlite", [0.0; 3]),
        ("btrfs", [0.0; 3]),
        ("lvm", [0.0, 2.0, 1.0]),
    ];
    let system = |lost: [f64; 3]| System::new("lost", lost.into());
    report("full", systems.map(|(name, lost)| (name.to_owned(), system(lost))).into())
}

/// A database with its files in several places, and on a mount.
pub fn placement() -> Report {
    let orders = |rates: &[f64]| System::new("orders/min", rates.to_vec());
    let systems = [
        ("hdd", orders(&[3000.0, 3100.0, 2900.0])),
        ("ssd", orders(&[9000.0, 9100.0, 8900.0])),
        ("redo-and-system-on-tmpfs", orders(&[12_000.0, 15_000.0, 11_000.0])),
        ("icecore-mount", orders(&[6000.0, 6100.0, 5900.0])),
    ];
    report("placement", systems.map(|(name, system)| (name.to_owned(), system)).into())
}

/// A result of `docs/benchmarks`, by its name without `.json`.
pub fn benchmark(name: &str) -> Document {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/benchmarks");
    let text = fs::read_to_string(folder.join(format!("{name}.json"))).expect("the result is there");
    Document { name: name.to_owned(), report: Report::from_json(name, &text).expect("it is a result") }
}

pub fn documents() -> Vec<Document> {
    let document = |report: Report| Document { name: report.experiment.clone(), report };
    [shock(), valuation(), many(), backup()].map(document).into()
}
