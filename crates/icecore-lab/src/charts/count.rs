//! Cost against the number of snapshots.

use super::{by_variant, color, has, rounds, titled, variant_slug};
use crate::chart::{Axis, Chart, Kind, Series};
use crate::report::{Report, System};
use crate::statistics::median;
use std::collections::BTreeMap;

pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let chart = |(variant, systems): ((&str, Option<u64>), super::Group<'_>)| {
        let mut chart = Chart::new(
            variant_slug("count", variant),
            titled("Cost against the number of snapshots", variant),
            Kind::Lines,
            Axis::log("snapshots"),
            Axis::log("milliseconds"),
        );
        for (place, (name, system)) in systems.iter().enumerate() {
            chart.add(Series::measured(*name, color(name, place), costs(system)));
        }
        chart
    };
    by_variant(report, has("cost_s")).into_iter().map(chart).collect()
}

/// The median cost in milliseconds for each number of snapshots. Only positive numbers have a place on the axes.
fn costs(system: &System) -> Vec<(f64, f64)> {
    let mut costs: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for (counts, values) in rounds(system, "count").iter().zip(rounds(system, "cost_s")) {
        for (&count, &cost) in
            counts.iter().zip(values).filter(|(count, cost)| **count >= 1.0 && **cost > 0.0)
        {
            costs.entry(count as u64).or_default().push(cost * 1e3);
        }
    }
    costs.into_iter().map(|(count, costs)| (count as f64, median(&costs))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_all_rounds_meet_at_their_number() {
        let system = System::new("s", vec![1.0])
            .with_series("count", vec![vec![0.0, 1.0, 100.0], vec![1.0]])
            .with_series("cost_s", vec![vec![9.0, 0.001, 0.5], vec![0.003]]);
        assert_eq!(costs(&system), [(1.0, 2.0), (100.0, 500.0)]);
    }
}
