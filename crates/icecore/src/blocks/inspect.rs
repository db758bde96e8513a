//! What vouches for the blocks of a data segment, looked at for its own sake: segment header, record headers,
//! checksum table. Each can be made up for by the others, so that damage to one goes unnoticed until the next.

use super::{Sums, Use, joined};
use crate::error::Result;
use crate::files::SegmentFiles;
use crate::format::BLOCK_CRC_AT;
use crate::format::record::RecordView;
use crate::format::segment::{
    Geometry, SegmentHeader, SegmentKind, TABLE_SUMS, TableOwner, decode_table, encode_table,
};
use crate::operation::Operation;
use crate::units::{BLOCK_BYTES, RecordSequence, RecoveryEpoch, SegmentId, Slot};

/// What flaws are called.
const HEADER: &str = "segment header";
const RUN_HEADER: &str = "header of a run";
const TABLE: &str = "checksum table";

/// Blocks read at once.
const WINDOW_BLOCKS: u32 = 16;

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

    fn header(slot: u32, what: &'static str, behind: std::ops::Range<u32>) -> Self {
        Self { slot: Slot(slot), what, behind, spare: false }
    }
}

/// What the record headers of a segment say.
struct Gathered {
    sums: Vec<u32>,
    flaws: Vec<Flaw>,
}

impl Sums {
    /// Reads everything in a data segment that is not data, past all caches, and answers what is not as it should be.
    /// Everything before `written` is on disk. `is_full`: a log segment that takes no more ends with a record that
    /// says where the log goes on. One that is cut short has no table any more, and is looked at up to there.
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
        let header = SegmentHeader::decode(&block);
        if header.is_none_or(|header| header.pool != self.pool || header.segment != segment) {
            flaws.push(Flaw::of_header());
        }
        // Before the disk is looked at: what is added meanwhile may be in memory only.
        let filling = self.tables.filling(segment).map(|table| joined(&table));
        let gathered = self.gather(segment, use_, (written, is_full), files)?;
        let mut bytes = vec![0; geometry.table_blocks() as usize * BLOCK_BYTES];
        let table_at = geometry.end(use_.kind);
        if cut.is_none() {
            files.read(segment, table_at, &mut bytes)?;
        }
        let owner = self.owner(segment, use_.incarnation);
        let table = decode_table(geometry, owner, &bytes).filter(|_| filling.is_none());
        if table.is_none() && filling.is_none() && was_table(&bytes, owner) {
            let rebuilt = encode_table(geometry, owner, &gathered.sums);
            let differs =
                rebuilt.chunks(BLOCK_BYTES).zip(bytes.chunks(BLOCK_BYTES)).position(|(a, b)| a != b);
            let at = table_at.0 + differs.unwrap_or(0) as u32;
            flaws.push(Flaw { slot: Slot(at), what: TABLE, behind: 0..0, spare: true });
        }
        let kept = table.is_some();
        flaws.extend(gathered.flaws.into_iter().map(|flaw| Flaw { spare: kept, ..flaw }));
        // Also what was read before something happened to it.
        if use_.kind == SegmentKind::Run {
            let known = table.or(filling).unwrap_or_else(|| self.cached(segment, geometry));
            flaws.extend(unvouched(&known, &gathered.sums, written, kept));
        }
        Ok(flaws)
    }

    /// Checksums of a segment that is not being filled, as far as memory has them: 0 where it has none.
    fn cached(&self, segment: SegmentId, geometry: Geometry) -> Vec<u32> {
        let mut sums = vec![0; geometry.slots() as usize];
        for (piece, sums) in (0..).zip(sums.chunks_mut(TABLE_SUMS)) {
            if let Some(cached) = self.tables.finished(segment, piece) {
                sums.iter_mut().zip(cached.read().iter()).for_each(|(sum, cached)| *sum = *cached);
            }
        }
        sums
    }

    fn gather(
        &self,
        segment: SegmentId,
        use_: Use,
        (written, is_full): (Slot, bool),
        files: &SegmentFiles,
    ) -> Result<Gathered> {
        let geometry = files.geometry();
        let end = geometry.end(use_.kind).min(written).0;
        let is_run = use_.kind == SegmentKind::Run;
        let mut found = Gathered { sums: vec![0; geometry.slots() as usize], flaws: Vec::new() };
        let mut window = Window::of(files, segment);
        let mut slot = 1;
        let mut gap = None;
        let (mut last, mut behind) = (None, 0);
        while slot < end {
            let record = RecordView::decode(window.block(slot)?).filter(|record| {
                let header = &record.header;
                let fits = if is_run {
                    header.address.0 == u64::from(slot)
                } else {
                    // What lies directly behind a record is the next one.
                    last.is_none_or(|last: (RecoveryEpoch, RecordSequence)| {
                        (header.epoch, header.sequence) > last
                            && (slot != behind || header.sequence.0 == last.1.0 + 1)
                    })
                };
                header.pool == self.pool
                    && header.incarnation == use_.incarnation
                    && header.run == is_run
                    && fits
            });
            let Some(record) = record else {
                if !is_run {
                    gap.get_or_insert(slot);
                }
                slot += 1;
                continue;
            };
            if let Some(gap) = gap.take() {
                found.flaws.push(Flaw::header(gap, "record header", gap + 1..slot));
            }
            last = Some((record.header.epoch, record.header.sequence));
            let length = 1 + record.sums.len() as u32;
            for (index, sum) in record.sums.iter().enumerate() {
                if let Some(entry) = found.sums.get_mut(slot as usize + 1 + index) {
                    *entry = *sum;
                }
            }
            if Operation::switch_of(&record).is_some() {
                return Ok(found);
            }
            slot += length;
            behind = slot;
        }
        let open = if is_full { Some(gap.unwrap_or(slot)) } else { gap.filter(|gap| *gap < end) };
        if let Some(gap) = open.filter(|gap| !is_run && *gap < geometry.end(use_.kind).0) {
            found.flaws.push(Flaw::header(gap, "record header", gap + 1..end));
        }
        Ok(found)
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
                let flaw = Flaw::header(slot - 1, RUN_HEADER, slot..slot + 1);
                flaws.push(Flaw { spare: kept, ..flaw });
            }
            _ => {}
        }
        before = missing;
    }
    flaws
}

