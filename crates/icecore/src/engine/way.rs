//! Making way: work in the background under a lock that lasts until another thread wants the lock, and no
//! longer.
//!
//! A writer spends nearly all of its time in flushes, and no thread needs the state during these. Work that
//! stops as soon as the writer is back fits in there. It costs the writer next to nothing, if the writer is
//! not put to sleep for it: waking a thread takes about as long as a flush.

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a thread that waits stays awake for one that makes way.
const AWAKE: Duration = Duration::from_micros(50);

/// Shows the holder of a lock that another thread waits for it, and that thread that the lock will be free in
/// a moment. Nothing but speed depends on it.
#[derive(Default)]
pub(super) struct Way {
    waiting: AtomicUsize,
    makes_way: AtomicBool,
}

/// As long as it lives, who has the lock makes way.
pub(super) struct MakingWay<'a>(&'a Way);

impl Drop for MakingWay<'_> {
    fn drop(&mut self) {
        self.0.makes_way.store(false, Ordering::Relaxed);
    }
}

impl Way {
    /// Waits for a lock that another thread holds.
    #[cold]
    pub(super) fn wait_for<'a, T>(&self, lock: &'a Mutex<T>) -> MutexGuard<'a, T> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let guard = self.soon(lock).unwrap_or_else(|| lock.lock());
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        guard
    }

    /// The lock, if who has it makes way soon enough.
    fn soon<'a, T>(&self, lock: &'a Mutex<T>) -> Option<MutexGuard<'a, T>> {
        let begin = Instant::now();
        while self.makes_way.load(Ordering::Relaxed) && begin.elapsed() < AWAKE {
            if let Some(guard) = lock.try_lock() {
                return Some(guard);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Whether a thread waits for the lock.
    pub(super) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// The holder of the lock is going to look often whether a thread waits, and to let go of it then.
    pub(super) fn make_way(&self) -> MakingWay<'_> {
        self.makes_way.store(true, Ordering::Relaxed);
        MakingWay(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn a_thread_that_makes_way_learns_that_another_one_waits() {
        let (way, lock) = (Arc::new(Way::default()), Arc::new(Mutex::new(0)));
        for makes_way in [true, false] {
            let mut guard = lock.lock();
            let made = makes_way.then(|| way.make_way());
            assert!(!way.is_waited_for());
            let other = {
                let (way, lock) = (way.clone(), lock.clone());
                thread::spawn(move || *way.wait_for(&lock) += 1)
            };
            while !way.is_waited_for() {
                thread::yield_now();
            }
            *guard += 1;
            drop(made);
            drop(guard);
            other.join().unwrap();
            assert!(!way.is_waited_for());
        }
        assert_eq!(*lock.lock(), 4);
    }
}
