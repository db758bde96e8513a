//! From what lies on disk to a state in memory: the last checkpoint, and what the log says happened since.

use super::checkpoint::{CheckpointLine, Placed, PlacedSection, PositionSection, RootsSection};
use crate::blocks::{Blocks, Use};
use crate::catalogue::{Catalogue, CatalogueChanges};
use crate::error::{Error, Result};
use crate::format::crc32c;
use crate::format::ledger::{Blob, SectionTag};
use crate::format::segment::{SegmentHeader, SegmentKind, file_name, from_file_name};
use crate::format::superblock::{LedgerPointer, Superblock};
use crate::liveness::{DecodeLimits, HistoryChanges, StoredHistory};
use crate::location::{LocationMap, MapChanges, PlacedRun};
use crate::log::replay::{Found, Reader, Waiting, spilled_blocks};
use crate::log::tail::{Position, Tail};
use crate::nodes::Nodes;
use crate::operation::Operation;
use crate::segments::{Cursor, Segments};
use crate::state::{Environment, Graveyard, Placement, State};
use crate::statistics::Counters;
use crate::storage::{AlignedBuffer, Kind, Storage};
use crate::tree::Tree;
use crate::units::{
    BLOCK_BYTES, BlockCount, LOG_ADDRESS_LIMIT, LogAddress, Marks, RecordSequence, SegmentId, Slot, Stream,
    VersionId,
};
use std::collections::{BTreeMap, BTreeSet};

/// A state brought back, and what goes with it.
pub(super) struct Recovered {
    pub state: State,
    pub line: CheckpointLine,
    /// Hash of the last record header.
    pub previous: [u8; 16],
    /// Records replayed.
    pub replayed: u64,
}

/// Finds the segment files. Files that a crash left half made are not of the right size.
pub(super) fn segments(
    storage: &dyn Storage,
    superblock: &Superblock,
    segments: &mut Segments,
) -> Result<()> {
    let files = storage.list().map_err(|error| Error::io("list", storage.describe(), error))?;
    for (name, length) in files {
        if let Some(segment) = from_file_name(&name)
            && length >= superblock.segment_bytes
        {
            segments.add_free(segment, true);
        }
    }
    Ok(())
}

/// Removes segment files that a crash left half made.
pub(super) fn remove_half_made(
    storage: &dyn Storage,
    superblock: &Superblock,
    segments: &Segments,
) -> Result<()> {
    let files = storage.list().map_err(|error| Error::io("list", storage.describe(), error))?;
    for (name, length) in files {
        let half_made = from_file_name(&name).is_some_and(|segment| !segments.exists(segment));
        if half_made && length < superblock.segment_bytes {
            storage.remove(&name).map_err(|error| Error::io("remove", &name, error))?;
        }
    }
    Ok(())
}

/// Reads the blobs that lead to the last checkpoint, the full one first.
fn read_ledger(blocks: &Blocks, superblock: &Superblock) -> Result<Vec<(LedgerPointer, Blob)>> {
    let mut blobs = Vec::new();
    let mut next = Some(superblock.ledger);
    while let Some(pointer) = next {
        let place = format!("{} at slot {}", file_name(pointer.segment), pointer.slot);
        let end = u64::from(pointer.slot.0) + u64::from(pointer.blocks);
        if pointer.blocks == 0 || end > u64::from(blocks.files().geometry().slots()) || blobs.len() > 1 << 16
        {
            return Err(Error::damaged(place, "the pointer to a ledger blob is out of range"));
        }
        let mut bytes = vec![0; pointer.blocks as usize * BLOCK_BYTES];
        blocks.files().read(pointer.segment, pointer.slot, &mut bytes)?;
        if crc32c(&bytes) != pointer.crc {
            return Err(Error::damaged(place, "a ledger blob does not match its checksum"));
        }
        let blob = Blob::decode(&bytes, superblock.pool, &place)?;
        next = blob.base;
        blobs.push((pointer, blob));
    }
    blobs.reverse();
    Ok(blobs)
}

fn postcard_section<T: serde::de::DeserializeOwned>(blob: &Blob, tag: SectionTag) -> Result<T> {
    let bytes = blob.section(tag, "the ledger")?;
    postcard::from_bytes(bytes)
        .map_err(|error| Error::damaged("the ledger", format!("section {tag:?}: {error}")))
}

