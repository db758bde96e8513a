//! Turns of writers: no writer waits for long beside one that writes transaction after transaction.
//!
//! SQLite asks for a lock that it does not get again and again, with pauses that grow to 100 ms
//! (`sqliteDefaultBusyCallback`). A writer that never rests takes the lock in nearly every pause, so that another
//! one waits for seconds, as with a plain file. A handle that was refused for a while waits for the lock instead,
//! and the lock is kept for it.

use crate::locks::HandleId;
use std::time::{Duration, Instant};

/// A handle that was refused for so long is let in next.
const PATIENCE: Duration = Duration::from_millis(50);
/// A handle that does not ask for so long has given up: more than the longest pause of SQLite.
const GIVEN_UP: Duration = Duration::from_millis(200);
/// A handle waits for the writer so long, no more: busy timeouts are to be kept, which the VFS does not know.
pub const WAIT: Duration = Duration::from_millis(50);
/// The lock is kept for so long between the end of the wait and the moment at which the handle asks for it.
const KEPT: Duration = Duration::from_millis(20);

/// Since when a handle has been refused the right to write.
#[derive(Default)]
pub struct Refusals {
    /// The first one in a row, and the last one.
    span: Option<(Instant, Instant)>,
}

impl Refusals {
    /// The handle is refused.
    pub fn add(&mut self, now: Instant) {
        let first = self.first(now).unwrap_or(now);
        self.span = Some((first, now));
    }

    /// The handle may write.
    pub fn clear(&mut self) {
        self.span = None;
    }

    /// Whether the handle has been refused for so long that it is let in next.
    pub fn are_many(&self) -> bool {
        let now = Instant::now();
        self.first(now).is_some_and(|first| now - first >= PATIENCE)
    }

    fn first(&self, now: Instant) -> Option<Instant> {
        self.span.filter(|(_, last)| now - *last < GIVEN_UP).map(|(first, _)| first)
    }
}

/// Which handle writes next.
#[derive(Default)]
pub struct Next {
    claim: Option<(HandleId, Instant)>,
}

impl Next {
    /// Claims the lock for a handle while it waits; false where another one has claimed it.
    pub fn claim(&mut self, handle: HandleId) -> bool {
        let is_free = !self.is_claimed_beside(handle);
        if is_free {
            self.claim = Some((handle, Instant::now() + WAIT + KEPT));
        }
        is_free
    }

    /// The wait is over. If the lock can be had, it is kept for the handle for a moment.
    pub fn end_wait(&mut self, handle: HandleId, can_be_had: bool) {
        self.claim = can_be_had.then(|| (handle, Instant::now() + KEPT));
    }

    /// The handle got what it claimed, or is no more.
    pub fn forget(&mut self, handle: HandleId) {
        self.claim = self.claim.filter(|(claimer, _)| *claimer != handle);
    }

    /// Whether the lock is kept for another handle.
    pub fn is_claimed_beside(&self, handle: HandleId) -> bool {
        self.claim.is_some_and(|(claimer, until)| claimer != handle && Instant::now() < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_in_a_row_become_many_and_a_pause_ends_them() {
        let mut refusals = Refusals::default();
        let now = Instant::now();
        assert!(!refusals.are_many());
        refusals.add(now - PATIENCE);
        refusals.add(now);
        assert!(refusals.are_many());
        refusals.clear();
        refusals.add(now - GIVEN_UP - PATIENCE);
        assert!(!refusals.are_many(), "the handle has given up since");
        refusals.add(now);
        assert!(!refusals.are_many(), "a new row begins");
    }

    #[test]
    fn one_handle_at_a_time_claims_the_lock() {
        let (mut next, first, second) = (Next::default(), HandleId::fresh(), HandleId::fresh());
        assert!(next.claim(first) && next.claim(first));
        assert!(!next.claim(second) && next.is_claimed_beside(second));
        next.end_wait(first, false);
        assert!(!next.is_claimed_beside(second));
        assert!(next.claim(second));
        next.end_wait(second, true);
        assert!(next.is_claimed_beside(first) && !next.is_claimed_beside(second));
        next.forget(first);
        assert!(next.is_claimed_beside(first));
        next.forget(second);
        assert!(!next.is_claimed_beside(first));
    }
}
