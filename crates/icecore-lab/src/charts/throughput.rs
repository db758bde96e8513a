//! Operations in each second of a run: the shock of a snapshot, and the way back.

use super::{by_variant, color, has, medians_by_place, rounds, titled, variant_slug};
use crate::chart::{Axis, Chart, Kind, Mark, Series};
use crate::report::{Report, System};

const RATE: &str = "rate_per_s";

pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let groups = by_variant(report, has(RATE));
    let chart = |(variant, systems): ((&str, Option<u64>), super::Group<'_>)| {
        let title = titled("Throughput over time", variant);
        let mut chart = Chart::new(
            variant_slug("throughput", variant),
            title,
            Kind::Lines,
            Axis::linear("seconds since the run began"),
            Axis::linear("operations a second"),
        );
        for (place, (name, system)) in systems.iter().enumerate() {
            let rates = medians_by_place(rounds(system, RATE));
            let points = (0..).map(f64::from).zip(rates);
            chart.add(Series::measured(*name, color(name, place), points));
        }
        chart.marks = marks(&systems);
        chart
    };
    groups.into_iter().map(chart).collect()
}

/// When snapshots were taken. Systems of one run take theirs at the same moment, but for fractions of a
/// second.
fn marks(systems: &[(&str, &System)]) -> Vec<Mark> {
    let mut moments: Vec<f64> =
        systems.iter().flat_map(|(_, system)| medians_by_place(rounds(system, "snapshot_at_s"))).collect();
    moments.retain(|moment| moment.is_finite());
    moments.sort_by(f64::total_cmp);
    moments.dedup_by(|later, earlier| *later - *earlier < 1.0);
    moments.into_iter().map(|at| Mark { at, label: "snapshot".to_owned() }).collect()
}

/// When the first snapshot of a run was taken, in seconds from its beginning, where the run says so.
pub(super) fn snapshot_at(system: &System) -> Option<f64> {
    medians_by_place(rounds(system, "snapshot_at_s")).first().copied()
}

/// How much of the operations of a run came before its first snapshot, 0 to 1, where the run says so.
pub(super) fn part_before_snapshot(system: &System) -> Option<f64> {
    let at = snapshot_at(system)?;
    let rates = medians_by_place(rounds(system, RATE));
    let before: f64 =
        (0..).map(f64::from).zip(&rates).map(|(second, rate)| rate * (at - second).clamp(0.0, 1.0)).sum();
    let part = before / rates.iter().sum::<f64>();
    part.is_finite().then_some(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_snapshot_lies_among_the_operations_where_it_did_in_time() {
        let system = System::new("operations/s", vec![1.0])
            .with_series(RATE, vec![vec![10.0, 10.0, 5.0, 5.0]])
            .with_series("snapshot_at_s", vec![vec![2.0]]);
        assert_eq!(part_before_snapshot(&system), Some(20.0 / 30.0));
        assert_eq!(part_before_snapshot(&System::default()), None);
        let found = marks(&[("a", &system), ("b", &system)]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].at, 2.0);
    }
}