/// Brings back the state as of the last checkpoint.
pub(super) fn load(
    blocks: &Blocks,
    superblock: &Superblock,
    mut segments: Segments,
) -> Result<(State, CheckpointLine, [u8; 16])> {
    let blobs = read_ledger(blocks, superblock)?;
    let (_, newest) = blobs.last().expect("there is one at least");
    let position: PositionSection = postcard_section(newest, SectionTag::Position)?;
    let number = newest.checkpoint;
    check_position(&position, &segments, blocks)?;

    let mut catalogue = Catalogue::default();
    let mut history = StoredHistory::new();
    let mut map = LocationMap::default();
    let mut trees: BTreeMap<VersionId, Tree> = BTreeMap::new();
    let mut positions = position.marks;
    *positions.of_mut(Stream::Data) = LogAddress(LOG_ADDRESS_LIMIT);
    for (_, blob) in &blobs {
        catalogue.apply(CatalogueChanges::decode(
            blob.section(SectionTag::Catalogue, "the ledger")?,
            "the ledger",
        )?);
        let mut limits = DecodeLimits::new(positions);
        let changes = HistoryChanges::decode(blob.section(SectionTag::History, "the ledger")?, &mut limits)?;
        history.apply_changes(changes)?;
        let moved = MapChanges::decode(blob.section(SectionTag::Location, "the ledger")?, &mut limits)?;
        map.apply_changes(&moved)?;
        let roots: RootsSection = postcard_section(blob, SectionTag::Roots)?;
        for (version, root) in roots.roots {
            match root {
                Some(root) => drop(trees.insert(version, Tree::at(root))),
                None => drop(trees.remove(&version)),
            }
        }
    }
    catalogue.check()?;
    // What a checkpoint itself placed is part of the changes that the next one stores.
    let PlacedSection { retired, placed } = postcard_section(newest, SectionTag::Placed)?;
    for segment in retired {
        map.remove_segment(segment);
    }
    for Placed { run, segment, slot } in placed {
        let in_range = run.length.0 > 0 && run.end().0 < LOG_ADDRESS_LIMIT;
        if !in_range || !map.is_free(&PlacedRun { run, segment, slot }) {
            return Err(Error::damaged("the ledger", "two runs were put in one place, or one in two"));
        }
        map.insert(run, segment, slot);
    }
    let history = history.verify()?;
    let consistent = history.versions().all(|node| trees.contains_key(&node.id()))
        && catalogue.datasets().all(|(_, row)| history.version(row.head).is_ok_and(|node| node.is_head()))
        && catalogue.datasets().all(|(id, _)| {
            catalogue
                .snapshots_of(id)
                .all(|(version, _)| history.version(version).is_ok_and(|node| !node.is_head()))
        });
    if !consistent {
        return Err(Error::damaged("the ledger", "catalogue, history and roots do not fit each other"));
    }

    count_live(&history, &map, &mut segments)?;
    // The next blob goes behind the newest, in its segment.
    let LedgerPointer { segment, slot, blocks: length, .. } = superblock.ledger;
    let ledger_cursor = Some(Cursor { segment, incarnation: 0, slot: Slot(slot.0 + length) });
    // After a crash a segment of runs may have holes between them, where an earlier life left headers of its
    // own: it is not filled any further.
    let run_cursor = position.run_cursor.filter(|_| superblock.clean);
    let mut line = CheckpointLine { blobs: Vec::new(), number };
    for (pointer, _) in &blobs {
        claim(&mut segments, pointer.segment, SegmentKind::Ledger)?;
        segments.add_live(pointer.segment, u64::from(pointer.blocks));
        line.blobs.push(*pointer);
    }
    for (cursor, kind) in [
        (run_cursor, SegmentKind::Run),
        (position.node_cursor, SegmentKind::Node),
        (ledger_cursor, SegmentKind::Ledger),
    ] {
        if let Some(cursor) = cursor {
            claim(&mut segments, cursor.segment, kind)?;
            segments.hold(cursor.segment);
        }
    }
    claim(&mut segments, position.segment, SegmentKind::Log)?;
    segments.hold(position.segment);
    *blocks.map().write() = map;

    let state = State {
        catalogue,
        history,
        trees,
        changed_roots: BTreeSet::new(),
        marks: position.marks,
        tail: Tail::new(segments.geometry(), position.position()),
        segments,
        retired: Vec::new(),
        tail_mapped: position.tail_mapped,
        graveyard: Graveyard::default(),
        clock: position.clock,
        dirty_nodes: 0,
        frozen_dirty: 0,
        medium_full: false,
        frozen_nodes: position.marks.of(Stream::Node),
        run_cursor,
        node_cursor: position.node_cursor,
        ledger_cursor,
        staged: BTreeSet::new(),
        operations_pending: 0,
        replay_from: position.sequence,
        torn: false,
        log_blocks: 0,
    };
    Ok((state, line, position.previous))
}

