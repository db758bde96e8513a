//! What all rounds of a system say together: its checks, and its figures in the result.

use super::curve::Shape;
use super::{Counted, MIX, RUNS, Round};
use crate::bonnie;
use crate::device::DeviceCounts;
use crate::experiments::Findings;
use crate::options::{LoadTool, Options};
use crate::report::{Check, System as Measured};
use crate::statistics::{bootstrap, geometric_mean, mean, median};
use std::collections::BTreeMap;

/// What is promised of the mount: how much slower a snapshot makes its writer, and for how long it stalls.
pub(super) fn check(findings: &mut Findings, rounds: &[Round], options: &Options) {
    check_factor(findings, "shock.icecore_factor", rounds, options.seed);
    if options.tool != LoadTool::Fio || options.rate.is_some() {
        // Only fio says when each write was done. At a fixed rate gaps are part of it.
        return;
    }
    let gaps: Vec<f64> =
        rounds.iter().flat_map(|round| round.curves.values()).map(|shape| shape.longest_gap_ms).collect();
    findings.check(Check::new("shock.stall_ms", bootstrap(&gaps, median, options.seed)));
}

/// How many times slower one snapshot makes the writer. The runs of a round count alike: their factors differ
/// several times, so a median of all would be that of one run.
pub(super) fn check_factor(findings: &mut Findings, name: &str, rounds: &[Round], seed: u64) {
    let factor = |round: &Round, run: &'static str| -> Option<f64> {
        Some(round.fixed.get(&(run, 0))?.rate / round.fixed.get(&(run, 1))?.rate)
    };
    let of_round = |round: &Round| -> Option<f64> {
        let factors: Option<Vec<f64>> = RUNS.iter().map(|run| factor(round, run.name)).collect();
        Some(geometric_mean(&factors?))
    };
    let factors: Vec<f64> = rounds.iter().filter_map(of_round).collect();
    findings.check(Check::new(name, bootstrap(&factors, median, seed)));
}

/// The figures of a system, by run and number of snapshots.
pub(super) fn report(findings: &mut Findings, system: &str, rounds: &[Round], options: &Options) {
    let Some(first) = rounds.first() else { return };
    let spaces: Vec<f64> = rounds.iter().map(|round| round.space_bytes).collect();
    for &(name, count) in first.fixed.keys() {
        let fixed: Vec<&Counted> =
            rounds.iter().filter_map(|round| round.fixed.get(&(name, count))).collect();
        let rates = fixed.iter().map(|fixed| fixed.rate).collect();
        let mut measured = Measured::new("writes/s", rates);
        let mut counters = device_counters(&fixed);
        counters.insert("space_bytes".to_owned(), mean(&spaces));
        if count == 1 {
            measured = with_curves(measured, &mut counters, rounds, name, options);
        }
        findings.system(&format!("{system}/{name}/{count}"), measured.with_counters(counters));
    }
    for count in first.mixed.keys() {
        let mixed: Vec<&Counted> = rounds.iter().filter_map(|round| round.mixed.get(count)).collect();
        let measured = Measured::new("operations/s", mixed.iter().map(|mixed| mixed.rate).collect())
            .with_counters(device_counters(&mixed));
        findings.system(&format!("{system}/{MIX}/{count}"), measured);
    }
    for count in first.bonnie.keys() {
        for (place, (name, unit, _)) in bonnie::FIGURES.into_iter().enumerate() {
            let values: Option<Vec<f64>> =
                rounds.iter().map(|round| round.bonnie.get(count)?[place]).collect();
            // What it was too fast for in some round has no median.
            let measured = values.map_or_else(
                || Measured::unavailable(unit, "bonnie++ was done too soon to tell: leave out --quick"),
                |values| Measured::new(unit, values),
            );
            findings.system(&format!("{system}/{name}/{count}"), measured);
        }
    }
    for count in first.small.keys() {
        let small: Vec<&Vec<Counted>> = rounds.iter().filter_map(|round| round.small.get(count)).collect();
        let series =
            |of: fn(&Counted) -> f64| small.iter().map(|runs| runs.iter().map(of).collect()).collect();
        let rates: Vec<Vec<f64>> = series(|run| run.rate);
        let mut measured = Measured::new("writes/s", rates.iter().map(|rates| mean(rates)).collect())
            .with_series("round_per_s", rates)
            .with_counters(device_counters(&small.iter().copied().flatten().collect::<Vec<_>>()));
        if small.iter().copied().flatten().all(|run| run.counts.is_some()) {
            measured = measured.with_series("round_requests_per_op", series(requests_per_write));
        }
        findings.system(&format!("{system}/small/{count}"), measured);
    }
}

