//! Ledger blobs: the bookkeeping that a checkpoint writes beside tree nodes.
//!
//! A blob is either full or a list of changes to the blob before it, to which it points. A blob is a header
//! block, then sections (tag, length, bytes), padded with zeros to whole blocks.

use super::superblock::LedgerPointer;
use super::{block_is_sealed, crc32c, get_16, get_u32, get_u64, put, seal_block};
use crate::error::{Error, Result};
use crate::units::{BLOCK_BYTES, PoolId, SegmentId, Slot};

const MAGIC: &[u8; 8] = b"ICELEDG\n";
/// Where the header lists the sections, so that each proves itself.
const LIST_AT: usize = 96;
/// Bytes of an entry of that list, and of what comes before each section.
const ENTRY_BYTES: usize = 16;

/// What a section holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum SectionTag {
    /// Log position, counters and marks.
    Position = 1,
    /// Datasets and versions: rows changed and numbers removed.
    Catalogue = 2,
    /// Owned and dead sets.
    History = 3,
    /// Location map.
    Location = 4,
    /// Roots of the trees of versions.
    Roots = 5,
    /// Runs that the checkpoint itself wrote, and where: applied after the location map.
    Placed = 6,
    /// Data that lives as of the position and has no place any more, because the log from there on says that
    /// it died.
    Forsaken = 7,
    /// Numbers of the uses that segments are in.
    Uses = 8,
}

impl SectionTag {
    const ALL: [Self; 8] = [
        Self::Position,
        Self::Catalogue,
        Self::History,
        Self::Location,
        Self::Roots,
        Self::Placed,
        Self::Forsaken,
        Self::Uses,
    ];
}

impl LedgerPointer {
    /// Whether these are the bytes that it points to, whole.
    #[must_use]
    pub fn leads_to(&self, bytes: &[u8]) -> bool {
        crc32c(bytes) == self.crc && Blob::has_its_header(bytes)
    }
}

/// A blob, decoded as far as its sections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blob {
    /// The blob that this one changes; `None` when it is full.
    pub base: Option<LedgerPointer>,
    /// Number of the checkpoint.
    pub checkpoint: u64,
    /// As [`super::superblock::Superblock::taken`], of this checkpoint; 0 in all but the last blob of one.
    pub taken: u64,
    /// Sections in order.
    pub sections: Vec<(SectionTag, Vec<u8>)>,
}

impl Blob {
    /// The bytes to write: a multiple of the block size.
    #[must_use]
    pub fn encode(&self, pool: PoolId) -> Vec<u8> {
        let mut bytes = vec![0; BLOCK_BYTES];
        for (tag, section) in &self.sections {
            bytes.extend_from_slice(&(*tag as u32).to_le_bytes());
            bytes.extend_from_slice(&0_u32.to_le_bytes());
            bytes.extend_from_slice(&(section.len() as u64).to_le_bytes());
            bytes.extend_from_slice(section);
        }
        let payload = (bytes.len() - BLOCK_BYTES) as u64;
        bytes.resize(bytes.len().next_multiple_of(BLOCK_BYTES), 0);
        let header = &mut bytes[..BLOCK_BYTES];
        put(header, 0, MAGIC);
        put(header, 8, &1_u32.to_le_bytes());
        put(header, 12, &u32::from(self.base.is_some()).to_le_bytes());
        put(header, 16, &pool.0);
        put(header, 32, &self.checkpoint.to_le_bytes());
        put(header, 40, &payload.to_le_bytes());
        put(header, 48, &(self.sections.len() as u32).to_le_bytes());
        let base = self.base.unwrap_or_default();
        put(header, 56, &base.segment.0.to_le_bytes());
        put(header, 60, &base.slot.0.to_le_bytes());
        put(header, 64, &base.blocks.to_le_bytes());
        put(header, 68, &base.crc.to_le_bytes());
        put(header, 72, &self.taken.to_le_bytes());
        for (index, (tag, section)) in self.sections.iter().enumerate() {
            let at = LIST_AT + index * ENTRY_BYTES;
            put(header, at, &(*tag as u32).to_le_bytes());
            put(header, at + 4, &crc32c(section).to_le_bytes());
            put(header, at + 8, &(section.len() as u64).to_le_bytes());
        }
        seal_block(header);
        bytes
    }

