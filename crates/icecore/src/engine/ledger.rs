//! How what a checkpoint says becomes blobs of the ledger. There is one as a rule. If that would be too long,
//! there are several, each of which builds on the one before. A picture of everything is put together from
//! the blobs that there are and what is to be said now, without a look at the state.

use super::checkpoint::{
    Base, CheckpointLine, ForsakenSection, PlacedSection, PositionSection, RootsSection, UsesSection,
};
use super::load::Gathered;
use super::sets::Bases;
use super::space::Filling;
use super::{Engine, Purpose};
use crate::catalogue::CatalogueChanges;
use crate::error::{Error, Result};
use crate::format::crc32c;
use crate::format::ledger::{Blob, SectionTag};
use crate::format::segment::SegmentKind;
use crate::format::superblock::LedgerPointer;
use crate::liveness::HistoryChanges;
use crate::location::{Consolidated, MapChanges};
use crate::storage::{AlignedBuffer, Kind};
use crate::units::{BLOCK_BYTES, PoolId};
use serde::Serialize;

/// Most blocks of a blob, where segments are large. In tests a ledger of some length is in parts.
const BLOB_BLOCKS_MAX: u32 = if cfg!(test) { 24 } else { 2048 };
/// Bytes that a run of a set or of the map takes at most, beside what its section begins with.
pub(super) const RUN_BYTES_MAX: usize = 24;
/// Bytes that a row is taken to have.
const ROW_BYTES: usize = 1024;

/// What a checkpoint says.
pub(super) struct Said {
    pub position: PositionSection,
    pub catalogue: CatalogueChanges,
    pub history: HistoryChanges,
    pub location: MapChanges,
    pub roots: RootsSection,
    pub placed: PlacedSection,
    pub forsaken: ForsakenSection,
    pub uses: UsesSection,
}

/// What a checkpoint says is either.
pub(super) enum Picture {
    /// What changed.
    Changes,
    /// Everything; with the chunks that the map and the sets are in now, if they are others.
    Everything(Option<Box<Consolidated>>, Option<Bases>),
}

impl Said {
    /// What has to be said again even where only moves are said.
    pub(super) fn as_base(&self) -> Base {
        Base {
            position: self.position.clone(),
            catalogue: self.catalogue.nothing_more(),
            version: self.history.next,
        }
    }

    pub(super) fn encode(&self) -> Result<Vec<(SectionTag, Vec<u8>)>> {
        let mut sections = vec![
            (SectionTag::Position, encode(&self.position)?),
            (SectionTag::Catalogue, self.catalogue.encode()),
            (SectionTag::History, self.history.encode()),
            (SectionTag::Location, self.location.encode()),
            (SectionTag::Placed, encode(&self.placed)?),
            (SectionTag::Roots, encode(&self.roots)?),
        ];
        if !self.forsaken.is_empty() {
            sections.push((SectionTag::Forsaken, encode(&self.forsaken)?));
        }
        if !self.uses.uses.is_empty() {
            sections.push((SectionTag::Uses, encode(&self.uses)?));
        }
        Ok(sections)
    }

    /// The same in parts, to be applied in order, of which each has sections of about so many bytes.
    pub(super) fn split(self, bytes: usize) -> Vec<Self> {
        let base = self.as_base();
        let mut catalogue = self.catalogue.split((bytes / ROW_BYTES).max(1)).into_iter();
        let mut history = self.history.split((bytes / RUN_BYTES_MAX).max(1)).into_iter();
        let mut location = self.location.split((bytes / RUN_BYTES_MAX).max(1)).into_iter();
        let mut roots = self.roots.roots.chunks((bytes / RUN_BYTES_MAX).max(1)).map(<[_]>::to_vec);
        let mut uses = self.uses.uses.chunks((bytes / RUN_BYTES_MAX).max(1)).map(<[_]>::to_vec);
        let mut parts = Vec::new();
        loop {
            let now = (catalogue.next(), history.next(), location.next(), roots.next(), uses.next());
            if let (None, None, None, None, None) = now {
                break;
            }
            let mut part = base.say(now.2.unwrap_or_default());
            part.catalogue = now.0.unwrap_or(part.catalogue);
            part.history = now.1.unwrap_or(part.history);
            part.roots = RootsSection { roots: now.3.unwrap_or_default() };
            part.uses = UsesSection { uses: now.4.unwrap_or_default() };
            parts.push(part);
        }
        // Only that of the newest blob counts.
        let last = parts.last_mut().expect("every section has one part at least");
        (last.placed, last.forsaken) = (self.placed, self.forsaken);
        parts
    }
}

impl Base {
    /// Says that the location map changed, and nothing else.
    pub(super) fn say(&self, location: MapChanges) -> Said {
        Said {
            position: self.position.clone(),
            catalogue: self.catalogue.nothing_more(),
            history: HistoryChanges { next: self.version, ..HistoryChanges::default() },
            location,
            roots: RootsSection::default(),
            placed: PlacedSection::default(),
            forsaken: ForsakenSection::default(),
            uses: UsesSection::default(),
        }
    }
}

fn encode(section: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(section).map_err(|error| Error::Invalid(format!("cannot encode a ledger: {error}")))
}

