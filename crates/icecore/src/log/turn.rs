//! Whose turn it is to write to the log, and who waits for what.
//!
//! One caller leads: it writes and flushes for all that wait. Waking a thread takes as long as a flush, so a
//! leader wakes only those that are served, and goes on for those that came meanwhile, for a while.

use crate::error::{Error, Result};
use crate::sync::{Arc, AtomicBool, Mutex, Ordering, thread};
use crate::units::RecordSequence;
use std::collections::VecDeque;

/// Hands `T`, which only the one who writes may touch, from one to the next.
pub(super) struct Turns<T> {
    inner: Mutex<Inner<T>>,
}

struct Inner<T> {
    /// A caller leads while it is not here.
    token: Option<T>,
    failed: Option<String>,
    waiting: VecDeque<Waiting>,
}

struct Waiting {
    /// Served when this record is durable; `None`: only by its turn.
    wanted: Option<RecordSequence>,
    caller: Arc<Caller>,
}

struct Caller {
    thread: thread::Thread,
    called: AtomicBool,
}

impl Waiting {
    fn call(self) {
        self.caller.called.store(true, Ordering::Release);
        self.caller.thread.unpark();
    }
}

impl<T> Turns<T> {
    pub(super) fn new(token: T) -> Self {
        Self { inner: Mutex::new(Inner { token: Some(token), failed: None, waiting: VecDeque::new() }) }
    }

    /// The failure after which no caller gets a turn any more.
    pub(super) fn failure(&self) -> Option<String> {
        self.inner.lock().failed.clone()
    }

    /// Whether a caller leads at this moment.
    pub(super) fn is_taken(&self) -> bool {
        self.inner.lock().token.is_none()
    }

    /// No caller gets a turn from now on; all who wait get the reason.
    pub(super) fn fail(&self, reason: String) {
        let waiting = {
            let mut inner = self.inner.lock();
            inner.failed.get_or_insert(reason);
            std::mem::take(&mut inner.waiting)
        };
        waiting.into_iter().for_each(Waiting::call);
    }

    /// Waits for a turn, or until record `wanted` is durable: `None` then. `durable` says up to where the log
    /// is.
    pub(super) fn take(
        &self,
        wanted: Option<RecordSequence>,
        durable: impl Fn() -> RecordSequence,
    ) -> Result<Option<T>> {
        let mut inner = self.inner.lock();
        loop {
            if wanted.is_some_and(|wanted| durable() >= wanted) {
                return Ok(None);
            }
            if let Some(reason) = &inner.failed {
                return Err(Error::ReadOnlyAfterFailure { reason: reason.clone() });
            }
            if let Some(token) = inner.token.take() {
                return Ok(Some(token));
            }
            let caller = Arc::new(Caller { thread: thread::current(), called: AtomicBool::new(false) });
            inner.waiting.push_back(Waiting { wanted, caller: Arc::clone(&caller) });
            drop(inner);
            while !caller.called.load(Ordering::Acquire) {
                thread::park();
            }
            inner = self.inner.lock();
        }
    }

    /// Wakes those that are served by now. Answers whether others wait for a record, and none for the turn.
    pub(super) fn serve(&self, durable: RecordSequence) -> bool {
        let mut inner = self.inner.lock();
        let served = inner.take_served(durable);
        let more = !inner.waiting.is_empty() && inner.waiting.iter().all(|waiting| waiting.wanted.is_some());
        drop(inner);
        served.into_iter().for_each(Waiting::call);
        more
    }

    /// Ends a turn: wakes those that are served by now, and the one whose turn is next.
    pub(super) fn give_back(&self, token: T, durable: RecordSequence) {
        let mut inner = self.inner.lock();
        inner.token = Some(token);
        let served = inner.take_served(durable);
        let next = inner.waiting.pop_front();
        drop(inner);
        served.into_iter().chain(next).for_each(Waiting::call);
    }
}

impl<T> Inner<T> {
    fn take_served(&mut self, durable: RecordSequence) -> Vec<Waiting> {
        let is_served = |waiting: &Waiting| waiting.wanted.is_some_and(|wanted| wanted <= durable);
        if !self.waiting.iter().any(is_served) {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.waiting);
        let (served, waiting): (Vec<_>, Vec<_>) = all.into_iter().partition(is_served);
        self.waiting = waiting.into();
        served
    }
}
