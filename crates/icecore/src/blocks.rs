//! Blocks by log address: where they are, what they hold, and whether that is what was written.

mod chunks;
mod fetch;
mod gather;
mod heal;
mod inspect;
mod pending;
mod recent;
mod sets;
mod survey;
mod tables;
mod there;
mod unsealed;

pub(crate) use inspect::Flaw;
pub(crate) use recent::Recent;
pub(crate) use sets::Shelf;
pub(crate) use there::Doubts;

use crate::error::{Error, Result};
use crate::files::SegmentFiles;
use crate::format::crc32c;
use crate::format::record::RecordView;
use crate::format::segment::{Geometry, SegmentHeader, SegmentKind, TABLE_SUMS, TableOwner, file_name};
use crate::location::{ChunkedMap, MapLimits};
use crate::numbers::{NumberHash, NumberMap, number_cache};
use crate::options::OpenOptions;
use crate::statistics::Counters;
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, PoolId, Run, SegmentId, Slot, Stream};
use gather::Known;
use parking_lot::RwLock;
use pending::{Pending, lost};
use quick_cache::UnitWeighter;
use quick_cache::sync::Cache;
use std::collections::BTreeSet;
use std::sync::Arc;
use tables::Tables;
use unsealed::Unsealed;

/// One block in memory.
pub(crate) type Block = [u8; BLOCK_BYTES];

/// Reads blocks of every stream but tree nodes, through caches, verified.
pub(crate) struct Blocks {
    files: SegmentFiles,
    pool: PoolId,
    map: RwLock<ChunkedMap>,
    sets: RwLock<Shelf>,
    cache: Cache<u64, Arc<Block>, UnitWeighter, NumberHash>,
    recent: Recent,
    /// Merged blocks that no checkpoint has written yet.
    pending: Pending,
    sums: Sums,
    counters: Arc<Counters>,
    /// Blocks are read around the page cache of the operating system.
    direct_reads: bool,
}

/// How a reader comes to blocks.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Access {
    /// They may be read again: the cache keeps what had to be read.
    pub keep: bool,
    /// The page cache of the operating system was asked for them before.
    pub fetched: bool,
}

/// A block of its own with these bytes, which are as many as a block has.
pub(crate) fn copied(bytes: &[u8]) -> Arc<Block> {
    Arc::<[u8]>::from(bytes).try_into().expect("a whole block")
}

/// Stream and address in one number.
fn key(stream: Stream, address: LogAddress) -> u64 {
    (stream as u64) << 48 | address.0
}

impl Blocks {
    pub(crate) fn new(
        files: SegmentFiles,
        pool: PoolId,
        options: &OpenOptions,
        map: MapLimits,
        set_bytes: u64,
        counters: Arc<Counters>,
    ) -> Self {
        let cache_bytes = options.block_cache_bytes;
        // Half for what was written last, kept in the buffers it was written from; half for what was read.
        let geometry = files.geometry();
        let cached = (cache_bytes / 2 / BLOCK_BYTES as u64).max(64) as usize;
        Self {
            files,
            pool,
            map: RwLock::new(ChunkedMap::new(map)),
            sets: RwLock::new(Shelf::new(set_bytes)),
            cache: number_cache(cached, cached as u64, UnitWeighter),
            recent: Recent::new(cache_bytes / 2),
            pending: Pending::default(),
            sums: Sums::new(pool, geometry, cache_bytes / 2),
            counters,
            direct_reads: options.direct_reads,
        }
    }

    pub(crate) fn files(&self) -> &SegmentFiles {
        &self.files
    }

    pub(crate) fn map(&self) -> &RwLock<ChunkedMap> {
        &self.map
    }

    /// Chunks of sets.
    pub(crate) fn sets(&self) -> &RwLock<Shelf> {
        &self.sets
    }

    /// Merged blocks that no checkpoint has written yet.
    pub(crate) fn pending(&self) -> &Pending {
        &self.pending
    }

    pub(crate) fn recent(&self) -> &Recent {
        &self.recent
    }

    pub(crate) fn sums(&self) -> &Sums {
        &self.sums
    }

