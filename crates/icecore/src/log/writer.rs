//! Group commit: one caller writes and flushes for all that wait.

use super::tail::{PendingRecord, Piece};
use super::turn::Turns;
use crate::blocks::Blocks;
use crate::error::Result;
use crate::files::SegmentFiles;
use crate::format::record::{self, RecordHeader};
use crate::format::segment::{SegmentHeader, SegmentKind, encode_table};
use crate::statistics::Counters;
use crate::storage::{AlignedBuffer, Kind};
use crate::units::{BLOCK_BYTES, PoolId, RecordSequence, RecoveryEpoch, SegmentId, Slot};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What was built since the last write, with what must be durable before it counts.
pub(crate) struct Batch {
    pub pieces: Vec<Piece>,
    /// The last record that counts as written afterwards.
    pub last: RecordSequence,
    /// Segments with staged runs that records of the batch refer to.
    pub runs: BTreeSet<SegmentId>,
    /// How many callers' operations are in it, for the statistics.
    pub operations: u64,
}

/// Writes batches, one at a time, and knows up to where the log is durable.
pub(crate) struct Writer {
    pool: PoolId,
    epoch: RecoveryEpoch,
    turns: Turns<Chain>,
    durable: AtomicU64,
}

/// Batches that one caller writes in a row for those that wait: more would keep it waiting for too long.
const BATCHES_PER_TURN: usize = 4;

/// What the thread that has the turn does.
const WRITING: &str = "writing the log";

/// Is dropped only if a thread panics in the middle of what it was doing.
struct Unwinding<'a> {
    writer: &'a Writer,
    doing: &'a str,
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        self.writer.fail(&format!("a thread panicked while it was {}", self.doing));
    }
}

/// What only the one who writes may touch.
pub(crate) struct Chain {
    /// Hash of the last header written.
    pub previous: [u8; 16],
    /// Segments written to since their last flush.
    pub unsynced: BTreeSet<SegmentId>,
    /// Last record written, durable or not.
    pub written: RecordSequence,
}

impl Writer {
    pub(crate) fn new(pool: PoolId, epoch: RecoveryEpoch, chain: Chain) -> Self {
        let durable = AtomicU64::new(chain.written.0);
        Self { pool, epoch, turns: Turns::new(chain), durable }
    }

    /// Every record up to this one is durable.
    pub(crate) fn durable(&self) -> RecordSequence {
        RecordSequence(self.durable.load(Ordering::Acquire))
    }

    /// The failure after which nothing is written any more.
    pub(crate) fn failure(&self) -> Option<String> {
        self.turns.failure()
    }

    /// Whether a thread writes to the log at this moment.
    pub(crate) fn is_busy(&self) -> bool {
        self.turns.is_taken()
    }

    /// Nothing is written from now on; every thread that waits gets the reason as its error.
    pub(crate) fn fail(&self, reason: &str) {
        self.turns.fail(reason.to_owned());
    }

    /// Does something that must not be left half done: if it panics, nothing is written any more. A thread
    /// that went on after that would find a state that the code does not expect.
    pub(crate) fn guarded<T>(&self, doing: &str, body: impl FnOnce() -> T) -> T {
        let guard = Unwinding { writer: self, doing };
        let outcome = body();
        std::mem::forget(guard);
        outcome
    }

    /// Returns when record `wanted` is durable. The leading thread calls `take` to collect what is to be
    /// written.
    pub(crate) fn make_durable(
        &self,
        wanted: RecordSequence,
        blocks: &Blocks,
        counters: &Counters,
        mut take: impl FnMut() -> Batch,
    ) -> Result<()> {
        while self.durable() < wanted {
            let Some(mut chain) = self.turns.take(Some(wanted), || self.durable())? else { return Ok(()) };
            let outcome = self.guarded(WRITING, || {
                let mut outcome = self.write_batch(&mut chain, take(), true, blocks, counters);
                for _ in 1..BATCHES_PER_TURN {
                    if outcome.is_err() || !self.turns.serve(self.durable()) {
                        break;
                    }
                    outcome = self.write_batch(&mut chain, take(), true, blocks, counters);
                }
                outcome
            });
            self.give_back(chain, outcome)?;
        }
        Ok(())
    }

