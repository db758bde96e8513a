//! Groups that hand over what is to be written ahead, the thread that writes it, and the end of the pool.

use crate::error::{Error, Result};
use crate::handover::{Handover, Word};
use crate::sync::{Arc, AtomicBool, AtomicU64, Ordering, thread};
use crate::together;

/// More than may wait.
const RUNS: usize = 6;

/// A run of an open group.
#[derive(Default)]
struct Run {
    word: Word,
    is_written: AtomicBool,
    /// Who keeps its segment from being used for something else.
    holds: AtomicU64,
}

/// Comes with a hold.
struct Job(Arc<Run>);

struct Pool {
    waiting: Handover<Job>,
    /// Runs that are written before writing fails.
    writable: AtomicU64,
}

impl Pool {
    fn new(writable: u64) -> Arc<Self> {
        Arc::new(Self { waiting: Handover::default(), writable: AtomicU64::new(writable) })
    }

    /// As `Engine::write_staged`.
    fn write(&self, Job(run): Job) {
        assert!(run.holds.load(Ordering::SeqCst) > 0, "its segment may be in use for something else");
        let left = self.writable.load(Ordering::SeqCst);
        let outcome = if left == 0 {
            Err(Error::Invalid("it was ordered".to_owned()))
        } else {
            self.writable.store(left - 1, Ordering::SeqCst);
            run.is_written.store(true, Ordering::SeqCst);
            Ok(())
        };
        run.holds.fetch_sub(1, Ordering::SeqCst);
        run.word.give(outcome);
    }

    /// As the thread of the pool.
    fn run(&self) {
        while let Some(job) = self.waiting.next() {
            self.write(job);
        }
    }

    /// As `Engine::stage_run`.
    fn stage(&self) -> Arc<Run> {
        let run = Arc::<Run>::default();
        run.holds.store(2, Ordering::SeqCst);
        if let Some(job) = self.waiting.add(Job(Arc::clone(&run))) {
            self.write(job);
        }
        run
    }

    /// As `Staging::stop`.
    fn stop(&self) {
        for job in self.waiting.stop() {
            job.0.word.give(Err(Error::Invalid("the pool was closed".to_owned())));
        }
    }

    /// A group, and what its commit waits for.
    fn commit(&self, runs: usize) -> Result<()> {
        let staged: Vec<_> = (0..runs).map(|_| self.stage()).collect();
        let outcome = staged.iter().try_for_each(|run| run.word.wait());
        if outcome.is_ok() {
            let is_written = |run: &Arc<Run>| run.is_written.load(Ordering::SeqCst) && run.word.is_written();
            assert!(staged.iter().all(is_written), "committed, and not written");
        }
        for run in &staged {
            run.holds.fetch_sub(1, Ordering::SeqCst);
        }
        outcome
    }
}

#[test]
fn what_a_group_commits_is_written() {
    together(|| {
        let pool = Pool::new(u64::MAX);
        let run = |body: fn(&Pool)| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || body(&pool))
        };
        let threads = [run(Pool::run), run(|pool| pool.commit(RUNS).expect("nothing is in the way"))];
        pool.commit(2).expect("nothing is in the way");
        let [writer, group] = threads;
        group.join().expect("a group");
        pool.stop();
        writer.join().expect("the thread of the pool");
    });
}

#[test]
fn a_thread_that_waits_learns_that_writing_failed() {
    together(|| {
        let pool = Pool::new(2);
        let writer = {
            let pool = Arc::clone(&pool);
            thread::spawn(move || pool.run())
        };
        assert!(pool.commit(RUNS).is_err());
        pool.stop();
        writer.join().expect("the thread of the pool");
    });
}

#[test]
fn the_end_of_a_pool_leaves_no_thread_waiting() {
    together(|| {
        let pool = Pool::new(u64::MAX);
        let run = |body: fn(&Pool)| {
            let pool = Arc::clone(&pool);
            thread::spawn(move || body(&pool))
        };
        let threads = [run(Pool::run), run(|pool| drop(pool.commit(RUNS))), run(|pool| drop(pool.commit(2)))];
        pool.stop();
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
    });
}
