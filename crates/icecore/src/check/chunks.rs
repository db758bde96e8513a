//! Chunks of the location map: whether each can be read and is what the ledger says, and no slot has two
//! blocks.

use super::{Area, Problem};
use crate::engine::Engine;
use crate::format::segment::file_name;
use crate::liveness::BlockSet;
use crate::location::{Absent, PlacedRun};
use crate::state::State;
use crate::units::{LogAddress, SegmentId};
use std::collections::BTreeMap;

/// Slots that have a block, of each segment.
#[derive(Default)]
struct Slots(BTreeMap<SegmentId, BlockSet>);

impl Slots {
    /// Whether none of the slots of a run had one.
    fn take(&mut self, placed: &PlacedRun) -> bool {
        let start = u64::from(placed.slot.0);
        let span = LogAddress(start)..LogAddress(start + placed.run.length.0);
        self.0.entry(placed.segment).or_default().insert(span) == placed.run.length
    }
}

/// Reads all chunks, one after the other.
pub(super) fn compare(engine: &Engine, state: &State) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut slots = Slots::default();
    let mut take = |placed: &PlacedRun, problems: &mut Vec<Problem>| {
        if !slots.take(placed) {
            let name = file_name(placed.segment);
            let text = format!("{name}: the location map has two blocks in one slot from {} on", placed.slot);
            problems.push(Problem::of(Area::Places, text));
        }
    };
    let rows: Vec<_> = {
        let map = engine.blocks.map().read();
        map.directory().all().map(|(stream, row)| (stream, row.clone())).collect()
    };
    for (stream, row) in rows {
        let absent = Absent { stream, span: row.span.clone(), place: row.place };
        match engine.blocks.chunk(&absent) {
            Ok(Some(chunk)) => {
                if !chunk.fits(&row) {
                    let place = format!("{} at slot {}", file_name(row.place.segment), row.place.slot);
                    let text =
                        format!("{place}: a chunk of the location map is not what the ledger says of it");
                    problems.push(Problem::of(Area::Places, text));
                }
                let holding = engine.blocks.map().read().holding(stream, &chunk);
                holding.iter().for_each(|placed| take(placed, &mut problems));
            }
            Ok(None) => {}
            Err(error) => {
                let span = format!("{stream:?} addresses {} to {}", row.span.start, row.span.end.0 - 1);
                let text = format!("{error}: where {span} lie is lost");
                problems.push(Problem::of(Area::Places, text));
            }
        }
    }
    for segment in state.segments.all() {
        let recent: Vec<PlacedRun> = engine.blocks.map().read().recent_of_segment(segment).collect();
        recent.iter().for_each(|placed| take(placed, &mut problems));
    }
    problems
}
