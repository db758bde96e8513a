//! What the log says happened since the last checkpoint, and the files that a crash left half made.

use super::absent;
use super::checkpoint::CheckpointLine;
use super::cut::{Cut, LEFT_BEHIND};
use super::init::Parts;
use super::load::Loaded;
use crate::blocks::Use;
use crate::error::{Error, Result};
use crate::format::drawn::STEP;
use crate::format::segment::{Geometry, SegmentKind, file_name, from_file_name};
use crate::format::superblock::Superblock;
use crate::liveness::BlockSet;
use crate::log::replay::{Found, Reader, Waiting, Whole, spilled_blocks};
use crate::log::tail::{Position, Tail};
use crate::operation::Operation;
use crate::segments::Segments;
use crate::state::{Environment, Placement, State};
use crate::storage::{Kind, Storage};
use crate::units::{
    BlockCount, LOG_ADDRESS_LIMIT, LogAddress, Marks, RecordSequence, RecoveryEpoch, SegmentId, Slot,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A state brought back, and what goes with it.
pub(super) struct Recovered {
    pub state: State,
    pub line: CheckpointLine,
    /// Hash of the last record header.
    pub previous: [u8; 16],
    /// Records replayed.
    pub replayed: u64,
    /// If the log was damaged before its end, and ends there now.
    pub cut: Option<Cut>,
}

/// Finds the segment files. Files that a crash left half made are not of the right size.
pub(super) fn segments(
    storage: &dyn Storage,
    superblock: &Superblock,
    epoch: RecoveryEpoch,
) -> Result<Segments> {
    let geometry = Geometry { bytes: superblock.segment_bytes };
    let mut segments = Segments::new(geometry, superblock.size_limit, epoch);
    let files = storage.list().map_err(|error| Error::io("list", storage.describe(), error))?;
    for (name, length) in files {
        if let Some(segment) = from_file_name(&name)
            && length >= superblock.segment_bytes
        {
            segments.add_free(segment, false, superblock.clean);
        }
    }
    Ok(segments)
}

/// The segments of all files, also those that are cut short. Their numbers are taken, and what is lost may
/// lie in them.
pub(super) fn all_files(storage: &dyn Storage) -> Result<Vec<SegmentId>> {
    let files = storage.list().map_err(|error| Error::io("list", storage.describe(), error))?;
    Ok(files.iter().filter_map(|(name, _)| from_file_name(name)).collect())
}

/// Removes segment files that a crash left half made.
pub(super) fn remove_half_made(
    storage: &dyn Storage,
    superblock: &Superblock,
    segments: &Segments,
) -> Result<()> {
    let files = storage.list().map_err(|error| Error::io("list", storage.describe(), error))?;
    for (name, length) in files {
        let half_made = from_file_name(&name).is_some_and(|segment| !segments.exists(segment));
        if half_made && length < superblock.segment_bytes || absent::is_half_made(&name) {
            storage.remove(&name).map_err(|error| Error::io("remove", &name, error))?;
        }
    }
    Ok(())
}

/// What a replay does where the log is damaged before its end.
pub(super) enum AtDamage {
    /// It fails, and says so.
    Refuse,
    /// It ends there.
    Cut(Gone),
}

/// What is known to be gone of a log that is to be cut.
#[derive(Default)]
pub(super) struct Gone {
    /// The files of these segments were cut short or missing, and were made again as far as possible.
    pub segments: BTreeSet<SegmentId>,
    /// Segments that stand for those that are gone, with these.
    stand_ins: BTreeMap<SegmentId, SegmentId>,
    /// The last checkpoint relies on more of the log than there is, wherever it seems to end.
    pub is_short: bool,
}

impl Gone {
    pub(super) fn of(segments: BTreeSet<SegmentId>, is_short: bool) -> Self {
        Self { segments, is_short, ..Self::default() }
    }

    /// The segment that is gone, if this is it or stands for it.
    fn find(&self, segment: SegmentId) -> Option<SegmentId> {
        let is_gone = self.segments.contains(&segment).then_some(segment);
        is_gone.or_else(|| self.stand_ins.get(&segment).copied())
    }
}

impl AtDamage {
    /// What is wrong with a log that shows no damage.
    fn doubt(&self) -> Option<Error> {
        let is_short = matches!(self, Self::Cut(gone) if gone.is_short);
        is_short.then(|| Error::damaged("the log", "the last checkpoint relies on more of it than there is"))
    }

    /// The log was to go on in `lost`, which is gone, and goes on in `segment`.
    pub(super) fn made_up(&mut self, segment: SegmentId, lost: SegmentId) {
        if let Self::Cut(gone) = self {
            gone.stand_ins.insert(segment, lost);
        }
    }
}

/// Replays the log since the checkpoint, and makes what was found durable.
pub(super) fn replay(
    loaded: Loaded,
    parts: &Parts,
    superblock: &Superblock,
    at_damage: AtDamage,
) -> Result<Recovered> {
    let Loaded { state, line, previous, forsaken } = loaded;
    let (blocks, counters) = (&*parts.blocks, &*parts.counters);
    let start = state.tail.position();
    // Replay reads what it replays: checksums of segments that are not sealed come from their records.
    let use_ = Use { kind: SegmentKind::Log, incarnation: start.incarnation };
    blocks.sums().reopen(start.segment, use_, start.slot, blocks.files())?;
    let mut reader = Reader::new(blocks, counters, superblock.pool, &superblock.lives, start, previous);
    let gives_up = matches!(at_damage, AtDamage::Cut(_));
    let mut replay = Replay {
        touched: BTreeMap::from([(start.segment, start.incarnation)]),
        staged: BTreeSet::new(),
        is_clean: superblock.clean,
        doubt: at_damage.doubt(),
        at_damage,
        env: Environment { blocks, nodes: &*parts.nodes, is_replay: true, gives_up, patched: &[] },
        state,
        end: (start, previous),
        replayed: 0,
        gap: LogAddress(0)..LogAddress(0),
    };
    let mut waiting = Waiting::default();
    let stopped = replay.follow(&mut reader, &mut waiting)?;
    let stopped = match (&replay.at_damage, stopped) {
        (AtDamage::Refuse, Some(error)) => return Err(error),
        (_, stopped) => stopped,
    };
    while let Some((step, whole)) = take_whole(&mut waiting, &reader)? {
        replay.write_again(&mut reader, &step, &whole)?;
        replay.apply_step(&reader, step)?;
    }
    let cut = replay.cut(stopped, superblock)?;
    if cut.is_none() && !superblock.clean {
        replay.leave_out(left_out(superblock, replay.end.0.sequence))?;
    }
    reader.heal(replay.end.0.sequence);
    replay.settle(superblock)?;
    let (end, previous) = replay.end;
    let mut state = replay.state;
    find_dead(&mut state, &forsaken)?;
    state.tail = Tail::new(blocks.files().geometry(), end);
    Ok(Recovered { state, line, previous, replayed: replay.replayed, cut })
}

/// Addresses that the beginning life leaves out. They are more than the lives before it, each with addresses
/// of its own, can have given to what a crash tore off. Records that came after something torn off may be
/// there whole, with their segment's header. Where nothing but headers says where blocks lie, what has their
/// addresses now must be distinguishable from them.
fn left_out(superblock: &Superblock, next: RecordSequence) -> BlockCount {
    let wrote_last = superblock.lives.iter().rev().find(|life| life.first < next);
    let known = wrote_last.map_or(0, |life| life.epoch.0);
    BlockCount((superblock.next_epoch().0 - known).saturating_mul(STEP))
}

/// What is damaged where the superblocks are not those that were written last.
pub(crate) const OUTLIVED: &str = "the superblock";

/// Nothing may come after the end of the log that later superblocks knew of.
fn check_newest(reader: &mut Reader<'_>) -> Result<()> {
    if !reader.is_outlived()? {
        return Ok(());
    }
    let detail = "it is not the one that was written last: the log goes on with what was written after it";
    Err(Error::damaged(OUTLIVED, detail))
}

/// The same where the log is not replayed: of a pool that was closed, by what its superblock says.
pub(super) fn check_closed(loaded: &Loaded, parts: &Parts, superblock: &Superblock) -> Result<()> {
    let start = loaded.state.tail.position();
    if loaded.state.segments.is_absent(start.segment) || !superblock.clean {
        return Ok(());
    }
    let (blocks, counters) = (&*parts.blocks, &*parts.counters);
    let mut reader =
        Reader::new(blocks, counters, superblock.pool, &superblock.lives, start, loaded.previous);
    match check_newest(&mut reader) {
        // A writer that goes on there meets what cannot be read.
        Err(Error::Io { .. }) => Ok(()),
        outcome => outcome,
    }
}

/// What a ledger calls forsaken died by what was replayed; otherwise it lives at an unknown place.
fn find_dead(state: &mut State, forsaken: &BlockSet) -> Result<()> {
    // There are no readers yet.
    state.graveyard.sift();
    if state.graveyard.forsake(forsaken) == forsaken.len() {
        return Ok(());
    }
    Err(Error::damaged(LEFT_BEHIND, "the log does not say that it is dead"))
}

/// Above the last mark a record counts only if it arrived whole. Takes the next step of which that is true,
/// with the bytes of each record.
fn take_whole(waiting: &mut Waiting, reader: &Reader<'_>) -> Result<Option<(Vec<Found>, Vec<Whole>)>> {
    let mut failure = None;
    let mut all = Vec::new();
    let step = waiting.take_if(|found| match reader.whole(found) {
        Ok(whole) => whole.map(|whole| all.push(whole)).is_some(),
        Err(error) => {
            failure = Some(error);
            false
        }
    });
    match failure {
        Some(error) => Err(error),
        None => Ok(step.map(|step| (step, all))),
    }
}

/// A replay on its way.
pub(super) struct Replay<'a> {
    pub(super) env: Environment<'a>,
    pub(super) state: State,
    /// Log segments that may hold what was never flushed, each with its use.
    pub(super) touched: BTreeMap<SegmentId, u64>,
    /// Segments with runs that the log refers to.
    pub(super) staged: BTreeSet<SegmentId>,
    is_clean: bool,
    pub(super) at_damage: AtDamage,
    /// Why there may be less of the log than there was, though each record follows the one before.
    pub(super) doubt: Option<Error>,
    /// Where the log ends, after what was applied so far, and the hash to go on from.
    pub(super) end: (Position, [u8; 16]),
    pub(super) replayed: u64,
    /// Addresses that were given to staged runs, whose operations follow.
    gap: Range<LogAddress>,
}

