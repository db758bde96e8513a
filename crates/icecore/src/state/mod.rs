//! The state of a pool, and the one function that changes it: [`State::apply`], called with each operation
//! when it is made and again, in the same order, when it is replayed.

mod collection;
mod effects;
mod files;
mod graveyard;
mod head;
mod lifetimes;
mod outcome;
mod presents;
mod trial;
mod usage;
mod versions;

pub(crate) use collection::{Collection, Emptying};
pub(crate) use effects::{Births, Effects};
pub(crate) use graveyard::Graveyard;
pub(crate) use lifetimes::Lifetimes;
pub(crate) use outcome::{Changed, HeadInode, Outcome};
pub(crate) use presents::Presents;
pub(crate) use trial::{Growth, Trial, Tried};
pub(crate) use usage::{Change, Usage};

use crate::blocks::{Block, Blocks};
use crate::catalogue::Catalogue;
use crate::error::{FileFault, Result};
use crate::liveness::{BlockSet, History, Span};
use crate::log::tail::{Position, Tail};
use crate::operation::Operation;
use crate::segments::{Cursor, Segments};
use crate::tree::{NodeSource, Tree};
use crate::units::{
    BlockCount, DatasetId, LogAddress, Marks, RecordSequence, Run, SegmentId, Slot, Stream, VersionId,
};
use head::dataset_of;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What applying an operation reads.
pub(crate) struct Environment<'a> {
    pub blocks: &'a Blocks,
    pub nodes: &'a dyn NodeSource,
    /// The operations are those of the log, after a crash.
    pub is_replay: bool,
    /// Whether a replay gives up blocks that change what is gone with its file, which might turn up.
    pub gives_up: bool,
    /// What the blocks of a patch come to, in its order. Empty: it is made from what they were.
    pub patched: &'a [Arc<Block>],
}

/// Where the data blocks of an operation lie in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    /// Address of the first one, or that the next one would get.
    pub address: LogAddress,
    /// Segment of the record.
    pub segment: SegmentId,
}

/// Everything about a pool that changes with its operations.
pub(crate) struct State {
    pub catalogue: Catalogue,
    pub history: History,
    pub trees: BTreeMap<VersionId, Tree>,
    /// Versions whose root differs from what the last checkpoint froze.
    pub changed_roots: BTreeSet<VersionId>,
    /// Next addresses of the streams whose addresses are drawn at birth; the data stream's is the tail's.
    pub marks: Marks,
    pub segments: Segments,
    /// What lives and is not counted in segments, because the chunk of the map that places it could not be
    /// read when the pool was opened. All of it lies in segments that are held for this life, so that there
    /// is nothing to be done about it when it dies.
    pub uncounted: [BlockSet; 3],
    /// Segments taken for a new use since the last checkpoint was frozen.
    pub retired: Vec<SegmentId>,
    pub tail: Tail,
    /// End of the run of the location map that the log is growing into.
    pub tail_mapped: Run,
    pub graveyard: Graveyard,
    pub lifetimes: Lifetimes,
    /// Counts operations: the time by which pins and deaths are ordered.
    pub clock: u64,
    /// Nodes drawn and not yet dropped or frozen by a checkpoint.
    pub dirty_nodes: u64,
    /// Blocks of the longest blob of the ledger, of those in use.
    pub ledger_blocks: u32,
    /// Nodes that the checkpoint on its way has to write.
    pub frozen_dirty: u64,
    /// The medium had no room for another segment when it was asked last.
    pub medium_full: bool,
    /// What has an address from here on was born after the last checkpoint was frozen.
    pub frozen_marks: Marks,
    /// Segments being filled outside the log.
    pub run_cursor: Option<Cursor>,
    pub node_cursor: Option<Cursor>,
    pub ledger_cursor: Option<Cursor>,
    /// Not kept when a pool is closed: chunks go on in a new segment, and what lies in a few slots of one is
    /// put together.
    pub chunk_cursor: Option<Cursor>,
    /// What collection moves, and where to.
    pub collection: Collection,
    /// Segments with staged runs that were committed and not yet flushed.
    pub staged: BTreeSet<SegmentId>,
    /// Operations since the log was handed over last.
    pub operations_pending: u64,
    /// Replay starts here: log segments that end before it are not needed for it.
    pub replay_from: RecordSequence,
    /// The last checkpoint of a clean close was frozen: nothing is appended any more. Under the state lock,
    /// so that no caller who waits for it slips by.
    pub closing: bool,
    /// An operation was cut off in the middle by an error: memory no longer agrees with the log.
    pub torn: bool,
    /// Blocks of log since the last checkpoint was frozen.
    pub log_blocks: u64,
    /// Flushes of this life before the log went to its last segment.
    pub commits_before_segment: u64,
    /// What datasets with limits use.
    pub usage: Usage,
    /// What readers of open files find without the state lock.
    pub presents: Presents,
}

