//! One at a time: checkpoints, and whatever else writes a ledger or superblocks.
//!
//! What must hold: *nothing follows something that failed, nor the last checkpoint of a pool that is closed.*
//! What a checkpoint takes out of memory is gone when it fails: the next ledger would say less than the last
//! one did. After the checkpoint of a close, another owner may open the pool.

use crate::error::{Error, Result};
use crate::sync::{Mutex, MutexGuard};

/// Has `T`, which only the holder of the lock may touch.
pub(super) struct Line<T>(Mutex<T>);

impl<T> Line<T> {
    pub(super) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits until no other thread holds it. For callers that write neither a ledger nor superblocks.
    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock()
    }

    /// Does `body`, unless `ready` fails. If `body` fails, calls `failed` before another thread gets the
    /// lock.
    pub(super) fn with<R>(
        &self,
        ready: impl FnOnce() -> Result<()>,
        body: impl FnOnce(&mut T) -> Result<R>,
        failed: impl FnOnce(&Error),
    ) -> Result<R> {
        let mut line = self.lock();
        // Only now that no other thread has it.
        ready()?;
        let outcome = body(&mut line);
        if let Err(error) = &outcome {
            failed(error);
        }
        outcome
    }
}
