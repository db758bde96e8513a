//! What a data segment itself says lies in it: its records, or its runs.

use super::{Sums, Use};
use crate::error::{Error, Result};
use crate::files::SegmentFiles;
use crate::format::record::RecordView;
use crate::format::segment::SegmentKind;
use crate::location::decode_list;
use crate::operation::Operation;
use crate::units::{BLOCK_BYTES, BlockCount, Run, SegmentId, Slot, Stream};

/// Blocks read at once.
const WINDOW_BLOCKS: u32 = 16;

/// What says beside a segment itself what its headers are.
#[derive(Default)]
pub(super) struct Beside {
    /// Copies of headers.
    pub copies: bool,
    /// The checksums of a log segment by slot.
    pub table: Option<Vec<u32>>,
}

impl Sums {
    /// The addresses that the headers of a data segment before `end` give to what lies in it, in the order of
    /// slots. Each stretch comes with its first slot: a record with its header, and runs, as far as headers
    /// list them.
    ///
    /// # Errors
    /// As for [`Sums::survey`].
    pub(crate) fn stretches(
        &self,
        segment: SegmentId,
        end: Slot,
        files: &SegmentFiles,
    ) -> Result<Vec<(u32, Run)>> {
        let mut stretches = Vec::new();
        self.survey(segment, end, files, &mut |slot, view| {
            let (header, blocks) = (&view.header, view.sums.len());
            if !header.run {
                let length = BlockCount(1 + blocks as u64);
                stretches.push((slot.0, Run { stream: Stream::Data, start: header.address, length }));
                return;
            }
            let mut at = slot.0 + 1;
            for run in decode_list(&view.operations, blocks).unwrap_or_default() {
                stretches.push((at, run));
                at += run.length.0 as u32;
            }
        })?;
        Ok(stretches)
    }

    /// Calls `visit` with every record of a log segment before `end`, in the order of the log, or every run
    /// of a segment of runs: those of the use that the segment is in. Where a header is damaged its copy
    /// counts. Without one nothing is known of what lies behind it. A header that is whole and does not
    /// belong there is as bad: what the table of the segment, or the record before, contradicts is not
    /// believed.
    ///
    /// # Errors
    /// Nothing is left that says what the segment is.
    pub(crate) fn survey(
        &self,
        segment: SegmentId,
        end: Slot,
        files: &SegmentFiles,
        visit: &mut dyn FnMut(Slot, &RecordView),
    ) -> Result<Use> {
        let use_ = self.use_of(segment, files)?;
        let is_log = use_.kind == SegmentKind::Log;
        let table = if is_log { self.table_there(segment, use_, files).unwrap_or_default() } else { None };
        let beside = Beside { copies: true, table };
        self.walk((segment, use_), end, files, &beside, visit);
        Ok(use_)
    }

    /// As [`Sums::survey`], with what shall count beside the segment itself. A block that cannot be read is
    /// like one that is damaged: it must not cost what lies behind it. Answers why one could not be read.
    pub(super) fn walk(
        &self,
        (segment, use_): (SegmentId, Use),
        end: Slot,
        files: &SegmentFiles,
        beside: &Beside,
        visit: &mut dyn FnMut(Slot, &RecordView),
    ) -> Option<Error> {
        let limit = files.geometry().end(use_.kind).0;
        let end = limit.min(end.0);
        let is_run = use_.kind == SegmentKind::Run;
        let has_copy = beside.copies && files.copies().has(segment);
        let (mut window, mut bytes) = (0..0, Vec::new());
        let mut copy = [0; BLOCK_BYTES];
        let mut before: Option<RecordView> = None;
        let mut unread = None;
        let (mut slot, mut behind) = (1, 0);
        while slot < end {
            if !window.contains(&slot) {
                window = slot..end.min(slot + WINDOW_BLOCKS);
                bytes.resize(window.len() * BLOCK_BYTES, 0);
                unread = files.read_around(segment, Slot(slot), &mut bytes).or(unread);
            }
            let fits = |block: &[u8]| {
                let record = RecordView::decode(block)?;
                let header = &record.header;
                let own = header.pool == self.pool
                    && header.incarnation == use_.incarnation
                    && header.run == is_run
                    && slot as usize + record.sums.len() < limit as usize;
                let in_order = if is_run {
                    header.address.0 == u64::from(slot)
                } else {
                    before.as_ref().is_none_or(|before| follows(&record, before, slot == behind))
                        && beside.table.as_ref().is_none_or(|table| agrees(&record, slot, table))
                };
                (own && in_order).then_some(record)
            };
            let at = (slot - window.start) as usize * BLOCK_BYTES;
            let record = fits(&bytes[at..at + BLOCK_BYTES]).or_else(|| {
                let copied = has_copy && files.read_copy(segment, Slot(slot), &mut copy);
                copied.then(|| fits(&copy)).flatten()
            });
            let Some(record) = record else {
                // A gap that writing left when it failed, the end, or damage.
                slot += 1;
                continue;
            };
            visit(Slot(slot), &record);
            if !is_run && Operation::switch_of(&record).is_some() {
                break;
            }
            slot += 1 + record.sums.len() as u32;
            behind = slot;
            before = Some(record);
        }
        unread
    }
}

/// Notes the checksums that a header has of the blocks behind it, by slot.
pub(super) fn note_sums(sums: &mut [u32], slot: Slot, record: &RecordView) {
    let first = slot.0 as usize + 1;
    sums[first..first + record.sums.len()].copy_from_slice(&record.sums);
}

/// Whether a table has the same checksums as a record in this slot.
fn agrees(record: &RecordView, slot: u32, table: &[u32]) -> bool {
    let there = table.get(slot as usize + 1..).unwrap_or_default();
    record.sums.iter().zip(there).all(|(sum, there)| sum == there)
}

/// Whether a record may come after another in the log: where it lies directly behind, as the next one. What
/// an earlier life left behind the end of the log does not.
fn follows(record: &RecordView, before: &RecordView, is_behind: bool) -> bool {
    let (header, last) = (&record.header, &before.header);
    let is_next = header.sequence.0 == last.sequence.0 + 1;
    let is_linked = if is_next { header.previous == before.hash } else { !is_behind };
    header.epoch >= last.epoch && header.sequence > last.sequence && is_linked
}
