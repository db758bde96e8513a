//! One result: its charts, the medians of its systems, and what the study printed.

use super::{Document, chart, counts, facts, number};
use crate::chart::Chart;
use crate::charts::{self, Key};
use crate::experiments::EXPERIMENTS;
use crate::published::{self, Published};
use crate::report::{Report, System};
use crate::statistics::{median, quantile};
use maud::{Markup, html};

pub(super) fn section(place: usize, document: &Document, charts: &[Chart]) -> Markup {
    let report = &document.report;
    let about = EXPERIMENTS.iter().find(|one| one.name == report.experiment).map_or("", |one| one.about);
    html! {
        section id={ "study-" (place) } {
            h2 { (report.experiment) }
            p { (about) @if document.name != report.experiment { " (" (document.name) ")" } }
            @for label in charts::labels(report) { p class="label" role="note" { strong { (label) } } }
            @for one in charts.iter().filter(|one| !counts::is_count(one)) { (chart(place, one)) }
            (beside(report))
            (medians(report))
            (facts::conditions(document))
        }
    }
}

/// What the study printed, each figure above the same run here.
fn beside(report: &Report) -> Markup {
    let rows: Vec<&Published> = published::of(&report.experiment).collect();
    if rows.is_empty() {
        return html! {};
    }
    html! {
        h3 { "Published figures beside ours" }
        div class="wide" { table class="beside" {
            thead { tr {
                th { "System" } th { "Run" } th { "What" } th class="number" { "Without" } th class="number" { "With a snapshot" }
                th class="number" { "Times" } th { "From" }
            } }
            tbody {
                @for (place, row) in rows.iter().enumerate() {
                    (printed(row))
                    // Ours follow the last row of a run.
                    @if rows[place + 1..].iter().all(|other| other.run != row.run) { (measured(report, row.run)) }
                }
            }
        } }
    }
}

fn printed(row: &Published) -> Markup {
    html! {
        tr class="published" {
            td { (row.system) } td { (row.run) } td { (row.what) ", " (row.unit) }
            td class="number" { @if let Some(value) = row.without { (number(value)) } }
            td class="number" { @for (place, value) in row.with.iter().enumerate() { @if place > 0 { ", " } (number(*value)) } }
            td class="number" { @if let (Some(without), Some(with)) = (row.without, row.with.first()) { (number(with / without)) } }
            td { span class="badge" { "published" } " " (row.source) }
        }
    }
}

/// Every system that was measured in this run without a snapshot and with one.
fn measured(report: &Report, run: &str) -> Markup {
    let find = |system: &str, snapshots| {
        let wanted = Key { system, run, snapshots: Some(snapshots) };
        report.systems.iter().find(|(name, system)| Key::of(name) == wanted && !system.samples.is_empty())
    };
    let systems = report.systems.keys().map(|name| Key::of(name)).filter(|key| key.run == run);
    let systems = systems.filter(|key| key.snapshots == Some(0)).map(|key| key.system);
    html! {
        @for system in systems {
            @if let (Some((_, without)), Some((_, with))) = (find(system, 0), find(system, 1)) {
                tr {
                    td { (system) } td { (run) } td { (with.unit) }
                    td class="number" { (number(median(&without.samples))) }
                    td class="number" { (number(median(&with.samples))) }
                    td class="number" { (number(median(&with.samples) / median(&without.samples))) }
                    td { "measured here" }
                }
            }
        }
    }
}

fn medians(report: &Report) -> Markup {
    html! {
        details { summary { "Every system: medians and ranges" }
            div class="wide" { table class="medians" {
                thead { tr {
                    th { "System" } th { "Run" } th class="number" { "Median" } th class="number" { "Range" } th { "Unit" }
                    th class="number" { "Runs" } th { "Counters" }
                } }
                tbody { @for (name, system) in &report.systems { (median_row(name, system)) } }
            } }
        }
    }
}

fn median_row(name: &str, system: &System) -> Markup {
    let key = Key::of(name);
    let (samples, runs) = (&system.samples, system.samples.len());
    html! {
        tr data-system=(name) {
            td { (key.system) } td { (key.variant()) }
            @if let Some(reason) = &system.unavailable {
                td colspan="5" { "not measured: " (reason) }
            } @else if samples.is_empty() {
                td colspan="5" { "no samples" }
            } @else {
                td class="number" data-value=(median(samples)) { (number(median(samples))) }
                td class="number" { (number(quantile(samples, 0.0))) " to " (number(quantile(samples, 1.0))) }
                td { (system.unit) } td class="number" { (runs) }
                td class="small" {
                    @for (place, (counter, value)) in system.counters.iter().enumerate() {
                        @if place > 0 { ", " } (counter) " " (number(*value))
                    }
                }
            }
        }
    }
}
