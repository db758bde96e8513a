//! Blocks that died, and how long what they held has to stay.
//!
//! Some pins may reach a block that died. They were taken after it was born and before it died, on a version
//! that reached it. The address of a block says when it was born. When it died, and in which head, is noted
//! for all blocks that died together. So what may be reached is never less than what is reached. It is more
//! by what destroyed snapshots give back (`State::readers_of`). It is also more by what died between the last
//! checkpoint and a pin that was taken without the state, for one read (`present.rs`).

use crate::liveness::{BlockSet, FreedSink, Span};
use crate::pins::{Hold, Named, Pins, Readers};
use crate::sync::Arc;
use crate::units::{BlockCount, LogAddress, Run, Stream, VersionId};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Heads whose deaths are kept apart, of those that no pin reaches.
const HEADS_APART: usize = 256;
/// Deaths that are kept apart by the pins taken after them before it is asked which of these pins are left.
const CLOSED_APART: usize = 16;

/// Blocks that died, waiting for the checkpoint that records their death and for readers that reach them.
#[derive(Default)]
pub(crate) struct Graveyard {
    pins: Arc<Pins>,
    current: Deaths,
    /// As `current`, data that is [`Certain`].
    certain: Certain,
    moment: u64,
    /// What the checkpoint on its way will have recorded.
    frozen: Option<Deaths>,
    /// Recorded, and some reader may reach it.
    recorded: Deaths,
    /// Recorded, and no reader reaches it.
    unread: FreedSink,
    /// As `unread`, and where it lies could not be read: tried again after the next checkpoint.
    aside: FreedSink,
    /// Merged blocks that died, to be forgotten early if they were never written.
    superseded: VecDeque<Superseded>,
    /// Of those the ones that some reader may reach: they are looked at again when a checkpoint is frozen.
    read: Vec<Superseded>,
}

/// Data that died since the last checkpoint was frozen, and of which the log alone says so. A replay from
/// that checkpoint comes to the same end. Once the log is durable, a recovery does not need such a block,
/// unless the replay reads it to make another of it.
#[derive(Default)]
struct Certain {
    /// What destroyed versions held was freed since, which nothing logs. A replay need not find dead what
    /// dies from here on.
    is_over: bool,
    current: Deaths,
    /// What no reader reaches.
    unread: FreedSink,
    /// What other blocks were made from.
    sources: BlockSet,
}

impl Certain {
    fn sinks(&self) -> impl Iterator<Item = &FreedSink> {
        self.current.sinks().chain([&self.unread])
    }
}

/// A merged block that died in a head, and when.
struct Superseded {
    head: VersionId,
    moment: u64,
    address: LogAddress,
}

impl Superseded {
    fn is_read(&self, pins: &Pins) -> bool {
        pins.reach(Readers::Of(self.head), self.moment, Stream::Merged, self.address)
    }
}

/// Blocks that died, parted by who may reach them.
#[derive(Default)]
struct Deaths {
    /// What dies now is added here.
    open: BTreeMap<Readers, Died>,
    /// What died in a head before one pin or the other was taken on it.
    closed: Vec<Died>,
    /// How many there may be before those that are alike are joined; [`CLOSED_APART`] if that is more.
    closed_max: usize,
}

/// Blocks that died up to a moment.
struct Died {
    readers: Readers,
    until: u64,
    blocks: FreedSink,
}

impl Died {
    /// Adds what the same pins reach.
    fn take_in(&mut self, other: Self) {
        self.until = self.until.max(other.until);
        self.blocks.absorb_all(other.blocks);
    }
}

impl Deaths {
    /// Where what dies at `moment` is noted.
    fn sink(&mut self, readers: Readers, moment: u64, pins: &Pins) -> &mut FreedSink {
        if self.open.len() > HEADS_APART && !self.open.contains_key(&readers) {
            self.join_unread(moment, pins);
        }
        let none = || Died { readers, until: 0, blocks: FreedSink::new() };
        let died = self.open.entry(readers).or_insert_with(none);
        died.until = moment;
        &mut died.blocks
    }