    /// Reads a blob whose CRC over all bytes has been checked against the pointer that led to it.
    ///
    /// # Errors
    /// [`Error::Damaged`] naming `place`.
    pub fn decode(bytes: &[u8], pool: PoolId, place: &str) -> Result<Self> {
        let damaged = |detail: &str| Error::damaged(place, format!("ledger blob: {detail}"));
        let mut blob = Self::decode_header(bytes, pool, place)?;
        let payload = get_u64(bytes, 40);
        if payload > (bytes.len() - BLOCK_BYTES) as u64 {
            return Err(damaged("shorter than it says"));
        }
        let mut rest = &bytes[BLOCK_BYTES..BLOCK_BYTES + payload as usize];
        for _ in 0..get_u32(bytes, 48) {
            if rest.len() < 16 {
                return Err(damaged("a section is cut short"));
            }
            let tag = get_u32(rest, 0);
            let length = get_u64(rest, 8);
            let tag = SectionTag::ALL.into_iter().find(|known| *known as u32 == tag);
            let tag = tag.ok_or_else(|| damaged("a section of unknown meaning"))?;
            if length > (rest.len() - 16) as u64 {
                return Err(damaged("a section is longer than the blob"));
            }
            let (section, after) = rest[16..].split_at(length as usize);
            blob.sections.push((tag, section.to_vec()));
            rest = after;
        }
        Ok(blob)
    }

    /// What the header of a blob says by itself: everything but the sections.
    ///
    /// # Errors
    /// As for [`Blob::decode`].
    pub fn decode_header(bytes: &[u8], pool: PoolId, place: &str) -> Result<Self> {
        let damaged = |detail: &str| Error::damaged(place, format!("ledger blob: {detail}"));
        if bytes.len() < BLOCK_BYTES || !block_is_sealed(&bytes[..BLOCK_BYTES]) || &bytes[..8] != MAGIC {
            return Err(damaged("the header does not fit its checksum"));
        }
        if get_u32(bytes, 8) != 1 || get_16(bytes, 16) != pool.0 {
            return Err(damaged("version or pool is not ours"));
        }
        let base = (get_u32(bytes, 12) == 1).then(|| LedgerPointer {
            segment: SegmentId(get_u32(bytes, 56)),
            slot: Slot(get_u32(bytes, 60)),
            blocks: get_u32(bytes, 64),
            crc: get_u32(bytes, 68),
        });
        let sections = Vec::new();
        Ok(Self { base, checkpoint: get_u64(bytes, 32), taken: get_u64(bytes, 72), sections })
    }

    /// Reads a blob that is not what was written, or of which nothing says what it should be: those sections
    /// that prove themselves. Answers the others, too.
    ///
    /// # Errors
    /// The header is damaged, or what it lists makes no sense.
    pub fn salvage(bytes: &[u8], pool: PoolId, place: &str) -> Result<(Self, Vec<SectionTag>)> {
        let damaged = |detail: &str| Error::damaged(place, format!("ledger blob: {detail}"));
        let mut blob = Self::decode_header(bytes, pool, place)?;
        let mut lost = Vec::new();
        let mut at = BLOCK_BYTES;
        let count = get_u32(bytes, 48) as usize;
        if count > SectionTag::ALL.len() {
            return Err(damaged("it has more sections than there are"));
        }
        for entry in (0..count).map(|index| LIST_AT + index * ENTRY_BYTES) {
            let tag = SectionTag::ALL.into_iter().find(|known| *known as u32 == get_u32(bytes, entry));
            let tag = tag.ok_or_else(|| damaged("a section of unknown meaning"))?;
            let length = usize::try_from(get_u64(bytes, entry + 8)).ok();
            let begin = at + ENTRY_BYTES;
            let end = length.and_then(|length| begin.checked_add(length)).filter(|end| *end <= bytes.len());
            at = end.ok_or_else(|| damaged("a section is longer than the blob"))?;
            let section = &bytes[begin..at];
            if crc32c(section) == get_u32(bytes, entry + 4) {
                blob.sections.push((tag, section.to_vec()));
            } else {
                lost.push(tag);
            }
        }
        Ok((blob, lost))
    }

