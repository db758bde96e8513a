//! The location map against what the segments themselves say: a record header says which address the block behind it has, and so does that of
//! a run with a list.
//!
//! Nodes say it too, and are compared when they are read. Of runs without a list only the checksums can be compared.

use super::{Area, Problem};
use crate::engine::Engine;
use crate::format::segment::file_name;
use crate::location::{PlacedRun, decode_list};
use crate::state::State;
use crate::units::{BlockCount, Run, SegmentId, Slot, Stream};

/// A stretch of a segment: its first slot, and the addresses there.
type Stretch = (u32, Run);

/// Compares the places of blocks in data segments with the headers that they lie behind.
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
        let found = stretches(engine, segment, written)
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

fn stretches(engine: &Engine, segment: SegmentId, written: Slot) -> crate::error::Result<Vec<Stretch>> {
    let mut stretches = Vec::new();
    engine.blocks.sums().survey(segment, written, engine.blocks.files(), &mut |slot, view| {
        let (header, blocks) = (&view.header, view.sums.len());
        if !header.run {
            let length = BlockCount(1 + blocks as u64);
            stretches.push((slot.0, Run { stream: Stream::Data, start: header.address, length }));
            return;
        }
        let mut at = slot.0 + 1;
        for run in decode_list(&view.operations, blocks).unwrap_or_default() {
            stretches.push((at, run));
            at += run.length.0 as u32;
        }
    })?;
    Ok(stretches)
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
