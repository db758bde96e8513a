//! How large the copy area of a classic LVM snapshot has to be for a backup of some hours.

use crate::policies::CLASSIC_ENTRY_BYTES;
use crate::trace::{Event, Trace};
use serde::Serialize;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Part of the area that is to stay free, in percent: LVM destroys the snapshot of a full one.
const SPARE_PERCENT: u64 = 10;

/// What a trace says about a copy area.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CopyArea {
    /// Writes of the trace.
    pub writes: u64,
    /// Bytes of them.
    pub written_bytes: u64,
    /// How long the trace lasts, in seconds; none if it has no times.
    pub trace_s: Option<f64>,
    /// How long the snapshot is to live, in seconds; none: as long as the trace lasts.
    pub duration_s: Option<f64>,
    /// The most bytes that are copied away in such a time.
    pub copied_bytes: u64,
    /// The trace is shorter than that, and `copied_bytes` grew in proportion: an upper bound.
    pub extrapolated: bool,
    /// The area with its table, and with nothing to spare.
    pub needed_bytes: u64,
    /// The same with room to spare.
    pub recommended_bytes: u64,
    /// When an area of the size that was asked about is full, in seconds since the snapshot, if the trace has
    /// times.
    pub full_after_s: Option<f64>,
    /// After how many writes that is.
    pub full_after_writes: Option<u64>,
}

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// How long the snapshot is to live; `None`: as long as the trace lasts.
    pub duration: Option<Duration>,
    /// Bytes of a chunk: a power of two from 4 KiB to 512 KiB, as `lvcreate --chunksize` takes it.
    pub chunk_bytes: u64,
    /// An area that there is.
    pub area_bytes: Option<u64>,
}

impl CopyArea {
    /// Finds the part of the trace that copies most away. A trace without times, or shorter than the
    /// duration, is taken as a whole.
    #[must_use]
    pub fn of(trace: &Trace, question: Question) -> Self {
        let chunk = question.chunk_bytes;
        let window = question.duration.filter(|duration| trace.lasts.is_some_and(|time| *duration < time));
        let most = most_chunks(trace, chunk, window);
        let missing = match (question.duration, trace.lasts) {
            (Some(duration), Some(time)) if duration > time && !time.is_zero() => {
                duration.as_secs_f64() / time.as_secs_f64()
            }
            _ => 1.0,
        };
        let chunks = (most as f64 * missing).ceil() as u64;
        let needed_bytes = bytes_of(area_chunks(chunks, chunk).into(), chunk);
        let spared = u128::from(needed_bytes) * 100 / u128::from(100 - SPARE_PERCENT);
        let full = question.area_bytes.and_then(|area| full_at(trace, chunk, area / chunk));
        Self {
            writes: trace.writes(),
            written_bytes: writes(trace).map(|(_, _, bytes)| bytes).sum(),
            trace_s: trace.lasts.map(|time| time.as_secs_f64()),
            duration_s: question.duration.map(|duration| duration.as_secs_f64()),
            copied_bytes: bytes_of(chunks.into(), chunk),
            extrapolated: missing > 1.0,
            needed_bytes,
            recommended_bytes: bytes_of(spared.div_ceil(chunk.into()), chunk),
            full_after_s: full.and_then(|(at, _)| at).map(|at| at.as_secs_f64()),
            full_after_writes: full.map(|(_, writes)| writes),
        }
    }
}

fn writes(trace: &Trace) -> impl Iterator<Item = (Option<Duration>, u64, u64)> {
    trace.events.iter().filter_map(|(at, event)| match *event {
        Event::Write { place, bytes } => Some((*at, place, bytes)),
        Event::Flush => None,
    })
}

/// As many whole chunks as a number of 64 bits can say the bytes of, at most.
fn bytes_of(chunks: u128, chunk: u64) -> u64 {
    u64::try_from(chunks * u128::from(chunk)).unwrap_or(u64::MAX - u64::MAX % chunk)
}

/// Chunks of an area with so many copies: a header, and a table of one chunk before so many copies as it has
/// entries for.
fn area_chunks(copies: u64, chunk: u64) -> u64 {
    copies.saturating_add(1 + copies.div_ceil(chunk / CLASSIC_ENTRY_BYTES).max(1))
}