impl State {
    /// A pool with nothing in it, whose log goes on here.
    pub(crate) fn new(next: Position, marks: Marks, tail_mapped: Run, segments: Segments) -> Self {
        Self {
            catalogue: Catalogue::default(),
            history: History::new(),
            trees: BTreeMap::new(),
            changed_roots: BTreeSet::new(),
            marks,
            tail: Tail::new(segments.geometry(), next),
            segments,
            uncounted: Default::default(),
            retired: Vec::new(),
            tail_mapped,
            graveyard: Graveyard::default(),
            lifetimes: Lifetimes::default(),
            clock: 1,
            dirty_nodes: 0,
            ledger_blocks: 0,
            frozen_dirty: 0,
            medium_full: false,
            frozen_marks: marks,
            run_cursor: None,
            node_cursor: None,
            ledger_cursor: None,
            chunk_cursor: None,
            collection: Collection::default(),
            staged: BTreeSet::new(),
            operations_pending: 0,
            replay_from: next.sequence,
            closing: false,
            torn: false,
            log_blocks: 0,
            commits_before_segment: 0,
            usage: Usage::default(),
            presents: Presents::default(),
        }
    }

    /// The version that a dataset's head is.
    pub(crate) fn head(&self, dataset: DatasetId) -> Result<VersionId> {
        self.catalogue.existing(dataset).map(|row| row.head)
    }

    /// Refuses a head that a rollback has replaced, or that was destroyed with its dataset.
    pub(crate) fn require_head(&self, dataset: DatasetId, head: VersionId) -> Result<()> {
        let row = self.catalogue.dataset(dataset);
        row.filter(|row| row.head == head).map(|_| ()).ok_or_else(|| FileFault::Stale.into())
    }

    /// Versions directly below one.
    pub(crate) fn children(&self, version: VersionId) -> &[VersionId] {
        self.history.version(version).map_or(&[], |node| node.children())
    }

    /// The version above one.
    pub(crate) fn parent(&self, version: VersionId) -> Option<VersionId> {
        self.history.version(version).ok().and_then(|node| node.parent())
    }

    /// What was born from here on was born in this head.
    pub(crate) fn edge(&self, head: VersionId) -> Marks {
        let parent = self.parent(head).and_then(|parent| self.history.version(parent).ok());
        parent.and_then(|node| node.mark()).unwrap_or_default()
    }

    /// What changing the tree of a head does to everything else; the tree itself is taken apart from it.
    fn effects<'a>(&'a mut self, head: VersionId, blocks: &'a Blocks) -> (&'a mut Tree, Effects<'a>) {
        let edge = self.edge(head);
        let long_life = self.long_life();
        let effects = Effects {
            blocks,
            history: &mut self.history,
            head,
            marks: &mut self.marks,
            graveyard: &mut self.graveyard,
            lifetimes: &mut self.lifetimes,
            long_life,
            dirty_nodes: &mut self.dirty_nodes,
            unwritten_from: edge.of(Stream::Node).max(self.frozen_marks.of(Stream::Node)),
            own_merged_from: edge.of(Stream::Merged),
            is_merging: false,
        };
        (self.trees.get_mut(&head).expect("every version has a tree"), effects)
    }

    /// Blocks of data written in what is a long life for one of them.
    pub(crate) fn long_life(&self) -> u64 {
        lifetimes::long_life(self.segments.len() as u64 * u64::from(self.segments.geometry().slots()))
    }

    /// Positions of all streams now; `data` is where the data stream is.
    pub(crate) fn marks_at(&self, data: LogAddress) -> Marks {
        let mut marks = self.marks;
        *marks.of_mut(Stream::Data) = data;
        marks
    }

    /// Positions of all streams, above everything that was born by operations that are in the log.
    pub(crate) fn marks_now(&self) -> Marks {
        self.marks_at(self.tail.next_address())
    }

    /// Those parts of a run that segments count.
    pub(crate) fn parts_counted(&self, run: &Run) -> Vec<Span> {
        let span = run.start..run.end();
        let mut counted = BlockSet::of(span.clone());
        counted.subtract(&self.uncounted[run.stream as usize].part(&span));
        counted.runs().collect()
    }

    /// Executes one operation. On an error nothing has changed, unless the operation is one of several
    /// that belong together: then the caller gives up the pool.
    pub(crate) fn apply(
        &mut self,
        operation: &Operation,
        at: Placement,
        env: &Environment<'_>,
    ) -> Result<Outcome> {
        self.clock += 1;
        self.graveyard.now(self.clock);
        match operation {
            Operation::Mark | Operation::Switch { .. } => Ok(Outcome::NONE),
            operation if dataset_of(operation).is_some() => self.apply_to_files(operation, at, env),
            other => {
                self.apply_administration(other, at, env)?;
                self.retire_presents();
                Ok(Outcome::NONE)
            }
        }
    }

    /// The log goes on at `slot` of `segment` with `address`: the location map follows.
    pub(crate) fn map_tail(
        &mut self,
        blocks: &Blocks,
        address: LogAddress,
        segment: SegmentId,
        slot: Slot,
        used: LogAddress,
    ) {
        let mut map = blocks.map().write();
        let old = self.tail_mapped;
        if used < old.end() {
            let unused = BlockCount(old.end().0 - used.0);
            map.trim_end(Run { stream: Stream::Data, start: used, length: unused });
        }
        let end = self.segments.geometry().end(crate::format::segment::SegmentKind::Log);
        let length = BlockCount(u64::from(end.0.saturating_sub(slot.0)));
        self.tail_mapped = Run { stream: Stream::Data, start: address, length };
        if length.0 > 0 {
            map.insert(self.tail_mapped, segment, slot);
        }
    }
}
