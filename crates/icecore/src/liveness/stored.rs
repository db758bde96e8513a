//! The history on disk: a full image, and changes since the last one. Both have the same form; a full
//! image is what changes an empty history into this one. The layout is in `docs/format/sets.md`.

use super::blocks::BlockSet;
use super::codec::{DecodeLimits, damaged, encode_stream_changes, take_stream_changes};
use super::links::Links;
use super::set::{AddressSet, SetChanges};
use super::streams::{StreamChanges, StreamSets};
use super::versions::History;
use crate::Result;
use crate::units::{Marks, Stream, VersionId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// First byte of the encoding.
const FORMAT: u8 = 1;

/// The fixed part of a stored version.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VersionRecord {
    /// Its number.
    pub id: VersionId,
    /// The snapshot it descends from.
    pub parent: Option<VersionId>,
    /// The position of every stream when the snapshot was taken. None for a head.
    pub mark: Option<Marks>,
    /// Versions of the state before whose sets, united, the changes of this version's sets build on. Each
    /// version of the state before is a source of one version at most. This is how a snapshot and a
    /// deletion, which move whole sets, are stored without storing the sets again.
    pub sources: Vec<VersionId>,
}

/// One version that is new or has changed.
#[derive(Clone, PartialEq, Debug)]
pub struct VersionChange {
    /// The fixed part, as it is now.
    pub record: VersionRecord,
    /// How its owned sets differ from those of its sources.
    pub owned: StreamChanges,
    /// How its dead sets differ from those of its sources.
    pub dead: StreamChanges,
}

#[derive(Serialize, Deserialize)]
struct Header {
    full: bool,
    next: VersionId,
    removed: Vec<VersionId>,
    versions: u64,
}

/// What turns one stored history into the next.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct HistoryChanges {
    /// Whether this builds on nothing.
    pub full: bool,
    /// The largest version number given out.
    pub next: VersionId,
    /// Versions that are gone.
    pub removed: Vec<VersionId>,
    /// Versions that are new or have changed, by number.
    pub versions: Vec<VersionChange>,
}

impl HistoryChanges {
    /// These changes as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = encode_header(self.full, self.next, &self.removed, self.versions.len());
        for version in &self.versions {
            encode_record(&version.record, &mut out);
            for sets in [&version.owned, &version.dead] {
                encode_stream_changes(sets.each_ref().map(|set| (&set.added, &set.removed)), &mut out);
            }
        }
        out
    }

    /// Reads what [`HistoryChanges::encode`] or [`History::encode_full`] wrote.
    ///
    /// # Errors
    ///
    /// `Damaged` for any other bytes. Whether the changes make sense is checked when they are applied.
    pub fn decode(bytes: &[u8], limits: &mut DecodeLimits) -> Result<Self> {
        let (&format, rest) = bytes.split_first().ok_or_else(|| damaged("no history here"))?;
        if format != FORMAT {
            return Err(damaged("history of an unknown format"));
        }
        let (header, mut rest) =
            postcard::take_from_bytes::<Header>(rest).map_err(|_| damaged("header of the history"))?;
        let mut versions = Vec::new();
        for _ in 0..header.versions {
            let (record, after) = postcard::take_from_bytes::<VersionRecord>(rest)
                .map_err(|_| damaged("record of a version"))?;
            rest = after;
            let owned = take_stream_changes(&mut rest, limits)?;
            let dead = take_stream_changes(&mut rest, limits)?;
            versions.push(VersionChange { record, owned, dead });
        }
        if !rest.is_empty() {
            return Err(damaged("bytes after the history"));
        }
        Ok(Self { full: header.full, next: header.next, removed: header.removed, versions })
    }
}

fn encode_header(full: bool, next: VersionId, removed: &[VersionId], versions: usize) -> Vec<u8> {
    let header = Header { full, next, removed: removed.to_vec(), versions: versions as u64 };
    postcard::to_extend(&header, vec![FORMAT]).expect("memory takes everything")
}

fn encode_record(record: &VersionRecord, out: &mut Vec<u8>) {
    let bytes = std::mem::take(out);
    *out = postcard::to_extend(record, bytes).expect("memory takes everything");
}

