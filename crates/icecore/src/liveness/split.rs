//! What a checkpoint says of the history, in full, and in parts that are short enough to be stored one after
//! the other.

use super::Span;
use super::set::SetChanges;
use super::stored::{HistoryChanges, SetRows, StoredHistory, StoredSets, VersionChange, VersionRecord};
use super::streams::{StreamChanges, StreamSets};
use super::versions::History;
use crate::units::{Stream, VersionId};

/// Versions of a full image that count as much as one run of a set.
const RECORD_RUNS: usize = 8;
/// What is known of a part on disk counts as much as so many.
const RUNS_PER_ROW: usize = 3;

impl History {
    /// The whole history, as changes of an empty one. Does not touch the journals: after storing this instead
    /// of changes, call [`History::take_changes`] under the same lock and drop what it answers.
    pub fn full_changes(&self) -> HistoryChanges {
        let versions = self.versions.values().map(|node| {
            let sets = StoredSets { owned: node.owned.clone(), dead: node.dead.clone() };
            full_change(record(node.id, node.parent, node.mark), sets)
        });
        HistoryChanges { full: true, next: self.next, removed: Vec::new(), versions: versions.collect() }
    }
}

impl StoredHistory {
    /// All that was loaded so far, as changes of an empty history.
    pub fn into_full_changes(self) -> HistoryChanges {
        let versions = self
            .versions
            .into_iter()
            .map(|(id, version)| full_change(record(id, version.parent, version.mark), version.sets));
        HistoryChanges { full: true, next: self.next, removed: Vec::new(), versions: versions.collect() }
    }
}

fn record(id: VersionId, parent: Option<VersionId>, mark: Option<crate::units::Marks>) -> VersionRecord {
    VersionRecord { id, parent, mark, sources: Vec::new() }
}

fn full_change(record: VersionRecord, sets: StoredSets) -> VersionChange {
    let mut rows = SetRows::default();
    let mut changes = |sets: StreamSets, at: usize| {
        let mut at = at..;
        sets.into_all().map(|set| {
            let (parts, changes) = set.into_pieces();
            rows[at.next().expect("as many as there are")] = parts;
            changes
        })
    };
    let (owned, dead) = (changes(sets.owned, 0), changes(sets.dead, 3));
    VersionChange { record, rows, owned, dead }
}

impl HistoryChanges {
    /// These changes in parts, to be applied in order, each with so many runs of sets at most. What moves
    /// sets from one version to another is all in the first.
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
            let rest = VersionRecord { sources: vec![version.record.id], ..version.record.clone() };
            let first = VersionChange { record: version.record.clone(), ..VersionChange::default() };
            part.versions.push(first);
            later.push(VersionChange { record: rest, ..version });
        }
        parts.push(part);
        let mut part = Self { next, ..Self::default() };
        let mut left = runs_max;
        for version in later {
            for piece in pieces(version, runs_max) {
                let runs = count_runs(&piece) + RECORD_RUNS;
                // A version is in a part once at most.
                let is_there = part.versions.last().is_some_and(|last| last.record.id == piece.record.id);
                if !part.versions.is_empty() && (runs > left || is_there) {
                    parts.push(std::mem::replace(&mut part, Self { next, ..Self::default() }));
                    left = runs_max;
                }
                left = left.saturating_sub(runs);
                part.versions.push(piece);
            }
        }
        if !part.versions.is_empty() {
            parts.push(part);
        }
        parts
    }
}

/// The changes of one version's sets, cut so that each piece has about so many runs at most.
fn pieces(version: VersionChange, runs_max: usize) -> Vec<VersionChange> {
    let VersionChange { record, rows, owned, dead } = version;
    let mut cutter = Cutter { record, runs_max, left: 0, pieces: Vec::new() };
    // Parts first: what is removed may lie in them.
    for (index, rows) in rows.into_iter().enumerate() {
        for row in rows {
            cutter.piece(RUNS_PER_ROW).rows[index].push(row);
        }
    }
    for (is_dead, changes) in [(false, owned), (true, dead)] {
        for stream in Stream::ALL {
            // Removed first: what is added need not be looked for in what is removed.
            for (is_added, set) in
                [(false, &changes[stream as usize].removed), (true, &changes[stream as usize].added)]
            {
                for run in set.runs() {
                    let piece = cutter.piece(1);
                    let sets = if is_dead { &mut piece.dead } else { &mut piece.owned };
                    add(&mut sets[stream as usize], is_added, run);
                }
            }
        }
    }
    cutter.pieces
}

struct Cutter {
    record: VersionRecord,
    runs_max: usize,
    left: usize,
    pieces: Vec<VersionChange>,
}

impl Cutter {
    /// The piece for what takes as much as so many runs.
    fn piece(&mut self, runs: usize) -> &mut VersionChange {
        if self.left < runs.min(self.runs_max) {
            self.pieces.push(VersionChange { record: self.record.clone(), ..VersionChange::default() });
            self.left = self.runs_max;
        }
        self.left = self.left.saturating_sub(runs);
        self.pieces.last_mut().expect("one was begun")
    }
}

fn add(changes: &mut SetChanges, is_added: bool, run: Span) {
    let set = if is_added { &mut changes.added } else { &mut changes.removed };
    set.insert(run);
}

fn count_runs(version: &VersionChange) -> usize {
    let runs = |changes: &StreamChanges| -> usize {
        changes.iter().map(|changes| changes.added.runs().count() + changes.removed.runs().count()).sum()
    };
    let rows: usize = version.rows.iter().map(Vec::len).sum();
    rows * RUNS_PER_ROW + runs(&version.owned) + runs(&version.dead)
}
