//! The location map against what the segments themselves say: a record header says which address the block behind it has.
//!
//! Nodes say it too, and are compared when they are read. Blocks of runs do not: of those only the checksums can be compared.

use super::{Area, Problem};
use crate::engine::Engine;
use crate::format::segment::file_name;
use crate::location::PlacedRun;
use crate::state::State;
use crate::units::{BlockCount, LogAddress, SegmentId, Slot, Stream};

/// A stretch of a log segment: its first slot, the address there, and its length.
type Stretch = (u32, LogAddress, u32);

/// Compares the places of blocks in log segments with the headers of the records that they lie in.
pub(super) fn compare(engine: &Engine, state: &State) -> Vec<Problem> {
    let mut problems = Vec::new();
    for segment in state.segments.all() {
        if state.segments.live(segment) == 0
            || state.segments.kind(segment).is_none_or(|kind| !kind.has_table())
        {
            continue;
        }
        let tail = state.tail.position();
        let end = Slot(engine.geometry.slots());
        // Behind the end of the log there may be what an earlier life left there.
        let written = if segment == tail.segment { tail.slot } else { end };
        let stretches = engine.blocks.sums().records(segment, written, engine.blocks.files());
        let found =
            stretches.and_then(|stretches| Ok((stretches, engine.blocks.entries_of_segment(segment)?)));
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
    for (slot, address, length) in stretches {
        for entry in entries {
            let from = (*slot).max(entry.slot.0);
            let to = (slot + length).min(entry.slot.0 + entry.run.length.0 as u32);
            if from >= to {
                continue;
            }
            let there = address.plus(BlockCount(u64::from(from - slot)));
            let said = entry.run.start.plus(BlockCount(u64::from(from - entry.slot.0)));
            if entry.run.stream == Stream::Data && there == said {
                continue;
            }
            let text = format!(
                "{}: the location map has {:?} address {said} at slot {from}, where the log has data address {there}",
                file_name(segment),
                entry.run.stream,
            );
            return Some(Problem::of(Area::Places, text));
        }
    }
    None
}
