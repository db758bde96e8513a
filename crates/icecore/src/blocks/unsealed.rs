//! Segments in which blocks of open groups lie, that may still change.
//!
//! The checksum table of a segment is written once, when the segment is full. What an open group has written
//! ahead has no final checksums by then. What must hold: *the table is written when the segment is full and
//! no open group has blocks in it, once.*

use crate::numbers::NumberMap;
use crate::units::SegmentId;
use parking_lot::Mutex;

/// Which segments these are.
#[derive(Default)]
pub(super) struct Unsealed(Mutex<NumberMap<SegmentId, Segment>>);

#[derive(Default)]
struct Segment {
    /// Holds of groups.
    holds: u32,
    /// The use in which it is full.
    full: Option<u64>,
}

impl Unsealed {
    /// A group gets room in a segment that is not full yet.
    pub(super) fn hold(&self, segment: SegmentId) {
        self.0.lock().entry(segment).or_default().holds += 1;
    }

    /// A group lets go of a segment. Answers its use if the table is to be written now.
    pub(super) fn let_go(&self, segment: SegmentId) -> Option<u64> {
        let mut segments = self.0.lock();
        let held = segments.get_mut(&segment)?;
        held.holds -= 1;
        if held.holds > 0 {
            return None;
        }
        segments.remove(&segment).and_then(|held| held.full)
    }

    /// A segment is full. Answers whether the table is to be written now.
    pub(super) fn fill(&self, segment: SegmentId, incarnation: u64) -> bool {
        match self.0.lock().get_mut(&segment) {
            Some(held) => {
                held.full = Some(incarnation);
                false
            }
            None => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_written_once_when_the_segment_is_full_and_all_have_let_go() {
        let (unsealed, segment) = (Unsealed::default(), SegmentId(3));
        assert!(unsealed.fill(segment, 7), "no group has blocks in it");
        unsealed.hold(segment);
        unsealed.hold(segment);
        assert_eq!(unsealed.let_go(segment), None);
        assert!(!unsealed.fill(segment, 8));
        assert_eq!(unsealed.let_go(segment), Some(8));
        unsealed.hold(segment);
        assert_eq!(unsealed.let_go(segment), None, "it is not full");
        assert!(unsealed.fill(segment, 9));
    }
}
