//! What a study printed, with the same runs of ours beside it.

use super::{cell, number};
use crate::charts::{self, Key, run_title};
use crate::options::DatabaseServer;
use crate::published::{self, Published};
use crate::report::{Report, System};
use crate::statistics::median;
use crate::systems;
use maud::{Markup, html};

/// What the study printed, and the same runs here: first those of the same system, then the others.
pub(super) fn table(report: &Report) -> Markup {
    let rows: Vec<&Published> = published::of(&report.experiment).collect();
    // No study measured PostgreSQL.
    if rows.is_empty() || charts::server(report) == DatabaseServer::Postgres.name() {
        return html! {};
    }
    let mut others = measured_of(report, &rows);
    // With a tool that no study used nothing is comparable.
    if !others.iter().any(|one| rows.iter().any(|row| one.is_like(row))) {
        return html! {};
    }
    let takes_snapshots = rows.iter().any(|row| !row.with.is_empty());
    let mut groups: Vec<(&Published, Vec<Measured<'_>>)> = Vec::new();
    for row in rows {
        let (same, left): (Vec<_>, Vec<_>) = others.into_iter().partition(|one| one.is_of(row));
        groups.push((row, same));
        others = left;
    }
    let (without, with) = match report.experiment.as_str() {
        "backup" => ("Without writes", "With writes"),
        _ if takes_snapshots => ("Without", "With a snapshot"),
        _ => ("Figure", ""),
    };
    html! {
        h3 { "Published figures beside ours" }
        div class="wide" { table class="beside" {
            thead { tr {
                th { "System" } th { "Run" } th { "What" }
                th class="number" { (without) }
                @if takes_snapshots { th class="number" { (with) } th class="number" { "With / without" } }
                th { "From" }
            } }
            tbody {
                @for (row, same) in &groups {
                    (printed(row, takes_snapshots))
                    @for one in same { (measured(one, takes_snapshots)) }
                }
                @for one in &others { (measured(one, takes_snapshots)) }
            }
        } }
    }
}

/// A row that was measured here.
struct Measured<'report> {
    system: &'report str,
    run: &'report str,
    /// What was measured, where the unit does not say it.
    what: &'static str,
    unit: &'report str,
    without: Option<f64>,
    with: Option<f64>,
}

impl Measured<'_> {
    fn is_of(&self, row: &Published) -> bool {
        self.system == row.system && self.is_like(row)
    }

    /// Whether both are of one run or kind, on whatever systems.
    fn is_like(&self, row: &Published) -> bool {
        self.run == row.run || self.what == row.what
    }
}

/// What was measured here of the kinds that a study printed.
fn measured_of<'report>(report: &'report Report, rows: &[&Published]) -> Vec<Measured<'report>> {
    let mut all: Vec<Measured<'_>> = reading(report).collect();
    all.extend(history(report));
    for charts::Pair { system, run, without, with } in charts::pairs(report) {
        let (without, middle) = (Some(median(&without.samples)), Some(median(&with.samples)));
        all.push(Measured { system, run, what: "", unit: &with.unit, without, with: middle });
    }
    for (name, system) in &report.systems {
        let Key { system: of, run, .. } = Key::of(name);
        let is_known = all.iter().any(|one| one.system == of && one.run == run);
        if !is_known && !system.samples.is_empty() {
            let (unit, middle) = (system.unit.as_str(), Some(median(&system.samples)));
            let mut of_run = rows.iter().filter(|row| row.run == run);
            let is_with_snapshot = of_run.clone().any(|row| row.without.is_none());
            if is_with_snapshot && systems::has_snapshots(of) {
                all.push(Measured { system: of, run, what: "", unit, without: None, with: middle });
            } else if is_with_snapshot || of_run.any(|row| row.with.is_empty() && row.unit == unit) {
                all.push(Measured { system: of, run, what: "", unit, without: middle, with: None });
            }
        }
        for (counter, disk) in charts::placement::DISKS {
            if let Some(written) = system.counters.get(counter) {
                let (what, unit, without) = ("written", "MB", Some(*written));
                all.push(Measured { system: of, run: disk, what, unit, without, with: None });
            }
        }
        if let (Some(before), Some(after)) =
            (system.counters.get("extents_before"), system.counters.get("extents_after"))
        {
            let (without, with) = (Some(*before), Some(*after));
            all.push(Measured { system: of, run: "extents", what: "", unit: "extents", without, with });
        }
    }
    all
}

