//! Putting sets into parts on disk: those of which much is in memory. Of what lies on disk, as much as
//! changes fall into is written anew.

use super::blocks::{BlockSet, Span};
use super::cold::Cold;
use super::part::{Part, PartRow, STRETCHES_MAX, encode_part, stretches};
use super::set::AddressSet;
use super::stored::{StoredHistory, StoredSets};
use super::streams::StreamSets;
use super::versions::History;
use crate::Result;
use crate::format::superblock::LedgerPointer;
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, SegmentId, VersionId};
use std::collections::{BTreeMap, BTreeSet};

/// Memory for changes, however little is allowed.
const CHANGE_BYTES_MIN: u64 = 8 << 10;
/// Runs of a part: it is read and decoded in some hundred microseconds.
const PART_RUNS: u64 = 1024;
const PART_RUNS_MIN: u64 = 4;
/// Where runs are closer to each other than this on average, a bitmap is shorter. So many addresses for each
/// run of a part go together: with the usual number of runs, a container of a bitmap.
const ADDRESSES_PER_RUN: u64 = 64;
/// Stretches of addresses that runs of a part touch, beside two for each run. A reader takes no chunk that
/// has too many.
const PART_STRETCHES: u64 = STRETCHES_MAX / 8;
/// A longer run is cut.
const RUN_ADDRESSES: u64 = PART_STRETCHES << 16;
/// Bytes of parts in a chunk: four blocks, with what it begins with.
const CHUNK_BYTES: u64 = 15 << 10;
const CHUNK_BYTES_MIN: u64 = 1 << 10;
/// Chunks that there should be room for in memory.
const CHUNKS_KEPT_MIN: u64 = 64;
/// A set of no more runs stays in memory, where there is room for a MiB. It takes hardly more than its row
/// would.
const LISTED_RUNS: usize = 8;
/// A chunk is written anew when less than this part of it is named.
const SPARSE_PART: u64 = 4;

/// How much of sets is kept in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetLimits {
    /// For chunks that were read: one is kept in any case.
    pub chunk_bytes: u64,
    /// For what is in no part, but for short sets: beyond that it is due to be written.
    pub change_bytes: u64,
    /// Nothing is written to parts, in a history that has none, as long as its sets take no more.
    pub first_bytes: u64,
    /// Runs of a part that is written.
    pub part_runs: usize,
    /// Bytes of parts in a chunk that is written.
    pub written_bytes: usize,
    /// A set of no more runs is not written to parts.
    pub listed_runs: usize,
}

impl SetLimits {
    /// Half of the memory for chunks, half for changes.
    pub fn of(bytes: u64) -> Self {
        let half = bytes / 2;
        let share = half / CHUNKS_KEPT_MIN;
        let is_tight = half < 1 << 20;
        Self {
            chunk_bytes: half,
            change_bytes: half.max(CHANGE_BYTES_MIN),
            first_bytes: if is_tight { 0 } else { half / 2 },
            part_runs: (share / 8).clamp(PART_RUNS_MIN, PART_RUNS) as usize,
            written_bytes: share.clamp(CHUNK_BYTES_MIN, CHUNK_BYTES) as usize,
            listed_runs: if is_tight { 0 } else { LISTED_RUNS },
        }
    }
}

impl Default for SetLimits {
    /// All of it in memory.
    fn default() -> Self {
        Self { change_bytes: u64::MAX, first_bytes: u64::MAX, ..Self::of(u64::MAX) }
    }
}

/// Where chunks of sets are read from and written to.
pub trait PartStore {
    /// Reads a part.
    /// At an error its set stays as it is.
    fn load(&mut self, row: &PartRow) -> Result<Part>;

    /// Writes these parts as a chunk.
    fn write(&mut self, parts: &[Vec<u8>]) -> Result<LedgerPointer>;

    /// Whether a segment is worth being emptied of chunks.
    fn is_thin(&self, segment: SegmentId) -> bool;
}

/// A row of a set as it will be.
enum Next {
    /// A part that stays.
    Kept(PartRow),
    /// A part of a chunk that is being written: which chunk, counted from the first.
    Fresh { chunk: usize, row: PartRow },
}

/// Gathers parts until they fill a chunk.
struct Packer<'a> {
    store: &'a mut dyn PartStore,
    written: &'a mut Vec<LedgerPointer>,
    parts: Vec<Vec<u8>>,
    bytes: usize,
    /// What the parts touch.
    stretches: u64,
    limits: SetLimits,
}

