//! What is counted along the way, and is wrong in memory. An opening counts anew, so that no damage on disk
//! leads there, but a fault in a program would.

use super::tests::{made, open};
use super::*;
use crate::units::SegmentId;

/// What is found wrong in an engine as it is.
fn found(engine: &Engine) -> Vec<(Area, String)> {
    let mut report = CheckReport::default();
    books(engine, &mut report, &mut |_| {});
    report.problems.into_iter().map(|problem| (problem.area, problem.what)).collect()
}

#[test]
fn a_wrong_count_of_what_a_dataset_uses_is_named() {
    let (storage, _) = made();
    let pool = open(&storage);
    for name in ["db", "other"] {
        pool.set_property(name, "quota", "1073741824").unwrap();
    }
    let engine = pool.engine();
    assert_eq!(found(engine), []);
    for name in ["db", "other"] {
        let used = {
            let state = &mut *engine.state();
            let dataset = state.catalogue.find(name).unwrap();
            let used = state.usage.of(dataset).unwrap().used.0;
            state.usage.miscount(dataset);
            used
        };
        let expected = format!(
            "damage in the figures of quotas: {name} uses {used} blocks, and {} are counted",
            used + 1
        );
        let said = found(engine);
        assert_eq!((said.len(), said[0].0), (1, Area::Figures), "{said:?}");
        assert!(said[0].1.starts_with(&expected), "{said:?}");
        assert!(pool.verify().unwrap_err().to_string().starts_with(&expected));
        let usage = engine.state().count_usage();
        engine.state().usage = usage;
    }
    // A dataset with a limit that the counts do not know.
    engine.state().usage = crate::state::Usage::default();
    let said = found(engine);
    assert_eq!((said.len(), said[0].0), (1, Area::Figures), "{said:?}");
    assert!(said[0].1.contains("those that have limits are not those that are counted"), "{said:?}");
}

#[test]
fn a_wrong_count_of_what_lives_in_a_segment_is_named() {
    let (storage, _) = made();
    let pool = open(&storage);
    let engine = pool.engine();
    assert_eq!(found(engine), []);
    let segments: Vec<SegmentId> = engine.state().segments.all();
    let mut wrong = 0;
    for segment in segments {
        let live = engine.state().segments.live(segment);
        for counted in [live + 1, live.saturating_sub(1)] {
            let count = |to: u64| {
                let segments = &mut engine.state().segments;
                let from = segments.live(segment);
                segments.add_live(segment, to.saturating_sub(from));
                segments.remove_live(segment, from.saturating_sub(to));
            };
            count(counted);
            let said = found(engine);
            count(live);
            if counted == live {
                assert_eq!(said, []);
                continue;
            }
            let expected = format!(
                "damage in {}: {live} live blocks lie in it, and {counted} are counted",
                crate::format::segment::file_name(segment)
            );
            assert_eq!((said.len(), said[0].0), (1, Area::Places), "{said:?}");
            assert!(said[0].1.starts_with(&expected), "{said:?}");
            wrong += 1;
        }
    }
    assert!(wrong > 2);
    assert_eq!(found(engine), []);
}