impl History {
    /// Whether there is anything to store; a version that came and went counts, for its number is used up.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.next != self.stored_next || !self.changed.is_empty() || !self.removed.is_empty()
    }

    /// What changed since the last call (or since the history was loaded). The caller must store it: it is
    /// not reported again. Takes time with what changed, not with the length of the history.
    pub fn take_changes(&mut self) -> HistoryChanges {
        let removed = std::mem::take(&mut self.removed);
        let changed = std::mem::take(&mut self.changed);
        self.stored_next = self.next;
        let mut versions = Vec::with_capacity(changed.len());
        for id in changed {
            let node = self.versions.get_mut(&id).expect("deleted versions are not among the changed");
            let sources = std::mem::replace(&mut node.sources, Links::to(id)).to_vec();
            let record = VersionRecord { id, parent: node.parent, mark: node.mark, sources };
            let (owned, dead) = (node.owned.take_changes(), node.dead.take_changes());
            node.stored = true;
            versions.push(VersionChange { record, owned, dead });
        }
        HistoryChanges { full: false, next: self.next, removed, versions }
    }

    /// The whole history as bytes. Does not touch the journals: after storing this instead of changes, call
    /// [`History::take_changes`] under the same lock and drop what it answers.
    #[must_use]
    pub fn encode_full(&self) -> Vec<u8> {
        let mut out = encode_header(true, self.next, &[], self.versions.len());
        let none = BlockSet::new();
        for node in self.versions.values() {
            let record =
                VersionRecord { id: node.id, parent: node.parent, mark: node.mark, sources: Vec::new() };
            encode_record(&record, &mut out);
            for sets in [&node.owned, &node.dead] {
                encode_stream_changes(Stream::ALL.map(|stream| (sets.of(stream).blocks(), &none)), &mut out);
            }
        }
        out
    }
}

/// A version as stored: not yet known to fit the others.
#[derive(Default)]
pub(super) struct StoredVersion {
    pub(super) parent: Option<VersionId>,
    pub(super) mark: Option<Marks>,
    pub(super) sets: StoredSets,
}

/// Owned and dead sets of a version.
#[derive(Default)]
pub(super) struct StoredSets {
    pub(super) owned: StreamSets,
    pub(super) dead: StreamSets,
}

/// A history being loaded: a full image and then, in order, the changes since. Bytes that decode may still
/// contradict each other; [`StoredHistory::verify`] finds out, and only then is there a [`History`].
#[derive(Default)]
pub struct StoredHistory {
    pub(super) versions: BTreeMap<VersionId, StoredVersion>,
    pub(super) next: VersionId,
}

impl StoredHistory {
    /// Nothing loaded yet. Applying only changes to this is right for a pool that never wrote a full image.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a full image (first, if there is one) or the changes that followed.
    ///
    /// # Errors
    ///
    /// `Damaged` when they do not fit what was applied so far; this must then be dropped.
    pub fn apply_changes(&mut self, changes: HistoryChanges) -> Result<()> {
        if changes.full && !self.versions.is_empty() {
            return Err(damaged("a full image in the middle of changes"));
        }
        if changes.next < self.next {
            return Err(damaged("version numbers went back"));
        }
        self.next = changes.next;

        let mut before = std::mem::take(&mut self.versions);
        let mut sources: BTreeMap<VersionId, StoredSets> = BTreeMap::new();
        for id in changes.versions.iter().flat_map(|version| &version.record.sources) {
            let source = before.get_mut(id).ok_or_else(|| damaged("a source that does not exist"))?;
            if sources.insert(*id, std::mem::take(&mut source.sets)).is_some() {
                return Err(damaged("one version is the source of two"));
            }
        }
        for id in &changes.removed {
            before.remove(id).ok_or_else(|| damaged("removes a version that does not exist"))?;
        }
        let mut previous = VersionId(0);
        for version in changes.versions {
            if version.record.id <= previous || version.record.id > changes.next {
                return Err(damaged("versions out of order"));
            }
            previous = version.record.id;
            let id = version.record.id;
            let replaced = before.insert(id, apply_to_sources(version, &mut sources)?);
            if replaced.is_some_and(|old| !old.sets.owned.is_empty() || !old.sets.dead.is_empty()) {
                return Err(damaged("a version is replaced and its sets are nobody's source"));
            }
        }
        self.versions = before;
        Ok(())
    }
}

fn apply_to_sources(
    version: VersionChange,
    sources: &mut BTreeMap<VersionId, StoredSets>,
) -> Result<StoredVersion> {
    let VersionRecord { parent, mark, sources: names, .. } = version.record;
    let mut sets = StoredSets::default();
    for name in names {
        let source = sources.remove(&name).expect("collected before");
        unite_disjoint(&mut sets.owned, source.owned)?;
        unite_disjoint(&mut sets.dead, source.dead)?;
    }
    apply_to_sets(&mut sets.owned, version.owned)?;
    apply_to_sets(&mut sets.dead, version.dead)?;
    Ok(StoredVersion { parent, mark, sets })
}

fn unite_disjoint(sets: &mut StreamSets, other: StreamSets) -> Result<()> {
    for (stream, blocks) in Stream::ALL.into_iter().zip(other.into_sets()) {
        let set = sets.of_mut(stream);
        if !set.blocks().is_disjoint(&blocks) {
            return Err(damaged("two sources share a block"));
        }
        set.absorb(AddressSet::from_stored(blocks, SetChanges::default()));
    }
    Ok(())
}

fn apply_to_sets(sets: &mut StreamSets, changes: StreamChanges) -> Result<()> {
    for (stream, changes) in Stream::ALL.into_iter().zip(changes) {
        sets.of_mut(stream).apply(changes)?;
    }
    Ok(())
}