impl Packer<'_> {
    fn push(&mut self, spans: &[Span]) -> Result<Next> {
        let mut set: BlockSet = spans.iter().cloned().collect();
        set.optimize();
        let part = encode_part(&set);
        let row = PartRow {
            span: spans[0].start..spans[spans.len() - 1].end,
            count: set.len().0,
            place: LedgerPointer::default(),
            part: self.parts.len() as u32,
            bytes: part.len() as u32,
        };
        let next = Next::Fresh { chunk: self.written.len(), row };
        self.bytes += part.len();
        self.parts.push(part);
        self.stretches += spans.iter().map(stretches).sum::<u64>();
        if self.bytes >= self.limits.written_bytes || self.stretches >= STRETCHES_MAX / 2 {
            self.flush()?;
        }
        Ok(next)
    }

    fn flush(&mut self) -> Result<()> {
        if !self.parts.is_empty() {
            let place = self.store.write(&self.parts)?;
            self.written.push(place);
            self.parts.clear();
            (self.bytes, self.stretches) = (0, 0);
        }
        Ok(())
    }
}

/// How many of these runs, of which each fits, go into a part.
fn fitting(spans: &[Span], runs_max: usize) -> usize {
    let mut left = RUN_ADDRESSES;
    let fits = |span: &&Span| {
        let rest = left.checked_sub(span.end.0 - span.start.0);
        left = rest.unwrap_or(0);
        rest.is_some()
    };
    spans.iter().take(runs_max).take_while(fits).count()
}

/// A run in pieces that fit into a part.
fn pieces(span: Span) -> impl Iterator<Item = Span> {
    let mut start = span.start;
    std::iter::from_fn(move || {
        let end = span.end.min(start.plus(BlockCount(RUN_ADDRESSES)));
        let piece = start..end;
        start = end;
        (piece.start < piece.end).then_some(piece)
    })
}

/// Why a set is not written anew.
enum Stopped {
    /// A part of it cannot be read: it stays as it is.
    Unread,
    /// Nothing more can be written.
    Failed(crate::Error),
}

/// A set that is being written anew.
struct Sweep<'a, 'b> {
    packer: &'a mut Packer<'b>,
    hot: &'a BlockSet,
    /// In order: nothing that comes later has a lower address than what was cut off.
    pending: BlockSet,
    out: Vec<Next>,
}

impl Sweep<'_, '_> {
    /// Writes an address set anew where it changed, or where its rows say that it is worth it.
    fn over(
        mut self,
        cold: &Cold,
        worth: &dyn Fn(&PartRow) -> bool,
    ) -> std::result::Result<Vec<Next>, Stopped> {
        let rows = cold.rows();
        let limits = self.packer.limits;
        let start_of = |index: usize| rows.get(index).map_or(LogAddress(u64::MAX), |row| row.span.start);
        self.gather(LogAddress(0)..start_of(0))?;
        let is_entangled = cold.is_entangled();
        let mut reach = LogAddress(0);
        for (index, row) in rows.iter().enumerate() {
            let next = start_of(index + 1);
            let overlaps = is_entangled && (row.span.start < reach || next < row.span.end);
            let changed = cold.removed().count(&row.span).0 > 0 || self.hot.count(&row.span).0 > 0;
            let small = row.bytes as usize <= limits.part_runs;
            let joins =
                small && !self.pending.is_empty() && self.pending.runs().count() * 2 <= limits.part_runs;
            reach = reach.max(row.span.end);
            if overlaps || changed || joins || worth(row) {
                let part = self.packer.store.load(row).map_err(|_| Stopped::Unread)?;
                let mut content = BlockSet::clone(&part);
                content.subtract(cold.removed());
                self.pending.unite(content);
            } else {
                self.cut(row.span.start, 0)?;
                self.out.push(Next::Kept(row.clone()));
            }
            self.gather(row.span.start..next)?;
            self.cut(next, limits.part_runs)?;
        }
        self.cut(LogAddress(u64::MAX), 0)?;
        Ok(self.out)
    }

    /// Adds what is in memory within a span.
    fn gather(&mut self, span: Span) -> std::result::Result<(), Stopped> {
        let together = 2 * self.packer.limits.part_runs;
        for (index, run) in self.hot.runs_within(&span).enumerate() {
            let end = run.end;
            self.pending.insert(run);
            if index % together == together - 1 {
                self.cut(end, together)?;
            }
        }
        Ok(())
    }

    /// Makes parts of what is pending below `frontier`, until no more than so many runs are left.
    fn cut(&mut self, frontier: LogAddress, left: usize) -> std::result::Result<(), Stopped> {
        let spans: Vec<Span> =
            self.pending.runs_within(&(LogAddress(0)..frontier)).flat_map(pieces).collect();
        let together = self.packer.limits.part_runs as u64 * ADDRESSES_PER_RUN;
        let container = |index: usize| spans[index].start.0 / together;
        let mut first = 0;
        while spans.len() - first > left {
            let mut end = first + fitting(&spans[first..], self.packer.limits.part_runs);
            // A bitmap takes the same for all of a container.
            while end < spans.len() && container(end) == container(first) {
                end += 1;
            }
            let next = self.packer.push(&spans[first..end]).map_err(Stopped::Failed)?;
            self.out.push(next);
            first = end;
        }
        if first > 0 {
            self.pending.remove(&(LogAddress(0)..spans[first - 1].end));
        }
        Ok(())
    }
}

