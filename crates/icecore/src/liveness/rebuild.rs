//! A history whose sets are lost and whose versions are not: the sets follow from what the trees have.

use super::blocks::BlockSet;
use super::stored::{StoredHistory, StoredSets, StoredVersion};
use super::streams::StreamSets;
use super::versions::History;
use crate::Result;
use crate::units::VersionId;
use std::sync::Arc;

/// What a version owns and what is dead in it, of each stream.
pub(crate) type SetsOfVersion = ([BlockSet; 3], [BlockSet; 3]);

impl History {
    /// The same versions with other sets.
    pub(crate) fn with_sets(&self, mut sets: impl FnMut(VersionId) -> SetsOfVersion) -> Result<Self> {
        let mut version = |node: &super::VersionNode| {
            let (owned, dead) = sets(node.id());
            let sets =
                StoredSets { owned: StreamSets::from_stored(owned), dead: StreamSets::from_stored(dead) };
            (node.id(), StoredVersion { parent: node.parent(), mark: node.mark(), sets })
        };
        let versions = self.versions().map(&mut version).collect();
        let mut history = StoredHistory { versions, next: self.next }.verify()?;
        if let Some(source) = &self.parts.0 {
            history.keep_in(Arc::clone(source), self.limits);
        }
        Ok(history)
    }
}
