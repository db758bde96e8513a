//! Turns of writers: no writer waits for long beside one that writes transaction after transaction.
//!
//! SQLite asks for a lock that it does not get again and again, with pauses that grow to 100 ms
//! (`sqliteDefaultBusyCallback`). A writer that never rests takes the lock in nearly every pause, so that
//! another one waits for seconds, as with a plain file. A handle that was refused for a while waits for the
//! writer to go instead, and the lock is kept for it. Beside transactions that take longer than the wait it
//! is a matter of chance.

use crate::locks::HandleId;
use std::time::{Duration, Instant};

/// A handle that was refused so often, for so long, is let in next.
const REFUSALS: u32 = 3;
const PATIENCE: Duration = Duration::from_millis(50);
/// A handle that does not ask for so long has given up: more than the longest pause of SQLite.
const GIVEN_UP: Duration = Duration::from_millis(200);
/// A handle waits for the writer so long, no more: busy timeouts are to be kept, which the VFS does not know.
pub const WAIT: Duration = Duration::from_millis(50);
/// The lock is kept for so long between the end of the wait and the moment at which the handle asks for it.
/// Tests run on busy machines.
const KEPT: Duration = Duration::from_millis(if cfg!(test) { 10_000 } else { 20 });

/// How often a handle was refused the right to write, one time after the other.
#[derive(Default)]
pub struct Refusals {
    row: Option<Row>,
    /// The handle asked for the right to write since it took SHARED.
    asked: bool,
}

struct Row {
    first: Instant,
    last: Instant,
    count: u32,
}

impl Refusals {
    /// The handle is refused.
    pub fn add(&mut self, now: Instant) {
        self.asked = true;
        match self.row.as_mut().filter(|row| now - row.last < GIVEN_UP) {
            Some(row) => (row.last, row.count) = (now, row.count + 1),
            None => self.row = Some(Row { first: now, last: now, count: 1 }),
        }
    }

    /// The handle may write.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The handle holds nothing any more: if it only read, it wants to write no more.
    pub fn end_of_lock(&mut self) {
        if !std::mem::take(&mut self.asked) {
            self.row = None;
        }
    }

    /// Whether the handle has been refused for so long that it is let in next.
    pub fn are_many(&self, now: impl Fn() -> Instant) -> bool {
        self.row.as_ref().is_some_and(|row| {
            row.count >= REFUSALS && now() - row.last < GIVEN_UP && row.last - row.first >= PATIENCE
        })
    }
}

/// Which handle writes next.
#[derive(Default)]
pub struct Next {
    claim: Option<(HandleId, Instant)>,
}

impl Next {
    /// Claims the lock for a handle while it waits; false where another one has claimed it.
    pub fn claim(&mut self, handle: HandleId, now: Instant) -> bool {
        let is_free = !self.is_claimed_beside(handle, now);
        if is_free {
            self.claim = Some((handle, now + WAIT + KEPT));
        }
        is_free
    }

    /// The wait is over. If the lock can be had, it is kept for the handle for a moment.
    pub fn end_wait(&mut self, handle: HandleId, can_be_had: bool, now: Instant) {
        // On a busy machine the claim may have gone to another handle by now.
        if !self.is_claimed_beside(handle, now) {
            self.claim = can_be_had.then_some((handle, now + KEPT));
        }
    }

    /// The handle got what it claimed.
    pub fn forget(&mut self, handle: HandleId) {
        self.claim = self.claim.filter(|(claimer, _)| *claimer != handle);
    }

    /// Whether the lock is kept for another handle.
    pub fn is_claimed_beside(&self, handle: HandleId, now: Instant) -> bool {
        self.claim.is_some_and(|(claimer, until)| claimer != handle && now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_in_a_row_become_many_and_a_pause_or_a_read_ends_them() {
        let mut refusals = Refusals::default();
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        assert!(!refusals.are_many(|| at(0)));
        refusals.add(at(0));
        refusals.add(at(60));
        assert!(!refusals.are_many(|| at(60)), "twice is not often");
        refusals.end_of_lock();
        refusals.add(at(70));
        assert!(refusals.are_many(|| at(70)));
        assert!(!refusals.are_many(|| at(70) + GIVEN_UP), "the handle has given up since");
        refusals.add(at(70) + GIVEN_UP);
        assert!(!refusals.are_many(|| at(70) + GIVEN_UP), "a new row begins");
        for ms in [1_000, 1_030, 1_060] {
            refusals.add(at(ms));
            refusals.end_of_lock();
        }
        assert!(refusals.are_many(|| at(1_060)));
        refusals.end_of_lock();
        assert!(!refusals.are_many(|| at(1_060)), "the handle only read");
    }

    #[test]
    fn one_handle_at_a_time_claims_the_lock() {
        let (mut next, first, second) = (Next::default(), HandleId::fresh(), HandleId::fresh());
        let now = Instant::now();
        assert!(next.claim(first, now) && next.claim(first, now));
        assert!(!next.claim(second, now) && next.is_claimed_beside(second, now));
        next.end_wait(first, false, now);
        assert!(!next.is_claimed_beside(second, now));
        assert!(next.claim(second, now));
        next.end_wait(second, true, now);
        assert!(next.is_claimed_beside(first, now) && !next.is_claimed_beside(second, now));
        next.end_wait(first, true, now);
        assert!(next.is_claimed_beside(first, now), "the wait of another handle ends too late");
        next.forget(first);
        assert!(next.is_claimed_beside(first, now));
        assert!(!next.is_claimed_beside(first, now + KEPT), "a claim is not kept for long");
        next.forget(second);
        assert!(!next.is_claimed_beside(first, now));
    }
}
