//! The present of a head, found without the state lock: for readers of open files.
//!
//! Why what a reader finds here stays while it reads. Four things hold:
//!
//! 1. What is published is the tree of the head as of a moment. No operation of a later moment has changed
//!    that head, but for one that is under way and holds the state lock.
//! 2. So a block that the tree reaches is alive, or dies later than that moment.
//! 3. A reader clones the tree and takes a pin of that moment while it holds the lock of the present for
//!    reading. An operation replaces the tree, which takes the lock for writing, before it lets go of the
//!    state lock. Any look at the pins that could free what the operation killed needs the state lock, so it
//!    comes after that.
//! 4. Such a look either finds the pin, which is older than those deaths and keeps them; or the reader comes
//!    after the replacement, and finds a tree that does not reach them.
//!
//! The tree reaches nothing that destroyed versions give back while it is published: a deletion frees what no
//! head reaches.
//!
//! A head that goes, by a rollback or a destruction, is retired before the engine asks whether it is pinned:
//! no reader pins it later.

use crate::pins::{Hold, Pin, Pins};
use crate::sync::{Arc, AtomicU64, Ordering, RwLock};
use crate::units::{Marks, VersionId};

/// Reads between two operations from which on readers count more than the writer: see
/// [`Present::begin_change`].
const READS_THAT_COUNT: u64 = 2;

/// What readers of one head find.
pub(crate) struct Present<T> {
    slot: RwLock<Slot<T>>,
    /// Reads since the last operation, no further than they count.
    reads: AtomicU64,
    /// Operations that were begun on the head; [`GONE`] when it is gone.
    changes: AtomicU64,
}

/// What [`Present::changes`] counts to where there is nothing left to change.
const GONE: u64 = u64::MAX;

enum Slot<T> {
    /// The next reader asks the state, and publishes what that says.
    Unknown,
    Known(Version<T>),
    /// The head is not that of a dataset any more, and never will be.
    Gone,
}

/// A head as of a moment.
#[derive(Clone)]
pub(crate) struct Version<T> {
    pub tree: T,
    pub head: VersionId,
    /// The moment by which pins and deaths are ordered.
    pub moment: u64,
    /// What has an address from here on was born later.
    pub marks: Marks,
}

/// What a reader finds.
pub(crate) enum Found<T> {
    /// The tree, and the pin that keeps what it reaches.
    Here(T, Pin),
    Unknown,
    Gone,
}

impl<T> Default for Present<T> {
    fn default() -> Self {
        Self { slot: RwLock::new(Slot::Unknown), reads: AtomicU64::new(0), changes: AtomicU64::new(0) }
    }
}

impl<T: Clone> Present<T> {
    /// The tree as it is now, pinned.
    pub(crate) fn read(&self, pins: &Arc<Pins>) -> Found<T> {
        let slot = self.slot.read();
        match &*slot {
            Slot::Known(Version { tree, head, moment, marks }) => {
                Found::Here(tree.clone(), pins.pin(Hold::Head(*head), *moment, *marks))
            }
            Slot::Unknown => Found::Unknown,
            Slot::Gone => Found::Gone,
        }
    }

    /// How many operations were begun on the head so far; `None` once the head is gone. An operation that is
    /// acknowledged was counted before.
    pub(crate) fn changes(&self) -> Option<u64> {
        Some(self.changes.load(Ordering::Acquire)).filter(|changes| *changes != GONE)
    }

    /// A reader, who is no writer that looks before it writes, is going to read.
    pub(crate) fn count_read(&self) {
        if self.reads.load(Ordering::Relaxed) < READS_THAT_COUNT {
            self.reads.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The state says that this is the head now. Called under the state lock.
    pub(crate) fn publish(&self, version: Version<T>) {
        let mut slot = self.slot.write();
        if matches!(*slot, Slot::Unknown) {
            *slot = Slot::Known(version);
        }
    }

    /// An operation is going to change the head. Called under the state lock. Nodes that nothing else refers
    /// to are changed in place. What is published refers to all of them: so it is withdrawn, unless there are
    /// enough readers to make it worth copying nodes for them. `is_part`: other operations follow that belong
    /// to it, and no reader may see the head in between.
    pub(crate) fn begin_change(&self, is_part: bool) {
        // Only who holds the state lock counts.
        self.changes.store(self.changes.load(Ordering::Relaxed) + 1, Ordering::Release);
        let reads = self.reads.load(Ordering::Relaxed);
        self.reads.store(0, Ordering::Relaxed);
        if is_part || reads < READS_THAT_COUNT {
            self.withdraw();
        }
    }

    /// The operation is done, and all that it has made can be read. Under the same hold of the state lock.
    pub(crate) fn end_change(&self, version: impl FnOnce() -> Version<T>) {
        let mut slot = self.slot.write();
        if matches!(*slot, Slot::Known(_)) {
            let former = std::mem::replace(&mut *slot, Slot::Known(version()));
            drop(slot);
            drop(former);
        }
    }

    /// The next reader asks the state. Called under the state lock.
    pub(crate) fn withdraw(&self) {
        let mut slot = self.slot.write();
        if matches!(*slot, Slot::Known(_)) {
            *slot = Slot::Unknown;
        }
    }

    /// The dataset has another head, or none. Called under the state lock.
    pub(crate) fn retire(&self) {
        self.changes.store(GONE, Ordering::Release);
        *self.slot.write() = Slot::Gone;
    }
}
