//! Retention: which snapshots of a dataset a policy keeps, and which may go.
//!
//! Arithmetic on names and times alone. It knows nothing of pools, so that it can be tested against everything
//! a calendar has to offer, and so that a front end can show what would happen before it does.

mod calendar;
mod choose;
mod policy;
#[cfg(test)]
mod tests;

pub use calendar::Period;
pub use choose::{Candidate, Protection, Reason, Verdict, choose};
pub use policy::{PROPERTY_PREFIX, Policy, check_property, parse_duration};

/// User properties below this are Icecore's own.
pub const RESERVED_PREFIX: &str = "icecore:";

/// What begins the names of the snapshots that a rollback takes by itself.
pub const ROLLBACK_PREFIX: &str = "rollback-";

/// User properties that say how old the newest snapshot of a dataset may be: durations.
pub const MONITOR_PROPERTIES: [&str; 2] = ["icecore:monitor.age-warn", "icecore:monitor.age-crit"];

/// What begins the names of snapshots that are named by the moment at which they were taken.
pub const AUTOMATIC_PREFIX: &str = "auto-";

/// Whether a snapshot of this short name keeps what a dataset held before a rollback. One that was renamed is
/// like any other.
#[must_use]
pub fn is_of_rollback(short: &str) -> bool {
    // Two in a millisecond are told apart by a number at the end.
    short
        .strip_prefix(ROLLBACK_PREFIX)
        .and_then(|rest| rest.split_inclusive('Z').next())
        .is_some_and(|moment| crate::units::Timestamp::from_rfc3339(moment).is_some())
}
