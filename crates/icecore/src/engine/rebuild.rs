//! The location map made again from what segments say of themselves. The ledger is written anew, of the same
//! checkpoint. Replay starts where it would have, and nothing else that the ledger says is touched.

use super::checkpoint::{ForsakenSection, PlacedSection, PositionSection};
use super::init::{Parts, lock_free_options};
use super::ledger::BlobFrame;
use super::load::{self, Gathered};
use super::places::{self, Addresses, Found, Scope};
use super::{copies, recovery, superblocks};
use crate::error::{Error, Result};
use crate::format::crc32c;
use crate::format::segment::{SegmentHeader, SegmentKind, file_name};
use crate::format::superblock::{Former, LedgerPointer, Superblock};
use crate::liveness::{BlockSet, PartSource};
use crate::location::{Absent, ChunkRow, ChunkedMap, NAMED_MAX, PlacedRun};
use crate::log::replay::Reader;
use crate::log::tail::Position;
use crate::operation::Operation;
use crate::statistics::Counters;
use crate::storage::{AlignedBuffer, Kind, Storage};
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, RecordSequence, Run, SegmentId, Slot, Stream};
use std::collections::BTreeSet;
use std::sync::Arc;

/// What stands where a chunk of the location map would, of blocks that are gone, and in the place of a block
/// that is lost.
pub(super) const GONE: &[u8; 8] = b"ICELOST\n";

/// What a map that is made again says of what the last checkpoint left behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Forsaken {
    /// It has no place: the log says that it is dead.
    Left,
    /// It is looked for like all that lives: the part of the log that says so does not count.
    Wanted,
}

/// What became of the places that the map had where it was damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Restored {
    /// Chunks that could not be read.
    pub chunks: usize,
    /// Blocks that live, and were found.
    pub found: u64,
    /// Blocks that live, and were not.
    pub lost: u64,
}

/// Makes the damaged chunks of the location map again. Writes a ledger that does without them, and
/// superblocks that name it. `None` if all chunks can be read: then nothing is written.
///
/// # Errors
/// The ledger itself cannot be read; or writing failed.
pub(crate) fn restore_chunks(
    storage: &Arc<dyn Storage>,
    superblock: &Superblock,
) -> Result<Option<Restored>> {
    let parts = parts(storage, superblock);
    let found = load::checkpoint(&parts.blocks, superblock.pool, superblock.ledger)?;
    let mut ledger = Ledger::of(&parts, superblock, found)?;
    let damaged = ledger.damaged_chunks(&parts);
    if damaged.is_empty() {
        return Ok(None);
    }
    let segments = segments(storage, superblock)?;
    let mut wanted = Addresses::default();
    for absent in &damaged {
        wanted[absent.stream as usize].unite(ledger.living_in(absent));
    }
    let Gone { lost, .. } = ledger.find(&parts, superblock, &wanted, &segments, Knows::SomePlaces);
    // What is not all found again goes on saying that something is lost, and where it may be.
    let is_whole = |absent: &&Absent| lost[absent.stream as usize].part(&absent.span).is_empty();
    damaged.iter().filter(is_whole).for_each(|absent| ledger.map.do_without(absent));
    ledger.set_tail_aside();
    let written = ledger.write(&parts, superblock, segments, None)?;
    copies::write_superblocks(parts.blocks.files().copies(), &written);
    let lost = count(&lost);
    Ok(Some(Restored { chunks: damaged.len(), found: count(&wanted) - lost, lost }))
}

/// Makes the whole location map again where the ledger has lost it. Writes a ledger and superblocks as
/// [`restore_chunks`] does.
///
/// # Errors
/// What else is lost; or writing failed.
pub(crate) fn restore_map(
    storage: &Arc<dyn Storage>,
    superblock: &Superblock,
    forsaken: Forsaken,
) -> Result<Restored> {
    let parts = parts(storage, superblock);
    let found = load::checkpoint_without_map(&parts.blocks, superblock.pool, superblock.ledger)?;
    let mut ledger = Ledger::of(&parts, superblock, found)?;
    if matches!(forsaken, Forsaken::Wanted) {
        ledger.living[Stream::Data as usize].unite(std::mem::take(&mut ledger.forsaken));
    }
    let mut segments = segments(storage, superblock)?;
    let end = ledger.position.segment;
    if !segments.contains(&end) {
        if !superblock.clean {
            let detail = "it is missing, and the log since the last checkpoint was in it";
            return Err(Error::damaged(file_name(end), detail));
        }
        segments.push(end);
    }
    let wanted = ledger.living.clone();
    let gone = ledger.find(&parts, superblock, &wanted, &segments, Knows::NoPlaces);
    let lost = count(&gone.lost);
    ledger.set_tail_aside();
    let written = ledger.write(&parts, superblock, segments, Some(gone))?;
    copies::write_superblocks(parts.blocks.files().copies(), &written);
    Ok(Restored { chunks: 0, found: count(&wanted) - lost, lost })
}

