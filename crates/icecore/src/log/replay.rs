//! Reading the log back: every record that is next in the chain, up to the torn tail.

use crate::blocks::Blocks;
use crate::error::Result;
use crate::format::crc32c;
use crate::format::record::RecordView;
use crate::format::segment::{SegmentHeader, SegmentKind, file_name};
use crate::format::superblock::Life;
use crate::log::tail::Position;
use crate::operation::Operation;
use crate::statistics::Counters;
use crate::storage::AlignedBuffer;
use crate::units::{
    BLOCK_BYTES, BlockCount, LOG_ADDRESS_LIMIT, LogAddress, PoolId, RecordSequence, SegmentId, Slot,
};
use std::collections::VecDeque;

/// Read at once when looking for headers.
const WINDOW_BLOCKS: usize = 64;

/// A record of the chain, with where it lies.
#[derive(Clone)]
pub(crate) struct Found {
    pub view: RecordView,
    pub segment: SegmentId,
    pub slot: Slot,
    /// The address that would have followed the record before; differs from this record's own where a staged
    /// run took addresses in between.
    pub expected: LogAddress,
}

impl Found {
    /// Whether these bytes are the record: its header and its data, as the chain and their checksums say.
    fn is(&self, bytes: &[u8]) -> bool {
        let (header, data) = bytes.split_at(BLOCK_BYTES);
        let same = RecordView::decode(header).is_some_and(|view| view.hash == self.view.hash);
        same && data.chunks(BLOCK_BYTES).map(crc32c).eq(self.view.sums.iter().copied())
    }
}

/// A record that arrived whole.
pub(crate) struct Whole {
    /// Its header and its data.
    pub bytes: AlignedBuffer,
    /// Where it belongs it is not what was written.
    pub is_copied: bool,
}