    /// Whether bytes that match the CRC in the pointer to them are what was written, if they are a blob. That
    /// CRC says nothing of the header: whatever block ends with its own CRC adds the same to it. So the
    /// header has to have the CRC of each section, and to be one.
    #[must_use]
    pub fn has_its_header(bytes: &[u8]) -> bool {
        if !block_is_sealed(&bytes[..BLOCK_BYTES]) {
            // A chunk: it has no CRC of its own.
            return true;
        }
        let pool = PoolId(get_16(bytes, 16));
        Self::salvage(bytes, pool, "").is_ok_and(|(_, lost)| lost.is_empty())
    }

    /// Whether there is a section with this tag.
    #[must_use]
    pub fn has(&self, wanted: SectionTag) -> bool {
        self.sections.iter().any(|(tag, _)| *tag == wanted)
    }

    /// The section with this tag.
    ///
    /// # Errors
    /// [`Error::Damaged`] if there is none.
    pub fn section(&self, wanted: SectionTag, place: &str) -> Result<&[u8]> {
        let found = self.sections.iter().find(|(tag, _)| *tag == wanted);
        let (_, bytes) =
            found.ok_or_else(|| Error::damaged(place, format!("ledger blob without section {wanted:?}")))?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blob_round_trips() {
        let blob = Blob {
            base: Some(LedgerPointer { segment: SegmentId(1), slot: Slot(2), blocks: 3, crc: 4 }),
            checkpoint: 9,
            taken: 10,
            sections: vec![(SectionTag::Position, vec![1; 5000]), (SectionTag::Location, vec![])],
        };
        let bytes = blob.encode(PoolId([1; 16]));
        assert_eq!(Blob::decode(&bytes, PoolId([1; 16]), "x").unwrap(), blob);
        for cut in [0, 1, 4095, 4096, 5000] {
            assert!(Blob::decode(&bytes[..cut], PoolId([1; 16]), "x").is_err());
            assert!(Blob::salvage(&bytes[..cut], PoolId([1; 16]), "x").is_err());
        }
        assert_eq!(Blob::salvage(&bytes, PoolId([1; 16]), "x").unwrap(), (blob, Vec::new()));
    }

    /// Whatever is damaged, what is answered is what was written, and what is not is named.
    #[test]
    fn sections_prove_themselves() {
        let pool = PoolId([1; 16]);
        let sections: Vec<_> =
            SectionTag::ALL.into_iter().map(|tag| (tag, vec![tag as u8; 100 + 50 * tag as usize])).collect();
        let blob = Blob { base: None, checkpoint: 9, taken: 10, sections };
        let bytes = blob.encode(pool);
        let mut at = BLOCK_BYTES;
        let spans: Vec<_> = blob
            .sections
            .iter()
            .map(|(tag, section)| {
                let span = at + ENTRY_BYTES..at + ENTRY_BYTES + section.len();
                at = span.end;
                (*tag, span)
            })
            .collect();
        for hit in 0..bytes.len() {
            let mut corrupt = bytes.clone();
            corrupt[hit] ^= 0x20;
            let Ok((found, lost)) = Blob::salvage(&corrupt, pool, "x") else {
                assert!(hit < BLOCK_BYTES);
                continue;
            };
            assert!(hit >= BLOCK_BYTES);
            let expected: Vec<_> =
                spans.iter().filter(|(_, span)| span.contains(&hit)).map(|(tag, _)| *tag).collect();
            assert_eq!(lost, expected, "{hit}");
            assert!(found.sections.iter().all(|section| blob.sections.contains(section)));
            assert_eq!(found.sections.len() + lost.len(), blob.sections.len());
        }
    }
}
