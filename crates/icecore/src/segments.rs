//! Which segments there are, what each is used for, and how many live blocks it holds.

use crate::copies::Aside;
use crate::format::segment::{Geometry, SegmentKind};
use crate::units::{ByteLength, RecordSequence, RecoveryEpoch, SegmentId, Slot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where the next block goes in a segment that is being filled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Cursor {
    pub segment: SegmentId,
    pub incarnation: u64,
    pub slot: Slot,
}

#[derive(Clone, Debug)]
struct SegmentState {
    /// `None` when it is free.
    kind: Option<SegmentKind>,
    /// Live blocks in it.
    live: u64,
    /// Log segments: the last record in it, once it is full.
    last_record: Option<RecordSequence>,
    /// Being filled, or referred to by something that is not counted in `live`.
    users: u32,
    /// Name and length are durable. A process that ended without closing the pool may have left a file of
    /// which that is not known.
    certain: bool,
    /// All of it was written at least once: a flush need not wait for the filesystem.
    written: bool,
    /// When it was taken for this use, or became free, on the clock of segments taken.
    taken: u64,
    /// How often its blocks were moved before.
    moves: u8,
    /// A block in it does not match its checksum, or cannot be read: it is left as it is.
    corrupt: bool,
    /// Its file is missing or cut short. It is held for this life, so that nothing is written to it.
    absent: bool,
}

impl SegmentState {
    /// Free, and no user holds it: one that is being written ahead cannot be taken.
    fn is_available(&self) -> bool {
        self.kind.is_none() && self.users == 0
    }

    /// In use, and it may be emptied or become free by itself. Nothing says what lives in a segment that a
    /// user holds, such as a group that is not committed.
    fn is_unheld(&self) -> bool {
        self.kind.is_some() && self.users == 0 && !self.corrupt
    }
}

/// Sums over all segments, which operations ask for all the time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Sums {
    /// Segments that are available.
    free: usize,
    /// Those of them that were written before.
    free_written: usize,
    /// Segments in use that may be emptied or become free by themselves.
    unheld: u64,
    /// Live blocks in these.
    unheld_live: u64,
    /// Live blocks in all segments.
    live: u64,
}

impl Sums {
    fn add(&mut self, state: &SegmentState) {
        self.free += usize::from(state.is_available());
        self.free_written += usize::from(state.is_available() && state.written);
        self.unheld += u64::from(state.is_unheld());
        self.unheld_live += if state.is_unheld() { state.live } else { 0 };
        self.live += state.live;
    }

    fn subtract(&mut self, state: &SegmentState) {
        self.free -= usize::from(state.is_available());
        self.free_written -= usize::from(state.is_available() && state.written);
        self.unheld -= u64::from(state.is_unheld());
        self.unheld_live -= if state.is_unheld() { state.live } else { 0 };
        self.live -= state.live;
    }
}

/// A segment that could be emptied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub segment: SegmentId,
    pub kind: SegmentKind,
    /// Live blocks in it.
    pub live: u64,
    /// Blocks that it has room for.
    pub capacity: u64,
    /// Segments taken since it was.
    pub age: u64,
    /// How often its blocks were moved before.
    pub moves: u8,
}

/// The table of segments.
pub(crate) struct Segments {
    geometry: Geometry,
    size_limit: u64,
    /// What second copies take of the size limit.
    aside: Arc<Aside>,
    epoch: RecoveryEpoch,
    uses: u64,
    /// The clock by which segments age.
    takes: u64,
    table: BTreeMap<SegmentId, SegmentState>,
    sums: Sums,
}

impl Segments {
    pub(crate) fn new(geometry: Geometry, size_limit: u64, epoch: RecoveryEpoch) -> Self {
        Self {
            geometry,
            size_limit,
            aside: Arc::default(),
            epoch,
            uses: 0,
            takes: 0,
            table: BTreeMap::new(),
            sums: Sums::default(),
        }
    }

    /// Changes what a segment is, and the sums with it.
    fn change(&mut self, segment: SegmentId, how: impl FnOnce(&mut SegmentState)) {
        let state = self.table.get_mut(&segment).expect("the segment exists");
        self.sums.subtract(state);
        how(state);
        self.sums.add(state);
    }

