//! Makes the kernel forget what it keeps, from a thread of its own.
//!
//! The kernel takes the lock of a directory to drop a name from its cache, and holds that lock while it waits
//! for the reply to a request. A thread that answers requests would wait for itself. A list of names is the
//! exception: see [`Invalidator::list`].

use crate::protocol::NodeId;
use parking_lot::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a change waits for the kernel: a directory may be locked by a request that takes long.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the kernel keeps of a file system. Methods may block while requests are answered.
pub trait KernelCache: Send + Sync {
    /// Drops a name, and what lies below it.
    fn drop_entry(&self, parent: NodeId, name: &[u8]);
    /// Drops the attributes of a node, and `data`: the content that is cached, of a directory its list of
    /// names.
    fn drop_node(&self, node: NodeId, data: bool);
}

enum Task {
    Entry(NodeId, Vec<u8>),
    Node(NodeId, bool),
    /// Everything before it is done.
    Fence(Sender<()>),
    Stop,
}

/// The queue to the thread.
pub(crate) struct Invalidator {
    queue: Sender<Task>,
    cache: Arc<OnceLock<Box<dyn KernelCache>>>,
    waiting: Mutex<Option<Receiver<Task>>>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

impl Invalidator {
    /// Without a cache: then there is nothing to drop.
    pub fn new() -> Self {
        let (queue, waiting) = channel();
        Self { queue, cache: Arc::default(), waiting: Mutex::new(Some(waiting)), worker: Mutex::new(None) }
    }

    /// Begins to drop things from `cache`.
    pub fn attach(&self, cache: Box<dyn KernelCache>) {
        let Some(waiting) = self.waiting.lock().take() else { return };
        let _ = self.cache.set(cache);
        let cache = Arc::clone(&self.cache);
        let worker = std::thread::Builder::new()
            .name("icecore-forget".to_owned())
            .spawn(move || work(&waiting, &cache));
        match worker {
            Ok(worker) => *self.worker.lock() = Some(worker),
            Err(error) => crate::log(&format!("no thread for what the kernel has to forget: {error}")),
        }
    }

    pub fn entry(&self, parent: NodeId, name: &[u8]) {
        self.add(Task::Entry(parent, name.to_vec()));
    }

    pub fn node(&self, node: NodeId, data: bool) {
        self.add(Task::Node(node, data));
    }

    /// Drops the list of names of a directory at once. Unlike a name, the kernel drops it without the lock of
    /// the directory, so a thread that answers requests may ask for it.
    pub fn list(&self, directory: NodeId) {
        if let Some(cache) = self.cache.get() {
            cache.drop_node(directory, true);
        }
    }

    fn add(&self, task: Task) {
        if self.worker.lock().is_some() {
            // Without a thread there is no mount any more, and nothing that could be out of date.
            let _ = self.queue.send(task);
        }
    }

    /// Waits until everything that was asked for before is dropped, for a bounded time.
    pub fn wait(&self) {
        let (sender, done) = channel();
        self.add(Task::Fence(sender));
        let _ = done.recv_timeout(PATIENCE);
    }

    /// Ends the thread.
    pub fn stop(&self) {
        let Some(worker) = self.worker.lock().take() else { return };
        let _ = self.queue.send(Task::Stop);
        let _ = worker.join();
    }
}

fn work(waiting: &Receiver<Task>, cache: &OnceLock<Box<dyn KernelCache>>) {
    let Some(cache) = cache.get() else { return };
    while let Ok(task) = waiting.recv() {
        match task {
            Task::Entry(parent, name) => cache.drop_entry(parent, &name),
            Task::Node(node, data) => cache.drop_node(node, data),

            Task::Fence(done) => {
                let _ = done.send(());
            }
            Task::Stop => return,
        }
    }
}
