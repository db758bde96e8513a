//! What changing a tree does to liveness: blocks are born, and blocks die.

use super::{Graveyard, Lifetimes};
use crate::blocks::{Block, Blocks};
use crate::error::{Error, Result};
use crate::format::segment::file_name;
use crate::liveness::History;
use crate::namespace::Ledger;
use crate::tree::NodeLedger;
use crate::units::{BlockCount, LogAddress, Marks, Run, Stream, VersionId};
use std::sync::Arc;

/// What operations on files need beside the tree that they change: a record of births and deaths that also
/// knows what blocks hold. In earnest this is [`Effects`]; a [`super::Trial`] only counts: the defaults are
/// for it.
pub(crate) trait Births: Ledger {
    /// A run was written.
    fn born(&mut self, run: Run);

    /// The addresses that merged blocks would get now.
    fn next_merged(&self, length: BlockCount) -> Run;

    /// Merged blocks are born, with the addresses that [`Births::next_merged`] answered, and what they hold;
    /// `None` for one that is lost.
    fn draw_merged(&mut self, run: Run, contents: Vec<Option<Arc<Block>>>);

    /// Whether blocks are made from what is dropped from now on: a replay reads it again.
    fn merging(&mut self, _is_merging: bool) {}

    /// A replay reads these blocks again.
    fn is_read_by_replay(&mut self, _run: &Run) {}

    /// What the first block of a run holds.
    fn read(&self, run: &Run) -> Result<Arc<Block>>;

    /// Why a block cannot be read, if the file that it lies in is missing or cut short.
    fn gone_with_file(&self, _run: &Run) -> Option<Error> {
        None
    }
}

/// Records births and deaths of blocks of one head.
pub(crate) struct Effects<'a> {
    pub blocks: &'a Blocks,
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
    fn dropped(&mut self, run: Run) {
        let dropped = self.history.dropped(self.head, run, self.graveyard.sink_of(run.stream, self.head));
        dropped.expect("the head was looked up");
    }
}

impl Births for Effects<'_> {
    fn born(&mut self, run: Run) {
        self.history.born(self.head, run).expect("the head was looked up");
    }

    fn next_merged(&self, length: BlockCount) -> Run {
        Run { stream: Stream::Merged, start: self.marks.of(Stream::Merged), length }
    }

    fn draw_merged(&mut self, run: Run, contents: Vec<Option<Arc<Block>>>) {
        let next = self.marks.of_mut(Stream::Merged);
        assert!(run.stream == Stream::Merged && run.start == *next);
        *next = run.end();
        self.born(run);
        for (index, content) in contents.into_iter().enumerate() {
            self.blocks.pending().add(run.start.plus(BlockCount(index as u64)), content);
        }
    }

    fn merging(&mut self, is_merging: bool) {
        self.is_merging = is_merging;
    }

    fn is_read_by_replay(&mut self, run: &Run) {
        self.graveyard.is_read_by_replay(run);
    }

    fn read(&self, run: &Run) -> Result<Arc<Block>> {
        self.blocks.read(run.stream, run.start)
    }

    fn gone_with_file(&self, run: &Run) -> Option<Error> {
        let (segment, ..) = self.blocks.lookup(run.stream, run.start).ok().flatten()?;
        self.blocks.files().what_is_absent(segment)?;
        let detail =
            "it is missing or cut short, and the log since the last checkpoint changes what is in it";
        Some(Error::damaged(file_name(segment), detail))
    }
}

impl NodeLedger for Effects<'_> {
    fn draw_node(&mut self) -> LogAddress {
        let run = self.marks.draw(Stream::Node);
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
            self.graveyard.supersede(self.head, &run);
        }
    }
}
