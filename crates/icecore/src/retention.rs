//! Retention: what the names of snapshots and the user properties of datasets say of it. A policy is what
//! they come to, and a prune decides by it.

use crate::error::{Error, Result};
use crate::units::Timestamp;
use std::collections::BTreeMap;
use std::time::Duration;

/// User properties below this are Icecore's own.
pub const RESERVED_PREFIX: &str = "icecore:";

/// What begins the user properties that hold a policy.
pub const PROPERTY_PREFIX: &str = "icecore:prune.";

/// User properties that say how old the newest snapshot of a dataset may be: durations.
pub const MONITOR_PROPERTIES: [&str; 2] = ["icecore:monitor.age-warn", "icecore:monitor.age-crit"];

/// What begins the names of snapshots that are named by the moment at which they were taken.
pub const AUTOMATIC_PREFIX: &str = "auto-";

/// What begins the names of the snapshots that a rollback takes by itself.
pub const ROLLBACK_PREFIX: &str = "rollback-";

/// Whether a snapshot of this short name keeps what a dataset held before a rollback. One that was renamed is
/// like any other.
#[must_use]
pub fn is_of_rollback(short: &str) -> bool {
    // A number at the end distinguishes two in a millisecond.
    short
        .strip_prefix(ROLLBACK_PREFIX)
        .and_then(|rest| rest.split_inclusive('Z').next())
        .is_some_and(|moment| Timestamp::from_rfc3339(moment).is_some())
}

/// A stretch of the calendar of which one snapshot is to stay.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Period {
    /// An hour.
    Hour,
    /// A day.
    Day,
    /// A week, from Monday on.
    Week,
    /// A month.
    Month,
    /// A year.
    Year,
}

impl Period {
    /// Every period, the shortest first.
    pub const ALL: [Self; 5] = [Self::Hour, Self::Day, Self::Week, Self::Month, Self::Year];

    /// As the options and properties have it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hour => "hourly",
            Self::Day => "daily",
            Self::Week => "weekly",
            Self::Month => "monthly",
            Self::Year => "yearly",
        }
    }
}

/// What to keep of a dataset's snapshots. A snapshot stays if any of the rules wants it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// So many of the newest.
    pub last: u32,
    /// Of so many hours, days, weeks, months and years that have snapshots, the newest one each.
    pub periods: BTreeMap<Period, u32>,
    /// All that are at most so much older than the newest one.
    pub within: Option<Duration>,
    /// Only snapshots whose names begin so are touched, and counted.
    pub prefix: String,
}

impl Policy {
    /// Whether any rule keeps anything. A policy that keeps nothing is taken for one that was never made: it
    /// destroys nothing.
    #[must_use]
    pub fn has_rules(&self) -> bool {
        self.last > 0 || self.within.is_some() || self.periods.values().any(|count| *count > 0)
    }

    /// Sets the rule of this name, as in `daily`, from text.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rule that does not exist and for a value that makes no sense.
    pub fn set(&mut self, rule: &str, value: &str) -> Result<()> {
        let period = Period::ALL.into_iter().find(|period| period.name() == rule);
        match (rule, period) {
            (_, Some(period)) => {
                self.periods.insert(period, parse_count(rule, value)?);
            }
            ("last", _) => self.last = parse_count(rule, value)?,
            ("within", _) => {
                let duration =
                    parse_duration(value).map_err(|error| Error::Invalid(format!("{rule}: {error}")))?;
                self.within = Some(duration).filter(|duration| !duration.is_zero());
            }
            ("prefix", _) => value.clone_into(&mut self.prefix),
            _ => {
                return Err(Error::Invalid(format!(
                    "there is no rule {PROPERTY_PREFIX}{rule}: use last, hourly, daily, weekly, monthly, yearly, \
                     within or prefix"
                )));
            }
        }
        Ok(())
    }

