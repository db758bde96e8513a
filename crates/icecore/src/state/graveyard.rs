//! Blocks that died, and how long what they held has to stay.

use crate::liveness::{BlockSet, FreedSink, Span};
use crate::pins::Pins;
use crate::units::{BlockCount, LogAddress, Run, Stream};
use std::collections::{HashSet, VecDeque};

/// Blocks that died, waiting for the checkpoint that records their death and for readers of older versions.
#[derive(Default)]
pub(crate) struct Graveyard {
    current: FreedSink,
    /// As `current`, data that is [`Certain`].
    certain: Certain,
    moment: u64,
    /// What the checkpoint on its way will have recorded.
    frozen: Option<Deaths>,
    recorded: VecDeque<Deaths>,
    /// Recorded, reached by no reader, and where it lies could not be read: tried again after the next checkpoint.
    aside: FreedSink,
    /// Merged blocks that died, to be forgotten early if they were never written.
    superseded: VecDeque<(u64, LogAddress)>,
}

/// Data that died since the last checkpoint was frozen, of which the log alone says so: a replay from there comes to the same
/// end. Once the log is durable such a block is of no use to a recovery, unless the replay reads it to make another of it.
#[derive(Default)]
struct Certain {
    /// What destroyed versions held was freed since, which nothing logs: a replay need not find dead what dies from here on.
    is_over: bool,
    current: FreedSink,
    /// What died up to a moment; some reader may still reach it.
    aging: Option<Deaths>,
    /// What no reader reaches.
    unread: FreedSink,
    /// What other blocks were made from.
    sources: BlockSet,
}

impl Certain {
    fn sinks(&self) -> impl Iterator<Item = &FreedSink> {
        [&self.current, &self.unread].into_iter().chain(self.aging.as_ref().map(|deaths| &deaths.blocks))
    }

    /// Looks who can still be reached by readers.
    fn sift(&mut self, moment: u64, oldest_pin: Option<u64>) {
        let aging = self.aging.get_or_insert_with(|| Deaths { moment, blocks: self.current.take() });
        if oldest_pin.is_none_or(|pin| pin >= aging.moment) {
            let unread = std::mem::take(&mut aging.blocks);
            self.aging = None;
            self.unread.absorb_all(unread);
        }
    }

    /// Everything, to be recorded by a checkpoint.
    fn take(&mut self) -> FreedSink {
        let Self { current, aging, unread, .. } = std::mem::take(self);
        let mut all = unread;
        all.absorb_all(current);
        aging.into_iter().for_each(|deaths| all.absorb_all(deaths.blocks));
        all
    }
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

    /// Where deaths are noted that nothing logs.
    pub(crate) fn sink(&mut self) -> &mut FreedSink {
        &mut self.current
    }

    /// Where deaths are noted that an operation of the log brings about.
    pub(crate) fn sink_of(&mut self, stream: Stream) -> &mut FreedSink {
        let is_certain = stream == Stream::Data && !self.certain.is_over;
        if is_certain { &mut self.certain.current } else { &mut self.current }
    }

    /// Who owns what is about to change, and nothing logs it.
    pub(crate) fn is_uncertain_from_here(&mut self) {
        self.certain.is_over = true;
    }

    /// A block is made from these: whoever replays the log makes it from them again.
    pub(crate) fn is_read_by_replay(&mut self, run: &Run) {
        if run.stream == Stream::Data {
            self.certain.sources.insert(run.start..run.end());
        }
    }

    /// A checkpoint is frozen: it records what died since the one before.
    pub(crate) fn freeze(&mut self) {
        let mut blocks = self.current.take();
        blocks.absorb_all(self.certain.take());
        self.frozen = Some(Deaths { moment: self.moment, blocks });
    }

    /// Looks which dead blocks no reader reaches any more.
    pub(crate) fn sift(&mut self, pins: &Pins) {
        self.certain.sift(self.moment, pins.oldest());
    }

