//! `model`: the ways to keep a snapshot, replayed over one list of writes without any kernel. It explains
//! what `shock` counts.

use crate::error::Result;
use crate::experiments::Findings;
use crate::options::Options;
use crate::policies::{self, Policy, Requests};
use crate::published::{self, Count};
use crate::report::{Check, System as Measured};
use crate::statistics::Estimate;
use crate::trace::Trace;
use std::collections::BTreeMap;

const SNAPSHOTS: [u64; 6] = [0, 1, 2, 4, 8, 16];
/// The writes of which the real systems were counted.
const WRITES: u64 = 2000;
const FILE_BYTES: u64 = 256 << 20;
const BLOCK_BYTES: u64 = 16 << 10;
/// Counters that are compared. How many flushes the kernel makes of those that come at once is not modelled.
const COMPARED: [&str; 4] =
    ["device_reads_per_op", "device_read_kib_per_op", "device_writes_per_op", "device_write_kib_per_op"];

pub(crate) fn run(options: &Options) -> Result<Findings> {
    let trace = match &options.trace {
        Some(path) => Trace::read(path)?,
        None => Trace::random(WRITES, FILE_BYTES, BLOCK_BYTES, options.seed),
    };
    let mut findings = Findings::default();
    let mut worst: f64 = 0.0;
    for make in policies::ALL {
        for snapshots in SNAPSHOTS {
            // A policy remembers what it has copied.
            let mut policy = make();
            let counters = counters(&mut *policy, &trace, snapshots);
            let counted = published::all_counts("model");
            let same =
                counted.iter().find(|count| (count.system, count.snapshots) == (policy.name(), snapshots));
            worst = worst.max(same.map_or(0.0, |count| error(count, &counters)));
            let requests = counters["device_reads_per_op"] + counters["device_writes_per_op"];
            let system = Measured::new("requests/write", vec![requests]).with_counters(counters);
            findings.system(&format!("{}/{snapshots}", policy.name()), system);
        }
        options.go_on()?;
    }
    if options.trace.is_none() {
        // Of a prediction there is one.
        findings.check(Check::new("model.error", Estimate { value: worst, low: worst, high: worst }));
    }
    let source = options.trace.as_ref().map_or_else(
        || format!("{WRITES} random writes of 16 KiB over {} MiB, each durable", FILE_BYTES >> 20),
        |path| path.display().to_string(),
    );
    findings.parameter("trace", source.as_str());
    findings.parameter("writes", trace.writes());
    Ok(findings)
}

fn counters(policy: &mut dyn Policy, trace: &Trace, snapshots: u64) -> BTreeMap<String, f64> {
    let Requests { reads, read_bytes, writes, written_bytes, flushes } =
        policies::replay(policy, trace, snapshots);
    let each = |value: u64, unit: f64| value as f64 / unit / trace.writes() as f64;
    [
        ("device_reads_per_op", each(reads, 1.0)),
        ("device_read_kib_per_op", each(read_bytes, 1024.0)),
        ("device_writes_per_op", each(writes, 1.0)),
        ("device_write_kib_per_op", each(written_bytes, 1024.0)),
        ("device_flushes_per_op", each(flushes, 1.0)),
        ("held_bytes", policy.held_bytes() as f64),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// How far the prediction is from what was counted, relative to that, at the worst.
fn error(count: &Count, predicted: &BTreeMap<String, f64>) -> f64 {
    let of = |name: &&str| {
        let (counted, predicted) = (count.of(name)?, predicted[*name]);
        // Nothing is all or nothing.
        let error = if counted == 0.0 { predicted } else { (predicted - counted).abs() / counted };
        Some(error)
    };
    COMPARED.iter().filter_map(of).fold(0.0, f64::max)
}
