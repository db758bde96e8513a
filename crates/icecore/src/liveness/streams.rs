//! One set for each stream.

use super::blocks::{BlockSet, Span};
use super::fault::HistoryFault;
use super::part::Look;
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
    pub const fn of(&self, stream: Stream) -> &AddressSet {
        &self.0[stream as usize]
    }

    /// The set of one stream, to change it.
    pub fn of_mut(&mut self, stream: Stream) -> &mut AddressSet {
        &mut self.0[stream as usize]
    }

    /// The set of each stream, on its own.
    pub(super) fn into_all(self) -> [AddressSet; 3] {
        self.0
    }

    /// Blocks in all of them.
    pub fn len(&self) -> BlockCount {
        BlockCount(self.0.iter().map(|set| set.len().0).fold(0, u64::saturating_add))
    }

    /// The set of each stream.
    pub fn all(&self) -> impl Iterator<Item = &AddressSet> {
        self.0.iter()
    }

    /// The set of each stream, to change it.
    pub(super) fn all_mut(&mut self) -> impl Iterator<Item = &mut AddressSet> {
        self.0.iter_mut()
    }

    /// [`AddressSet::rebase`] of those sets of which something lies on disk, or did in what they were made
    /// from.
    pub(super) fn rebase<'a>(&mut self, bases: impl Iterator<Item = &'a Self> + Clone) {
        for stream in Stream::ALL {
            let bases = bases.clone().map(|sets| sets.of(stream));
            let set = self.of_mut(stream);
            if set.cold().is_some() || bases.clone().any(|base| base.cold().is_some()) {
                set.rebase(bases);
            }
        }
    }

    /// Blocks from `low` up to `high`, each stream by its own marks.
    pub(super) fn count_between(
        &self,
        low: &Marks,
        high: &Marks,
        parts: Look<'_>,
    ) -> std::result::Result<BlockCount, HistoryFault> {
        let mut count = 0;
        for stream in Stream::ALL {
            count += self.of(stream).count(&(low.of(stream)..high.of(stream)), parts)?.0;
        }
        Ok(BlockCount(count))
    }

    /// Whether everything lies below `high`, as far as memory tells.
    pub fn is_below(&self, high: &Marks) -> bool {
        Stream::ALL.into_iter().all(|stream| self.of(stream).may_lie_in(&(LogAddress(0)..high.of(stream))))
    }

    /// Whether everything lies at or above `low`, as far as memory tells.
    pub fn is_from(&self, low: &Marks) -> bool {
        let end = LogAddress(u64::MAX);
        Stream::ALL.into_iter().all(|stream| self.of(stream).may_lie_in(&(low.of(stream)..end)))
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
}

/// Collects blocks that no version references any more.
///
/// What it holds becomes reusable when the checkpoint that records these deaths is durable and no pin is
/// older than they are: that is for the holder of the sink to see to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FreedSink {
    blocks: [BlockSet; 3],
    /// Memory that sets took that were taken in, about.
    weight: u64,
}

impl FreedSink {
    /// An empty sink.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in a run. Panics if a block of it is here already: nothing is freed twice.
    pub fn push(&mut self, run: Run) {
        let added = self.blocks[run.stream as usize].insert(span_of(&run));
        assert_eq!(added, run.length, "freed twice: {run:?}");
    }

    /// Takes in a set of blocks of one stream. Panics if one is here already.
    pub fn absorb(&mut self, stream: Stream, blocks: BlockSet) {
        let expected = blocks.len();
        self.weight += blocks.memory();
        let added = self.blocks[stream as usize].unite(blocks);
        assert_eq!(added, expected, "freed twice in stream {stream:?}");
    }

    /// Takes in all that another holds. Panics if a block is here already.
    pub fn absorb_all(&mut self, other: Self) {
        let weight = other.weight;
        for (stream, blocks) in Stream::ALL.into_iter().zip(other.blocks) {
            let expected = blocks.len();
            let added = self.blocks[stream as usize].unite(blocks);
            assert_eq!(added, expected, "freed twice in stream {stream:?}");
        }
        self.weight += weight;
    }

    /// Takes blocks of one stream out: how many of them were here.
    pub fn subtract(&mut self, stream: Stream, blocks: &BlockSet) -> BlockCount {
        self.blocks[stream as usize].subtract(blocks)
    }

    /// Number of blocks here.
    pub fn len(&self) -> BlockCount {
        BlockCount(self.blocks.iter().map(|set| set.len().0).sum())
    }

    /// Memory that sets took that were taken in, about.
    pub const fn weight(&self) -> u64 {
        self.weight
    }

    /// Whether nothing was freed.
    pub fn is_empty(&self) -> bool {
        self.blocks.iter().all(BlockSet::is_empty)
    }

    /// The blocks of one stream.
    pub const fn of(&self, stream: Stream) -> &BlockSet {
        &self.blocks[stream as usize]
    }

    /// Maximal runs, stream by stream, ascending.
    pub fn runs(&self) -> impl Iterator<Item = Run> {
        Stream::ALL
            .into_iter()
            .flat_map(|stream| self.of(stream).runs().map(move |span| Run::of(stream, &span)))
    }

    /// Takes out what lies within a span of one stream.
    pub fn take_within(&mut self, stream: Stream, span: &Span) -> Vec<Run> {
        let taken = self.blocks[stream as usize].extract(span);
        taken.runs().map(|run| Run::of(stream, &run)).collect()
    }

    /// Takes out what lies at or above these marks.
    pub fn take_from(&mut self, marks: &Marks) -> Self {
        let blocks = Stream::ALL.map(|stream| {
            let span = marks.of(stream)..LogAddress(u64::MAX);
            self.blocks[stream as usize].extract(&span)
        });
        Self { blocks, weight: 0 }
    }

    /// Takes out so many runs at most, in the order of [`FreedSink::runs`].
    pub fn take_some(&mut self, most: usize) -> Vec<Run> {
        let runs: Vec<Run> = self.runs().take(most).collect();
        for stream in Stream::ALL {
            if let Some(last) = runs.iter().rfind(|run| run.stream == stream) {
                self.blocks[stream as usize].remove(&(LogAddress(0)..last.end()));
            }
        }
        runs
    }

    /// Empties the sink.
    pub fn take(&mut self) -> Self {
        std::mem::take(self)
    }
}
