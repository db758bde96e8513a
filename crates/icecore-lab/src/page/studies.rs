//! One result: its charts, the medians of its systems, and what the study printed.

use super::{Document, beside, chart, counts, facts, moment, number};
use crate::chart::Chart;
use crate::charts::Key;
use crate::experiments::EXPERIMENTS;
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
            @for label in report.labels() { p class="label" role="note" { strong { (label) } } }
            @for one in charts.iter().filter(|one| !counts::is_count(one)) { (chart(place, one)) }
            (moment::table(report))
            (beside::table(report))
            (medians(report))
            (facts::conditions(document))
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
