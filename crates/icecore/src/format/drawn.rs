//! Which addresses of merged blocks and nodes a life does not draw.
//!
//! A checkpoint that a crash cut short leaves blocks behind that count for nothing, and the recovery executes
//! the same operations again. Had they the same addresses, a reader could not distinguish what was left from
//! what counts. So each recovery goes on with addresses that no life before it can have drawn. An address of
//! these streams stands for one content forever.

use super::{get_u64, put};
use crate::error::{Error, Result};
use crate::units::{LOG_ADDRESS_LIMIT, LogAddress, Marks, Stream};

/// Where it lies in the superblock.
const AT: usize = 184;
/// The streams whose addresses are drawn when operations are executed, which a recovery does again.
const STREAMS: [Stream; 2] = [Stream::Merged, Stream::Node];
/// More addresses than a life draws between two checkpoints.
pub(crate) const STEP: u64 = 1 << 26;
/// More than all lives draw between one checkpoint and any later one that a repair goes back from.
const STEP_BACK: u64 = 1 << 40;

/// What a superblock says of addresses that were drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Drawn {
    /// The present life draws none below these. Of the data stream nothing is said: 0.
    pub floor: Marks,
}

impl Drawn {
    /// Of a pool in which nothing was drawn yet.
    #[must_use]
    pub fn from_the_beginning(mut first: Marks) -> Self {
        *first.of_mut(Stream::Data) = LogAddress(0);
        Self { floor: first }
    }

    /// As a life begins whose last checkpoint came as far as `marks`: after a clean close, or after a life
    /// that drew addresses of which there is no record.
    ///
    /// # Errors
    /// There are no more.
    pub fn next(mut self, marks: &Marks, clean: bool) -> Result<Self> {
        for stream in STREAMS {
            let end = marks.of(stream).0.max(self.floor.of(stream).0);
            *self.floor.of_mut(stream) = address(end.checked_add(if clean { 0 } else { STEP }))?;
        }
        Ok(self)
    }

    /// As it is to be where a checkpoint is gone back to: others came after it.
    ///
    /// # Errors
    /// There are no more.
    pub fn gone_back(mut self) -> Result<Self> {
        for stream in STREAMS {
            *self.floor.of_mut(stream) = address(self.floor.of(stream).0.checked_add(STEP_BACK))?;
        }
        Ok(self)
    }

    pub(super) fn encode(&self, block: &mut [u8]) {
        for (index, stream) in STREAMS.into_iter().enumerate() {
            put(block, AT + index * 8, &self.floor.of(stream).0.to_le_bytes());
        }
    }

    /// `None` if what is there makes no sense.
    pub(super) fn decode(block: &[u8]) -> Option<Self> {
        let mut floor = Marks::default();
        for (index, stream) in STREAMS.into_iter().enumerate() {
            let number = get_u64(block, AT + index * 8);
            *floor.of_mut(stream) = address(Some(number)).ok().filter(|address| address.0 > 0)?;
        }
        Some(Self { floor })
    }
}

fn address(number: Option<u64>) -> Result<LogAddress> {
    let number = number.filter(|number| *number < LOG_ADDRESS_LIMIT);
    let no_more = || Error::damaged("the superblock", "there are no more addresses to be drawn");
    number.map(LogAddress).ok_or_else(no_more)
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
        let clean = first.next(&marks(10, 20), true).unwrap();
        assert_eq!(clean.floor, marks(10, 20));
        let killed = clean.next(&marks(10, 20), false).unwrap();
        assert_eq!(killed.floor, marks(10 + STEP, 20 + STEP));
        // Killed again before there was a checkpoint.
        let again = killed.next(&marks(10, 20), false).unwrap();
        assert_eq!(again.floor, marks(10 + 2 * STEP, 20 + 2 * STEP));
        assert!(first.next(&marks(1, LOG_ADDRESS_LIMIT - STEP), false).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let mut block = vec![0; 4096];
        assert_eq!(Drawn::decode(&block), None);
        let drawn = Drawn { floor: marks(7, 8) };
        drawn.encode(&mut block);
        assert_eq!(Drawn::decode(&block), Some(drawn));
        put(&mut block, AT, &LOG_ADDRESS_LIMIT.to_le_bytes());
        assert_eq!(Drawn::decode(&block), None);
    }
}