/// Walks the chain of records.
pub(crate) struct Reader<'a> {
    blocks: &'a Blocks,
    counters: &'a Counters,
    pool: PoolId,
    lives: &'a [Life],
    /// Where the next record is to be.
    pub next: Position,
    /// Hash of the header before.
    pub previous: [u8; 16],
    window: Vec<u8>,
    window_at: Option<(SegmentId, Slot)>,
    /// Headers that were taken from copies, to be written again where they belong.
    copied: Vec<(Found, Box<[u8; BLOCK_BYTES]>)>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(
        blocks: &'a Blocks,
        counters: &'a Counters,
        pool: PoolId,
        lives: &'a [Life],
        next: Position,
        previous: [u8; 16],
    ) -> Self {
        let window = vec![0; WINDOW_BLOCKS * BLOCK_BYTES];
        let copied = Vec::new();
        Self { blocks, counters, pool, lives, next, previous, window, window_at: None, copied }
    }

    /// The pool that the log belongs to.
    pub(crate) fn pool(&self) -> PoolId {
        self.pool
    }

    fn block(&mut self, segment: SegmentId, slot: Slot) -> Result<&[u8]> {
        let inside = self.window_at.is_some_and(|(at, first)| {
            at == segment && slot >= first && slot.0 < first.0 + WINDOW_BLOCKS as u32
        });
        if !inside {
            let slots = self.blocks.files().geometry().slots();
            let blocks = WINDOW_BLOCKS.min((slots - slot.0) as usize);
            self.window_at = None;
            self.read(segment, slot, blocks)?;
            self.counters.disk_read_bytes_replay.add((blocks * BLOCK_BYTES) as u64);
            self.window_at = Some((segment, slot));
        }
        let first = self.window_at.expect("just read").1;
        let at = (slot.0 - first.0) as usize * BLOCK_BYTES;
        Ok(&self.window[at..at + BLOCK_BYTES])
    }

    /// Fills the window. What cannot be read and has a copy is like what is damaged: nothing stands there.
    fn read(&mut self, segment: SegmentId, first: Slot, blocks: usize) -> Result<()> {
        let files = self.blocks.files();
        let window = &mut self.window[..blocks * BLOCK_BYTES];
        match files.read_around(segment, first, window) {
            Some(error) if !files.copies().has(segment) => Err(error),
            _ => Ok(()),
        }
    }

    fn epoch_fits(&self, view: &RecordView) -> bool {
        let life = self.lives.iter().rev().find(|life| life.first <= view.header.sequence);
        life.is_some_and(|life| life.epoch == view.header.epoch)
    }

    /// The next record of the chain; `None` at its end. Its data is not looked at.
    pub(crate) fn next(&mut self) -> Result<Option<Found>> {
        let Position { segment, slot, .. } = self.next;
        if slot >= self.blocks.files().geometry().end(SegmentKind::Log) {
            return Ok(None);
        }
        let view = RecordView::decode(self.block(segment, slot)?);
        Ok(view.filter(|view| self.is_next(view)).map(|view| self.go_on(view)))
    }

    /// The next record of the chain, from the copy of its header; `None` if there is none that is the next.
    /// Whether it arrived whole is not looked at. It is this life's, and no earlier recovery can have left it
    /// out. Copies of what a recovery wrote to go with it, and what comes after it has another epoch.
    pub(crate) fn next_from_copy(&mut self) -> Option<Found> {
        let Position { segment, slot, .. } = self.next;
        let files = self.blocks.files();
        let mut block = Box::new([0; BLOCK_BYTES]);
        if slot >= files.geometry().end(SegmentKind::Log) || !files.read_copy(segment, slot, &mut block[..]) {
            return None;
        }
        let view = RecordView::decode(&block[..]).filter(|view| self.is_next(view))?;
        let found = self.go_on(view);
        self.copied.push((found.clone(), block));
        Some(found)
    }

    /// Writes headers that were taken from copies again where they belong, of records before `end`. Others do
    /// not count.
    pub(crate) fn heal(&mut self, end: RecordSequence) {
        for (found, block) in std::mem::take(&mut self.copied) {
            if found.view.header.sequence < end {
                self.heal_record(&found, &block[..]);
            }
        }
    }

    /// Writes a record, or its header, again where it belongs.
    pub(crate) fn heal_record(&self, found: &Found, bytes: &[u8]) {
        let files = self.blocks.files();
        let Found { view, segment, slot, .. } = found;
        let detail = format!("log record {} is not valid", view.header.sequence);
        let why = files.geometry().damaged(*segment, *slot, detail);
        files.heal(*segment, *slot, bytes, &why, || true);
    }

    /// Whether a record is the one that the chain goes on with.
    fn is_next(&self, view: &RecordView) -> bool {
        self.follows(view) && self.epoch_fits(view)
    }

    /// Whether the chain, which ends here for the lives that are known, goes on with a record of a later one.
    /// Each life is in the superblocks before its first record.
    pub(crate) fn is_outlived(&mut self) -> Result<bool> {
        let Position { segment, slot, .. } = self.next;
        if slot >= self.blocks.files().geometry().end(SegmentKind::Log) {
            return Ok(false);
        }
        let view = RecordView::decode(self.block(segment, slot)?);
        let last = self.lives.last().map(|life| life.epoch);
        Ok(view.is_some_and(|view| self.follows(&view) && Some(view.header.epoch) > last))
    }

    fn follows(&self, view: &RecordView) -> bool {
        let end = self.blocks.files().geometry().end(SegmentKind::Log);
        let header = &view.header;
        let behind = self.next.slot.0 as usize + 1 + view.sums.len();
        header.pool == self.pool
            && !header.run
            && header.sequence == self.next.sequence
            && header.previous == self.previous
            && header.incarnation == self.next.incarnation
            && header.address >= self.next.address
            && header.address.0 < LOG_ADDRESS_LIMIT - (1 << 20)
            && behind <= end.0 as usize
    }

    fn go_on(&mut self, view: RecordView) -> Found {
        let Position { segment, slot, address: expected, .. } = self.next;
        self.next.slot = Slot(slot.0 + 1 + view.sums.len() as u32);
        self.next.address = view.header.address.plus(BlockCount(1 + view.sums.len() as u64));
        self.next.sequence.0 += 1;
        self.previous = view.hash;
        Found { view, segment, slot, expected }
    }

    /// The chain goes on in another segment.
    pub(crate) fn follow(&mut self, segment: SegmentId, incarnation: u64) {
        self.next.segment = segment;
        self.next.incarnation = incarnation;
        self.next.slot = Slot(1);
    }

    /// The data blocks of a record that is known to have arrived, if all of them or their copies match their
    /// checksums.
    fn data(&self, found: &Found) -> Result<Option<Vec<u8>>> {
        let mut data = vec![0; found.view.sums.len() * BLOCK_BYTES];
        if !data.is_empty() {
            let files = self.blocks.files();
            match files.read(found.segment, Slot(found.slot.0 + 1), &mut data) {
                Err(error) if !files.copies().has(found.segment) => return Err(error),
                // Whatever can be read of it is in the copy as well.
                Err(_) => data.fill(0),
                Ok(()) => {}
            }
            self.counters.disk_read_bytes_replay.add(data.len() as u64);
        }
        for (index, (block, sum)) in data.chunks_mut(BLOCK_BYTES).zip(&found.view.sums).enumerate() {
            let slot = Slot(found.slot.0 + 1 + index as u32);
            if crc32c(block) != *sum {
                let copied = self.blocks.files().read_copy(found.segment, slot, block);
                if !copied || crc32c(block) != *sum {
                    return Ok(None);
                }
            }
        }
        Ok(Some(data))
    }

    /// A record as it is to be written again, if it arrived whole, or its copy did.
    pub(crate) fn whole(&self, found: &Found) -> Result<Option<Whole>> {
        let files = self.blocks.files();
        let mut bytes = AlignedBuffer::zeroed((1 + found.view.sums.len()) * BLOCK_BYTES);
        match files.read(found.segment, found.slot, &mut bytes) {
            Err(error) if !files.copies().has(found.segment) => return Err(error),
            read => {
                self.counters.disk_read_bytes_replay.add(bytes.len() as u64);
                if read.is_ok() && found.is(&bytes) {
                    return Ok(Some(Whole { bytes, is_copied: false }));
                }
            }
        }
        let is_copied = files.read_copy(found.segment, found.slot, &mut bytes) && found.is(&bytes);
        Ok(is_copied.then_some(Whole { bytes, is_copied }))
    }

    /// The header of this record need not be healed any more.
    pub(crate) fn is_healed(&mut self, found: &Found) {
        let sequence = found.view.header.sequence;
        self.copied.retain(|(copied, _)| copied.view.header.sequence != sequence);
    }

    /// The operations of a record.
    pub(crate) fn operations(&self, found: &Found) -> Result<Vec<Operation>> {
        let header = &found.view.header;
        let damaged = |detail: &str| {
            let detail = format!("log record {}: {detail}", header.sequence);
            self.blocks.files().geometry().damaged(found.segment, found.slot, detail)
        };
        let in_blocks;
        let mut rest = &found.view.operations[..];
        if header.operations_in_blocks {
            in_blocks =
                self.data(found)?.ok_or_else(|| damaged("its blocks do not match their checksums"))?;
            rest = &in_blocks[..header.operations_length as usize];
        }
        let operations = Operation::decode_all(rest, header.operations)
            .ok_or_else(|| damaged("its operations cannot be read"))?;
        let spilled = spilled_blocks(found);
        let blocks: usize = operations.iter().map(|operation| operation.data_blocks() as usize).sum();
        if spilled + blocks != found.view.sums.len() {
            return Err(damaged("its operations and its data do not fit each other"));
        }
        Ok(operations)
    }

    /// Whether a record further on, that belongs to this log, says that the log was durable here: then its
    /// absence is damage and not a torn tail.
    pub(crate) fn witness(
        &mut self,
        others: impl Iterator<Item = (SegmentId, bool)>,
    ) -> Result<Option<String>> {
        let lost = self.next.sequence;
        let Position { segment, slot, incarnation, .. } = self.next;
        if let Some(found) = self.search(segment, slot, incarnation, lost)? {
            return Ok(Some(found));
        }
        let mut block = vec![0; BLOCK_BYTES];
        for (other, in_use) in others.filter(|(other, _)| *other != segment) {
            match self.blocks.files().read(other, Slot(0), &mut block) {
                // The log does not go on in what is in use for something else.
                Err(_) if in_use => continue,
                read => read?,
            }
            if let Some(header) = SegmentHeader::of(self.pool, other, &block)
                && header.kind == SegmentKind::Log
                && header.first_sequence > lost
                && let Some(found) = self.search(other, Slot(1), header.incarnation, lost)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Whether the segment that the log goes on in is in the use that the position names. Anything before the
    /// next record may say so, there or in its copy.
    pub(crate) fn is_in_its_use(&mut self) -> Result<bool> {
        let Position { segment, slot, incarnation, .. } = self.next;
        let (pool, files) = (self.pool, self.blocks.files());
        let mut block = vec![0; BLOCK_BYTES];
        let is_it = |block: &[u8]| {
            let header = SegmentHeader::decode(block)
                .is_some_and(|header| (header.pool, header.incarnation) == (pool, incarnation));
            header
                || RecordView::decode(block)
                    .is_some_and(|view| (view.header.pool, view.header.incarnation) == (pool, incarnation))
        };
        for before in (0..slot.0).map(Slot) {
            if is_it(self.block(segment, before)?)
                || files.read_copy(segment, before, &mut block) && is_it(&block)
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn search(
        &mut self,
        segment: SegmentId,
        from: Slot,
        incarnation: u64,
        lost: RecordSequence,
    ) -> Result<Option<String>> {
        let end = self.blocks.files().geometry().end(SegmentKind::Log).0;
        let mut slot = from.0;
        while slot < end {
            let Some(view) = RecordView::decode(self.block(segment, Slot(slot))?) else {
                slot += 1;
                continue;
            };
            let header = &view.header;
            let ours = header.pool == self.pool && !header.run && header.incarnation == incarnation;
            if ours && header.sequence > lost && header.durable >= lost && self.epoch_fits(&view) {
                let place = format!("record {} at slot {slot} of {}", header.sequence, file_name(segment));
                return Ok(Some(place));
            }
            slot += 1;
        }
        Ok(None)
    }
}

/// Blocks of a record that hold operations rather than file data.
pub(crate) fn spilled_blocks(found: &Found) -> usize {
    let header = &found.view.header;
    if header.operations_in_blocks { (header.operations_length as usize).div_ceil(BLOCK_BYTES) } else { 0 }
}

/// Records that may not be applied yet: either no mark covers them, or their atomic step is not complete.
#[derive(Default)]
pub(crate) struct Waiting {
    records: VecDeque<Found>,
}

impl Waiting {
    pub(crate) fn push(&mut self, found: Found) {
        self.records.push_back(found);
    }

    /// Takes the first atomic step, if it is complete and durable by the word of a later record.
    pub(crate) fn take_below(&mut self, durable: RecordSequence) -> Option<Vec<Found>> {
        self.take_if(|found| found.view.header.sequence <= durable)
    }

    /// Takes the first atomic step if it is complete and `accept` likes every record of it.
    pub(crate) fn take_if(&mut self, mut accept: impl FnMut(&Found) -> bool) -> Option<Vec<Found>> {
        let last = self.records.iter().position(|found| !found.view.header.more)?;
        self.records.iter().take(last + 1).all(&mut accept).then(|| self.records.drain(..=last).collect())
    }
}
