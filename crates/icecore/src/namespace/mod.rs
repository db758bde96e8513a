//! The namespace of a dataset: directories, files, links and attributes, as items of a [`Tree`].
//!
//! Reading is [`Read`]: [`TreeReader`] reads a version, and [`TreeWriter`] what it is about to make. Each
//! operation of a [`TreeWriter`] is all or nothing. It first reads, decides and *stages* its changes, while
//! the tree stays as it is; so a refused operation leaves no trace. Then it holds the paths to all the keys
//! it will change ([`Tree::hold`]), which is the last thing that can fail. Then it makes the changes, and
//! reports to the [`Ledger`] what is no longer referred to.
//!
//! Operations are functions of their arguments and the tree alone: times, generations and addresses are
//! arguments. So replaying the log re-executes them with the same outcome.
//!
//! The layout of items is `docs/format/namespace.md`.

mod attributes;
mod create;
mod directory;
mod file;
mod inode;
mod orphan;
mod read;
mod remove;
mod rename;
mod walk;
mod xattr;

#[cfg(test)]
mod tests;

pub use attributes::AttributeChange;
pub use create::{Made, NewInode};
pub use directory::{DirectoryEntry, NameHash, decode as decode_entry, name_hash};
pub use file::Touch;
pub use inode::{InodeItem, InodeKind};
pub use orphan::Release;
pub use read::{Read, TreeReader};
pub use remove::Unlinked;
pub use rename::{RenameHow, RenameOutcome};
pub use walk::{check, data_runs};
pub use xattr::XattrHow;

use crate::error::Result;
use crate::tree::{Held, Item, Key, NodeLedger, NodeSource, Tree};
use crate::units::Run;

/// Keeps the books of everything that a version refers to.
pub trait Ledger: NodeLedger {
    /// The version no longer refers to these data blocks. Called exactly once for each block.
    fn drop_run(&mut self, run: Run);

    /// One run of blocks is where another of the same length was, which is dropped as well.
    fn replace_run(&mut self, former: Run, run: Run) {
        let _ = (former, run);
    }
}

/// Changes a version. Every public operation is all or nothing.
pub struct TreeWriter<'a> {
    tree: &'a mut Tree,
    source: &'a dyn NodeSource,
    ledger: &'a mut dyn Ledger,
    /// How names are hashed: tests of collisions have another way, for all users of a tree.
    name_hash: NameHash,
    /// What the operation will change, ascending by key.
    staged: Vec<(Key, Option<Item>)>,
    /// Runs that the operation will drop.
    dropped: Vec<Run>,
    /// What takes the place of which of them.
    replaced: Vec<(Run, Run)>,
}

impl<'a> TreeWriter<'a> {
    /// A writer on the head that `tree` is. Costs nothing: make one for each operation if that suits.
    pub fn new(tree: &'a mut Tree, source: &'a dyn NodeSource, ledger: &'a mut dyn Ledger) -> Self {
        Self {
            tree,
            source,
            ledger,
            name_hash,
            staged: Vec::new(),
            dropped: Vec::new(),
            replaced: Vec::new(),
        }
    }

    /// Runs an operation that stages its changes, and makes them if it succeeds.
    fn atomically<T>(&mut self, operation: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        debug_assert!(self.staged.is_empty() && self.dropped.is_empty());
        let outcome = operation(self).and_then(|answer| self.make_staged().map(|()| answer));
        self.staged.clear();
        self.dropped.clear();
        self.replaced.clear();
        outcome
    }

    /// Makes the staged changes: in the order that [`Held`] asks for.
    fn make_staged(&mut self) -> Result<()> {
        let mut held = Held::new(self.source);
        for (key, item) in &mut self.staged {
            self.tree.hold(&mut held, *key)?;
            // Was it staged to be put, and then removed by the same operation? Then there is nothing to do.
            if item.is_none() && !self.tree.view(&held, *key, |item| item.is_some())? {
                *key = Key::MAX;
            }
        }
        for (key, item) in &self.staged {
            if let Some(item) = item {
                self.tree.insert(&held, &mut *self.ledger, *key, item)?;
            }
        }
        for (key, item) in &self.staged {
            if item.is_none() && *key != Key::MAX {
                self.tree.remove(&held, &mut *self.ledger, *key)?;
            }
        }
        // What was written together goes together: few runs, however many extents there were.
        for run in joined(std::mem::take(&mut self.dropped)) {
            self.ledger.drop_run(run);
        }
        for (former, run) in self.replaced.drain(..) {
            self.ledger.replace_run(former, run);
        }
        Ok(())
    }

    fn stage(&mut self, key: Key, item: Option<Item>) {
        match self.staged.binary_search_by_key(&key, |(staged, _)| *staged) {
            Ok(index) => self.staged[index].1 = item,
            Err(index) => self.staged.insert(index, (key, item)),
        }
    }

    fn stage_bytes(&mut self, key: Key, bytes: Vec<u8>) {
        self.stage(key, Some(Item::Bytes(bytes)));
    }
}

/// Runs in the order of their addresses, neighbours joined.
pub(crate) fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable_by_key(|run| (run.stream as u8, run.start));
    runs.dedup_by(|next, run| {
        let joins = run.stream == next.stream && run.end() == next.start;
        if joins {
            run.length.0 += next.length.0;
        }
        joins
    });
    runs
}
