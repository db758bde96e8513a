//! What a durable write costs the device: requests, bytes, flushes. Such counts do not depend on noise.

use super::{Key, by_variant, run_title, slug, snapshots};
use crate::chart::{Axis, Chart, Kind, Series};
use crate::published;
use crate::report::Report;
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
    let counts = published::counts(&report.experiment);
    let elsewhere = counts.iter().map(|count| count.system.to_owned());
    let names: Vec<String> =
        here.iter().cloned().chain(elsewhere.filter(|name| !here.contains(name))).collect();
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
    if let Some(source) = counts.first().map(|count| count.source) {
        let points = counts.iter().filter_map(|count| Some((place(count.system), count.of(counter)?)));
        let label = format!("1 snapshot, {source}");
        chart.add(Series::counted(label, super::color("lvm", 0), in_order(points.collect())));
    }
    chart
}

fn in_order(mut points: Vec<(f64, f64)>) -> Vec<(f64, f64)> {
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