fn check_position(position: &PositionSection, segments: &Segments, blocks: &Blocks) -> Result<()> {
    let geometry = blocks.files().geometry();
    let slots_fit = [
        (Some(position.slot), SegmentKind::Log),
        (position.run_cursor.map(|cursor| cursor.slot), SegmentKind::Run),
        (position.node_cursor.map(|cursor| cursor.slot), SegmentKind::Node),
    ]
    .into_iter()
    .all(|(slot, kind)| slot.is_none_or(|slot| slot.0 >= 1 && slot <= geometry.end(kind)));
    let in_range = Stream::ALL.iter().all(|stream| position.marks.of(*stream).0 < LOG_ADDRESS_LIMIT)
        && position.address.0 < LOG_ADDRESS_LIMIT
        && position.sequence.0 > 0
        && position.tail_mapped.length.0 <= u64::from(geometry.slots());
    if !slots_fit || !in_range {
        return Err(Error::damaged("the ledger", "a position is out of range"));
    }
    if !segments.exists(position.segment) {
        return Err(Error::damaged(
            file_name(position.segment),
            "the segment that the log ends in is missing",
        ));
    }
    Ok(())
}

/// Notes that a segment is in use.
fn claim(segments: &mut Segments, segment: SegmentId, kind: SegmentKind) -> Result<()> {
    if !segments.exists(segment) {
        return Err(Error::damaged(file_name(segment), "the segment is missing or cut short"));
    }
    if segments.kind(segment).is_none() {
        segments.use_as(segment, kind);
    }
    Ok(())
}

/// Owned sets partition all live blocks: together with the map they say what lives in each segment.
fn count_live(history: &crate::liveness::History, map: &LocationMap, segments: &mut Segments) -> Result<()> {
    for stream in Stream::ALL {
        let kind = match stream {
            Stream::Data => SegmentKind::Log,
            Stream::Merged => SegmentKind::Run,
            Stream::Node => SegmentKind::Node,
        };
        for run in history.live_runs(stream) {
            let mut at = run.start;
            while at < run.end() {
                let (segment, _, together) = map.lookup(stream, at).ok_or_else(|| {
                    Error::damaged(
                        "the ledger",
                        format!("no place is known for live {stream:?} address {at}"),
                    )
                })?;
                let count = together.0.min(run.end().0 - at.0);
                claim(segments, segment, kind)?;
                segments.add_live(segment, count);
                at = at.plus(BlockCount(count));
            }
        }
    }
    Ok(())
}

