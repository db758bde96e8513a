//! A condition variable that a forked child does not stumble over.
//!
//! The one of `parking_lot` links the threads that wait into a table of the process. A forked child inherits
//! the table without the threads: their memory is used again, and the child's own threads write into it.
//! Threads of a pool wait all their life, so nearly every fork had some of them in the table.

use parking_lot::MutexGuard;
use std::sync::{Mutex, PoisonError, WaitTimeoutResult};
use std::time::{Duration, Instant};

/// Lets threads wait for a change of what a [`parking_lot::Mutex`] guards.
///
/// A thread may also wake up without a notification.
#[derive(Default)]
pub struct Condvar {
    /// How many threads wait. A waiting thread locks it before it unlocks the mutex, so a notification that
    /// follows a change under the mutex reaches it.
    waiting: Mutex<usize>,
    changed: std::sync::Condvar,
}

impl Condvar {
    /// One that no thread waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiting: Mutex::new(0), changed: std::sync::Condvar::new() }
    }

    /// Waits for a notification, with the mutex unlocked meanwhile.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.unlocked(guard, |waiting| {
            (self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner), ())
        });
    }

    /// The same for no longer than `duration`.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, duration: Duration) -> WaitTimeoutResult {
        self.unlocked(guard, |waiting| {
            self.changed.wait_timeout(waiting, duration).unwrap_or_else(PoisonError::into_inner)
        })
    }

    /// The same until `deadline` at the latest.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> WaitTimeoutResult {
        self.wait_for(guard, deadline.saturating_duration_since(Instant::now()))
    }

    /// Wakes one of the threads that wait.
    pub fn notify_one(&self) {
        if *self.waiting() > 0 {
            self.changed.notify_one();
        }
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        if *self.waiting() > 0 {
            self.changed.notify_all();
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, usize> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unlocked<'a, T, R>(
        &'a self,
        guard: &mut MutexGuard<'_, T>,
        wait: impl FnOnce(std::sync::MutexGuard<'a, usize>) -> (std::sync::MutexGuard<'a, usize>, R),
    ) -> R {
        let mut waiting = self.waiting();
        *waiting += 1;
        MutexGuard::unlocked(guard, || {
            let (mut waiting, outcome) = wait(waiting);
            *waiting -= 1;
            outcome
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn every_thread_that_waits_is_woken() {
        let (count, changed) = (parking_lot::Mutex::new(0), Condvar::new());
        thread::scope(|scope| {
            for turn in 0..4 {
                let (count, changed) = (&count, &changed);
                scope.spawn(move || {
                    for round in 0..250 {
                        let mut count = count.lock();
                        while *count != 4 * round + turn {
                            assert!(!changed.wait_for(&mut count, Duration::from_secs(60)).timed_out());
                        }
                        *count += 1;
                        changed.notify_all();
                    }
                });
            }
        });
        assert_eq!(*count.lock(), 1000);
        assert_eq!(*changed.waiting(), 0);
    }

    #[test]
    fn a_wait_ends_in_time_and_has_the_mutex_again() {
        let (value, changed) = (parking_lot::Mutex::new(1), Condvar::new());
        let mut guard = value.lock();
        // Nothing notifies, but a thread may wake up by itself.
        while !changed.wait_until(&mut guard, Instant::now() + Duration::from_millis(5)).timed_out() {}
        assert!(value.try_lock().is_none());
        assert_eq!(*guard, 1);
    }
}
