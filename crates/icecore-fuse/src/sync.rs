//! One flush for all that wait.

use crate::protocol::{Outcome, Reply};
use parking_lot::Mutex;

/// Callers that wait for a flush. The first becomes the leader; what arrives while its flush runs waits for
/// the next one, which the same leader makes. So a reply is sent only after a flush that began after its
/// request.
#[derive(Default)]
pub(crate) struct Syncer {
    queue: Mutex<Queue>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Box<dyn FnOnce(Outcome<()>) + Send>>,
    /// There is a leader.
    led: bool,
}

impl Syncer {
    /// Sends the reply when everything that was done before this call is durable. The calling thread may be
    /// made the leader, and then returns when the queue is empty.
    pub(crate) fn sync<T: Send + 'static>(&self, value: T, reply: Reply<T>, flush: impl Fn() -> Outcome<()>) {
        let mut queue = self.queue.lock();
        queue.waiting.push(Box::new(move |outcome| reply.send(outcome.map(|()| value))));
        if std::mem::replace(&mut queue.led, true) {
            return;
        }
        loop {
            let served = std::mem::take(&mut queue.waiting);
            if served.is_empty() {
                queue.led = false;
                return;
            }
            drop(queue);
            let outcome = flush();
            for reply in served {
                reply(outcome);
            }
            queue = self.queue.lock();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn what_arrives_during_a_flush_waits_for_the_next() {
        let syncer = Arc::new(Syncer::default());
        let flushes = Arc::new(AtomicUsize::new(0));
        let (entered, has_entered) = channel();
        let (go, may_go) = channel();
        let (sent, replies) = channel();
        let leader = {
            let (syncer, flushes, sent) = (Arc::clone(&syncer), Arc::clone(&flushes), sent.clone());
            std::thread::spawn(move || {
                syncer.sync(0, Reply::new(move |outcome| sent.send(outcome).unwrap()), || {
                    entered.send(()).unwrap();
                    may_go.recv().unwrap();
                    flushes.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                });
            })
        };
        has_entered.recv().unwrap();
        for number in 1..=3 {
            let sent = sent.clone();
            syncer.sync(number, Reply::new(move |outcome| sent.send(outcome).unwrap()), || unreachable!());
        }
        assert!(replies.try_recv().is_err());
        go.send(()).unwrap();
        assert_eq!(replies.recv().unwrap(), Ok(0));
        assert!(replies.try_recv().is_err());
        go.send(()).unwrap();
        leader.join().unwrap();
        assert_eq!(replies.try_iter().collect::<Vec<_>>(), [Ok(1), Ok(2), Ok(3)]);
        assert_eq!(flushes.load(Ordering::SeqCst), 2);
    }
}
