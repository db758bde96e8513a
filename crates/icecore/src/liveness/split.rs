//! What a checkpoint says of the history, in full, and in parts that are short enough to be stored one after the other.

use super::set::SetChanges;
use super::stored::{HistoryChanges, StoredHistory, VersionChange, VersionRecord};
use super::streams::StreamChanges;
use super::versions::History;
use super::{BlockSet, Span};
use crate::units::{Stream, VersionId};

/// Versions of a full image that count as much as one run of a set.
const RECORD_RUNS: usize = 8;

impl History {
    /// The whole history, as changes of an empty one. Does not touch the journals: see [`History::encode_full`].
    #[must_use]
    pub fn full_changes(&self) -> HistoryChanges {
        let versions = self.versions.values().map(|node| {
            let all =
                |sets: &super::StreamSets| Stream::ALL.map(|stream| all_of(sets.of(stream).blocks().clone()));
            VersionChange {
                record: record(node.id, node.parent, node.mark),
                owned: all(&node.owned),
                dead: all(&node.dead),
            }
        });
        HistoryChanges { full: true, next: self.next, removed: Vec::new(), versions: versions.collect() }
    }
}

impl StoredHistory {
    /// All that was loaded so far, as changes of an empty history.
    #[must_use]
    pub fn into_full_changes(self) -> HistoryChanges {
        let versions = self.versions.into_iter().map(|(id, version)| VersionChange {
            record: record(id, version.parent, version.mark),
            owned: version.sets.owned.into_sets().map(all_of),
            dead: version.sets.dead.into_sets().map(all_of),
        });
        HistoryChanges { full: true, next: self.next, removed: Vec::new(), versions: versions.collect() }
    }
}

fn record(id: VersionId, parent: Option<VersionId>, mark: Option<crate::units::Marks>) -> VersionRecord {
    VersionRecord { id, parent, mark, sources: Vec::new() }
}

fn all_of(added: BlockSet) -> SetChanges {
    SetChanges { added, removed: BlockSet::new() }
}

impl HistoryChanges {
    /// These changes in parts, to be applied in order, each with so many runs of sets at most. What moves sets from one
    /// version to another is all in the first.
    #[must_use]
    pub fn split(self, runs_max: usize) -> Vec<Self> {
        let next = self.next;
        let mut parts = Vec::new();
        let mut part = Self { full: self.full, next, removed: self.removed, versions: Vec::new() };
        let mut left = runs_max;
        let mut later = Vec::new();
        for version in self.versions {
            // Of a full image nothing is moved: its versions may come one after the other.
            if self.full && left < RECORD_RUNS {
                parts.push(std::mem::replace(&mut part, Self { next, ..Self::default() }));
                left = runs_max;
            }
            left = left.saturating_sub(RECORD_RUNS);
            let VersionChange { record, owned, dead } = version;
            let rest = VersionRecord { sources: vec![record.id], ..record.clone() };
            part.versions.push(VersionChange { record, owned: Default::default(), dead: Default::default() });
            later.push((rest, owned, dead));
        }
        parts.push(part);
        let mut part = Self { next, ..Self::default() };
        let mut left = runs_max;
        for (record, owned, dead) in later {
            for piece in pieces(&owned, &dead, runs_max) {
                let runs = count_runs(&piece.0) + count_runs(&piece.1) + RECORD_RUNS;
                // A version is in a part once at most.
                let is_there = part.versions.last().is_some_and(|last| last.record.id == record.id);
                if !part.versions.is_empty() && (runs > left || is_there) {
                    parts.push(std::mem::replace(&mut part, Self { next, ..Self::default() }));
                    left = runs_max;
                }
                left = left.saturating_sub(runs);
                part.versions.push(VersionChange { record: record.clone(), owned: piece.0, dead: piece.1 });
            }
        }
        if !part.versions.is_empty() {
            parts.push(part);
        }
        parts
    }
}

/// The changes of one version's sets, cut so that each piece has about so many runs at most.
fn pieces(
    owned: &StreamChanges,
    dead: &StreamChanges,
    runs_max: usize,
) -> Vec<(StreamChanges, StreamChanges)> {
    let mut pieces: Vec<(StreamChanges, StreamChanges)> = Vec::new();
    let mut left = 0;
    for (is_dead, changes) in [(false, owned), (true, dead)] {
        for stream in Stream::ALL {
            // Removed first: what is added need not be looked for in what is removed.
            for (is_added, set) in
                [(false, &changes[stream as usize].removed), (true, &changes[stream as usize].added)]
            {
                for run in set.runs() {
                    if left == 0 {
                        pieces.push(Default::default());
                        left = runs_max;
                    }
                    left -= 1;
                    let piece = pieces.last_mut().expect("one was begun");
                    let sets = if is_dead { &mut piece.1 } else { &mut piece.0 };
                    add(&mut sets[stream as usize], is_added, run);
                }
            }
        }
    }
    pieces
}

fn add(changes: &mut SetChanges, is_added: bool, run: Span) {
    let set = if is_added { &mut changes.added } else { &mut changes.removed };
    set.insert(run);
}

fn count_runs(changes: &StreamChanges) -> usize {
    changes.iter().map(|changes| changes.added.runs().count() + changes.removed.runs().count()).sum()
}
