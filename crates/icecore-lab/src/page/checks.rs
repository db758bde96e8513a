//! The table of checks: what was to be reached, and what was. Checks that are not met look like those that
//! are.

use super::{Document, number};
use crate::report::{Check, Report};
use crate::targets::{self, Direction};
use maud::{Markup, html};

/// How a check ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The whole interval reaches the target.
    Met,
    /// The value reaches the target, and the interval reaches across it.
    NotShown,
    /// The value does not reach the target.
    NotMet,
}

impl Verdict {
    /// The verdict of a check.
    #[must_use]
    pub fn of(check: &Check) -> Self {
        match (check.met, check.direction.met(check.value, check.target)) {
            (true, _) => Self::Met,
            (false, true) => Self::NotShown,
            (false, false) => Self::NotMet,
        }
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Met => ("met", "met"),
            Self::NotShown => ("not-shown", "not shown: the interval crosses the target"),
            Self::NotMet => ("not-met", "not met"),
        }
    }
}

/// Whether the page judges a check. It does not judge times of an emulated machine.
pub(super) fn is_judged(report: &Report, check: &Check) -> bool {
    !(report.is_emulated() && is_time(&check.name))
}

/// Whether the value of a check is a time. Names of such checks end in the unit.
pub(crate) fn is_time(name: &str) -> bool {
    ["_ms", "_s", ".seconds"].iter().any(|unit| name.ends_with(unit))
}

pub(super) fn section(documents: &[Document]) -> Markup {
    html! {
        section id="checks" {
            h2 { "Checks" }
            p {
                "Each check holds a value against a target. It is met when the whole 95 % \
                 interval reaches the target. One round has no interval, and shows its value in place of one. \
                 Times of an emulated machine are not judged."
            }
            div class="wide" { table class="checks" {
                thead { tr {
                    th { "Check" } th { "What it is" } th class="number" { "Value" } th class="number" { "95 % interval" }
                    th class="number" { "Target" } th { "Result" }
                } }
                tbody {
                    @for document in documents {
                        @for check in &document.report.checks { (row(document, check)) }
                    }
                }
            } }
        }
    }
}

fn row(document: &Document, check: &Check) -> Markup {
    let sign = match check.direction {
        Direction::AtMost => "at most ",
        Direction::AtLeast => "at least ",
    };
    let (class, words) = if is_judged(&document.report, check) {
        Verdict::of(check).words()
    } else {
        ("not-judged", "not judged: the machine was emulated")
    };
    let quick = if document.report.quick { " (quick)" } else { "" };
    let one = if document.report.count("rounds") == Some(1) { ", one round" } else { "" };
    html! {
        tr class=(class) data-check=(check.name) {
            td { code { (check.name) } (quick) }
            td { (targets::find(&check.name).map_or("", |target| target.meaning)) }
            td class="number" data-value=(check.value) { (number(check.value)) }
            td class="number" { (number(check.low)) " to " (number(check.high)) (one) }
            td class="number" { (sign) (number(check.target)) }
            td class="verdict" { (words) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::Estimate;

    #[test]
    fn an_interval_across_the_target_is_neither_met_nor_missed() {
        let verdict =
            |value, low, high| Verdict::of(&Check::new("commits.vs_wal", Estimate { value, low, high }));
        assert_eq!(verdict(1.2, 1.1, 1.3), Verdict::Met);
        assert_eq!(verdict(1.2, 0.9, 1.3), Verdict::NotShown);
        assert_eq!(verdict(0.9, 0.8, 1.3), Verdict::NotMet);
    }

    #[test]
    fn checks_of_times_are_known_by_their_names() {
        let times: Vec<&str> =
            targets::TARGETS.iter().map(|target| target.name).filter(|name| is_time(name)).collect();
        assert!(times.contains(&"shock.stall_ms") && times.contains(&"recovery.seconds"), "{times:?}");
        assert!(times.contains(&"history.open_s"), "{times:?}");
        for name in ["shock.lvm_factor", "blog.stalled_periods", "collect.snapshots", "valuation.850"] {
            assert!(!times.contains(&name), "{name} is no time");
        }
    }
}
