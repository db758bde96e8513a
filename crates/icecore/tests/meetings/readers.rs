//! Pins against freeing what died, and against leaving it behind.

use crate::graveyard::Graveyard;
use crate::pins::Pins;
use crate::sync::{Arc, Mutex, thread};
use crate::together;
use icecore::liveness::BlockSet;
use icecore::units::{BlockCount, LogAddress, Run, Stream};

const BLOCKS: u64 = 4;

/// What a pool has: blocks that are alive, those that died and wait for whoever may still read them, and those whose place may be used for
/// something else.
#[derive(Default)]
struct State {
    clock: u64,
    alive: BlockSet,
    graveyard: Graveyard,
    gone: BlockSet,
}

impl State {
    fn new() -> Self {
        let mut state = Self::default();
        state.alive.insert(LogAddress(0)..LogAddress(BLOCKS));
        state
    }

    /// As an operation that drops a block.
    fn kill(&mut self, block: u64) {
        self.clock += 1;
        self.graveyard.now(self.clock);
        let run = Run { stream: Stream::Data, start: LogAddress(block), length: BlockCount(1) };
        self.alive.remove(&(run.start..run.end()));
        self.graveyard.sink_of(Stream::Data).push(run);
    }

    fn let_go(&mut self, run: Run) {
        assert_eq!(self.gone.insert(run.start..run.end()), run.length, "nothing is freed twice");
    }
}

struct Pool {
    pins: Arc<Pins>,
    state: Mutex<State>,
}

impl Pool {
    /// As a checkpoint: frozen, durable, and what it recorded is freed in slices.
    fn checkpoint(&self) {
        self.state.lock().graveyard.freeze();
        thread::yield_now();
        self.state.lock().graveyard.recorded();
        loop {
            let state = &mut *self.state.lock();
            let dead = state.graveyard.exhume(&self.pins, 1);
            let Some(run) = dead.first() else { break };
            state.let_go(*run);
        }
    }

    /// As a collection, which leaves behind what nobody needs.
    fn leave_behind(&self) {
        let state = &mut *self.state.lock();
        state.graveyard.sift(&self.pins);
        let mut all = BlockSet::new();
        all.insert(LogAddress(0)..LogAddress(BLOCKS));
        let needless = state.graveyard.needless(&all);
        assert_eq!(state.graveyard.forsake(&needless), needless.len());
        for span in needless.runs() {
            state.let_go(Run::of(Stream::Data, &span));
        }
    }

    fn read(&self) {
        // As `View`: the version and the pin in one moment.
        let (mut blocks, pin) = {
            let state = self.state.lock();
            (state.alive.clone(), self.pins.pin(state.clock, LogAddress(0)))
        };
        thread::yield_now();
        blocks.intersect(&self.state.lock().gone);
        assert!(blocks.is_empty(), "{blocks:?} are read, and were freed");
        drop(pin);
    }
}

#[test]
fn nothing_that_a_reader_has_pinned_is_reused() {
    together(|| {
        let pool = Arc::new(Pool { pins: Arc::default(), state: Mutex::new(State::new()) });
        let run = |body: fn(&Pool)| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || body(&pool))
        };
        let threads = [
            run(|pool| (0..2).for_each(|_| pool.read())),
            run(|pool| (0..2).for_each(|_| pool.read())),
            run(|pool| {
                for block in 0..BLOCKS {
                    pool.state.lock().kill(block);
                }
            }),
            run(|pool| (0..2).for_each(|_| pool.leave_behind())),
        ];
        (0..2).for_each(|_| pool.checkpoint());
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert_eq!((pool.pins.count(), pool.pins.oldest()), (0, None));
        pool.checkpoint();
        assert_eq!(pool.state.lock().gone.len(), BlockCount(BLOCKS), "what nobody holds is freed");
    });
}
