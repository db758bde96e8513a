//! What goes on beside the callers: checkpoints, segments written ahead, and a mark when nothing else goes
//! on.

use super::append::Pressure;
use super::trim::Keep;
use super::{Engine, Purpose};
use crate::error::Result;
use crate::operation::Operation;
use crate::sync::{Condvar, Mutex};
use crate::units::RecordSequence;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the background sleeps when no caller wakes it.
const IDLE: Duration = Duration::from_millis(500);
/// Times that it slept without a write meanwhile, after which the pool counts as idle.
const IDLE_TURNS: u32 = 4;

/// Wakes the background, and those who wait for it.
#[derive(Default)]
pub(super) struct Signals {
    inner: Mutex<Wanted>,
    changed: Condvar,
    /// Only that the threads shall end: for who sleeps whatever else is wanted.
    stopping: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

#[derive(Default)]
struct Wanted {
    checkpoint: bool,
    prepare: bool,
    collect: bool,
    free: bool,
    stop: bool,
    /// Grows with every checkpoint that ended, well or not.
    checkpoints_ended: u64,
}

impl Signals {
    /// A checkpoint ended.
    pub(super) fn checkpoint_done(&self) {
        let mut wanted = self.inner.lock();
        wanted.checkpoints_ended += 1;
        self.changed.notify_all();
    }

    fn request(&self, checkpoint: bool, prepare: bool) {
        let mut wanted = self.inner.lock();
        if (checkpoint && !wanted.checkpoint) || (prepare && !wanted.prepare) {
            wanted.checkpoint |= checkpoint;
            wanted.prepare |= prepare;
            self.changed.notify_all();
        }
    }

    /// A checkpoint is due for a reason that writers do not know of.
    pub(super) fn request_checkpoint(&self) {
        self.request(true, false);
    }

    /// Destroyed versions are there to be deleted.
    pub(super) fn request_freeing(&self) {
        self.inner.lock().free = true;
        self.changed.notify_all();
    }

    /// Whether the background is wanted for something more urgent than freeing.
    pub(super) fn is_wanted(&self) -> bool {
        let wanted = self.inner.lock();
        wanted.checkpoint || wanted.prepare || wanted.stop
    }

    fn request_collection(&self) {
        let mut wanted = self.inner.lock();
        if !wanted.collect {
            wanted.collect = true;
            self.changed.notify_all();
        }
    }

    /// Ends the threads, and waits for them but for one that calls.
    pub(super) fn stop(&self) {
        self.inner.lock().stop = true;
        self.changed.notify_all();
        self.stopping.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() {
                // A panic there was reported by the thread itself.
                let _ = thread.join();
            }
        }
    }

    /// Whether the pool is being closed.
    pub(super) fn is_stopping(&self) -> bool {
        self.inner.lock().stop
    }

    /// Sleeps for so long; false to end.
    pub(super) fn sleep(&self, time: Duration) -> bool {
        let mut wanted = self.inner.lock();
        let until = Instant::now() + time;
        while !wanted.stop && !self.stopping.wait_until(&mut wanted, until).timed_out() {}
        !wanted.stop
    }

    /// Sleeps until segments should be emptied, or for a while: whether they should. `None` to end.
    fn next_collection(&self) -> Option<bool> {
        let mut wanted = self.inner.lock();
        let until = Instant::now() + IDLE;
        while !wanted.collect && !wanted.stop {
            if self.changed.wait_until(&mut wanted, until).timed_out() {
                break;
            }
        }
        if wanted.stop {
            return None;
        }
        Some(std::mem::take(&mut wanted.collect))
    }

    /// Sleeps until something is wanted: a checkpoint, a preparation. `None` to end.
    fn next(&self) -> Option<(bool, bool)> {
        let mut wanted = self.inner.lock();
        if !wanted.checkpoint && !wanted.prepare && !wanted.free && !wanted.stop {
            self.changed.wait_for(&mut wanted, IDLE);
        }
        if wanted.stop {
            return None;
        }
        wanted.free = false;
        Some((std::mem::take(&mut wanted.checkpoint), std::mem::take(&mut wanted.prepare)))
    }
}

