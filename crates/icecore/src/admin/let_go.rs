//! A pool that its owner keeps open only for what may come: another process gets it at once.

use super::client::{Client, Outcome, Patience};
use super::protocol::Request;
use crate::error::{Error, Result};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// How long an idle owner may take to answer, and then to close the pool.
const PATIENCE: Patience = Patience { silence: Duration::from_secs(1), sign: Duration::from_secs(1) };
const CLOSING: Duration = Duration::from_secs(5);
/// How often it is tried within that time.
const RETRY_INTERVAL: Duration = Duration::from_millis(1);

/// Opens the pool in a folder. If another process has it open, and does nothing with it, that process closes
/// it first.
///
/// # Errors
/// Those of `open`: [`Error::PoolInUse`] if the owner is not idle, or does not answer.
pub(crate) fn from_idle_owner<T>(directory: &Path, mut open: impl FnMut() -> Result<T>) -> Result<T> {
    let mut outcome = open();
    if !is_in_use(&outcome) || !lets_go(directory) {
        return outcome;
    }
    let deadline = Instant::now() + CLOSING;
    while is_in_use(&outcome) && Instant::now() < deadline {
        thread::sleep(RETRY_INTERVAL);
        outcome = open();
    }
    outcome
}

const fn is_in_use<T>(outcome: &Result<T>) -> bool {
    matches!(outcome, Err(Error::PoolInUse { .. }))
}

/// Whether the owner is about to close the pool, because it was asked to or by itself.
fn lets_go(directory: &Path) -> bool {
    let asked =
        Client::connect_with(directory, PATIENCE).map(|mut client| client.call(&Request::LetGo, &mut |_| {}));
    matches!(asked, Ok(Ok(Outcome::Done(_) | Outcome::NotBegun)))
}