/// The most chunks that are written in any part of the trace of this length.
fn most_chunks(trace: &Trace, chunk: u64, window: Option<Duration>) -> u64 {
    let mut recent: VecDeque<(Duration, u64)> = VecDeque::new();
    let mut counts: HashMap<u64, u64> = HashMap::new();
    let mut most = 0;
    for (at, place, bytes) in writes(trace) {
        for number in place / chunk..(place + bytes).div_ceil(chunk) {
            *counts.entry(number).or_default() += 1;
            if let (Some(window), Some(at)) = (window, at) {
                recent.push_back((at, number));
                while let Some((_, gone)) = recent.pop_front_if(|(old, _)| *old + window < at) {
                    if let Entry::Occupied(mut entry) = counts.entry(gone) {
                        *entry.get_mut() -= 1;
                        if *entry.get() == 0 {
                            entry.remove();
                        }
                    }
                }
            }
        }
        most = most.max(counts.len() as u64);
    }
    most
}

/// When, and after how many writes, an area of so many chunks is full for a snapshot at the beginning of the
/// trace.
fn full_at(trace: &Trace, chunk: u64, area: u64) -> Option<(Option<Duration>, u64)> {
    let mut copied = HashSet::new();
    for (number, (at, place, bytes)) in (1..).zip(writes(trace)) {
        copied.extend(place / chunk..(place + bytes).div_ceil(chunk));
        if area_chunks(copied.len() as u64, chunk) > area {
            return Some((at, number));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 4096;

    /// A write each second, at these chunks.
    fn trace(places: &[u64]) -> Trace {
        let write = |(second, place): (u64, &u64)| {
            (Some(Duration::from_secs(second)), Event::Write { place: place * CHUNK, bytes: CHUNK })
        };
        let events: Vec<_> = (0..).zip(places).map(write).collect();
        Trace { lasts: events.last().and_then(|(at, _)| *at), events }
    }

    fn ask(trace: &Trace, seconds: Option<u64>, area_bytes: Option<u64>) -> CopyArea {
        let duration = seconds.map(Duration::from_secs);
        CopyArea::of(trace, Question { duration, chunk_bytes: CHUNK, area_bytes })
    }

    #[test]
    fn the_worst_part_of_the_trace_counts_each_chunk_once() {
        let trace = trace(&[1, 1, 1, 2, 3, 4, 4, 4, 1, 1]);
        assert_eq!(ask(&trace, None, None).copied_bytes, 4 * CHUNK);
        // Seconds 2 to 5: the chunks 1, 2, 3, 4.
        assert_eq!(ask(&trace, Some(3), None).copied_bytes, 4 * CHUNK);
        assert_eq!(ask(&trace, Some(1), None).copied_bytes, 2 * CHUNK);
        let whole = ask(&trace, None, None);
        // A header and a table beside the copies.
        assert_eq!(whole.needed_bytes, 6 * CHUNK);
        assert!(whole.recommended_bytes > whole.needed_bytes && !whole.extrapolated);
        assert_eq!((whole.writes, whole.written_bytes, whole.trace_s), (10, 10 * CHUNK, Some(9.0)));
    }

    #[test]
    fn a_trace_that_is_too_short_is_an_upper_bound() {
        let short = ask(&trace(&[1, 2, 3]), Some(20), None);
        assert!(short.extrapolated);
        assert_eq!(short.copied_bytes, 30 * CHUNK);
    }

    #[test]
    fn reads_after_the_last_write_are_part_of_the_time() {
        let mut trace = trace(&[1, 2, 3]);
        trace.lasts = Some(Duration::from_secs(10));
        assert_eq!(ask(&trace, Some(20), None).copied_bytes, 6 * CHUNK);
        let part = ask(&trace, Some(5), None);
        assert_eq!((part.copied_bytes, part.extrapolated, part.trace_s), (3 * CHUNK, false, Some(10.0)));
    }

    #[test]
    fn more_than_can_be_said_is_the_most_that_can() {
        let write = |at| (Some(Duration::from_micros(at)), Event::Write { place: 0, bytes: 1 << 32 });
        let trace = Trace { events: vec![write(0), write(1)], lasts: Some(Duration::from_micros(1)) };
        let area = ask(&trace, Some(1 << 40), None);
        assert_eq!(area.recommended_bytes, u64::MAX - (CHUNK - 1));
        assert!(area.recommended_bytes >= area.needed_bytes && area.needed_bytes >= area.copied_bytes);
    }

    #[test]
    fn an_area_is_full_at_some_write() {
        let trace = trace(&[1, 1, 2, 3]);
        let full = ask(&trace, None, Some(4 * CHUNK));
        assert_eq!((full.full_after_writes, full.full_after_s), (Some(4), Some(3.0)));
        assert_eq!(ask(&trace, None, Some(5 * CHUNK)).full_after_writes, None);
    }

    #[test]
    fn a_table_takes_a_chunk_for_every_256_copies() {
        assert_eq!(area_chunks(256, CHUNK), 1 + 256 + 1);
        assert_eq!(area_chunks(257, CHUNK), 1 + 257 + 2);
        assert_eq!(area_chunks(0, CHUNK), 2);
    }
}
