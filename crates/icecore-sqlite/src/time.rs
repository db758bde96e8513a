//! Times as text: RFC 3339, UTC, milliseconds. Also fit for the names of snapshots.

use icecore::units::Timestamp;

const NANOSECONDS: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// `2026-11-21T20:01:02.123Z`
pub fn text(time: Timestamp) -> String {
    let seconds = time.get().div_euclid(NANOSECONDS);
    let milliseconds = time.get().rem_euclid(NANOSECONDS) / 1_000_000;
    let (year, month, day) = civil(seconds.div_euclid(DAY_SECONDS));
    let of_day = seconds.rem_euclid(DAY_SECONDS);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// The Gregorian date of a day counted from 1970-01-01. Years are taken to begin in March, so that the leap day
/// comes last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64, milliseconds: i64) -> String {
        text(Timestamp(seconds * NANOSECONDS + milliseconds * 1_000_000))
    }

    #[test]
    fn known_moments() {
        assert_eq!(at(0, 0), "1970-01-01T00:00:00.000Z");
        assert_eq!(at(951_782_399, 999), "2000-02-28T23:59:59.999Z");
        assert_eq!(at(951_782_400, 0), "2000-02-29T00:00:00.000Z");
        assert_eq!(at(1_795_291_262, 123), "2026-11-21T20:01:02.123Z");
        assert_eq!(at(-1, 0), "1969-12-31T23:59:59.000Z");
    }
}