    /// One block.
    pub(crate) fn read(&self, stream: Stream, address: LogAddress) -> Result<Arc<Block>> {
        let run = Run { stream, start: address, length: BlockCount(1) };
        if let Some(block) = self.cache.get(&key(stream, address)) {
            self.counters.block_cache_hits.add(1);
            return Ok(block);
        }
        if stream == Stream::Merged
            && let Some(block) = self.pending.get(address)
        {
            return block.ok_or_else(|| lost(address));
        }
        let mut block = Arc::new([0; BLOCK_BYTES]);
        self.read_run(run, Arc::get_mut(&mut block).expect("new"), Access { keep: true, fetched: false })?;
        Ok(block)
    }

    /// Part of one block.
    pub(crate) fn read_part(
        &self,
        stream: Stream,
        address: LogAddress,
        at: usize,
        into: &mut [u8],
    ) -> Result<()> {
        if let Some(block) = self.cache.get(&key(stream, address)) {
            self.counters.block_cache_hits.add(1);
            into.copy_from_slice(&block[at..at + into.len()]);
            return Ok(());
        }
        if self.recent.copy(key(stream, address), at, into) {
            self.counters.block_cache_hits.add(1);
            return Ok(());
        }
        let block = self.read(stream, address)?;
        into.copy_from_slice(&block[at..at + into.len()]);
        Ok(())
    }

    /// Fills `into` with a whole run.
    pub(crate) fn read_run(&self, run: Run, into: &mut [u8], access: Access) -> Result<()> {
        assert_eq!(into.len() as u64, run.length.bytes().0);
        let mut index = 0;
        while index < run.length.0 {
            let address = run.start.plus(BlockCount(index));
            let target = &mut into[index as usize * BLOCK_BYTES..];
            if self.copy_from_memory(run.stream, address, &mut target[..BLOCK_BYTES]) {
                self.counters.block_cache_hits.add(1);
                index += 1;
                continue;
            }
            if run.stream == Stream::Merged {
                self.pending.check(address)?;
            }
            let rest = Run { start: address, length: BlockCount(run.length.0 - index), ..run };
            let count = self.while_there(rest, |segment, slot, together, doubts| {
                // As many blocks as lie together, up to the next one that memory holds.
                let mut count = 1;
                while count < together.0 && !self.is_in_memory(run.stream, address.plus(BlockCount(count))) {
                    count += 1;
                }
                let target = &mut target[..count as usize * BLOCK_BYTES];
                self.read_doubted(segment, slot, target, self.direct_reads && !access.fetched, doubts)?;
                Ok(count)
            })?;
            let target = &mut target[..count as usize * BLOCK_BYTES];
            self.counters.disk_read_bytes_data.add(target.len() as u64);
            if access.keep {
                for (offset, block) in target.as_chunks::<BLOCK_BYTES>().0.iter().enumerate() {
                    let address = address.plus(BlockCount(offset as u64));
                    self.cache.insert(key(run.stream, address), Arc::new(*block));
                }
            }
            index += count;
        }
        Ok(())
    }

    /// Reads a block if that takes no I/O; answers whether it did.
    pub(crate) fn copy_from_memory(&self, stream: Stream, address: LogAddress, into: &mut [u8]) -> bool {
        let key = key(stream, address);
        if let Some(block) = self.cache.get(&key) {
            into.copy_from_slice(&*block);
            return true;
        }
        if stream == Stream::Merged
            && let Some(Some(block)) = self.pending.get(address)
        {
            into.copy_from_slice(&*block);
            return true;
        }
        self.recent.copy(key, 0, into)
    }

    /// A block, if that takes no I/O.
    pub(crate) fn in_memory(&self, stream: Stream, address: LogAddress) -> Option<Arc<Block>> {
        let key = key(stream, address);
        if stream == Stream::Merged
            && let Some(Some(block)) = self.pending.get(address)
        {
            return Some(block);
        }
        self.cache.get(&key).or_else(|| self.recent.find(key, copied))
    }

    fn is_in_memory(&self, stream: Stream, address: LogAddress) -> bool {
        let key = key(stream, address);
        self.cache.peek(&key).is_some()
            || self.recent.holds(key)
            || (stream == Stream::Merged && self.pending.get(address).is_some())
    }

    /// Where a block is, and how many blocks from it on lie together.
    pub(crate) fn locate(
        &self,
        stream: Stream,
        address: LogAddress,
    ) -> Result<(SegmentId, Slot, BlockCount)> {
        self.lookup(stream, address)?.ok_or_else(|| {
            Error::damaged("the location map", format!("no place is known for {stream:?} address {address}"))
        })
    }

