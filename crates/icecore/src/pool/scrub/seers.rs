//! Which versions see damaged blocks. Costs what is owned and dead among them, however many versions there
//! are.

use super::damage::Damage;
use crate::engine::Engine;
use crate::liveness::{BlockSet, Span};
use crate::state::State;
use crate::tree::Tree;
use crate::units::{BlockCount, DatasetId, LogAddress, Run, Stream, VersionId};
use std::collections::BTreeMap;
use std::ops::Range;

/// Entries that are looked at while others wait.
const BATCH: usize = 256;
/// Snapshots in a row that are named one by one.
const ROW_MAX: usize = 16;
/// Names that are given of those who see one place.
const NAMES_MAX: usize = 1000;

/// A version.
struct Version {
    id: VersionId,
    name: String,
    tree: Tree,
    parent: Option<VersionId>,
    /// The dataset that it is a snapshot of.
    snapshot_of: Option<DatasetId>,
    /// Its place in lists: by dataset, the present first, then snapshots as they were taken.
    rank: u32,
    /// Destroyed: others have blocks from it, but no reader reads it, and its tree leads to what is not there
    /// any more.
    is_doomed: bool,
}

/// All versions at one moment, each with everything below it directly behind it.
pub(super) struct Versions {
    all: Vec<Version>,
    /// The index behind everything below.
    ends: Vec<u32>,
}

/// Versions by their index in [`Versions`]: ranges that do not touch, ascending.
pub(super) type Seers = Vec<Range<u32>>;

/// Blocks that the same versions see.
#[derive(Debug)]
pub(super) struct Piece {
    pub run: Run,
    /// The entry that it is part of.
    pub damage: usize,
    pub seers: Seers,
}

impl Versions {
    pub(super) fn of(state: &State) -> Self {
        let mut versions = Self { all: Vec::new(), ends: Vec::new() };
        let mut order = Vec::new();
        // One that is being destroyed has no tree any more: no reader looks through it.
        let lineage = state.history.lineage();
        let mut kept_before = Vec::with_capacity(lineage.len() + 1);
        for (id, _) in &lineage {
            kept_before.push(versions.all.len() as u32);
            let Some(tree) = state.trees.get(id) else { continue };
            let name = state.catalogue.full_name(*id);
            let snapshot_of = state.catalogue.snapshot(*id).map(|row| row.dataset);
            let dataset = name.split('@').next().unwrap_or_default().to_owned();
            order.push((dataset, snapshot_of.is_some(), *id, versions.all.len()));
            let (tree, parent) = (tree.clone(), state.parent(*id));
            let is_doomed = state.history.is_doomed(*id);
            versions.all.push(Version { id: *id, name, tree, parent, snapshot_of, rank: 0, is_doomed });
        }
        kept_before.push(versions.all.len() as u32);
        let ends = lineage.iter().filter(|(id, _)| state.trees.contains_key(id));
        versions.ends = ends.map(|(_, end)| kept_before[*end as usize]).collect();
        order.sort_unstable();
        for (rank, (.., index)) in order.into_iter().enumerate() {
            versions.all[index].rank = rank as u32;
        }
        versions
    }

    pub(super) fn tree(&self, index: u32) -> &Tree {
        &self.all[index as usize].tree
    }

    /// The first in lists.
    pub(super) fn first(&self, seers: &Seers) -> Option<u32> {
        let read = seers.iter().flat_map(Clone::clone).filter(|index| !self.all[*index as usize].is_doomed);
        read.min_by_key(|index| self.all[*index as usize].rank)
    }

    /// Their names, and how many they are. Many snapshots that follow one another are one entry,
    /// `DATASET@FIRST%LAST`.
    pub(super) fn names(&self, seers: &Seers) -> (Vec<String>, u64) {
        let mut found: Vec<&Version> =
            seers.iter().flat_map(Clone::clone).map(|index| &self.all[index as usize]).collect();
        found.retain(|version| !version.is_doomed);
        found.sort_unstable_by_key(|version| version.rank);
        let follows = |one: &&Version, next: &&Version| {
            next.snapshot_of.is_some() && next.snapshot_of == one.snapshot_of && next.parent == Some(one.id)
        };
        let mut names = Vec::new();
        for row in found.chunk_by(follows) {
            match row {
                [first, .., last] if row.len() > ROW_MAX => {
                    let last = last.name.rsplit('@').next().unwrap_or_default();
                    names.push(format!("{}%{last}", first.name));
                }
                few => names.extend(few.iter().map(|version| version.name.clone())),
            }
        }
        names.truncate(NAMES_MAX);
        (names, found.len() as u64)
    }
}

