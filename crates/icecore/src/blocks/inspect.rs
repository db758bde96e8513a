//! What vouches for the blocks of a data segment, looked at for its own sake: segment header, record headers,
//! checksum table. The others can make up for each, so that damage to one goes unnoticed until the next.

use super::survey::{Beside, note_sums};
use super::{Sums, Use, joined};
use crate::error::Result;
use crate::files::SegmentFiles;
use crate::format::BLOCK_CRC_AT;
use crate::format::record::RecordView;
use crate::format::segment::{
    SegmentHeader, SegmentKind, TABLE_SUMS, TableOwner, decode_table, encode_table,
};
use crate::operation::Operation;
use crate::units::{BLOCK_BYTES, SegmentId, Slot};
use std::ops::Range;

/// What flaws are called.
const HEADER: &str = "segment header";
const RUN_HEADER: &str = "header of a run";
const TABLE: &str = "checksum table";

/// Something in a segment that is not what was written.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Flaw {
    /// Where.
    pub slot: Slot,
    /// What it should be.
    pub what: &'static str,
    /// Slots of the blocks that it vouches for.
    pub behind: std::ops::Range<u32>,
    /// Whether something else on disk vouches for them, too.
    pub spare: bool,
}

impl Flaw {
    /// A segment header that is not what was written.
    pub(crate) const fn of_header() -> Self {
        Self { slot: Slot(0), what: HEADER, behind: 0..0, spare: true }
    }

    /// Whether it is part of a checksum table.
    pub(super) fn is_of_table(&self) -> bool {
        self.what == TABLE
    }

    /// Whether it is the header of a run. What was set aside for a run need never be written.
    pub(crate) fn is_of_run(&self) -> bool {
        self.what == RUN_HEADER
    }

    /// A header, in the first of these slots.
    fn header(what: &'static str, slots: Range<u32>, spare: bool) -> Self {
        Self { slot: Slot(slots.start), what, behind: slots.start + 1..slots.end, spare }
    }
}

impl Sums {
    /// Reads everything in a data segment that is not data, past all caches, and answers what is not as it
    /// should be. Everything before `written` is on disk. `is_full`: a log segment that takes no more ends
    /// with a record that says where the log goes on. One that is cut short has no table any more, and is
    /// looked at up to there.
    ///
    /// # Errors
    /// Reading failed; or nothing is left that says what the segment is.
    pub(crate) fn inspect(
        &self,
        segment: SegmentId,
        written: Slot,
        is_full: bool,
        files: &SegmentFiles,
    ) -> Result<Vec<Flaw>> {
        let geometry = files.geometry();
        let use_ = self.use_of(segment, files)?;
        let cut = files.cut(segment);
        // That record may be gone with the end of the file.
        let (written, is_full) = (cut.map_or(written, |cut| written.min(cut)), is_full && cut.is_none());
        let mut flaws = Vec::new();
        let mut block = vec![0; BLOCK_BYTES];
        files.read(segment, Slot(0), &mut block)?;
        if SegmentHeader::of(self.pool, segment, &block).is_none() {
            flaws.push(Flaw::of_header());
        }
        // Before the disk is looked at: what is added meanwhile may be in memory only.
        let filling = self.tables.filling(segment).map(|table| joined(&table));
        let (sums, gaps) = self.gather((segment, use_), (written, is_full), files)?;
        let table_at = geometry.end(use_.kind);
        let mut bytes = vec![0; geometry.table_blocks() as usize * BLOCK_BYTES];
        if cut.is_none() {
            files.read(segment, table_at, &mut bytes)?;
        }
        let owner = self.owner(segment, use_.incarnation);
        let table = decode_table(geometry, owner, &bytes).filter(|_| filling.is_none());
        if table.is_none() && filling.is_none() && was_table(&bytes, owner) {
            let rebuilt = encode_table(geometry, owner, &sums);
            let differs =
                rebuilt.chunks(BLOCK_BYTES).zip(bytes.chunks(BLOCK_BYTES)).position(|(a, b)| a != b);
            let at = table_at.0 + differs.unwrap_or(0) as u32;
            flaws.push(Flaw { slot: Slot(at), what: TABLE, behind: 0..0, spare: true });
        }
        let kept = table.is_some();
        if use_.kind == SegmentKind::Log {
            flaws.extend(gaps.into_iter().map(|gap| Flaw::header("record header", gap, kept)));
        } else {
            let known = table.or(filling).unwrap_or_else(|| self.remembered((segment, use_), written, files));
            flaws.extend(unvouched(&known, &sums, written, kept));
        }
        Ok(flaws)
    }

