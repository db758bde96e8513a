//! A policy: what is to be kept, as options and user properties say it.

use super::Period;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::time::Duration;

/// What begins the user properties that hold a policy.
pub const PROPERTY_PREFIX: &str = "icecore:prune.";

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
    /// Whether any rule keeps anything. A policy that keeps nothing is taken for one that nobody has made: it
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
    /// As for [`Policy::set`]: of a rule that cannot be read nobody knows what it was to keep.
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

/// Reads a duration: numbers with the units s, m, h, d, w, `mo` (30 days) and y (365 days), as in `7d` or `1d12h`.
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