/// Replays the log since the checkpoint, and makes what was found durable.
pub(super) fn replay(
    loaded: (State, CheckpointLine, [u8; 16]),
    blocks: &Blocks,
    nodes: &Nodes,
    superblock: &Superblock,
    counters: &Counters,
) -> Result<Recovered> {
    let (state, line, previous) = loaded;
    let start = state.tail.position();
    // Replay reads what it replays: the checksums of the segments that are not sealed come from their records.
    let use_ = Use { kind: SegmentKind::Log, incarnation: start.incarnation };
    blocks.sums().reopen(start.segment, use_, blocks.files())?;
    let reader = Reader::new(blocks, counters, superblock.pool, &superblock.lives, start, previous);
    let mut replay = Replay {
        touched: BTreeSet::from([start.segment]),
        env: Environment { blocks, nodes },
        state,
        end: (start, previous),
        replayed: 0,
    };
    let mut reader = reader;
    let mut waiting = Waiting::default();
    while let Some(found) = reader.next()? {
        let durable = found.view.header.durable;
        let switch = replay.peek_switch(&reader, &found)?;
        waiting.push(found);
        if let Some((segment, incarnation)) = switch {
            if !replay.state.segments.exists(segment) {
                let place = file_name(segment);
                return Err(Error::damaged(place, "the log goes on in a segment that is missing"));
            }
            reader.follow(segment, incarnation);
        }
        while let Some(step) = waiting.take_below(durable) {
            replay.apply_step(&reader, step)?;
        }
    }
    let free: Vec<SegmentId> = replay.state.segments.all();
    if let Some(witness) = reader.witness(&free)? {
        let place = file_name(reader.next.segment);
        let offset = blocks.files().geometry().offset(reader.next.slot);
        let lost = reader.next.sequence;
        let detail = format!("log record {lost} is not valid, although {witness} says it was durable");
        return Err(Error::damaged(format!("{place} at offset {offset}"), detail));
    }
    // Above the last mark a record counts only if its data arrived whole.
    loop {
        let mut failure = None;
        let step = waiting.take_if(|found| match reader.data(found) {
            Ok(data) => data.is_some(),
            Err(error) => {
                failure = Some(error);
                false
            }
        });
        if let Some(error) = failure {
            return Err(error);
        }
        let Some(step) = step else { break };
        replay.apply_step(&reader, step)?;
    }
    replay.settle(superblock)?;
    let (end, previous) = replay.end;
    let mut state = replay.state;
    state.tail = Tail::new(blocks.files().geometry(), end);
    Ok(Recovered { state, line, previous, replayed: replay.replayed })
}

struct Replay<'a> {
    env: Environment<'a>,
    state: State,
    /// Log segments that may hold what was never flushed.
    touched: BTreeSet<SegmentId>,
    /// Where the log ends, after what was applied so far, and the hash to go on from.
    end: (Position, [u8; 16]),
    replayed: u64,
}

