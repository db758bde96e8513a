//! Which addresses of merged blocks and nodes stand for one content forever.
//!
//! A checkpoint that a crash cut short leaves blocks behind that count for nothing, and the recovery executes the same operations
//! again: had they the same addresses, what was left could not be told from what counts. So each recovery
//! goes on with addresses that no life before it can have drawn.

use super::{get_u64, put};
use crate::units::{LOG_ADDRESS_LIMIT, LogAddress, Marks, Stream};

/// Where it lies in the superblock.
const AT: usize = 168;
/// The streams whose addresses are drawn when operations are executed, which a recovery does again.
const STREAMS: [Stream; 2] = [Stream::Merged, Stream::Node];
/// More addresses than a life draws between two checkpoints.
pub(crate) const STEP: u64 = 1 << 26;
/// More than all lives draw between one checkpoint and any later one that a repair goes back from.
const STEP_BACK: u64 = 1 << 40;

/// What a superblock says of addresses that were drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drawn {
    /// Addresses from here on were never drawn twice. Of the data stream nothing is said: 0.
    pub once_from: Marks,
    /// The present life draws none below these.
    pub floor: Marks,
}

impl Drawn {
    /// Of a pool in which nothing was drawn yet.
    #[must_use]
    pub fn from_the_beginning(mut first: Marks) -> Self {
        *first.of_mut(Stream::Data) = LogAddress(0);
        Self { once_from: first, floor: first }
    }

    /// As a life begins whose last checkpoint came as far as `marks`: after a clean close, or after one that drew
    /// addresses of which nobody knows. `None` if there are no more.
    #[must_use]
    pub fn next(former: Option<Self>, marks: &Marks, clean: bool) -> Option<Self> {
        let mut floor = Marks::default();
        for stream in STREAMS {
            let known = former.map_or(LogAddress(0), |former| former.floor.of(stream));
            let end = marks.of(stream).0.max(known.0);
            let skipped = if clean && former.is_some() { 0 } else { STEP };
            *floor.of_mut(stream) =
                LogAddress(end.checked_add(skipped).filter(|end| *end < LOG_ADDRESS_LIMIT)?);
        }
        Some(Self { once_from: former.map_or(floor, |former| former.once_from), floor })
    }

    /// As it is to be where a checkpoint is gone back to: others came after it.
    #[must_use]
    pub fn gone_back(mut self) -> Option<Self> {
        for stream in STREAMS {
            let floor = self.floor.of(stream).0.checked_add(STEP_BACK);
            *self.floor.of_mut(stream) = LogAddress(floor.filter(|floor| *floor < LOG_ADDRESS_LIMIT)?);
        }
        Some(self)
    }

    /// Whether what has an address is what was written for it, wherever it was found.
    #[must_use]
    pub fn is_once(&self, stream: Stream, address: LogAddress) -> bool {
        !STREAMS.contains(&stream) || address >= self.once_from.of(stream)
    }

    pub(super) fn encode(&self, block: &mut [u8]) {
        let numbers = [&self.once_from, &self.floor]
            .into_iter()
            .flat_map(|marks| STREAMS.map(|stream| marks.of(stream)));
        for (index, number) in numbers.enumerate() {
            put(block, AT + index * 8, &number.0.to_le_bytes());
        }
    }

    /// `None` if a program wrote it that knows nothing of this, or what is there makes no sense: that is as good as not to know.
    pub(super) fn decode(block: &[u8]) -> Option<Self> {
        let marks = |index: usize| {
            let mut marks = Marks::default();
            for (stream, index) in STREAMS.into_iter().zip(index..) {
                *marks.of_mut(stream) = LogAddress(get_u64(block, AT + index * 8));
            }
            marks
        };
        let drawn = Self { once_from: marks(0), floor: marks(2) };
        let makes_sense = |stream: Stream| {
            let (from, floor) = (drawn.once_from.of(stream).0, drawn.floor.of(stream).0);
            0 < from && from <= floor && floor < LOG_ADDRESS_LIMIT
        };
        Some(drawn).filter(|_| STREAMS.into_iter().all(makes_sense))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(merged: u64, node: u64) -> Marks {
        Marks([LogAddress(0), LogAddress(merged), LogAddress(node)])
    }

    #[test]
    fn a_recovery_draws_what_no_life_before_it_can_have_drawn() {
        let first = Drawn::from_the_beginning(marks(1, 1));
        let clean = Drawn::next(Some(first), &marks(10, 20), true).unwrap();
        assert_eq!((clean.floor, clean.once_from), (marks(10, 20), marks(1, 1)));
        let killed = Drawn::next(Some(clean), &marks(10, 20), false).unwrap();
        assert_eq!(killed.floor, marks(10 + STEP, 20 + STEP));
        // Killed again before there was a checkpoint.
        let again = Drawn::next(Some(killed), &marks(10, 20), false).unwrap();
        assert_eq!(again.floor, marks(10 + 2 * STEP, 20 + 2 * STEP));
        // Of a pool that others wrote, only what is drawn from here on is known.
        let taken_over = Drawn::next(None, &marks(10, 20), true).unwrap();
        assert!(
            !taken_over.is_once(Stream::Node, LogAddress(20))
                && taken_over.is_once(Stream::Data, LogAddress(1))
        );
        assert!(taken_over.is_once(Stream::Merged, LogAddress(10 + STEP)));
        assert!(Drawn::next(None, &marks(1, LOG_ADDRESS_LIMIT - STEP), false).is_none());
    }

    #[test]
    fn what_makes_no_sense_is_not_known() {
        let mut block = vec![0; 4096];
        assert_eq!(Drawn::decode(&block), None);
        let drawn = Drawn { once_from: marks(5, 6), floor: marks(7, 8) };
        drawn.encode(&mut block);
        assert_eq!(Drawn::decode(&block), Some(drawn));
        block[AT] = 9;
        assert_eq!(Drawn::decode(&block), None);
    }
}