    /// Second copies count in the size limit from here on.
    pub(crate) fn share(&mut self, aside: &Arc<Aside>) {
        self.aside = Arc::clone(aside);
        self.aside.limit(self.size_limit / self.geometry.bytes, self.table.len() as u64);
    }

    /// Most bytes of all files together, if there is a limit.
    pub(crate) fn size_limit(&self) -> Option<ByteLength> {
        Some(ByteLength(self.size_limit)).filter(|limit| limit.0 != 0)
    }

    /// Changes the limit: segments that there are stay.
    pub(crate) fn set_size_limit(&mut self, limit: Option<ByteLength>) {
        self.size_limit = limit.map_or(0, ByteLength::get);
        self.aside.limit(self.size_limit / self.geometry.bytes, self.table.len() as u64);
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Number of segments.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Number of free segments that no user holds.
    pub(crate) fn free(&self) -> usize {
        self.sums.free
    }

    /// Free segments that no user holds and that were written before.
    pub(crate) fn free_written(&self) -> usize {
        self.sums.free_written
    }

    /// A free segment that was never written.
    pub(crate) fn free_unwritten(&self) -> Option<SegmentId> {
        let found = self.table.iter().find(|(_, state)| state.is_available() && !state.written);
        found.map(|(segment, _)| *segment)
    }

    /// The number for one more segment; `None` when the size limit forbids it.
    pub(crate) fn next_new(&self) -> Option<SegmentId> {
        if self.creatable() == 0 {
            return None;
        }
        // Gaps are filled first, so that numbers stay dense.
        let gap = self.table.keys().enumerate().find(|(index, segment)| *index as u32 != segment.0);
        Some(SegmentId(gap.map_or(self.table.len() as u32, |(index, _)| index as u32)))
    }

    /// Segments that the size limit still allows to be made.
    pub(crate) fn creatable(&self) -> u64 {
        self.allowed().map_or(u64::MAX, |most| most.saturating_sub(self.table.len() as u64))
    }

    /// Segments that there may be by the size limit, or that there are if there is none.
    pub(crate) fn most(&self) -> u64 {
        self.allowed().unwrap_or(self.table.len() as u64)
    }

    fn allowed(&self) -> Option<u64> {
        (self.size_limit > 0).then(|| self.aside.segments_max(self.size_limit / self.geometry.bytes))
    }

    /// Whether one more copy leaves as many segments to be made as there are.
    pub(crate) fn copy_takes_nothing(&self) -> bool {
        self.aside.takes_nothing(self.size_limit / self.geometry.bytes)
    }

    /// A segment file exists; it is free until something is known to be in it. `certain`: as that its name
    /// and length survive a crash.
    pub(crate) fn add_free(&mut self, segment: SegmentId, written: bool, certain: bool) {
        let state = SegmentState {
            kind: None,
            live: 0,
            last_record: None,
            users: 0,
            certain,
            written,
            taken: 0,
            moves: 0,
            corrupt: false,
            absent: false,
        };
        self.sums.add(&state);
        match self.table.insert(segment, state) {
            Some(former) => self.sums.subtract(&former),
            None => self.aside.segment_made(),
        }
    }

    /// Something is said to lie in a segment of which the file is missing or cut short. What can still be
    /// read there counts, and the segment is used for nothing else in this life.
    pub(crate) fn add_absent(&mut self, segment: SegmentId, kind: SegmentKind) {
        assert!(!self.exists(segment), "a segment that is there is not absent");
        self.add_free(segment, true, true);
        self.use_as(segment, kind);
        self.hold(segment);
        self.change(segment, |state| (state.corrupt, state.absent) = (true, true));
    }

    /// Whether something is said to lie in a segment of which the file is missing or cut short.
    pub(crate) fn is_absent(&self, segment: SegmentId) -> bool {
        self.table.get(&segment).is_some_and(|state| state.absent)
    }

    /// Segments of which the file is missing or cut short.
    pub(crate) fn absent(&self) -> Vec<SegmentId> {
        self.table.iter().filter(|(_, state)| state.absent).map(|(segment, _)| *segment).collect()
    }

    /// A use number that no other use has, in this life or another.
    pub(crate) fn next_incarnation(&mut self) -> u64 {
        self.uses += 1;
        self.epoch.0 << 32 | self.uses
    }

    /// The clock of segments taken, for [`Segments::was_taken_after`].
    pub(crate) fn takes(&self) -> u64 {
        self.takes
    }

    /// Whether a segment was taken for the use that it is in after the clock showed this.
    pub(crate) fn was_taken_after(&self, segment: SegmentId, takes: u64) -> bool {
        self.table.get(&segment).is_some_and(|state| state.taken > takes)
    }

    /// The last use number that was given out.
    pub(crate) fn last_incarnation(&self) -> u64 {
        self.epoch.0 << 32 | self.uses
    }

    /// What lives where was counted anew.
    pub(crate) fn recount(&mut self, live: &BTreeMap<SegmentId, (u64, SegmentKind)>) {
        for segment in self.all() {
            let found = live.get(&segment).copied();
            if let Some((_, kind)) = found.filter(|_| self.kind(segment).is_none()) {
                self.use_as(segment, kind);
            }
            self.change(segment, |state| state.live = found.map_or(0, |(live, _)| live));
        }
    }

    /// Takes a free segment, for the log one that was written before if there is one.
    pub(crate) fn take(&mut self, kind: SegmentKind) -> Option<SegmentId> {
        let wants_written = kind == SegmentKind::Log;
        let free = || self.table.iter().filter(|(_, state)| state.is_available());
        // What the checkpoint before the newest one needs stays as it is for as long as there is something
        // else.
        let oldest = |(_, state): &(&SegmentId, &SegmentState)| state.taken;
        let best = free().filter(|(_, state)| state.written == wants_written).min_by_key(oldest);
        let segment = *best.or_else(|| free().min_by_key(oldest))?.0;
        self.use_as(segment, kind);
        self.takes += 1;
        let takes = self.takes;
        self.change(segment, |state| (state.taken, state.moves, state.corrupt) = (takes, 0, false));
        self.hold(segment);
        Some(segment)
    }

    /// Holds so many free segments, those first that were never written, and of high numbers.
    pub(crate) fn hold_free(&mut self, count: usize) -> Vec<SegmentId> {
        let mut free: Vec<(bool, SegmentId)> = self
            .table
            .iter()
            .rev()
            .filter(|(_, state)| state.is_available())
            .map(|(segment, state)| (state.written, *segment))
            .collect();
        free.sort_by_key(|(written, _)| *written);
        let chosen: Vec<SegmentId> = free.into_iter().take(count).map(|(_, segment)| segment).collect();
        chosen.iter().for_each(|segment| self.hold(*segment));
        chosen
    }

    /// A free segment that is held has no file any more: there is no such segment.
    pub(crate) fn remove(&mut self, segment: SegmentId) {
        let state = self.table.remove(&segment).expect("the segment exists");
        assert!(state.kind.is_none() && state.users == 1 && state.live == 0, "{segment:?} is in use");
        self.aside.segment_removed();
    }

    /// Notes what a segment is used for. Replay and recovery call this for segments found in use.
    pub(crate) fn use_as(&mut self, segment: SegmentId, kind: SegmentKind) {
        self.change(segment, |state| {
            state.kind = Some(kind);
            state.last_record = None;
        });
    }

    /// Makes a segment free that nothing lies in and that has no user; `false` if it is missing or in use.
    pub(crate) fn give_up(&mut self, segment: SegmentId) -> bool {
        let empty = |state: &SegmentState| state.live == 0 && state.users == 0;
        if !self.table.get(&segment).is_some_and(empty) {
            return false;
        }
        self.change(segment, |state| {
            state.kind = None;
            state.last_record = None;
        });
        true
    }

    /// What a segment is used for; `None` if it is free or does not exist.
    pub(crate) fn kind(&self, segment: SegmentId) -> Option<SegmentKind> {
        self.table.get(&segment).and_then(|state| state.kind)
    }

    /// Whether there is such a segment.
    pub(crate) fn exists(&self, segment: SegmentId) -> bool {
        self.table.contains_key(&segment)
    }

    /// All segments.
    pub(crate) fn all(&self) -> Vec<SegmentId> {
        self.table.keys().copied().collect()
    }

    /// The segment must not be freed until `let_go`.
    pub(crate) fn hold(&mut self, segment: SegmentId) {
        self.change(segment, |state| state.users += 1);
    }

    /// Undoes one `hold`.
    pub(crate) fn let_go(&mut self, segment: SegmentId) {
        self.change(segment, |state| state.users = state.users.checked_sub(1).expect("held before"));
    }

    /// A log segment is full; its last record has this number.
    pub(crate) fn filled(&mut self, segment: SegmentId, last: RecordSequence) {
        self.change(segment, |state| {
            state.last_record = Some(last);
            state.written = true;
        });
    }

    /// Whether the file must be flushed before the segment is used: true once at most.
    pub(crate) fn make_certain(&mut self, segment: SegmentId) -> bool {
        self.table.get_mut(&segment).is_some_and(|state| !std::mem::replace(&mut state.certain, true))
    }

    /// Every block of the segment has been written at least once.
    pub(crate) fn mark_written(&mut self, segment: SegmentId) {
        if self.exists(segment) {
            self.change(segment, |state| state.written = true);
        }
    }

    /// More live blocks lie in a segment.
    pub(crate) fn add_live(&mut self, segment: SegmentId, blocks: u64) {
        self.change(segment, |state| state.live += blocks);
    }

    /// Fewer live blocks lie in a segment.
    pub(crate) fn remove_live(&mut self, segment: SegmentId, blocks: u64) {
        self.change(segment, |state| {
            state.live = state.live.checked_sub(blocks).expect("no more blocks die than live");
        });
    }

    /// Segments that blocks could be moved out of: they have no user, no replay from `replay_from` reads
    /// them, and something lives in them.
    pub(crate) fn candidates(&self, replay_from: RecordSequence) -> impl Iterator<Item = Candidate> {
        self.table.iter().filter_map(move |(segment, state)| {
            let kind = state.kind.filter(|kind| *kind != SegmentKind::Ledger)?;
            let needed = state.last_record.is_some_and(|last| last >= replay_from);
            let eligible = state.users == 0 && state.live > 0 && !needed && !state.corrupt;
            eligible.then(|| Candidate {
                segment: *segment,
                kind,
                live: state.live,
                capacity: u64::from(self.geometry.end(kind).0) - 1,
                age: 1 + self.takes - state.taken,
                moves: state.moves,
            })
        })
    }

    /// Blocks that were moved, so often, lie in a segment now.
    pub(crate) fn moved_into(&mut self, segment: SegmentId, moves: u8) {
        let state = self.table.get_mut(&segment).expect("the segment exists");
        state.moves = state.moves.max(moves);
    }

    /// A block of a segment cannot be moved, because it is not what was written.
    pub(crate) fn mark_corrupt(&mut self, segment: SegmentId) {
        if self.exists(segment) {
            self.change(segment, |state| state.corrupt = true);
        }
    }

    /// Segments that are not emptied because of what they hold.
    pub(crate) fn corrupt(&self) -> usize {
        self.table.values().filter(|state| state.corrupt && state.kind.is_some()).count()
    }

    /// Live blocks in a segment; none if it does not exist.
    pub(crate) fn live(&self, segment: SegmentId) -> u64 {
        self.table.get(&segment).map_or(0, |state| state.live)
    }

    /// Segments that are in use and may be emptied or become free by themselves, and the live blocks in them.
    pub(crate) fn unheld(&self) -> (u64, u64) {
        (self.sums.unheld, self.sums.unheld_live)
    }

    /// Live blocks in all segments.
    pub(crate) fn live_total(&self) -> u64 {
        self.sums.live
    }

    /// Frees the segments that hold nothing live, nothing that a replay from `replay_from` needs, and that
    /// have no user; returns them.
    pub(crate) fn release(&mut self, replay_from: RecordSequence) -> Vec<SegmentId> {
        let mut released = Vec::new();
        let (mut found, mut sums) = (Sums::default(), Sums::default());
        for (segment, state) in &mut self.table {
            found.add(state);
            let needed = state.last_record.is_some_and(|last| last >= replay_from);
            if state.kind.is_some() && state.live == 0 && state.users == 0 && !needed {
                state.kind = None;
                state.last_record = None;
                state.taken = self.takes;
                released.push(*segment);
            }
            sums.add(state);
        }
        assert_eq!(found, self.sums, "segments or live blocks were miscounted");
        self.sums = sums;
        released
    }
}