/// What a thread of the background does until the pool is gone.
type Body = fn(&Weak<Engine>);

/// Starts the background of a pool. It ends when the pool is closed.
pub(super) fn start(engine: &Arc<Engine>) -> std::io::Result<()> {
    let bodies: [(&str, Body); 3] = [
        ("icecore-background", run),
        ("icecore-collector", collect),
        ("icecore-copier", super::copying::run),
    ];
    for (name, body) in bodies {
        let weak = Arc::downgrade(engine);
        let run = move || {
            if catch_unwind(AssertUnwindSafe(|| body(&weak))).is_err()
                && let Some(engine) = weak.upgrade()
            {
                // The message of the panic is on stderr.
                engine.writer.fail(&format!("the thread {name} panicked"));
            }
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(run)?;
        engine.signals.threads.lock().push(thread);
    }
    Ok(())
}

/// Empties segments when it is time to, and a few when nothing else is to be done.
fn collect(weak: &Weak<Engine>) {
    let mut idle = 0;
    let mut done = 0;
    let mut written = Instant::now();
    // What cannot be removed once is not tried again by itself: each try costs a checkpoint, and an entry in
    // the log of errors.
    let mut removes = true;
    loop {
        let Some(engine) = weak.upgrade() else { return };
        let Some(due) = engine.signals.next_collection() else { return };
        let count = || engine.counters.write_calls.get() + engine.counters.commits.get();
        let now = count();
        idle = if now == done { idle + 1 } else { 0 };
        if idle == 0 {
            written = Instant::now();
        }
        done = now;
        // A failure to write a segment leaves what lives in it where it was. The log writer keeps the failure
        // of a checkpoint, and reports it to every caller.
        let is_at_rest = written.elapsed() >= engine.options.rest;
        let keep = (idle >= IDLE_TURNS).then_some(if is_at_rest { Keep::Rest } else { Keep::Pause });
        let _ = match (due, keep) {
            (true, _) => engine.collect_ahead(true),
            (false, Some(keep)) => engine.collect_idle(keep),
            (false, None) => Ok(()),
        };
        engine.blocks.files().copies().reserve_room();
        removes = removes && (due || engine.trim_in_background(keep).is_ok());
        if keep.is_some() {
            // This thread's own checkpoints do not count as writes.
            done = count();
        }
    }
}

/// Watches for the log to come to rest.
struct Rest {
    /// The last record, built or not, and up to where the log was durable, when it was looked at last.
    seen: (RecordSequence, RecordSequence),
    /// Since when that is so.
    since: Instant,
    /// The last record that nothing needs to be said about: a mark of ours, or what was there at the
    /// beginning.
    marked: RecordSequence,
}

impl Rest {
    fn new() -> Self {
        Self {
            seen: (RecordSequence(0), RecordSequence(0)),
            since: Instant::now(),
            marked: RecordSequence(0),
        }
    }

    /// Appends a mark if the log has been at rest for a while, and durable records at its end have no later
    /// one that says so.
    fn observe(&mut self, engine: &Engine) {
        let seen = engine.log_end();
        if seen != self.seen {
            (self.seen, self.since) = (seen, Instant::now());
        } else if self.since.elapsed() >= IDLE && seen.1 > self.marked {
            // Where there is no need or no room it is not tried again before there is more to be said.
            self.marked = engine.append_mark().unwrap_or(seen.1);
        }
    }
}

fn run(weak: &Weak<Engine>) {
    let mut rest = Rest::new();
    loop {
        let Some(engine) = weak.upgrade() else { return };
        let Some((checkpoint, prepare)) = engine.signals.next() else { return };
        if checkpoint {
            // The log writer keeps a failure, and reports it to every caller from now on.
            let _ = engine.run_checkpoint();
        }
        if prepare {
            engine.prepare_ahead();
        }
        engine.free_in_background();
        engine.bury_what_waited();
        rest.observe(&engine);
    }
}

impl Engine {
    /// Sees to it that a checkpoint begins when it is due, and that a segment is ready before it is needed.
    pub(super) fn trigger_background(&self, pressure: Pressure) -> Result<()> {
        if !self.options.background {
            self.free_with_call()?;
            if pressure.checkpoint {
                self.run_checkpoint()?;
                self.copy_with_call();
            }
            // What the caller did is done: a segment that cannot be emptied is no reason to tell it
            // otherwise.
            if pressure.collect && self.collect_ahead(false).is_err() {
                self.check_writable()?;
            }
            return Ok(());
        }
        if pressure.collect {
            self.signals.request_collection();
        }
        if pressure.checkpoint || pressure.prepare {
            self.signals.request(pressure.checkpoint, pressure.prepare);
        }
        Ok(())
    }

    /// Waits while a checkpoint is being written and the next is due already: the log must not outgrow what
    /// a recovery may take.
    pub(super) fn wait_for_checkpoint_room(&self) -> Result<()> {
        if !self.checkpoint_writing.load(Ordering::Acquire) || !self.options.background {
            return Ok(());
        }
        if !self.pressure(&self.state()).checkpoint {
            return Ok(());
        }
        self.counters.stalls.add(1);
        let mut wanted = self.signals.inner.lock();
        let before = wanted.checkpoints_ended;
        while wanted.checkpoints_ended == before
            && !wanted.stop
            && self.checkpoint_writing.load(Ordering::Acquire)
            && self.writer.failure().is_none()
        {
            self.signals.changed.wait_for(&mut wanted, IDLE);
        }
        drop(wanted);
        self.check_writable()
    }

    /// Writes zeros over one free segment.
    fn prepare_ahead(&self) {
        let mut state = self.state();
        if state.segments.free_unwritten().is_none() && self.make_segment(&mut state).is_err() {
            return;
        }
        // The reserve stays free to be taken meanwhile, and one for who writes: that must not be refused for
        // being got ready.
        if self.ensure_free(&mut state, 2, Purpose::Data).is_err() {
            return;
        }
        let Some(segment) = state.segments.free_unwritten() else { return };
        state.segments.hold(segment);
        drop(state);
        // One that an earlier life used need not be written once more.
        let outcome = match self.blocks.files().is_written(segment) {
            Ok(true) => Ok(()),
            _ => self.write_ahead(segment),
        };
        let mut state = self.state();
        state.segments.let_go(segment);
        match outcome {
            Ok(()) => state.segments.mark_written(segment),
            Err(error) => self.writer.fail(&format!("writing a segment ahead failed: {error}")),
        }
    }

    fn log_end(&self) -> (RecordSequence, RecordSequence) {
        (self.state().tail.last_sequence(), self.writer.durable())
    }

    /// Appends a record whose only purpose is to say up to where the log was durable. Without it, damage to
    /// what was acknowledged last would look like a torn tail. It is not flushed, so that a writer that
    /// commits now waits for no more than one block. `None` if there is no need for it, or no room.
    fn append_mark(&self) -> Option<RecordSequence> {
        let mut state = self.state();
        // Before that no replay looks.
        if self.check_writable().is_err() || state.closing || self.writer.durable() < state.replay_from {
            return None;
        }
        self.append(&mut state, &Operation::Mark, None, Purpose::Data).ok()?;
        // The mark is no caller's operation.
        state.operations_pending = state.operations_pending.saturating_sub(1);
        let mark = state.tail.last_sequence();
        drop(state);
        // A failure is kept by the log writer.
        self.write_log().ok()?;
        Some(mark)
    }

    /// Frees what only waited for readers that are gone now.
    fn bury_what_waited(&self) {
        if self.state().graveyard.waits() {
            self.bury_in_slices();
        }
    }
}
