//! Which snapshots a policy keeps: arithmetic on names and times alone, so that it can be tested against
//! everything that a calendar has to offer.
//!
//! Of every stretch of the calendar the newest snapshot counts. So a snapshot that is not the newest of its
//! day is never going to be wanted for that day, and pruning often comes to the same as pruning once.

#[cfg(test)]
mod tests;

use icecore::retention::{Period, Policy};
use icecore::units::{Timestamp, date_of_day};
use std::fmt;

const HOUR_NANOSECONDS: i64 = 3_600_000_000_000;
const DAY_NANOSECONDS: i64 = 24 * HOUR_NANOSECONDS;
/// 1970-01-01 was a Thursday, and weeks begin on Monday.
const DAYS_FROM_MONDAY: i64 = 3;

/// A snapshot that is judged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its short name.
    pub name: String,
    /// When it was taken.
    pub created: Timestamp,
    /// What keeps it whatever the policy says.
    pub protection: Option<Protection>,
}

/// What keeps a snapshot from being pruned at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Holds of these tags.
    Held(Vec<String>),
    /// These datasets were made of it.
    Cloned(Vec<String>),
    /// A rollback took it, to be undone with it.
    Rollback,
}

/// Why a snapshot stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// It must not go.
    Protected(Protection),
    /// One of the newest, as many as the policy says.
    Last,
    /// The newest of its hour, day, week, month or year.
    Newest(Period),
    /// Young enough.
    Within,
    /// Its name does not begin as the policy says.
    OtherName,
    /// The dataset has no policy.
    NoPolicy,
    /// The newest of its dataset stays where there is no policy.
    NewestOfAll,
    /// No rule keeps it, but enough comes back without it.
    EnoughSpace,
    /// It was to go, and something that is in use kept it: what the pool said.
    InUse(String),
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protected(Protection::Held(tags)) => write!(formatter, "held: {}", tags.join(", ")),
            Self::Protected(Protection::Cloned(clones)) => write!(formatter, "cloned: {}", clones.join(", ")),
            Self::Protected(Protection::Rollback) => formatter.write_str("kept by a rollback"),
            Self::Last => formatter.write_str("last"),
            Self::Newest(period) => formatter.write_str(period.name()),
            Self::Within => formatter.write_str("within"),
            Self::OtherName => formatter.write_str("other name"),
            Self::NoPolicy => formatter.write_str("no policy"),
            Self::NewestOfAll => formatter.write_str("newest"),
            Self::EnoughSpace => formatter.write_str("not needed for space"),
            Self::InUse(what) => write!(formatter, "in use: {what}"),
        }
    }
}

/// Judges the snapshots of one dataset: why each of the candidates stays, all reasons; none if it may go.
///
/// Without any rule everything stays, unless `for_space` says that snapshots go because space is needed: then
/// the newest one stays.
pub fn choose(policy: &Policy, candidates: &[Candidate], for_space: bool) -> Vec<Vec<Reason>> {
    let mut reasons: Vec<Vec<Reason>> = candidates.iter().map(|one| protections(policy, one)).collect();
    // Held and cloned snapshots are snapshots of their day like others. What a rollback took is not.
    let counts = |index: &usize| {
        !reasons[*index].contains(&Reason::Protected(Protection::Rollback))
            && !reasons[*index].contains(&Reason::OtherName)
    };
    let mut newest_first: Vec<usize> = (0..candidates.len()).filter(counts).collect();
    newest_first.sort_by_key(|index| std::cmp::Reverse((candidates[*index].created, *index)));
    let created = |index: usize| candidates[index].created;

    if !policy.has_rules() {
        for (place, index) in newest_first.into_iter().enumerate() {
            match (for_space, place) {
                (true, 0) => reasons[index].push(Reason::NewestOfAll),
                (true, _) => {}
                (false, _) => reasons[index].push(Reason::NoPolicy),
            }
        }
        return reasons;
    }
    for index in newest_first.iter().take(policy.last as usize) {
        reasons[*index].push(Reason::Last);
    }
    if let (Some(within), Some(newest)) = (policy.within, newest_first.first()) {
        let nanoseconds = i64::try_from(within.as_nanos()).unwrap_or(i64::MAX);
        let oldest = created(*newest).0.saturating_sub(nanoseconds);
        for index in newest_first.iter().take_while(|index| created(**index).0 >= oldest) {
            reasons[*index].push(Reason::Within);
        }
    }
    for (period, count) in &policy.periods {
        let mut kept = 0;
        let mut former = None;
        for index in &newest_first {
            let current = stretch(*period, created(*index));
            if former == Some(current) {
                continue;
            }
            if kept == *count {
                break;
            }
            kept += 1;
            former = Some(current);
            reasons[*index].push(Reason::Newest(*period));
        }
    }
    reasons
}

/// The number of the stretch that a moment lies in: equal within a stretch, and larger in later ones. All in
/// UTC, so that a pool that moves to another place, or a clock that is put forward in spring, changes nothing
/// about what is kept.
const fn stretch(period: Period, moment: Timestamp) -> i64 {
    let day = moment.0.div_euclid(DAY_NANOSECONDS);
    match period {
        Period::Hour => moment.0.div_euclid(HOUR_NANOSECONDS),
        Period::Day => day,
        Period::Week => (day + DAYS_FROM_MONDAY).div_euclid(7),
        Period::Month => {
            let (year, month, _) = date_of_day(day);
            year * 12 + month
        }
        Period::Year => date_of_day(day).0,
    }
}

fn protections(policy: &Policy, candidate: &Candidate) -> Vec<Reason> {
    let mut reasons: Vec<Reason> = candidate.protection.iter().cloned().map(Reason::Protected).collect();
    if !candidate.name.starts_with(&policy.prefix) {
        reasons.push(Reason::OtherName);
    }
    reasons
}
