//! Where blocks lie, found out without the location map. Nodes and record headers say which addresses lie
//! behind them. Headers of runs list them, and the log names those of runs that groups had written ahead.
//!
//! An address stands for one content forever. So its whole places are as good as each other, as long as the
//! segment is in the use that says so. What an earlier life left behind without a checkpoint to vouch for it
//! had addresses that no later life drew again (`format/drawn.rs`).

use crate::blocks::Blocks;
use crate::format::record::{RecordHeader, RecordView};
use crate::format::segment::{SegmentHeader, SegmentKind};
use crate::liveness::{BlockSet, Span};
use crate::location::{PlacedRun, decode_list};
use crate::log::tail::Position;
use crate::operation::Operation;
use crate::segments::Cursor;
use crate::tree::Node;
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, PoolId, Run, SegmentId, Slot, Stream};
use std::collections::{BTreeMap, BTreeSet};

/// Slots read at once when nodes are looked for.
const WINDOW_BLOCKS: u32 = 64;
/// Where the address of a node is in it.
const NODE_ADDRESS_AT: usize = 16;

/// Blocks of each stream.
pub(super) type Addresses = [BlockSet; 3];

/// A place of wanted addresses, and the use of the segment that says so.
struct Seen {
    placed: PlacedRun,
    incarnation: u64,
}

/// A run without addresses of its own.
struct Unlisted {
    blocks: u64,
    header: RecordHeader,
}

/// A record that gives the blocks of a run their addresses.
struct Named {
    run: Run,
    record: RecordHeader,
}

/// What is known before segments are asked.
pub(super) struct Scope<'a> {
    pub blocks: &'a Blocks,
    pub pool: PoolId,
    /// Where the log went on from the checkpoint: what lies there or behind it came later.
    pub log: Position,
    /// Where segments are filled next: what lies there will be overwritten.
    pub cursors: Vec<Cursor>,
    /// Segments that found another use since the checkpoint.
    pub excluded: BTreeSet<SegmentId>,
    /// The uses that data segments were in when something lay in them last, as far as the checkpoint knows.
    /// What may have been moved to others since is still where it was, too.
    pub uses: BTreeMap<SegmentId, u64>,
}

impl Scope<'_> {
    /// Whether this is not a use of a segment that the checkpoint does not know of.
    fn is_known(&self, seen: &Seen) -> bool {
        self.uses.get(&seen.placed.segment).is_none_or(|known| *known == seen.incarnation)
    }
}

/// What was found.
pub(super) struct Found {
    /// Where addresses lie.
    pub placed: Vec<PlacedRun>,
    /// Those that are nowhere.
    pub lost: Addresses,
    /// Segments with runs of which nothing says what they hold.
    pub unexplained: BTreeSet<SegmentId>,
    /// The uses that data segments were found in.
    pub uses: BTreeMap<SegmentId, u64>,
}

/// Looks for addresses in these segments.
pub(super) fn find(scope: &Scope<'_>, wanted: &Addresses, segments: &[SegmentId]) -> Found {
    let mut survey =
        Survey { scope, wanted, seen: Vec::new(), unlisted: BTreeMap::new(), named: BTreeMap::new() };
    for segment in segments.iter().filter(|segment| !scope.excluded.contains(segment)) {
        survey.segment(*segment);
    }
    let unexplained = survey.match_names();
    let seen = survey.seen;
    let data = seen.iter().filter(|seen| seen.placed.run.stream != Stream::Node);
    let uses = data.map(|seen| (seen.placed.segment, seen.incarnation)).collect();
    let (placed, lost) = choose(scope, wanted, seen);
    Found { placed, lost, unexplained, uses }
}

struct Survey<'a> {
    scope: &'a Scope<'a>,
    wanted: &'a Addresses,
    seen: Vec<Seen>,
    /// By the place of the first block.
    unlisted: BTreeMap<(SegmentId, u32), Unlisted>,
    /// By the place that they name.
    named: BTreeMap<(SegmentId, u32), Vec<Named>>,
}

