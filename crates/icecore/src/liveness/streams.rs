//! One set for each stream.

use super::blocks::{BlockSet, Span};
use super::set::{AddressSet, SetChanges};
use crate::units::{BlockCount, LogAddress, Marks, Run, Stream};

/// The addresses of a run.
pub(super) const fn span_of(run: &Run) -> Span {
    run.start..run.end()
}

/// One address set for each stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StreamSets([AddressSet; 3]);

/// What changed in each set of a [`StreamSets`].
pub type StreamChanges = [SetChanges; 3];

impl StreamSets {
    /// Sets as they came from a checkpoint: nothing to report.
    pub(super) fn from_stored(blocks: [BlockSet; 3]) -> Self {
        Self(blocks.map(|set| AddressSet::from_stored(set, SetChanges::default())))
    }

    /// The set of one stream.
    #[must_use]
    pub const fn of(&self, stream: Stream) -> &AddressSet {
        &self.0[stream as usize]
    }

    /// The set of one stream, to change it.
    pub fn of_mut(&mut self, stream: Stream) -> &mut AddressSet {
        &mut self.0[stream as usize]
    }

    /// Blocks in all of them.
    #[must_use]
    pub fn len(&self) -> BlockCount {
        BlockCount(self.0.iter().map(|set| set.len().0).sum())
    }

    /// Whether all are empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(AddressSet::is_empty)
    }

    /// Blocks from `low` up to `high`, each stream by its own marks.
    #[must_use]
    pub fn count_between(&self, low: &Marks, high: &Marks) -> BlockCount {
        let count = |stream: Stream| self.of(stream).count(&(low.of(stream)..high.of(stream))).0;
        BlockCount(Stream::ALL.into_iter().map(count).sum())
    }

    /// Blocks at or above `low`.
    #[must_use]
    pub fn count_from(&self, low: &Marks) -> BlockCount {
        self.count_between(low, &Marks([LogAddress(u64::MAX); 3]))
    }

    /// Whether everything lies below `high`.
    #[must_use]
    pub fn is_below(&self, high: &Marks) -> bool {
        Stream::ALL
            .into_iter()
            .all(|stream| self.of(stream).blocks().last().is_none_or(|last| last < high.of(stream)))
    }

    /// Whether everything lies at or above `low`.
    #[must_use]
    pub fn is_from(&self, low: &Marks) -> bool {
        let from =
            |stream: Stream| self.of(stream).blocks().first().is_none_or(|first| first >= low.of(stream));
        Stream::ALL.into_iter().all(from)
    }

    /// Takes in sets that share no address with these, journals and all.
    pub(super) fn absorb(&mut self, other: Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            mine.absorb(theirs);
        }
    }

    /// Puts the sets into a form that takes little memory.
    pub(super) fn tidy(&mut self) {
        self.0.iter_mut().for_each(AddressSet::tidy);
    }

    /// What changed since the last call.
    pub(super) fn take_changes(&mut self) -> StreamChanges {
        self.0.each_mut().map(AddressSet::take_changes)
    }

    /// The addresses, giving up the journals.
    pub(super) fn into_sets(self) -> [BlockSet; 3] {
        self.0.map(AddressSet::into_blocks)
    }
}

/// Collects blocks that no version references any more.
///
/// What it holds becomes reusable when the checkpoint that records these deaths is durable and no pin is
/// older than they are: that is for the holder of the sink to see to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FreedSink([BlockSet; 3]);

impl FreedSink {
    /// An empty sink.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a run. Panics if a block of it is here already: nothing is freed twice.
    pub fn push(&mut self, run: Run) {
        let added = self.0[run.stream as usize].insert(span_of(&run));
        assert_eq!(added, run.length, "freed twice: {run:?}");
    }

    /// Takes in a set of blocks of one stream. Panics if one is here already.
    pub fn absorb(&mut self, stream: Stream, blocks: BlockSet) {
        let expected = blocks.len();
        let added = self.0[stream as usize].unite(blocks);
        assert_eq!(added, expected, "freed twice in stream {stream:?}");
    }

    /// Number of blocks here.
    #[must_use]
    pub fn len(&self) -> BlockCount {
        BlockCount(self.0.iter().map(|set| set.len().0).sum())
    }

    /// Whether nothing was freed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(BlockSet::is_empty)
    }

    /// The blocks of one stream.
    #[must_use]
    pub const fn of(&self, stream: Stream) -> &BlockSet {
        &self.0[stream as usize]
    }

    /// Maximal runs, stream by stream, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        Stream::ALL
            .into_iter()
            .flat_map(|stream| self.of(stream).runs().map(move |span| run_of(stream, &span)))
    }

    /// Takes out so many runs at most, in the order of [`FreedSink::runs`].
    pub(crate) fn take_some(&mut self, most: usize) -> Vec<Run> {
        let runs: Vec<Run> = self.runs().take(most).collect();
        for stream in Stream::ALL {
            if let Some(last) = runs.iter().rfind(|run| run.stream == stream) {
                self.0[stream as usize].remove(&(LogAddress(0)..last.end()));
            }
        }
        runs
    }

    /// Empties the sink.
    #[must_use]
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}

/// The run that covers `span`.
pub(super) const fn run_of(stream: Stream, span: &Span) -> Run {
    Run { stream, start: span.start, length: BlockCount(span.end.0 - span.start.0) }
}
