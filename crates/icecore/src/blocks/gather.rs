//! Checksum tables of segments, from where they stand or from the record headers.

use super::{Sums, Use};
use crate::error::{Error, Result};
use crate::files::SegmentFiles;
use crate::format::record::RecordView;
use crate::format::segment::{SegmentKind, decode_table, decode_table_block};
use crate::units::{BLOCK_BYTES, SegmentId, Slot};

/// Blocks read at once when a table is gathered.
const GATHER_BLOCKS: u32 = 16;

/// What is known of the checksums of a segment.
pub(super) struct Known {
    /// By slot; 0 where none is known.
    pub sums: Vec<u32>,
    /// Why some of what would say more could not be read.
    pub unread: Option<Error>,
}

impl Sums {
    /// The table of a segment that is not being filled: as it stands there, or as record headers have it.
    ///
    /// # Errors
    /// Nothing is left that says what the segment is.
    pub(super) fn read_table(&self, segment: SegmentId, files: &SegmentFiles) -> Result<Known> {
        let use_ = self.use_of(segment, files)?;
        let geometry = files.geometry();
        let mut bytes = vec![0; geometry.table_blocks() as usize * BLOCK_BYTES];
        let end = geometry.end(use_.kind);
        let owner = self.owner(segment, use_.incarnation);
        let decode = |bytes: &[u8]| decode_table(geometry, owner, bytes);
        // A table that is gone with the end of the file is gathered.
        let read = files.read_if_there(segment, end, &mut bytes);
        let own = read.as_ref().ok().and_then(|()| decode(&bytes));
        let found = own.or_else(|| {
            let copied = files.read_copy(segment, end, &mut bytes);
            Some(()).filter(|()| copied).and_then(|()| decode(&bytes))
        });
        Ok(match found {
            Some(sums) => Known { sums, unread: None },
            None => {
                let Known { sums, unread } = self.rebuild(segment, use_, end, files);
                Known { sums, unread: read.err().or(unread) }
            }
        })
    }

    /// One piece of the table of a segment that is not being filled, if it stands there and proves itself. What the segment is for need not be read
    /// for that, where it is known which use it is in.
    pub(super) fn read_piece(
        &self,
        segment: SegmentId,
        piece: u32,
        files: &SegmentFiles,
    ) -> Option<Vec<u32>> {
        let incarnation = match self.known_use(segment) {
            Some(incarnation) => incarnation,
            None => self.use_of(segment, files).ok()?.incarnation,
        };
        let end = files.geometry().end(SegmentKind::Log).0;
        let mut block = [0; BLOCK_BYTES];
        files.read_if_there(segment, Slot(end + piece), &mut block).ok()?;
        decode_table_block(self.owner(segment, incarnation), piece as usize, &block)
    }

    /// Gathers the table from the record headers of a segment that has none. A block that cannot be read is like one that is
    /// damaged: it must not cost what lies behind it.
    pub(super) fn rebuild(&self, segment: SegmentId, use_: Use, end: Slot, files: &SegmentFiles) -> Known {
        let geometry = files.geometry();
        let mut sums = vec![0; geometry.slots() as usize];
        let end = end.min(geometry.end(use_.kind)).0;
        let is_run = use_.kind == SegmentKind::Run;
        let has_copy = files.copies().has(segment);
        let mut block = [0; BLOCK_BYTES];
        let mut window = vec![0; GATHER_BLOCKS as usize * BLOCK_BYTES];
        let mut first = None;
        let mut unread = None;
        let mut slot = 1;
        while slot < end {
            let begin = match first {
                Some(begin) if slot < begin + GATHER_BLOCKS => begin,
                _ => {
                    let blocks = GATHER_BLOCKS.min(geometry.slots() - slot) as usize;
                    let window = &mut window[..blocks * BLOCK_BYTES];
                    unread = files.read_around(segment, Slot(slot), window).or(unread);
                    *first.insert(slot)
                }
            };
            let at = (slot - begin) as usize * BLOCK_BYTES;
            let decode = |block: &[u8]| {
                RecordView::decode(block).filter(|record| {
                    let header = &record.header;
                    let own = !is_run || header.address.0 == u64::from(slot);
                    header.pool == self.pool
                        && header.incarnation == use_.incarnation
                        && header.run == is_run
                        && own
                })
            };
            let record = decode(&window[at..at + BLOCK_BYTES]).or_else(|| {
                let copied = has_copy && files.read_copy(segment, Slot(slot), &mut block);
                Some(()).filter(|()| copied).and_then(|()| decode(&block))
            });
            let Some(record) = record else {
                // A gap that writing left when it failed, the end, or damage that must not cost what lies behind it.
                slot += 1;
                continue;
            };
            for (index, sum) in record.sums.iter().enumerate() {
                if let Some(entry) = sums.get_mut(slot as usize + 1 + index) {
                    *entry = *sum;
                }
            }
            slot += 1 + record.sums.len() as u32;
        }
        Known { sums, unread }
    }
}
