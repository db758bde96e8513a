//! What a durable write costs the device: requests, bytes, flushes. Such counts do not depend on noise.

use super::{Key, by_variant, run_title, slug, snapshots};
use crate::chart::{Axis, Chart, Kind, Series};
use crate::published::{self, Count};
use crate::report::{Parameter, Report};
use std::collections::BTreeSet;

/// The counters, with what they count.
pub const COUNTERS: [(&str, &str); 5] = [
    ("device_reads_per_op", "read requests"),
    ("device_read_kib_per_op", "KiB read"),
    ("device_writes_per_op", "write requests"),
    ("device_write_kib_per_op", "KiB written"),
    ("device_flushes_per_op", "flushes"),
];

/// The run in which each write is durable; its charts are drawn. The table of counts has the other runs.
pub const DURABLE: &str = "sync";

/// Colours of the bars: by number of snapshots, not by system.
const FIRST_COLOR: usize = 7;

pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let runs = runs(report);
    let Some(run) = runs.get(DURABLE).or_else(|| runs.first()) else { return Vec::new() };
    COUNTERS.iter().map(|(counter, what)| chart(report, run, counter, what)).collect()
}

/// Whether the result is one of `shock` with counts of durable writes.
pub(crate) fn has_durable_writes(report: &Report) -> bool {
    report.experiment == "shock" && runs(report).contains(DURABLE)
}

/// The runs that have counts of the device.
fn runs(report: &Report) -> BTreeSet<&str> {
    let measured = report.systems.iter().filter(|(_, system)| system.counters.contains_key(COUNTERS[2].0));
    measured.map(|(name, _)| Key::of(name).run).collect()
}

fn chart(report: &Report, run: &str, counter: &str, what: &str) -> Chart {
    let measured = |(name, system): (&String, &crate::report::System)| {
        let counted = Key::of(name).run == run && system.counters.contains_key(counter);
        counted.then(|| Key::of(name).system.to_owned())
    };
    let here: BTreeSet<String> = report.systems.iter().filter_map(measured).collect();
    let counts = beside(report, counter);
    let others = counts.iter().map(|(system, _)| (*system).to_owned());
    let names: Vec<String> = here.iter().cloned().chain(others.filter(|name| !here.contains(name))).collect();
    let place = |system: &str| names.iter().position(|name| name == system).unwrap_or(0) as f64;
    let title = if run.is_empty() {
        format!("{what} for each write")
    } else {
        format!("{what} for each write: {}", run_title(run))
    };
    let mut chart = Chart::new(
        slug(&["device", counter]),
        capital(&title),
        Kind::Bars,
        Axis::names("system", names.clone()),
        Axis::linear(what),
    );
    for (number, ((_, count), systems)) in by_variant(report, |system| system.counters.contains_key(counter))
        .into_iter()
        .filter(|((of, _), _)| *of == run)
        .enumerate()
    {
        let label = count.map_or_else(|| "measured".to_owned(), snapshots);
        let points = systems.iter().map(|(name, system)| (place(name), system.counters[counter]));
        chart.add(Series::measured(label, FIRST_COLOR + number, in_order(points.collect())));
    }
    if !counts.is_empty() {
        let points = counts.iter().map(|(system, value)| (place(system), *value));
        let label = format!("1 snapshot, {}", source(report));
        chart.add(Series::counted(label, super::color("lvm", 0), in_order(points.collect())));
    }
    chart
}

/// The name of what was counted, in a result of `model`, which has it beside what it predicts.
#[must_use]
pub fn counted(counter: &str) -> String {
    format!("counted_{counter}")
}

/// Where the counts come from that stand beside those of the result.
#[must_use]
pub fn source(report: &Report) -> &str {
    match report.parameters.get("counted") {
        Some(Parameter::Text(source)) => source,
        _ => published::GUEST,
    }
}

/// Published counts with one snapshot, which stand beside those of `shock` on another machine.
pub fn elsewhere(report: &Report) -> impl Iterator<Item = &'static Count> {
    let stand_beside = report.experiment == "shock" && !report.is_emulated();
    published::all_counts().iter().filter(move |count| stand_beside && count.snapshots == 1)
}

/// Counts with one snapshot that stand beside those of the result, by system.
fn beside<'a>(report: &'a Report, counter: &str) -> Vec<(&'a str, f64)> {
    let own = report.systems.iter().filter_map(|(name, system)| {
        let key = Key::of(name);
        let value = system.counters.get(&counted(counter)).filter(|_| key.snapshots == Some(1))?;
        Some((key.system, *value))
    });
    let published = elsewhere(report).filter_map(|count| Some((count.system, count.of(counter)?)));
    own.chain(published).collect()
}

fn in_order(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
