//! Moves what lives in one segment.

use super::Engine;
use crate::engine::Purpose;
use crate::engine::runs::fits_header;
use crate::engine::space::Filling;
use crate::error::{Error, Result};
use crate::format::crc32c;
use crate::format::segment::SegmentKind;
use crate::liveness::{BlockSet, Span};
use crate::location::PlacedRun;
use crate::log::tail::Payload;
use crate::segments::Candidate;
use crate::state::{Emptying, State};
use crate::storage::{AlignedBuffer, Kind};
use crate::units::{BLOCK_BYTES, BlockCount, LogAddress, Run, SegmentId, Slot, Stream};
use std::sync::Arc;

/// Blocks read at once.
const WINDOW_BLOCKS: u32 = 128;
/// So many blocks between two that live are not worth reading with them.
const GAP_BLOCKS: u32 = 32;
/// Blocks written at once, as far as a header has room for their addresses.
const PIECE_BLOCKS: usize = 768;
/// Moves are counted up to this many.
const MOVES_MAX: u8 = 2;

/// What became of a segment that was to be emptied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// Nothing lives in it any more, but for what dies with the next checkpoint.
    Emptied,
    /// There was no room to move all of it.
    NoRoom,
    /// Something in it is not what was written: that is left where it is.
    Corrupt,
    /// It is in use again, or empty by itself, or the pool is closing.
    Gone,
}

/// Where what lives in a segment goes.
#[derive(Clone, Copy)]
pub(super) enum Destination {
    /// All of it to what is being filled so.
    One(Filling),
    /// Data that is likely to live on apart from the rest of it, and what is not data as for one.
    Parted(Filling),
}

/// Why moving stopped.
enum Trouble {
    NoRoom,
    Corrupt(Error),
    Other(Error),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        match error {
            Error::NoSpace { .. } => Self::NoRoom,
            other => Self::Other(other),
        }
    }
}

/// Blocks that were read and verified, to be written together.
struct Piece {
    buffer: AlignedBuffer,
    sums: Vec<u32>,
    runs: Vec<Run>,
}

impl Piece {
    fn new() -> Self {
        let buffer = AlignedBuffer::zeroed(PIECE_BLOCKS * BLOCK_BYTES);
        Self { buffer, sums: Vec::with_capacity(PIECE_BLOCKS), runs: Vec::new() }
    }

    /// Whether there may be no room for another block, or for its address.
    fn is_full(&self) -> bool {
        self.sums.len() == PIECE_BLOCKS || !fits_header(self.sums.len() + 1, self.runs.len() + 1)
    }

    fn push(&mut self, stream: Stream, address: LogAddress, block: &[u8]) {
        let at = self.sums.len() * BLOCK_BYTES;
        self.buffer[at..at + BLOCK_BYTES].copy_from_slice(block);
        self.sums.push(crc32c(block));
        match self.runs.last_mut() {
            Some(last) if last.stream == stream && last.end() == address => last.length.0 += 1,
            _ => self.runs.push(Run { stream, start: address, length: BlockCount(1) }),
        }
    }
}

/// The moving of what lives in one segment.
struct Shift<'a> {
    engine: &'a Engine,
    victim: &'a Candidate,
    purpose: Purpose,
    moved: u64,
}

impl Engine {
    /// Moves what lives in a segment elsewhere. Calls `between` between pieces, without any lock but the
    /// collector's turn.
    ///
    /// # Errors
    /// What writing answers; what was moved before stays moved. What cannot be read is no error but
    /// [`Outcome::Corrupt`].
    pub(crate) fn empty(&self, victim: &Candidate, purpose: Purpose, between: &dyn Fn()) -> Result<Outcome> {
        let filling = match (victim.kind, victim.moves) {
            (SegmentKind::Node, _) => Filling::ColdNodes,
            (_, 0) => Filling::WarmData,
            _ => Filling::ColdData,
        };
        // Where room is short, there may be none for two segments that are being filled.
        let destination = match purpose {
            Purpose::Collecting => Destination::Parted(filling),
            _ => Destination::One(filling),
        };
        self.empty_into(victim, destination, purpose, between)
    }