impl Survey<'_> {
    fn segment(&mut self, segment: SegmentId) {
        let Scope { blocks, pool, log, .. } = self.scope;
        let mut header = vec![0; BLOCK_BYTES];
        let decode = |block: &[u8]| SegmentHeader::of(*pool, segment, block);
        let files = blocks.files();
        let read = files.read(segment, Slot(0), &mut header).is_ok();
        let found = Some(()).filter(|()| read).and_then(|()| decode(&header)).or_else(|| {
            let copied = files.read_copy(segment, Slot(0), &mut header);
            Some(()).filter(|()| copied).and_then(|()| decode(&header))
        });
        match found.as_ref().map(|header| header.kind) {
            Some(SegmentKind::Ledger) => {}
            Some(SegmentKind::Node) => self.nodes(segment, found.map(|header| header.incarnation)),
            Some(SegmentKind::Log | SegmentKind::Run) | None => {
                let incarnation = found.map(|header| header.incarnation);
                let end = if segment == log.segment { log.slot } else { self.end_of(segment, incarnation) };
                let mut records: Vec<(Slot, RecordView)> = Vec::new();
                let mut visit = |slot: Slot, view: &RecordView| records.push((slot, view.clone()));
                // A segment without a header whose first block is no record holds nodes, if anything.
                match blocks.sums().survey(segment, end, files, &mut visit) {
                    Ok(_) => records.iter().for_each(|(slot, view)| self.record(segment, *slot, view)),
                    Err(_) => self.nodes(segment, None),
                }
            }
        }
    }

    /// The slot before which a segment says what it holds for good. In another use than that in which it was
    /// being filled, all of it does: moves that were recorded since repeat where that was.
    fn end_of(&self, segment: SegmentId, incarnation: Option<u64>) -> Slot {
        let is_it = |cursor: &&Cursor| {
            cursor.segment == segment && incarnation.is_none_or(|found| found == cursor.incarnation)
        };
        let cursor = self.scope.cursors.iter().find(is_it);
        cursor.map_or(Slot(u32::MAX), |cursor| cursor.slot)
    }

    fn record(&mut self, segment: SegmentId, slot: Slot, view: &RecordView) {
        let (header, blocks) = (&view.header, view.sums.len() as u64);
        let first = Slot(slot.0 + 1);
        if !header.run {
            let start = header.address.plus(BlockCount(1));
            let run = Run { stream: Stream::Data, start, length: BlockCount(blocks) };
            self.see(run, segment, first, header.incarnation);
            self.names(segment, first, view);
            return;
        }
        let Some(runs) = decode_list(&view.operations, view.sums.len()) else {
            self.unlisted.insert((segment, first.0), Unlisted { blocks, header: *header });
            return;
        };
        let mut at = first;
        for run in runs {
            self.see(run, segment, at, header.incarnation);
            at.0 += run.length.0 as u32;
        }
    }

    /// Notes the places of those addresses of a run that are wanted.
    fn see(&mut self, run: Run, segment: SegmentId, slot: Slot, incarnation: u64) {
        for span in self.wanted[run.stream as usize].runs_within(&(run.start..run.end())) {
            let slot = Slot(slot.0 + (span.start.0 - run.start.0) as u32);
            let placed = PlacedRun { run: Run::of(run.stream, &span), segment, slot };
            self.seen.push(Seen { placed, incarnation });
        }
    }

    /// Notes what a record of the log says of runs that lie elsewhere.
    fn names(&mut self, segment: SegmentId, first: Slot, view: &RecordView) {
        let Some(operations) = self.operations(segment, first, view) else { return };
        for operation in operations {
            let Operation::MapScattered { segment, slot, scatter, address } = operation else { continue };
            let run = Run { stream: Stream::Data, start: address, length: BlockCount(scatter.blocks.into()) };
            self.named.entry((segment, slot.0)).or_default().push(Named { run, record: view.header });
        }
    }

    fn operations(&self, segment: SegmentId, first: Slot, view: &RecordView) -> Option<Vec<Operation>> {
        let mut bytes = view.operations.clone();
        if view.header.operations_in_blocks {
            let length = view.header.operations_length as usize;
            bytes.resize(length.next_multiple_of(BLOCK_BYTES), 0);
            self.scope.blocks.read_verified(segment, first, &mut bytes).ok()?;
            bytes.truncate(length);
        }
        Operation::decode_all(&bytes, view.header.operations)
    }

    /// Runs that lie where a record of the log says, as they did then. What was placed after that record was
    /// written, or in a later use of the segment, is something else. Answers the segments of runs that
    /// nothing names.
    fn match_names(&mut self) -> BTreeSet<SegmentId> {
        let mut unnamed: BTreeSet<(SegmentId, u32)> = self.unlisted.keys().copied().collect();
        for ((segment, slot), names) in std::mem::take(&mut self.named) {
            let Some(there) = self.unlisted.get(&(segment, slot)) else { continue };
            let is_it = |named: &&Named| {
                there.header.was_placed_before(&named.record) && named.run.length.0 <= there.blocks
            };
            let incarnation = there.header.incarnation;
            // Of two the later one means what lies there now.
            if let Some(named) = names.iter().filter(is_it).max_by_key(|named| named.record.sequence) {
                self.see(named.run, segment, Slot(slot), incarnation);
                unnamed.remove(&(segment, slot));
            }
        }
        unnamed.into_iter().map(|(segment, _)| segment).collect()
    }

    /// Nodes know their addresses, and prove themselves.
    fn nodes(&mut self, segment: SegmentId, incarnation: Option<u64>) {
        let files = self.scope.blocks.files();
        let end = files.geometry().slots().min(self.end_of(segment, incarnation).0);
        let incarnation = incarnation.unwrap_or(0);
        let mut window = vec![0; WINDOW_BLOCKS as usize * BLOCK_BYTES];
        for first in (1..end).step_by(WINDOW_BLOCKS as usize) {
            let count = WINDOW_BLOCKS.min(end - first);
            let bytes = &mut window[..count as usize * BLOCK_BYTES];
            // A block that cannot be read is none.
            files.read_around(segment, Slot(first), bytes);
            let mut doubtful = vec![false; count as usize];
            for (slot, block) in (first..).zip(bytes.as_chunks::<BLOCK_BYTES>().0) {
                doubtful[(slot - first) as usize] = !self.node(segment, Slot(slot), block, incarnation);
            }
            if !files.copies().has(segment) {
                continue;
            }
            let mut copy = [0; BLOCK_BYTES];
            for slot in (first..).zip(doubtful).filter_map(|(slot, doubtful)| doubtful.then_some(slot)) {
                if files.read_copy(segment, Slot(slot), &mut copy) {
                    self.node(segment, Slot(slot), &copy, incarnation);
                }
            }
        }
    }

    /// Whether a block is a node, wanted or not.
    fn node(&mut self, segment: SegmentId, slot: Slot, block: &[u8; BLOCK_BYTES], incarnation: u64) -> bool {
        let bytes = block[NODE_ADDRESS_AT..NODE_ADDRESS_AT + 8].try_into().expect("eight bytes");
        let address = LogAddress(u64::from_le_bytes(bytes));
        let is_whole = Node::decode(block, address).is_ok();
        if is_whole && self.wanted[Stream::Node as usize].contains(address) {
            let run = Run { stream: Stream::Node, start: address, length: BlockCount(1) };
            self.see(run, segment, slot, incarnation);
        }
        is_whole
    }
}

