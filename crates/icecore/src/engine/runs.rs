//! Runs outside the log: what groups spill, merged blocks that a checkpoint writes, and data that collection
//! moves.

use super::space::{Allocation, Filling};
use super::{Engine, Purpose};
use crate::blocks::Block;
use crate::error::Result;
use crate::format::record::{HEADER_ROOM, RecordHeader};
use crate::format::segment::SegmentKind;
use crate::location::{LIST_BYTES_MIN, LISTED_BYTES_MAX, encode_list, first_blocks};
use crate::log::tail::Payload;
use crate::state::State;
use crate::storage::{AlignedBuffer, Kind};
use crate::units::{BLOCK_BYTES, LogAddress, RecordSequence, Run, SegmentId, Slot};
use std::sync::Arc;

/// Blocks that are written at once of a run that collection moves.
const PART_BLOCKS: usize = 64;
/// So many blocks with addresses fit one run wherever they belong; more if they belong side by side.
pub(super) const LISTED_BLOCKS_MIN: usize = 256;
const _: () = assert!(fits_header(LISTED_BLOCKS_MIN, LISTED_BLOCKS_MIN));

/// Whether a header has room for the addresses of so many blocks, in so many runs, and for their checksums.
pub(super) const fn fits_header(blocks: usize, runs: usize) -> bool {
    LIST_BYTES_MIN + blocks * 4 + runs * LISTED_BYTES_MAX <= HEADER_ROOM
}

/// Where a run will lie. The segment is held until the run's owner lets go of it.
pub(crate) struct RunPlace {
    allocation: Allocation,
    filling: Filling,
    /// The last record of the log when the place was given out: whatever refers to the run comes later.
    after: RecordSequence,
}

impl RunPlace {
    pub(crate) fn segment(&self) -> SegmentId {
        self.allocation.segment
    }

    /// Slot of the first block.
    pub(crate) fn slot(&self) -> Slot {
        Slot(self.allocation.slot.0 + 1)
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.allocation.blocks - 1
    }
}

impl Engine {
    /// Writes a run outside the log: a header block, then as many of the blocks as the segment has room for.
    /// `addresses`: those of the blocks, which the header lists; none if they have none yet. Answers where
    /// the first block lies and how many were written. Not flushed. The segment is held for the caller, who
    /// lets go of it when something else keeps it.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`]: nothing has changed. After any other, the segment takes no more runs.
    pub(crate) fn write_run(
        &self,
        filling: Filling,
        payload: &Payload,
        addresses: &[Run],
        purpose: Purpose,
    ) -> Result<(SegmentId, Slot, usize)> {
        assert!(addresses.is_empty() || fits_header(payload.blocks(), addresses.len()));
        let place = self.place_run(filling, &payload.sums, purpose)?;
        let (segment, slot, count) = (place.segment(), place.slot(), place.blocks() as usize);
        let fits = Payload {
            buffer: Arc::clone(&payload.buffer),
            first: payload.first,
            sums: payload.sums[..count].to_vec(),
        };
        let outcome = self.fill_run(&place, &fits, &first_blocks(addresses, count as u64));
        if outcome.is_err() {
            self.state().segments.let_go(segment);
        }
        outcome.map(|()| (segment, slot, count))
    }

    /// Sets slots aside for a run of blocks with these checksums, or for fewer where a segment ends.
    ///
    /// # Errors
    /// As for [`Engine::write_run`].
    fn place_run(&self, filling: Filling, sums: &[u32], purpose: Purpose) -> Result<RunPlace> {
        self.set_aside(filling, sums.len(), purpose, |place| {
            // Now, and not when the run is written: its segment may be full by then, and its table on disk.
            let sums = &sums[..place.blocks() as usize];
            self.blocks.sums().set(place.segment(), place.slot(), sums.iter().copied());
        })
    }

    /// Sets slots aside for so many blocks of a group, or for fewer. They may change until the group is
    /// committed: nothing vouches for them before. The table of the segment waits for
    /// [`Engine::let_go_of_staged`].
    ///
    /// # Errors
    /// As for [`Engine::write_run`].
    pub(super) fn place_open_run(&self, blocks: usize) -> Result<RunPlace> {
        let hold = |place: &RunPlace| self.blocks.sums().hold_open(place.segment());
        self.set_aside(Filling::Runs, blocks, Purpose::Data, hold)
    }

    /// Calls `note` with the place while no other thread can fill the segment.
    fn set_aside(
        &self,
        filling: Filling,
        blocks: usize,
        purpose: Purpose,
        note: impl FnOnce(&RunPlace),
    ) -> Result<RunPlace> {
        // Not under the state lock: it may take as long as writing the superblocks does.
        let epoch = self.epoch();
        let mut state = self.state();
        if state.closing && purpose != Purpose::Checkpoint {
            return Err(self.closed_error());
        }
        let allocation = self.allocate(&mut state, filling, 1 + blocks as u32, false, purpose)?;
        state.segments.hold(allocation.segment);
        let place = RunPlace { allocation, filling, after: state.tail.last_sequence() };
        // From here on others fill the segment too, and may commit what they put there: its header comes
        // first.
        if let Err(error) = self.begin_segment(SegmentKind::Run, &place.allocation, epoch) {
            self.abandon(&mut state, filling, place.segment());
            state.segments.let_go(place.segment());
            if let Some((full, _)) = place.allocation.full {
                state.segments.let_go(full);
            }
            return Err(error);
        }
        note(&place);
        Ok(place)
    }

