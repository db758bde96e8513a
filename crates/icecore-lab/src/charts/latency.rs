//! How long single operations take: percentiles, and a map of all of them over the run.

use super::{by_variant, color, has, rounds, throughput, titled, variant_slug};
use crate::chart::{Axis, Chart, Heat, Kind, Mark, Series};
use crate::report::{Report, System};
use crate::statistics::quantile;

const LATENCY: &str = "latency_us";
/// When each of these operations ended, in seconds from the beginning of the run. A result need not have it.
const MOMENT: &str = "latency_at_s";
/// The axis of operations whose times are unknown.
const IN_ORDER: &str = "part of the operations, in their order, %";
/// Columns of a heat map, and rows for each power of ten.
const COLUMNS: usize = 50;
const ROWS_PER_DECADE: f64 = 5.0;

/// The percentiles that are drawn, as parts of 1, with their names.
pub const PERCENTILES: [(f64, &str); 7] = [
    (0.5, "50 %"),
    (0.9, "90 %"),
    (0.95, "95 %"),
    (0.99, "99 %"),
    (0.999, "99.9 %"),
    (0.9999, "99.99 %"),
    (1.0, "longest"),
];

pub(super) fn percentiles(report: &Report) -> Vec<Chart> {
    let names: Vec<String> = PERCENTILES.iter().map(|(_, name)| (*name).to_owned()).collect();
    let chart = |(variant, systems): ((&str, Option<u64>), super::Group<'_>)| {
        let mut chart = Chart::new(
            variant_slug("latency", variant),
            titled("Latency by percentile", variant),
            Kind::Lines,
            Axis::names("part of the operations that took no longer", names.clone()),
            Axis::log("microseconds"),
        );
        for (place, (name, system)) in systems.iter().enumerate() {
            let values = all(system);
            let of = |(index, (part, _)): (f64, &(f64, &str))| (index, quantile(&values, *part));
            let points = (0..).map(f64::from).zip(&PERCENTILES).map(of);
            chart.add(Series::measured(*name, color(name, place), points));
        }
        chart
    };
    by_variant(report, has(LATENCY)).into_iter().map(chart).collect()
}

/// A map for each system. Where some runs have a snapshot in their midst, the maps are of those runs alone.
pub(super) fn heat_maps(report: &Report) -> Vec<Chart> {
    let groups = by_variant(report, has(LATENCY));
    let disturbed = |system: &System| throughput::part_before_snapshot(system).is_some();
    let only_disturbed = groups.values().flatten().any(|(_, system)| disturbed(system));
    let mut charts = Vec::new();
    for (variant, systems) in groups {
        for (name, system) in systems.into_iter().filter(|(_, system)| !only_disturbed || disturbed(system)) {
            let is_timed = has(MOMENT)(system);
            let mut chart = Chart::new(
                variant_slug(&format!("heat-{name}"), variant),
                titled(&format!("Latency of {name} over the run"), variant),
                Kind::Heat,
                Axis::linear(if is_timed { "seconds" } else { IN_ORDER }),
                Axis::log("microseconds"),
            );
            chart.heat = heat(rounds(system, LATENCY), rounds(system, MOMENT));
            let at = if is_timed {
                throughput::snapshot_at(system)
            } else {
                throughput::part_before_snapshot(system).map(|part| part * 100.0)
            };
            let mark = |at| Mark { at, label: "snapshot".to_owned() };
            chart.marks = at.map(mark).into_iter().collect();
            charts.push(chart);
        }
    }
    charts
}

fn all(system: &System) -> Vec<f64> {
    rounds(system, LATENCY).iter().flatten().copied().filter(|value| *value > 0.0).collect()
}

/// Counts of all rounds. A column is a stretch of time where `moments` has the times of the operations, and a
/// part of each round otherwise.
fn heat(rounds: &[Vec<f64>], moments: &[Vec<f64>]) -> Option<Heat> {
    let values = || rounds.iter().flatten().copied().filter(|value| *value > 0.0 && value.is_finite());
    let low = values().fold(f64::INFINITY, f64::min);
    if !low.is_finite() {
        return None;
    }
    let row = |value: f64| (value.log10() * ROWS_PER_DECADE).floor();
    let (first, last) = (row(low), row(values().fold(0.0, f64::max)));
    let rows = (last - first) as usize + 1;
    let end = moments.iter().flatten().copied().fold(0.0, f64::max);
    let column = |round: usize, place: usize| match moments.get(round).and_then(|moments| moments.get(place))
    {
        Some(moment) if end > 0.0 => ((moment / end * COLUMNS as f64) as usize).min(COLUMNS - 1),
        _ => place * COLUMNS / rounds[round].len(),
    };
    let mut counts = vec![vec![0; rows]; COLUMNS];
    for (number, round) in rounds.iter().enumerate() {
        for (place, &value) in
            round.iter().enumerate().filter(|(_, value)| **value > 0.0 && value.is_finite())
        {
            let index = ((row(value) - first) as usize).min(rows - 1);
            counts[column(number, place)][index] += 1;
        }
    }
    let bound = |index: usize| 10_f64.powf((first + index as f64) / ROWS_PER_DECADE);
    let bounds = (0..=rows).map(bound).collect();
    let width = if end > 0.0 { end } else { 100.0 };
    Some(Heat { column: width / COLUMNS as f64, bounds, counts })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heat_map_counts_every_operation_once_in_its_place() {
        let mut first = vec![10.0; 50];
        first[49] = 5000.0;
        let heat = heat(&[first, vec![10.0; 100]], &[]).expect("there are values");
        assert_eq!(heat.counts.iter().flatten().sum::<u64>(), 150);
        assert_eq!(heat.counts[49].last(), Some(&1));
        assert_eq!(heat.counts[0][0], 3);
        assert_eq!(heat.bounds.len(), heat.counts[0].len() + 1);
        assert!(heat.bounds[0] <= 10.0 && heat.bounds[1] > 10.0);
        assert!(heat.bounds.last().is_some_and(|bound| *bound > 5000.0));
        assert_eq!(super::heat(&[vec![0.0, f64::NAN]], &[]), None);
    }

    #[test]
    fn a_stall_is_as_wide_as_it_was_long() {
        // A hundred operations in the first second, one that ends after five more, and a hundred in the last.
        let moments: Vec<f64> = (0..100)
            .map(|at| f64::from(at) / 100.0)
            .chain((0..=100).map(|at| 6.0 + f64::from(at) / 100.0))
            .collect();
        let mut latencies = vec![10.0; moments.len()];
        latencies[100] = 5e6;
        let heat = heat(&[latencies], &[moments]).expect("there are values");
        assert_eq!(heat.column, 7.0 / COLUMNS as f64);
        let empty = heat.counts.iter().filter(|rows| rows.iter().sum::<u64>() == 0).count();
        assert!((34..=36).contains(&empty), "{empty} of {COLUMNS}");
    }
}
