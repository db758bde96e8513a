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

/// What the study printed, then the same runs here.
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
                th class="number" { "With / without" } th { "From" }
            } }
            tbody {
                @for row in &rows { (printed(row)) }
                @for pair in charts::pairs(report) {
                    (measured(pair.system, pair.run, &pair.with.unit, Some(median(&pair.without.samples)), median(&pair.with.samples)))
                }
                @for (name, system) in &report.systems {
                    @let key = Key::of(name);
                    @if rows.iter().any(|row| row.run == key.run && row.without.is_none()) && !system.samples.is_empty() {
                        (measured(key.system, key.run, &system.unit, None, median(&system.samples)))
                    }
                    @if let (Some(before), Some(after)) =
                        (system.counters.get("extents_before"), system.counters.get("extents_after"))
                    {
                        (measured(key.system, "extents", "extents", Some(*before), *after))
                    }
                }
            }
        } }
    }
}

fn measured(system: &str, run: &str, unit: &str, without: Option<f64>, with: f64) -> Markup {
    html! {
        tr {
            td { (system) } td { (run) } td { (unit) }
            td class="number" { @if let Some(without) = without { (number(without)) } }
            td class="number" { (number(with)) }
            td class="number" { @if let Some(without) = without { (number(with / without)) } }
            td { "measured here" }
        }
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
