//! Types for quantities. Mixing up a log address with a file block or a slot must not compile.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// Bytes in one block, the unit of every address, extent and checksum.
pub const BLOCK_BYTES: usize = 4096;
/// Base-two logarithm of [`BLOCK_BYTES`].
pub const BLOCK_SHIFT: u32 = 12;
/// One more than the largest log address of any stream (48 bits: an exbibyte per stream, for life).
pub const LOG_ADDRESS_LIMIT: u64 = 1 << 48;
/// One more than the largest inode number (dense numbers below 2^40).
pub const INODE_NUMBER_LIMIT: u64 = 1 << 40;
/// Largest size of a file in bytes: 16 TiB.
pub const FILE_BYTES_MAX: u64 = 1 << 44;
/// Longest run that one extent describes, in blocks (64 MiB).
pub const EXTENT_BLOCKS_MAX: u64 = (1 << 14) - 1;

/// Counters read from disk are below this, so that counting on cannot overflow.
pub(crate) const COUNTER_LIMIT: u64 = 1 << 62;

macro_rules! quantity {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// The bare number.
            #[must_use]
            pub const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{}", self.0)
            }
        }
    };
}

quantity!(
    /// A number of blocks of [`BLOCK_BYTES`] bytes.
    BlockCount(u64)
);
quantity!(
    /// A number of bytes.
    ByteLength(u64)
);
impl ByteLength {
    /// The exact size, as short as the options of commands take it: `2M`, `1532K`, `1000B`.
    #[must_use]
    pub fn as_option(self) -> String {
        const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
        let fits = |power: &usize| self.0 != 0 && self.0.is_multiple_of(1 << (10 * (power + 1)));
        match (0..UNITS.len()).rev().find(fits) {
            Some(power) => format!("{}{}", self.0 >> (10 * (power + 1)), UNITS[power]),
            None => format!("{}B", self.0),
        }
    }
}

quantity!(
    /// A position in one stream, in blocks. Only grows and is never reused.
    LogAddress(u64)
);
quantity!(
    /// The index of a block within a file (byte offset divided by [`BLOCK_BYTES`]).
    FileBlock(u64)
);
quantity!(
    /// The number of a file, directory or link within a dataset: 1 to 2^40 - 1. 1 is the root directory.
    InodeNumber(u64)
);
quantity!(
    /// The number of a version (a snapshot or a head) within a pool. Never reused.
    VersionId(u64)
);
quantity!(
    /// The number of a dataset within a pool. Never reused.
    DatasetId(u64)
);
quantity!(
    /// The number of a record in the log: consecutive, never reused within an epoch.
    RecordSequence(u64)
);
quantity!(
    /// Counts the lives of a pool: one more after every opening for writing.
    RecoveryEpoch(u64)
);
quantity!(
    /// The number of a segment: names its file.
    SegmentId(u32)
);
quantity!(
    /// The index of a block within a segment.
    Slot(u32)
);
quantity!(
    /// Nanoseconds since 1970-01-01 00:00 UTC.
    Timestamp(i64)
);

impl BlockCount {
    /// Length in bytes.
    #[must_use]
    pub const fn bytes(self) -> ByteLength {
        ByteLength(self.0 << BLOCK_SHIFT)
    }

    /// Blocks needed to hold `length` bytes.
    #[must_use]
    pub const fn holding(length: ByteLength) -> Self {
        Self(length.0.div_ceil(BLOCK_BYTES as u64))
    }
}

impl LogAddress {
    /// The address `count` blocks further on.
    #[must_use]
    pub const fn plus(self, count: BlockCount) -> Self {
        Self(self.0 + count.0)
    }
}

impl FileBlock {
    /// The block that holds the byte at `offset`.
    #[must_use]
    pub const fn containing(offset: u64) -> Self {
        Self(offset >> BLOCK_SHIFT)
    }

    /// Byte offset of the first byte of this block.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.0 << BLOCK_SHIFT
    }
}

impl InodeNumber {
    /// The root directory of every dataset.
    pub const ROOT: Self = Self(1);
}

impl Timestamp {
    /// The time now, by the system's clock.
    #[must_use]
    pub fn now() -> Self {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
    }

    /// The moment in UTC to the millisecond, as RFC 3339 has it: `2026-11-21T20:01:02.003Z`. Also a legal
    /// name of a snapshot.
    #[must_use]
    pub fn to_rfc3339(self) -> String {
        let milliseconds = self.0.div_euclid(1_000_000);
        let (days, within) = (milliseconds.div_euclid(86_400_000), milliseconds.rem_euclid(86_400_000));
        let (year, month, day) = date_of_day(days);
        let (hour, minute) = (within / 3_600_000, within / 60_000 % 60);
        let (second, millisecond) = (within / 1000 % 60, within % 1000);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millisecond:03}Z")
    }

    /// Reads what [`Timestamp::to_rfc3339`] writes; the fraction of a second may be missing. `None` for
    /// anything else.
    #[must_use]
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let nanoseconds: i64 = format!("{fraction:0<9}").parse().ok()?;
        let days = day_of_date(year, month, day);
        // A date that does not exist is not the one that comes back.
        if date_of_day(days) != (year, month, day) || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let seconds = days * 86_400 + hour * 3600 + minute * 60 + second;
        Some(Self(seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)?))
    }
}

