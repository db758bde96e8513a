//! Waiting for the store's background, so that no side works on another side's time.

use crate::counters;
use crate::error::{Error, Result};
use icecore::{OpenOptions, Pool, Statistics};
use std::thread;
use std::time::{Duration, Instant};

const POLL: Duration = Duration::from_millis(2);
/// The background is at rest when nothing was counted for so long and no checkpoint is due.
const QUIET: Duration = Duration::from_millis(300);
/// Longer than any checkpoint or preparation takes; then something is wrong.
const PATIENCE: Duration = Duration::from_secs(120);

/// Waits until the pool's background is at rest, and answers when it last did something: waiting to see
/// that it does nothing is not its work.
pub(crate) fn settle(pool: &Pool, open: &OpenOptions) -> Result<Instant> {
    settle_by(|| Ok(pool.statistics()), open, &pool.describe())
}

/// The same of a pool that another process has open.
pub(crate) fn settle_by(
    mut statistics: impl FnMut() -> Result<Statistics>,
    open: &OpenOptions,
    pool: &str,
) -> Result<Instant> {
    let begin = Instant::now();
    let mut last_change = begin;
    let mut before = Vec::new();
    while last_change.elapsed() < QUIET {
        let statistics = statistics()?;
        let now: Vec<_> = counters::done(&statistics).collect();
        // Where one is due it has been asked for, and may not have begun.
        let checkpoint_due = statistics.log_bytes >= open.log_bytes_max / 2
            || statistics.dirty_bytes >= open.dirty_bytes_max / 2;
        if checkpoint_due || (now != before && !before.is_empty()) {
            last_change = Instant::now();
        }
        if begin.elapsed() > PATIENCE {
            let reason = "the background of the pool does not come to rest".to_owned();
            return Err(Error::Inconclusive { what: pool.to_owned(), reason });
        }
        before = now;
        thread::sleep(POLL);
    }
    Ok(last_change)
}
