//! The history on disk: a full image, and changes since the last one. Both have the same form; a full
//! image is what changes an empty history into this one. The layout is in `docs/format/sets.md`.

use super::codec::{DecodeLimits, damaged, encode_stream_changes, take_stream_changes};
use super::part::{PartRow, take_rows};
use super::set::AddressSet;
use super::streams::{StreamChanges, StreamSets};
use super::versions::History;
use crate::Result;
use crate::format::varint::put_varint;
use crate::units::{LogAddress, Marks, Stream, VersionId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// First byte of the encoding: without parts on disk, and with them.
const FORMAT: u8 = 1;
const FORMAT_PARTS: u8 = 2;

/// The fixed part of a stored version.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
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

/// Parts on disk of the sets of a version: what it owns of each stream, and then what is dead in it.
pub type SetRows = [Vec<PartRow>; 6];

/// One version that is new or has changed.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct VersionChange {
    /// The fixed part, as it is now.
    pub record: VersionRecord,
    /// Parts that its sets have beside what those of its sources have.
    pub rows: SetRows,
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
    /// Whether parts on disk are named.
    pub fn has_parts(&self) -> bool {
        self.rows().next().is_some()
    }

    /// The parts on disk that are named.
    pub fn rows(&self) -> impl Iterator<Item = &PartRow> {
        self.versions.iter().flat_map(|version| version.rows.iter().flatten())
    }

    /// These changes as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let has_parts = self.has_parts();
        let format = if has_parts { FORMAT_PARTS } else { FORMAT };
        let mut out = encode_header(format, self.full, self.next, &self.removed, self.versions.len());
        for version in &self.versions {
            encode_record(&version.record, &mut out);
            if has_parts {
                encode_rows(&version.rows, &mut out);
            }
            for sets in [&version.owned, &version.dead] {
                encode_stream_changes(sets.each_ref().map(|set| (&set.added, &set.removed)), &mut out);
            }
        }
        out
    }

    /// Reads what [`HistoryChanges::encode`] wrote.
    /// Whether the changes make sense is checked when they are applied.
    pub fn decode(bytes: &[u8], limits: &mut DecodeLimits) -> Result<Self> {
        let (&format, rest) = bytes.split_first().ok_or_else(|| damaged("no history here"))?;
        if ![FORMAT, FORMAT_PARTS].contains(&format) {
            return Err(damaged("history of an unknown format"));
        }
        let (header, mut rest) =
            postcard::take_from_bytes::<Header>(rest).map_err(|_| damaged("header of the history"))?;
        let mut versions = Vec::new();
        for _ in 0..header.versions {
            let (record, after) = postcard::take_from_bytes::<VersionRecord>(rest)
                .map_err(|_| damaged("record of a version"))?;
            rest = after;
            let rows = if format == FORMAT { SetRows::default() } else { take_all_rows(&mut rest, limits)? };
            let owned = take_stream_changes(&mut rest, limits)?;
            let dead = take_stream_changes(&mut rest, limits)?;
            versions.push(VersionChange { record, rows, owned, dead });
        }
        if !rest.is_empty() {
            return Err(damaged("bytes after the history"));
        }
        Ok(Self { full: header.full, next: header.next, removed: header.removed, versions })
    }
}

/// Appends a bit for each set that has parts, and the rows of each of those.
fn encode_rows(rows: &SetRows, out: &mut Vec<u8>) {
    let has = |index: &usize| !rows[*index].is_empty();
    out.push((0..rows.len()).filter(has).map(|index| 1u8 << index).sum());
    for rows in rows.iter().filter(|rows| !rows.is_empty()) {
        put_varint(out, rows.len() as u64);
        let mut before = LogAddress(0);
        for row in rows {
            row.encode(before, out);
            before = row.span.start;
        }
    }
}

fn take_all_rows(bytes: &mut &[u8], limits: &DecodeLimits) -> Result<SetRows> {
    let (&flags, rest) = bytes.split_first().ok_or_else(|| damaged("cut short"))?;
    *bytes = rest;
    let mut all = SetRows::default();
    if flags >> all.len() != 0 {
        return Err(damaged("parts of sets that do not exist"));
    }
    for (index, rows) in all.iter_mut().enumerate().filter(|(index, _)| flags >> index & 1 == 1) {
        *rows = take_rows(bytes, Stream::ALL[index % Stream::ALL.len()], limits)?;
    }
    Ok(all)
}

