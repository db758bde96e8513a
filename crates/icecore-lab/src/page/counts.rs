//! What a write costs the device. Counts come before any time: they do not depend on noise.

use super::{Document, cell, chart};
use crate::chart::Chart;
use crate::charts::device::{COUNTERS, DURABLE, counted, elsewhere, source};
use crate::charts::{Key, run_title, snapshots};
use crate::published;
use crate::report::System;
use maud::{Markup, html};

pub(super) fn section(documents: &[Document], charts: &[Vec<Chart>]) -> Markup {
    let with_counts: Vec<(usize, &Document)> =
        documents.iter().enumerate().filter(|(_, document)| rows(document).next().is_some()).collect();
    if with_counts.is_empty() {
        return html! {};
    }
    html! {
        section id="counts" {
            h2 { "What a write costs the device" }
            p {
                "Requests, bytes and flushes that the device does for each 16 KiB write of a program. \
                 In randomio they are for each request of 4 KiB, and four of five of these are reads. \
                 Counts do not depend on the speed of the machine. The device of plain is the whole disk, \
                 which counts what other programs do, too; the other systems have a device of their own."
            }
            @for (place, document) in with_counts {
                @if documents.len() > 1 { h3 { (document.name) } }
                (tables(document))
                div class="grid" {
                    @for one in charts[place].iter().filter(|one| is_count(one)) { (chart(place, one)) }
                }
            }
        }
    }
}

/// Whether a chart belongs to this section.
pub(super) fn is_count(chart: &Chart) -> bool {
    chart.id.starts_with("device-")
}

fn rows(document: &Document) -> impl Iterator<Item = (&String, &System)> {
    let has_counts = |(_, system): &(&String, &System)| system.counters.contains_key(COUNTERS[2].0);
    document.report.systems.iter().filter(has_counts)
}

/// The table of the run whose charts are drawn; those of the other runs fold.
fn tables(document: &Document) -> Markup {
    let mut runs: Vec<&str> = rows(document).map(|(name, _)| Key::of(name).run).collect();
    runs.sort_by_key(|run| (*run != DURABLE, *run));
    runs.dedup();
    let (first, others) = runs.split_first().map_or(("", &[][..]), |(first, others)| (*first, others));
    let titles: Vec<String> = others.iter().map(|run| run_title(run)).collect();
    html! {
        (table(document, first))
        @if !others.is_empty() {
            details { summary { "Other runs: " (titles.join(", ")) }
                @for run in others { (table(document, run)) }
            }
        }
    }
}

/// The rows of a run, the fewest snapshots first.
fn rows_of<'a>(document: &'a Document, run: &str) -> Vec<(Key<'a>, &'a System)> {
    let keyed = rows(document).map(|(name, system)| (Key::of(name), system));
    let mut rows: Vec<(Key<'a>, &System)> = keyed.filter(|(key, _)| key.run == run).collect();
    rows.sort_by_key(|(key, _)| (key.snapshots, key.system));
    rows
}

/// Beside what a model predicts stands what was counted.
fn table(document: &Document, run: &str) -> Markup {
    let report = &document.report;
    html! {
        div class="wide" { table class="counts" {
            thead { tr {
                th { "System" } th { "Run" }
                @for (_, what) in COUNTERS { th class="number" { (what) } }
            } }
            tbody {
                @for (key, system) in rows_of(document, run) {
                    tr { td { (key.system) } td { (key.variant()) } (cells(system, str::to_owned)) }
                    @if system.counters.contains_key(&counted(COUNTERS[2].0)) {
                        tr class="published" {
                            td { (key.system) } td { (key.variant()) ", " (source(report)) }
                            (cells(system, counted))
                        }
                    }
                }
                @for count in elsewhere(report).filter(|_| run == DURABLE) {
                    tr class="published" {
                        td { (count.system) } td { "durable, " (snapshots(count.snapshots)) ", " (published::GUEST) }
                        @for value in count.values { (cell(Some(value))) }
                    }
                }
            }
        } }
    }
}

fn cells(system: &System, name: impl Fn(&str) -> String) -> Markup {
    html! {
        @for (counter, _) in COUNTERS {
            (cell(system.counters.get(&name(counter)).copied()))
        }
    }
}
