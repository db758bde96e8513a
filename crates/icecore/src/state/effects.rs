//! What changing a tree does to liveness: blocks are born, and blocks die.

use crate::liveness::{BlockSet, FreedSink, History};
use crate::namespace::Ledger;
use crate::tree::NodeLedger;
use crate::units::{BlockCount, LogAddress, Marks, Run, Stream, VersionId};
use std::collections::{HashSet, VecDeque};

/// Blocks that died, waiting for the checkpoint that records their death and for readers of older versions.
#[derive(Default)]
pub(crate) struct Graveyard {
    current: FreedSink,
    moment: u64,
    /// What the checkpoint on its way will have recorded.
    frozen: Option<Deaths>,
    recorded: VecDeque<Deaths>,
    /// Merged blocks that died, to be forgotten early if they were never written.
    superseded: VecDeque<(u64, LogAddress)>,
}

/// Blocks that died up to a moment.
struct Deaths {
    moment: u64,
    blocks: FreedSink,
}

impl Graveyard {
    /// Deaths from here on happen at `moment`.
    pub(crate) fn now(&mut self, moment: u64) {
        self.moment = moment;
    }

    /// Where deaths are noted.
    pub(crate) fn sink(&mut self) -> &mut FreedSink {
        &mut self.current
    }

    /// A checkpoint is frozen: it records what died since the one before.
    pub(crate) fn freeze(&mut self) {
        self.frozen = Some(Deaths { moment: self.moment, blocks: self.current.take() });
    }

    /// The checkpoint that was frozen is durable.
    pub(crate) fn recorded(&mut self) {
        self.recorded.extend(self.frozen.take());
    }

    /// Takes what no reader can reach any more: recorded deaths from before the oldest pin was taken, so many runs at
    /// most.
    pub(crate) fn exhume(&mut self, oldest_pin: Option<u64>, most: usize) -> Vec<Run> {
        let mut out = Vec::new();
        while let Some(deaths) = self.recorded.front_mut() {
            if out.len() >= most || oldest_pin.is_some_and(|pin| pin < deaths.moment) {
                break;
            }
            out.extend(deaths.blocks.take_some(most - out.len()));
            if deaths.blocks.is_empty() {
                self.recorded.pop_front();
            }
        }
        out
    }

    /// Takes back what could not be freed: it is the first to be tried again.
    pub(crate) fn rebury(&mut self, runs: impl IntoIterator<Item = Run>) {
        let mut blocks = FreedSink::new();
        runs.into_iter().for_each(|run| blocks.push(run));
        if !blocks.is_empty() {
            // No pin is older than that: none kept it from being freed.
            self.recorded.push_front(Deaths { moment: 0, blocks });
        }
    }

    /// Whether a block is dead and not yet freed.
    pub(crate) fn holds(&self, stream: Stream, address: LogAddress) -> bool {
        self.sinks().any(|sink| sink.of(stream).contains(address))
    }

    /// Dead blocks that a recovery from the last checkpoint to be frozen, or a reader, may still reach.
    pub(crate) fn lingering(&self, stream: Stream) -> impl Iterator<Item = &BlockSet> {
        let recorded = self.recorded.iter().map(|deaths| &deaths.blocks);
        recorded.chain([&self.current]).map(move |sink| sink.of(stream))
    }

    /// Dead blocks that nobody will reach once the checkpoint on its way is durable, but for readers.
    pub(crate) fn frozen(&self, stream: Stream) -> Option<&BlockSet> {
        self.frozen.as_ref().map(|deaths| deaths.blocks.of(stream))
    }

    /// Everything that is dead and not yet freed.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.sinks().flat_map(FreedSink::runs)
    }

    fn sinks(&self) -> impl Iterator<Item = &FreedSink> {
        self.recorded.iter().chain(&self.frozen).map(|deaths| &deaths.blocks).chain([&self.current])
    }

    /// Merged blocks that died unwritten and that no reader can reach any more.
    pub(crate) fn superseded(&mut self, oldest_pin: impl Fn() -> Option<u64>) -> Option<LogAddress> {
        let (moment, address) = *self.superseded.front()?;
        if oldest_pin().is_some_and(|pin| pin < moment) {
            return None;
        }
        self.superseded.pop_front();
        Some(address)
    }

    /// Takes note that a checkpoint is about to write what merged blocks there are: those that died unwritten and that
    /// nobody can reach go to `gone`; answers those that somebody can.
    pub(crate) fn settle_superseded(
        &mut self,
        is_reached: impl Fn(u64, LogAddress) -> bool,
        mut gone: impl FnMut(LogAddress),
    ) -> HashSet<LogAddress> {
        let mut reached = HashSet::new();
        for (moment, address) in self.superseded.drain(..) {
            if is_reached(moment, address) {
                reached.insert(address);
            } else {
                gone(address);
            }
        }
        reached
    }

    /// Whether what died since the last checkpoint takes more than so many bytes of memory.
    pub(crate) fn is_laden(&self, bytes: u64) -> bool {
        self.current.weight() > bytes
    }

    /// Whether anything waits for readers.
    pub(crate) fn waits(&self) -> bool {
        !self.recorded.is_empty()
    }

    /// Whether deaths since the last checkpoint wait for the next one.
    pub(crate) fn pending_blocks(&self) -> u64 {
        self.current.len().0
    }
}

/// Records births and deaths of blocks of one head.
pub(crate) struct Effects<'a> {
    pub history: &'a mut History,
    pub head: VersionId,
    pub marks: &'a mut Marks,
    pub graveyard: &'a mut Graveyard,
    pub dirty_nodes: &'a mut u64,
    /// Nodes from here on were born both after the last checkpoint was frozen and in this head alone.
    pub unwritten_from: LogAddress,
    /// Merged blocks from here on were born in this head.
    pub own_merged_from: LogAddress,
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
        let dropped = self.history.dropped(self.head, run, self.graveyard.sink());
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
    fn drop_run(&mut self, run: Run) {
        self.dropped(run);
        if run.stream == Stream::Merged && run.start >= self.own_merged_from {
            let moment = self.graveyard.moment;
            for index in 0..run.length.0 {
                self.graveyard.superseded.push_back((moment, run.start.plus(BlockCount(index))));
            }
        }
    }
}
