//! Pools on real files: from their making to their end, quotas, errors of the medium, room that goes back.
//!
//! They are one program: while a test waits for a pool to come to rest, others go on.

mod diff;
mod errors_log;
mod first_light;
mod observer;
mod quota;
mod quota_exact;
mod reach;
mod reclaim;
mod trim;

use std::thread;

/// Runs tests that wait more than they compute, all at the same time. Messages of a failure have the name.
fn side_by_side(tests: &[(&str, fn())]) {
    let failed: Vec<&str> = thread::scope(|scope| {
        let running: Vec<_> = tests
            .iter()
            .map(|&(name, test)| {
                let thread = thread::Builder::new().name(name.to_owned());
                (name, thread.spawn_scoped(scope, test).expect("a thread"))
            })
            .collect();
        let ended = running.into_iter().map(|(name, thread)| (name, thread.join()));
        ended.filter(|(_, outcome)| outcome.is_err()).map(|(name, _)| name).collect()
    });
    assert!(failed.is_empty(), "{failed:?}");
}
