//! What a snapshot does to the writers in the moment in which it is taken.

use super::{cell, number};
use crate::charts::Key;
use crate::report::{Report, System};
use maud::{Markup, html};

/// The counter that every run with a snapshot in its midst has.
const DIP: &str = "dip";

/// How deep the rate falls, how long that lasts, and the longest gaps. The least of a run comes first.
pub(super) fn table(report: &Report) -> Markup {
    let mut rows: Vec<(Key<'_>, &System, f64)> = Vec::new();
    for (name, system) in &report.systems {
        rows.extend(system.counters.get(DIP).map(|dip| (Key::of(name), system, *dip)));
    }
    if rows.is_empty() {
        return html! {};
    }
    rows.sort_by(|(key, _, dip), (other, _, other_dip)| {
        key.run.cmp(other.run).then(dip.total_cmp(other_dip))
    });
    html! {
        h3 { "When the snapshot is taken" }
        div class="wide" { table class="moment" {
            thead { tr {
                th { "System" } th { "Run" }
                th class="number" { "Part of the rate that the worst second lacks" }
                th class="number" { "Back at 95 % after, s" }
                th class="number" { "Longest gap before, ms" }
                th class="number" { "Longest gap around it, ms" }
            } }
            tbody {
                @for (key, system, dip) in &rows {
                    tr data-moment=(key.system) {
                        td { (key.system) } td { (key.variant()) } (cell(Some(*dip)))
                        td class="number" { (recovery(system)) }
                        @for name in ["gap_before_ms", "longest_gap_ms"] {
                            (cell(system.counters.get(name).copied()))
                        }
                    }
                }
            }
        } }
    }
}

/// The mean of the rounds in which the rate came back, and in how many it did not.
fn recovery(system: &System) -> Markup {
    let lost = system.counters.get("unrecovered").copied().unwrap_or(0.0);
    html! {
        @if let Some(seconds) = system.counters.get("recovery_s") { (number(*seconds)) " " }
        @if lost > 0.0 { "not in " (lost) " of " (system.samples.len()) " rounds" }
    }
}
