//! What a change comes to, found out by making it on the side, for callers that must know before it is
//! logged.
//!
//! The change is made by the code that makes it in earnest ([`Head::execute`]), on a clone of the tree, with
//! the addresses that it would get; births and deaths are counted and not recorded. How many nodes a change
//! takes depends on how full nodes are, which depends on how long the addresses in them are when they are
//! written. So that the change in earnest gets the very same: no node of the tree may be changed in place in
//! between, by either. That is what [`Tried::pins`] are for.

use super::head::{Head, dataset_of};
use super::{Births, State};
use crate::blocks::{Block, Blocks};
use crate::error::{Error, Result};
use crate::liveness::parted;
use crate::log::tail::{Need, Payload, Tail};
use crate::namespace::Ledger;
use crate::operation::Operation;
use crate::tree::{NodeLedger, NodeSource, Tree};
use crate::units::{
    BLOCK_BYTES, BlockCount, DatasetId, LogAddress, Marks, Run, SegmentId, Slot, Stream, VersionId,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// By how many blocks figures of a dataset grow, tree nodes included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Growth {
    /// What its versions own.
    pub used: i64,
    /// What its head refers to.
    pub referenced: i64,
    /// What is yet to be written for it, whatever that replaces: not what lies outside the log already.
    pub born: u64,
}

/// A change that is being tried.
pub(crate) struct Trial<'a> {
    state: &'a State,
    nodes: &'a dyn NodeSource,
    /// Gives addresses as the tail of the log would.
    tail: Tail,
    marks: Marks,
    heads: BTreeMap<DatasetId, TriedHead>,
    /// What comes back of versions above that are destroyed, and by which of them it is owned.
    freed: BTreeMap<VersionId, u64>,
    written: Written<'a>,
}

struct TriedHead {
    version: VersionId,
    edge: Marks,
    tree: Tree,
    growth: Growth,
}

/// What a trial has found out.
#[derive(Default)]
pub(crate) struct Tried {
    growths: Vec<(DatasetId, VersionId, Growth)>,
    /// What came back of versions above that are destroyed.
    freed: BTreeMap<VersionId, u64>,
    /// The trees as they are. As long as the caller holds these, the change in earnest comes to what the
    /// trial has come to.
    pins: Vec<Tree>,
}

/// What blocks hold that are born in the trial: a later part of the change may read them.
struct Written<'a> {
    blocks: &'a Blocks,
    data: Vec<(Run, Place)>,
    merged: HashMap<LogAddress, Option<Arc<Block>>>,
}

enum Place {
    Memory(Payload),
    Disk(SegmentId, Slot),
}

impl<'a> Trial<'a> {
    /// Nothing tried yet. The state has to stay locked until the change is made in earnest.
    pub(crate) fn new(state: &'a State, blocks: &'a Blocks, nodes: &'a dyn NodeSource) -> Self {
        let written = Written { blocks, data: Vec::new(), merged: HashMap::new() };
        let (tail, marks) = (state.tail.outline(), state.marks);
        Self { state, nodes, tail, marks, heads: BTreeMap::new(), freed: BTreeMap::new(), written }
    }

    /// The operations to come belong together: see [`Tail::begin_chain`].
    pub(crate) fn begin_chain(&mut self) {
        self.tail.begin_chain();
    }

    /// Gives addresses to what lies outside the log, if anything does; answers the first.
    pub(crate) fn take_addresses(&mut self, count: BlockCount) -> LogAddress {
        if count.0 == 0 {
            return LogAddress(0);
        }
        self.tail.seal();
        self.tail.take_addresses(count)
    }

    /// Tries the next operation on files. `encoded`, `payload`: what it would be in the log. `patched`: what
    /// the blocks of a patch come to.
    pub(crate) fn step(
        &mut self,
        operation: &Operation,
        encoded: &[u8],
        payload: Option<&Payload>,
        patched: &[Arc<Block>],
    ) -> Result<()> {
        let need = Need { operation_bytes: encoded.len(), blocks: payload.map_or(0, Payload::blocks) };
        if self.tail.needs_segment(need) {
            // Which one it is makes no difference to addresses.
            let (segment, incarnation) = (self.tail.segment(), 0);
            let mut switch = Vec::new();
            Operation::Switch { segment, incarnation }.encode(&mut switch);
            self.tail.switch(&switch, segment, incarnation);
        }
        let address = self.tail.plan(need);
        self.execute(operation, address, patched)?;
        self.written.add(operation, address, payload);
        self.tail.append(encoded, payload.cloned());
        Ok(())
    }

    fn execute(&mut self, operation: &Operation, address: LogAddress, patched: &[Arc<Block>]) -> Result<()> {
        let Some(dataset) = dataset_of(operation) else {
            return Err(Error::Invalid("an operation on versions is not one on files".to_owned()));
        };
        let head = match self.heads.entry(dataset) {
            std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
            std::collections::btree_map::Entry::Vacant(entry) => {
                let version = self.state.head(dataset)?;
                let (edge, tree) = (self.state.edge(version), self.state.trees[&version].clone());
                entry.insert(TriedHead { version, edge, tree, growth: Growth::default() })
            }
        };
        let mut effects = Counted {
            state: self.state,
            version: head.version,
            freed: &mut self.freed,
            edge: head.edge,
            marks: &mut self.marks,
            growth: &mut head.growth,
            written: &mut self.written,
            is_staged: matches!(operation, Operation::MapScattered { .. }),
        };
        Head {
            tree: &mut head.tree,
            effects: &mut effects,
            nodes: self.nodes,
            is_replay: false,
            gives_up: false,
            patched,
            torn: &mut false,
        }
        .execute(operation, address)
        .map(|_| ())
    }