    /// What died by former operations and no pin reaches now, no later pin reaches. In which heads it died
    /// makes no difference any more. A reader that has yet to pin may still find what dies by the operation
    /// under way (`present.rs`).
    fn join_unread(&mut self, moment: u64, pins: &Pins) {
        let mut blocks = FreedSink::new();
        self.open.retain(|readers, died| {
            let stays = died.until >= moment || pins.newest(*readers, died.until).is_some();
            if !stays {
                blocks.absorb_all(died.blocks.take());
            }
            stays
        });
        self.add(Died { readers: Readers::None, until: 0, blocks }, pins);
    }

    /// Some reader is about to pin a head: it reaches nothing of what died before.
    fn close(&mut self, head: VersionId, pins: &Pins) {
        if let Some(died) = self.open.remove(&Readers::Of(head)) {
            self.add(died, pins);
        }
    }

    /// Takes something in, beside what the same pins reach.
    fn add(&mut self, died: Died, pins: &Pins) {
        let newest =
            |died: &Died| (died.readers, pins.newest(died.readers, died.until).map(|(moment, _)| moment));
        match self.closed.last_mut().filter(|last| newest(last) == newest(&died)) {
            Some(last) => last.take_in(died),
            None => self.closed.push(died),
        }
        // Readers come and go, so most of what they parted is alike soon. Joined whenever the number has
        // doubled, this costs each death no more than a few looks at the pins.
        if self.closed.len() > self.closed_max.max(CLOSED_APART) {
            let mut joined: BTreeMap<(Readers, Option<u64>), Died> = BTreeMap::new();
            for died in std::mem::take(&mut self.closed) {
                match joined.entry(newest(&died)) {
                    Entry::Occupied(mut alike) => alike.get_mut().take_in(died),
                    Entry::Vacant(none) => {
                        none.insert(died);
                    }
                }
            }
            self.closed.extend(joined.into_values());
            self.closed_max = 2 * self.closed.len();
        }
    }

    /// Takes in all that another holds. Nothing dies here from then on.
    fn add_all(&mut self, other: Self, pins: &Pins) {
        other.closed.into_iter().chain(other.open.into_values()).for_each(|died| self.add(died, pins));
    }

    /// Takes out what no pin reaches.
    fn sift(&mut self, pins: &Pins) -> FreedSink {
        let mut unread = FreedSink::new();
        for died in self.open.values_mut().chain(&mut self.closed) {
            match pins.newest(died.readers, died.until) {
                None => unread.absorb_all(died.blocks.take()),
                Some((_, marks)) => unread.absorb_all(died.blocks.take_from(&marks)),
            }
        }
        self.open.retain(|_, died| !died.blocks.is_empty());
        self.closed.retain(|died| !died.blocks.is_empty());
        unread
    }

    fn sinks(&self) -> impl Iterator<Item = &FreedSink> {
        self.open.values().chain(&self.closed).map(|died| &died.blocks)
    }

    /// Blocks that a pin may reach.
    fn kept(&self, pin: &Named) -> u64 {
        let may_reach = |died: &&Died| {
            let is_of_it = match (pin.hold, died.readers) {
                (Hold::Snapshot(_), _) => false,
                (Hold::Pool, _) | (Hold::Head(_), Readers::Any) => true,
                (Hold::Head(head), readers) => readers == Readers::Of(head),
            };
            is_of_it && died.until > pin.moment
        };
        let below = |blocks: &FreedSink, stream: Stream| {
            blocks.of(stream).count(&(LogAddress(0)..pin.marks.of(stream))).0
        };
        let died = self.open.values().chain(&self.closed).filter(may_reach);
        died.map(|died| Stream::ALL.into_iter().map(|stream| below(&died.blocks, stream)).sum::<u64>()).sum()
    }

    fn len(&self) -> u64 {
        self.sinks().map(|sink| sink.len().0).sum()
    }
}

impl Graveyard {
    /// An empty one, which waits for these readers.
    pub(crate) fn of(pins: Arc<Pins>) -> Self {
        Self { pins, ..Self::default() }
    }

    /// Whom it waits for.
    pub(crate) const fn pins(&self) -> &Arc<Pins> {
        &self.pins
    }