impl Replay<'_> {
    /// The segment in which the last checkpoint left room for nodes was given away since: no more of them go there.
    fn forget_node_cursor(&mut self, segment: SegmentId) -> bool {
        let given_away = self.state.node_cursor.take_if(|cursor| cursor.segment == segment).is_some();
        if given_away {
            self.state.segments.let_go(segment);
        }
        given_away
    }

    /// The segment that a record says the log goes on in.
    fn peek_switch(&self, reader: &Reader<'_>, found: &Found) -> Result<Option<(SegmentId, u64)>> {
        if found.view.header.operations != 1 || !found.view.sums.is_empty() {
            return Ok(None);
        }
        Ok(match reader.operations(found)?.first() {
            Some(Operation::Switch { segment, incarnation }) => Some((*segment, *incarnation)),
            _ => None,
        })
    }

    fn apply_step(&mut self, reader: &Reader<'_>, step: Vec<Found>) -> Result<()> {
        step.iter().try_for_each(|found| self.apply_record(reader, found))
    }

    fn apply_record(&mut self, reader: &Reader<'_>, found: &Found) -> Result<()> {
        let header = &found.view.header;
        let operations = reader.operations(found)?;
        if header.address != found.expected {
            self.state.map_tail(self.env.blocks, header.address, found.segment, found.slot, found.expected);
        }
        let mut address = header.address.plus(BlockCount(1 + spilled_blocks(found) as u64));
        let total = 1 + found.view.sums.len() as u64;
        let next = Position {
            segment: found.segment,
            incarnation: header.incarnation,
            slot: Slot(found.slot.0 + total as u32),
            address: header.address.plus(BlockCount(total)),
            sequence: RecordSequence(header.sequence.0 + 1),
        };
        self.end = (next, found.view.hash);
        self.env.blocks.sums().set(found.segment, Slot(found.slot.0 + 1), found.view.sums.iter().copied());
        for operation in operations {
            let at = Placement { address, segment: found.segment };
            self.prepare(&operation, next)?;
            self.state.apply(&operation, at, &self.env).map_err(|error| match error {
                Error::Io { .. } | Error::Damaged { .. } => error,
                // It was possible when it was logged: what it met now is not what was there then.
                other => Error::damaged(
                    format!("log record {}", header.sequence),
                    format!("it cannot be replayed: {other}"),
                ),
            })?;
            address = address.plus(BlockCount(u64::from(operation.data_blocks())));
        }
        self.state.log_blocks += total;
        self.replayed += 1;
        Ok(())
    }

    /// What the engine does around an operation when it is made, beside applying it.
    fn prepare(&mut self, operation: &Operation, next: Position) -> Result<()> {
        let geometry = self.env.blocks.files().geometry();
        match operation {
            Operation::Switch { segment, incarnation } => {
                let old = next.segment;
                self.forget_node_cursor(*segment);
                self.env.blocks.map().write().remove_segment(*segment);
                self.env.blocks.sums().close(old, geometry);
                self.env.blocks.sums().open(*segment, geometry);
                self.state.segments.use_as(*segment, SegmentKind::Log);
                self.state.segments.hold(*segment);
                self.state.segments.filled(old, RecordSequence(next.sequence.0 - 1));
                self.state.segments.let_go(old);
                self.touched.insert(*segment);
                self.end.0 = Position { segment: *segment, incarnation: *incarnation, slot: Slot(1), ..next };
                self.state.map_tail(self.env.blocks, next.address, *segment, Slot(1), next.address);
            }
            Operation::MapStaged { segment, slot, write, .. } => {
                let end = u64::from(slot.0) + u64::from(write.blocks);
                if !self.state.segments.exists(*segment) || end > u64::from(geometry.end(SegmentKind::Run).0)
                {
                    let detail = "a staged run lies in a segment that is missing, or outside it";
                    return Err(Error::damaged(file_name(*segment), detail));
                }
                let taken_over = self.forget_node_cursor(*segment);
                if taken_over || self.state.segments.kind(*segment).is_none() {
                    self.env.blocks.map().write().remove_segment(*segment);
                    self.state.segments.use_as(*segment, SegmentKind::Run);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Makes what was found durable, and mends headers of segments that a crash tore off their records.
    fn settle(&mut self, superblock: &Superblock) -> Result<()> {
        let end = self.end.0.segment;
        let files = self.env.blocks.files();
        for segment in std::mem::take(&mut self.touched) {
            if self.replayed > 0 || segment == end {
                self.mend_header(segment, superblock)?;
                files.sync(segment)?;
            }
        }
        Ok(())
    }

    fn mend_header(&self, segment: SegmentId, superblock: &Superblock) -> Result<()> {
        let files = self.env.blocks.files();
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        files.read(segment, Slot(0), &mut block)?;
        let valid = SegmentHeader::decode(&block).is_some_and(|header| {
            let current = segment != self.end.0.segment || header.incarnation == self.end.0.incarnation;
            header.pool == superblock.pool
                && header.segment == segment
                && header.kind == SegmentKind::Log
                && current
        });
        if valid {
            return Ok(());
        }
        let mut first = AlignedBuffer::zeroed(BLOCK_BYTES);
        files.read(segment, Slot(1), &mut first)?;
        let is_end = segment == self.end.0.segment && self.end.0.slot == Slot(1);
        let view = crate::format::record::RecordView::decode(&first).filter(|_| !is_end);
        let (address, sequence, incarnation) = view
            .map_or((self.end.0.address, self.end.0.sequence, self.end.0.incarnation), |view| {
                (view.header.address, view.header.sequence, view.header.incarnation)
            });
        let header = SegmentHeader {
            pool: superblock.pool,
            kind: SegmentKind::Log,
            segment,
            incarnation,
            first_address: address,
            first_sequence: sequence,
            epoch: superblock.epoch(),
        };
        header.encode(&mut block);
        files.write(segment, Slot(0), &[(Kind::Frame, &block)])
    }
}

/// Marks of a pool that holds nothing.
pub(super) fn first_marks() -> Marks {
    // Address 0 is never given out, so that it can stand for "none" in a damaged place.
    Marks([LogAddress(1); 3])
}
