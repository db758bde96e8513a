//! What changing a tree does to liveness: blocks are born, and blocks die.

use super::{Graveyard, Lifetimes};
use crate::liveness::History;
use crate::namespace::Ledger;
use crate::tree::NodeLedger;
use crate::units::{BlockCount, LogAddress, Marks, Run, Stream, VersionId};

/// Records births and deaths of blocks of one head.
pub(crate) struct Effects<'a> {
    pub history: &'a mut History,
    pub head: VersionId,
    pub marks: &'a mut Marks,
    pub graveyard: &'a mut Graveyard,
    pub lifetimes: &'a mut Lifetimes,
    /// Blocks of data written in a long life.
    pub long_life: u64,
    pub dirty_nodes: &'a mut u64,
    /// Nodes from here on were born both after the last checkpoint was frozen and in this head alone.
    pub unwritten_from: LogAddress,
    /// Merged blocks from here on were born in this head.
    pub own_merged_from: LogAddress,
    /// Blocks are made from what is dropped now: a replay reads it again.
    pub is_merging: bool,
}

impl Effects<'_> {
    /// A run was written.
    pub(crate) fn born(&mut self, run: Run) {
        self.history.born(self.head, run).expect("the head was looked up");
    }

    /// The addresses that merged blocks would get now.
    pub(crate) fn next_merged(&self, length: BlockCount) -> Run {
        Run { stream: Stream::Merged, start: self.marks.of(Stream::Merged), length }
    }

    /// Merged blocks are born with the addresses that [`Effects::next_merged`] answered.
    pub(crate) fn draw_merged(&mut self, run: Run) {
        let next = self.marks.of_mut(Stream::Merged);
        assert!(run.stream == Stream::Merged && run.start == *next);
        *next = run.end();
        self.born(run);
    }

    fn dropped(&mut self, run: Run) {
        let dropped = self.history.dropped(self.head, run, self.graveyard.sink_of(run.stream));
        dropped.expect("the head was looked up");
    }
}

impl NodeLedger for Effects<'_> {
    fn draw_node(&mut self) -> LogAddress {
        let next = self.marks.of_mut(Stream::Node);
        let run = Run { stream: Stream::Node, start: *next, length: BlockCount(1) };
        next.0 += 1;
        *self.dirty_nodes += 1;
        self.born(run);
        run.start
    }

    fn drop_node(&mut self, address: LogAddress) {
        self.dropped(Run { stream: Stream::Node, start: address, length: BlockCount(1) });
        if address >= self.unwritten_from {
            *self.dirty_nodes -= 1;
        }
    }
}

impl Ledger for Effects<'_> {
    fn replace_run(&mut self, former: Run, run: Run) {
        self.lifetimes.replaced(&former, &run, self.long_life);
    }

    fn drop_run(&mut self, run: Run) {
        if self.is_merging {
            self.graveyard.is_read_by_replay(&run);
        }
        self.dropped(run);
        if run.stream == Stream::Merged && run.start >= self.own_merged_from {
            self.graveyard.supersede(&run);
        }
    }
}
