//! The end of a replay: what was found is made durable. Before that, what is damaged in it is taken from
//! copies, which go.

use super::recovery::Replay;
use crate::copies::Mended;
use crate::error::{Error, Result};
use crate::format::record::RecordView;
use crate::format::segment::{SegmentHeader, SegmentKind, decode_table_block, file_name};
use crate::format::superblock::Superblock;
use crate::storage::{AlignedBuffer, Kind};
use crate::units::{BLOCK_BYTES, SegmentId, Slot};

impl Replay<'_> {
    /// Makes what was found durable, and mends headers of segments that a crash tore off their records.
    pub(super) fn settle(&mut self, superblock: &Superblock) -> Result<()> {
        let end = self.end.0.segment;
        let files = self.env.blocks.files();
        if !superblock.clean {
            self.heal_from_copies();
            files.sync_healed()?;
            files.copies().doubt(self.touched.keys().chain(&self.staged).copied());
        }
        for (segment, incarnation) in std::mem::take(&mut self.touched) {
            if self.replayed > 0 || segment == end {
                self.mend_header(segment, incarnation, superblock)?;
                if segment == end {
                    self.wipe_table(segment, incarnation)?;
                }
                files.sync(segment)?;
            }
        }
        Ok(())
    }

    /// Takes from their copies what is damaged in segments that the log has written to since the checkpoint.
    /// The copies were not flushed since, and are given up.
    fn heal_from_copies(&self) {
        let blocks = self.env.blocks;
        let geometry = blocks.files().geometry();
        let end = self.end.0;
        for segment in self.touched.keys() {
            let is_last = *segment == end.segment;
            let to = if is_last { end.slot } else { geometry.end(SegmentKind::Log) };
            blocks.heal_all(*segment, to, !is_last);
        }
        for segment in &self.staged {
            blocks.heal_all(*segment, geometry.end(SegmentKind::Run), false);
            // The log does not say which use it is in; from here on the ledger does.
            if let Ok(use_) = blocks.sums().use_of(*segment, blocks.files()) {
                blocks.sums().note_use(*segment, use_.incarnation);
            }
        }
    }

    /// The log may have gone on in another segment, and what it wrote there be torn off. Then it goes on
    /// where it was before that, in a segment that has its table already. A process that only reads would
    /// believe what that says of slots that hold something else by then.
    fn wipe_table(&self, segment: SegmentId, incarnation: u64) -> Result<()> {
        let files = self.env.blocks.files();
        let geometry = files.geometry();
        let at = geometry.end(SegmentKind::Log);
        let mut table = AlignedBuffer::zeroed(geometry.table_blocks() as usize * BLOCK_BYTES);
        let owner = self.env.blocks.sums().owner(segment, incarnation);
        // One block of it is believed without the others.
        let is_table = |bytes: &[u8]| {
            let mut blocks = bytes.chunks(BLOCK_BYTES).enumerate();
            blocks.any(|(index, block)| decode_table_block(owner, index, block).is_some())
        };
        let is_there = files.read(segment, at, &mut table).is_ok() && is_table(&table);
        if is_there || files.read_copy(segment, at, &mut table) && is_table(&table) {
            table.fill(0);
            files.write(segment, at, &[(Kind::Frame, &table)])?;
        }
        Ok(())
    }

    /// Checksums of a log segment without a table are gathered under its header's incarnation: a header of an
    /// earlier use, left there by a crash that the records survived, is as bad as none.
    fn mend_header(&self, segment: SegmentId, incarnation: u64, superblock: &Superblock) -> Result<()> {
        let files = self.env.blocks.files();
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        files.read(segment, Slot(0), &mut block)?;
        let (pool, kind) = (superblock.pool, SegmentKind::Log);
        let valid = SegmentHeader::of(pool, segment, &block)
            .is_some_and(|header| (header.kind, header.incarnation) == (kind, incarnation));
        if valid && superblock.clean {
            return Ok(());
        }
        if superblock.clean {
            // No crash tore it off.
            let why = "the segment's header is not what was written; it is made again from the log";
            let why = Error::damaged(format!("{} at offset 0", file_name(segment)), why);
            files.incidents().note_harmless(&why);
            files.copies().mended(why.to_string(), Mended::Header, true);
        }
        if valid {
            // As for records: it may be in the cache of the operating system alone.
            return files.write(segment, Slot(0), &[(Kind::Frame, &block)]);
        }
        let mut first = AlignedBuffer::zeroed(BLOCK_BYTES);
        files.read(segment, Slot(1), &mut first)?;
        let is_end = segment == self.end.0.segment && self.end.0.slot == Slot(1);
        let view = RecordView::decode(&first).filter(|_| !is_end);
        let (first_address, first_sequence) = view
            .map_or((self.end.0.address, self.end.0.sequence), |view| {
                (view.header.address, view.header.sequence)
            });
        let epoch = superblock.epoch();
        let header = SegmentHeader { pool, kind, segment, incarnation, first_address, first_sequence, epoch };
        files.write_header(&header)
    }
}
