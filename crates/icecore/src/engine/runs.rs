//! Runs outside the log: what groups spill, merged blocks that a checkpoint writes, and data that collection moves.

use super::space::{Allocation, Filling};
use super::{Engine, Purpose};
use crate::error::Result;
use crate::format::record::RecordHeader;
use crate::format::segment::SegmentKind;
use crate::log::tail::Payload;
use crate::state::State;
use crate::storage::{AlignedBuffer, Kind};
use crate::units::{BLOCK_BYTES, LogAddress, RecordSequence, SegmentId, Slot};

impl Engine {
    /// Writes a run outside the log: a header block, then as many of the blocks as the segment has room for.
    /// Answers where the first block lies and how many were written. Not flushed. The segment is held for the
    /// caller, who lets go of it when something else keeps it.
    ///
    /// # Errors
    /// [`crate::Error::NoSpace`]: nothing has changed. After any other, the segment takes no more runs.
    pub(crate) fn write_run(&self, payload: &Payload, purpose: Purpose) -> Result<(SegmentId, Slot, usize)> {
        self.write_run_in(Filling::Runs, payload, purpose)
    }

    /// As [`Engine::write_run`], in one of several segments that are being filled with runs.
    pub(crate) fn write_run_in(
        &self,
        filling: Filling,
        payload: &Payload,
        purpose: Purpose,
    ) -> Result<(SegmentId, Slot, usize)> {
        let wanted = 1 + payload.blocks() as u32;
        // Not under the state lock: it may take as long as writing the superblocks does.
        let epoch = self.epoch();
        let mut state = self.state();
        if state.closing && purpose != Purpose::Checkpoint {
            return Err(self.closed_error());
        }
        let allocation = self.allocate(&mut state, filling, wanted, false, purpose)?;
        let count = allocation.blocks as usize - 1;
        let sums = &payload.sums[..count];
        self.blocks.sums().set(allocation.segment, Slot(allocation.slot.0 + 1), sums.iter().copied());
        state.segments.hold(allocation.segment);
        // From here on others fill the segment too, and may commit what they put there: its header comes first.
        let begun = self.begin_segment(SegmentKind::Run, &allocation, epoch);
        drop(state);
        let outcome = begun.and_then(|()| self.write_run_at(filling, &allocation, sums, payload));
        if outcome.is_err() {
            let mut state = self.state();
            self.abandon(&mut state, filling, allocation.segment);
            state.segments.let_go(allocation.segment);
        }
        outcome.map(|()| (allocation.segment, Slot(allocation.slot.0 + 1), count))
    }

    fn write_run_at(
        &self,
        filling: Filling,
        allocation: &Allocation,
        sums: &[u32],
        payload: &Payload,
    ) -> Result<()> {
        self.end_segment(SegmentKind::Run, allocation)?;
        let header = RecordHeader {
            pool: self.pool,
            epoch: self.epoch(),
            sequence: RecordSequence(0),
            previous: [0; 16],
            // Says where it belongs, so that it is found behind a hole, and not mistaken where it was copied to.
            address: LogAddress(u64::from(allocation.slot.0)),
            durable: RecordSequence(0),
            incarnation: allocation.incarnation,
            more: false,
            operations_in_blocks: false,
            run: true,
            operations_length: 0,
            operations: 0,
        };
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        header.encode(&mut block, sums, &[]);
        let content = &payload.bytes()[..sums.len() * BLOCK_BYTES];
        let parts = [(Kind::RecordHeader, &*block), (Kind::Data, content)];
        self.blocks.files().write(allocation.segment, allocation.slot, &parts)?;
        let (headers, data) = if filling.is_moved() {
            (&self.counters.moved_headers, &self.counters.moved_data)
        } else {
            (&self.counters.logged_headers, &self.counters.logged_data)
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
