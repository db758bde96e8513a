//! Fetching ahead: the medium is asked at once for all places that a long read needs.
//!
//! A request also takes in what lies between near places. The reads that follow, one for each place, find
//! their blocks in the page cache. Long stretches are left to the kernel's own readahead: a fetch would only
//! replace it.

use super::Blocks;
use crate::units::{BlockCount, Run, SegmentId, Slot};

/// Foreign blocks between two places that one request takes in. A request costs as much as three to five
/// blocks. Beyond that the foreign blocks pay when they are read next, as those of a file with several
/// writers are.
const GAP_BLOCKS: u32 = 16;
/// Blocks side by side, on average, from which on the kernel's readahead does as well.
const STRETCH_BLOCKS: u64 = 128;
/// Most blocks of one request. The kernel cuts off what exceeds its limit for a device.
const SPAN_BLOCKS_MAX: u32 = 256;

/// Blocks side by side in a segment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Span {
    segment: SegmentId,
    slot: Slot,
    blocks: u32,
}

impl Span {
    /// Whether one request for both is worth it. `later`: a place that does not begin before this one.
    fn reaches(self, later: Self) -> bool {
        self.segment == later.segment
            && later.slot.0 <= self.slot.0 + self.blocks + GAP_BLOCKS
            && later.slot.0 + later.blocks <= self.slot.0 + SPAN_BLOCKS_MAX
    }
}

impl Blocks {
    /// Asks the medium for the blocks of these runs that memory does not hold, and answers whether it did:
    /// one place is read as fast without. A hint: the read that follows finds what is missing or corrupt.
    pub(crate) fn fetch(&self, runs: &[Run]) -> bool {
        let mut places = Vec::with_capacity(runs.len());
        for run in runs {
            self.add_places(*run, &mut places);
        }
        let blocks: u64 = runs.iter().map(|run| run.length.0).sum();
        if places.len() <= 1 || places.len() as u64 * STRETCH_BLOCKS <= blocks {
            return false;
        }
        for Span { segment, slot, blocks } in joined(places) {
            self.files.will_read(segment, slot, BlockCount(blocks.into()));
        }
        true
    }

    /// Adds the places of a run that have to be read.
    fn add_places(&self, run: Run, places: &mut Vec<Span>) {
        let mut index = 0;
        while index < run.length.0 {
            let address = run.start.plus(BlockCount(index));
            if self.is_in_memory(run.stream, address) {
                index += 1;
                continue;
            }
            let Ok(Some((segment, slot, together))) = self.lookup(run.stream, address) else { return };
            let blocks = together.0.min(run.length.0 - index).min(SPAN_BLOCKS_MAX.into());
            places.push(Span { segment, slot, blocks: blocks as u32 });
            index += blocks;
        }
    }
}

/// Places in the order of the medium, near ones joined.
fn joined(mut places: Vec<Span>) -> Vec<Span> {
    places.sort_unstable();
    let mut spans: Vec<Span> = Vec::new();
    for place in places {
        match spans.last_mut() {
            Some(last) if last.reaches(place) => {
                last.blocks = last.blocks.max(place.slot.0 + place.blocks - last.slot.0);
            }
            _ => spans.push(place),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(segment: u32, slot: u32, blocks: u32) -> Span {
        Span { segment: SegmentId(segment), slot: Slot(slot), blocks }
    }

    #[test]
    fn near_places_are_joined_and_far_ones_are_not() {
        let places = vec![span(1, 40, 2), span(1, 10, 1), span(2, 13, 1), span(1, 12, 4)];
        assert_eq!(joined(places), [span(1, 10, 6), span(1, 40, 2), span(2, 13, 1)]);
        let gap = GAP_BLOCKS;
        assert_eq!(joined(vec![span(1, 1, 1), span(1, 2 + gap, 1)]), [span(1, 1, 2 + gap)]);
        assert_eq!(joined(vec![span(1, 1, 1), span(1, 3 + gap, 1)]).len(), 2);
    }

    #[test]
    fn a_span_has_a_limit_and_every_place_is_in_one() {
        let places: Vec<Span> = (0..1000).map(|index| span(0, 1 + index * 2, 1)).collect();
        let spans = joined(places.clone());
        assert!(spans.len() < 10, "{}", spans.len());
        assert!(spans.iter().all(|span| span.blocks <= SPAN_BLOCKS_MAX));
        let holds = |place: &Span| {
            spans.iter().any(|span| {
                span.slot <= place.slot && place.slot.0 + place.blocks <= span.slot.0 + span.blocks
            })
        };
        assert!(places.iter().all(holds));
    }

    #[test]
    fn places_that_overlap_are_fetched_once() {
        assert_eq!(joined(vec![span(1, 5, 10), span(1, 6, 2)]), [span(1, 5, 10)]);
    }
}