/// Cuts damaged blocks, which are in order, where others begin to see them.
pub(super) fn pieces(engine: &Engine, versions: &Versions, list: &[Damage]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    for (number, batch) in list.chunks(BATCH).enumerate() {
        for stream in Stream::ALL {
            let mut cuts = Cuts::of(batch, stream, number * BATCH);
            if cuts.set.is_empty() {
                continue;
            }
            // What cannot be read of the sets is reported already. Versions that depend on it are not named.
            let state = engine.state();
            for (index, version) in versions.all.iter().enumerate() {
                let below = index as u32..versions.ends[index];
                let [owned, dead] = state.history.owned_and_dead_among(version.id, stream, &cuts.set);
                owned.runs().for_each(|span| cuts.note(&span, &below, true));
                dead.runs().for_each(|span| cuts.note(&span, &below, false));
            }
            drop(state);
            pieces.extend(cuts.into_pieces(stream));
        }
    }
    pieces
}

/// Blocks of one stream, cut wherever something begins or ends.
struct Cuts {
    set: BlockSet,
    parts: BTreeMap<LogAddress, Part>,
}

struct Part {
    end: LogAddress,
    damage: usize,
    /// Versions that begin to see it, and that see it no more, with everything below.
    events: Vec<(Range<u32>, bool)>,
}

impl Cuts {
    fn of(batch: &[Damage], stream: Stream, first: usize) -> Self {
        let of_stream = batch.iter().enumerate().filter(|(_, damage)| damage.run.stream == stream);
        let part = |(index, damage): (usize, &Damage)| {
            let part = Part { end: damage.run.end(), damage: first + index, events: Vec::new() };
            (damage.run.start, part)
        };
        let parts: BTreeMap<LogAddress, Part> = of_stream.map(part).collect();
        let set = parts.iter().map(|(start, part)| *start..part.end).collect();
        Self { set, parts }
    }

    fn note(&mut self, span: &Span, below: &Range<u32>, sees: bool) {
        self.cut(span.start);
        self.cut(span.end);
        for (_, part) in self.parts.range_mut(span.clone()) {
            part.events.push((below.clone(), sees));
        }
    }

    fn cut(&mut self, at: LogAddress) {
        let Some((_, part)) = self.parts.range_mut(..at).next_back() else { return };
        if part.end > at {
            let rest = Part { end: part.end, damage: part.damage, events: part.events.clone() };
            part.end = at;
            self.parts.insert(at, rest);
        }
    }

    fn into_pieces(self, stream: Stream) -> impl Iterator<Item = Piece> {
        self.parts.into_iter().map(move |(start, part)| {
            let run = Run { stream, start, length: BlockCount(part.end.0 - start.0) };
            Piece { run, damage: part.damage, seers: seers(part.events) }
        })
    }
}

/// What is left when everything has begun and ended. A version that sees a block no more lies below one that
/// began to.
fn seers(events: Vec<(Range<u32>, bool)>) -> Seers {
    let mut ranges: Seers = events.iter().filter(|(_, sees)| *sees).map(|(range, _)| range.clone()).collect();
    for (gone, _) in events.into_iter().filter(|(_, sees)| !sees) {
        let without = |range: Range<u32>| {
            let before = range.start..range.end.min(gone.start);
            let behind = range.start.max(gone.end)..range.end;
            [before, behind].into_iter().filter(|range| !range.is_empty())
        };
        ranges = ranges.into_iter().flat_map(without).collect();
    }
    ranges.sort_unstable_by_key(|range| range.start);
    let mut joined: Seers = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_and_ends_leaves_those_who_see_it() {
        let all = |events: &[(Range<u32>, bool)]| -> Vec<(u32, u32)> {
            seers(events.to_vec()).into_iter().map(|range| (range.start, range.end)).collect()
        };
        assert_eq!(all(&[(0..9, true)]), [(0, 9)]);
        assert_eq!(all(&[(0..9, true), (3..5, false), (7..9, false)]), [(0, 3), (5, 7)]);
        assert_eq!(all(&[(3..5, false), (2..6, true)]), [(2, 3), (5, 6)]);
        assert_eq!(all(&[(2..6, true), (2..6, false)]), []);
        assert_eq!(all(&[(4..6, true), (2..4, true)]), [(2, 6)]);
    }
}
