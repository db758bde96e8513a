//! Writing ahead: pieces of a group that is not committed yet go to runs outside the log, in a thread of their
//! own, while the group goes on.

mod handover;

use super::runs::RunPlace;
use super::space::Filling;
use super::{Engine, Purpose};
use crate::error::{Error, Result};
use crate::format::crc32c;
use crate::log::tail::Payload;
use crate::storage::AlignedBuffer;
use crate::units::{BLOCK_BYTES, SegmentId, Slot};
use handover::{Handover, Word};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// A run of an open group. Its place is known from the beginning; it is written some time later.
pub(crate) struct StagedRun {
    pub segment: SegmentId,
    /// Slot of the first block.
    pub slot: Slot,
    /// Blocks of the piece before the first block of the run.
    pub first: u32,
    /// Number of blocks.
    pub blocks: u32,
    /// Given when it is written.
    pub word: Word,
}

impl StagedRun {
    /// Whether a block of the piece, counted from its first, is in the run.
    pub(crate) fn holds(&self, index: u32) -> bool {
        (self.first..self.first + self.blocks).contains(&index)
    }

    /// Where a block of the piece lies.
    pub(crate) fn slot_of(&self, index: u32) -> Slot {
        Slot(self.slot.0 + index - self.first)
    }
}

struct Job {
    run: Arc<StagedRun>,
    /// Comes with a hold on the segment: until the run is written nobody else may use it.
    place: RunPlace,
    payload: Payload,
}

/// The runs that wait to be written, and the thread that writes them.
#[derive(Default)]
pub(super) struct Staging {
    waiting: Handover<Job>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Staging {
    /// Ends the thread. What waits is not written: nobody can commit it any more.
    pub(super) fn stop(&self) {
        for job in self.waiting.stop() {
            job.run.word.give(Err(Error::Invalid("the pool was closed".to_owned())));
        }
        let thread = self.thread.lock().take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // A panic there was reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// Starts the thread of a pool. It ends when the pool is closed.
pub(super) fn start(engine: &Arc<Engine>) -> std::io::Result<()> {
    let weak = Arc::downgrade(engine);
    let staging = Arc::clone(&engine.staging);
    let name = "icecore-staging".to_owned();
    let thread = std::thread::Builder::new().name(name).spawn(move || run(&weak, &staging))?;
    *engine.staging.thread.lock() = Some(thread);
    Ok(())
}

fn run(weak: &Weak<Engine>, staging: &Staging) {
    while let Some(job) = staging.waiting.next() {
        let run = Arc::clone(&job.run);
        let Some(engine) = weak.upgrade() else {
            run.word.give(Err(Error::Invalid("the pool was closed".to_owned())));
            continue;
        };
        if catch_unwind(AssertUnwindSafe(|| engine.write_staged(job))).is_err() {
            // Whoever commits waits for word of each of its runs, and would wait for ever.
            let reason = "the thread icecore-staging panicked".to_owned();
            engine.writer.fail(&reason);
            run.word.give(Err(Error::ReadOnlyAfterFailure { reason }));
        }
    }
}

impl Engine {
    /// Gives a piece its place outside the log, and sees to it that it is written there. Each run comes with a hold on
    /// its segment, for the caller to let go of when something else keeps it.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: what was placed before that is written, and of no use.
    pub(crate) fn stage(&self, piece: &Arc<AlignedBuffer>) -> Result<Vec<Arc<StagedRun>>> {
        let sums: Vec<u32> = piece.chunks_exact(BLOCK_BYTES).map(crc32c).collect();
        let mut runs = Vec::new();
        let mut first = 0;
        while first < sums.len() {
            match self.stage_run(piece, &sums, first) {
                Ok(run) => {
                    first += run.blocks as usize;
                    runs.push(run);
                }
                Err(error) => {
                    let mut state = self.state();
                    runs.iter().for_each(|run| state.segments.let_go(run.segment));
                    return Err(error);
                }
            }
        }
        Ok(runs)
    }

    /// Stages as much of a piece, from its block `first` on, as lies together.
    fn stage_run(&self, piece: &Arc<AlignedBuffer>, sums: &[u32], first: usize) -> Result<Arc<StagedRun>> {
        let place = self.with_room(|| self.place_run(Filling::Runs, &sums[first..], Purpose::Data))?;
        // Before it may be written: the hold that the place came with is let go of then, and a full segment with
        // nothing alive in it is free for others.
        self.state().segments.hold(place.segment());
        let run = Arc::new(StagedRun {
            segment: place.segment(),
            slot: place.slot(),
            first: first as u32,
            blocks: place.blocks(),
            word: Word::default(),
        });
        let end = first + place.blocks() as usize;
        let payload = Payload { buffer: Arc::clone(piece), first, sums: sums[first..end].to_vec() };
        let job = Job { run: Arc::clone(&run), place, payload };
        let now = if self.options.background { self.staging.waiting.add(job) } else { Some(job) };
        if let Some(job) = now {
            self.write_staged(job);
        }
        Ok(run)
    }

    fn write_staged(&self, job: Job) {
        let outcome = self.fill_run(&job.place, &job.payload, &[]);
        self.state().segments.let_go(job.place.segment());
        job.run.word.give(outcome);
    }
}
