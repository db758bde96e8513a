//! Which segments are worth emptying.

use super::Engine;
use crate::segments::Candidate;
use crate::state::State;

/// Of so many blocks at least one has to be reclaimable, or a segment is not worth the reading.
const DEAD_SHARE_MIN: u64 = 16;

impl Engine {
    /// Segments that are worth emptying, the most worthwhile first.
    pub(super) fn victims(&self, state: &State) -> Vec<Candidate> {
        let candidates = state.segments.candidates(state.replay_from);
        let mut victims: Vec<Candidate> = candidates.filter(is_worthwhile).collect();
        victims.sort_by(|one, other| benefit(other).total_cmp(&benefit(one)));
        victims
    }
}

fn is_worthwhile(candidate: &Candidate) -> bool {
    (candidate.capacity - candidate.live) * DEAD_SHARE_MIN >= candidate.capacity
}

/// Cost-benefit: the room that is gained, and for how long it is likely to stay gained, for the reading of the
/// segment and the writing of what lives in it (M. Rosenblum, J. Ousterhout, "The design and implementation of a
/// log-structured file system", section 3.5).
fn benefit(candidate: &Candidate) -> f64 {
    let full = candidate.live as f64 / candidate.capacity as f64;
    (1.0 - full) * candidate.age as f64 / (1.0 + full)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::segment::SegmentKind;
    use crate::units::SegmentId;

    fn candidate(live: u64, age: u64) -> Candidate {
        let (segment, kind) = (SegmentId(0), SegmentKind::Log);
        Candidate { segment, kind, live, capacity: 1000, young: 0, age, moves: 0 }
    }

    #[test]
    fn empty_goes_before_full_and_old_before_young() {
        assert!(benefit(&candidate(100, 5)) > benefit(&candidate(500, 5)));
        assert!(benefit(&candidate(500, 9)) > benefit(&candidate(500, 5)));
        // What is cold is worth emptying sooner than what will empty itself.
        assert!(benefit(&candidate(750, 100)) > benefit(&candidate(500, 10)));
        assert!(!is_worthwhile(&candidate(990, 1000)));
    }
}
