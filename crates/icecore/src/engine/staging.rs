//! Writing ahead, in a thread of its own. Pieces of a group that is not committed yet go to runs outside the
//! log while the group goes on. The thread also writes the log itself, while operations follow that do not
//! wait for a flush.

mod handover;

use super::Engine;
use super::runs::RunPlace;
use crate::blocks::Block;
use crate::error::{Error, Result};
use crate::format::segment::SegmentKind;
use crate::log::tail::Payload;
use crate::storage::AlignedBuffer;
use crate::units::{SegmentId, Slot};
use handover::{Handover, Word};
use parking_lot::Mutex;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

/// A run of an open group. Its place is known from the beginning. It is written some time later, and may be
/// written over until the commit seals it.
pub(crate) struct StagedRun {
    place: RunPlace,
    /// Blocks of the piece before the first block of the run.
    pub first: u32,
    /// Given when it is written.
    pub word: Arc<Word>,
}

impl StagedRun {
    pub(crate) fn segment(&self) -> SegmentId {
        self.place.segment()
    }

    /// Slot of the first block.
    pub(crate) fn slot(&self) -> Slot {
        self.place.slot()
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.place.blocks()
    }

    /// Whether a block of the piece, counted from its first, is in the run.
    pub(crate) fn holds(&self, index: u32) -> bool {
        (self.first..self.first + self.blocks()).contains(&index)
    }

    /// Where a block of the piece lies.
    pub(crate) fn slot_of(&self, index: u32) -> Slot {
        Slot(self.slot().0 + index - self.first)
    }

    /// Checksums of the run, of those of the piece.
    fn part<'s>(&self, sums: &'s [u32]) -> &'s [u32] {
        &sums[self.first as usize..(self.first + self.blocks()) as usize]
    }
}

enum Job {
    /// Comes with a hold on the segment: until the run is written no other use may take it.
    Run(Arc<StagedRun>, Payload),
    /// What the log has built by then. Word is given as soon as it is taken from the log.
    Log(Arc<Word>),
}

impl Job {
    fn word(&self) -> Arc<Word> {
        Arc::clone(match self {
            Self::Run(run, _) => &run.word,
            Self::Log(word) => word,
        })
    }
}

