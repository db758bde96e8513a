//! The size limit of a pool: the segments that suit it, what it has to be at least, and changing it.

use super::space::with_those_for_deleting;
use super::{Engine, Purpose};
use crate::copies::Aside;
use crate::error::{Error, Result};
use crate::format::copies::CopyMode;
use crate::format::superblock::{SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, segment_bytes_usable};
use crate::state::State;
use crate::units::{BlockCount, ByteLength};

/// Segments that a pool has at least: the log, one being filled with nodes, one with runs, one with the
/// ledger, and a reserve.
pub(super) const SEGMENTS_MIN: u64 = 8;
/// Segments are not larger unless a pool is made so.
const SEGMENT_BYTES_LARGE: u64 = 64 << 20;
/// Only a size limit makes them smaller: a record of 1 MiB leaves up to as much unused at the end of each.
const SEGMENT_BYTES_MODERATE: u64 = 8 << 20;
/// A pool with a limit gets segments so small that there may be as many. A dozen of them are kept back or
/// being filled.
const SEGMENTS_WANTED: u64 = 256;
/// Segments that fill a filesystem, about. A pool with a small database has six files of this size: 48 MiB on
/// a disk of less than 1 TiB. Each takes time whenever all are listed or looked through, and a pool that fills its filesystem has to stay
/// quick.
const SEGMENTS_OF_FILESYSTEM: u64 = 65_536;

/// The size of segments that suits a size limit and a filesystem of `total` bytes: a power of two from 2 MiB
/// to 64 MiB.
pub(super) fn suitable_segment_bytes(limit: Option<ByteLength>, total: u64) -> u64 {
    let of_filesystem = usable_up_to(total / SEGMENTS_OF_FILESYSTEM).max(SEGMENT_BYTES_MODERATE);
    let of_limit = limit.map_or(u64::MAX, |limit| usable_up_to(limit.0 / SEGMENTS_WANTED));
    of_filesystem.min(of_limit).min(SEGMENT_BYTES_LARGE)
}

/// The largest size of segments that is not more than this; the smallest there is if none is.
fn usable_up_to(bytes: u64) -> u64 {
    1 << bytes.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX).ilog2()
}

/// Files of the size of a segment that a new pool needs. `beside`: what is copied in its own folder.
fn files_min(beside: CopyMode) -> u64 {
    SEGMENTS_MIN + Aside::least(beside, SEGMENTS_MIN)
}

/// Judges sizes that a new pool is meant to have. Answers the bytes that it takes at least, or why it cannot
/// be.
pub(super) fn judge(
    segment_bytes: u64,
    limit: Option<ByteLength>,
    beside: CopyMode,
) -> std::result::Result<u64, String> {
    if !segment_bytes_usable(segment_bytes) {
        return Err("the size of a segment must be a power of two from 2 MiB to 1 GiB".to_owned());
    }
    let least = files_min(beside) * segment_bytes;
    let Some(limit) = limit.filter(|limit| limit.0 < least) else { return Ok(least) };
    let (limit_text, size, least) = (text(limit.0), text(segment_bytes), text(least));
    let fitting = limit.0 / files_min(beside);
    if segment_bytes == SEGMENT_BYTES_MIN {
        return Err(format!("a size limit of {limit_text} is too small: there is no pool below {least}"));
    }
    let way_out = if fitting < SEGMENT_BYTES_MIN {
        let smallest = text(files_min(beside) * SEGMENT_BYTES_MIN);
        format!("there is no pool below {smallest}, with --segment-size {}", text(SEGMENT_BYTES_MIN))
    } else {
        format!("for this limit, segments may have {} at most", text(usable_up_to(fitting)))
    };
    Err(format!(
        "a size limit of {limit_text} is too small for segments of {size} (--segment-size): with these it must be {least} at \
         least; {way_out}"
    ))
}

/// A size as the options of commands take it.
fn text(bytes: u64) -> String {
    ByteLength(bytes).as_option()
}

impl Engine {
    /// Changes the size limit, or takes it away. Durable on return; after a crash before that, it is the
    /// former limit or this one. A writer that finds no room at the time finds what there is at the next try.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a limit below what the pool has and needs, also for what is reserved: nothing
    /// has changed then. [`Error::ReadOnly`], [`Error::ReadOnlyAfterFailure`].
    pub(crate) fn set_size_limit(&self, limit: Option<ByteLength>) -> Result<()> {
        self.check_writable()?;
        // A copy that is being made counts once it is whole. Who raises the limit does not wait for it.
        let _whole = self.is_below_size_limit(limit).then(|| self.copying.lock());
        // A refusal is no failure of what writes superblocks, which the pool would not survive.
        let mut refusal = None;
        self.with_line(|_| {
            if let Err(error) = self.lower_size_limit(limit) {
                refusal = Some(error);
                return Ok(());
            }
            self.write_superblock(|superblock| superblock.size_limit = limit.map_or(0, ByteLength::get))?;
            // Not before: a crash would find more segments than the former limit allows.
            let mut state = self.state();
            state.segments.set_size_limit(limit);
            // There may be room again for what had been given up.
            state.collection.is_exhausted = false;
            Ok(())
        })?;
        refusal.map_or(Ok(()), Err)
    }

    fn is_below_size_limit(&self, limit: Option<ByteLength>) -> bool {
        is_below(limit, self.state().segments.size_limit())
    }

