//! The medians of all runs as bars, and how much slower one snapshot makes each system.

use super::{Key, by_variant, color, slug, snapshots, titled};
use crate::chart::{Axis, Chart, Kind, Series};
use crate::published;
use crate::report::{Report, System};
use crate::statistics::median;
use std::collections::{BTreeMap, BTreeSet};

/// Bars: a chart for each run and unit, a bar for each system and number of snapshots.
pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let mut groups: BTreeMap<(&str, &str), Vec<(Option<u64>, &str, &System)>> = BTreeMap::new();
    for ((run, count), systems) in by_variant(report, |system| !system.samples.is_empty()) {
        for (name, system) in systems {
            groups.entry((run, &system.unit)).or_default().push((count, name, system));
        }
    }
    groups.into_iter().map(|((run, unit), systems)| bars(run, unit, &systems)).collect()
}

fn bars(run: &str, unit: &str, systems: &[(Option<u64>, &str, &System)]) -> Chart {
    let names: BTreeSet<&str> = systems.iter().map(|(_, name, _)| *name).collect();
    let place = |system: &str| names.iter().position(|name| *name == system).unwrap_or(0) as f64;
    let better = if is_rate(unit) { "more is better" } else { "less is better" };
    let mut chart = Chart::new(
        slug(&["median", run, unit]),
        titled(&format!("Median of all runs, {better}"), (run, None)),
        Kind::Bars,
        Axis::names("system", names.iter().map(|name| (*name).to_owned()).collect()),
        Axis::linear(unit),
    );
    let counts: BTreeSet<Option<u64>> = systems.iter().map(|(count, ..)| *count).collect();
    for (number, count) in counts.into_iter().enumerate() {
        let label = count.map_or_else(|| "median".to_owned(), snapshots);
        let of_count = systems.iter().filter(|(of, ..)| *of == count);
        let points = of_count.map(|(_, name, system)| (place(name), median(&system.samples)));
        chart.add(Series::measured(label, 7 + number, points));
    }
    chart
}

/// How much slower each system is with one snapshot, the figures of the study beside it.
pub(super) fn factors(report: &Report) -> Vec<Chart> {
    let runs: BTreeSet<&str> = report.systems.keys().map(|name| Key::of(name).run).collect();
    let published = published::factors(&report.experiment);
    let measured = report.systems.keys().map(|name| Key::of(name).system);
    let measured = measured.filter(|system| runs.iter().any(|run| factor(report, system, run).is_some()));
    let names: BTreeSet<&str> = measured.chain(published.iter().map(|row| row.system)).collect();
    let place = |system: &str| names.iter().position(|name| *name == system).unwrap_or(0) as f64;
    let mut chart = Chart::new(
        "factor",
        "Times slower with one snapshot than without",
        Kind::Bars,
        Axis::names("system", names.iter().map(|name| (*name).to_owned()).collect()),
        Axis::linear("times slower"),
    );
    for (number, run) in runs.iter().enumerate() {
        let of = |name: &&str| Some((place(name), factor(report, name, run)?));
        let label = if run.is_empty() { "measured" } else { run };
        let series = Series::measured(label, 7 + number, names.iter().filter_map(of));
        if series.x.is_empty() {
            continue;
        }
        chart.add(series);
        let rows = published.iter().filter(|row| row.run == *run);
        let points: Vec<_> = rows.map(|row| (place(row.system), row.factor)).collect();
        if !points.is_empty() {
            chart.add(Series::published(*run, color("lvm", number) + number, points));
        }
    }
    if chart.series.is_empty() { Vec::new() } else { vec![chart] }
}

/// How much slower a system is with one snapshot than with none, in one run.
#[must_use]
pub fn factor(report: &Report, system: &str, run: &str) -> Option<f64> {
    let find = |count| {
        let wanted = Key { system, run, snapshots: Some(count) };
        report.systems.iter().find(|(name, _)| Key::of(name) == wanted).map(|(_, system)| system)
    };
    let (without, with) = (find(0)?, find(1)?);
    let (without_median, with_median) = (median(&without.samples), median(&with.samples));
    let factor =
        if is_rate(&without.unit) { without_median / with_median } else { with_median / without_median };
    factor.is_finite().then_some(factor)
}

/// Whether more of the unit is better: `writes/s` is a rate, `s` is not.
#[must_use]
pub fn is_rate(unit: &str) -> bool {
    unit.ends_with("/s") || unit.ends_with("_per_s") || unit.contains("score") || unit.ends_with(" a second")
}
