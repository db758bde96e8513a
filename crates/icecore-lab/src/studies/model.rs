//! `model`: the ways to keep a snapshot, replayed over one list of writes without any kernel. It explains
//! what `shock` counts.

use crate::copy_area::{CopyArea, Question};
use crate::counted::Counted;
use crate::error::{Error, Result};
use crate::experiments::Findings;
use crate::options::Options;
use crate::policies::{self, CLASSIC_CHUNK_BYTES, Every, Policy, Requests};
use crate::report::{Check, System as Measured};
use crate::statistics::Estimate;
use crate::trace::Trace;
use std::collections::BTreeMap;

const SNAPSHOTS: [u64; 6] = [0, 1, 2, 4, 8, 16];

pub(crate) fn run(options: &Options) -> Result<Findings> {
    let counted = match &options.against {
        Some(path) => Counted::read(path)?,
        None => Counted::in_guest(),
    };
    let (trace, source) = match &options.trace {
        Some(path) => (Trace::read(path)?, path.display().to_string()),
        None => (counted.trace(options.seed), counted.writes_in_words()),
    };
    require_times(&trace, options.every)?;
    let chunk = options.chunk.unwrap_or(CLASSIC_CHUNK_BYTES);
    // The real systems were counted with these writes, such chunks, and all snapshots before the writes.
    let is_as_counted = options.trace.is_none() && chunk == CLASSIC_CHUNK_BYTES && options.every.is_none();
    // A schedule of few snapshots keeps no more than it takes.
    let most = options.every.map_or(u64::MAX, |every| every.taken(&trace));
    let mut findings = Findings::default();
    let mut worst: Option<f64> = None;
    for make in policies::ALL {
        for snapshots in SNAPSHOTS.into_iter().filter(|count| *count <= most) {
            // A policy remembers what it has copied.
            let mut policy = make(chunk);
            let mut counters = counters(&mut *policy, &trace, snapshots, options.every);
            if is_as_counted {
                let error = counted.error(policy.name(), snapshots, &mut counters);
                worst = worst.into_iter().chain(error).reduce(f64::max);
            }
            let requests = counters["device_reads_per_op"] + counters["device_writes_per_op"];
            let system = Measured::new("requests/write", vec![requests]).with_counters(counters);
            findings.system(&format!("{}/{snapshots}", policy.name()), system);
        }
        options.go_on()?;
    }
    // A result may have counts of other systems alone.
    if let Some(worst) = worst {
        // Of a prediction there is one.
        findings.check(Check::new("model.error", Estimate { value: worst, low: worst, high: worst }));
        findings.parameter("counted", counted.source.as_str());
    }
    findings.parameter("trace", source.as_str());
    findings.parameter("writes", trace.writes());
    findings.parameter("chunk_bytes", chunk);
    if let Some(every) = options.every {
        findings.parameter("every", every.to_string().as_str());
    }
    copy_area(
        &mut findings,
        &trace,
        Question { duration: None, chunk_bytes: chunk, area_bytes: options.area },
    );
    Ok(findings)
}

/// How large the copy area of a classic snapshot before the writes has to be, and when the one that was asked
/// about is full.
fn copy_area(findings: &mut Findings, trace: &Trace, question: Question) {
    let area = CopyArea::of(trace, question);
    findings.parameter("copy_area_bytes", area.recommended_bytes);
    let Some(asked) = question.area_bytes else { return };
    findings.parameter("area_bytes", asked);
    if let Some(writes) = area.full_after_writes {
        findings.parameter("area_full_after_writes", writes);
    }
    if let Some(time) = area.full_after_s {
        findings.parameter("area_full_after_s", time);
    }
}

/// Refuses a schedule in time for writes without times.
fn require_times(trace: &Trace, every: Option<Every>) -> Result<()> {
    match every {
        Some(every @ Every::Time(_)) if trace.events.iter().all(|(at, _)| at.is_none()) => {
            Err(Error::Inconclusive {
                what: format!("a snapshot every {every}"),
                reason: "the writes have no times, as random ones and those of version 2 of fio's log: \
                         give a number of writes"
                    .to_owned(),
            })
        }
        _ => Ok(()),
    }
}

/// What the device does for each write. Where copies go to an area: also what two devices do, if the area
/// has one of its own.
fn counters(
    policy: &mut dyn Policy,
    trace: &Trace,
    snapshots: u64,
    every: Option<Every>,
) -> BTreeMap<String, f64> {
    let all = policies::replay(policy, trace, snapshots, every);
    let mut devices = vec![("device", all)];
    if let Some(copies) = policy.copy_device() {
        devices.extend([("origin_device", all.without(copies)), ("copy_device", copies)]);
    }
    let mut counters = BTreeMap::from([("held_bytes".to_owned(), policy.held_bytes() as f64)]);
    let count = trace.writes() as f64;
    for (device, requests) in devices {
        let Requests { reads, read_bytes, writes, written_bytes, flushes } = requests;
        for (what, value, unit) in [
            ("reads", reads, 1.0),
            ("read_kib", read_bytes, 1024.0),
            ("writes", writes, 1.0),
            ("write_kib", written_bytes, 1024.0),
            ("flushes", flushes, 1.0),
        ] {
            counters.insert(format!("{device}_{what}_per_op"), value as f64 / unit / count);
        }
    }
    counters
}
