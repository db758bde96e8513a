//! What a data segment itself says lies in it: its records, or its runs.

use super::inspect::Window;
use super::{Sums, Use};
use crate::error::Result;
use crate::files::SegmentFiles;
use crate::format::record::RecordView;
use crate::format::segment::{SegmentKind, decode_table};
use crate::location::decode_list;
use crate::operation::Operation;
use crate::units::{BLOCK_BYTES, BlockCount, Run, SegmentId, Slot, Stream};

impl Sums {
    /// The addresses that the headers of a data segment before `end` give to what lies in it, in the order of slots, each stretch with its first slot:
    /// a record with its header, and runs, as far as they list them.
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

    /// Calls `visit` with every record of a log segment before `end`, in the order of the log, or every run of a segment of runs: those
    /// of the use that the segment is in. Where a header is damaged its copy speaks for it, or else nobody for what lies behind it. A header that
    /// is whole and does not belong there is as bad: what the table of the segment, or the record before, contradicts is not believed.
    ///
    /// # Errors
    /// Reading failed; or nothing is left that says what the segment is.
    pub(crate) fn survey(
        &self,
        segment: SegmentId,
        end: Slot,
        files: &SegmentFiles,
        visit: &mut dyn FnMut(Slot, &RecordView),
    ) -> Result<Use> {
        let use_ = self.use_of(segment, files)?;
        let end = files.geometry().end(use_.kind).min(end).0;
        let is_run = use_.kind == SegmentKind::Run;
        let has_copy = files.copies().has(segment);
        let table = if is_run { None } else { self.table_on_disk(use_, segment, files) };
        let mut window = Window::of(files, segment);
        let mut copy = [0; BLOCK_BYTES];
        let mut before: Option<RecordView> = None;
        let (mut slot, mut behind) = (1, 0);
        while slot < end {
            let fits = |block: &[u8]| {
                let record = RecordView::decode(block)?;
                let header = &record.header;
                let own = header.pool == self.pool
                    && header.incarnation == use_.incarnation
                    && header.run == is_run
                    && slot as usize + record.sums.len() < files.geometry().end(use_.kind).0 as usize;
                let in_order = if is_run {
                    header.address.0 == u64::from(slot)
                } else {
                    before.as_ref().is_none_or(|before| follows(&record, before, slot == behind))
                        && table.as_ref().is_none_or(|table| agrees(&record, slot, table))
                };
                (own && in_order).then_some(record)
            };
            // A block that cannot be read is like one that is damaged.
            let record = window.block(slot).ok().and_then(fits).or_else(|| {
                let copied = has_copy && files.read_copy(segment, Slot(slot), &mut copy);
                Some(()).filter(|()| copied).and_then(|()| fits(&copy))
            });
            let Some(record) = record else {
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
        Ok(use_)
    }

    /// The checksums of a log segment by slot, if its table was written and can be read.
    fn table_on_disk(&self, use_: Use, segment: SegmentId, files: &SegmentFiles) -> Option<Vec<u32>> {
        let geometry = files.geometry();
        let mut bytes = vec![0; geometry.table_blocks() as usize * BLOCK_BYTES];
        files.read(segment, geometry.end(use_.kind), &mut bytes).ok()?;
        decode_table(geometry, self.owner(segment, use_.incarnation), &bytes)
    }
}

/// Whether a table has the same checksums as a record in this slot.
fn agrees(record: &RecordView, slot: u32, table: &[u32]) -> bool {
    let there = table.get(slot as usize + 1..).unwrap_or_default();
    record.sums.iter().zip(there).all(|(sum, there)| sum == there)
}

/// Whether a record may come after another in the log: where it lies directly behind, as the next one. What an earlier life left behind the end of
/// the log does not.
fn follows(record: &RecordView, before: &RecordView, is_behind: bool) -> bool {
    let (header, last) = (&record.header, &before.header);
    let is_next = header.sequence.0 == last.sequence.0 + 1;
    let is_linked = if is_next { header.previous == before.hash } else { !is_behind };
    header.epoch >= last.epoch && header.sequence > last.sequence && is_linked
}
