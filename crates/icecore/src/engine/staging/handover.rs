//! Work that is handed over to a thread, and word of what became of it.
//!
//! What must hold: *a thread that waits for word gets it, once and whatever happens: also when the thread
//! that works ends before it comes to the work.* So a thread that takes a job, be it to throw it away, has to
//! give word.

use crate::error::{Error, Result};
use crate::sync::{Condvar, Mutex};
use std::collections::VecDeque;

/// Jobs that wait; a thread that wants to add one waits until there are fewer.
const WAITING_MAX: usize = 4;

/// What becomes of something that was handed over.
#[derive(Default)]
pub(crate) struct Word {
    outcome: Mutex<Outcome>,
    changed: Condvar,
}

#[derive(Default)]
enum Outcome {
    #[default]
    Waiting,
    Written,
    /// The error, until a caller has taken it.
    Failed(Option<Error>),
}

impl Word {
    pub(crate) fn is_written(&self) -> bool {
        matches!(*self.outcome.lock(), Outcome::Written)
    }

    /// The error, if writing has failed.
    pub(crate) fn check(&self) -> Result<()> {
        failure(&mut self.outcome.lock())
    }

    /// Returns when it is written.
    pub(crate) fn wait(&self) -> Result<()> {
        let mut outcome = self.outcome.lock();
        while matches!(*outcome, Outcome::Waiting) {
            self.changed.wait(&mut outcome);
        }
        failure(&mut outcome)
    }

    /// For the threads that wait, now and later.
    pub(super) fn give(&self, result: Result<()>) {
        *self.outcome.lock() = match result {
            Ok(()) => Outcome::Written,
            Err(error) => Outcome::Failed(Some(error)),
        };
        self.changed.notify_all();
    }
}

fn failure(outcome: &mut Outcome) -> Result<()> {
    match outcome {
        Outcome::Failed(error) => Err(error
            .take()
            .unwrap_or_else(|| Error::Invalid("part of a transaction could not be written".to_owned()))),
        _ => Ok(()),
    }
}

/// The jobs that wait for a thread.
pub(super) struct Handover<J> {
    queue: Mutex<Queue<J>>,
    changed: Condvar,
}

struct Queue<J> {
    jobs: VecDeque<J>,
    stop: bool,
}

impl<J> Default for Handover<J> {
    fn default() -> Self {
        Self { queue: Mutex::new(Queue { jobs: VecDeque::new(), stop: false }), changed: Condvar::new() }
    }
}

impl<J> Handover<J> {
    /// No thread takes a job any more. Answers the jobs that wait.
    pub(super) fn stop(&self) -> VecDeque<J> {
        let jobs = {
            let mut queue = self.queue.lock();
            queue.stop = true;
            std::mem::take(&mut queue.jobs)
        };
        self.changed.notify_all();
        jobs
    }

    /// The job, if no thread would take it any more.
    pub(super) fn add(&self, job: J) -> Option<J> {
        let mut queue = self.queue.lock();
        while queue.jobs.len() >= WAITING_MAX && !queue.stop {
            self.changed.wait(&mut queue);
        }
        if queue.stop {
            return Some(job);
        }
        queue.jobs.push_back(job);
        self.changed.notify_all();
        None
    }

    /// Waits for a job. `None` to end.
    pub(super) fn next(&self) -> Option<J> {
        let mut queue = self.queue.lock();
        loop {
            if queue.stop {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                self.changed.notify_all();
                return Some(job);
            }
            self.changed.wait(&mut queue);
        }
    }
}
