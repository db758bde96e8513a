//! What the numbers say, in sentences that need no knowledge of the field. Every figure in them is computed.

use super::losses::{Loss, losses};
use super::{Document, Missing, Verdict, checks, findings};
use crate::charts::{Key, pairs, title};
use crate::figure::short;
use crate::published;
use crate::report::Report;
use maud::{Markup, html};
use std::collections::{BTreeMap, BTreeSet};

/// The kinds of sentences about one result, in their order.
const KINDS: [fn(&Report) -> Option<String>; 3] = [requests, slowdown, findings::of];

/// What a result says, in sentences. Figures that a study printed are marked as published.
#[must_use]
pub fn sentences(report: &Report) -> Vec<String> {
    KINDS.iter().filter_map(|kind| kind(report)).collect()
}

pub(super) fn section(documents: &[Document], missing: &[Missing]) -> Markup {
    let reports: Vec<&Report> = documents.iter().map(|document| &document.report).collect();
    let mut sentences = Vec::new();
    for kind in KINDS {
        let of = |document| Some(of_document(document, &reports, kind(&document.report)?));
        sentences.extend(documents.iter().filter_map(of));
    }
    sentences.extend(met(&reports));
    let losses = documents.iter().flat_map(|document| losses(name(document, &reports), &document.report));
    let (losses, hidden): (Vec<Loss>, Vec<Loss>) = losses.partition(|loss| loss.is_shown);
    sentences.extend(left_out(&reports, hidden.len()));
    let absent = absent(&reports);
    html! {
        section id="summary" {
            h2 { "Summary" }
            ul class="findings" {
                @for sentence in sentences { li { (sentence) } }
                @if !absent.is_empty() {
                    li { "Not measured here: " (absent.into_iter().collect::<Vec<_>>().join(", ")) ". The reasons are below." }
                }
                @for one in missing { li { "The study " (one.experiment) " has no result: " (one.reason) "." } }
            }
            @if !losses.is_empty() {
                h3 { "Where Icecore loses" }
                p { "By the medians of all runs, and by means of what was counted beside them. The tables below have the ranges." }
                ul class="findings" { @for loss in losses { li { (loss.sentence) } } }
            }
        }
    }
}

/// What the summary calls a result: its experiment, or its own name where it is not the only one of that.
fn name<'document>(document: &'document Document, reports: &[&Report]) -> &'document str {
    let experiment = document.report.experiment.as_str();
    let is_alone = reports.iter().filter(|report| report.experiment == experiment).count() == 1;
    if is_alone { experiment } else { &document.name }
}

/// The sentence, with the name of the result where another one has such a sentence, too.
fn of_document(document: &Document, reports: &[&Report], sentence: String) -> String {
    let name = name(document, reports);
    if name == document.report.experiment { sentence } else { format!("{name}: {sentence}") }
}

/// What the summary does not say because a machine was emulated. `behind`: losses that it does not show.
fn left_out(reports: &[&Report], behind: usize) -> Option<String> {
    let emulated: Vec<&Report> = reports.iter().copied().filter(|report| report.is_emulated()).collect();
    let checks = emulated.iter().flat_map(|report| &report.checks);
    let checks = checks.filter(|check| checks::is_time(&check.name)).count();
    let names: BTreeSet<&str> = emulated.iter().map(|report| report.experiment.as_str()).collect();
    let names = names.into_iter().collect::<Vec<_>>().join(", ");
    (!emulated.is_empty()).then(|| {
        format!(
            "Times and rates of {names} are left out here, because the machine was emulated; checks of \
             times: {checks}; runs in which Icecore is behind: {behind}. The tables below have them."
        )
    })
}

/// How many of the checks are met.
fn met(reports: &[&Report]) -> Option<String> {
    let judged = |report: &&Report| {
        report
            .checks
            .iter()
            .filter(|check| checks::is_judged(report, check))
            .map(Verdict::of)
            .collect::<Vec<_>>()
    };
    let verdicts: Vec<Verdict> = reports.iter().flat_map(judged).collect();
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    let all = verdicts.len();
    (all > 0).then(|| {
        format!(
            "{} of {all} checks are met; not met: {}; not shown, since the interval crosses the target: {}.",
            count(Verdict::Met),
            count(Verdict::NotMet),
            count(Verdict::NotShown)
        )
    })
}

/// The systems of which nothing was measured, in no result. Where a part lacks alone, such as a program for
/// one phase, the table of reasons says so.
fn absent<'report>(reports: &[&'report Report]) -> BTreeSet<&'report str> {
    let mut all: BTreeMap<&'report str, bool> = BTreeMap::new();
    for &report in reports {
        for (name, system) in &report.systems {
            let is_absent = all.entry(Key::of(name).system).or_insert(true);
            *is_absent &= system.unavailable.is_some();
        }
    }
    all.into_iter().filter(|(_, is_absent)| *is_absent).map(|(name, _)| title(name)).collect()
}

/// Write requests for each write with one snapshot, the fewest first.
fn requests(report: &Report) -> Option<String> {
    const WRITES: &str = "device_writes_per_op";
    let mut counts: Vec<(f64, &str)> = Vec::new();
    for (name, system) in &report.systems {
        let (key, count) = (Key::of(name), system.counters.get(WRITES));
        if let (Some(count), "sync", Some(1)) = (count, key.run, key.snapshots) {
            counts.push((*count, title(key.system)));
        }
    }
    counts.sort_by(|one, other| one.0.total_cmp(&other.0));
    let list: Vec<String> = counts.iter().map(|(count, name)| format!("{name} {}", short(*count))).collect();
    (!list.is_empty()).then(|| {
        format!("Write requests to the disk for each durable write, one snapshot kept: {}.", list.join(", "))
    })
}

/// How much slower a snapshot makes Icecore, the others, and what a study printed.
fn slowdown(report: &Report) -> Option<String> {
    let mut worst: BTreeMap<&str, f64> = BTreeMap::new();
    for pair in pairs(report) {
        let known = worst.entry(pair.system).or_insert(pair.factor());
        *known = known.max(pair.factor());
    }
    if worst.is_empty() {
        return None;
    }
    let list: Vec<String> =
        worst.iter().map(|(name, factor)| format!("{} {}", title(name), short(*factor))).collect();
    let printed = published::factors(&report.experiment);
    let most = printed.iter().max_by(|one, other| one.factor.total_cmp(&other.factor));
    let printed = most.map_or_else(String::new, |most| {
        format!(
            " A study printed {} for {} (published, another machine).",
            short(most.factor),
            title(most.system)
        )
    });
    let experiment = &report.experiment;
    Some(format!(
        "In {experiment}, a snapshot makes the work slower by these factors at worst: {}.{printed}",
        list.join(", ")
    ))
}