/// Of several places of an address, the one in the newest use that holds what was written. If it can be, it
/// is in a use that the checkpoint knows of. Nodes have been looked at; of blocks with one place nothing
/// better is to be had.
fn choose(scope: &Scope<'_>, wanted: &Addresses, mut seen: Vec<Seen>) -> (Vec<PlacedRun>, Addresses) {
    let mut left = wanted.clone();
    let mut several = Addresses::default();
    let mut once = Addresses::default();
    for Seen { placed, .. } in &seen {
        let stream = placed.run.stream as usize;
        let span = placed.run.start..placed.run.end();
        several[stream].unite(once[stream].part(&span));
        once[stream].insert(span);
    }
    several[Stream::Node as usize] = BlockSet::new();
    seen.sort_by_key(|seen| std::cmp::Reverse((scope.is_known(seen), seen.incarnation)));
    let mut chosen = Vec::new();
    let mut corrupt = Vec::new();
    for Seen { placed, .. } in &seen {
        let stream = placed.run.stream;
        let spans: Vec<Span> =
            left[stream as usize].runs_within(&(placed.run.start..placed.run.end())).collect();
        for span in spans {
            for part in parts(&span, &several[stream as usize]) {
                let slot = Slot(placed.slot.0 + (part.start.0 - placed.run.start.0) as u32);
                let part = PlacedRun { run: Run::of(stream, &part), segment: placed.segment, slot };
                let is_only = !several[stream as usize].contains(part.run.start);
                if is_only || scope.blocks.read_verified(part.segment, slot, &mut [0; BLOCK_BYTES]).is_ok() {
                    left[stream as usize].remove(&(part.run.start..part.run.end()));
                    chosen.push(part);
                } else {
                    corrupt.push(part);
                }
            }
        }
    }
    // What is nowhere as it was written is said to be where it was last: a read of it reports the damage.
    for part in corrupt {
        if left[part.run.stream as usize].remove(&(part.run.start..part.run.end())) == part.run.length {
            chosen.push(part);
        }
    }
    (chosen, left)
}

/// A span in pieces that are not in a set, and single addresses that are.
fn parts(span: &Span, single: &BlockSet) -> Vec<Span> {
    let mut parts = Vec::new();
    let mut at = span.start;
    for inside in single.runs_within(span) {
        if at < inside.start {
            parts.push(at..inside.start);
        }
        parts.extend((inside.start.0..inside.end.0).map(|one| LogAddress(one)..LogAddress(one + 1)));
        at = inside.end;
    }
    if at < span.end {
        parts.push(at..span.end);
    }
    parts
}
