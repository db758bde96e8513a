//! The process that has a pool open, where a command needs the pool for itself.

use icecore::admin::locate::owned_for;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long a command waits for others.
pub const PATIENCE: Duration = Duration::from_secs(10);
/// An owner that has had the pool for longer is no command that ends soon.
const MOMENT: Duration = Duration::from_secs(2);
/// How often it is tried to own the pool.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Whether to try again, after a pause: the owner is likely to be a command that ends soon, and [`PATIENCE`]
/// since `begin` is not over.
pub fn waited_for_command(pool: &Path, begin: Instant) -> bool {
    let is_momentary = || owned_for(pool).is_some_and(|time| time < MOMENT);
    let waits = begin.elapsed() < PATIENCE && is_momentary();
    if waits {
        thread::sleep(RETRY_INTERVAL);
    }
    waits
}
