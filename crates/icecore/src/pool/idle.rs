//! A pool that its owner keeps open though it does nothing with it, because opening it again takes longer.

use super::Pool;
use crate::error::{Error, Result};
use std::sync::Arc;

/// Has an idle pool closed soon, by another thread; false if it is in use again.
pub type CloseIdle = Arc<dyn Fn() -> bool + Send + Sync>;

impl Pool {
    /// Another process that wants to open the pool gets it from here on: `close` is called then, by a thread
    /// of the pool, and must not wait for the pool to be closed. `None` says that the pool is in use again.
    pub fn set_idle(&self, close: Option<CloseIdle>) {
        *self.shared.idle.lock() = close;
    }

    /// Lets another process have the pool, if it is idle.
    ///
    /// # Errors
    /// [`Error::PoolInUse`] if it is not.
    pub(crate) fn let_go(&self) -> Result<()> {
        // Called without the lock: a caller of `set_idle` may hold what it needs.
        let idle = self.shared.idle.lock().clone();
        if idle.is_some_and(|close| close()) {
            return Ok(());
        }
        Err(Error::PoolInUse {
            path: self.describe(),
            owner: format!("process {}", std::process::id()),
            way_out: "it is not idle".to_owned(),
        })
    }
}
