//! Values in the order of iterations or snapshots: times, and the space that snapshots hold.

use super::{by_variant, color, has, medians_by_place, rounds, titled, variant_slug};
use crate::chart::{Axis, Chart, Kind, Series};
use crate::published::{self, Published};
use crate::report::Report;

struct Ordered {
    series: &'static str,
    id: &'static str,
    title: &'static str,
    x: &'static str,
    y: &'static str,
    scale: f64,
}

const ALL: [Ordered; 5] = [
    Ordered {
        series: "round_per_s",
        id: "rounds",
        title: "Runs in a row",
        x: "run",
        y: "operations a second",
        scale: 1.0,
    },
    Ordered {
        series: "round_requests_per_op",
        id: "round-requests",
        title: "Requests of the device in runs in a row",
        x: "run",
        y: "requests for each write",
        scale: 1.0,
    },
    Ordered {
        series: "iteration_s",
        id: "iterations",
        title: "Time per iteration",
        x: "iteration",
        y: "milliseconds",
        scale: 1e3,
    },
    Ordered {
        series: "snapshot_s",
        id: "snapshots",
        title: "Time to take a snapshot",
        x: "snapshot",
        y: "milliseconds",
        scale: 1e3,
    },
    Ordered {
        series: "held_bytes",
        id: "space",
        title: "Space that each snapshot holds",
        x: "snapshot, oldest first",
        y: "MiB",
        scale: 1.0 / 1_048_576.0,
    },
];

pub(super) fn charts(report: &Report) -> Vec<Chart> {
    ALL.iter().flat_map(|ordered| of(report, ordered)).collect()
}

fn of(report: &Report, ordered: &Ordered) -> Vec<Chart> {
    let chart = |(variant, systems): ((&str, Option<u64>), super::Group<'_>)| {
        let (x, y) = (Axis::linear(ordered.x), Axis::linear(ordered.y));
        let (id, title) = (variant_slug(ordered.id, variant), titled(ordered.title, variant));
        let mut chart = Chart::new(id, title, Kind::Lines, x, y);
        for (place, (name, system)) in systems.iter().enumerate() {
            let values = medians_by_place(rounds(system, ordered.series));
            let points = (1..).map(f64::from).zip(values.into_iter().map(|value| value * ordered.scale));
            chart.add(Series::measured(*name, color(name, place), points));
        }
        for row in printed(report, ordered, variant) {
            let points = (1..).map(f64::from).zip(row.with.iter().copied());
            chart.add(Series::published(row.system, color(row.system, 0), points));
        }
        chart
    };
    let variants = by_variant(report, has(ordered.series));
    let most = variants.keys().filter_map(|(_, snapshots)| *snapshots).max();
    // Pictures of every number would hide the others. The document has them.
    let is_drawn = |snapshots: Option<u64>| snapshots < Some(2) || snapshots == most;
    variants.into_iter().filter(|((_, snapshots), _)| is_drawn(*snapshots)).map(chart).collect()
}

/// What a study printed of runs in a row after its snapshot.
fn printed<'report>(
    report: &'report Report,
    ordered: &Ordered,
    (run, snapshots): (&'report str, Option<u64>),
) -> impl Iterator<Item = &'static Published> + use<'report> {
    let drawn = ordered.id == "rounds" && snapshots == Some(1);
    published::of_run(&report.experiment, run).filter(move |row| drawn && row.with.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::System;

    #[test]
    fn runs_in_a_row_are_drawn_without_a_snapshot_behind_one_and_behind_the_most() {
        let mut report = crate::report::tests::empty();
        for snapshots in [0, 1, 2, 4, 16] {
            let series = vec![vec![1.0, 2.0]];
            let system = System::new("writes/s", vec![1.5]).with_series("round_per_s", series);
            report.systems.insert(format!("xfs-reflink/small/{snapshots}"), system);
        }
        let drawn: Vec<String> = charts(&report).into_iter().map(|chart| chart.id).collect();
        assert_eq!(drawn, ["rounds-small-0", "rounds-small-1", "rounds-small-16"]);
    }
}
