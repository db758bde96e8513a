//! Choosing by policies: known cases, and what must hold for every history.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;

const HOUR: i64 = 3_600_000_000_000;

fn moment(text: &str) -> Timestamp {
    Timestamp::from_rfc3339(text).unwrap()
}

fn at(name: &str, created: Timestamp) -> Candidate {
    Candidate { name: name.to_owned(), created, protection: None }
}

/// One candidate per hour, from so many hours after the epoch on.
fn hourly(first: i64, count: i64) -> Vec<Candidate> {
    (first..first + count).map(|hour| at(&format!("auto-{hour}"), Timestamp(hour * HOUR))).collect()
}

fn policy(rules: &[(&str, &str)]) -> Policy {
    let mut policy = Policy::default();
    for (rule, value) in rules {
        policy.set(rule, value).unwrap();
    }
    policy
}

fn kept(policy: &Policy, candidates: &[Candidate]) -> Vec<String> {
    let reasons = choose(policy, candidates, false);
    let kept = candidates.iter().zip(reasons).filter(|(_, reasons)| !reasons.is_empty());
    kept.map(|(candidate, _)| candidate.name.clone()).collect()
}

#[test]
fn stretches_begin_where_the_calendar_says() {
    let number = |period: Period, text: &str| stretch(period, moment(text));
    // Sunday to Monday; 2026-11-23 is a Monday.
    assert_eq!(
        number(Period::Week, "2026-11-22T23:59:59Z") + 1,
        number(Period::Week, "2026-11-23T00:00:00Z")
    );
    assert_eq!(number(Period::Week, "2026-11-23T00:00:00Z"), number(Period::Week, "2026-11-29T23:59:59Z"));
    // A week may belong to two years.
    assert_eq!(number(Period::Week, "2026-12-31T00:00:00Z"), number(Period::Week, "2027-01-01T00:00:00Z"));
    assert_eq!(
        number(Period::Month, "2026-12-31T23:59:59Z") + 1,
        number(Period::Month, "2027-01-01T00:00:00Z")
    );
    assert_eq!(
        number(Period::Month, "2024-02-29T23:59:59Z") + 1,
        number(Period::Month, "2024-03-01T00:00:00Z")
    );
    assert_eq!(
        number(Period::Year, "1969-12-31T23:59:59Z") + 1,
        number(Period::Year, "1970-01-01T00:00:00Z")
    );
    assert_eq!(number(Period::Hour, "1969-12-31T23:59:59Z"), -1);
    assert_eq!(
        number(Period::Day, "2026-03-29T01:00:00Z"),
        number(Period::Day, "2026-03-29T23:00:00Z"),
        "no clock is put forward in UTC"
    );
}

#[test]
fn of_every_stretch_the_newest_stays() {
    // Three days of hours from 1970-01-02 on.
    let candidates = hourly(24, 72);
    assert_eq!(kept(&policy(&[("daily", "2")]), &candidates), ["auto-71", "auto-95"]);
    assert_eq!(kept(&policy(&[("daily", "9")]), &candidates), ["auto-47", "auto-71", "auto-95"]);
    assert_eq!(kept(&policy(&[("last", "2")]), &candidates), ["auto-94", "auto-95"]);
    assert_eq!(kept(&policy(&[("within", "2h")]), &candidates), ["auto-93", "auto-94", "auto-95"]);
    assert_eq!(kept(&policy(&[("hourly", "1"), ("yearly", "3")]), &candidates), ["auto-95"]);
    assert_eq!(
        kept(&policy(&[("hourly", "2"), ("daily", "2")]), &candidates),
        ["auto-71", "auto-94", "auto-95"]
    );
}

#[test]
fn stretches_without_snapshots_do_not_count() {
    let candidates = [
        at("a", moment("2020-05-01T10:00:00Z")),
        at("b", moment("2024-01-01T00:00:00Z")),
        at("c", moment("2026-01-01T00:00:00Z")),
    ];
    assert_eq!(kept(&policy(&[("daily", "2")]), &candidates), ["b", "c"]);
    assert_eq!(kept(&policy(&[("yearly", "3")]), &candidates), ["a", "b", "c"]);
}

#[test]
fn a_policy_without_rules_destroys_nothing() {
    let candidates = hourly(0, 5);
    for rules in [&[][..], &[("daily", "0")], &[("within", "0")], &[("prefix", "auto-")]] {
        assert_eq!(kept(&policy(rules), &candidates).len(), 5, "{rules:?}");
    }
    let reasons = choose(&Policy::default(), &candidates, true);
    assert_eq!(reasons.iter().filter(|reasons| reasons.is_empty()).count(), 4);
    assert_eq!(reasons[4], [Reason::NewestOfAll]);
}

