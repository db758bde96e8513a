//! Places of blocks, where the chunk of the location map that has them may have to be read first.

use super::Blocks;
use crate::error::{Error, Result};
use crate::format::segment::file_name;
use crate::format::superblock::LedgerPointer;
use crate::liveness::Span;
use crate::location::{Absent, Chunk, Lookup, PlacedRun, SharedChunk};
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, Run, SegmentId, Slot, Stream};
use std::sync::Arc;

impl Blocks {
    /// The place of a block, and how many blocks from it on are known to lie together; `None` if it has none.
    /// No lock is held while a chunk is read but those of the caller.
    ///
    /// # Errors
    /// The chunk that says so cannot be read: nothing has changed.
    pub(crate) fn lookup(
        &self,
        stream: Stream,
        address: LogAddress,
    ) -> Result<Option<(SegmentId, Slot, BlockCount)>> {
        let mut found = self.map.read().lookup(stream, address);
        loop {
            match found {
                Lookup::At(segment, slot, together) => return Ok(Some((segment, slot, together))),
                Lookup::Nowhere => return Ok(None),
                Lookup::Absent(absent) => {
                    let Some(chunk) = self.read_chunk(&absent)? else {
                        found = self.map.read().lookup(stream, address);
                        continue;
                    };
                    // Looked up in it at once: others may need the room for theirs.
                    let mut map = self.map.write();
                    let with = map.lookup_with(&absent, &chunk, stream, address);
                    found = with.unwrap_or_else(|| map.lookup(stream, address));
                }
            }
        }
    }

    /// In how many stretches these runs lie: a block in the slot behind that of the one before is in the same
    /// stretch. Blocks that no checkpoint has written yet lie nowhere, and do not count.
    ///
    /// # Errors
    /// As for [`Blocks::lookup`].
    pub(crate) fn stretches(&self, runs: &[Run]) -> Result<u64> {
        let mut count = 0;
        let mut next: Option<(SegmentId, Slot)> = None;
        for run in runs {
            let mut index = 0;
            while index < run.length.0 {
                let address = run.start.plus(BlockCount(index));
                let Some((segment, slot, together)) = self.lookup(run.stream, address)? else {
                    (index, next) = (index + 1, None);
                    continue;
                };
                let blocks = together.0.min(run.length.0 - index);
                count += u64::from(next != Some((segment, slot)));
                next = Some((segment, Slot(slot.0 + blocks as u32)));
                index += blocks;
            }
        }
        Ok(count)
    }

    /// A chunk of the map; `None` if the map has done without it since. What had to be read does not stay in
    /// memory beyond that.
    ///
    /// # Errors
    /// It cannot be read, or is not what was written.
    pub(crate) fn chunk(&self, absent: &Absent) -> Result<Option<SharedChunk>> {
        let resident = self.map.read().shared(absent);
        match resident {
            Some(chunk) => Ok(Some(chunk)),
            None => self.read_chunk(absent),
        }
    }

    /// Reads a chunk. The segment that it lies in is used for something else once nothing needs it any more:
    /// then what was read does not count.
    fn read_chunk(&self, absent: &Absent) -> Result<Option<SharedChunk>> {
        match self.try_read_chunk(absent) {
            Ok(chunk) => Ok(Some(chunk)),
            Err(_) if !self.map.read().has(absent) => Ok(None),
            Err(error) => {
                self.files.incidents().note(&error);
                Err(error)
            }
        }
    }

    fn try_read_chunk(&self, absent: &Absent) -> Result<SharedChunk> {
        let is_there = || self.map.read().has(absent);
        let decode = |bytes: &[u8]| Chunk::decode(bytes, self.pool, absent.stream, &absent.span);
        self.read_decoded(&absent.place, "a chunk of the location map", is_there, decode).map(Arc::new)
    }

    /// Reads a chunk of `what`, from its copy if need be. `still`: whether it lies there at this moment.
    ///
    /// # Errors
    /// It cannot be read, or is not what was written: the error says where it lies.
    pub(super) fn read_decoded<T>(
        &self,
        place: &LedgerPointer,
        what: &str,
        still: impl FnOnce() -> bool,
        decode: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let name = || format!("{} at slot {}", file_name(place.segment), place.slot);
        let end = u64::from(place.slot.0) + u64::from(place.blocks);
        if place.blocks == 0 || end > u64::from(self.files.geometry().slots()) {
            return Err(Error::damaged(name(), format!("the place of {what} is out of range")));
        }
        let damaged = || Error::damaged(name(), format!("{what} does not match its checksum"));
        let read = self.files.read_stretch(place, damaged, still);
        self.counters.disk_read_bytes_map.add(u64::from(place.blocks) * BLOCK_BYTES as u64);
        decode(&read?).map_err(|error| match error {
            Error::Damaged { detail, place } => Error::damaged(name(), format!("{place}: {detail}")),
            other => other,
        })
    }

    /// All places of addresses within a span, as far as chunks that say so can be read, and the others.
    pub(crate) fn entries_within(&self, stream: Stream, span: &Span) -> (Vec<PlacedRun>, Vec<Absent>) {
        let run = Run::of(stream, span);
        let (mut entries, chunks) = {
            let map = self.map.read();
            (map.recent_within(run), map.spanning(stream, span))
        };
        let mut unread = Vec::new();
        for absent in chunks {
            match self.chunk(&absent) {
                Ok(Some(chunk)) => {
                    let holding = self.map.read().holding(stream, &chunk);
                    entries.extend(holding.into_iter().filter_map(|placed| placed.within(span)));
                }
                Ok(None) => {}
                Err(_) => unread.push(absent),
            }
        }
        (entries, unread)
    }

    /// All runs that lie in a segment, by slot. The caller has the state locked, so that the map stays as it
    /// is.
    ///
    /// # Errors
    /// A chunk that says so cannot be read.
    pub(crate) fn entries_of_segment(&self, segment: SegmentId) -> Result<Vec<PlacedRun>> {
        let (mut entries, chunks) = {
            let map = self.map.read();
            (map.recent_of_segment(segment).collect::<Vec<_>>(), map.naming(segment))
        };
        for absent in chunks {
            if let Some(chunk) = self.chunk(&absent)? {
                let holding = self.map.read().holding(absent.stream, &chunk);
                entries.extend(holding.into_iter().filter(|placed| placed.segment == segment));
            }
        }
        entries.sort_unstable_by_key(|placed| placed.slot);
        Ok(entries)
    }
}
