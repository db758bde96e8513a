//! The log's turns with group commit.

use crate::sync::{Arc, AtomicBool, AtomicU64, Mutex, Ordering, thread};
use crate::together;
use crate::turn::Turns;
use icecore::units::RecordSequence;

/// Batches that a leader writes in a row, as the writer of the log does.
const BATCHES: usize = 2;

/// What only the one who writes may touch.
struct Token;

/// A log whose writing is a number that is set.
struct Log {
    turns: Turns<Token>,
    built: Mutex<u64>,
    durable: AtomicU64,
    /// A thread writes.
    busy: AtomicBool,
    /// The record with which writing fails.
    fails_at: u64,
}

impl Log {
    fn new(fails_at: u64) -> Self {
        Self {
            turns: Turns::new(Token),
            built: Mutex::new(0),
            durable: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            fails_at,
        }
    }

    fn durable(&self) -> RecordSequence {
        RecordSequence(self.durable.load(Ordering::SeqCst))
    }

    fn append(&self) -> RecordSequence {
        let mut built = self.built.lock();
        *built += 1;
        RecordSequence(*built)
    }

    fn write_batch(&self) -> bool {
        assert!(!self.busy.swap(true, Ordering::SeqCst), "two write at a time");
        let last = *self.built.lock();
        thread::yield_now();
        let done = last < self.fails_at;
        if done {
            self.durable.fetch_max(last, Ordering::SeqCst);
        }
        assert!(self.busy.swap(false, Ordering::SeqCst));
        done
    }

    /// As `Writer::make_durable`.
    fn make_durable(&self, wanted: RecordSequence) -> bool {
        while self.durable() < wanted {
            let token = match self.turns.take(Some(wanted), || self.durable()) {
                Ok(Some(token)) => token,
                Ok(None) => return true,
                Err(_) => return false,
            };
            let mut done = self.write_batch();
            for _ in 1..BATCHES {
                if !done || !self.turns.serve(self.durable()) {
                    break;
                }
                done = self.write_batch();
            }
            if !done {
                self.turns.fail("it was ordered".to_owned());
            }
            self.turns.give_back(token, self.durable());
            if !done {
                return false;
            }
        }
        true
    }

    /// As `Writer::exclusive`.
    fn exclusive(&self) {
        if let Ok(token) = self.turns.take(None, || self.durable()) {
            assert!(!self.busy.swap(true, Ordering::SeqCst), "two write at a time");
            thread::yield_now();
            assert!(self.busy.swap(false, Ordering::SeqCst));
            self.turns.give_back(token.expect("waits for its turn without end"), self.durable());
        }
    }
}

#[test]
fn every_commit_is_served_and_no_thread_waits_for_ever() {
    together(|| {
        let log = Arc::new(Log::new(u64::MAX));
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    for _ in 0..2 {
                        let wanted = log.append();
                        assert!(log.make_durable(wanted));
                        assert!(log.durable() >= wanted, "acknowledged, and not durable");
                        if number == 0 {
                            log.exclusive();
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert_eq!(log.durable(), RecordSequence(6));
        assert!(!log.turns.is_taken() && log.turns.failure().is_none());
    });
}

#[test]
fn a_failure_reaches_everybody_who_waits() {
    together(|| {
        let log = Arc::new(Log::new(3));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let log = Arc::clone(&log);
                thread::spawn(move || {
                    let wanted = log.append();
                    let done = log.make_durable(wanted);
                    // A thread that led for others may get a failure that came after its own record was
                    // durable.
                    assert!(!done || log.durable() >= wanted, "acknowledged, and not durable");
                    log.exclusive();
                    done
                })
            })
            .collect();
        let done = threads.into_iter().map(|thread| thread.join().expect("a thread"));
        let done = done.filter(|done| *done).count();
        assert!(done < 4 && log.turns.failure().is_some() && !log.turns.is_taken());
    });
}