    /// What the headers of a segment say without its copy and its table: the checksums by slot, and the slots
    /// for which no header speaks.
    fn gather(
        &self,
        (segment, use_): (SegmentId, Use),
        (written, is_full): (Slot, bool),
        files: &SegmentFiles,
    ) -> Result<(Vec<u32>, Vec<Range<u32>>)> {
        let mut sums = vec![0; files.geometry().slots() as usize];
        let mut gaps = Vec::new();
        let (mut behind, mut has_ended) = (1, false);
        let mut visit = |slot: Slot, record: &RecordView| {
            if slot.0 > behind {
                gaps.push(behind..slot.0);
            }
            note_sums(&mut sums, slot, record);
            behind = slot.0 + 1 + record.sums.len() as u32;
            has_ended = use_.kind == SegmentKind::Log && Operation::switch_of(record).is_some();
        };
        if let Some(error) = self.walk((segment, use_), written, files, &Beside::default(), &mut visit) {
            return Err(error);
        }
        let table_at = files.geometry().end(use_.kind);
        let end = table_at.min(written).0;
        if !has_ended && behind < if is_full { table_at.0 } else { end } {
            gaps.push(behind..end);
        }
        Ok((sums, gaps))
    }

    /// Checksums of a segment that is not being filled and has no table, as far as memory and the copies of
    /// its headers have them: 0 where there is none. Memory has what was read before something happened.
    fn remembered(&self, (segment, use_): (SegmentId, Use), written: Slot, files: &SegmentFiles) -> Vec<u32> {
        let mut known = vec![0; files.geometry().slots() as usize];
        for (piece, sums) in (0..).zip(known.chunks_mut(TABLE_SUMS)) {
            if let Some(cached) = self.tables.finished(segment, piece) {
                sums.iter_mut().zip(cached.read().iter()).for_each(|(sum, cached)| *sum = *cached);
            }
        }
        let beside = Beside { copies: true, table: None };
        let mut visit = |slot: Slot, record: &RecordView| note_sums(&mut known, slot, record);
        // What cannot be read is like what is damaged: the copy speaks for it.
        let _ = self.walk((segment, use_), written, files, &beside, &mut visit);
        known
    }
}

/// Blocks that have a checksum and no header in front of them that says so.
fn unvouched(known: &[u32], gathered: &[u32], written: Slot, kept: bool) -> Vec<Flaw> {
    let mut flaws: Vec<Flaw> = Vec::new();
    let mut before = false;
    for slot in 1..written.0.min(known.len() as u32) {
        let missing = known[slot as usize] != 0 && gathered[slot as usize] == 0;
        match flaws.last_mut().filter(|_| before) {
            Some(flaw) if missing => flaw.behind.end = slot + 1,
            None if missing => {
                flaws.push(Flaw::header(RUN_HEADER, slot - 1..slot + 1, kept));
            }
            _ => {}
        }
        before = missing;
    }
    flaws
}

/// Whether these bytes, which are no table of this owner, were one once. Then a block of them says so, or
/// does again with the right owner in its place. A table of a former use is whole, and of another owner.
fn was_table(bytes: &[u8], owner: TableOwner) -> bool {
    bytes.chunks(BLOCK_BYTES).enumerate().any(|(index, block)| {
        let mut mended = block.to_vec();
        owner.seal(index, &mut mended);
        let is_sealed_so = mended[BLOCK_CRC_AT..] == block[BLOCK_CRC_AT..];
        owner.is_named(index, block) || is_sealed_so
    })
}
