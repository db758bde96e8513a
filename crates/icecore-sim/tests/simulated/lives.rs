//! A few short lives, as `make soak` lives through many long ones.

use crate::common::{for_each_seed, is_long, must};
use icecore_sim::lives::{Deeds, live};

#[test]
fn lives_with_crashes_faults_rot_and_full_pools() {
    let mut all = Deeds::default();
    for_each_seed("lives", 12, |seed| {
        all += must(live(seed, (!is_long()).then_some(8)));
    });
    if !is_long() {
        // Few pools are full within a week: others live until one of them was.
        for_each_seed("more lives", 60, |seed| {
            if !has_met_everything(&all) {
                all += must(live(seed, Some(8)));
            }
        });
        assert!(has_met_everything(&all), "something never came about: {all}");
    }
    println!("{all}");
}

fn has_met_everything(all: &Deeds) -> bool {
    let met = [all.crashes, all.faults, all.refusals, all.collected, all.pruned, all.readers, all.limits];
    let looked = [all.scrubs, all.scrubbed, all.checks, all.rotten, all.healed];
    met.iter().chain(&looked).all(|count| *count > 0)
}
