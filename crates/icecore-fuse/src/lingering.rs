//! Files that a rename has replaced live on for a second.
//!
//! A program that opens a path has two requests: the kernel finds the node of the name, then opens the node.
//! A rename over the name in between frees the file, and the open would answer ESTALE. The kernel finds the
//! name anew once, and passes on the second ESTALE. For a file that is replaced again and again, as a state
//! file is, that is one open in ten thousand. A filesystem in the kernel keeps the inode, because its cache
//! holds it; this one does not count what the kernel's cache holds.

use icecore::File;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The time from finding a name to opening its node, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(1);
/// Files that live on at most: a rename waits for one to be freed.
const FILES_MAX: usize = 1024;

/// A file, and when it goes.
type Replaced = (Instant, File);

/// Files that live on, and the thread that closes them.
pub(crate) struct Lingering(Mutex<Option<(SyncSender<Replaced>, JoinHandle<()>)>>);

impl Lingering {
    /// Without a thread the files are closed at once.
    pub fn new() -> Self {
        let (queue, waiting) = sync_channel(FILES_MAX / 2);
        let worker = std::thread::Builder::new()
            .name("icecore-linger".to_owned())
            .spawn(move || work(&waiting))
            .inspect_err(|error| crate::log(&format!("no thread for files that were replaced: {error}")));
        Self(Mutex::new(worker.ok().map(|worker| (queue, worker))))
    }

    /// Keeps a file that has lost its name just now.
    pub fn keep(&self, file: File) {
        let queue = self.0.lock().as_ref().map(|(queue, _)| queue.clone());
        if let Some(queue) = queue {
            // Without a receiver the file comes back, and is closed here.
            let _ = queue.send((Instant::now() + PATIENCE, file));
        }
    }

    /// Closes all of them, and ends the thread.
    pub fn stop(&self) {
        let Some((queue, worker)) = self.0.lock().take() else { return };
        drop(queue);
        let _ = worker.join();
    }
}

fn work(waiting: &Receiver<Replaced>) {
    let mut files: VecDeque<Replaced> = VecDeque::new();
    loop {
        let next = match files.front() {
            Some((until, _)) => waiting.recv_timeout(until.saturating_duration_since(Instant::now())),
            None => waiting.recv().map_err(RecvTimeoutError::from),
        };
        match next {
            Ok(replaced) => files.push_back(replaced),
            Err(RecvTimeoutError::Timeout) => close(files.pop_front()),
            // The mount is gone. Dropped, the files are closed.
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if files.len() > FILES_MAX / 2 {
            close(files.pop_front());
        }
    }
}

fn close(replaced: Option<Replaced>) {
    if let Some((_, file)) = replaced
        && let Err(error) = file.close()
    {
        crate::log(&format!("a file that was replaced could not be freed: {error}"));
    }
}
