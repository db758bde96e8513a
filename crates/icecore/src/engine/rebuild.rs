//! The location map made again from what segments say of themselves. The ledger is written anew, of the same checkpoint: replay starts where it
//! would have, and nothing else that it says is touched.

use super::checkpoint::{PlacedSection, PositionSection};
use super::init::{Parts, lock_free_options};
use super::load::{self, Gathered};
use super::places::{self, Addresses, Found, Scope};
use super::{copies, recovery, superblocks};
use crate::error::Result;
use crate::format::crc32c;
use crate::format::ledger::Blob;
use crate::format::segment::{Geometry, SegmentHeader, SegmentKind};
use crate::format::superblock::{Former, LedgerPointer, Superblock};
use crate::liveness::BlockSet;
use crate::location::{Absent, ChunkedMap, PlacedRun};
use crate::log::replay::Reader;
use crate::log::tail::Position;
use crate::operation::Operation;
use crate::segments::Segments;
use crate::statistics::Counters;
use crate::storage::{AlignedBuffer, Kind, Storage};
use crate::units::{
    BLOCK_BYTES, BlockCount, LogAddress, RecordSequence, RecoveryEpoch, Run, SegmentId, Slot, Stream,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most blocks of a blob that is written here.
const BLOB_BLOCKS_MAX: u32 = 2048;

/// What became of the places that a damaged part of the map had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Restored {
    /// Chunks that could not be read.
    pub chunks: usize,
    /// Blocks that live and were found.
    pub found: u64,
    /// Blocks that live and were not.
    pub lost: u64,
}

/// Makes the damaged chunks of the location map again, and writes a ledger that does without them, and superblocks that name it. `None` if all
/// chunks can be read: then nothing is written.
///
/// # Errors
/// The ledger itself cannot be read; or writing failed.
pub(crate) fn restore_chunks(storage: &Arc<dyn Storage>, superblock: &Superblock) -> Result<Option<Restored>> {
    let parts = parts(storage, superblock);
    let mut ledger = Ledger::read(&parts, superblock)?;
    let damaged = ledger.damaged_chunks(&parts);
    if damaged.is_empty() {
        return Ok(None);
    }
    let segments = segments(storage, superblock)?;
    let mut wanted = Addresses::default();
    for absent in &damaged {
        wanted[absent.stream as usize].unite(ledger.living_in(absent));
    }
    let Found { placed, mut lost } = places::find(&ledger.scope(&parts, superblock), &wanted, &segments);
    for run in ledger.map.restore(&placed) {
        lost[run.stream as usize].insert(run.start..run.end());
    }
    // What is not all found again goes on saying that something is lost, and where it may be.
    let is_whole = |absent: &&Absent| lost[absent.stream as usize].part(&absent.span).is_empty();
    damaged.iter().filter(is_whole).for_each(|absent| ledger.map.do_without(absent));
    ledger.set_tail_aside();
    ledger.write(&parts, superblock, &segments)?;
    let blocks = |sets: &Addresses| sets.iter().map(|set| set.len().0).sum::<u64>();
    let lost = blocks(&lost);
    Ok(Some(Restored { chunks: damaged.len(), found: blocks(&wanted) - lost, lost }))
}

fn parts(storage: &Arc<dyn Storage>, superblock: &Superblock) -> Parts {
    let place = copies::find(storage, superblock, true);
    Parts::new(storage, superblock, &lock_free_options(), true, place)
}

/// The segments that there are.
fn segments(storage: &Arc<dyn Storage>, superblock: &Superblock) -> Result<Vec<SegmentId>> {
    let geometry = Geometry { bytes: superblock.segment_bytes };
    let epoch = RecoveryEpoch(superblock.epoch().0 + 1);
    let mut segments = Segments::new(geometry, superblock.size_limit, epoch);
    recovery::segments(&**storage, superblock, &mut segments)?;
    Ok(segments.all())
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
    /// What lives and was placed since the chunks were written, by the checkpoint itself too, or is known to lie elsewhere.
    known: Addresses,
    /// Segments that found another use since.
    taken: BTreeSet<SegmentId>,
}

impl Ledger {
    fn read(parts: &Parts, superblock: &Superblock) -> Result<Self> {
        let blocks = &parts.blocks;
        let load::Checkpoint { number, position, placed, gathered, history } =
            load::checkpoint(blocks, superblock.pool, superblock.ledger)?;
        let mut living = Addresses::default();
        for stream in Stream::ALL {
            history.live_runs(stream).for_each(|run| {
                living[stream as usize].insert(run.start..run.end());
            });
        }
        let map = gathered.map().copied()?;
        let mut known = Addresses::default();
        for stream in Stream::ALL {
            let run = Run { stream, start: LogAddress(0), length: BlockCount(u64::MAX) };
            known[stream as usize] =
                map.recent_within(run).iter().map(|placed| placed.run.start..placed.run.end()).collect();
        }
        for placed in &placed.placed {
            known[placed.run.stream as usize].insert(placed.run.start..placed.run.end());
        }
        let mut taken = taken_since(parts, superblock, &position);
        taken.extend(&placed.retired);
        *blocks.map().write() = map.copied()?;
        Ok(Self { number, position, placed, gathered, map, living, known, taken })
    }

