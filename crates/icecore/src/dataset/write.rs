//! Writing files, and cutting them.

use super::ATOMIC_WRITE_BYTES;
use super::target::Target;
use crate::engine::Purpose;
use crate::error::{FileFault, Result};
use crate::format::crc32c;
use crate::log::tail::Payload;
use crate::namespace::{Read, TreeReader};
use crate::operation::{Operation, Write};
use crate::state::State;
use crate::storage::AlignedBuffer;
use crate::units::{BLOCK_BYTES, FILE_BYTES_MAX, FileBlock, LogAddress, RecordSequence, Stream, Timestamp};
use std::sync::Arc;

/// Writes up to this size that do not cover whole blocks travel in the record header.
const INLINE_BYTES_MAX: usize = 2048;

/// Whole blocks made of a write, and what its ends were completed from: a block of the file, and its address.
struct Completed {
    payload: Payload,
    from: Vec<(FileBlock, Option<(Stream, LogAddress)>)>,
}

impl Target<'_> {
    /// Writes at `offset`. Answers the record that says so.
    pub(super) fn write(&self, offset: u64, data: &[u8]) -> Result<RecordSequence> {
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= FILE_BYTES_MAX);
        end.ok_or(FileFault::TooLarge)?;
        if data.is_empty() {
            // There is nothing to execute, and a handle that is stale says so.
            self.now()?;
        }
        let time = self.engine.now();
        let mut last = RecordSequence(0);
        for (index, part) in data.chunks(ATOMIC_WRITE_BYTES).enumerate() {
            let at = offset + (index * ATOMIC_WRITE_BYTES) as u64;
            last = self.write_part(at, part, time)?;
        }
        self.engine.counters.write_calls.add(1);
        self.engine.counters.write_bytes.add(data.len() as u64);
        Ok(last)
    }

    fn write_part(&self, at: u64, part: &[u8], time: Timestamp) -> Result<RecordSequence> {
        if at.is_multiple_of(BLOCK_BYTES as u64) && part.len().is_multiple_of(BLOCK_BYTES) {
            let operation = self.write_operation(at, at + part.len() as u64, time);
            self.execute(&operation, Some(payload_of(AlignedBuffer::copied(part))), Purpose::Data)
        } else if part.len() <= INLINE_BYTES_MAX {
            self.warm_ends(at, at + part.len() as u64)?;
            let (dataset, inode, bytes) = (self.dataset, self.inode, part.to_vec());
            let operation = Operation::WriteInline { dataset, inode, offset: at, bytes, time };
            self.execute(&operation, None, Purpose::Data)
        } else {
            self.engine.with_room(|| self.write_unaligned(at, part, time))
        }
    }

    /// Brings the blocks of which a part is in a range into memory before the state is locked: the operation
    /// makes others of them. What cannot be read the operation finds, if it needs it.
    fn warm_ends(&self, at: u64, end: u64) -> Result<()> {
        let (tree, _pin) = self.now()?;
        let reader = TreeReader::new(&tree, &*self.engine.nodes);
        for block in partial(at, end) {
            if let Ok(Some(run)) = reader.run_at(self.inode, block) {
                let _ = self.engine.blocks.read(run.stream, run.start);
            }
        }
        Ok(())
    }

    /// The operation that writes the blocks from that of `at` on, up to that before `end`, where the file
    /// ends at least.
    fn write_operation(&self, at: u64, end: u64, time: Timestamp) -> Operation {
        let (dataset, inode, block) = (self.dataset, self.inode, FileBlock::containing(at));
        let blocks = (end.div_ceil(BLOCK_BYTES as u64) - block.0) as u32;
        Operation::Write(Write { dataset, inode, block, blocks, end, time })
    }

    /// Writes whole blocks whose ends are completed from what is there. That is read while the state is not
    /// locked, and again if it is something else by then: another writer was faster.
    fn write_unaligned(&self, at: u64, part: &[u8], time: Timestamp) -> Result<RecordSequence> {
        let operation = self.write_operation(at, at + part.len() as u64, time);
        let engine = self.engine;
        engine.admit()?;
        loop {
            let completed = self.complete(at, part)?;
            let mut state = engine.state();
            if !self.is_current(&state, &completed)? {
                continue;
            }
            engine.append(&mut state, &operation, Some(completed.payload), Purpose::Data)?;
            let last = state.tail.last_sequence();
            let pressure = engine.pressure(&state);
            drop(state);
            engine.after_append(pressure)?;
            return Ok(last);
        }
    }

    fn complete(&self, at: u64, part: &[u8]) -> Result<Completed> {
        let end = at + part.len() as u64;
        let first = FileBlock::containing(at);
        let blocks = (end.div_ceil(BLOCK_BYTES as u64) - first.0) as usize;
        let mut buffer = AlignedBuffer::zeroed(blocks * BLOCK_BYTES);
        let (tree, _pin) = self.now()?;
        let reader = TreeReader::new(&tree, &*self.engine.nodes);
        let mut from = Vec::with_capacity(2);
        for block in partial(at, end) {
            let run = reader.run_at(self.inode, block)?;
            if let Some(run) = run {
                let index = (block.0 - first.0) as usize * BLOCK_BYTES;
                let target = &mut buffer[index..index + BLOCK_BYTES];
                target.copy_from_slice(&*self.engine.blocks.read(run.stream, run.start)?);
            }
            from.push((block, run.map(|run| (run.stream, run.start))));
        }
        let within = (at - first.offset()) as usize;
        buffer[within..within + part.len()].copy_from_slice(part);
        Ok(Completed { payload: payload_of(buffer), from })
    }

    /// Whether a write was completed from what is there now. An address never means anything else.
    fn is_current(&self, state: &State, completed: &Completed) -> Result<bool> {
        let tree = &state.trees[&self.head(state)?];
        let reader = TreeReader::new(tree, &*self.engine.nodes);
        for (block, place) in &completed.from {
            let run = reader.run_at(self.inode, *block)?;
            if run.map(|run| (run.stream, run.start)) != *place {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sets the size: what lies behind is dropped, what is new reads as zeros.
    pub(super) fn truncate(&self, size: u64) -> Result<()> {
        if size > FILE_BYTES_MAX {
            return Err(FileFault::TooLarge.into());
        }
        self.warm_ends(size, size)?;
        let (dataset, inode, time) = (self.dataset, self.inode, self.engine.now());
        let operation = Operation::Truncate { dataset, inode, size, time };
        self.execute(&operation, None, Purpose::Freeing).map(|_| ())
    }

    /// Makes a range read as zeros, and frees its blocks.
    pub(super) fn punch_hole(&self, offset: u64, length: u64) -> Result<()> {
        self.warm_ends(offset, offset.saturating_add(length))?;
        let (dataset, inode, time) = (self.dataset, self.inode, self.engine.now());
        let operation = Operation::PunchHole { dataset, inode, offset, length, time };
        self.execute(&operation, None, Purpose::Freeing).map(|_| ())
    }
}

/// The blocks of which a part lies in a range and another part does not, or may not.
fn partial(at: u64, end: u64) -> impl Iterator<Item = FileBlock> {
    let ends = [at, end].into_iter().filter(|end| !end.is_multiple_of(BLOCK_BYTES as u64));
    let (mut blocks, mut last) = (ends.map(FileBlock::containing), None);
    std::iter::from_fn(move || {
        last = blocks.find(|block| Some(*block) != last);
        last
    })
}

/// Whole blocks, with their checksums.
fn payload_of(buffer: AlignedBuffer) -> Payload {
    let sums = buffer.chunks_exact(BLOCK_BYTES).map(crc32c).collect();
    Payload { buffer: Arc::new(buffer), first: 0, sums }
}