/// What waits to be written, and the thread that writes it.
#[derive(Default)]
pub(super) struct Staging {
    waiting: Handover<Job>,
    /// Word of the job for the log that waits.
    log: Mutex<Option<Arc<Word>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Staging {
    /// Ends the thread. What waits is not written: no writer can commit it any more.
    pub(super) fn stop(&self) {
        for job in self.waiting.stop() {
            job.word().give(closed());
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

fn closed() -> Result<()> {
    Err(Error::Invalid("the pool was closed".to_owned()))
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
        let Some(engine) = weak.upgrade() else {
            job.word().give(closed());
            continue;
        };
        let word = job.word();
        if catch_unwind(AssertUnwindSafe(|| engine.write_job(job))).is_err() {
            // A commit waits for word of each of its runs, and would wait for ever.
            let reason = "the thread icecore-staging panicked".to_owned();
            engine.writer.fail(&reason);
            word.give(Err(Error::ReadOnlyAfterFailure { reason }));
        }
    }
}

impl Engine {
    /// Gives a piece its place outside the log, and sees to it that it is written there. `sums`: its
    /// checksums, one for each block. Each run comes with holds on its segment. The caller lets go of them
    /// ([`Engine::let_go_of_staged`]) when something else keeps it.
    ///
    /// # Errors
    /// [`Error::NoSpace`]: what was placed before that is written, and of no use.
    pub(crate) fn stage(&self, piece: &Arc<AlignedBuffer>, sums: &[u32]) -> Result<Vec<Arc<StagedRun>>> {
        let mut runs: Vec<Arc<StagedRun>> = Vec::new();
        let mut first = 0;
        while first < sums.len() {
            match self.stage_run(piece, sums, first) {
                Ok(run) => {
                    first += run.blocks() as usize;
                    runs.push(run);
                }
                Err(error) => {
                    self.let_go_of_staged(runs.iter().map(|run| run.segment()));
                    return Err(error);
                }
            }
        }
        Ok(runs)
    }

    /// Stages as much of a piece, from its block `first` on, as lies together.
    fn stage_run(&self, piece: &Arc<AlignedBuffer>, sums: &[u32], first: usize) -> Result<Arc<StagedRun>> {
        let place = self.with_room(|| self.place_open_run(sums.len() - first))?;
        // Before it may be written: writing lets go of the hold that the place came with. Then a full segment
        // with nothing alive in it is free for others.
        self.state().segments.hold(place.segment());
        let run = Arc::new(StagedRun { place, first: first as u32, word: Arc::default() });
        let payload = Payload { buffer: Arc::clone(piece), first, sums: run.part(sums).to_vec() };
        let job = Job::Run(Arc::clone(&run), payload);
        let now = if self.options.background { self.staging.waiting.add(job) } else { Some(job) };
        if let Some(job) = now {
            self.write_job(job);
        }
        Ok(run)
    }

    /// Has what the log has built written while its writers go on. `is_much`: waits until it is taken from
    /// the log.
    ///
    /// # Errors
    /// Nothing can be written any more.
    pub(super) fn write_log_beside(&self, is_much: bool) -> Result<()> {
        if !self.options.background {
            return if is_much { self.write_log() } else { Ok(()) };
        }
        let (word, is_new) = {
            let mut waiting = self.staging.log.lock();
            let is_new = waiting.is_none();
            (Arc::clone(waiting.get_or_insert_default()), is_new)
        };
        if is_new && let Some(job) = self.staging.waiting.add(Job::Log(Arc::clone(&word))) {
            self.write_job(job);
        }
        if is_much && word.wait().is_err() {
            self.check_writable()?;
        }
        Ok(())
    }

    fn write_job(&self, job: Job) {
        match job {
            Job::Run(run, payload) => self.write_staged(&run, payload),
            Job::Log(word) => {
                *self.staging.log.lock() = None;
                let take = || {
                    let batch = self.take_batch(&mut self.state());
                    word.give(Ok(()));
                    batch
                };
                // A failure is kept by the log writer, which reports it to every caller.
                if let Err(error) = self.writer.write(&self.blocks, &self.counters, take) {
                    word.give(Err(error));
                }
            }
        }
    }

    fn write_staged(&self, run: &StagedRun, payload: Payload) {
        let outcome = self.fill_open_run(&run.place, &payload);
        // The group may change its buffer as soon as it has word.
        drop(payload);
        self.state().segments.let_go(run.segment());
        run.word.give(outcome);
    }

    /// Replaces blocks of a run that is written, from the block `index` of the piece on.
    ///
    /// # Errors
    /// Those of writing. Everyone who asks for word of the run gets an error from then on.
    pub(crate) fn stage_again(&self, run: &StagedRun, index: u32, blocks: &[&Block]) -> Result<()> {
        if let Err(error) = self.refill_open_run(&run.place, index - run.first, blocks) {
            run.word.give(Err(error));
        }
        run.word.check()
    }

    /// Seals a run that is written: it does not change any more. `sums`: those of the piece.
    pub(crate) fn seal(&self, run: &StagedRun, sums: &[u32]) -> Result<()> {
        self.seal_open_run(&run.place, run.part(sums))
    }

    /// Lets go of segments with runs of a group, as often as they are named. Writes the checksum table of a
    /// full segment where the group was the last that kept it from being written.
    pub(crate) fn let_go_of_staged(&self, segments: impl Iterator<Item = SegmentId> + Clone) {
        for segment in segments.clone() {
            if let Some(incarnation) = self.blocks.sums().let_go(segment) {
                // The headers of its runs say the same as the table, so that nothing is lost with it.
                let _ = self.write_table(segment, incarnation, SegmentKind::Run);
            }
        }
        let mut state = self.state();
        segments.for_each(|segment| state.segments.let_go(segment));
    }
}
