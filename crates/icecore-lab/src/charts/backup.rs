//! A backup that reads a snapshot while the database writes.

use super::{by_variant, color, has, medians_by_place, rounds, titled, variant_slug};
use crate::chart::{Axis, Chart, Kind, Series};
use crate::report::{Report, System};
use crate::statistics::median;

const READ: &str = "read_mb_per_s";
const FOREGROUND: &str = "foreground_per_s";
/// Series over time: name, identifier, title, unit.
const OVER_TIME: [(&str, &str, &str, &str); 3] = [
    (READ, "backup-read", "Speed of the backup over time", "MB/s"),
    (FOREGROUND, "backup-foreground", "Foreground during the backup", "transactions a second"),
    ("cow_used_percent", "backup-area", "Copy area in use", "%"),
];

pub(super) fn charts(report: &Report) -> Vec<Chart> {
    let mut charts = against(report);
    for (series, id, title, unit) in OVER_TIME {
        let groups = by_variant(report, |system| system.series.contains_key(series));
        for (variant, systems) in groups {
            let (x, y) = (Axis::linear("seconds"), Axis::linear(unit));
            let mut chart = Chart::new(variant_slug(id, variant), titled(title, variant), Kind::Lines, x, y);
            for (place, (name, system)) in systems.iter().enumerate() {
                let values = medians_by_place(rounds(system, series));
                let points = (0..).map(f64::from).zip(values);
                chart.add(Series::measured(*name, color(name, place), points));
            }
            charts.push(chart);
        }
    }
    charts
}

/// A point for each system: right and high is good.
fn against(report: &Report) -> Vec<Chart> {
    let both = |system: &System| has(READ)(system) && has(FOREGROUND)(system);
    let chart = |(variant, systems): ((&str, Option<u64>), super::Group<'_>)| {
        let mut chart = Chart::new(
            variant_slug("backup", variant),
            titled("Backup speed against foreground", variant),
            Kind::Points,
            Axis::linear("foreground, transactions a second"),
            Axis::linear("backup, MB/s"),
        );
        for (place, (name, system)) in systems.iter().enumerate() {
            let middle = |series| median(&rounds(system, series).concat());
            chart.add(Series::measured(*name, color(name, place), [(middle(FOREGROUND), middle(READ))]));
        }
        chart
    };
    by_variant(report, both).into_iter().map(chart).collect()
}