    /// Writes a run to its place. Not flushed.
    ///
    /// # Errors
    /// Those of writing: the segment takes no more runs. It stays held.
    fn fill_run(&self, place: &RunPlace, payload: &Payload, addresses: &[Run]) -> Result<()> {
        assert_eq!(payload.blocks(), place.blocks() as usize);
        self.or_abandon(place, || self.write_run_at(place, payload, addresses))
    }

    /// Writes the blocks of a group to the place of their run, behind an empty block in the place of the
    /// header. An earlier life may have left a header there, by which what lies behind would be read. Not
    /// flushed.
    ///
    /// # Errors
    /// As for [`Engine::fill_run`].
    pub(super) fn fill_open_run(&self, place: &RunPlace, payload: &Payload) -> Result<()> {
        self.or_abandon(place, || {
            self.end_segment(SegmentKind::Run, &place.allocation)?;
            let (empty, content) = (AlignedBuffer::zeroed(BLOCK_BYTES), payload.bytes());
            let parts = [(Kind::RecordHeader, &empty[..]), (Kind::Data, content)];
            self.blocks.files().write(place.segment(), place.allocation.slot, &parts)?;
            self.counters.logged_header_bytes.add(BLOCK_BYTES as u64);
            self.counters.logged_data_bytes.add(content.len() as u64);
            Ok(())
        })
    }

    /// Replaces blocks of a run of an open group, from the block `first` of the run on. Not flushed.
    ///
    /// # Errors
    /// As for [`Engine::fill_run`].
    pub(super) fn refill_open_run(&self, place: &RunPlace, first: u32, blocks: &[&Block]) -> Result<()> {
        assert!(first as usize + blocks.len() <= place.blocks() as usize);
        self.or_abandon(place, || {
            let parts: Vec<_> = blocks.iter().map(|block| (Kind::Data, &block[..])).collect();
            let slot = Slot(place.slot().0 + first);
            self.blocks.files().write_lazily(place.segment(), slot, &parts)?;
            self.counters.logged_data_bytes.add((blocks.len() * BLOCK_BYTES) as u64);
            Ok(())
        })
    }

    /// Writes the header of a run of a group whose blocks are in place and final, and vouches for them. Not
    /// flushed.
    ///
    /// # Errors
    /// As for [`Engine::fill_run`].
    pub(super) fn seal_open_run(&self, place: &RunPlace, sums: &[u32]) -> Result<()> {
        assert_eq!(sums.len(), place.blocks() as usize);
        self.or_abandon(place, || {
            self.blocks.sums().set(place.segment(), place.slot(), sums.iter().copied());
            let header = self.run_header(place, sums, &[]);
            let parts = [(Kind::RecordHeader, &header[..])];
            self.blocks.files().write_lazily(place.segment(), place.allocation.slot, &parts)?;
            self.counters.logged_header_bytes.add(BLOCK_BYTES as u64);
            Ok(())
        })
    }

    fn or_abandon(&self, place: &RunPlace, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let outcome = write();
        if outcome.is_err() {
            self.abandon(&mut self.state(), place.filling, place.segment());
        }
        outcome
    }

    fn run_header(&self, place: &RunPlace, sums: &[u32], list: &[u8]) -> AlignedBuffer {
        let allocation = &place.allocation;
        let header = RecordHeader {
            pool: self.pool,
            epoch: self.epoch(),
            sequence: RecordSequence(0),
            previous: [0; 16],
            // Says where it belongs, so that it is found behind a hole, and not mistaken where it was copied
            // to.
            address: LogAddress(u64::from(allocation.slot.0)),
            // Distinguishes a run from what a record named that lay there before.
            durable: place.after,
            incarnation: allocation.incarnation,
            more: false,
            operations_in_blocks: false,
            run: true,
            operations_length: list.len() as u32,
            operations: 0,
        };
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        header.encode(&mut block, sums, list);
        block
    }

    fn write_run_at(&self, place: &RunPlace, payload: &Payload, addresses: &[Run]) -> Result<()> {
        let allocation = &place.allocation;
        let list = if addresses.is_empty() { Vec::new() } else { encode_list(addresses) };
        self.end_segment(SegmentKind::Run, allocation)?;
        let block = self.run_header(place, &payload.sums, &list);
        let (files, segment, slot) = (self.blocks.files(), allocation.segment, allocation.slot);
        let content = payload.bytes();
        let (headers, data) = if place.filling.is_moved() {
            // In parts, so that what the log writes meanwhile waits for one of them only.
            let (first, rest) = content.split_at(content.len().min(PART_BLOCKS * BLOCK_BYTES));
            files.write(segment, slot, &[(Kind::RecordHeader, &block), (Kind::Data, first)])?;
            for (part, slot) in
                rest.chunks(PART_BLOCKS * BLOCK_BYTES).zip((slot.0 + 1..).step_by(PART_BLOCKS).skip(1))
            {
                files.write(segment, Slot(slot), &[(Kind::Data, part)])?;
            }
            (&self.counters.moved_header_bytes, &self.counters.moved_data_bytes)
        } else {
            files.write(segment, slot, &[(Kind::RecordHeader, &block), (Kind::Data, content)])?;
            (&self.counters.logged_header_bytes, &self.counters.logged_data_bytes)
        };
        headers.add(BLOCK_BYTES as u64);
        data.add(content.len() as u64);
        Ok(())
    }

    /// No more goes to a segment in which writing failed: what lies behind a gap could not be found again.
    pub(crate) fn abandon(&self, state: &mut State, filling: Filling, segment: SegmentId) {
        let cursor = filling.cursor(state);
        if cursor.is_some_and(|cursor| cursor.segment == segment) {
            *cursor = None;
            state.segments.let_go(segment);
        }
    }
}