    /// Deaths from here on happen at `moment`.
    pub(crate) fn now(&mut self, moment: u64) {
        self.moment = moment;
    }

    /// Some reader is about to pin a head: it reaches nothing of what died before.
    pub(crate) fn will_be_read(&mut self, head: VersionId) {
        self.current.close(head, &self.pins);
        self.certain.current.close(head, &self.pins);
    }

    /// Where deaths are noted that nothing logs, and that these readers may have to do with.
    pub(crate) fn sink(&mut self, readers: Readers) -> &mut FreedSink {
        self.current.sink(readers, self.moment, &self.pins)
    }

    /// Where deaths are noted that an operation of the log brings about in a head.
    pub(crate) fn sink_of(&mut self, stream: Stream, head: VersionId) -> &mut FreedSink {
        let is_certain = stream == Stream::Data && !self.certain.is_over;
        let deaths = if is_certain { &mut self.certain.current } else { &mut self.current };
        deaths.sink(Readers::Of(head), self.moment, &self.pins)
    }

    /// Who owns what is about to change, and nothing logs it.
    pub(crate) fn is_uncertain_from_here(&mut self) {
        self.certain.is_over = true;
    }

    /// A block is made from these: a replay of the log makes it from them again.
    pub(crate) fn is_read_by_replay(&mut self, run: &Run) {
        if run.stream == Stream::Data {
            self.certain.sources.insert(run.start..run.end());
        }
    }

    /// A checkpoint is frozen: it records what died since the one before.
    pub(crate) fn freeze(&mut self) {
        self.sift();
        let certain = std::mem::take(&mut self.certain);
        let mut frozen = std::mem::take(&mut self.current);
        let mut blocks = certain.unread;
        blocks.absorb_all(frozen.sift(&self.pins));
        frozen.add_all(certain.current, &self.pins);
        frozen.add(Died { readers: Readers::None, until: 0, blocks }, &self.pins);
        self.frozen = Some(frozen);
    }

    /// Looks which dead blocks no reader reaches any more.
    pub(crate) fn sift(&mut self) {
        let unread = self.certain.current.sift(&self.pins);
        self.certain.unread.absorb_all(unread);
    }

    /// Of these blocks of data, those that neither a reader nor a recovery needs once the log is durable. As
    /// of the last [`Graveyard::sift`].
    pub(crate) fn needless(&self, among: &BlockSet) -> BlockSet {
        let mut needless = among.clone();
        needless.intersect(self.certain.unread.of(Stream::Data));
        needless.subtract(&self.certain.sources);
        needless
    }

    /// These blocks of data have no place any more. Answers how many of them neither a reader nor a recovery
    /// needs, as of the last [`Graveyard::sift`].
    pub(crate) fn forsake(&mut self, blocks: &BlockSet) -> BlockCount {
        self.certain.unread.subtract(Stream::Data, blocks)
    }

    /// The checkpoint that was frozen is durable. What was set aside is tried again.
    pub(crate) fn recorded(&mut self) {
        if let Some(frozen) = self.frozen.take() {
            self.recorded.add_all(frozen, &self.pins);
        }
        self.unread.absorb_all(self.aside.take());
    }

    /// Takes what is recorded and what no reader can reach any more, so many runs at most.
    pub(crate) fn exhume(&mut self, most: usize) -> Vec<Run> {
        self.sift_recorded();
        self.unread.take_some(most)
    }

    /// Only with the state in hand: a reader takes it to pin, or pins what an operation has yet to replace
    /// (`present.rs`).
    fn sift_recorded(&mut self) {
        let unread = self.recorded.sift(&self.pins);
        self.unread.absorb_all(unread);
    }

    /// Takes back what could not be freed: it is tried again.
    pub(crate) fn rebury(&mut self, runs: impl IntoIterator<Item = Run>) {
        runs.into_iter().for_each(|run| self.unread.push(run));
    }

    /// Where the blocks of a span lie cannot be read. Those that could be freed are set aside until another
    /// checkpoint is durable, so that what died behind them need not wait. What a reader still reaches stays
    /// where it is.
    pub(crate) fn set_aside(&mut self, stream: Stream, span: &Span) {
        self.sift_recorded();
        let taken = self.unread.take_within(stream, span);
        taken.into_iter().for_each(|run| self.aside.push(run));
    }

