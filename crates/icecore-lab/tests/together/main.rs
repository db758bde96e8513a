//! Studies that mostly wait, for a disk, a server, a clock or an emulated machine, several at a time. No
//! assertion here depends on how fast the machine is beside the others.
//!
//! Tests begin in the order of their names: those in the guest first, one of which takes longest.

mod guest;
#[path = "../shared/runs.rs"]
mod runs;
mod servers;
mod studies;

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Tests that run side by side.
const LANES: usize = 3;

/// The lab starts this test program again with this test alone.
#[test]
fn serve_as_a_child() {
    runs::serve_as_a_child();
}

/// Runs tests side by side, a few at a time. The longest ones should be the first.
fn side_by_side(tests: &[(&str, fn())]) {
    let next = AtomicUsize::new(0);
    let lane = || {
        let mut failed = Vec::new();
        while let Some(&(name, test)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
            if catch_unwind(test).is_err() {
                eprintln!("this was {name}");
                failed.push(name);
            }
        }
        failed
    };
    let failed: Vec<&str> = thread::scope(|scope| {
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        lanes.into_iter().flat_map(|lane| lane.join().expect("failures are caught")).collect()
    });
    assert!(failed.is_empty(), "{failed:?}");
}