/// Has the log go on in a new segment, where the one in which it would is gone. Nothing may be written to
/// what could turn up again. Writes a ledger of the same checkpoint, and superblocks. Answers what these say
/// now, and the segment.
///
/// # Errors
/// The ledger cannot be read; or writing failed: then the pool is as it was.
pub(crate) fn move_log_end(
    storage: &Arc<dyn Storage>,
    superblock: &Superblock,
) -> Result<(Superblock, SegmentId)> {
    let parts = parts(storage, superblock);
    let found = load::checkpoint(&parts.blocks, superblock.pool, superblock.ledger)?;
    let load::Checkpoint { number, mut position, placed, mut gathered, forsaken, .. } = found;
    let mut map = gathered.map().copied()?;
    let Position { address, sequence, .. } = position.position();
    let set_aside = BlockCount(position.tail_mapped.end().0.saturating_sub(address.0));
    if set_aside.0 > 0 {
        map.trim_end(Run { stream: Stream::Data, start: address, length: set_aside });
    }
    let mut out = Out { parts: &parts, superblock, at: None, segments: segments(storage, superblock)? };
    out.segments.push(position.segment);
    let segment = out.begin(SegmentKind::Log, address, sequence)?;
    parts.blocks.files().sync(segment)?;
    (position.segment, position.slot, position.incarnation) = (segment, Slot(1), out.next_use());
    gathered.know_use(segment, position.incarnation);
    let slots = parts.blocks.files().geometry().end(SegmentKind::Log).0 - 1;
    position.tail_mapped = Run { stream: Stream::Data, start: address, length: BlockCount(slots.into()) };
    // Of a segment that had this number, and is gone, nothing lives.
    map.remove_segment(segment);
    map.insert(position.tail_mapped, segment, Slot(1));
    let segments = out.segments;
    let (living, known, taken) = Default::default();
    let ledger = Ledger { number, position, placed, gathered, map, living, known, taken, forsaken };
    // Copies were flushed for the checkpoint as it was, which is the one before from here on. Their
    // superblocks say so.
    Ok((ledger.write(&parts, superblock, segments, None)?, segment))
}

/// Whether the ledger of the last checkpoint can be read, with its location map.
pub(crate) fn ledger_is_whole(storage: &Arc<dyn Storage>, superblock: &Superblock) -> bool {
    load::checkpoint(&parts(storage, superblock).blocks, superblock.pool, superblock.ledger).is_ok()
}

fn count(sets: &Addresses) -> u64 {
    sets.iter().map(|set| set.len().0).sum()
}

/// Addresses that live at an unknown place, and segments in which they may lie.
struct Gone {
    lost: Addresses,
    unexplained: BTreeSet<SegmentId>,
}

fn parts(storage: &Arc<dyn Storage>, superblock: &Superblock) -> Parts {
    let place = copies::find(storage, superblock, true);
    Parts::new(storage, superblock, &lock_free_options(), true, place)
}

/// All segments that there are files of, also cut short, and those that are missed.
fn segments(storage: &Arc<dyn Storage>, superblock: &Superblock) -> Result<Vec<SegmentId>> {
    let mut found = recovery::all_files(&**storage)?;
    let whole = recovery::segments(&**storage, superblock, superblock.next_epoch())?;
    // Where not even that is possible, which are missed is unknown.
    if let Ok(loaded) = load::load(&parts(storage, superblock).blocks, superblock, whole, true) {
        found.extend(loaded.state.segments.all());
        found.sort_unstable();
        found.dedup();
    }
    Ok(found)
}

/// What the ledger of a checkpoint says.
struct Ledger {
    number: u64,
    position: PositionSection,
    placed: PlacedSection,
    gathered: Gathered,
    /// The map as the ledger has it, to be changed.
    map: ChunkedMap,
    /// What lives, as of the checkpoint.
    living: Addresses,
    /// What was placed since the chunks were written, by the checkpoint itself too.
    known: Addresses,
    /// Segments that found another use since.
    taken: BTreeSet<SegmentId>,
    /// What lives as of the checkpoint and has no place any more.
    forsaken: BlockSet,
}