    /// The policy that user properties come to; others than those of a policy are passed over.
    ///
    /// # Errors
    /// As for [`Policy::set`]: a rule that cannot be read does not say what it was to keep.
    pub fn of_properties<'a>(properties: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Self> {
        let mut policy = Self::default();
        for (name, value) in properties {
            if let Some(rule) = name.strip_prefix(PROPERTY_PREFIX) {
                policy.set(rule, value)?;
            }
        }
        Ok(policy)
    }
}

/// Checks a user property that would be part of a policy; others pass.
///
/// # Errors
/// As for [`Policy::set`].
pub fn check_property(name: &str, value: &str) -> Result<()> {
    Policy::of_properties([(name, value)]).map(drop)
}

fn parse_count(rule: &str, value: &str) -> Result<u32> {
    value
        .trim()
        .parse()
        .map_err(|_| Error::Invalid(format!("{rule}: {value:?} is not a number of snapshots")))
}

/// Reads a duration: numbers with the units s, m, h, d, w, `mo` (30 days) and y (365 days), as in `7d` or
/// `1d12h`.
///
/// # Errors
/// [`Error::Invalid`].
pub fn parse_duration(text: &str) -> Result<Duration> {
    let wrong = || {
        Error::Invalid(format!(
            "{text:?} is not a duration: write numbers with a unit, s, m, h, d, w, mo or y, as in 90m, 7d or 1d12h"
        ))
    };
    let mut rest = text.trim();
    let mut seconds: u64 = 0;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.find(|character: char| !character.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at(digits);
        let letters = after.find(|character: char| character.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at(letters);
        let unit: u64 = match (unit, number) {
            ("", "0") if after.is_empty() => 1,
            ("s", _) => 1,
            ("m", _) => 60,
            ("h", _) => 3600,
            ("d", _) => 86_400,
            ("w", _) => 7 * 86_400,
            ("mo", _) => 30 * 86_400,
            ("y", _) => 365 * 86_400,
            _ => return Err(wrong()),
        };
        let number: u64 = number.parse().map_err(|_| wrong())?;
        let part = number.checked_mul(unit).ok_or_else(wrong)?;
        seconds = seconds.checked_add(part).ok_or_else(wrong)?;
        rest = after;
    }
    // Beyond that, moments cannot be counted in nanoseconds.
    if seconds > 200 * 365 * 86_400 { Err(wrong()) } else { Ok(Duration::from_secs(seconds)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_rollback_took_is_known_by_its_name() {
        let name = format!("{ROLLBACK_PREFIX}{}", Timestamp(1).to_rfc3339());
        assert!(is_of_rollback(&name) && is_of_rollback(&format!("{name}-2")));
        for name in ["rollback-plan", "rollback-", "my-rollback-1970-01-01T00:00:00.000Z", "Z"] {
            assert!(!is_of_rollback(name), "{name}");
        }
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        let mut policy = Policy::default();
        for (rule, value) in
            [("dayly", "7"), ("daily", "-1"), ("daily", ""), ("within", "7"), ("last", "many")]
        {
            assert!(policy.set(rule, value).is_err(), "{rule}={value}");
        }
        assert!(check_property("icecore:prune.dayly", "7").is_err());
        assert!(check_property("icecore:prune.daily", "7").is_ok());
        assert!(check_property("team:prune.dayly", "7").is_ok());
    }

    #[test]
    fn durations_are_numbers_with_units() {
        for (text, seconds) in [
            ("0", 0),
            ("90m", 5400),
            ("1d12h", 129_600),
            ("2w", 1_209_600),
            ("1mo", 2_592_000),
            ("1y", 31_536_000),
        ] {
            assert_eq!(parse_duration(text).unwrap(), Duration::from_secs(seconds), "{text}");
        }
        for text in [
            "",
            "d",
            "7",
            "1 d",
            "1x",
            "-1d",
            "1.5h",
            "99999999999999999999d",
            "201y",
            "9223372036854775807y",
        ] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn durations_never_panic(text in "\\PC{0,12}|[0-9smhdwoy]{0,12}") {
            let _ = parse_duration(&text);
        }
    }
}