/// Year, month and day of the Gregorian calendar, of a day counted from 1970-01-01.
///
/// By eras of 400 years that begin in March, so that the leap day comes last: H. Hinnant, "chrono-compatible
/// low-level date algorithms", civil_from_days and days_from_civil.
#[must_use]
pub const fn date_of_day(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + if month <= 2 { 1 } else { 0 }, month, day)
}

/// The reverse of [`date_of_day`]. Of a date that does not exist, such as February 30th, some day close to
/// it.
#[must_use]
pub const fn day_of_date(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = (month + 9) % 12;
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// Three numbers of so many digits each.
fn numbers(text: &str, separator: char, digits: [usize; 3]) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut numbers = [0; 3];
    for (number, digits) in numbers.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits)?;
        *number = part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse().ok())??;
    }
    parts.next().is_none().then_some(numbers)
}

/// A sequence of log addresses of one kind. A block is named by its stream and its address in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub enum Stream {
    /// File data, in the order in which it was appended to the log (record headers take up addresses too).
    Data = 0,
    /// Blocks merged from small writes: the address is drawn when the block is born, the place when it is
    /// written.
    Merged = 1,
    /// Tree nodes: the address is drawn when the node is born, the place when a checkpoint writes it.
    Node = 2,
}

impl Stream {
    /// Every stream, in the order of its number.
    pub const ALL: [Self; 3] = [Self::Data, Self::Merged, Self::Node];

    /// The stream with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// The position of every stream at one moment: everything below was born before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Marks(pub [LogAddress; 3]);

impl Marks {
    /// The position of one stream.
    #[must_use]
    pub const fn of(&self, stream: Stream) -> LogAddress {
        self.0[stream as usize]
    }

    /// The position of one stream, to change it.
    pub fn of_mut(&mut self, stream: Stream) -> &mut LogAddress {
        &mut self.0[stream as usize]
    }

    /// The next address of a stream, which nothing else gets.
    pub fn draw(&mut self, stream: Stream) -> Run {
        let next = self.of_mut(stream);
        let run = Run { stream, start: *next, length: BlockCount(1) };
        *next = run.end();
        run
    }
}

/// A run of consecutive addresses of one stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Run {
    /// The stream that `start` is a position of.
    pub stream: Stream,
    /// First address.
    pub start: LogAddress,
    /// Number of blocks, at least one.
    pub length: BlockCount,
}

impl Run {
    /// The run of these addresses.
    #[must_use]
    pub const fn of(stream: Stream, span: &Range<LogAddress>) -> Self {
        Self { stream, start: span.start, length: BlockCount(span.end.0 - span.start.0) }
    }

    /// One more than the last address.
    #[must_use]
    pub const fn end(&self) -> LogAddress {
        self.start.plus(self.length)
    }
}

/// The identity of a pool, drawn at random when it is made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct PoolId(pub [u8; 16]);

impl fmt::Display for PoolId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteLength, Timestamp};

    #[test]
    fn sizes_are_written_as_options_take_them_and_exactly() {
        for (bytes, text) in [
            (0, "0B"),
            (1000, "1000B"),
            (4096, "4K"),
            (1536, "1536B"),
            (12_582_912, "12M"),
            (12_587_008, "12292K"),
            (3 << 30, "3G"),
            (5 << 40, "5T"),
            (u64::MAX, "18446744073709551615B"),
            (1 << 60, "1024P"),
        ] {
            assert_eq!(ByteLength(bytes).as_option(), text);
        }
    }

    #[test]
    fn moments_are_written_as_rfc_3339_has_them() {
        assert_eq!(Timestamp(0).to_rfc3339(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(951_782_400_000_000_000).to_rfc3339(), "2000-02-29T00:00:00.000Z");
        assert_eq!(Timestamp(1_795_291_262_003_999_999).to_rfc3339(), "2026-11-21T20:01:02.003Z");
        assert_eq!(Timestamp(-1).to_rfc3339(), "1969-12-31T23:59:59.999Z");
    }

    #[test]
    fn moments_are_read_as_they_are_written() {
        for milliseconds in [0, 1, -1, 951_782_400_000, 1_795_291_262_003, 4_102_444_799_999, -62_135_596_800]
        {
            let moment = Timestamp(milliseconds * 1_000_000);
            assert_eq!(Timestamp::from_rfc3339(&moment.to_rfc3339()), Some(moment));
        }
        assert_eq!(Timestamp::from_rfc3339("1970-01-02T00:00:01Z"), Some(Timestamp(86_401_000_000_000)));
        for text in [
            "",
            "Z",
            "2026-02-30T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:00:00",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.1234567890Z",
            "+026-01-01T00:00:00Z",
            "9999-12-31T23:59:59Z",
        ] {
            assert_eq!(Timestamp::from_rfc3339(text), None, "{text}");
        }
    }

    #[test]
    fn days_and_dates_go_both_ways() {
        for day in (-800_000..800_000).step_by(13) {
            let (year, month, of_month) = super::date_of_day(day);
            assert!((1..=12).contains(&month) && (1..=31).contains(&of_month));
            assert_eq!(super::day_of_date(year, month, of_month), day);
        }
    }
}
