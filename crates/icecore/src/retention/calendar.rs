//! Hours, days, weeks, months and years. All in UTC, so that a pool that moves to another place, or a clock
//! that is put forward in spring, changes nothing about what is kept.

use crate::units::{Timestamp, date_of_day};

const HOUR_NANOSECONDS: i64 = 3_600_000_000_000;
const DAY_NANOSECONDS: i64 = 24 * HOUR_NANOSECONDS;
/// 1970-01-01 was a Thursday, and weeks begin on Monday.
const DAYS_FROM_MONDAY: i64 = 3;

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

    /// The number of the stretch that a moment lies in: equal within a stretch, and larger in later ones.
    #[must_use]
    pub const fn of(self, moment: Timestamp) -> i64 {
        let day = moment.0.div_euclid(DAY_NANOSECONDS);
        match self {
            Self::Hour => moment.0.div_euclid(HOUR_NANOSECONDS),
            Self::Day => day,
            Self::Week => (day + DAYS_FROM_MONDAY).div_euclid(7),
            Self::Month => {
                let (year, month, _) = date_of_day(day);
                year * 12 + month
            }
            Self::Year => date_of_day(day).0,
        }
    }
}