    /// Reads blocks of a data segment and compares each with its checksum. What is not what was written is
    /// healed from its copy, if there is one that is. The segment must not be used for anything else
    /// meanwhile.
    pub(crate) fn read_verified(&self, segment: SegmentId, slot: Slot, into: &mut [u8]) -> Result<()> {
        let mut doubts = Doubts::default();
        let outcome = self.read_doubted(segment, slot, into, false, &mut doubts);
        self.note(&doubts);
        outcome
    }

    /// As [`Blocks::read_verified`], of a segment that may be used for something else meanwhile.
    fn read_doubted(
        &self,
        segment: SegmentId,
        slot: Slot,
        into: &mut [u8],
        direct: bool,
        doubts: &mut Doubts,
    ) -> Result<()> {
        let uses = self.sums.uses();
        let read = if direct {
            self.files.read_direct(segment, slot, into)
        } else {
            self.files.read(segment, slot, into)
        };
        let outcome = read.and_then(|()| self.compare(segment, slot, into, doubts));
        outcome.or_else(|error| self.read_with_copies(segment, slot, into, (uses, error), doubts))
    }

    /// Compares blocks that were read from a data segment with their checksums, and notes damage. The segment
    /// must not have been used for anything else since.
    pub(crate) fn verify(&self, segment: SegmentId, slot: Slot, blocks: &[u8]) -> Result<()> {
        let mut doubts = Doubts::default();
        let outcome = self.compare(segment, slot, blocks, &mut doubts);
        self.note(&doubts);
        outcome
    }

    fn compare(&self, segment: SegmentId, slot: Slot, blocks: &[u8], doubts: &mut Doubts) -> Result<()> {
        let mut sums = SumsOf { sums: &self.sums, files: &self.files, segment, held: None };
        for (index, block) in blocks.chunks(BLOCK_BYTES).enumerate() {
            let at = Slot(slot.0 + index as u32);
            if sums.of(at)? != Some(crc32c(block)) {
                let detail = "a data block does not match its checksum";
                let error = self.files.geometry().damaged(segment, at, detail);
                doubts.add(&error);
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether a block of a data segment matches its checksum.
    fn matches(&self, segment: SegmentId, slot: Slot, block: &[u8]) -> Result<bool> {
        let mut sums = SumsOf { sums: &self.sums, files: &self.files, segment, held: None };
        Ok(sums.of(slot)? == Some(crc32c(block)))
    }
}

/// Checksums of [`TABLE_SUMS`] slots: what one block of a checksum table has.
type Piece = Arc<RwLock<Vec<u32>>>;

fn pieces(sums: &[u32]) -> impl Iterator<Item = Piece> {
    sums.chunks(TABLE_SUMS).map(|sums| Arc::new(RwLock::new(sums.to_vec())))
}

/// The checksums in these pieces.
fn joined(pieces: &[Piece]) -> Vec<u32> {
    pieces.iter().flat_map(|piece| piece.read().clone()).collect()
}

/// Looks up checksums of one segment, one slot after the other.
struct SumsOf<'a> {
    sums: &'a Sums,
    files: &'a SegmentFiles,
    segment: SegmentId,
    held: Option<(u32, Piece)>,
}

impl SumsOf<'_> {
    /// The checksum of a slot, 0 if none is known; `None` if there is no such slot.
    fn of(&mut self, slot: Slot) -> Result<Option<u32>> {
        let (number, at) = (slot.0 / TABLE_SUMS as u32, slot.0 as usize % TABLE_SUMS);
        if self.held.as_ref().is_none_or(|(held, _)| *held != number) {
            let piece = self.sums.piece(self.segment, number, self.files)?;
            self.held = piece.map(|piece| (number, piece));
        }
        Ok(self.held.as_ref().and_then(|(_, piece)| piece.read().get(at).copied()))
    }
}

/// What a data segment is used for: this use of it, and no earlier one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Use {
    pub kind: SegmentKind,
    pub incarnation: u64,
}

/// Checksum tables of data segments: those being filled, and a bounded number of pieces of finished ones.
pub(crate) struct Sums {
    pool: PoolId,
    tables: Tables<Piece>,
    known: RwLock<KnownUses>,
    unsealed: Unsealed,
}

