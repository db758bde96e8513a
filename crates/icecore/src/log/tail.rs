//! The end of the log, in memory: the one place that assigns data addresses and record sequence numbers.

use crate::format::record::HEADER_ROOM;
use crate::format::segment::{Geometry, SegmentKind};
use crate::storage::AlignedBuffer;
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, RecordSequence, SegmentId, Slot};
use std::sync::Arc;

/// Data blocks of one record at most: their checksums leave room for operations.
pub(crate) const RECORD_BLOCKS_MAX: usize = 900;

/// Whole blocks in memory that a record carries, with their checksums.
#[derive(Clone)]
pub(crate) struct Payload {
    pub buffer: Arc<AlignedBuffer>,
    /// First block of the buffer that belongs to the payload.
    pub first: usize,
    pub sums: Vec<u32>,
}

impl Payload {
    pub(crate) fn blocks(&self) -> usize {
        self.sums.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.first * BLOCK_BYTES..(self.first + self.blocks()) * BLOCK_BYTES]
    }
}

/// A record that is complete but for the fields that its writer fills in.
pub(crate) struct PendingRecord {
    pub sequence: RecordSequence,
    pub segment: SegmentId,
    pub incarnation: u64,
    pub slot: Slot,
    pub address: LogAddress,
    pub operations: Vec<u8>,
    pub operation_count: u16,
    pub operations_in_blocks: bool,
    pub more: bool,
    pub payloads: Vec<Payload>,
    pub blocks: usize,
}

impl PendingRecord {
    /// One without data, and nothing counted in it yet.
    fn at(place: &Position, operations: Vec<u8>) -> Self {
        Self {
            sequence: place.sequence,
            segment: place.segment,
            incarnation: place.incarnation,
            slot: place.slot,
            address: place.address,
            operations,
            operation_count: 0,
            operations_in_blocks: false,
            more: false,
            payloads: Vec::new(),
            blocks: 0,
        }
    }
}

/// What a writer is to write, in order.
pub(crate) enum Piece {
    Record(PendingRecord),
    /// A segment begins: its header goes to slot 0.
    Start {
        segment: SegmentId,
        incarnation: u64,
        address: LogAddress,
        sequence: RecordSequence,
    },
    /// A segment is full: its checksum table can be written.
    Seal {
        segment: SegmentId,
        incarnation: u64,
    },
}

/// A position in the log between two records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Position {
    pub segment: SegmentId,
    pub incarnation: u64,
    pub slot: Slot,
    pub address: LogAddress,
    pub sequence: RecordSequence,
}

/// Builds records. Knows of no I/O: a segment to go on in is handed to it.
pub(crate) struct Tail {
    geometry: Geometry,
    next: Position,
    open: Option<PendingRecord>,
    pending: Vec<Piece>,
    pending_blocks: usize,
    /// Records sealed now belong to an atomic step that goes on.
    chain: bool,
    /// See [`Tail::abandon`].
    abandoned: bool,
}

/// What an operation needs in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    /// Bytes of its encoding.
    pub operation_bytes: usize,
    /// Data blocks.
    pub blocks: usize,
}

impl Need {
    /// Blocks for the encoding when the header cannot hold it.
    fn spilled_blocks(self) -> usize {
        if self.fits_header() { 0 } else { self.operation_bytes.div_ceil(BLOCK_BYTES) }
    }

    fn fits_header(self) -> bool {
        self.operation_bytes + self.blocks * 4 <= HEADER_ROOM
    }
}

impl Tail {
    pub(crate) fn new(geometry: Geometry, next: Position) -> Self {
        Self {
            geometry,
            next,
            open: None,
            pending: Vec::new(),
            pending_blocks: 0,
            chain: false,
            abandoned: false,
        }
    }

    /// What gives the same addresses as this one would, and is never written: to find out what operations
    /// come to.
    pub(crate) fn outline(&self) -> Self {
        let open = self.open.as_ref().map(|open| PendingRecord {
            operations: open.operations.clone(),
            payloads: Vec::new(),
            ..*open
        });
        let (pending, pending_blocks) = (Vec::new(), 0);
        Self { open, pending, pending_blocks, ..*self }
    }

    /// Where the next record will begin; only meaningful when no record is open.
    pub(crate) fn position(&self) -> Position {
        assert!(self.open.is_none(), "the open record was sealed before");
        self.next
    }

    pub(crate) fn segment(&self) -> SegmentId {
        self.next.segment
    }

    /// The sequence number of the last record that holds anything, open or sealed.
    pub(crate) fn last_sequence(&self) -> RecordSequence {
        let next = self.next.sequence.0;
        RecordSequence(if self.open.is_some() { next } else { next - 1 })
    }

    /// The next address that a record or a staged run will get.
    pub(crate) fn next_address(&self) -> LogAddress {
        let open = self.open.as_ref().map_or(0, |open| 1 + open.blocks as u64);
        self.next.address.plus(BlockCount(open))
    }

    /// The slot of the next data block of the open record.
    pub(crate) fn next_slot(&self) -> Slot {
        let open = self.open.as_ref().map_or(0, |open| 1 + open.blocks as u32);
        Slot(self.next.slot.0 + open)
    }

    /// Data blocks that still fit the segment, roughly.
    pub(crate) fn room(&self) -> u64 {
        self.slots_left() as u64
    }