    /// Whether a block is dead and not yet freed.
    pub(crate) fn holds(&self, stream: Stream, address: LogAddress) -> bool {
        self.sinks().any(|sink| sink.of(stream).contains(address))
    }

    /// Dead blocks that a recovery from the last checkpoint to be frozen, or a reader, may still reach.
    pub(crate) fn lingering(&self, stream: Stream) -> impl Iterator<Item = &BlockSet> {
        self.lingering_sinks().map(move |sink| sink.of(stream))
    }

    fn lingering_sinks(&self) -> impl Iterator<Item = &FreedSink> {
        let recorded = self.recorded.sinks().chain([&self.unread, &self.aside]);
        recorded.chain(self.current.sinks()).chain(self.certain.sinks())
    }

    /// Dead blocks that only readers may reach once the checkpoint on its way is durable.
    pub(crate) fn frozen(&self, stream: Stream) -> impl Iterator<Item = &BlockSet> {
        self.frozen.iter().flat_map(Deaths::sinks).map(move |sink| sink.of(stream))
    }

    /// Everything that is dead and not yet freed.
    pub(crate) fn runs(&self) -> impl Iterator<Item = Run> {
        self.sinks().flat_map(FreedSink::runs)
    }

    fn sinks(&self) -> impl Iterator<Item = &FreedSink> {
        self.lingering_sinks().chain(self.frozen.iter().flat_map(Deaths::sinks))
    }

    /// Dead blocks that a pin keeps.
    pub(crate) fn kept(&self, pin: &Named) -> BlockCount {
        let deaths = [&self.recorded, &self.current, &self.certain.current].into_iter().chain(&self.frozen);
        BlockCount(deaths.map(|deaths| deaths.kept(pin)).sum())
    }

    /// Merged blocks of a head died that may not have been written.
    pub(crate) fn supersede(&mut self, head: VersionId, run: &Run) {
        let moment = self.moment;
        let addresses = (0..run.length.0).map(|index| run.start.plus(BlockCount(index)));
        self.superseded.extend(addresses.map(|address| Superseded { head, moment, address }));
    }

    /// A merged block that died unwritten and that no reader can reach any more.
    pub(crate) fn superseded(&mut self) -> Option<LogAddress> {
        while let Some(superseded) = self.superseded.pop_front() {
            if !superseded.is_read(&self.pins) {
                return Some(superseded.address);
            }
            self.read.push(superseded);
        }
        None
    }

    /// Takes note that a checkpoint is about to write what merged blocks there are. Those that died unwritten
    /// go to `gone` if no reader can reach them. Answers those that some reader can reach.
    pub(crate) fn settle_superseded(&mut self, mut gone: impl FnMut(LogAddress)) -> HashSet<LogAddress> {
        let (read, unread): (Vec<_>, Vec<_>) =
            self.read.drain(..).chain(self.superseded.drain(..)).partition(|one| one.is_read(&self.pins));
        unread.iter().for_each(|superseded| gone(superseded.address));
        read.iter().map(|superseded| superseded.address).collect()
    }

    /// Whether what died since the last checkpoint takes more than so many bytes of memory.
    pub(crate) fn is_laden(&self, bytes: u64) -> bool {
        self.certain.sinks().chain(self.current.sinks()).map(FreedSink::weight).sum::<u64>() > bytes
    }

    /// Whether anything waits for readers.
    pub(crate) fn waits(&self) -> bool {
        !self.unread.is_empty() || self.recorded.sinks().next().is_some()
    }

    /// Blocks that died since the last checkpoint was frozen, and whose place is not free yet.
    pub(crate) fn pending_blocks(&self) -> u64 {
        self.waiting_blocks() + self.certain.sinks().map(|sink| sink.len().0).sum::<u64>()
    }

    /// Of those the ones that only the next checkpoint makes room of.
    pub(crate) fn waiting_blocks(&self) -> u64 {
        self.current.len()
    }
}