/// Which use segments are in, as the code that took them said: what is of another use of a segment is not
/// what was written. A life that was cut short may have taken some for runs before a ledger said it: no
/// record says which use those are in.
#[derive(Default)]
struct KnownUses {
    uses: NumberMap<SegmentId, u64>,
    /// Those of which the ledger does not know yet.
    news: BTreeSet<SegmentId>,
}

impl Sums {
    /// Pieces of finished tables take `bytes` of memory at most.
    fn new(pool: PoolId, geometry: Geometry, bytes: u64) -> Self {
        let pieces_max = (bytes / BLOCK_BYTES as u64).max(64) as usize;
        let tables = Tables::new(geometry.table_blocks(), pieces_max);
        Self { pool, tables, known: RwLock::default(), unsealed: Unsealed::default() }
    }

    /// What blocks of the table of a segment in this use say of themselves.
    pub(crate) fn owner(&self, segment: SegmentId, incarnation: u64) -> TableOwner {
        TableOwner { pool: self.pool, segment, incarnation }
    }

    /// A number that changes whenever a segment finds a new use.
    pub(crate) fn uses(&self) -> u64 {
        self.tables.uses()
    }

    /// A segment begins to be filled.
    pub(crate) fn open(&self, segment: SegmentId, incarnation: u64, geometry: Geometry) {
        self.note_use(segment, incarnation);
        self.tables.begin(segment, pieces(&vec![0; geometry.slots() as usize]).collect());
    }

    /// A segment that was filled in part by an earlier life, in this use of it, goes on being filled.
    /// What was written to it ends before `end`.
    pub(crate) fn reopen(
        &self,
        segment: SegmentId,
        use_: Use,
        end: Slot,
        files: &SegmentFiles,
    ) -> Result<()> {
        let Known { sums: table, unread } = self.rebuild(segment, use_, end, files);
        // What is missing in it would be missing for good when the segment is full.
        if let Some(error) = unread {
            return Err(error);
        }
        self.note_use(segment, use_.incarnation);
        self.tables.go_on(segment, pieces(&table).collect());
        Ok(())
    }

    /// Checksums of blocks from `slot` on.
    pub(crate) fn set(&self, segment: SegmentId, slot: Slot, sums: impl IntoIterator<Item = u32>) {
        let table = self.tables.filling(segment).expect("the segment is being filled");
        for (at, sum) in (slot.0 as usize..).zip(sums) {
            table[at / TABLE_SUMS].write()[at % TABLE_SUMS] = sum;
        }
    }

    /// An open group gets room in a segment that is being filled: until it lets go, its blocks may change.
    pub(crate) fn hold_open(&self, segment: SegmentId) {
        self.unsealed.hold(segment);
    }

    /// A group lets go of what [`Sums::hold_open`] did. Answers the use of the segment if its table is to be
    /// written now.
    pub(crate) fn let_go(&self, segment: SegmentId) -> Option<u64> {
        self.unsealed.let_go(segment)
    }

    /// A segment is full. Answers whether its table is to be written now, and not by the last group that lets
    /// go.
    pub(crate) fn may_close(&self, segment: SegmentId, incarnation: u64) -> bool {
        self.unsealed.fill(segment, incarnation)
    }

    /// The segment is full: its table, to be written.
    pub(crate) fn close(&self, segment: SegmentId, geometry: Geometry) -> Vec<u32> {
        let table = self.tables.finish(segment);
        table.map_or_else(|| vec![0; geometry.slots() as usize], |table| joined(&table))
    }

    /// The segment is used for something else from now on.
    pub(crate) fn forget(&self, segment: SegmentId) {
        let mut known = self.known.write();
        known.uses.remove(&segment);
        known.news.remove(&segment);
        drop(known);
        self.tables.forget(segment);
    }

    /// A segment is in this use.
    pub(crate) fn note_use(&self, segment: SegmentId, incarnation: u64) {
        let mut known = self.known.write();
        if known.uses.insert(segment, incarnation) != Some(incarnation) {
            known.news.insert(segment);
        }
    }

    /// What the ledger says of the uses that segments are in.
    pub(crate) fn know_uses(&self, uses: impl IntoIterator<Item = (SegmentId, u64)>) {
        self.known.write().uses.extend(uses);
    }