fn requests_per_write(run: &Counted) -> f64 {
    run.counts.map_or(f64::NAN, |counts| (counts.reads + counts.writes) as f64 / run.requests)
}

/// What the device does for each request: the mean over all runs. Nothing where that was not counted.
fn device_counters(runs: &[&Counted]) -> BTreeMap<String, f64> {
    let counted: Option<Vec<_>> = runs.iter().map(|run| Some((run.counts?, run.requests))).collect();
    let Some(counted) = counted else { return BTreeMap::new() };
    let per_request = |of: fn(&DeviceCounts) -> u64, unit: f64| {
        mean(
            &counted.iter().map(|(counts, requests)| of(counts) as f64 / unit / requests).collect::<Vec<_>>(),
        )
    };
    [
        ("device_reads_per_op", per_request(|counts| counts.reads, 1.0)),
        ("device_read_kib_per_op", per_request(|counts| counts.read_bytes, 1024.0)),
        ("device_writes_per_op", per_request(|counts| counts.writes, 1.0)),
        ("device_write_kib_per_op", per_request(|counts| counts.written_bytes, 1024.0)),
        ("device_flushes_per_op", per_request(|counts| counts.flushes, 1.0)),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

/// A figure of a curve, where it has one, and its name.
type Figure = (&'static str, fn(&Shape) -> Option<f64>);

fn with_curves(
    mut measured: Measured,
    counters: &mut BTreeMap<String, f64>,
    rounds: &[Round],
    name: &'static str,
    options: &Options,
) -> Measured {
    let curves: Vec<&Shape> = rounds.iter().filter_map(|round| round.curves.get(name)).collect();
    if curves.is_empty() {
        return measured;
    }
    let is_paced = options.rate.is_some();
    let figures: [Figure; 6] = [
        ("dip", |shape| Some(shape.dip)),
        ("recovery_s", |shape| shape.recovery_s),
        ("longest_gap_ms", |shape| Some(shape.longest_gap_ms)),
        ("gap_before_ms", |shape| Some(shape.gap_before_ms)),
        ("longest_wait_ms", |shape| Some(shape.longest_wait_ms)),
        ("wait_before_ms", |shape| Some(shape.wait_before_ms)),
    ];
    let known = match options.tool {
        LoadTool::Fio => 4 + 2 * usize::from(is_paced),
        _ => 2,
    };
    let figures = &figures[..known];
    for (name, figure) in figures.iter().copied() {
        let values: Vec<f64> = curves.iter().filter_map(|shape| figure(shape)).collect();
        if !values.is_empty() {
            counters.insert(name.to_owned(), mean(&values));
            measured = measured.with_series(name, values.iter().map(|value| vec![*value]).collect());
        }
    }
    let unrecovered = curves.iter().filter(|shape| shape.recovery_s.is_none()).count();
    counters.insert("unrecovered".to_owned(), unrecovered as f64);
    let all = |of: fn(&Shape) -> Vec<f64>| curves.iter().map(|shape| of(shape)).collect();
    measured = measured
        .with_series("rate_per_s", all(|shape| shape.rate_per_s.clone()))
        .with_series("snapshot_at_s", all(|shape| vec![shape.snapshot_at_s]));
    // The log has the time of the write alone: where a flush follows it says too little. At a fixed rate
    // none follows.
    if options.tool == LoadTool::Fio && (name == "direct" || is_paced) {
        measured = measured
            .with_series("latency_us", all(|shape| shape.latency_us.clone()))
            .with_series("latency_at_s", all(|shape| shape.latency_at_s.clone()));
    }
    measured
}
