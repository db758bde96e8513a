//! Quantities and times as text, and back.

pub use icecore::admin::escape::escaped;
use icecore::units::{ByteLength, Timestamp};

/// Suffixes of 1024 to the power of 1, 2, ...
const UNITS: [char; 6] = ['K', 'M', 'G', 'T', 'P', 'E'];

/// A size as `zfs` shows it: at most five characters, `512B`, `1.50K`, `12.3M`, `1024K`; whole multiples
/// without a fraction.
pub fn size(bytes: ByteLength) -> String {
    let bytes = bytes.get();
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let power = (63 - bytes.leading_zeros()) / 10;
    let unit = UNITS[power as usize - 1];
    let whole = bytes >> (10 * power);
    if bytes == whole << (10 * power) {
        return format!("{whole}{unit}");
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = bytes as f64 / (1u64 << (10 * power)) as f64;
    (0..=2usize)
        .rev()
        .map(|digits| format!("{value:.digits$}{unit}"))
        .find(|text| text.len() <= 5)
        .unwrap_or_else(|| format!("{value:.0}{unit}"))
}

/// Reads a size: a number, perhaps with a fraction, and K, M, G, T, P or E for powers of 1024 (`64M`,
/// `1.5GiB`).
pub fn parse_size(text: &str) -> Result<ByteLength, String> {
    let wrong = || format!("{text:?} is not a size: write bytes, or a number with K, M, G, T, P or E");
    let upper = text.trim().to_ascii_uppercase();
    let number_length = upper.find(|character: char| !character.is_ascii_digit() && character != '.');
    let (number, suffix) = upper.split_at(number_length.unwrap_or(upper.len()));
    let suffix = suffix.strip_suffix("IB").or(suffix.strip_suffix('B')).unwrap_or(suffix);
    let factor = match suffix.chars().next() {
        None => 1u64,
        Some(unit) if suffix.len() == 1 => {
            let power = UNITS.iter().position(|known| *known == unit).ok_or_else(wrong)?;
            1 << (10 * (power + 1))
        }
        Some(_) => return Err(wrong()),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let bytes = whole.checked_mul(factor).ok_or_else(|| format!("{text:?} is more than can be counted"))?;
    if fraction.is_empty() {
        return Ok(ByteLength(bytes));
    }
    let part: f64 = format!("0.{fraction}").parse().map_err(|_| wrong())?;
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "0 <= part < 1"
    )]
    let extra = (part * factor as f64).round() as u64;
    bytes.checked_add(extra).map(ByteLength).ok_or_else(wrong)
}

/// As [`parse_size`], where a number alone would be taken for something else than bytes: it has to have a
/// unit. `also`: what may have been meant besides.
pub fn parse_size_with_unit(text: &str, also: &str) -> Result<ByteLength, String> {
    let text = text.trim();
    let size = parse_size(text)?;
    if text.ends_with(|last: char| last.is_ascii_digit() || last == '.') {
        return Err(format!("{text} has no unit: write {also}{text}G, or {text}B if bytes are meant"));
    }
    Ok(size)
}

/// Reads a share, as in `20%` or `2.5%`, in hundredths of a per cent.
pub fn parse_share(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is not a share: write 0% to 100%");
    let number = text.trim().strip_suffix('%').ok_or_else(wrong)?.trim();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 2 {
        return Err(wrong());
    }
    let share: u64 = format!("{whole}{fraction:0<2}").parse().map_err(|_| wrong())?;
    if share > 10_000 { Err(wrong()) } else { Ok(share) }
}

/// A time in RFC 3339, UTC, to the second.
pub fn time(timestamp: Timestamp) -> String {
    with_precision(timestamp, 0)
}

/// A time in RFC 3339, UTC, to the nanosecond: two snapshots a moment apart stay apart.
pub fn exact_time(timestamp: Timestamp) -> String {
    with_precision(timestamp, 9)
}

fn with_precision(timestamp: Timestamp, digits: u8) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(timestamp.get())) {
        Ok(time) => format!("{time:.*}", usize::from(digits)),
        Err(_) => timestamp.to_string(),
    }
}

/// Seconds since 1970, rounded down.
pub const fn epoch_seconds(timestamp: Timestamp) -> i64 {
    timestamp.get().div_euclid(1_000_000_000)
}

/// A duration in a unit that leaves few digits.
pub fn duration(nanoseconds: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = nanoseconds as f64;
    match nanoseconds {
        0..1_000 => format!("{nanoseconds}ns"),
        1_000..1_000_000 => format!("{:.1}us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1}ms", value / 1e6),
        _ => format!("{:.2}s", value / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_look_as_zfs_shows_them() {
        for (bytes, text) in [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1K"),
            (1536, "1.50K"),
            (12_900_000, "12.3M"),
            (129_000_000, "123M"),
            (1 << 20, "1M"),
            ((1 << 20) - 1, "1024K"),
            (5 << 30, "5G"),
            (u64::MAX, "16.0E"),
        ] {
            assert_eq!(size(ByteLength(bytes)), text);
        }
    }

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in
            [("0", 0), ("4096", 4096), ("64M", 64 << 20), ("1.5k", 1536), ("2GiB", 2 << 30), ("7B", 7)]
        {
            assert_eq!(parse_size(text), Ok(ByteLength(bytes)), "{text}");
        }
        for text in ["", "M", "-1", "1X", "1KK", "1.2.3K", "16E", "99999999999999999999", "1e3", "0x10"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_number_alone_may_be_refused() {
        for text in ["20", " 20 ", "1.5", "0"] {
            assert!(parse_size_with_unit(text, "").unwrap_err().contains("has no unit"), "{text}");
        }
        assert_eq!(parse_size_with_unit("20B", ""), Ok(ByteLength(20)));
        assert_eq!(parse_size_with_unit("20g", ""), Ok(ByteLength(20 << 30)));
        assert!(parse_size_with_unit("20", "20% or ").unwrap_err().contains("write 20% or 20G"));
    }

    #[test]
    fn times_are_utc() {
        assert_eq!(time(Timestamp(0)), "1970-01-01T00:00:00Z");
        assert_eq!(exact_time(Timestamp(1_500_000_000_000_000_001)), "2017-07-14T02:40:00.000000001Z");
        assert_eq!(epoch_seconds(Timestamp(-1)), -1);
        assert!(!time(Timestamp(i64::MAX)).is_empty());
    }

    #[test]
    fn durations_are_short() {
        for (nanoseconds, text) in
            [(7, "7ns"), (1_500, "1.5us"), (2_340_000, "2.3ms"), (12_000_000_000, "12.00s")]
        {
            assert_eq!(duration(nanoseconds), text);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn sizes_are_short_and_close(bytes in any::<u64>()) {
            let text = size(ByteLength(bytes));
            prop_assert!(text.len() <= 5, "{}", text);
            if let Ok(ByteLength(read)) = parse_size(&text) {
                prop_assert!(read.abs_diff(bytes) as f64 <= bytes as f64 * 0.006, "{} {}", bytes, text);
            }
        }

        #[test]
        fn reading_a_size_never_panics(text in "\\PC{0,12}|[0-9.]{0,22}[kKMGTPEiB]{0,3}") {
            let _ = parse_size(&text);
        }
    }
}