    /// What the ledger has to say of them: what it does not know yet, or `all` that is known.
    pub(crate) fn uses_to_say(&self, all: bool) -> Vec<(SegmentId, u64)> {
        let mut known = self.known.write();
        let mut segments = std::mem::take(&mut known.news);
        if all {
            segments.extend(known.uses.keys());
        }
        segments.into_iter().map(|segment| (segment, known.uses[&segment])).collect()
    }

    /// It was not said after all.
    pub(crate) fn say_again(&self, said: &[(SegmentId, u64)]) {
        let mut known = self.known.write();
        for (segment, incarnation) in said {
            if known.uses.get(segment) == Some(incarnation) {
                known.news.insert(*segment);
            }
        }
    }

    fn known_use(&self, segment: SegmentId) -> Option<u64> {
        self.known.read().uses.get(&segment).copied()
    }

    fn piece(&self, segment: SegmentId, piece: u32, files: &SegmentFiles) -> Result<Option<Piece>> {
        self.tables.find_or(segment, piece, || {
            if let Some(sums) = self.read_piece(segment, piece, files) {
                return Ok((piece, vec![Arc::new(RwLock::new(sums))], true));
            }
            let Known { sums, unread } = self.read_table(segment, files)?;
            // What a disk refuses to read now it may read the next time.
            let may_be_kept = !unread.is_some_and(|error| matches!(error, Error::Io { .. }));
            Ok((0, pieces(&sums).collect(), may_be_kept))
        })
    }

    /// All checksums of a segment, by slot: 0 where none is known.
    ///
    /// # Errors
    /// Nothing is left that says what the segment is.
    fn whole(&self, segment: SegmentId, files: &SegmentFiles) -> Result<Vec<u32>> {
        match self.tables.filling(segment) {
            Some(table) => Ok(joined(&table)),
            None => Ok(self.read_table(segment, files)?.sums),
        }
    }

    /// What a segment is used for. Its first record says so, too, should the header be lost. Where it is not
    /// known which use it is in, and its copy is of a later one, the segment is an older state of itself:
    /// incarnations only grow.
    ///
    /// # Errors
    /// [`Error::Damaged`]: neither it nor its copy says that it is in a use, or that in which it is.
    pub(crate) fn use_of(&self, segment: SegmentId, files: &SegmentFiles) -> Result<Use> {
        let own = self.own_use_of(segment, files);
        let copied = self.copied_use_of(segment, files);
        match (own, copied) {
            (Ok(own), Some(copied)) if copied.incarnation > own.incarnation => Ok(copied),
            (Ok(own), _) => Ok(own),
            (Err(_), Some(copied)) => Ok(copied),
            (Err(error), None) => Err(error),
        }
    }

    /// What a segment itself says that it is used for.
    fn own_use_of(&self, segment: SegmentId, files: &SegmentFiles) -> Result<Use> {
        let mut blocks = vec![0; 2 * BLOCK_BYTES];
        let unread = files.read_around(segment, Slot(0), &mut blocks);
        self.decode_use(segment, &blocks).map_err(|error| unread.unwrap_or(error))
    }

    fn copied_use_of(&self, segment: SegmentId, files: &SegmentFiles) -> Option<Use> {
        let mut blocks = vec![0; 2 * BLOCK_BYTES];
        let copied = files.read_copy(segment, Slot(0), &mut blocks);
        copied.then(|| self.decode_use(segment, &blocks).ok()).flatten()
    }

    fn decode_use(&self, segment: SegmentId, blocks: &[u8]) -> Result<Use> {
        let (first, second) = blocks.split_at(BLOCK_BYTES);
        let header = SegmentHeader::of(self.pool, segment, first)
            .filter(|header| header.kind.has_table())
            .map(|header| Use { kind: header.kind, incarnation: header.incarnation });
        let record = || {
            let header = RecordView::decode(second)?.header;
            let kind = if header.run { SegmentKind::Run } else { SegmentKind::Log };
            (header.pool == self.pool).then_some(Use { kind, incarnation: header.incarnation })
        };
        let known = self.known_use(segment);
        let is_it = |use_: &Use| known.is_none_or(|known| use_.incarnation == known);
        let detail = match header {
            Some(_) => "the segment is not what was written, but what it was before, or another",
            None => "the segment header is not valid",
        };
        let found = header.filter(is_it).or_else(|| record().filter(is_it));
        found.ok_or_else(|| Error::damaged(file_name(segment), detail))
    }
}