impl Ledger {
    fn of(parts: &Parts, superblock: &Superblock, found: load::Checkpoint) -> Result<Self> {
        let load::Checkpoint { number, position, placed, gathered, mut history, forsaken } = found;
        history.keep_in(Arc::clone(&parts.blocks) as Arc<dyn PartSource>, history.limits());
        let map = gathered.map().copied()?;
        let mut living = Addresses::default();
        let mut known = Addresses::default();
        for stream in Stream::ALL {
            let all = Run { stream, start: LogAddress(0), length: BlockCount(u64::MAX) };
            let (living, known) = (&mut living[stream as usize], &mut known[stream as usize]);
            for run in history.live_runs(stream) {
                // Of what is in a part of a set that cannot be read, it is unknown whether it lives.
                let run = run?;
                living.insert(run.start..run.end());
            }
            let recent = map.recent_within(all).into_iter().map(|placed| placed.run);
            let own = placed.placed.iter().map(|placed| placed.run).filter(|run| run.stream == stream);
            for run in recent.chain(own) {
                known.insert(run.start..run.end());
            }
        }
        living[Stream::Data as usize].subtract(&forsaken);
        let mut taken = taken_since(parts, superblock, &position);
        taken.extend(&placed.retired);
        // Chunks are read through it.
        *parts.blocks.map().write() = map.copied()?;
        Ok(Self { number, position, placed, gathered, map, living, known, taken, forsaken })
    }

    fn damaged_chunks(&self, parts: &Parts) -> Vec<Absent> {
        let rows = self.map.directory().all();
        let all = rows.map(|(stream, row)| Absent { stream, span: row.span.clone(), place: row.place });
        all.filter(|absent| parts.blocks.chunk(absent).is_err()).collect()
    }

    /// What lives of the addresses that a chunk has the places of.
    fn living_in(&self, absent: &Absent) -> BlockSet {
        let mut living = self.living[absent.stream as usize].part(&absent.span);
        living.subtract(&self.known[absent.stream as usize]);
        living
    }

    /// Looks for addresses, and enters those that are found into the map.
    fn find(
        &mut self,
        parts: &Parts,
        superblock: &Superblock,
        wanted: &Addresses,
        segments: &[SegmentId],
        knows: Knows,
    ) -> Gone {
        let cursors = [self.position.run_cursor, self.position.node_cursor];
        let scope = Scope {
            blocks: &parts.blocks,
            pool: superblock.pool,
            log: self.position.position(),
            cursors: cursors.into_iter().flatten().collect(),
            excluded: self.taken.clone(),
            uses: self.gathered.uses().clone(),
        };
        let Found { mut placed, mut lost, unexplained, uses } = places::find(&scope, wanted, segments);
        let is_other = |segment: &SegmentId| {
            uses.get(segment).is_some_and(|found| scope.uses.get(segment).is_some_and(|known| known != found))
        };
        if matches!(knows, Knows::SomePlaces) {
            // Something else may lie there, in the use that the ledger knows of. It would be taken for what
            // was written.
            for other in placed.extract_if(.., |one| is_other(&one.segment)) {
                lost[other.run.stream as usize].insert(other.run.start..other.run.end());
            }
        }
        for segment in placed.iter().map(|one| one.segment) {
            uses.get(&segment).inspect(|found| self.gathered.know_use(segment, **found));
        }
        for run in self.map.restore(&placed) {
            lost[run.stream as usize].insert(run.start..run.end());
        }
        Gone { lost, unexplained }
    }

    /// Where the log goes on has a place of its own, with nothing in it yet.
    fn set_tail_aside(&mut self) {
        let Position { segment, slot, address, .. } = self.position.position();
        let end = self.position.tail_mapped.end();
        if address < end {
            let length = BlockCount(end.0 - address.0);
            let run = Run { stream: Stream::Data, start: address, length };
            self.map.keep_where_nothing_is(&PlacedRun { run, segment, slot });
        }
    }

    /// Writes the ledger in full to a segment of its own, and superblocks that name it. `gone`: what the map
    /// has no place for any more.
    fn write(
        self,
        parts: &Parts,
        superblock: &Superblock,
        segments: Vec<SegmentId>,
        gone: Option<Gone>,
    ) -> Result<Superblock> {
        let Self { number, position, placed, gathered, mut map, forsaken, .. } = self;
        let mut out = Out { parts, superblock, at: None, segments };
        let taken = out.next_use();
        if let Some(gone) = gone {
            out.stand_for(&gone, &mut map)?;
        }
        let mut said = gathered.with_map(map).into_said(position, placed, None);
        said.forsaken = ForsakenSection::of(&forsaken);
        let frame = BlobFrame {
            pool: superblock.pool,
            slots: parts.blocks.files().geometry().slots(),
            base: None,
            checkpoint: number,
            taken,
        };
        let mut written = Vec::new();
        frame.write(said, &mut |bytes| out.write(bytes), &mut written)?;
        let mut next = superblock.clone();
        // That is what folders with copies say, too.
        next.former = Some(Former { ledger: superblock.ledger, taken: superblock.taken });
        (next.ledger, next.taken) = (*written.last().expect("one at least"), taken);
        next.generation += 1;
        // What superblocks name has to be there after a crash.
        let storage = &*parts.storage;
        storage.sync_directory().map_err(|error| Error::io("flush", storage.describe(), error))?;
        superblocks::write(storage, &next, parts.blocks.files())?;
        Ok(next)
    }
}

