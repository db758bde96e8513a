//! Histories without faults: the pool is what the model says, after every few steps and after every restart.

use crate::common::{for_each_seed, must};
use icecore_sim::explorer::{Explorer, Setting, Verdict};

/// Steps between two comparisons.
const STRIDE: usize = 7;

fn agreed(verdict: Verdict, explorer: &Explorer) {
    assert!(matches!(verdict, Verdict::Agreed), "{verdict:?}\n  {}", explorer.recent());
}

#[test]
fn histories_without_faults() {
    for_each_seed("histories_without_faults", 6, |seed| {
        let mut explorer = Explorer::new(seed, &Setting::draw(seed)).unwrap();
        explorer.open().unwrap();
        for round in 0..30 {
            let verdict = must(explorer.live(STRIDE));
            agreed(verdict, &explorer);
            must(explorer.check());
            if round % 10 == 9 {
                explorer.close().unwrap();
                explorer.open().unwrap();
                must(explorer.check());
            }
        }
        let report = explorer.pool().scrub(&mut |_| true).unwrap();
        assert_eq!((report.damaged, report.complete), (0, true), "{report:?}");
    });
}