/// The speed of reading a snapshot, without writes beside it and with them.
fn reading(report: &Report) -> impl Iterator<Item = Measured<'_>> {
    report.systems.iter().filter_map(move |(name, idle)| {
        let system = name.strip_suffix("/idle")?;
        let writing = report.systems.get(&format!("{system}/writing"))?;
        if idle.samples.is_empty() || writing.samples.is_empty() {
            return None;
        }
        let (without, with) = (Some(median(&idle.samples)), Some(median(&writing.samples)));
        let (what, unit) = ("reading a snapshot", idle.unit.as_str());
        Some(Measured { system, run: "writing", what, unit, without, with })
    })
}

/// Parts of the iterations that are compared: so many are the first, and as many the last.
const PARTS: usize = 10;

/// How much longer the last iterations take than the first, without snapshots and with one after each; and
/// what the first snapshot holds in the end.
fn history(report: &Report) -> impl Iterator<Item = Measured<'_>> {
    report.systems.iter().flat_map(|(name, with)| {
        let Some(system) = name.strip_suffix("/snapshots") else { return Vec::new() };
        let without = report.systems.get(&format!("{system}/none")).and_then(growth);
        let row =
            |what, unit, without, with| Measured { system, run: "snapshots", what, unit, without, with };
        let last =
            growth(with).map(|with| row("the last iterations, relative", "times", without, Some(with)));
        let held = held_by_first(with).map(|gb| row("held by the first snapshot", "GB", None, Some(gb)));
        last.into_iter().chain(held).collect()
    })
}

/// The time of the last iterations over that of the first, median of all rounds.
fn growth(system: &System) -> Option<f64> {
    let of_round = |round: &Vec<f64>| {
        let part = round.len() / PARTS;
        (part > 0).then(|| median(&round[round.len() - part..]) / median(&round[..part]))
    };
    let rounds: Vec<f64> = system.series.get("iteration_s")?.iter().filter_map(of_round).collect();
    (!rounds.is_empty()).then(|| median(&rounds))
}

/// What the first snapshot holds, in GB. Of a long history the result has only some of the snapshots.
fn held_by_first(system: &System) -> Option<f64> {
    let (held, taken) = (system.series.get("held_bytes")?, system.series.get("snapshot_s")?);
    let complete = held.iter().zip(taken).filter(|(held, taken)| held.len() == taken.len());
    let rounds: Vec<f64> = complete.filter_map(|(held, _)| Some(held.first()? / 1e9)).collect();
    (!rounds.is_empty()).then(|| median(&rounds))
}

fn measured(row: &Measured<'_>, takes_snapshots: bool) -> Markup {
    let factor = row.with.zip(row.without).map(|(with, without)| with / without);
    html! {
        tr data-beside=(row.system) {
            td { (row.system) } td { (run_title(row.run)) }
            td { @if !row.what.is_empty() { (row.what) ", " } (row.unit) }
            (cell(row.without))
            @if takes_snapshots { (cell(row.with)) (cell(factor)) }
            td { "measured here" }
        }
    }
}

fn printed(row: &Published, takes_snapshots: bool) -> Markup {
    let with: Vec<Markup> = row.with.iter().map(|value| number(*value)).collect();
    let factor = row.without.zip(row.with.first()).map(|(without, with)| with / without);
    html! {
        tr class="published" {
            td { (row.system) } td { (run_title(row.run)) } td { (row.what) ", " (row.unit) }
            (cell(row.without))
            @if takes_snapshots {
                td class="number" {
                    @for (place, value) in with.iter().enumerate() { @if place > 0 { ", " } (value) }
                }
                (cell(factor))
            }
            td { span class="badge" { "published" } " " (row.source) }
        }
    }
}