/// What a ledger still knows of where blocks lie.
#[derive(Clone, Copy)]
enum Knows {
    /// Nothing: segments are in the uses that they are found in.
    NoPlaces,
    /// Some of it: the ledger knows which uses segments are in in which that is.
    SomePlaces,
}

/// Segments that the log since a checkpoint went on in. What was in them before is not there any more, or
/// will not be.
fn taken_since(parts: &Parts, superblock: &Superblock, position: &PositionSection) -> BTreeSet<SegmentId> {
    let mut taken = BTreeSet::new();
    let counters = Counters::default();
    let (blocks, lives) = (&parts.blocks, &superblock.lives);
    let start = position.position();
    let mut reader = Reader::new(blocks, &counters, superblock.pool, lives, start, position.previous);
    while let Some(found) = reader.next().ok().flatten().or_else(|| reader.next_from_copy()) {
        if let Some((segment, incarnation)) = Operation::switch_of(&found.view) {
            taken.insert(segment);
            reader.follow(segment, incarnation);
        }
    }
    taken
}

/// New segments for a ledger.
struct Out<'a> {
    parts: &'a Parts,
    superblock: &'a Superblock,
    at: Option<(SegmentId, Slot)>,
    segments: Vec<SegmentId>,
}

impl Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<LedgerPointer> {
        let files = self.parts.blocks.files();
        let blocks = (bytes.len() / BLOCK_BYTES) as u32;
        let room = |(_, slot): &(SegmentId, Slot)| slot.0 + blocks <= files.geometry().slots();
        let (segment, slot) = match self.at.filter(room) {
            Some(at) => at,
            None => (self.begin(SegmentKind::Ledger, LogAddress(0), RecordSequence(0))?, Slot(1)),
        };
        self.at = Some((segment, Slot(slot.0 + blocks)));
        files.write(segment, slot, &[(Kind::Checkpoint, &AlignedBuffer::copied(bytes))])?;
        files.sync(segment)?;
        Ok(LedgerPointer { segment, slot, blocks, crc: crc32c(bytes) })
    }

    /// The number of a use that no other has, but for other segments of a ledger that is written anew.
    /// Numbers of a life go on from 1: those at the end are not used.
    fn next_use(&self) -> u64 {
        let last = self.superblock.epoch().0 << 32 | u64::from(u32::MAX);
        let first = last - (1 << 16);
        let taken = self.superblock.taken;
        if (first..last).contains(&taken) { taken + 1 } else { first }
    }

    /// Has the map say of what is gone that it cannot be read. Segments in which it may lie are used for
    /// nothing else until nothing of it lives.
    fn stand_for(&mut self, gone: &Gone, map: &mut ChunkedMap) -> Result<()> {
        for stream in Stream::ALL {
            let lost = &gone.lost[stream as usize];
            let (Some(first), Some(last)) = (lost.first(), lost.last()) else { continue };
            let mut block = vec![0; BLOCK_BYTES];
            block[..GONE.len()].copy_from_slice(GONE);
            let written = self.write(&block)?;
            // It is not what it should be, for good.
            let place = LedgerPointer { crc: !written.crc, ..written };
            let mut segments: Vec<SegmentId> = gone.unexplained.iter().copied().collect();
            if segments.is_empty() {
                segments.push(place.segment);
            }
            let segments = Some(segments).filter(|segments| segments.len() <= NAMED_MAX);
            let segments = segments.map(Vec::into_boxed_slice);
            let row = ChunkRow { span: first..LogAddress(last.0 + 1), place, entries: 1, segments };
            map.add_unreadable(stream, row);
        }
        Ok(())
    }

    /// A segment that was not there before: nothing that is needed can be in it. Nothing lies in it before
    /// this address and record.
    fn begin(
        &mut self,
        kind: SegmentKind,
        first_address: LogAddress,
        first_sequence: RecordSequence,
    ) -> Result<SegmentId> {
        let number = (0..).find(|number| !self.segments.contains(&SegmentId(*number)));
        let segment = SegmentId(number.expect("there are not so many"));
        let files = self.parts.blocks.files();
        files.create(segment)?;
        self.segments.push(segment);
        files.begin(segment, kind);
        let (pool, incarnation, epoch) = (self.superblock.pool, self.next_use(), self.superblock.epoch());
        let header = SegmentHeader { pool, kind, segment, incarnation, first_address, first_sequence, epoch };
        files.write_header(&header)?;
        Ok(segment)
    }
}