    /// The same, where what lives is moved to what the caller says.
    pub(super) fn empty_into(
        &self,
        victim: &Candidate,
        destination: Destination,
        purpose: Purpose,
        between: &dyn Fn(),
    ) -> Result<Outcome> {
        let plan = match self.begin_emptying(victim, destination) {
            Ok(Some(plan)) => plan,
            Ok(None) => return Ok(Outcome::Gone),
            Err(error) => {
                self.state().segments.mark_corrupt(victim.segment);
                self.collector.report(&error);
                return Ok(Outcome::Corrupt);
            }
        };
        let mut shift = Shift { engine: self, victim, purpose, moved: 0 };
        let outcome = shift.run(&plan.runs, between);
        let moved = shift.moved;
        let mut state = self.state();
        state.collection.emptying = None;
        if moved > 0 || plan.forsakes {
            // The hold goes on until it is durable that nothing is looked for here.
            state.collection.vacated.push(victim.segment);
        } else {
            state.segments.let_go(victim.segment);
        }
        match outcome {
            Ok(()) => {
                self.counters.segments_collected.add(1);
                self.counters.collected_bytes.add(victim.capacity * BLOCK_BYTES as u64);
                Ok(Outcome::Emptied)
            }
            Err(Trouble::NoRoom) => Ok(Outcome::NoRoom),
            Err(Trouble::Corrupt(error)) => {
                state.segments.mark_corrupt(victim.segment);
                self.collector.report(&error);
                Ok(Outcome::Corrupt)
            }
            Err(Trouble::Other(error)) => Err(error),
        }
    }

    /// Takes hold of a segment, if it may still be emptied. Answers what has to be moved, in the order of
    /// slots.
    ///
    /// # Errors
    /// What says what lies in it cannot be read: nothing has changed.
    fn begin_emptying(&self, victim: &Candidate, destination: Destination) -> Result<Option<Plan>> {
        let mut state = self.state();
        let state = &mut *state;
        let eligible = !state.closing
            && state.segments.candidates(state.replay_from).any(|found| found.segment == victim.segment);
        if !eligible {
            return Ok(None);
        }
        let entries = self.blocks.entries_of_segment(victim.segment)?;
        state.graveyard.sift();
        let content = content(state, &entries)?;
        if !content.is_settled(state) {
            return Ok(None);
        }
        let Content { alive: blocks, dead, forsaken } = content;
        let mut runs = Vec::new();
        for entry in &entries {
            let set = &blocks[entry.run.stream as usize];
            for span in set.runs_within(&(entry.run.start..entry.run.end())) {
                for (span, filling) in parted(state, entry.run.stream, &span, destination) {
                    let slot = Slot(entry.slot.0 + (span.start.0 - entry.run.start.0) as u32);
                    let run = Run::of(entry.run.stream, &span);
                    runs.push(Planned { placed: PlacedRun { run, segment: victim.segment, slot }, filling });
                }
            }
        }
        state.segments.hold(victim.segment);
        // What was taken before and gave nothing back does not count as borrowed.
        state.collection.has_taken &= state.collection.vacated_count() > 0;
        let forsakes = !forsaken.is_empty();
        self.forsake(state, victim.segment, forsaken);
        state.collection.emptying = Some(Emptying { segment: victim.segment, blocks, dead });
        Ok(Some(Plan { runs, forsakes }))
    }

    /// Leaves behind data that is dead for certain: it has no place from here on.
    fn forsake(&self, state: &mut State, segment: SegmentId, forsaken: BlockSet) {
        let mut map = self.blocks.map().write();
        for span in forsaken.runs() {
            map.remove_within(segment, Run::of(Stream::Data, &span));
        }
        drop(map);
        let count = forsaken.len();
        let dead = state.graveyard.forsake(&forsaken);
        assert_eq!(dead, count, "only what is dead for certain is forsaken");
        state.segments.remove_live(segment, count.0);
        self.counters.left_behind_bytes.add(count.0 * BLOCK_BYTES as u64);
        let known = state.collection.forsaken.unite(forsaken);
        assert_eq!(known, count, "nothing is forsaken twice");
    }
}

/// What is to be done about a segment.
struct Plan {
    /// What has to be moved, in the order of slots.
    runs: Vec<Planned>,
    /// Something was left behind that lives as of the last checkpoint.
    forsakes: bool,
}

/// What is to be moved, and where to.
struct Planned {
    placed: PlacedRun,
    filling: Filling,
}

