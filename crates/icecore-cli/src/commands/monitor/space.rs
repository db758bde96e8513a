//! Room: what is used, and what can still be written.

use super::check::{Check, State};
use super::thresholds::Thresholds;
use crate::format::size;
use icecore::Statistics;
use icecore::units::ByteLength;
use std::path::Path;

/// Of what a limit of space leaves free, such a part has to be there to be written: a pool that does no
/// better than this is about to refuse writing.
const WARN_PART: u64 = 4;
/// As [`WARN_PART`], for what is critical.
const CRIT_PART: u64 = 10;

/// What is used and what can be written, each as a share of what the pool may grow to. `host_free`: what its
/// filesystem has left. `is_held`: destroying snapshots would free something.
pub fn space(
    statistics: &Statistics,
    thresholds: &Thresholds,
    host_free: Option<u64>,
    is_held: bool,
) -> Check {
    let (used, capacity) = (statistics.used_bytes, statistics.capacity_bytes);
    let available = statistics.available_bytes;
    let (warn, crit) = (share(capacity, thresholds.space_warn), share(capacity, thresholds.space_crit));
    let least = |limit: u64, part: u64| capacity.saturating_sub(limit) / part;
    let (low, lowest) = (least(warn, WARN_PART), least(crit, CRIT_PART));
    let by_used = judge(used >= crit, used >= warn);
    let by_available = judge(available == 0 || available < lowest, available < low);
    let state = by_used.worse(by_available);
    let shown = |bytes| size(ByteLength(bytes));
    let hundredths = if capacity == 0 { 10_000 } else { u128::from(used) * 10_000 / u128::from(capacity) };
    let mut text = format!(
        "{}.{:02}% used ({} of {}), {} can be written",
        hundredths / 100,
        hundredths % 100,
        shown(used),
        shown(capacity),
        shown(available)
    );
    if by_available != State::Ok
        && let Some(free) = host_free
    {
        text.push_str(&format!(", and its filesystem has {} left", shown(free)));
    }
    if state != State::Ok {
        let destroy = is_held.then(|| "icecore prune or destroy frees space".to_owned());
        let resize = (statistics.size_limit_bytes != 0).then(|| {
            let limit = shown(statistics.size_limit_bytes);
            format!("icecore resize changes the size limit of {limit}")
        });
        let ways: Vec<String> = destroy.into_iter().chain(resize).collect();
        if !ways.is_empty() {
            text.push_str(&format!(" ({})", ways.join(", and ")));
        }
    }
    let check = Check::new("space", state, text)
        .with("used", used, "B", [warn.to_string(), crit.to_string()])
        .with("capacity", capacity, "B", ["", ""])
        // A limit from below, as Nagios writes it.
        .with("available", available, "B", [format!("{low}:"), format!("{}:", lowest.max(1))]);
    if state == State::Ok {
        check
    } else {
        check.next("icecore list -t all -o name,used,refer,avail -S used -P")
    }
}

/// What the filesystem of a folder has left for this user.
pub fn host_free(folder: &Path) -> Option<u64> {
    let status = rustix::fs::statvfs(folder).ok()?;
    Some(status.f_bavail.saturating_mul(status.f_frsize))
}

const fn judge(critical: bool, warning: bool) -> State {
    match (critical, warning) {
        (true, _) => State::Critical,
        (false, true) => State::Warning,
        (false, false) => State::Ok,
    }
}

fn share(bytes: u64, hundredths: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(hundredths) / 10_000).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::thresholds::Limits;
    use super::*;

    const GIB: u64 = 1 << 30;

    fn judged(used: u64, available: u64) -> Check {
        let thresholds = Thresholds {
            space_warn: 8000,
            space_crit: 9000,
            ages: Limits::default(),
            scrub: Limits::default(),
        };
        let statistics = Statistics {
            used_bytes: used * GIB,
            capacity_bytes: 1000 * GIB,
            available_bytes: available * GIB,
            ..Statistics::default()
        };
        space(&statistics, &thresholds, Some(5 * GIB), true)
    }

    #[test]
    fn what_can_be_written_counts_as_well_as_what_is_used() {
        for (used, available, state) in [
            (300, 700, State::Ok),
            (300, 50, State::Ok),
            (300, 49, State::Warning),
            (300, 10, State::Warning),
            (300, 9, State::Critical),
            (300, 0, State::Critical),
            (800, 200, State::Warning),
            (900, 100, State::Critical),
        ] {
            assert_eq!(judged(used, available).state, state, "{used} {available}");
        }
        let check = judged(300, 20);
        assert!(check.text.contains("20G can be written, and its filesystem has 5G left"), "{}", check.text);
        let limits = format!("'available'={}B;{}:;{}:", 20 * GIB, 50 * GIB, 10 * GIB);
        assert!(check.perfdata.contains(&limits), "{:?}", check.perfdata);
    }

    #[test]
    fn a_size_limit_is_named_where_it_may_be_what_was_met() {
        let thresholds = Thresholds {
            space_warn: 8000,
            space_crit: 9000,
            ages: Limits::default(),
            scrub: Limits::default(),
        };
        let text_with = |used_bytes, size_limit_bytes, is_held| {
            let available_bytes = 100 * GIB - used_bytes;
            let capacity_bytes = 100 * GIB;
            let statistics = Statistics {
                used_bytes,
                capacity_bytes,
                available_bytes,
                size_limit_bytes,
                ..Statistics::default()
            };
            space(&statistics, &thresholds, None, is_held).text
        };
        let text = |used_bytes, size_limit_bytes| text_with(used_bytes, size_limit_bytes, true);
        let full = text(100 * GIB, 101 * GIB);
        assert!(full.ends_with(", and icecore resize changes the size limit of 101G)"), "{full}");
        assert!(text(100 * GIB, 0).ends_with("(icecore prune or destroy frees space)"));
        assert!(!text(GIB, 101 * GIB).contains("resize"));
        let nothing_to_destroy = text_with(100 * GIB, 101 * GIB, false);
        assert!(nothing_to_destroy.contains("(icecore resize"), "{nothing_to_destroy}");
        assert!(text_with(100 * GIB, 0, false).ends_with("can be written"));
    }

    #[test]
    fn a_pool_that_can_grow_to_nothing_is_critical() {
        let thresholds = Thresholds {
            space_warn: 8000,
            space_crit: 9000,
            ages: Limits::default(),
            scrub: Limits::default(),
        };
        assert_eq!(space(&Statistics::default(), &thresholds, None, false).state, State::Critical);
    }
}