impl Replay<'_> {
    /// Follows the log to its end, or to where it is damaged: why, then.
    fn follow(&mut self, reader: &mut Reader<'_>, waiting: &mut Waiting) -> Result<Option<Error>> {
        let there = self.check_there(self.end.0.segment).and_then(|()| self.check_use(reader));
        if let Err(error) = there {
            return Ok(Some(error));
        }
        loop {
            let next = reader.next().and_then(|found| match found {
                Some(found) => Ok(Some(found)),
                // A clean close says where the log ends. Otherwise a torn tail must be distinguished from
                // damage.
                None if self.is_clean => Ok(None),
                None => self.past_damage(reader),
            });
            let found = match next {
                Ok(Some(found)) => found,
                Ok(None) => return check_newest(reader).map(|()| None),
                Err(error) => return Ok(Some(error)),
            };
            let stopped = self.take(reader, waiting, found)?;
            if stopped.is_some() {
                return Ok(stopped);
            }
        }
    }

    /// The next record from its copy; `None` where the log just ends.
    ///
    /// # Errors
    /// There is none, and it was durable once.
    fn past_damage(&self, reader: &mut Reader<'_>) -> Result<Option<Found>> {
        if let Some(found) = reader.next_from_copy() {
            return Ok(Some(found));
        }
        let segments = &self.state.segments;
        let others = segments.all().into_iter().map(|segment| (segment, segments.kind(segment).is_some()));
        let Some(witness) = reader.witness(others)? else { return Ok(None) };
        let Position { segment, slot, sequence, .. } = reader.next;
        let detail = format!("log record {sequence} is not valid, although {witness} says it was durable");
        Err(self.env.blocks.files().geometry().damaged(segment, slot, detail))
    }

    /// Goes on with the next record of the chain, and applies what it says to have been durable. Answers why
    /// that is not possible, if damage is the reason.
    fn take(
        &mut self,
        reader: &mut Reader<'_>,
        waiting: &mut Waiting,
        found: Found,
    ) -> Result<Option<Error>> {
        let durable = found.view.header.durable;
        let switch = match self.peek_switch(reader, &found) {
            Ok(switch) => switch,
            Err(error) => return Ok(Some(error)),
        };
        if let Some((segment, incarnation)) = switch {
            let there = self.check_exists(segment).and_then(|()| self.check_there(segment));
            if let Err(error) = there {
                return Ok(Some(error));
            }
            reader.follow(segment, incarnation);
        }
        waiting.push(found);
        while let Some(step) = waiting.take_below(durable) {
            if let Err(error) = self.check_step(reader, &step) {
                *waiting = Waiting::default();
                return Ok(Some(error));
            }
            self.apply_step(reader, step)?;
        }
        Ok(None)
    }

    fn check_exists(&self, segment: SegmentId) -> Result<()> {
        let segments = &self.state.segments;
        if segments.exists(segment) && !segments.is_absent(segment) {
            return Ok(());
        }
        Err(Error::damaged(file_name(segment), "the log goes on in it, and it is missing or cut short"))
    }

    /// The segment that a record says the log goes on in.
    fn peek_switch(&self, reader: &Reader<'_>, found: &Found) -> Result<Option<(SegmentId, u64)>> {
        if found.view.header.operations != 1 || !found.view.sums.is_empty() {
            return Ok(None);
        }
        Ok(match reader.operations(found)?.first() {
            Some(Operation::Switch { segment, incarnation }) => Some((*segment, *incarnation)),
            _ => None,
        })
    }

    /// Writes records above the last mark once more, as they were found. A flush of theirs may have failed.
    /// Then they are in the operating system's cache, which takes them to be on disk, and another flush would
    /// succeed without writing them. (Rebello et al., "Can Applications Recover from fsync Failures?", USENIX
    /// ATC 2020.)
    fn write_again(&self, reader: &mut Reader<'_>, step: &[Found], whole: &[Whole]) -> Result<()> {
        for (found, whole) in step.iter().zip(whole) {
            if whole.is_copied {
                // The heal is reported, and durable before the copy goes.
                reader.heal_record(found, &whole.bytes);
                reader.is_healed(found);
            }
            let files = self.env.blocks.files();
            files.write(found.segment, found.slot, &[(Kind::RecordHeader, &whole.bytes)])?;
        }
        Ok(())
    }

    fn apply_step(&mut self, reader: &Reader<'_>, step: Vec<Found>) -> Result<()> {
        step.iter().try_for_each(|found| self.apply_record(reader, found))
    }

    fn apply_record(&mut self, reader: &Reader<'_>, found: &Found) -> Result<()> {
        let header = &found.view.header;
        let operations = reader.operations(found)?;
        if header.address != found.expected {
            self.gap = found.expected..header.address;
            self.state.map_tail(self.env.blocks, header.address, found.segment, found.slot, found.expected);
        }
        let mut address = header.address.plus(BlockCount(1 + spilled_blocks(found) as u64));
        let total = 1 + found.view.sums.len() as u64;
        let next = Position {
            segment: found.segment,
            incarnation: header.incarnation,
            slot: Slot(found.slot.0 + total as u32),
            address: header.address.plus(BlockCount(total)),
            sequence: RecordSequence(header.sequence.0 + 1),
        };
        self.end = (next, found.view.hash);
        self.env.blocks.sums().set(found.segment, Slot(found.slot.0 + 1), found.view.sums.iter().copied());
        let alone = operations.len() == 1 && found.view.sums.is_empty();
        for operation in operations {
            let at = Placement { address, segment: found.segment };
            self.prepare(&operation, alone, next)?;
            self.state.apply(&operation, at, &self.env).map_err(|error| match error {
                Error::Io { .. } | Error::Damaged { .. } => error,
                // It was possible when it was logged: what it met now is not what was there then.
                other => Error::damaged(
                    format!("log record {}", header.sequence),
                    format!("it cannot be replayed: {other}"),
                ),
            })?;
            // There are no readers yet: what is replaced while it is replayed need not wait for a checkpoint.
            while let Some(superseded) = self.state.graveyard.superseded() {
                self.env.blocks.pending().done(superseded);
            }
            address = address.plus(BlockCount(u64::from(operation.data_blocks())));
        }
        self.state.log_blocks += total;
        self.replayed += 1;
        Ok(())
    }

    /// Goes on with an address that is so far behind the last.
    pub(super) fn leave_out(&mut self, count: BlockCount) -> Result<()> {
        let (end, _) = &mut self.end;
        let used = end.address;
        let next = used.0.checked_add(count.0).filter(|next| *next < LOG_ADDRESS_LIMIT);
        let no_more = || Error::damaged("the log", "there are no more addresses to be given away");
        end.address = LogAddress(next.ok_or_else(no_more)?);
        self.state.map_tail(self.env.blocks, end.address, end.segment, end.slot, used);
        Ok(())
    }

    /// What the engine does around an operation when it is made, beside applying it.
    fn prepare(&mut self, operation: &Operation, alone: bool, next: Position) -> Result<()> {
        let geometry = self.env.blocks.files().geometry();
        match operation {
            Operation::Switch { segment, incarnation } => {
                if !alone {
                    let detail = "the log names its next segment in the middle of a record";
                    return Err(Error::damaged(file_name(next.segment), detail));
                }
                let old = next.segment;
                self.take_over(*segment, SegmentKind::Log)?;
                self.env.blocks.sums().close(old, geometry);
                self.env.blocks.sums().open(*segment, *incarnation, geometry);
                self.state.segments.hold(*segment);
                self.state.segments.filled(old, RecordSequence(next.sequence.0 - 1));
                self.state.segments.let_go(old);
                self.touched.insert(*segment, *incarnation);
                self.end.0 = Position { segment: *segment, incarnation: *incarnation, slot: Slot(1), ..next };
                self.state.map_tail(self.env.blocks, next.address, *segment, Slot(1), next.address);
            }
            Operation::MapScattered { segment, slot, scatter, address } => {
                self.prepare_staged(*segment, *slot, *address, scatter.blocks, next)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn prepare_staged(
        &mut self,
        segment: SegmentId,
        slot: Slot,
        address: LogAddress,
        blocks: u32,
        next: Position,
    ) -> Result<()> {
        let end = u64::from(slot.0) + u64::from(blocks);
        if slot.0 == 0 || end > u64::from(self.env.blocks.files().geometry().end(SegmentKind::Run).0) {
            return Err(Error::damaged(file_name(segment), "a staged run lies outside its segment"));
        }
        let after = address.0.checked_add(u64::from(blocks)).map(LogAddress);
        match after.filter(|after| address >= self.gap.start && *after <= self.gap.end) {
            Some(after) => self.gap.start = after,
            None => {
                let detail = format!("address {address} was not set aside for a staged run");
                return Err(Error::damaged(file_name(next.segment), detail));
            }
        }
        self.staged.insert(segment);
        if self.state.segments.live(segment) == 0 {
            self.take_over(segment, SegmentKind::Run)?;
        }
        // What is filled further begins behind everything that counts.
        if let Some(cursor) = self.state.run_cursor.as_mut().filter(|cursor| cursor.segment == segment) {
            cursor.slot = cursor.slot.max(Slot(end as u32));
        }
        Ok(())
    }

    /// A log that was not closed may end in a segment that is gone. Its copy, or what is left of it, need not
    /// have all that was acknowledged.
    fn check_there(&mut self, segment: SegmentId) -> Result<()> {
        let lost = match &self.at_damage {
            AtDamage::Cut(gone) => gone.find(segment),
            AtDamage::Refuse => None,
        };
        let is_brought_back = self.env.blocks.files().copies().is_brought_back(segment);
        let lost = lost.or(is_brought_back.then_some(segment)).filter(|_| !self.is_clean);
        let Some(lost) = lost else { return Ok(()) };
        let detail = "the log since the last checkpoint was in it, and it is gone";
        let error = Error::damaged(file_name(lost), detail);
        if matches!(self.at_damage, AtDamage::Refuse) {
            return Err(error);
        }
        self.doubt.get_or_insert(error);
        Ok(())
    }

    /// A log that was not closed may have to go on in a segment that is not what was written. A segment of
    /// another time has none of what came after the last checkpoint. What came before that checkpoint, with
    /// the header of the segment, was durable.
    fn check_use(&self, reader: &mut Reader<'_>) -> Result<()> {
        let Position { segment, slot, .. } = reader.next;
        if self.is_clean || slot <= Slot(1) || reader.is_in_its_use()? {
            return Ok(());
        }
        let detail = "the log since the last checkpoint was in it, and it is not what was written, but what it was before, or another";
        Err(Error::damaged(file_name(segment), detail))
    }

    /// A segment that was free found a use since the checkpoint. A cursor of the checkpoint may still point
    /// into it: what was filled in its turn and then empty was free as well.
    fn take_over(&mut self, segment: SegmentId, kind: SegmentKind) -> Result<()> {
        let state = &mut self.state;
        for cursor in [&mut state.run_cursor, &mut state.node_cursor, &mut state.ledger_cursor] {
            if cursor.is_some_and(|cursor| cursor.segment == segment) {
                *cursor = None;
                state.segments.let_go(segment);
            }
        }
        if self.env.blocks.files().copies().is_brought_back(segment) {
            let detail = "it found a new use since the last checkpoint, and is gone";
            return Err(Error::damaged(file_name(segment), detail));
        }
        if !state.segments.give_up(segment) {
            let detail = "the log says that it found a new use, but it is missing or in use";
            return Err(Error::damaged(file_name(segment), detail));
        }
        self.env.blocks.map().write().remove_segment(segment);
        self.env.blocks.sums().forget(segment);
        state.segments.use_as(segment, kind);
        Ok(())
    }
}

/// Marks of a pool that holds nothing.
pub(super) fn first_marks() -> Marks {
    // Address 0 is never given out, so that it can stand for "none" in a damaged place.
    Marks([LogAddress(1); 3])
}