/// The parts of a span, and where each goes.
fn parted(state: &State, stream: Stream, span: &Span, destination: Destination) -> Vec<(Span, Filling)> {
    match destination {
        Destination::Parted(_) if stream == Stream::Data => {
            let parts = state.lifetimes.parts(span, state.tail.next_address(), state.long_life());
            let filling = |lasting| if lasting { Filling::ColdData } else { Filling::WarmData };
            parts.into_iter().map(|(part, lasting)| (part, filling(lasting))).collect()
        }
        Destination::One(filling) | Destination::Parted(filling) => vec![(span.clone(), filling)],
    }
}

/// What lies in a segment, of each stream.
struct Content {
    /// What lives, or may still be reached by a reader or by a recovery from the last checkpoint.
    alive: [BlockSet; 3],
    /// What is dead for good. What dies with the checkpoint on its way is neither alive nor dead: that has to
    /// be durable before the segment can be used again.
    dead: [BlockSet; 3],
    /// Data that is dead once the log is durable.
    forsaken: BlockSet,
}

impl Content {
    /// Whether the last checkpoint to be frozen knows these blocks. As long as it does not, the log says
    /// where they are.
    fn is_settled(&self, state: &State) -> bool {
        let settled = |stream: Stream, blocks: &BlockSet| {
            blocks.last().is_none_or(|last| last < state.frozen_marks.of(stream))
        };
        settled(Stream::Data, &self.forsaken)
            && Stream::ALL.into_iter().all(|stream| settled(stream, &self.alive[stream as usize]))
    }
}

/// What lies in a segment, by the entries that the location map has of it.
fn content(state: &State, entries: &[PlacedRun]) -> Result<Content> {
    let mut dead: [BlockSet; 3] = Default::default();
    for entry in entries {
        dead[entry.run.stream as usize].insert(entry.run.start..entry.run.end());
    }
    let mut alive: [BlockSet; 3] = Default::default();
    let forsaken = state.graveyard.needless(&dead[Stream::Data as usize]);
    for stream in Stream::ALL {
        let present = &mut dead[stream as usize];
        let (Some(first), Some(last)) = (present.first(), present.last()) else { continue };
        alive[stream as usize] = state.history.living(stream, present)?;
        for set in state.graveyard.lingering(stream) {
            let apart =
                set.last().is_none_or(|end| end < first) || set.first().is_none_or(|begin| begin > last);
            if !apart {
                let mut common = present.clone();
                common.intersect(set);
                alive[stream as usize].unite(common);
            }
        }
        if stream == Stream::Data {
            alive[stream as usize].subtract(&forsaken);
        }
        present.subtract(&alive[stream as usize]);
        for frozen in state.graveyard.frozen(stream) {
            present.subtract(frozen);
        }
    }
    Ok(Content { alive, dead, forsaken })
}