    fn damaged_chunks(&self, parts: &Parts) -> Vec<Absent> {
        let all: Vec<Absent> = {
            let absent = |(stream, row): (Stream, &crate::location::ChunkRow)| Absent {
                stream,
                span: row.span.clone(),
                place: row.place,
            };
            self.map.directory().all().map(absent).collect()
        };
        all.into_iter().filter(|absent| parts.blocks.chunk(absent).is_err()).collect()
    }

    /// What lives of the addresses that a chunk has the places of.
    fn living_in(&self, absent: &Absent) -> BlockSet {
        let mut living = self.living[absent.stream as usize].part(&absent.span);
        living.subtract(&self.known[absent.stream as usize]);
        living
    }

    fn scope<'a>(&self, parts: &'a Parts, superblock: &Superblock) -> Scope<'a> {
        let cursors = [self.position.run_cursor, self.position.node_cursor];
        Scope {
            blocks: &parts.blocks,
            pool: superblock.pool,
            drawn: superblock.drawn,
            log: self.position.position(),
            cursors: cursors.into_iter().flatten().collect(),
            excluded: self.taken.clone(),
        }
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

    /// Writes the ledger in full to a segment of its own, and superblocks that name it.
    fn write(self, parts: &Parts, superblock: &Superblock, segments: &[SegmentId]) -> Result<()> {
        let Self { number, position, placed, gathered, map, .. } = self;
        let said = gathered.with_map(map).into_said(position, placed, None);
        let geometry = Geometry { bytes: superblock.segment_bytes };
        let blocks_max = (geometry.slots() / 2).min(BLOB_BLOCKS_MAX);
        let mut out = Out { parts, superblock, geometry, at: None, taken: superblock.taken, segments: segments.to_vec() };
        let mut base: Option<LedgerPointer> = None;
        let whole = Blob { base, checkpoint: number, sections: said.encode()? }.encode(superblock.pool);
        if whole.len() <= blocks_max as usize * BLOCK_BYTES {
            base = Some(out.write(&whole)?);
        } else {
            for part in said.split(blocks_max as usize * BLOCK_BYTES / 4) {
                let blob = Blob { base, checkpoint: number, sections: part.encode()? };
                base = Some(out.write(&blob.encode(superblock.pool))?);
            }
        }
        let taken = out.taken;
        let mut next = superblock.clone();
        next.former = Some(Former { ledger: superblock.ledger, taken: superblock.taken });
        (next.ledger, next.taken) = (base.expect("one at least"), taken);
        next.generation += 1;
        superblocks::write(&*parts.storage, &next)?;
        copies::write_superblocks(parts.blocks.files().copies(), &next);
        Ok(())
    }
}

/// Segments that the log since a checkpoint went on in. What was in them before is not there any more, or will not be.
fn taken_since(parts: &Parts, superblock: &Superblock, position: &PositionSection) -> BTreeSet<SegmentId> {
    let mut taken = BTreeSet::new();
    let counters = Counters::default();
    let (blocks, lives) = (&parts.blocks, &superblock.lives);
    let start = position.position();
    let mut reader = Reader::new(blocks, &counters, superblock.pool, lives, start, position.previous);
    while let Ok(Some(found)) = reader.next() {
        if found.view.header.operations != 1 || !found.view.sums.is_empty() {
            continue;
        }
        if let Some((Operation::Switch { segment, incarnation }, _)) = Operation::decode(&found.view.operations) {
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
    geometry: Geometry,
    at: Option<(SegmentId, Slot)>,
    /// The highest number of a use that was given out.
    taken: u64,
    segments: Vec<SegmentId>,
}

impl Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<LedgerPointer> {
        let blocks = (bytes.len() / BLOCK_BYTES) as u32;
        let room = |(_, slot): &(SegmentId, Slot)| slot.0 + blocks <= self.geometry.slots();
        let (segment, slot) = match self.at.filter(room) {
            Some(at) => at,
            None => (self.begin()?, Slot(1)),
        };
        self.at = Some((segment, Slot(slot.0 + blocks)));
        let files = self.parts.blocks.files();
        files.write(segment, slot, &[(Kind::Checkpoint, &AlignedBuffer::copied(bytes))])?;
        files.sync(segment)?;
        Ok(LedgerPointer { segment, slot, blocks, crc: crc32c(bytes) })
    }

    /// A segment that there was not before: nothing that is needed can be in it.
    fn begin(&mut self) -> Result<SegmentId> {
        let number = (0..).find(|number| !self.segments.contains(&SegmentId(*number)));
        let segment = SegmentId(number.expect("there are not so many"));
        let files = self.parts.blocks.files();
        files.create(segment)?;
        self.segments.push(segment);
        // Numbers of a life go on from 1: those at the end are not used.
        let last = self.superblock.epoch().0 << 32 | u64::from(u32::MAX);
        self.taken = if self.taken > last - (1 << 16) && self.taken < last { self.taken + 1 } else { last - (1 << 16) + 1 };
        files.begin(segment, SegmentKind::Ledger);
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        let header = SegmentHeader {
            pool: self.superblock.pool,
            kind: SegmentKind::Ledger,
            segment,
            incarnation: self.taken,
            first_address: LogAddress(0),
            first_sequence: RecordSequence(0),
            epoch: self.superblock.epoch(),
        };
        header.encode(&mut block);
        files.write(segment, Slot(0), &[(Kind::Frame, &block)])?;
        Ok(segment)
    }
}
