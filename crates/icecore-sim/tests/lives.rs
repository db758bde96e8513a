//! A few short lives, as `make soak` lives through many long ones.

mod common;

use common::{for_each_seed, is_long, must};
use icecore_sim::lives::{Deeds, live};

#[test]
fn lives_with_crashes_faults_rot_and_full_pools() {
    let mut all = Deeds::default();
    for_each_seed("lives", 12, |seed| {
        all += must(live(seed, (!is_long()).then_some(8)));
    });
    println!("{all}");
    if !is_long() {
        let met = [all.crashes, all.faults, all.refusals, all.collected, all.pruned, all.readers, all.limits];
        let looked = [all.scrubs, all.scrubbed, all.checks, all.rotten, all.healed];
        assert!(met.iter().chain(&looked).all(|count| *count > 0), "something never came about: {all}");
    }
}