/// Whether these bytes, which are no table of this owner, were one once: any block of them says so, or does again with the right owner
/// in its place. That of a former use is whole, and of another owner.
fn was_table(bytes: &[u8], owner: TableOwner) -> bool {
    bytes.chunks(BLOCK_BYTES).enumerate().any(|(index, block)| {
        let mut mended = block.to_vec();
        owner.seal(index, &mut mended);
        let is_sealed_so = mended[BLOCK_CRC_AT..] == block[BLOCK_CRC_AT..];
        owner.is_named(index, block) || is_sealed_so
    })
}

/// Part of a segment, read at once.
pub(super) struct Window<'a> {
    files: &'a SegmentFiles,
    segment: SegmentId,
    /// What is left of it ends there: one read that goes on behind that gives nothing at all.
    end: u32,
    first: u32,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    pub(super) fn of(files: &'a SegmentFiles, segment: SegmentId) -> Self {
        let end = files.cut(segment).map_or(files.geometry().slots(), |cut| cut.0);
        Self { files, segment, end, first: 0, bytes: Vec::new() }
    }

    pub(super) fn block(&mut self, slot: u32) -> Result<&[u8]> {
        let inside = slot >= self.first && ((slot - self.first) as usize) < self.bytes.len() / BLOCK_BYTES;
        if !inside {
            let blocks = self.end.saturating_sub(slot).clamp(1, WINDOW_BLOCKS);
            self.bytes.resize(blocks as usize * BLOCK_BYTES, 0);
            self.first = slot;
            if let Err(error) = self.files.read(self.segment, Slot(slot), &mut self.bytes) {
                self.bytes.clear();
                return Err(error);
            }
        }
        let at = (slot - self.first) as usize * BLOCK_BYTES;
        Ok(&self.bytes[at..at + BLOCK_BYTES])
    }
}