impl Shift<'_> {
    fn run(&mut self, plan: &[Planned], between: &dyn Fn()) -> std::result::Result<(), Trouble> {
        let mut pieces: Vec<(Filling, Piece)> = Vec::new();
        let mut window = vec![0; WINDOW_BLOCKS as usize * BLOCK_BYTES];
        // Begin and end of what the window holds.
        let mut held = 0..0;
        for Planned { placed, filling } in plan {
            for index in 0..placed.run.length.0 {
                let slot = placed.slot.0 + index as u32;
                if !held.contains(&slot) {
                    held = slot..window_end(plan, slot);
                    let bytes = &mut window[..held.len() * BLOCK_BYTES];
                    self.read(Slot(slot), bytes)?;
                }
                let at = (slot - held.start) as usize * BLOCK_BYTES;
                let block = &mut window[at..at + BLOCK_BYTES];
                let address = placed.run.start.plus(BlockCount(index));
                self.verified(address, Slot(slot), block).map_err(Trouble::Corrupt)?;
                let piece = piece_for(&mut pieces, *filling);
                piece.push(placed.run.stream, address, block);
                if piece.is_full() {
                    self.put_away(*filling, std::mem::replace(piece, Piece::new()))?;
                    between();
                    self.engine.check_writable()?;
                }
            }
        }
        pieces.into_iter().try_for_each(|(filling, piece)| self.put_away(filling, piece))
    }

    fn read(&self, slot: Slot, bytes: &mut [u8]) -> std::result::Result<(), Trouble> {
        let files = self.engine.blocks.files();
        let read = files.read(self.victim.segment, slot, bytes);
        // Block by block is what is done for the sake of a copy. Here all of it is as good, and is checked as
        // closely.
        read.or_else(|error| {
            if files.read_copy(self.victim.segment, slot, bytes) {
                Ok(())
            } else {
                Err(Trouble::Corrupt(error))
            }
        })?;
        self.engine.counters.disk_read_bytes_collect.add(bytes.len() as u64);
        Ok(())
    }

    /// Nothing is moved that is not what was written: it is taken from its copy, or left where it is.
    fn verified(&self, address: LogAddress, slot: Slot, block: &mut [u8]) -> Result<()> {
        let segment = self.victim.segment;
        if self.victim.kind == SegmentKind::Node {
            let block: &mut [u8; BLOCK_BYTES] = block.try_into().expect("a whole block");
            let nodes = &self.engine.nodes;
            let found = nodes.decode(block, address, segment, slot);
            return found.or_else(|error| nodes.take_copy(address, segment, slot, block, error)).map(drop);
        }
        let blocks = &self.engine.blocks;
        blocks.verify(segment, slot, block).or_else(|error| {
            let uses = blocks.sums().uses();
            if blocks.take_copy(segment, slot, block, uses, &error) { Ok(()) } else { Err(error) }
        })
    }

    /// Writes a piece, and enters the new places into the map.
    fn put_away(&mut self, filling: Filling, piece: Piece) -> std::result::Result<(), Trouble> {
        let total = piece.sums.len();
        let payload = Payload { buffer: Arc::new(piece.buffer), first: 0, sums: piece.sums };
        let mut runs = piece.runs;
        let mut first = 0;
        while first < total {
            let rest = Payload { first, sums: payload.sums[first..].to_vec(), ..payload.clone() };
            let (segment, slot, count) = match filling {
                Filling::ColdNodes => self.write_nodes(&rest)?,
                _ => self.engine.write_run(filling, &rest, &runs, self.purpose)?,
            };
            let after = split_off(&mut runs, count as u64);
            self.settle(&runs, segment, slot);
            runs = after;
            first += count;
        }
        Ok(())
    }

    /// Writes nodes side by side. The segment is held for the caller.
    fn write_nodes(&self, nodes: &Payload) -> Result<(SegmentId, Slot, usize)> {
        let engine = self.engine;
        let epoch = engine.epoch();
        let mut state = engine.state();
        if state.closing {
            return Err(engine.closed_error());
        }
        let wanted = nodes.blocks() as u32;
        let filling = Filling::ColdNodes;
        let allocation = engine.allocate(&mut state, filling, wanted, false, self.purpose)?;
        state.segments.hold(allocation.segment);
        drop(state);
        let count = allocation.blocks as usize;
        let content = &nodes.bytes()[..count * BLOCK_BYTES];
        let written = engine.frame(SegmentKind::Node, &allocation, epoch).and_then(|()| {
            engine.blocks.files().write(allocation.segment, allocation.slot, &[(Kind::Node, content)])
        });
        if let Err(error) = written {
            let mut state = engine.state();
            engine.abandon(&mut state, filling, allocation.segment);
            state.segments.let_go(allocation.segment);
            return Err(error);
        }
        engine.counters.moved_node_bytes.add(content.len() as u64);
        Ok((allocation.segment, allocation.slot, count))
    }

    /// From here on the blocks of these runs lie elsewhere, unless they died meanwhile. Lets go of where they
    /// lie.
    fn settle(&mut self, runs: &[Run], segment: SegmentId, first: Slot) {
        let state = &mut *self.engine.state();
        let mut map = self.engine.blocks.map().write();
        let emptying = state.collection.emptying.as_ref().expect("this segment is being emptied");
        let mut slot = first.0;
        let mut count = 0;
        for pair in runs.windows(2) {
            // Else it would keep apart what one entry can hold.
            for dead in emptying.dead_between(&pair[0], &pair[1]) {
                map.remove_within(self.victim.segment, dead);
            }
        }
        for run in runs {
            for part in emptying.remaining(run) {
                let slot = Slot(slot + (part.start.0 - run.start.0) as u32);
                map.remap(part, segment, slot);
                count += part.length.0;
            }
            slot += run.length.0 as u32;
        }
        drop(map);
        state.segments.add_live(segment, count);
        state.segments.remove_live(self.victim.segment, count);
        state.segments.moved_into(segment, (self.victim.moves + 1).min(MOVES_MAX));
        state.collection.filled.insert(segment);
        state.segments.let_go(segment);
        self.moved += count;
    }
}