fn encode_header(format: u8, full: bool, next: VersionId, removed: &[VersionId], versions: usize) -> Vec<u8> {
    let header = Header { full, next, removed: removed.to_vec(), versions: versions as u64 };
    postcard::to_extend(&header, vec![format]).expect("memory takes everything")
}

fn encode_record(record: &VersionRecord, out: &mut Vec<u8>) {
    let bytes = std::mem::take(out);
    *out = postcard::to_extend(record, bytes).expect("memory takes everything");
}

impl History {
    /// What changed since the last call (or since the history was loaded). The caller must store it: it is
    /// not reported again. Takes time with what changed, not with the length of the history.
    pub fn take_changes(&mut self) -> HistoryChanges {
        let removed = std::mem::take(&mut self.removed);
        let changed = std::mem::take(&mut self.changed);
        let mut versions = Vec::with_capacity(changed.len());
        for id in changed {
            let node = self.versions.get_mut(&id).expect("deleted versions are not among the changed");
            let sources = std::mem::replace(&mut node.sources, vec![id]);
            let record = VersionRecord { id, parent: node.parent, mark: node.mark, sources };
            let (owned, dead) = (node.owned.take_changes(), node.dead.take_changes());
            node.stored = true;
            self.heavy -= node.heavy;
            node.weigh(&self.limits);
            self.heavy += node.heavy;
            versions.push(VersionChange { record, rows: SetRows::default(), owned, dead });
        }
        HistoryChanges { full: false, next: self.next, removed, versions }
    }
}

/// A version as stored: not yet known to fit the others.
#[derive(Clone, Default)]
pub(super) struct StoredVersion {
    pub(super) parent: Option<VersionId>,
    pub(super) mark: Option<Marks>,
    pub(super) sets: StoredSets,
}

/// Owned and dead sets of a version.
#[derive(Clone, Default, PartialEq)]
pub struct StoredSets {
    pub(super) owned: StreamSets,
    pub(super) dead: StreamSets,
}

impl StoredSets {
    /// What is owned of each stream, and then what is dead.
    pub(super) fn both(&self) -> impl Iterator<Item = &AddressSet> {
        self.owned.all().chain(self.dead.all())
    }

    pub(super) fn both_mut(&mut self) -> impl Iterator<Item = &mut AddressSet> {
        self.owned.all_mut().chain(self.dead.all_mut())
    }
}

/// A history being loaded: a full image and then, in order, the changes since. Bytes that decode may still
/// contradict each other; [`StoredHistory::verify`] finds out, and only then is there a [`History`].
#[derive(Clone, Default)]
pub struct StoredHistory {
    pub(super) versions: BTreeMap<VersionId, StoredVersion>,
    pub(super) next: VersionId,
}

impl StoredHistory {
    /// Nothing loaded yet. Applying only changes to this is right for a pool that never wrote a full image.
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a full image (first, if there is one) or the changes that followed.
    /// What they do not fit must be dropped.
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
            if replaced.is_some_and(|old| old.sets.both().any(|set| !set.is_empty())) {
                return Err(damaged("a version is replaced and its sets are no version's source"));
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
    for (set, rows) in sets.both_mut().zip(version.rows) {
        set.add_parts(rows);
    }
    apply_to_sets(&mut sets.owned, version.owned)?;
    apply_to_sets(&mut sets.dead, version.dead)?;
    Ok(StoredVersion { parent, mark, sets })
}

fn unite_disjoint(sets: &mut StreamSets, other: StreamSets) -> Result<()> {
    for (set, other) in sets.all_mut().zip(other.into_all()) {
        if !set.at_hand().is_disjoint(other.at_hand()) {
            return Err(damaged("two sources share a block"));
        }
        set.absorb(other);
    }
    Ok(())
}

fn apply_to_sets(sets: &mut StreamSets, changes: StreamChanges) -> Result<()> {
    for (stream, changes) in Stream::ALL.into_iter().zip(changes) {
        sets.of_mut(stream).apply(changes)?;
    }
    Ok(())
}
