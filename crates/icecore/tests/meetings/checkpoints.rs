//! The line of checkpoints: those of everything, those of moves, and the one of a close.

use crate::error::{Error, Result};
use crate::line::Line;
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, thread};
use crate::together;

/// What changed, by number.
const CHANGES: u64 = 4;

#[derive(Default)]
struct State {
    /// Since the last checkpoint was frozen.
    changed: Vec<u64>,
    closing: bool,
}

/// What is durable.
#[derive(Default)]
struct Ledger {
    blobs: u64,
    said: Vec<u64>,
}

struct Pool {
    line: Line<Ledger>,
    state: Mutex<State>,
    has_failed: AtomicBool,
    is_closed: AtomicBool,
    /// The blob with which writing fails.
    fails_at: u64,
}

impl Pool {
    fn new(fails_at: u64) -> Arc<Self> {
        Arc::new(Self {
            line: Line::new(Ledger::default()),
            state: Mutex::default(),
            has_failed: AtomicBool::new(false),
            is_closed: AtomicBool::new(false),
            fails_at,
        })
    }

    /// As `Engine::with_line`.
    fn with_line(&self, body: impl FnOnce(&mut Ledger) -> Result<()>) -> Result<()> {
        let refused = || Err(Error::Invalid("it takes no writes".to_owned()));
        let ready = || {
            let is_over = self.has_failed.load(Ordering::SeqCst) || self.is_closed.load(Ordering::SeqCst);
            if is_over || self.state.lock().closing { refused() } else { Ok(()) }
        };
        self.line.with(ready, body, |_| self.has_failed.store(true, Ordering::SeqCst))
    }

    fn write(&self, ledger: &mut Ledger, changed: &[u64]) -> Result<()> {
        assert!(!self.is_closed.load(Ordering::SeqCst), "somebody else has the pool");
        thread::yield_now();
        ledger.blobs += 1;
        if ledger.blobs == self.fails_at {
            return Err(Error::Invalid("it was ordered".to_owned()));
        }
        for number in changed {
            assert_eq!(*number, ledger.said.len() as u64, "the ledger lacks what the last checkpoint took");
            ledger.said.push(*number);
        }
        Ok(())
    }

    fn checkpoint(&self, closing: bool) -> Result<()> {
        self.with_line(|ledger| {
            let changed = {
                let mut state = self.state.lock();
                state.closing = closing;
                std::mem::take(&mut state.changed)
            };
            self.write(ledger, &changed)
        })
    }

    /// As `Engine::record_moves`: of what changed not all; and what there is no room for is put back.
    fn record_moves(&self, has_room: bool) -> Result<()> {
        self.with_line(|ledger| {
            let moved = {
                let mut state = self.state.lock();
                let some = state.changed.len() / 2;
                state.changed.drain(..some).collect::<Vec<_>>()
            };
            if has_room {
                return self.write(ledger, &moved);
            }
            thread::yield_now();
            self.state.lock().changed.splice(0..0, moved);
            Ok(())
        })
    }

    /// As `Engine::close`.
    fn close(&self) {
        let _ = self.checkpoint(true);
        let _line = self.line.lock();
        self.is_closed.store(true, Ordering::SeqCst);
    }
}

fn live(fails_at: u64) {
    let pool = Pool::new(fails_at);
    let run = |body: fn(&Pool)| {
        let pool = Arc::clone(&pool);
        thread::spawn(move || body(&pool))
    };
    let threads = [
        run(|pool| {
            for number in 0..CHANGES {
                let mut state = pool.state.lock();
                if !state.closing {
                    state.changed.push(number);
                }
            }
        }),
        run(|pool| drop(pool.checkpoint(false))),
        run(|pool| (0..2).for_each(|_| drop(pool.checkpoint(false)))),
        run(|pool| [false, true].into_iter().for_each(|has_room| drop(pool.record_moves(has_room)))),
    ];
    pool.close();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    let has_failed = pool.has_failed.load(Ordering::SeqCst);
    assert!(has_failed || pool.state.lock().changed.is_empty(), "what was closed lacks something");
}

#[test]
fn nothing_is_written_behind_the_checkpoint_of_a_close() {
    together(|| live(0));
}

#[test]
fn nothing_follows_a_checkpoint_that_failed() {
    together(|| live(2));
}