    /// Of these blocks of data those that nobody needs once the log is durable: neither a reader, nor a recovery. As of the last
    /// [`Graveyard::sift`].
    pub(crate) fn needless(&self, among: &BlockSet) -> BlockSet {
        let mut needless = among.clone();
        needless.intersect(self.certain.unread.of(Stream::Data));
        needless.subtract(&self.certain.sources);
        needless
    }

    /// These blocks of data have no place any more: answers how many of them nobody needs, as of the last [`Graveyard::sift`].
    pub(crate) fn forsake(&mut self, blocks: &BlockSet) -> BlockCount {
        self.certain.unread.subtract(Stream::Data, blocks)
    }

    /// The checkpoint that was frozen is durable. What was set aside is the first to be tried again.
    pub(crate) fn recorded(&mut self) {
        self.recorded.extend(self.frozen.take());
        let aside = std::mem::take(&mut self.aside);
        self.push_front(aside);
    }

    /// Takes what no reader can reach any more: recorded deaths from before the oldest pin was taken, so many runs at
    /// most.
    pub(crate) fn exhume(&mut self, pins: &Pins, most: usize) -> Vec<Run> {
        // Only now, with the state in hand: readers take it to pin, or pin what an operation has yet to replace (`present.rs`).
        let oldest_pin = pins.oldest();
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
        self.push_front(blocks);
    }

    fn push_front(&mut self, blocks: FreedSink) {
        if !blocks.is_empty() {
            // No pin is older than that: none kept it from being freed.
            self.recorded.push_front(Deaths { moment: 0, blocks });
        }
    }

    /// Where the blocks of a span lie cannot be read: those that could be freed are set aside until another checkpoint is durable, so
    /// that what died behind them need not wait. What a reader still reaches stays where it is.
    pub(crate) fn set_aside(&mut self, pins: &Pins, stream: Stream, span: &Span) {
        let oldest_pin = pins.oldest();
        let unread = |deaths: &&mut Deaths| oldest_pin.is_none_or(|pin| pin >= deaths.moment);
        for deaths in self.recorded.iter_mut().take_while(unread) {
            let taken = deaths.blocks.take_within(stream, span);
            taken.into_iter().for_each(|run| self.aside.push(run));
        }
        self.recorded.retain(|deaths| !deaths.blocks.is_empty());
    }

    /// Whether a block is dead and not yet freed.
    pub(crate) fn holds(&self, stream: Stream, address: LogAddress) -> bool {
        self.sinks().any(|sink| sink.of(stream).contains(address))
    }

    /// Dead blocks that a recovery from the last checkpoint to be frozen, or a reader, may still reach.
    pub(crate) fn lingering(&self, stream: Stream) -> impl Iterator<Item = &BlockSet> {
        let recorded = self.recorded.iter().map(|deaths| &deaths.blocks);
        recorded
            .chain([&self.current, &self.aside])
            .chain(self.certain.sinks())
            .map(move |sink| sink.of(stream))
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
        let deaths = self.recorded.iter().chain(&self.frozen).map(|deaths| &deaths.blocks);
        deaths.chain([&self.current, &self.aside]).chain(self.certain.sinks())
    }

    /// Merged blocks died that may not have been written.
    pub(crate) fn supersede(&mut self, run: &Run) {
        let all = (0..run.length.0).map(|index| (self.moment, run.start.plus(BlockCount(index))));
        self.superseded.extend(all);
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
        self.certain.sinks().map(FreedSink::weight).sum::<u64>() + self.current.weight() > bytes
    }

    /// Whether anything waits for readers.
    pub(crate) fn waits(&self) -> bool {
        !self.recorded.is_empty()
    }

    /// Blocks that died since the last checkpoint was frozen, and whose place is not free yet.
    pub(crate) fn pending_blocks(&self) -> u64 {
        self.waiting_blocks() + self.certain.sinks().map(|sink| sink.len().0).sum::<u64>()
    }

    /// Of those the ones that only the next checkpoint makes room of.
    pub(crate) fn waiting_blocks(&self) -> u64 {
        self.current.len().0
    }
}