/// What is gathered for one place.
fn piece_for(pieces: &mut Vec<(Filling, Piece)>, filling: Filling) -> &mut Piece {
    let index = pieces.iter().position(|(of, _)| *of == filling).unwrap_or_else(|| {
        pieces.push((filling, Piece::new()));
        pieces.len() - 1
    });
    &mut pieces[index].1
}

/// Where a window that begins at `slot` may end. That is behind the last block that it can hold and that has
/// to be moved, or before a wide gap.
fn window_end(plan: &[Planned], slot: u32) -> u32 {
    let limit = slot + WINDOW_BLOCKS;
    let first = plan.partition_point(|planned| end_of(&planned.placed) <= slot);
    let mut end = slot;
    for placed in plan[first..].iter().map(|planned| &planned.placed) {
        if placed.slot.0 >= limit || placed.slot.0 > end + GAP_BLOCKS {
            break;
        }
        end = end_of(placed);
    }
    end.min(limit)
}

fn end_of(placed: &PlacedRun) -> u32 {
    placed.slot.0 + placed.run.length.0 as u32
}

/// Leaves the first `count` blocks in `runs`, and answers the rest.
fn split_off(runs: &mut Vec<Run>, count: u64) -> Vec<Run> {
    let mut left = count;
    let Some(index) = runs.iter().position(|run| {
        let ends = left < run.length.0;
        left = left.saturating_sub(if ends { 0 } else { run.length.0 });
        ends
    }) else {
        return Vec::new();
    };
    let mut after = runs.split_off(index);
    if left > 0 {
        let whole = after[0];
        runs.push(Run { length: BlockCount(left), ..whole });
        after[0] = Run {
            start: whole.start.plus(BlockCount(left)),
            length: BlockCount(whole.length.0 - left),
            ..whole
        };
    }
    after
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(slot: u32, length: u64) -> Planned {
        let start = LogAddress(u64::from(slot) + 1000);
        let run = Run { stream: Stream::Data, start, length: BlockCount(length) };
        let placed = PlacedRun { run, segment: SegmentId(0), slot: Slot(slot) };
        Planned { placed, filling: Filling::WarmData }
    }

    #[test]
    fn a_window_ends_behind_what_lives_and_before_a_wide_gap() {
        let plan =
            [planned(1, 4), planned(5 + GAP_BLOCKS, 4), planned(10 + 2 * GAP_BLOCKS, 4), planned(300, 100)];
        assert_eq!(window_end(&plan, 1), 9 + GAP_BLOCKS);
        assert_eq!(window_end(&plan, 10 + 2 * GAP_BLOCKS), 14 + 2 * GAP_BLOCKS);
        assert_eq!(window_end(&plan, 300), 400);
        assert_eq!(window_end(&[planned(7, 600)], 7), 7 + WINDOW_BLOCKS);
        assert_eq!(window_end(&[planned(7, 600)], 7 + WINDOW_BLOCKS), 7 + 2 * WINDOW_BLOCKS);
    }

    /// Each by itself, or all in one stretch.
    #[test]
    fn a_piece_is_full_before_its_header_is() {
        for step in [1_u64 << 40, 1] {
            let mut piece = Piece::new();
            let mut addresses = (0..).map(|number| LogAddress(number * step % (1 << 47) + 1));
            while !piece.is_full() {
                piece.push(Stream::Data, addresses.next().unwrap(), &[7; BLOCK_BYTES]);
            }
            let list = crate::location::encode_list(&piece.runs);
            assert!(list.len() + piece.sums.len() * 4 <= crate::format::record::HEADER_ROOM);
            assert!(piece.sums.len() >= crate::engine::runs::LISTED_BLOCKS_MIN);
            assert!(step > 1 || piece.sums.len() == PIECE_BLOCKS);
        }
    }
}