#[test]
fn protected_snapshots_and_other_names_stay() {
    let mut candidates = hourly(0, 4);
    candidates[0].protection = Some(Protection::Held(vec!["audit".into()]));
    candidates[1].protection = Some(Protection::Cloned(vec!["try".into()]));
    candidates.push(Candidate {
        protection: Some(Protection::Rollback),
        ..at("rollback-1970-01-01T09:00:00.000Z", Timestamp(9 * HOUR))
    });
    candidates.push(at("before-upgrade", Timestamp(10 * HOUR)));
    let policy = policy(&[("last", "1"), ("prefix", "auto-")]);
    let text: Vec<String> = choose(&policy, &candidates, false)
        .iter()
        .map(|reasons| reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        .collect();
    assert_eq!(text[..3], ["held: audit", "cloned: try", ""]);
    // What a rollback took and what has another name is not counted among the last.
    assert_eq!(text[3], "last");
    assert_eq!(text[4], "kept by a rollback, other name");
    assert_eq!(text[5], "other name");
}

fn any_policy() -> impl Strategy<Value = Policy> {
    let counts = proptest::collection::vec(0u32..5, 6);
    (counts, proptest::option::of(1u64..200)).prop_map(|(counts, hours)| Policy {
        last: counts[5],
        periods: Period::ALL.into_iter().zip(counts).collect(),
        within: hours.map(|hours| Duration::from_secs(hours * 3600)),
        prefix: String::new(),
    })
}

/// Times some minutes to some weeks apart.
fn any_history() -> impl Strategy<Value = Vec<Candidate>> {
    let steps = proptest::collection::vec(prop_oneof![1i64..180, 60i64..10_000, 1000i64..100_000], 0..60);
    (steps, -40_000_000i64..40_000_000).prop_map(|(steps, start)| {
        let mut minute = start;
        let next = steps.into_iter().enumerate().map(|(index, step)| {
            minute += step;
            at(&format!("s{index}"), Timestamp(minute * 60_000_000_000))
        });
        next.collect()
    })
}

fn cases() -> ProptestConfig {
    let cases = std::env::var("ICECORE_TEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(256);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    /// Each rule by its definition, counted the slow way.
    #[test]
    fn reasons_are_what_the_rules_say(policy in any_policy(), history in any_history()) {
        let found = choose(&policy, &history, false);
        let newest = history.last().map_or(0, |one| one.created.0);
        for (index, (one, reasons)) in history.iter().zip(&found).enumerate() {
            let newer = &history[index + 1..];
            let mut expected = BTreeSet::new();
            if newer.len() < policy.last as usize {
                expected.insert("last");
            }
            if policy.within.is_some_and(|within| newest - one.created.0 <= within.as_nanos() as i64) {
                expected.insert("within");
            }
            for (period, count) in &policy.periods {
                let mine = stretch(*period, one.created);
                let later: BTreeSet<i64> = newer.iter().map(|other| stretch(*period, other.created)).collect();
                if !later.contains(&mine) && later.len() < *count as usize {
                    expected.insert(period.name());
                }
            }
            if !policy.has_rules() {
                expected.insert("no policy");
            }
            let texts: Vec<String> = reasons.iter().map(ToString::to_string).collect();
            prop_assert_eq!(texts.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected);
        }
    }

    /// Pruning after every snapshot leaves what pruning once at the end leaves.
    #[test]
    fn pruning_often_is_pruning_once(policy in any_policy(), history in any_history()) {
        let mut often: Vec<Candidate> = Vec::new();
        for one in &history {
            often.push(one.clone());
            let mut reasons = choose(&policy, &often, false).into_iter();
            often.retain(|_| !reasons.next().unwrap().is_empty());
        }
        let names: Vec<String> = often.iter().map(|one| one.name.clone()).collect();
        prop_assert_eq!(names, kept(&policy, &history));
    }

    /// The newest stays, a larger policy keeps more, and the order of the candidates is of no importance.
    #[test]
    fn policies_are_monotone(policy in any_policy(), history in any_history()) {
        let few: BTreeSet<String> = kept(&policy, &history).into_iter().collect();
        if let Some(newest) = history.last() {
            prop_assert!(few.contains(&newest.name));
        }
        if policy.has_rules() {
            let mut larger = policy.clone();
            larger.last += 1;
            larger.periods.values_mut().for_each(|count| *count += 1);
            let many: BTreeSet<String> = kept(&larger, &history).into_iter().collect();
            prop_assert!(few.is_subset(&many));
        }
        let backwards: Vec<Candidate> = history.iter().rev().cloned().collect();
        prop_assert_eq!(kept(&policy, &backwards).into_iter().collect::<BTreeSet<_>>(), few);
    }
}
