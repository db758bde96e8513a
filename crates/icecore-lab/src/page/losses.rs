//! Where Icecore loses: runs in which another system has a better figure than one of Icecore's.

use crate::charts::{Key, is_icecore, is_rate, is_time, title};
use crate::figure::short;
use crate::report::{Report, System};
use crate::statistics::median;
use std::collections::BTreeMap;

/// Counters of which less is better: name, what it says, unit. Those of requests have charts of their own.
const COUNTERS: [(&str, &str, &str); 6] = [
    ("longest_gap_ms", "longest gap", "ms"),
    ("freed_after_s", "freed after the destruction", "s"),
    ("extents_after", "after the updates", "extents"),
    ("lost_snapshots", "lost", "snapshots"),
    ("lost_blocks", "lost", "blocks"),
    (HELD, "held by the snapshot", "bytes"),
];
const HELD: &str = "held_bytes";

pub(super) struct Loss {
    pub sentence: String,
    /// Whether the summary says it. Times of an emulated machine mean nothing.
    pub is_shown: bool,
}

/// What is compared between systems.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Subject<'report> {
    run: &'report str,
    snapshots: Option<u64>,
    /// Empty for the samples of a run.
    counter: &'static str,
    unit: &'report str,
}

/// A figure of each system.
type Figures<'report> = Vec<(&'report str, f64)>;

/// Those of a result, which `name` says.
pub(super) fn losses(name: &str, report: &Report) -> Vec<Loss> {
    let mut subjects: BTreeMap<Subject<'_>, Figures<'_>> = BTreeMap::new();
    for (key, system) in report.systems.iter().filter(|(_, system)| !system.samples.is_empty()) {
        let Key { system: of, run, snapshots } = Key::of(key);
        for (counter, unit, value) in figures(system) {
            subjects.entry(Subject { run, snapshots, counter, unit }).or_default().push((of, value));
        }
    }
    let of_subject = |(subject, figures): (Subject<'_>, Figures<'_>)| {
        let is_shown = !(report.is_emulated() && is_time(subject.unit));
        let (ours, others): (Figures<'_>, Figures<'_>) =
            figures.into_iter().partition(|(name, _)| is_icecore(name));
        ours.into_iter()
            .filter_map(|one| loss(name, &subject, one, &others))
            .map(|sentence| Loss { sentence, is_shown })
            .collect::<Vec<_>>()
    };
    subjects.into_iter().flat_map(of_subject).collect()
}

fn figures(system: &System) -> Vec<(&'static str, &str, f64)> {
    // A system that holds nothing keeps no snapshot.
    let is_kept = |(name, value): (&str, &f64)| name != HELD || *value > 0.0;
    let counted = COUNTERS.iter().filter_map(|(name, words, unit)| {
        let value = system.counters.get(*name).filter(|value| is_kept((name, value)))?;
        Some((*words, *unit, *value))
    });
    std::iter::once(("", system.unit.as_str(), median(&system.samples))).chain(counted).collect()
}

fn loss(
    result: &str,
    subject: &Subject<'_>,
    (name, ours): (&str, f64),
    others: &[(&str, f64)],
) -> Option<String> {
    let Subject { run, snapshots, counter, unit } = *subject;
    let is_ahead = |other: f64| if is_rate(unit) { other > ours } else { other < ours };
    let ahead: Vec<String> = others
        .iter()
        .filter(|(_, other)| is_ahead(*other))
        .map(|(name, other)| format!("{} {}", title(name), short(*other)))
        .collect();
    let variant = Key { system: "", run, snapshots }.variant();
    let subject = [result, &variant, counter, unit].into_iter().filter(|word| !word.is_empty());
    (!ahead.is_empty()).then(|| {
        format!(
            "{}: {} is behind with {}; ahead of it: {}.",
            subject.collect::<Vec<_>>().join(", "),
            title(name),
            short(ours),
            ahead.join(", ")
        )
    })
}
