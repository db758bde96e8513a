//! Which snapshots a policy keeps.
//!
//! Of every stretch of the calendar the newest snapshot counts. So a snapshot that is not the newest of its day
//! is never going to be wanted for that day, and pruning often comes to the same as pruning once.

use super::{Period, Policy};
use crate::units::Timestamp;
use std::fmt;

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
}

/// What becomes of one candidate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Why it stays, all reasons; none if it may go.
    pub reasons: Vec<Reason>,
}

impl Verdict {
    /// Whether nothing keeps it.
    #[must_use]
    pub fn may_go(&self) -> bool {
        self.reasons.is_empty()
    }
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
        }
    }
}

/// Judges the snapshots of one dataset; the verdicts are in the order of the candidates.
///
/// Without any rule everything stays, unless `for_space` says that snapshots go because space is needed: then
/// the newest one stays.
#[must_use]
pub fn choose(policy: &Policy, candidates: &[Candidate], for_space: bool) -> Vec<Verdict> {
    let mut verdicts: Vec<Verdict> = candidates.iter().map(|one| protections(policy, one)).collect();
    // Held and cloned snapshots are snapshots of their day like others. What a rollback took is not.
    let counts = |index: &usize| {
        !verdicts[*index].reasons.contains(&Reason::Protected(Protection::Rollback))
            && !verdicts[*index].reasons.contains(&Reason::OtherName)
    };
    let mut newest_first: Vec<usize> = (0..candidates.len()).filter(counts).collect();
    newest_first.sort_by_key(|index| std::cmp::Reverse((candidates[*index].created, *index)));
    let created = |index: usize| candidates[index].created;

    if !policy.has_rules() {
        for (place, index) in newest_first.into_iter().enumerate() {
            match (for_space, place) {
                (true, 0) => verdicts[index].reasons.push(Reason::NewestOfAll),
                (true, _) => {}
                (false, _) => verdicts[index].reasons.push(Reason::NoPolicy),
            }
        }
        return verdicts;
    }
    for index in newest_first.iter().take(policy.last as usize) {
        verdicts[*index].reasons.push(Reason::Last);
    }
    if let (Some(within), Some(newest)) = (policy.within, newest_first.first()) {
        let nanoseconds = i64::try_from(within.as_nanos()).unwrap_or(i64::MAX);
        let oldest = created(*newest).0.saturating_sub(nanoseconds);
        for index in newest_first.iter().take_while(|index| created(**index).0 >= oldest) {
            verdicts[*index].reasons.push(Reason::Within);
        }
    }
    for (period, count) in &policy.periods {
        let mut kept = 0;
        let mut former = None;
        for index in &newest_first {
            let stretch = period.of(created(*index));
            if former == Some(stretch) {
                continue;
            }
            if kept == *count {
                break;
            }
            kept += 1;
            former = Some(stretch);
            verdicts[*index].reasons.push(Reason::Newest(*period));
        }
    }
    verdicts
}

fn protections(policy: &Policy, candidate: &Candidate) -> Verdict {
    let mut reasons: Vec<Reason> = candidate.protection.iter().cloned().map(Reason::Protected).collect();
    if !candidate.name.starts_with(&policy.prefix) {
        reasons.push(Reason::OtherName);
    }
    Verdict { reasons }
}
