//! Times as text: RFC 3339, UTC, milliseconds. Also fit for the names of snapshots.

use icecore::units::{Timestamp, date_of_day};

const NANOSECONDS: i64 = 1_000_000_000;
const DAY_SECONDS: i64 = 86_400;

/// `2026-11-21T20:01:02.123Z`
pub fn text(time: Timestamp) -> String {
    let seconds = time.get().div_euclid(NANOSECONDS);
    let milliseconds = time.get().rem_euclid(NANOSECONDS) / 1_000_000;
    let (year, month, day) = date_of_day(seconds.div_euclid(DAY_SECONDS));
    let of_day = seconds.rem_euclid(DAY_SECONDS);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
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
