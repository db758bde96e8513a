//! The state as of the last checkpoint, from its ledger. Bytes that passed their checksums may still
//! contradict each other: everything that later code takes for granted is checked here.

use super::checkpoint::{
    Base, CheckpointLine, ForsakenSection, Placed, PlacedSection, PositionSection, RootsSection, UsesSection,
};
use super::claims::{claim, claim_chunks, claim_sets, count_live};
use super::ledger::Said;
use crate::blocks::Blocks;
use crate::catalogue::{Catalogue, CatalogueChanges};
use crate::error::{Error, Result};
use crate::format::ledger::{Blob, SectionTag};
use crate::format::segment::{Geometry, SegmentHeader, SegmentKind, file_name};
use crate::format::superblock::{LedgerPointer, Superblock};
use crate::liveness::{BlockSet, DecodeLimits, HistoryChanges, PartSource, StoredHistory};
use crate::location::{ChunkedMap, Consolidated, MapChanges, MapLimits, PlacedRun};
use crate::log::tail::Position;
use crate::segments::{Cursor, Segments};
use crate::state::State;
use crate::tree::Tree;
use crate::units::{
    BLOCK_BYTES, BlockCount, COUNTER_LIMIT, LOG_ADDRESS_LIMIT, LogAddress, Marks, PoolId, Run, SegmentId,
    Slot, Stream, VersionId,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Addresses that a stream must have left: more than one life of this pool can use up by replaying.
const ADDRESSES_LEFT_MIN: u64 = 1 << 32;

/// Reads the blobs that lead to the last checkpoint, the full one first.
fn read_ledger(blocks: &Blocks, pool: PoolId, newest: LedgerPointer) -> Result<Vec<(LedgerPointer, Blob)>> {
    read_ledger_with(blocks, newest, |pointer, place| {
        let bytes = super::copies::read_blob(blocks.files(), pointer)?;
        Blob::decode(&bytes, pool, place)
    })
}

fn read_ledger_with(
    blocks: &Blocks,
    newest: LedgerPointer,
    mut read: impl FnMut(&LedgerPointer, &str) -> Result<Blob>,
) -> Result<Vec<(LedgerPointer, Blob)>> {
    let mut blobs = Vec::new();
    let mut next = Some(newest);
    while let Some(pointer) = next {
        let place = format!("{} at slot {}", file_name(pointer.segment), pointer.slot);
        let end = u64::from(pointer.slot.0) + u64::from(pointer.blocks);
        if pointer.blocks == 0 || end > u64::from(blocks.files().geometry().slots()) || blobs.len() > 1 << 16
        {
            return Err(Error::damaged(place, "the pointer to a ledger blob is out of range"));
        }
        let blob = read(&pointer, &place)?;
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

/// What blobs of the ledger say together. Whether it makes sense is not known yet.
pub(super) struct Gathered {
    catalogue: Catalogue,
    history: StoredHistory,
    map: ChunkedMap,
    roots: BTreeMap<VersionId, LogAddress>,
    /// The largest number of a version that was given out.
    version: VersionId,
    /// The use that a data segment is in, or was in when something lay in it last.
    uses: BTreeMap<SegmentId, u64>,
}

impl Gathered {
    /// Reads the ledger up to a blob, of a pool whose streams have come so far.
    pub(super) fn read(blocks: &Blocks, pool: PoolId, newest: LedgerPointer, marks: &Marks) -> Result<Self> {
        Self::of(&read_ledger(blocks, pool, newest)?, marks, blocks.map().read().limits())
    }

    fn of(blobs: &[(LedgerPointer, Blob)], marks: &Marks, limits: MapLimits) -> Result<Self> {
        Self::with_or_without_map(blobs, marks, limits, true)
    }

    fn with_or_without_map(
        blobs: &[(LedgerPointer, Blob)],
        marks: &Marks,
        limits: MapLimits,
        with_map: bool,
    ) -> Result<Self> {
        let mut gathered = Self {
            catalogue: Catalogue::default(),
            history: StoredHistory::new(),
            map: ChunkedMap::new(limits),
            roots: BTreeMap::new(),
            version: VersionId(0),
            uses: BTreeMap::new(),
        };
        let mut positions = *marks;
        *positions.of_mut(Stream::Data) = LogAddress(LOG_ADDRESS_LIMIT);
        for (_, blob) in blobs {
            let place = "the ledger";
            let catalogue = CatalogueChanges::decode(blob.section(SectionTag::Catalogue, place)?, place)?;
            let mut limits = DecodeLimits::new(positions);
            let history = HistoryChanges::decode(blob.section(SectionTag::History, place)?, &mut limits)?;
            let location = match with_map {
                true => MapChanges::decode(blob.section(SectionTag::Location, place)?, &mut limits)?,
                false => MapChanges::default(),
            };
            let roots: RootsSection = postcard_section(blob, SectionTag::Roots)?;
            gathered.apply(catalogue, history, &location, roots)?;
            if blob.has(SectionTag::Uses) {
                gathered.know_uses(&postcard_section(blob, SectionTag::Uses)?);
            }
        }
        Ok(gathered)
    }

    /// Adds what another blob says.
    pub(super) fn apply(
        &mut self,
        catalogue: CatalogueChanges,
        history: HistoryChanges,
        location: &MapChanges,
        roots: RootsSection,
    ) -> Result<()> {
        self.catalogue.apply(catalogue);
        self.version = history.next;
        self.history.apply_changes(history)?;
        self.map.apply_changes(location)?;
        for (version, root) in roots.roots {
            match root {
                Some(root) => drop(self.roots.insert(version, root)),
                None => drop(self.roots.remove(&version)),
            }
        }
        Ok(())
    }

    /// Adds what another blob says of the uses that segments are in.
    pub(super) fn know_uses(&mut self, section: &UsesSection) {
        self.uses.extend(section.uses.iter().copied());
    }

    /// A segment is in this use.
    pub(super) fn know_use(&mut self, segment: SegmentId, incarnation: u64) {
        self.uses.insert(segment, incarnation);
    }

    /// The uses that segments are in, or were in when something lay in them last.
    pub(super) fn uses(&self) -> &BTreeMap<SegmentId, u64> {
        &self.uses
    }

    /// The history, to put its sets into chunks.
    pub(super) fn history(&mut self) -> &mut StoredHistory {
        &mut self.history
    }

    /// The location map.
    pub(super) fn map(&self) -> &ChunkedMap {
        &self.map
    }

    /// The same with another location map.
    pub(super) fn with_map(self, map: ChunkedMap) -> Self {
        Self { map, ..self }
    }

    /// All of it, as one says it who builds on nothing; with the map in these chunks, if there are any.
    pub(super) fn into_said(
        self,
        position: PositionSection,
        placed: PlacedSection,
        chunks: Option<&Consolidated>,
    ) -> Said {
        let roots = self.roots.into_iter().map(|(version, root)| (version, Some(root))).collect();
        Said {
            position,
            catalogue: self.catalogue.everything(),
            history: self.history.into_full_changes(),
            location: chunks.map_or_else(|| self.map.full_changes(), Consolidated::full_changes),
            roots: RootsSection { roots },
            placed,
            forsaken: ForsakenSection::default(),
            uses: UsesSection { uses: self.uses.into_iter().collect() },
        }
    }
}

/// What the ledger says of a checkpoint, as far as it goes without looking at anything else.
pub(super) struct Checkpoint {
    pub number: u64,
    pub position: PositionSection,
    pub placed: PlacedSection,
    pub gathered: Gathered,
    /// Which version owns what.
    pub history: crate::liveness::History,
    /// What lives as of the checkpoint and has no place any more.
    pub forsaken: BlockSet,
}

/// Reads the ledger of a checkpoint.
pub(super) fn checkpoint(blocks: &Blocks, pool: PoolId, ledger: LedgerPointer) -> Result<Checkpoint> {
    let blobs = read_ledger(blocks, pool, ledger)?;
    let (_, newest) = blobs.last().expect("there is one at least");
    let position: PositionSection = postcard_section(newest, SectionTag::Position)?;
    let placed = postcard_section(newest, SectionTag::Placed)?;
    let limits = blocks.map().read().limits();
    let gathered = Gathered::of(&blobs, &position.marks, limits)?;
    let history = Gathered::of(&blobs, &position.marks, limits)?.history.verify()?;
    let forsaken = forsaken(&blobs, &position)?;
    Ok(Checkpoint { number: newest.checkpoint, position, placed, gathered, history, forsaken })
}

/// Reads the ledger of a checkpoint, blobs of which are damaged, but for its location map.
///
/// # Errors
/// What is lost beside where blocks lie.
pub(super) fn checkpoint_without_map(
    blocks: &Blocks,
    pool: PoolId,
    ledger: LedgerPointer,
) -> Result<Checkpoint> {
    let mut knows_uses = true;
    let blobs = read_ledger_with(blocks, ledger, |pointer, place| {
        let (blob, lost) = salvage(blocks, pool, pointer, place)?;
        knows_uses &= !lost.contains(&SectionTag::Uses);
        Ok(blob)
    })?;
    // Else it is the blob of a later use of the place.
    if !blobs.is_sorted_by_key(|(_, blob)| blob.checkpoint) {
        return Err(Error::damaged("the ledger", "its blobs are not of one line"));
    }
    let (_, newest) = blobs.last().expect("there is one at least");
    let position: PositionSection = postcard_section(newest, SectionTag::Position)?;
    // Whatever the checkpoint placed itself is looked for like everything else.
    let placed = PlacedSection::default();
    let limits = blocks.map().read().limits();
    let mut gathered = Gathered::with_or_without_map(&blobs, &position.marks, limits, false)?;
    if !knows_uses {
        // What other blobs say may be of a former use.
        gathered.uses.clear();
    }
    let history = Gathered::with_or_without_map(&blobs, &position.marks, limits, false)?.history.verify()?;
    let forsaken = forsaken(&blobs, &position)?;
    Ok(Checkpoint { number: newest.checkpoint, position, placed, gathered, history, forsaken })
}

/// What was left behind since a checkpoint: the blobs since repeat its position.
fn forsaken(blobs: &[(LedgerPointer, Blob)], position: &PositionSection) -> Result<BlockSet> {
    let mut forsaken = BlockSet::new();
    for (_, blob) in blobs.iter().rev() {
        if postcard_section::<PositionSection>(blob, SectionTag::Position)? != *position {
            break;
        }
        if blob.has(SectionTag::Forsaken) {
            let section: ForsakenSection = postcard_section(blob, SectionTag::Forsaken)?;
            section.add_to(&mut forsaken, position.address)?;
        }
    }
    Ok(forsaken)
}

/// Those sections of a blob that prove themselves, if they are all that nothing else says; and which are
/// lost.
fn salvage(
    blocks: &Blocks,
    pool: PoolId,
    pointer: &LedgerPointer,
    place: &str,
) -> Result<(Blob, Vec<SectionTag>)> {
    if let Ok(bytes) = super::copies::read_blob(blocks.files(), pointer) {
        return Ok((Blob::decode(&bytes, pool, place)?, Vec::new()));
    }
    let mut bytes = vec![0; pointer.blocks as usize * BLOCK_BYTES];
    // Of what cannot be read at once, what can be read block by block.
    for (index, block) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let slot = Slot(pointer.slot.0 + index as u32);
        if blocks.files().read(pointer.segment, slot, block).is_err() {
            block.fill(0);
        }
    }
    let (blob, lost) = Blob::salvage(&bytes, pool, place)?;
    let meant = |tag: &SectionTag| match tag {
        SectionTag::Position => Some("where the log goes on"),
        SectionTag::Catalogue => Some("names and properties of datasets and snapshots"),
        SectionTag::History => Some("which version owns which blocks"),
        SectionTag::Roots => Some("where the trees of versions begin"),
        // Without it, what was left behind is looked for in vain, and named.
        SectionTag::Location | SectionTag::Placed | SectionTag::Forsaken | SectionTag::Uses => None,
    };
    let gone: Vec<&str> = lost.iter().filter_map(meant).collect();
    if gone.is_empty() {
        Ok((blob, lost))
    } else {
        Err(Error::damaged(place, format!("lost: {}", gone.join("; "))))
    }
}

/// The state as of the last checkpoint.
pub(super) struct Loaded {
    pub state: State,
    pub line: CheckpointLine,
    /// Hash of the last record header before it.
    pub previous: [u8; 16],
    /// Data that lives in it without a place: what the log says from there on has to be the end of it.
    pub forsaken: BlockSet,
}

/// Brings back the state as of the last checkpoint. `without_end`: even if the segment that the log ends in
/// is gone.
pub(super) fn load(
    blocks: &Arc<Blocks>,
    superblock: &Superblock,
    mut segments: Segments,
    without_end: bool,
) -> Result<Loaded> {
    let blobs = read_ledger(blocks, superblock.pool, superblock.ledger)?;
    let (_, newest) = blobs.last().expect("there is one at least");
    let position: PositionSection = postcard_section(newest, SectionTag::Position)?;
    let number = newest.checkpoint;
    if number >= COUNTER_LIMIT {
        return Err(Error::damaged("the ledger", "the number of the checkpoint makes no sense"));
    }
    check_position(&position, blocks)?;
    if !(without_end || segments.exists(position.segment)) {
        let detail = "it is missing or cut short, and the log since the last checkpoint was in it";
        return Err(Error::damaged(file_name(position.segment), detail));
    }

    let gathered = Gathered::of(&blobs, &position.marks, blocks.map().read().limits())?;
    let Gathered { catalogue, history, mut map, roots, version, uses } = gathered;
    blocks.sums().know_uses(uses);
    let trees: BTreeMap<VersionId, Tree> =
        roots.into_iter().map(|(version, root)| (version, Tree::at(root))).collect();
    catalogue.check()?;
    // What a checkpoint itself placed is part of the changes that the next one stores.
    let placed: PlacedSection = postcard_section(newest, SectionTag::Placed)?;
    place(&mut map, placed, &position.marks, segments.geometry())?;
    claim_chunks(&map, &mut segments);
    *blocks.map().write() = map;
    check_tail(blocks, &position)?;
    keep_tail_at_hand(blocks, &position.position(), position.tail_mapped);
    claim_sets(&history, blocks, &mut segments);
    let mut history = history.verify()?;
    history.keep_in(Arc::clone(blocks) as Arc<dyn PartSource>, history.limits());
    check_history(&history, &position)?;
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

    let forsaken = forsaken(&blobs, &position)?;
    let (uncounted, named) = count_live(&history, &forsaken, blocks, &mut segments)?;
    // After a crash there may be more in it; the caller that opens the pool sees to that.
    let whole = |cursor: &Cursor| segments.exists(cursor.segment) && !segments.is_absent(cursor.segment);
    let run_cursor = position.run_cursor.filter(whole);
    let node_cursor = position.node_cursor.filter(whole);
    let ledger_cursor = behind_newest_blob(blocks, superblock).filter(whole);
    let run_cursor = still_filled(blocks, superblock, run_cursor, SegmentKind::Run);
    let node_cursor = still_filled(blocks, superblock, node_cursor, SegmentKind::Node);
    let base = Base { position: position.clone(), catalogue: catalogue.nothing_more(), version };
    // The parts of one picture have one number.
    let first = blobs.first().map(|(_, blob)| blob.checkpoint);
    let full = blobs.iter().take_while(|(_, blob)| Some(blob.checkpoint) == first).count();
    let base = Some(base);
    let mut line = CheckpointLine { blobs: Vec::new(), full, number, base, corrupt: false };
    for (pointer, _) in &blobs {
        claim(&mut segments, pointer.segment, SegmentKind::Ledger);
        segments.add_live(pointer.segment, u64::from(pointer.blocks));
        line.blobs.push(*pointer);
    }
    for (cursor, kind) in [
        (run_cursor, SegmentKind::Run),
        (node_cursor, SegmentKind::Node),
        (ledger_cursor, SegmentKind::Ledger),
    ] {
        if let Some(cursor) = cursor {
            claim(&mut segments, cursor.segment, kind);
            segments.hold(cursor.segment);
        }
    }
    claim(&mut segments, position.segment, SegmentKind::Log);
    segments.hold(position.segment);
    named.hold(&mut segments);
    let mut state = State {
        catalogue,
        history,
        trees,
        uncounted,
        clock: position.clock,
        ledger_blocks: line.blocks_of_longest(),
        frozen_marks: position.all_marks(),
        run_cursor,
        node_cursor,
        ledger_cursor,
        ..State::new(position.position(), position.marks, position.tail_mapped, segments)
    };
    state.usage = state.count_usage();
    Ok(Loaded { state, line, previous: position.previous, forsaken })
}

/// Enters what a checkpoint placed after its picture of the map was taken.
fn place(map: &mut ChunkedMap, placed: PlacedSection, marks: &Marks, geometry: Geometry) -> Result<()> {
    // The picture may still have runs in them, all of them dead by then.
    for segment in placed.retired {
        map.remove_segment(segment);
    }
    for Placed { run, segment, slot } in placed.placed {
        let end = run.start.0.checked_add(run.length.0);
        let slots_end = u64::from(slot.0).checked_add(run.length.0);
        let fits = run.length.0 > 0
            && run.stream != Stream::Data
            && end.is_some_and(|end| end <= marks.of(run.stream).0)
            && slots_end.is_some_and(|end| end <= u64::from(geometry.slots()));
        if !fits || !map.try_insert(run, segment, slot) {
            return Err(Error::damaged("the ledger", "a run of the checkpoint cannot be where it says"));
        }
    }
    Ok(())
}

/// Where the next blob goes. A blob cannot say so itself: it is placed after it was encoded, and what was
/// filled with ledgers before it may be a stretch of the log by now.
fn behind_newest_blob(blocks: &Blocks, superblock: &Superblock) -> Option<Cursor> {
    let pointer = superblock.ledger;
    let header =
        super::copies::read_header(blocks.files(), superblock.pool, pointer.segment, SegmentKind::Ledger);
    // Without a header, ledgers go on in a new segment.
    header.map(|header| Cursor {
        segment: pointer.segment,
        incarnation: header.incarnation,
        slot: Slot(pointer.slot.0 + pointer.blocks),
    })
}

/// What was being filled as of the last checkpoint, if it is in that use still. Moves recorded since repeat
/// the position: what was spent and freed after it may hold what was moved, or ledgers. The header of a
/// segment is durable before a ledger says what lies in it. Its copy has no say: that may be of the former
/// use.
fn still_filled(
    blocks: &Blocks,
    superblock: &Superblock,
    cursor: Option<Cursor>,
    kind: SegmentKind,
) -> Option<Cursor> {
    let mut block = vec![0; BLOCK_BYTES];
    cursor.filter(|Cursor { segment, incarnation, .. }| {
        blocks.files().read(*segment, Slot(0), &mut block).is_ok()
            && SegmentHeader::of(superblock.pool, *segment, &block)
                .is_some_and(|header| (header.kind, header.incarnation) == (kind, *incarnation))
    })
}

fn check_position(position: &PositionSection, blocks: &Blocks) -> Result<()> {
    let geometry = blocks.files().geometry();
    let slots_fit = [
        (Some(position.slot), SegmentKind::Log),
        (position.run_cursor.map(|cursor| cursor.slot), SegmentKind::Run),
        (position.node_cursor.map(|cursor| cursor.slot), SegmentKind::Node),
    ]
    .into_iter()
    .all(|(slot, kind)| slot.is_none_or(|slot| slot.0 >= 1 && slot <= geometry.end(kind)));
    let in_range = Stream::ALL
        .iter()
        .all(|stream| position.marks.of(*stream).0 < LOG_ADDRESS_LIMIT - ADDRESSES_LEFT_MIN)
        && [position.sequence.0, position.clock].iter().all(|counter| *counter < COUNTER_LIMIT)
        && position.address.0 < LOG_ADDRESS_LIMIT - ADDRESSES_LEFT_MIN
        && position.sequence.0 > 0
        && position.tail_mapped.stream == Stream::Data
        && position.tail_mapped.start <= position.address
        && position.tail_mapped.length.0 <= u64::from(geometry.slots());
    if !slots_fit || !in_range {
        return Err(Error::damaged("the ledger", "a position is out of range"));
    }
    Ok(())
}

/// The log goes on in a run of the map that was set aside for it, and nothing has an address further on.
fn check_tail(blocks: &Blocks, position: &PositionSection) -> Result<()> {
    let end = position.tail_mapped.end();
    let mut at = position.address;
    let mut slot = u64::from(position.slot.0);
    let mut fits = true;
    loop {
        match blocks.lookup(Stream::Data, at) {
            Ok(None) => {
                fits &= at >= end;
                break;
            }
            Ok(Some((segment, there, together))) => {
                fits &= segment == position.segment && u64::from(there.0) == slot && at < end;
                slot += together.0;
                at = at.plus(together);
            }
            // A reader that looks there meets what is damaged.
            Err(Error::Damaged { .. } | Error::Io { .. }) => break,
            Err(error) => return Err(error),
        }
    }
    let last = blocks.map().read().end(Stream::Data);
    if !fits || last.is_some_and(|last| last > end.max(position.address)) {
        return Err(Error::damaged("the ledger", "the location map and the end of the log do not fit"));
    }
    Ok(())
}

/// Where the log goes on is known without a chunk. If a chunk that should say it cannot be read, the next
/// ledger says it: else what is written there from now on would be lost with that chunk.
fn keep_tail_at_hand(blocks: &Blocks, log: &Position, mapped: Run) {
    let left = BlockCount(mapped.end().0.saturating_sub(log.address.0));
    if left.0 == 0 {
        return;
    }
    let run = Run { start: log.address, length: left, ..mapped };
    let is_known = all_is_readable(blocks, run);
    let mut map = blocks.map().write();
    if is_known {
        map.keep_at_hand(&PlacedRun { run, segment: log.segment, slot: log.slot });
    } else {
        map.remap(run, log.segment, log.slot);
    }
}

/// Whether no place of a run is in a chunk of the map that cannot be read.
fn all_is_readable(blocks: &Blocks, run: Run) -> bool {
    let mut at = run.start;
    while at < run.end() {
        match blocks.lookup(run.stream, at) {
            Ok(Some((_, _, together))) => at = at.plus(together),
            // Whether it should be there is checked by others.
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
    true
}

/// What is born from here on must not have been born before, nor lie below a mark.
fn check_history(history: &crate::liveness::History, position: &PositionSection) -> Result<()> {
    let mut next = position.marks;
    *next.of_mut(Stream::Data) = position.address;
    for node in history.versions() {
        let marks = node.mark().unwrap_or_default();
        let below = |stream: &Stream| {
            let last = node.owned().of(*stream).last();
            marks.of(*stream) <= next.of(*stream) && last.is_none_or(|last| last < next.of(*stream))
        };
        if !Stream::ALL.iter().all(below) {
            let detail = format!("version {} reaches beyond the end of a stream", node.id());
            return Err(Error::damaged("the ledger", detail));
        }
    }
    Ok(())
}
