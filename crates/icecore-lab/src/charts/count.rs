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

/// Places for each power of ten: thousands of numbers would hide each other.
const PER_DECADE: f64 = 20.0;

/// The median cost in milliseconds around each place, at the median of the numbers there. Only positive
/// numbers have a place on the axes.
fn costs(system: &System) -> Vec<(f64, f64)> {
    let mut places: BTreeMap<i64, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for (counts, values) in rounds(system, "count").iter().zip(rounds(system, "cost_s")) {
        for (&count, &cost) in
            counts.iter().zip(values).filter(|(count, cost)| **count >= 1.0 && **cost > 0.0)
        {
            let (counts, costs) = places.entry((count.log10() * PER_DECADE) as i64).or_default();
            counts.push(count);
            costs.push(cost * 1e3);
        }
    }
    places.into_values().map(|(counts, costs)| (median(&counts), median(&costs))).collect()
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
        let all: Vec<f64> = (1..=10_000_i32).map(f64::from).collect();
        let system = System::new("s", vec![1.0])
            .with_series("count", vec![all.clone()])
            .with_series("cost_s", vec![all]);
        let drawn = costs(&system);
        assert!((50..=81).contains(&drawn.len()), "{}", drawn.len());
        assert!(drawn.iter().all(|(count, cost)| (count * 1e3 - cost).abs() < 1e-6));
    }
}
