//! How long data lived before it was overwritten. What took the place of something that had lived long is
//! likely to live long itself, and collection parts it from the rest. (Q. Wang et al., "Separating Data via
//! Block Invalidation Time Inference for Write Amplification Reduction in Log-Structured Storage", FAST
//! 2022.)
//!
//! The clock is the data that was written, which addresses count. All of this is a hint: it is forgotten when
//! a pool is closed, and then data is taken to live as long as it has lived.

use crate::liveness::{BlockSet, Span};
use crate::units::{LogAddress, Run, Stream};

/// A life is long in which this part of the pool was written anew: about as long as a block lives where all
/// are overwritten alike, of which collection has to know nothing.
const LONG_SHARE: (u64, u64) = (4, 5);
/// Blocks of data that are remembered at most: a bit for each of 256 GiB.
const LONG_MAX: u64 = 1 << 26;
/// Of a long life, the part after which it is looked what need not be remembered any more.
const FORGETTING_SHARE: u64 = 8;

/// What is known of data that was written within the last long life.
#[derive(Default)]
pub(crate) struct Lifetimes {
    /// What took the place of something that had lived long.
    lasting: BlockSet,
    /// Nothing before this is remembered.
    forgotten: LogAddress,
}

/// Blocks of data that are written in a long life, in a pool of so many blocks.
pub(crate) fn long_life(blocks: u64) -> u64 {
    let (part, whole) = LONG_SHARE;
    (blocks / whole * part).min(LONG_MAX)
}

impl Lifetimes {
    /// A run of data takes the place of another of the same length.
    pub(crate) fn replaced(&mut self, former: &Run, run: &Run, long: u64) {
        if former.stream != Stream::Data || run.stream != Stream::Data {
            return;
        }
        if run.start.0.saturating_sub(former.start.0) >= long {
            self.lasting.insert(run.start..run.end());
        }
        let horizon = LogAddress(run.start.0.saturating_sub(long));
        if horizon.0 > self.forgotten.0 + long / FORGETTING_SHARE {
            self.lasting.remove(&(self.forgotten..horizon));
            self.forgotten = horizon;
        }
    }

    /// The parts of a span of data, and of each whether it is likely to live on; the data stream is at `now`.
    pub(crate) fn parts(&self, span: &Span, now: LogAddress, long: u64) -> Vec<(Span, bool)> {
        let horizon = LogAddress(now.0.saturating_sub(long)).clamp(span.start, span.end);
        let mut parts = vec![(span.start..horizon, true)];
        let mut from = horizon;
        for lasting in self.lasting.runs_within(&(horizon..span.end)) {
            parts.push((from..lasting.start, false));
            from = lasting.end;
            parts.push((lasting, true));
        }
        parts.push((from..span.end, false));
        parts.retain(|(part, _)| part.start < part.end);
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::BlockCount;

    fn run(start: u64, length: u64) -> Run {
        Run { stream: Stream::Data, start: LogAddress(start), length: BlockCount(length) }
    }

    fn span(start: u64, end: u64) -> Span {
        LogAddress(start)..LogAddress(end)
    }

    #[test]
    fn what_replaced_something_old_and_what_is_old_itself_lives_on() {
        let mut lifetimes = Lifetimes::default();
        lifetimes.replaced(&run(10, 4), &run(1010, 4), 1000);
        lifetimes.replaced(&run(500, 4), &run(1014, 4), 1000);
        lifetimes.replaced(&run(3, 4), &run(1020, 4), 1000);
        let parts = lifetimes.parts(&span(1000, 1030), LogAddress(1100), 1000);
        let lasting: Vec<Span> = parts.iter().filter(|part| part.1).map(|part| part.0.clone()).collect();
        assert_eq!(lasting, [span(1010, 1014), span(1020, 1024)]);
        assert_eq!(parts.iter().map(|(part, _)| part.end.0 - part.start.0).sum::<u64>(), 30);
        assert!(parts.windows(2).all(|pair| pair[0].0.end == pair[1].0.start && pair[0].1 != pair[1].1));
        assert_eq!(
            lifetimes.parts(&span(995, 1005), LogAddress(2000), 1000),
            [(span(995, 1000), true), (span(1000, 1005), false)]
        );
        assert_eq!(lifetimes.parts(&span(0, 9), LogAddress(2000), 1000), [(span(0, 9), true)]);
    }

    #[test]
    fn other_streams_tell_nothing() {
        let mut lifetimes = Lifetimes::default();
        lifetimes.replaced(&Run { stream: Stream::Merged, ..run(1, 4) }, &run(5000, 4), 1000);
        lifetimes.replaced(&run(1, 4), &Run { stream: Stream::Merged, ..run(5000, 4) }, 1000);
        assert!(lifetimes.lasting.is_empty());
    }

    #[test]
    fn no_more_is_remembered_than_matters() {
        let mut lifetimes = Lifetimes::default();
        for start in (10_000..100_000).step_by(4) {
            lifetimes.replaced(&run(1, 4), &run(start, 4), 1000);
            assert!(lifetimes.lasting.len().0 <= 1000 + 1000 / FORGETTING_SHARE + 8);
        }
        assert!(lifetimes.lasting.len().0 >= 1000);
    }

    #[test]
    fn a_long_life_has_bounds() {
        assert_eq!(long_life(1000), 800);
        assert_eq!(long_life(0), 0);
        assert_eq!(long_life(u64::MAX), LONG_MAX);
    }
}
