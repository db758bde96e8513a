//! Pins against freeing what died, and against leaving it behind.

use crate::graveyard::Graveyard;
use crate::pins::{Hold, Pin, Pins, Readers};
use crate::present::{Found, Present, Version};
use crate::sync::{Arc, AtomicU64, Mutex, Ordering, thread};
use crate::together;
use icecore::inside::BlockSet;
use icecore::units::{BlockCount, LogAddress, Marks, Run, Stream, VersionId};

const BLOCKS: u64 = 4;
const HEAD: VersionId = VersionId(1);
/// All blocks were born before any reader reads.
const MARKS: Marks = Marks([LogAddress(BLOCKS); 3]);

/// What a pool has: blocks that are alive, those that died and wait for readers that may still read them, and
/// those whose place may be used for something else.
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
        self.graveyard.sink_of(Stream::Data, HEAD).push(run);
    }

    fn version(&self) -> Version<BlockSet> {
        Version { tree: self.alive.clone(), head: HEAD, moment: self.clock, marks: MARKS }
    }

    /// As `State::pin`.
    fn pin(&mut self) -> Pin {
        self.graveyard.will_be_read(HEAD);
        self.graveyard.pins().pin(Hold::Head(HEAD), self.clock, MARKS)
    }

    fn let_go(&mut self, run: Run) {
        assert_eq!(self.gone.insert(run.start..run.end()), run.length, "nothing is freed twice");
    }
}

struct Pool {
    pins: Arc<Pins>,
    state: Mutex<State>,
    present: Present<BlockSet>,
    /// Blocks that were dropped by operations that have returned.
    dropped: AtomicU64,
}

impl Pool {
    fn new() -> Arc<Self> {
        let (state, present, dropped) = (State::new(), Present::default(), AtomicU64::new(0));
        let pins = Arc::clone(state.graveyard.pins());
        Arc::new(Self { pins, state: Mutex::new(state), present, dropped })
    }

    /// As a checkpoint: frozen, durable, and what it recorded is freed in slices.
    fn checkpoint(&self) {
        self.state.lock().graveyard.freeze();
        thread::yield_now();
        self.state.lock().graveyard.recorded();
        loop {
            let state = &mut *self.state.lock();
            let dead = state.graveyard.exhume(1);
            let Some(run) = dead.first() else { break };
            state.let_go(*run);
        }
    }

    /// As a collection, which leaves behind what no reader needs.
    fn leave_behind(&self) {
        let state = &mut *self.state.lock();
        state.graveyard.sift();
        let mut all = BlockSet::new();
        all.insert(LogAddress(0)..LogAddress(BLOCKS));
        let needless = state.graveyard.needless(&all);
        assert_eq!(state.graveyard.forsake(&needless), needless.len());
        for span in needless.runs() {
            state.let_go(Run::of(Stream::Data, &span));
        }
    }

    /// As an operation, or the first of several that belong together, of which the second drops a block as
    /// well.
    fn kill(&self, block: u64, more: Option<u64>) {
        let mut state = self.state.lock();
        for block in [Some(block), more].into_iter().flatten() {
            self.present.begin_change(more.is_some());
            state.kill(block);
            thread::yield_now();
            self.present.end_change(|| state.version());
        }
        drop(state);
        self.dropped.fetch_add(1 + more.iter().len() as u64, Ordering::SeqCst);
    }

    /// As `File`: the version and the pin without the state, if that is to be had.
    fn read_present(&self) {
        let dropped = self.dropped.load(Ordering::SeqCst);
        self.present.count_read();
        let (mut blocks, pin) = match self.present.read(&self.pins) {
            Found::Here(blocks, pin) => (blocks, pin),
            Found::Gone => panic!("the head stays"),
            Found::Unknown => {
                let state = self.state.lock();
                self.present.publish(state.version());
                (state.alive.clone(), self.pins.pin(Hold::Head(HEAD), state.clock, MARKS))
            }
        };
        assert!(blocks.len().0 <= BLOCKS - dropped, "an operation that has returned is not seen");
        assert_ne!(blocks.len().0, 1, "half of what belongs together is seen");
        thread::yield_now();
        blocks.intersect(&self.state.lock().gone);
        assert!(blocks.is_empty(), "{blocks:?} are read, and were freed");
        drop(pin);
    }

    fn read(&self) {
        // As `View`: the version and the pin in one moment.
        let (mut blocks, pin) = {
            let mut state = self.state.lock();
            (state.alive.clone(), state.pin())
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
        let pool = Pool::new();
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
        assert_eq!((pool.pins.count(), pool.pins.newest(Readers::Any, u64::MAX)), (0, None));
        pool.checkpoint();
        assert_eq!(pool.state.lock().gone.len(), BlockCount(BLOCKS), "what no reader holds is freed");
    });
}

#[test]
fn nothing_that_a_reader_of_an_open_file_has_found_is_reused() {
    together(|| {
        let pool = Pool::new();
        let run = |body: fn(&Pool)| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || body(&pool))
        };
        let threads = [
            run(|pool| (0..4).for_each(|_| pool.read_present())),
            run(|pool| (0..4).for_each(|_| pool.read_present())),
            run(|pool| {
                pool.kill(0, None);
                pool.kill(1, None);
                pool.kill(2, Some(3));
            }),
            run(|pool| (0..2).for_each(|_| pool.leave_behind())),
        ];
        (0..2).for_each(|_| pool.checkpoint());
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert_eq!((pool.pins.count(), pool.pins.newest(Readers::Any, u64::MAX)), (0, None));
        pool.checkpoint();
        assert_eq!(pool.state.lock().gone.len(), BlockCount(BLOCKS), "what no reader holds is freed");
    });
}