    /// Writes what there is without a flush.
    pub(crate) fn write(
        &self,
        blocks: &Blocks,
        counters: &Counters,
        take: impl FnOnce() -> Batch,
    ) -> Result<()> {
        self.exclusive(|chain| self.write_batch(chain, take(), false, blocks, counters))
    }

    /// Runs `body` while no other thread writes to the log. An error from it fails the pool.
    pub(crate) fn exclusive<T>(&self, body: impl FnOnce(&mut Chain) -> Result<T>) -> Result<T> {
        let mut chain = self.turns.take(None, || self.durable())?.expect("waits for its turn without end");
        let outcome = self.guarded(WRITING, || body(&mut chain));
        self.give_back(chain, outcome)
    }

    fn give_back<T>(&self, chain: Chain, outcome: Result<T>) -> Result<T> {
        if let Err(error) = &outcome {
            // A failed write or flush is never tried again: what it left behind is unknown.
            self.turns.fail(error.to_string());
        }
        self.turns.give_back(chain, self.durable());
        outcome
    }

    /// Writes a batch; with `flush`, makes it and everything before it durable.
    pub(crate) fn write_batch(
        &self,
        chain: &mut Chain,
        batch: Batch,
        flush: bool,
        blocks: &Blocks,
        counters: &Counters,
    ) -> Result<()> {
        let began = Instant::now();
        for segment in &batch.runs {
            blocks.files().sync(*segment)?;
            counters.flushes.add(1);
        }
        let headers = self.build_headers(chain, &batch.pieces);
        self.write_pieces(chain, &batch.pieces, &headers, blocks, counters)?;
        if batch.last > chain.written {
            chain.written = batch.last;
        }
        if flush {
            for segment in std::mem::take(&mut chain.unsynced) {
                blocks.files().sync(segment)?;
                counters.flushes.add(1);
            }
            self.durable.store(chain.written.0, Ordering::Release);
            counters.commit(batch.operations, began.elapsed());
        }
        mark_written(&batch.pieces, blocks);
        Ok(())
    }

    fn build_headers(&self, chain: &mut Chain, pieces: &[Piece]) -> Option<AlignedBuffer> {
        let count = pieces.iter().filter(|piece| !matches!(piece, Piece::Seal { .. })).count();
        if count == 0 {
            return None;
        }
        let mut buffer = AlignedBuffer::zeroed(count * BLOCK_BYTES);
        let mut room = buffer.chunks_exact_mut(BLOCK_BYTES);
        for piece in pieces {
            match piece {
                Piece::Record(record) => {
                    let block = room.next().expect("counted");
                    self.build_header(chain.previous, record, block);
                    chain.previous = record::hash(block);
                }
                Piece::Start { segment, incarnation, address, sequence } => {
                    let header = SegmentHeader {
                        pool: self.pool,
                        kind: SegmentKind::Log,
                        segment: *segment,
                        incarnation: *incarnation,
                        first_address: *address,
                        first_sequence: *sequence,
                        epoch: self.epoch,
                    };
                    header.encode(room.next().expect("counted"));
                }
                Piece::Seal { .. } => {}
            }
        }
        Some(buffer)
    }

    fn build_header(&self, previous: [u8; 16], record: &PendingRecord, block: &mut [u8]) {
        let header = RecordHeader {
            pool: self.pool,
            epoch: self.epoch,
            sequence: record.sequence,
            previous,
            address: record.address,
            durable: self.durable(),
            incarnation: record.incarnation,
            more: record.more,
            operations_in_blocks: record.operations_in_blocks,
            run: false,
            operations_length: record.operations.len() as u32,
            operations: record.operation_count,
        };
        let sums: Vec<u32> = record.payloads.iter().flat_map(|payload| &payload.sums).copied().collect();
        let operations = if record.operations_in_blocks { &[][..] } else { &record.operations };
        header.encode(block, &sums, operations);
    }

