//! The location map against what the segments themselves say. A record header says which address the block
//! behind it has, and so does that of a run with a list.
//!
//! Nodes say it too, and are compared when they are read. Of runs without a list only the checksums can be
//! compared. Data of which nothing says any more what it should be is lost, whatever it is.

use super::{Area, Problem};
use crate::engine::Engine;
use crate::format::segment::file_name;
use crate::liveness::BlockSet;
use crate::location::PlacedRun;
use crate::state::State;
use crate::units::{BlockCount, Run, SegmentId, Slot, Stream};

/// A stretch of a segment: its first slot, and the addresses there.
type Stretch = (u32, Run);

/// Data segments in which something lives, but for those that are gone: these are reported by themselves.
fn data_segments(state: &State) -> Vec<SegmentId> {
    let has_table = |segment: &SegmentId| state.segments.kind(*segment).is_some_and(|kind| kind.has_table());
    let is_there = |segment: &SegmentId| has_table(segment) && !state.segments.is_absent(*segment);
    let in_use = |segment: &SegmentId| state.segments.live(*segment) > 0 && is_there(segment);
    state.segments.all().into_iter().filter(in_use).collect()
}

/// Looks for live blocks in data segments for which nothing vouches: no checksum table, and no header of a
/// record or of a run.
pub(super) fn vouched(engine: &Engine) -> Vec<Problem> {
    let state = engine.state();
    let mut bare = Vec::new();
    let mut addresses: [BlockSet; 3] = Default::default();
    for segment in data_segments(&state) {
        // What says nothing of itself at all, or has no places that can be read, is reported already.
        let known = engine.blocks.checksums(segment).ok().zip(engine.blocks.entries_of_segment(segment).ok());
        let Some((sums, entries)) = known else { continue };
        for placed in entries.iter().flat_map(|entry| without_sum(entry, &sums)) {
            addresses[placed.run.stream as usize].insert(placed.run.start..placed.run.end());
            bare.push(placed);
        }
    }
    // Headers of records have addresses, too. No version owns those, nor what died, nor what is set aside for
    // the end of the log.
    let living = Stream::ALL.map(|stream| state.history.living(stream, &addresses[stream as usize]));
    let mut problems = Vec::new();
    for of_segment in bare.chunk_by(|one, next| one.segment == next.segment) {
        let (mut count, mut first) = (0, None);
        for placed in of_segment {
            // Sets that cannot be read are reported already.
            let Ok(living) = &living[placed.run.stream as usize] else { continue };
            for span in living.runs_within(&(placed.run.start..placed.run.end())) {
                first.get_or_insert(Slot(placed.slot.0 + (span.start.0 - placed.run.start.0) as u32));
                count += span.end.0 - span.start.0;
            }
        }
        if let Some(first) = first {
            let (name, offset) = (file_name(of_segment[0].segment), engine.geometry.offset(first));
            let text = format!(
                "{name}: nothing says any more what {count} blocks that are in use should hold, the first at offset {offset}: neither the \
                 header of a record or of a run, nor the checksum table"
            );
            problems.push(Problem::of(Area::Places, text));
        }
    }
    problems
}

/// The parts of a placed run without a checksum.
fn without_sum(entry: &PlacedRun, sums: &[u32]) -> Vec<PlacedRun> {
    let mut parts: Vec<PlacedRun> = Vec::new();
    for index in 0..entry.run.length.0 {
        let slot = Slot(entry.slot.0 + index as u32);
        if sums.get(slot.0 as usize).is_some_and(|sum| *sum != 0) {
            continue;
        }
        let start = entry.run.start.plus(BlockCount(index));
        match parts.last_mut() {
            Some(last) if last.run.end() == start => last.run.length.0 += 1,
            _ => parts.push(PlacedRun {
                run: Run { start, length: BlockCount(1), ..entry.run },
                slot,
                ..*entry
            }),
        }
    }
    parts
}

/// Compares the places of blocks in data segments with the headers that they lie behind.
pub(super) fn compare(engine: &Engine, state: &State) -> Vec<Problem> {
    let mut problems = Vec::new();
    for segment in data_segments(state) {
        let tail = state.tail.position();
        let end = Slot(engine.geometry.slots());
        // Behind the end of the log there may be what an earlier life left there.
        let written = if segment == tail.segment { tail.slot } else { end };
        let found = engine
            .blocks
            .sums()
            .stretches(segment, written, engine.blocks.files())
            .and_then(|stretches| Ok((stretches, engine.blocks.entries_of_segment(segment)?)));
        match found {
            Ok((stretches, entries)) => problems.extend(misplaced(segment, &entries, &stretches)),
            Err(error) => {
                problems.push(Problem::of(Area::Places, format!("{}: {error}", file_name(segment))));
            }
        }
    }
    problems
}

/// The first block of a segment that is not the one that the map has there.
fn misplaced(segment: SegmentId, entries: &[PlacedRun], stretches: &[Stretch]) -> Option<Problem> {
    // Both are in the order of slots.
    let mut entries = entries;
    for (slot, there) in stretches {
        let end = slot + there.length.0 as u32;
        while let Some((first, rest)) = entries.split_first()
            && first.slot.0 + first.run.length.0 as u32 <= *slot
        {
            entries = rest;
        }
        for entry in entries.iter().take_while(|entry| entry.slot.0 < end) {
            let from = (*slot).max(entry.slot.0);
            let is = there.start.plus(BlockCount(u64::from(from - slot)));
            let said = entry.run.start.plus(BlockCount(u64::from(from - entry.slot.0)));
            if entry.run.stream == there.stream && is == said {
                continue;
            }
            let text = format!(
                "{}: the location map has {:?} address {said} at slot {from}, where the headers have {:?} address {is}",
                file_name(segment),
                entry.run.stream,
                there.stream,
            );
            return Some(Problem::of(Area::Places, text));
        }
    }
    None
}