/// Chunks of which little is named any more, if there are several: what is left of them would fit into fewer.
fn sparse_chunks(history: &StoredHistory) -> BTreeSet<(SegmentId, u32)> {
    let mut named: BTreeMap<(SegmentId, u32), (u64, u64)> = BTreeMap::new();
    for row in history.rows() {
        let place = named.entry((row.place.segment, row.place.slot.0)).or_default();
        place.0 += u64::from(row.bytes);
        place.1 = u64::from(row.place.blocks) * BLOCK_BYTES as u64;
    }
    let sparse: BTreeSet<_> =
        named.into_iter().filter(|(_, (used, all))| used * SPARSE_PART < *all).map(|(at, _)| at).collect();
    if sparse.len() > 1 { sparse } else { BTreeSet::new() }
}

impl StoredHistory {
    /// The parts of all sets.
    pub fn rows(&self) -> impl Iterator<Item = &PartRow> {
        self.versions.values().flat_map(|version| version.sets.both()).flat_map(AddressSet::rows)
    }

    /// Writes what is in memory of large sets to parts, and answers of which versions. What it takes of
    /// memory is a few chunks. At an error the history stays as it is, and `written` has chunks that no set
    /// needs.
    pub fn consolidate(
        &mut self,
        limits: &SetLimits,
        store: &mut dyn PartStore,
        written: &mut Vec<LedgerPointer>,
    ) -> Result<BTreeSet<VersionId>> {
        let heavy: u64 =
            self.versions.values().flat_map(|one| one.sets.both()).map(|set| set.heavy(limits)).sum();
        if heavy <= limits.first_bytes && self.rows().next().is_none() {
            return Ok(BTreeSet::new());
        }
        let sparse = sparse_chunks(self);
        let segments: BTreeSet<SegmentId> = self.rows().map(|row| row.place.segment).collect();
        let thin: BTreeSet<SegmentId> =
            segments.into_iter().filter(|segment| store.is_thin(*segment)).collect();
        let worth = |row: &PartRow| {
            thin.contains(&row.place.segment) || sparse.contains(&(row.place.segment, row.place.slot.0))
        };
        let mut packer =
            Packer { store, written, parts: Vec::new(), bytes: 0, stretches: 0, limits: *limits };
        let mut outcome: Vec<(VersionId, usize, Vec<Next>)> = Vec::new();
        let nothing = Cold::default();
        for (id, version) in &self.versions {
            for (index, set) in version.sets.both().enumerate() {
                let cold = set.cold().unwrap_or(&nothing);
                if set.heavy(limits) == 0
                    && !cold.rows().iter().any(worth)
                    && !cold.is_entangled()
                    && !cold.is_worn()
                {
                    continue;
                }
                let sweep = Sweep {
                    packer: &mut packer,
                    hot: set.at_hand(),
                    pending: BlockSet::new(),
                    out: Vec::new(),
                };
                match sweep.over(cold, &worth) {
                    Ok(rows) => outcome.push((*id, index, rows)),
                    Err(Stopped::Unread) => {}
                    Err(Stopped::Failed(error)) => return Err(error),
                }
            }
        }
        packer.flush()?;
        let changed = outcome.iter().map(|(id, ..)| *id).collect();
        for (id, index, rows) in outcome {
            let rows = rows.into_iter().map(|next| match next {
                Next::Kept(row) => row,
                Next::Fresh { chunk, row } => PartRow { place: written[chunk], ..row },
            });
            let sets = &mut self.versions.get_mut(&id).expect("it is there").sets;
            *sets.both_mut().nth(index).expect("there are as many") = AddressSet::of_parts(rows.collect());
        }
        Ok(changed)
    }

    /// The sets of every version, for [`History::go_on_with`].
    pub fn bases(&self) -> BTreeMap<VersionId, StoredSets> {
        self.versions.iter().map(|(id, version)| (*id, version.sets.clone())).collect()
    }
}

impl History {
    /// The sets as of the last call of [`History::take_changes`] are these, those of `changed` in other
    /// parts. Beside them, only what changed since is kept.
    pub fn go_on_with(&mut self, bases: &BTreeMap<VersionId, StoredSets>, changed: &BTreeSet<VersionId>) {
        let limits = self.limits;
        for node in self.versions.values_mut() {
            if !node.sources.iter().any(|id| changed.contains(id)) {
                continue;
            }
            let sources: Vec<&StoredSets> = node.sources.iter().filter_map(|id| bases.get(id)).collect();
            node.owned.rebase(sources.iter().map(|sets| &sets.owned));
            node.dead.rebase(sources.iter().map(|sets| &sets.dead));
            self.heavy -= node.heavy;
            node.weigh(&limits);
            self.heavy += node.heavy;
        }
    }

    /// The parts of all sets.
    pub fn rows(&self) -> impl Iterator<Item = &PartRow> {
        let sets = self.versions.values().flat_map(|node| [&node.owned, &node.dead]);
        sets.flat_map(StreamSets::all).flat_map(AddressSet::rows)
    }
}