    /// Whether more than half of the segment is taken.
    pub(crate) fn is_past_half(&self) -> bool {
        self.next.slot.0 > self.geometry.slots() / 2
    }

    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_blocks * BLOCK_BYTES
    }

    fn slots_left(&self) -> usize {
        // One slot stays free for the record that names the next segment.
        let used = self.open.as_ref().map_or(0, |open| 1 + open.blocks);
        (self.geometry.end(SegmentKind::Log).0 as usize)
            .saturating_sub(self.next.slot.0 as usize + used)
            .saturating_sub(1)
    }

    fn joins_open(&self, need: Need) -> bool {
        let Some(open) = &self.open else { return false };
        need.fits_header()
            && !open.operations_in_blocks
            && open.operation_count < u16::MAX
            && open.blocks + need.blocks <= RECORD_BLOCKS_MAX
            && open.operations.len() + need.operation_bytes + (open.blocks + need.blocks) * 4 <= HEADER_ROOM
            && need.blocks <= self.slots_left()
    }

    /// Whether the log has to go on in a new segment before an operation with this need can be appended.
    pub(crate) fn needs_segment(&self, need: Need) -> bool {
        !self.joins_open(need) && self.slots_left() < 1 + need.blocks + need.spilled_blocks()
    }

    /// Makes room: afterwards `append` with this need succeeds, and its first data block gets the address
    /// returned.
    pub(crate) fn plan(&mut self, need: Need) -> LogAddress {
        assert!(!self.needs_segment(need), "a segment was provided before");
        assert!(need.blocks + need.spilled_blocks() <= RECORD_BLOCKS_MAX, "callers split what is larger");
        if self.joins_open(need) {
            return self.next_address();
        }
        self.seal();
        self.open = Some(PendingRecord::at(&self.next, Vec::with_capacity(need.operation_bytes)));
        self.next_address().plus(BlockCount(need.spilled_blocks() as u64))
    }

    /// Appends an operation that was planned for just before.
    pub(crate) fn append(&mut self, operation: &[u8], payload: Option<Payload>) {
        let blocks = payload.as_ref().map_or(0, Payload::blocks);
        let need = Need { operation_bytes: operation.len(), blocks };
        let open = self.open.as_mut().expect("an operation was planned for");
        if !need.fits_header() {
            assert!(open.operation_count == 0, "a spilled operation has a record to itself");
            let spilled = spill(operation);
            open.blocks += spilled.blocks();
            open.payloads.push(spilled);
            open.operations_in_blocks = true;
        }
        open.operations.extend_from_slice(operation);
        open.operation_count += 1;
        open.blocks += blocks;
        open.payloads.extend(payload);
    }

    /// Everything appended from here to `end_chain` is one atomic step.
    pub(crate) fn begin_chain(&mut self) {
        self.seal();
        self.chain = true;
    }

    /// The atomic step is complete.
    pub(crate) fn end_chain(&mut self) {
        self.chain = false;
        assert!(self.open.is_some(), "the last record of a step says that it is the last");
        self.seal();
    }

    /// An atomic step was cut off in the middle: what was built is not written any more, nor is anything
    /// later.
    pub(crate) fn abandon(&mut self) {
        self.abandoned = true;
        self.chain = false;
        self.open = None;
        self.pending.clear();
    }

    /// Whether nothing is written any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned
    }

    /// Whether an atomic step is being built.
    pub(crate) fn is_in_chain(&self) -> bool {
        self.chain
    }

    /// Closes the open record.
    pub(crate) fn seal(&mut self) {
        let Some(mut open) = self.open.take() else { return };
        open.more = self.chain;
        let taken = 1 + open.blocks as u64;
        self.next.slot.0 += taken as u32;
        self.next.address.0 += taken;
        self.next.sequence.0 += 1;
        self.pending_blocks += taken as usize;
        self.pending.push(Piece::Record(open));
    }

    /// Gives the addresses from the tail on to a run that lies outside the log.
    pub(crate) fn take_addresses(&mut self, count: BlockCount) -> LogAddress {
        assert!(self.open.is_none(), "the open record was sealed before");
        let first = self.next.address;
        self.next.address.0 += count.0;
        first
    }

    /// Goes on in another segment: `switch` is the encoded operation that says so.
    pub(crate) fn switch(&mut self, switch: &[u8], segment: SegmentId, incarnation: u64) {
        self.seal();
        let old = self.next;
        self.open = Some(PendingRecord { operation_count: 1, ..PendingRecord::at(&old, switch.to_vec()) });
        self.seal();
        self.pending.push(Piece::Seal { segment: old.segment, incarnation: old.incarnation });
        self.next.segment = segment;
        self.next.incarnation = incarnation;
        self.next.slot = Slot(1);
        self.pending.push(Piece::Start {
            segment,
            incarnation,
            address: self.next.address,
            sequence: self.next.sequence,
        });
    }

    /// Hands over everything built so far.
    pub(crate) fn take(&mut self) -> Vec<Piece> {
        assert!(!self.chain, "a step is handed over whole");
        self.seal();
        self.pending_blocks = 0;
        std::mem::take(&mut self.pending)
    }
}

fn spill(operation: &[u8]) -> Payload {
    let blocks = operation.len().div_ceil(BLOCK_BYTES);
    let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK_BYTES);
    buffer[..operation.len()].copy_from_slice(operation);
    let sums = buffer.chunks(BLOCK_BYTES).map(crate::format::crc32c).collect();
    Payload { buffer: Arc::new(buffer), first: 0, sums }
}
