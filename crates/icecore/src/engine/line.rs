//! One at a time: checkpoints, and whatever else writes a ledger or superblocks.
//!
//! What must hold: *nothing follows something that failed, nor the last checkpoint of a pool that is closed.* What a checkpoint takes out of
//! memory is gone when it fails: the next ledger would say less than the last one did. And behind the checkpoint of a close somebody else may
//! open the pool.

use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};

/// Has `T`, which only whoever is at it may touch.
pub(super) struct Line<T>(Mutex<T>);

impl<T> Line<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits until nobody is at it. For whoever writes neither a ledger nor superblocks.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    /// Does `body`, if `ready` has nothing against it. `failed` is told if it fails, before somebody else comes.
    pub(super) fn with<R>(
        &self,
        ready: impl FnOnce() -> Result<()>,
        body: impl FnOnce(&mut T) -> Result<R>,
        failed: impl FnOnce(&Error),
    ) -> Result<R> {
        let mut line = self.lock();
        // Only now that nobody else has it.
        ready()?;
        let outcome = body(&mut line);
        if let Err(error) = &outcome {
            failed(error);
        }
        outcome
    }
}