    /// If the limit is less than before, it counts from here on: nothing may be made that it forbids.
    fn lower_size_limit(&self, limit: Option<ByteLength>) -> Result<()> {
        let mut state = self.state();
        let now = state.segments.size_limit();
        let Some(limit) = limit.filter(|limit| is_below(Some(*limit), now)) else { return Ok(()) };
        let least = self.least_size_limit(&state);
        if limit < least {
            return Err(Error::Invalid(format!(
                "the size limit of {} cannot be {}: it must be {} at least, for the pool keeps the {} segments of {} that it has, and the reserve \
                 and copies need room{}",
                self.storage.describe(),
                text(limit.0),
                text(least.0),
                state.segments.len(),
                text(self.geometry.bytes),
                of_reserved(state.reserved_from(None)),
            )));
        }
        state.segments.set_size_limit(Some(limit));
        Ok(())
    }

    /// What the pool takes, and what it has to be able to take for its reserve, for what datasets were
    /// promised, and for copies.
    fn least_size_limit(&self, state: &State) -> ByteLength {
        let kept = self.reserve(state, Purpose::Shrinking) as u64;
        let lacking = kept.saturating_add(self.segments_promised(state));
        let lacking = lacking.saturating_sub(state.segments.free() as u64);
        let segments = with_those_for_deleting(lacking.saturating_add(state.segments.len() as u64), None);
        let files = self.copies().aside().files_for(segments.max(SEGMENTS_MIN));
        ByteLength(files.saturating_mul(self.geometry.bytes))
    }
}

/// What is reserved, as a further reason for room that is needed.
fn of_reserved(reserved: BlockCount) -> String {
    if reserved.0 == 0 {
        return String::new();
    }
    let reserved = reserved.bytes().as_option();
    format!(
        ", and so do {reserved} that are reserved for datasets (`icecore get reservation,refreservation` shows them)"
    )
}

/// Whether a limit, or none, is less than another.
fn is_below(limit: Option<ByteLength>, other: Option<ByteLength>) -> bool {
    limit.is_some_and(|limit| other.is_none_or(|other| limit < other))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn segments_suit_the_limit_and_the_filesystem() {
        let (gib, tib) = (1 << 10, 1 << 20);
        for (limit, total, segment) in [
            (Some(0), 4 * tib, 2),
            (Some(1), 4 * tib, 2),
            (Some(100), 4 * tib, 2),
            (Some(512), 4 * tib, 2),
            (Some(1023), 4 * tib, 2),
            (Some(1024), 4 * tib, 4),
            (Some(2048), 4 * tib, 8),
            (Some(10 * gib), 4 * tib, 32),
            (Some(16 * gib), 4 * tib, 64),
            (Some(tib), 4 * tib, 64),
            (Some(u64::MAX >> 20), u64::MAX >> 20, 64),
            (Some(512), 10 * gib, 2),
            (Some(10 * gib), 500 * gib, 8),
            (None, 0, 8),
            (None, 10 * gib, 8),
            (None, 1023 * gib, 8),
            (None, tib, 16),
            (None, 2 * tib, 32),
            (None, 4 * tib, 64),
            (None, u64::MAX >> 20, 64),
        ] {
            let chosen = suitable_segment_bytes(limit.map(|limit| ByteLength(limit * MIB)), total * MIB);
            assert_eq!(chosen, segment * MIB, "with a limit of {limit:?} MiB on {total} MiB");
            assert!(segment_bytes_usable(chosen));
        }
    }

    /// What the advice says is taken.
    #[test]
    fn a_limit_that_is_too_small_is_refused_with_one_that_is_not() {
        for beside in [CopyMode::None, CopyMode::Metadata, CopyMode::All] {
            for segment in (1..=10).map(|power| MIB << power) {
                for limit in (0..200).map(|number| number * 7 * MIB / 2) {
                    let Err(refusal) = judge(segment, Some(ByteLength(limit)), beside) else { continue };
                    let number = |before: &str| {
                        let rest = refusal.split(before).nth(1)?;
                        let digits = rest.find(|one: char| !one.is_ascii_digit())?;
                        let unit = if rest[digits..].starts_with('G') { 30 } else { 20 };
                        Some(rest[..digits].parse::<u64>().unwrap() << unit)
                    };
                    let least = number("it must be ").or_else(|| number("no pool below ")).unwrap();
                    let is_said_once = segment > 2 * MIB || refusal.matches('M').count() <= 2;
                    assert!(least > limit && is_said_once, "{refusal}");
                    assert_eq!(refusal.contains("--segment-size"), segment > 2 * MIB, "{refusal}");
                    judge(segment, Some(ByteLength(least)), beside).unwrap();
                    judge(segment, Some(ByteLength(least - 1)), beside).unwrap_err();
                    if let Some(fitting) = number("segments may have ") {
                        judge(fitting, Some(ByteLength(limit)), beside).unwrap();
                        judge(2 * fitting, Some(ByteLength(limit)), beside).unwrap_err();
                    } else {
                        let least = number("no pool below ").unwrap();
                        judge(2 * MIB, Some(ByteLength(least)), beside).unwrap();
                        judge(2 * MIB, Some(ByteLength(limit)), beside).unwrap_err();
                    }
                }
            }
        }
    }
}