    /// What all of it comes to.
    pub(crate) fn finish(self) -> Tried {
        let pins = self.heads.values().map(|head| self.state.trees[&head.version].clone()).collect();
        let growths = self.heads.into_iter().map(|(dataset, head)| (dataset, head.version, head.growth));
        Tried { growths: growths.collect(), freed: self.freed, pins }
    }
}

impl Tried {
    /// By how much each dataset grows.
    pub(crate) fn growths(&self) -> impl Iterator<Item = (DatasetId, Growth)> {
        self.growths.iter().map(|(dataset, _, growth)| (*dataset, *growth))
    }

    /// What comes back of destroyed versions, by the dataset that they are counted for.
    pub(crate) fn freed(&self, state: &State) -> BTreeMap<DatasetId, u64> {
        let mut freed = BTreeMap::new();
        for (version, blocks) in &self.freed {
            if let Some(dataset) = state.catalogue.label(*version) {
                *freed.entry(dataset).or_default() += blocks;
            }
        }
        freed
    }

    /// The figures that there are going to be: what the heads own and refer to.
    pub(crate) fn figures(&self, state: &State) -> Vec<(VersionId, u64, u64)> {
        let figures = |version: VersionId, growth: Growth| {
            let node = state.history.version(version).ok()?;
            let owned = node.owned().len().0.saturating_add_signed(growth.used);
            let referenced = state.history.referenced(version).ok()?.0;
            Some((version, owned, referenced.saturating_add_signed(growth.referenced)))
        };
        self.growths.iter().filter_map(|(_, version, growth)| figures(*version, *growth)).collect()
    }

    /// The trees before the change.
    pub(crate) fn into_pins(self) -> Vec<Tree> {
        self.pins
    }
}

impl Written<'_> {
    fn add(&mut self, operation: &Operation, address: LogAddress, payload: Option<&Payload>) {
        let run = |start, blocks: u64| Run { stream: Stream::Data, start, length: BlockCount(blocks) };
        match operation {
            Operation::MapScattered { scatter, address, segment, slot } => {
                self.data.push((run(*address, scatter.blocks.into()), Place::Disk(*segment, *slot)));
            }
            _ => self
                .data
                .extend(payload.map(|one| (run(address, one.blocks() as u64), Place::Memory(one.clone())))),
        }
    }

    fn read(&self, run: &Run) -> Result<Arc<Block>> {
        if run.stream == Stream::Merged
            && let Some(content) = self.merged.get(&run.start)
        {
            return Ok(content.clone().unwrap_or_else(|| Arc::new([0; BLOCK_BYTES])));
        }
        let holds = |one: &Run| one.stream == run.stream && one.start <= run.start && run.start < one.end();
        let Some((first, place)) = self.data.iter().find(|(one, _)| holds(one)) else {
            return self.blocks.read(run.stream, run.start);
        };
        let index = run.start.0 - first.start.0;
        let mut block = Arc::new([0; BLOCK_BYTES]);
        let into = Arc::get_mut(&mut block).expect("new");
        match place {
            Place::Memory(payload) => {
                into.copy_from_slice(&payload.bytes()[index as usize * BLOCK_BYTES..][..BLOCK_BYTES]);
            }
            Place::Disk(segment, slot) => {
                self.blocks.read_verified(*segment, Slot(slot.0 + index as u32), into)?;
            }
        }
        Ok(block)
    }
}

/// Counts births and deaths of blocks of one head.
struct Counted<'t, 'a> {
    state: &'a State,
    version: VersionId,
    freed: &'t mut BTreeMap<VersionId, u64>,
    edge: Marks,
    marks: &'t mut Marks,
    growth: &'t mut Growth,
    written: &'t mut Written<'a>,
    /// Its data is on disk already.
    is_staged: bool,
}

impl Births for Counted<'_, '_> {
    fn born(&mut self, run: Run) {
        self.growth.used += run.length.0 as i64;
        self.growth.referenced += run.length.0 as i64;
        if !(self.is_staged && run.stream == Stream::Data) {
            self.growth.born += run.length.0;
        }
    }

    fn next_merged(&self, length: BlockCount) -> Run {
        Run { stream: Stream::Merged, start: self.marks.of(Stream::Merged), length }
    }

    fn draw_merged(&mut self, run: Run, contents: Vec<Option<Arc<Block>>>) {
        *self.marks.of_mut(Stream::Merged) = run.end();
        self.born(run);
        for (index, content) in contents.into_iter().enumerate() {
            self.written.merged.insert(run.start.plus(BlockCount(index as u64)), content);
        }
    }

    fn read(&self, run: &Run) -> Result<Arc<Block>> {
        self.written.read(run)
    }
}

impl NodeLedger for Counted<'_, '_> {
    fn draw_node(&mut self) -> LogAddress {
        let run = self.marks.draw(Stream::Node);
        self.born(run);
        run.start
    }

    fn drop_node(&mut self, address: LogAddress) {
        self.drop_run(Run { stream: Stream::Node, start: address, length: BlockCount(1) });
    }
}

impl Ledger for Counted<'_, '_> {
    fn drop_run(&mut self, run: Run) {
        // What was born before stays with the versions above, as far as they stay.
        let (above, gone) = parted(&run, &self.edge);
        // Where damage hides what is freed, nothing counts as freed: a limit may refuse too early, never
        // late.
        let freed = self.state.history.freed_above(self.version, run.stream, &above).unwrap_or_default();
        for (version, blocks) in freed {
            *self.freed.entry(version).or_default() += blocks.0;
        }
        self.growth.used -= (gone.end.0 - gone.start.0) as i64;
        self.growth.referenced -= run.length.0 as i64;
    }
}
