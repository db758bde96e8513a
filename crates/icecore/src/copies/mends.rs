//! What was found not to be what was written, and made whole again: reported one by one up to a number, and
//! counted beyond.

use super::Copies;
use std::collections::VecDeque;

/// Mends that are reported one by one.
const MENDS_MAX: usize = 1000;

/// A place that was not what was written, where something else says what was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mend {
    /// Where, and what was wrong.
    pub what: String,
    /// What it was.
    pub of: Mended,
}

/// What was made whole again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mended {
    /// What there is a second copy of.
    Original,
    /// The second copy.
    Copy,
    /// One of the superblocks, from the other one.
    Twin,
    /// The header of a segment, from the log.
    Header,
}

/// How many mends of each kind there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MendCounts([u64; 4]);

impl MendCounts {
    /// Those of one kind.
    pub(crate) const fn of(&self, kind: Mended) -> u64 {
        self.0[kind as usize]
    }

    fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// What was mended from some moment on.
#[derive(Debug)]
pub(crate) struct MendsSince {
    /// The last thousand.
    pub listed: Vec<Mend>,
    /// All of them.
    pub counts: MendCounts,
}

impl MendsSince {
    /// Leaves those of one kind out.
    pub(crate) fn without(mut self, kind: Mended) -> Self {
        self.listed.retain(|mend| mend.of != kind);
        self.counts.0[kind as usize] = 0;
        self
    }

    /// How many are counted, and not reported one by one.
    pub(crate) fn unlisted(&self) -> u64 {
        self.counts.total() - self.listed.len() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.counts == MendCounts::default()
    }
}

/// The last mends, and how many there were.
#[derive(Default)]
pub(super) struct Mends {
    counts: MendCounts,
    kept: VecDeque<Mend>,
}

impl Mends {
    pub(super) fn add(&mut self, mend: Mend) {
        self.counts.0[mend.of as usize] += 1;
        if self.kept.len() == MENDS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(mend);
    }

    fn since(&self, moment: MendCounts) -> MendsSince {
        let first = self.counts.total() - self.kept.len() as u64;
        let listed = self.kept.iter().skip(moment.total().saturating_sub(first) as usize).cloned().collect();
        let mut counts = self.counts;
        counts.0.iter_mut().zip(moment.0).for_each(|(count, before)| *count -= before);
        MendsSince { listed, counts }
    }
}

impl Copies {
    /// A place was not what was written, and is as it should be again; or, if that failed, is not.
    pub(crate) fn mended(&self, what: String, of: Mended, done: bool) {
        match of {
            // Counted are second copies.
            Mended::Twin | Mended::Header => {}
            Mended::Original | Mended::Copy if done => self.counters.healed.add(1),
            Mended::Original | Mended::Copy => self.counters.unhealed.add(1),
        }
        self.inner.lock().mends.add(Mend { what, of });
    }

    /// How much was mended so far: the moment to ask from for what is mended from here on.
    pub(crate) fn mends(&self) -> MendCounts {
        self.inner.lock().mends.counts
    }

    /// What was mended since a moment; since the pool was opened, if that is the first.
    pub(crate) fn mends_since(&self, moment: MendCounts) -> MendsSince {
        self.inner.lock().mends.since(moment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mend(number: usize, of: Mended) -> Mend {
        Mend { what: number.to_string(), of }
    }

    #[test]
    fn all_are_counted_from_any_moment_on_and_the_last_thousand_are_reported() {
        let mut mends = Mends::default();
        let mut moments = Vec::new();
        let kinds = [Mended::Original, Mended::Copy, Mended::Twin, Mended::Header];
        for number in 0..2500 {
            moments.push(mends.counts);
            mends.add(mend(number, kinds[number * number % 7 % 4]));
        }
        for (before, moment) in moments.into_iter().enumerate() {
            let since = mends.since(moment);
            let (all, listed) = (2500 - before, (2500 - before).min(MENDS_MAX));
            assert_eq!((since.counts.total(), since.listed.len()), (all as u64, listed));
            assert_eq!(since.unlisted(), (all - listed) as u64);
            assert_eq!(since.listed[0].what, (2500 - listed).to_string());
            let twins = since.counts.of(Mended::Twin);
            let without = since.without(Mended::Twin);
            assert_eq!(without.counts.total(), all as u64 - twins);
            assert!(without.listed.iter().all(|mend| mend.of != Mended::Twin));
        }
        assert!(mends.since(mends.counts).is_empty());
    }
}