/// What the blobs of one checkpoint have in common.
pub(super) struct BlobFrame {
    pub pool: PoolId,
    /// Slots of a segment.
    pub slots: u32,
    /// What they build on; none of a picture of everything.
    pub base: Option<LedgerPointer>,
    pub checkpoint: u64,
    /// The last number of a use that had been given out when it was frozen.
    pub taken: u64,
}

impl BlobFrame {
    /// Writes what a checkpoint says with `write`, in several blobs if it is long, and notes in `written`
    /// where they are.
    ///
    /// # Errors
    /// Those of `write`: what was written before counts for nothing.
    pub(super) fn write(
        &self,
        said: Said,
        write: &mut dyn FnMut(&[u8]) -> Result<LedgerPointer>,
        written: &mut Vec<LedgerPointer>,
    ) -> Result<()> {
        let Self { base, checkpoint, taken, .. } = *self;
        let bytes_max = (self.slots / 2).min(BLOB_BLOCKS_MAX) as usize * BLOCK_BYTES;
        let bytes = Blob { base, checkpoint, taken, sections: said.encode()? }.encode(self.pool);
        if bytes.len() <= bytes_max {
            written.push(write(&bytes)?);
            return Ok(());
        }
        drop(bytes);
        let parts = said.split(bytes_max / 4);
        let last = parts.len() - 1;
        for (index, part) in parts.into_iter().enumerate() {
            let base = written.last().copied().or(base);
            // Of several the last one says it: none of the others is a checkpoint.
            let taken = if index == last { taken } else { 0 };
            let blob = Blob { base, checkpoint, taken, sections: part.encode()? };
            written.push(write(&blob.encode(self.pool))?);
        }
        Ok(())
    }
}

impl Engine {
    /// Joins what the ledger says so far with what is to be said now. Where the ledger cannot be read, what
    /// is to be said now is all there is.
    pub(super) fn with_all_before(&self, line: &mut CheckpointLine, said: Said) -> Result<(Said, Picture)> {
        let Ok(mut gathered) = self.gather(line, &said) else {
            // The next opening would miss it: what is in memory takes its place with the next checkpoint.
            line.corrupt = true;
            return Ok((said, Picture::Changes));
        };
        let chunks = self.write_chunks(gathered.map())?;
        let bases = self.write_sets(gathered.history())?;
        let said = gathered.into_said(said.position, said.placed, chunks.as_deref());
        Ok((said, Picture::Everything(chunks, bases)))
    }

    fn gather(&self, line: &CheckpointLine, said: &Said) -> Result<Gathered> {
        let newest = *line.blobs.last().expect("a pool has a ledger");
        let mut gathered = Gathered::read(&self.blocks, self.pool, newest, &said.position.marks)?;
        gathered.apply(said.catalogue.clone(), said.history.clone(), &said.location, said.roots.clone())?;
        gathered.know_uses(&said.uses);
        Ok(gathered)
    }

    /// Writes what a checkpoint says behind `base`, or as a picture of everything. Flushed. `taken`: the last
    /// number of a use that had been given out when it was frozen.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: nothing has changed.
    pub(super) fn write_said(
        &self,
        said: Said,
        base: Option<LedgerPointer>,
        checkpoint: u64,
        taken: u64,
    ) -> Result<Vec<LedgerPointer>> {
        let frame = BlobFrame { pool: self.pool, slots: self.geometry.slots(), base, checkpoint, taken };
        let mut written = Vec::new();
        if let Err(error) = frame.write(said, &mut |bytes| self.write_blob(bytes), &mut written) {
            let mut state = self.state();
            for part in written {
                state.segments.remove_live(part.segment, u64::from(part.blocks));
            }
            return Err(error);
        }
        Ok(written)
    }

    /// Writes a blob behind the one before it, and flushes it.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: nothing has changed.
    fn write_blob(&self, bytes: &[u8]) -> Result<LedgerPointer> {
        let pointer = self.write_to_ledger(Filling::Ledger, bytes)?;
        self.blocks.files().sync(pointer.segment)?;
        self.counters.flushes.add(1);
        Ok(pointer)
    }

    /// Writes whole blocks to a segment of the ledger, where they count as live. Not flushed.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: nothing has changed.
    pub(super) fn write_to_ledger(&self, filling: Filling, bytes: &[u8]) -> Result<LedgerPointer> {
        let blocks = (bytes.len() / BLOCK_BYTES) as u32;
        let mut state = self.state();
        let allocation = self.allocate(&mut state, filling, blocks, true, Purpose::Checkpoint)?;
        state.segments.add_live(allocation.segment, u64::from(blocks));
        drop(state);
        self.frame(SegmentKind::Ledger, &allocation, self.epoch())?;
        let aligned = AlignedBuffer::copied(bytes);
        self.blocks.files().write(allocation.segment, allocation.slot, &[(Kind::Checkpoint, &aligned)])?;
        self.counters.checkpoint_bytes.add(bytes.len() as u64);
        Ok(LedgerPointer { segment: allocation.segment, slot: allocation.slot, blocks, crc: crc32c(bytes) })
    }
}
