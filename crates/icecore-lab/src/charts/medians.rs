//! The medians of all runs as bars, and how much slower one snapshot makes each system.

use super::{by_variant, run_title, slug, snapshots, titled};
use crate::chart::{Axis, Chart, Kind, Series};
use crate::published;
use crate::report::{Report, System};
use crate::statistics::median;
use crate::systems;
use std::collections::{BTreeMap, BTreeSet};

/// A system with its number of snapshots and its name.
type Bar<'report> = (Option<u64>, &'report str, &'report System);

/// Bars: a chart for each run and unit, a bar for each system and number of snapshots.
pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let mut groups: BTreeMap<(&str, &str), Vec<Bar<'_>>> = BTreeMap::new();
    for ((run, count), systems) in by_variant(report, |system| !system.samples.is_empty()) {
        for (name, system) in systems {
            groups.entry((run, &system.unit)).or_default().push((count, name, system));
        }
    }
    groups.into_iter().map(|((run, unit), systems)| bars(run, unit, &systems)).collect()
}

fn bars(run: &str, unit: &str, systems: &[Bar<'_>]) -> Chart {
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

/// How much slower each system is with a snapshot, the figures of the study beside it.
pub(super) fn factors(report: &Report) -> Vec<Chart> {
    let pairs = pairs(report);
    if pairs.is_empty() {
        return Vec::new();
    }
    let published = published::factors(&report.experiment);
    let names: BTreeSet<&str> =
        pairs.iter().map(|pair| pair.system).chain(published.iter().map(|row| row.system)).collect();
    let place = |system: &str| names.iter().position(|name| *name == system).unwrap_or(0) as f64;
    let mut chart = Chart::new(
        "factor",
        "Times slower with a snapshot than without",
        Kind::Bars,
        Axis::names("system", names.iter().map(|name| (*name).to_owned()).collect()),
        Axis::linear("times slower"),
    );
    let runs: BTreeSet<&str> = pairs.iter().map(|pair| pair.run).collect();
    for (number, run) in runs.into_iter().enumerate() {
        let points =
            pairs.iter().filter(|pair| pair.run == run).map(|pair| (place(pair.system), pair.factor()));
        let title = run_title(run);
        let label = if run.is_empty() { "measured" } else { title.as_str() };
        chart.add(Series::measured(label, 7 + number, points));
        let rows = published.iter().filter(|row| row.run == run);
        let points: Vec<_> = rows.map(|row| (place(row.system), row.factor)).collect();
        if !points.is_empty() {
            chart.add(Series::published(title, 7 + number, points));
        }
    }
    vec![chart]
}

/// One run of one system, without a snapshot and with one.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'report> {
    /// The system.
    pub system: &'report str,
    /// The run; empty where there is one alone.
    pub run: &'report str,
    /// Without a snapshot, or before it.
    pub without: &'report System,
    /// With a snapshot, or after it.
    pub with: &'report System,
}

impl Pair<'_> {
    /// How much slower it is with the snapshot, by the medians. Not a number if it has no samples.
    #[must_use]
    pub fn factor(&self) -> f64 {
        let (without, with) = (median(&self.without.samples), median(&self.with.samples));
        if is_rate(&self.without.unit) { without / with } else { with / without }
    }
}

/// Every run that was measured without a snapshot and with one: `RUN/0` and `RUN/1`, `RUN/before` and
/// `RUN/after`, `none` and `snapshots`.
#[must_use]
pub fn pairs(report: &Report) -> Vec<Pair<'_>> {
    let systems = report.systems.iter();
    let pairs = systems.filter_map(|(name, without)| pair(report, name.as_str(), without));
    pairs.filter(|pair| pair.factor().is_finite()).collect()
}

fn pair<'report>(
    report: &'report Report,
    name: &'report str,
    without: &'report System,
) -> Option<Pair<'report>> {
    let (system, variant) = name.split_once('/')?;
    // What has no snapshots was measured in two halves, too.
    if !systems::has_snapshots(system) {
        return None;
    }
    let (run, variant) = match (variant.rsplit_once('/'), variant.split_once('-')) {
        (Some((run, "0")), _) => (run, format!("{run}/1")),
        (Some((run, "before")), _) => (run, format!("{run}/after")),
        (None, None) if variant == "none" => ("", "snapshots".to_owned()),
        (None, Some(("none", run))) => (run, format!("snapshots-{run}")),
        _ => return None,
    };
    let with = report.systems.get(&format!("{system}/{variant}"))?;
    Some(Pair { system, run, without, with })
}

/// Whether more of the unit is better: `writes/s` and `orders/min` are rates, `s` is not.
#[must_use]
pub fn is_rate(unit: &str) -> bool {
    unit.ends_with("/s") || unit.ends_with("/min") || unit == "score"
}

/// Whether a value in the unit depends on the speed of the machine, as times and rates do. Counts do not.
#[must_use]
pub fn is_time(unit: &str) -> bool {
    is_rate(unit) || ["h", "s", "ms", "us"].contains(&unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_without_and_with_a_snapshot_are_found_by_their_names() {
        let find = |without: &str, with: &str, unit: &str| {
            let systems = [(without, 10.0), (with, 5.0)];
            let system = |(name, median): (&str, f64)| (name.to_owned(), System::new(unit, vec![median]));
            let report = Report { systems: systems.map(system).into(), ..crate::report::tests::empty() };
            pairs(&report).first().map(|pair| (pair.run.to_owned(), pair.factor()))
        };
        let found = |run: &str, factor| Some((run.to_owned(), factor));
        assert_eq!(find("lvm/sync/0", "lvm/sync/1", "writes/s"), found("sync", 2.0));
        assert_eq!(find("lvm/write/before", "lvm/write/after", "score"), found("write", 2.0));
        assert_eq!(find("xfs-reflink/none", "xfs-reflink/snapshots", "s"), found("", 0.5));
        assert_eq!(find("lvm/none-delete", "lvm/snapshots-delete", "s"), found("delete", 0.5));
        assert_eq!(find("plain/write/before", "plain/write/after", "score"), None, "it takes none");
        assert_eq!(find("lvm/sync/0", "lvm/sync/4", "writes/s"), None);
        assert_eq!(find("lvm/sync/0", "btrfs/sync/1", "writes/s"), None);
    }

    #[test]
    fn times_and_rates_depend_on_the_machine_and_counts_do_not() {
        for rate in ["writes/s", "MB/s", "orders/min", "score"] {
            assert!(is_rate(rate) && is_time(rate), "{rate}");
        }
        assert!(is_time("s") && is_time("ms") && !is_rate("s"));
        for count in ["lost", "requests/write", "extents", "KiB"] {
            assert!(!is_time(count), "{count}");
        }
    }
}
