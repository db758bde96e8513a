//! Where threads meet, under a checker that tries one order of their steps after the other (shuttle): the log's turns with
//! group commit, and pins against the reuse of what died. The very files of the store are compiled here, with the
//! checker's locks and threads in place of the system's.

#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../src/pins.rs"]
mod pins;
#[allow(dead_code, reason = "a part of the store, of which this uses a part")]
#[path = "../src/log/turn.rs"]
mod turn;

/// What the files use of the store.
mod error {
    pub use icecore::error::*;
}
mod units {
    pub use icecore::units::*;
}

/// The checker's tools under the store's names for them.
mod sync {
    pub use shuttle::sync::atomic::{AtomicBool, Ordering};
    pub use shuttle::sync::{Arc, MutexGuard};
    pub use shuttle::thread;

    /// One whose lock is not poisoned, as the store's.
    #[derive(Default)]
    pub struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Self {
            Self(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0.lock().expect("nobody panics while it is locked")
        }
    }
}

use icecore::units::{LogAddress, RecordSequence};
use pins::Pins;
use shuttle::sync::atomic::AtomicU64;
use std::collections::BTreeSet;
use sync::{Arc, AtomicBool, Mutex, Ordering, thread};
use turn::Turns;

/// Orders of steps that are tried.
const SCHEDULES: usize = 1500;
/// Batches that a leader writes in a row, as the writer of the log does.
const BATCHES: usize = 2;

/// What only the one who writes may touch.
struct Token;

/// A log whose writing is a number that is set.
struct Log {
    turns: Turns<Token>,
    built: Mutex<u64>,
    durable: AtomicU64,
    /// Somebody writes.
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

fn together(body: impl Fn() + Send + Sync + 'static) {
    let body = std::sync::Arc::new(body);
    let again = std::sync::Arc::clone(&body);
    shuttle::check_random(move || again(), SCHEDULES);
    shuttle::check_pct(move || body(), SCHEDULES, 3);
}

#[test]
fn whoever_commits_is_served_and_nobody_waits_for_ever() {
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
                    // One who led for others may be told of a failure that came after its own record was durable.
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

/// What a pool has: blocks that are alive, and those that died and wait for whoever may still read them.
#[derive(Default)]
struct State {
    clock: u64,
    alive: BTreeSet<u64>,
    dead: Vec<(u64, u64)>,
    reused: BTreeSet<u64>,
}

impl State {
    fn kill(&mut self, block: u64) {
        self.clock += 1;
        self.alive.remove(&block);
        self.dead.push((self.clock, block));
    }
}

/// As `Engine::bury`: what died at a moment may be used again when no pin is older.
fn bury(pins: &Pins, state: &mut State) {
    let oldest = pins.oldest();
    for (moment, block) in std::mem::take(&mut state.dead) {
        if oldest.is_none_or(|oldest| oldest >= moment) {
            state.reused.insert(block);
        } else {
            state.dead.push((moment, block));
        }
    }
}

#[test]
fn nothing_that_a_reader_has_pinned_is_reused() {
    together(|| {
        let pins = Arc::new(Pins::default());
        let state = Arc::new(Mutex::new(State { alive: (0..4).collect(), ..State::default() }));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (pins, state) = (Arc::clone(&pins), Arc::clone(&state));
                thread::spawn(move || {
                    for _ in 0..2 {
                        // As `View::pin`: the version and the pin in one moment.
                        let (blocks, pin) = {
                            let state = state.lock();
                            (state.alive.clone(), pins.pin(state.clock, LogAddress(0)))
                        };
                        thread::yield_now();
                        let reused = state.lock().reused.clone();
                        assert!(blocks.is_disjoint(&reused), "{blocks:?} are read, {reused:?} were reused");
                        drop(pin);
                    }
                })
            })
            .collect();
        let writer = {
            let (pins, state) = (Arc::clone(&pins), Arc::clone(&state));
            thread::spawn(move || {
                for block in 0..4 {
                    state.lock().kill(block);
                    thread::yield_now();
                    bury(&pins, &mut state.lock());
                }
            })
        };
        readers.into_iter().chain([writer]).for_each(|thread| thread.join().expect("a thread"));
        assert_eq!((pins.count(), pins.oldest()), (0, None));
    });
}