    fn write_pieces(
        &self,
        chain: &mut Chain,
        pieces: &[Piece],
        headers: &Option<AlignedBuffer>,
        blocks: &Blocks,
        counters: &Counters,
    ) -> Result<()> {
        let files = blocks.files();
        let mut headers = headers.iter().flat_map(|buffer| buffer.chunks_exact(BLOCK_BYTES));
        // Parts that lie one after the other in one segment go out in one call.
        let mut gathered = Gathered { segment: SegmentId(0), slot: Slot(0), blocks: 0, parts: Vec::new() };
        for piece in pieces {
            match piece {
                Piece::Start { segment, .. } => {
                    gathered.flush(files)?;
                    files.begin(*segment, SegmentKind::Log);
                    chain.unsynced.insert(*segment);
                    gathered.begin(*segment, Slot(0));
                    gathered.push(Kind::Frame, headers.next().expect("built"));
                }
                Piece::Record(record) => {
                    if !gathered.continues_at(record.segment, record.slot) {
                        gathered.flush(files)?;
                        gathered.begin(record.segment, record.slot);
                    }
                    chain.unsynced.insert(record.segment);
                    gathered.push(Kind::RecordHeader, headers.next().expect("built"));
                    counters.logged_header_bytes.add(BLOCK_BYTES as u64);
                    for payload in &record.payloads {
                        gathered.push(Kind::Data, payload.bytes());
                        counters.logged_data_bytes.add(payload.bytes().len() as u64);
                    }
                }
                Piece::Seal { segment, incarnation } => {
                    gathered.flush(files)?;
                    seal_segment(*segment, *incarnation, blocks)?;
                    chain.unsynced.insert(*segment);
                }
            }
        }
        gathered.flush(files)
    }
}

/// Writes the checksum table of a segment that takes no more records.
fn seal_segment(segment: SegmentId, incarnation: u64, blocks: &Blocks) -> Result<()> {
    let geometry = blocks.files().geometry();
    let sums = blocks.sums().close(segment, geometry);
    let table = encode_table(geometry, blocks.sums().owner(segment, incarnation), &sums);
    let aligned = AlignedBuffer::copied(&table);
    blocks.files().write(segment, geometry.end(SegmentKind::Log), &[(Kind::Frame, &aligned)])
}

fn mark_written(pieces: &[Piece], blocks: &Blocks) {
    let last = pieces.iter().rev().find_map(|piece| match piece {
        Piece::Record(record) => Some(record.address.0 + 1 + record.blocks as u64),
        _ => None,
    });
    if let Some(end) = last {
        blocks.recent().written_below(end);
    }
}

/// Parts waiting to go out in one call.
struct Gathered<'a> {
    segment: SegmentId,
    slot: Slot,
    blocks: u32,
    parts: Vec<(Kind, &'a [u8])>,
}

impl<'a> Gathered<'a> {
    fn begin(&mut self, segment: SegmentId, slot: Slot) {
        self.segment = segment;
        self.slot = slot;
        self.blocks = 0;
    }

    fn continues_at(&self, segment: SegmentId, slot: Slot) -> bool {
        !self.parts.is_empty() && self.segment == segment && self.slot.0 + self.blocks == slot.0
    }

    fn push(&mut self, kind: Kind, bytes: &'a [u8]) {
        self.blocks += (bytes.len() / BLOCK_BYTES) as u32;
        self.parts.push((kind, bytes));
    }

    fn flush(&mut self, files: &SegmentFiles) -> Result<()> {
        if !self.parts.is_empty() {
            files.write(self.segment, self.slot, &self.parts)?;
            self.parts.clear();
        }
        Ok(())
    }
}
