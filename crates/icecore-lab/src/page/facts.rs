//! Where and when results were measured, what to know before quoting them, and what could not be measured.

use super::{Document, Missing};
use crate::charts::Key;
use crate::figure::short;
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn where_and_when(documents: &[Document]) -> Markup {
    // The time of a flush differs from run to run.
    let machine = |document: &Document| {
        let machine = &document.report.machine;
        let text = machine.to_string();
        text.rsplit_once(", flush").map_or(text.clone(), |(machine, _)| machine.to_owned())
    };
    let machines: BTreeSet<String> = documents.iter().map(machine).collect();
    let days = documents.iter().filter_map(|document| document.report.started.split('T').next());
    let days: BTreeSet<&str> = days.collect();
    html! {
        @for machine in machines { (machine) br; }
        @for day in days { (day) " " }
    }
}

/// The labels of all results, each with the results that it is about.
pub(super) fn labels(documents: &[Document]) -> Markup {
    let mut labels: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for document in documents {
        for label in document.report.labels() {
            labels.entry(label).or_default().push(&document.name);
        }
    }
    html! {
        @for (label, names) in labels {
            p class="label" role="note" {
                strong { (label) }
                @if names.len() < documents.len() { " (" (names.join(", ")) ")" }
            }
        }
    }
}

pub(super) fn unavailable(documents: &[Document], missing: &[Missing]) -> Markup {
    let mut reasons: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for document in documents {
        for (name, system) in &document.report.systems {
            if let Some(reason) = &system.unavailable {
                reasons
                    .entry((Key::of(name).system, reason))
                    .or_default()
                    .insert(&document.report.experiment);
            }
        }
    }
    if reasons.is_empty() && missing.is_empty() {
        return html! {};
    }
    html! {
        section id="unavailable" {
            h2 { "What could not be measured here" }
            div class="wide" { table {
                thead { tr { th { "System or study" } th { "Why" } th { "Missing in" } } }
                tbody {
                    @for ((system, reason), experiments) in &reasons {
                        tr { td { (system) } td { (reason) }
                            td { (experiments.iter().copied().collect::<Vec<_>>().join(", ")) } }
                    }
                    @for one in missing { tr { td { (one.experiment) } td { (one.reason) } td { "the whole study" } } }
                }
            } }
        }
    }
}

/// The machine of a result and what it was asked to do.
pub(super) fn conditions(document: &Document) -> Markup {
    use crate::report::Parameter;
    let report = &document.report;
    let (machine, versions) = (&report.machine, &report.versions);
    let shown = |parameter: &Parameter| match parameter {
        Parameter::Switch(value) => value.to_string(),
        Parameter::Count(value) => value.to_string(),
        Parameter::Number(value) => short(*value),
        Parameter::Text(text) => text.clone(),
    };
    html! {
        details { summary { "Machine, versions and parameters" }
            dl {
                dt { "Machine" } dd { (machine) }
                dt { "Versions" } dd {
                    "icecore " (versions.icecore) " (" (versions.profile) "), SQLite " (versions.sqlite) ", " (versions.rustc)
                }
                dt { "Began" } dd { (report.started) ", took " (short(report.duration_s)) " s" }
                @for (name, parameter) in &report.parameters { dt { code { (name) } } dd { (shown(parameter)) } }
            }
        }
    }
}
