//! Which segments are worth emptying.

use super::Engine;
use crate::segments::Candidate;
use crate::state::State;

/// Of so many blocks at least one has to be reclaimable, or a segment is not worth the reading.
const DEAD_SHARE_MIN: u64 = 16;

impl Engine {
    /// Segments that are worth emptying, the most worthwhile first.
    pub(crate) fn victims(&self, state: &State) -> Vec<Candidate> {
        let candidates = state.segments.candidates(state.replay_from);
        let mut victims: Vec<Candidate> = candidates.filter(is_worthwhile).collect();
        victims.sort_by(|one, other| loss_by_haste(one).total_cmp(&loss_by_haste(other)));
        victims
    }
}

fn is_worthwhile(candidate: &Candidate) -> bool {
    (candidate.capacity - candidate.live) * DEAD_SHARE_MIN >= candidate.capacity
}

/// What is lost by emptying a segment now instead of a moment later. The cost of emptying it, for each block
/// gained, falls as what lives in it dies, `u / (1 - u)^2` times the rate at which a block of it dies. Where
/// that is least, waiting gains least. (D. Lomet, C. Luo, "Efficiently reclaiming space in a log structured
/// store", 2021.) Of segments that are alike this prefers the emptiest; a cold one goes while it is fuller
/// than a hot one, which empties itself. The rate is what has died of the segment since it was filled, as if
/// by a half-life.
fn loss_by_haste(candidate: &Candidate) -> f64 {
    let full = candidate.live as f64 / candidate.capacity as f64;
    let rate = -full.ln() / candidate.age as f64;
    full / (1.0 - full).powi(2) * rate
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::segment::SegmentKind;
    use crate::units::SegmentId;

    fn candidate(live: u64, age: u64) -> Candidate {
        let (segment, kind) = (SegmentId(0), SegmentKind::Log);
        Candidate { segment, kind, live, capacity: 1000, age, moves: 0 }
    }

    #[test]
    fn empty_goes_before_full_and_cold_before_hot() {
        for live in (10..930).step_by(10) {
            assert!(loss_by_haste(&candidate(live, 5)) < loss_by_haste(&candidate(live + 10, 5)), "{live}");
        }
        assert!(loss_by_haste(&candidate(500, 9)) < loss_by_haste(&candidate(500, 5)));
        // What is cold is worth emptying sooner than what will empty itself.
        assert!(loss_by_haste(&candidate(750, 100)) < loss_by_haste(&candidate(500, 10)));
        // Of blocks that all die alike, by half in ten, a segment is the better the older.
        assert!(loss_by_haste(&candidate(250, 20)) < loss_by_haste(&candidate(500, 10)));
        assert!(!is_worthwhile(&candidate(990, 1000)));
    }
}
