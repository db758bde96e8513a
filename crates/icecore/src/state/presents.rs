//! The heads that files are open of, and what readers find of them without the state lock: see [`Present`].

use super::State;
use super::head::dataset_of;
use crate::operation::Operation;
use crate::present::{Present, Version};
use crate::tree::Tree;
use crate::units::VersionId;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Heads that files are open of, as long as they are.
pub(crate) type Presents = BTreeMap<VersionId, Weak<Present<Tree>>>;

impl State {
    /// What readers of a head meet at.
    pub(crate) fn present(&mut self, head: VersionId) -> Arc<Present<Tree>> {
        if let Some(present) = self.presents.get(&head).and_then(Weak::upgrade) {
            return present;
        }
        self.presents.retain(|_, present| present.strong_count() > 0);
        let present = Arc::default();
        self.presents.insert(head, Arc::downgrade(&present));
        present
    }

    /// A head as it is now.
    pub(crate) fn version_of(&self, head: VersionId) -> Version<Tree> {
        Version { tree: self.trees[&head].clone(), head, moment: self.clock, marks: self.marks_now() }
    }

    /// An operation is going to be applied. Answers the head that it changes, if files of it are open. The
    /// caller says how the operation ended.
    pub(crate) fn begin_change(&self, operation: &Operation) -> Option<(VersionId, Arc<Present<Tree>>)> {
        if self.presents.is_empty() {
            return None;
        }
        let head = self.head(dataset_of(operation)?).ok()?;
        let present = self.presents.get(&head)?.upgrade()?;
        present.begin_change(self.tail.is_in_chain());
        Some((head, present))
    }

    /// Readers of a head are not to find anything from now on.
    pub(super) fn retire_present(&mut self, head: VersionId) {
        if let Some(present) = self.presents.remove(&head).and_then(|present| present.upgrade()) {
            present.retire();
        }
    }

    /// Readers of heads that are the head of no dataset any more are not to find anything.
    pub(super) fn retire_presents(&mut self) {
        let catalogue = &self.catalogue;
        self.presents.retain(|version, present| {
            let is_head = catalogue.datasets().any(|(_, row)| row.head == *version);
            if let (false, Some(present)) = (is_head, present.upgrade()) {
                present.retire();
            }
            is_head
        });
    }
}
