//! The figure of the README: time per iteration of the store's own valuation.

use super::svg;
use crate::chart::{Axis, Chart, Kind, Series};
use crate::error::{Error, Result};
use crate::report::{Report, System};
use crate::statistics::median;

/// Name of the series that the figure draws: seconds of each iteration, one list per run.
pub const ITERATION_SERIES: &str = "iteration_s";

/// Time per iteration: plain (the faster journal mode), Icecore, Icecore with snapshots.
///
/// # Errors
/// [`Error::NotAResult`] if the result is of another experiment.
pub fn time_per_iteration(report: &Report) -> Result<String> {
    let plain = crate::experiments::valuation_store::faster_plain(report)?;
    let label = if plain.ends_with("wal") { "plain SQLite, WAL" } else { "plain SQLite, rollback journal" };
    let title = "Time per iteration of 20,000 changed rows";
    let mut chart =
        Chart::new("iterations", title, Kind::Lines, Axis::linear("iteration"), Axis::linear("ms"));
    chart.add(line(report, plain, label, 0)?);
    chart.add(line(report, "icecore", "Icecore", 9)?);
    let snapshots = line(report, "icecore_snapshots", "Icecore, a snapshot after each", 8)?;
    chart.add(Series { dashed: true, ..snapshots });
    let runs = report.systems.get(plain).map_or(0, |system| system.samples.len());
    let machine = &report.machine;
    chart.subtitle = format!(
        "median of {runs} runs; synchronous=FULL; {} cores; {}; one flush takes {:.0} us",
        machine.cores, machine.filesystem, machine.flush_us
    );
    chart.labels = report.labels();
    Ok(svg(&chart))
}

fn line(report: &Report, name: &str, label: &str, color: usize) -> Result<Series> {
    let missing = || Error::NotAResult {
        what: format!("the result of {}", report.experiment),
        reason: format!("it has no times per iteration of {name}"),
    };
    let system = report.systems.get(name).ok_or_else(missing)?;
    let values = medians_by_iteration(system).filter(|values| values.len() > 1).ok_or_else(missing)?;
    Ok(Series::measured(label, color, (1..).map(f64::from).zip(values)))
}

fn medians_by_iteration(system: &System) -> Option<Vec<f64>> {
    let runs = system.series.get(ITERATION_SERIES)?;
    let iterations = runs.iter().map(Vec::len).min()?;
    let at = |iteration: usize| runs.iter().map(|run| run[iteration] * 1e3).collect::<Vec<_>>();
    Some((0..iterations).map(|iteration| median(&at(iteration))).collect())
}
