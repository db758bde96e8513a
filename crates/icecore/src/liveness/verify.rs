//! Whether a stored history is one: every rule of the algebra, checked in one walk over the tree.

use super::blocks::BlockSet;
use super::codec::damaged;
use super::stored::{StoredHistory, StoredVersion};
use super::versions::{History, VersionNode};
use crate::units::{COUNTER_LIMIT, LogAddress, Marks, Stream, VersionId};
use crate::{Error, Result};
use std::collections::BTreeMap;

impl StoredHistory {
    /// Checks that versions form a tree, that marks grow downwards, that sets lie where their marks say, that
    /// no two versions own a block and that what died in a version was alive in its parent; and counts what
    /// each reaches. Takes time with the size of the sets, like decoding them. Where part of the sets lies on
    /// disk, what is said of versions beside each other is believed as long as the counts agree:
    /// [`History::check`] looks.
    pub fn verify(self) -> Result<History> {
        if self.next.0 >= COUNTER_LIMIT {
            return Err(damaged("version numbers are used up"));
        }
        let mut history = History { next: self.next, ..History::default() };
        let mut children: BTreeMap<Option<VersionId>, Vec<VersionId>> = BTreeMap::new();
        for (&id, version) in &self.versions {
            children.entry(version.parent).or_default().push(id);
            self.check_place(id, version)?;
        }
        let nodes = self.versions.into_iter().map(|(id, version)| {
            let mut node = VersionNode::new(id, version.parent, version.mark);
            node.owned = version.sets.owned;
            node.dead = version.sets.dead;
            node.owned.tidy();
            node.dead.tidy();
            node.children = children.remove(&Some(id)).unwrap_or_default();
            node.sources = vec![id];
            node.stored = true;
            (id, Box::new(node))
        });
        history.versions = nodes.collect();
        let roots = children.remove(&None).unwrap_or_default();
        if history.rows().next().is_none() {
            Walk::over(&mut history, roots)?;
        } else {
            // What lies on disk is compared by a check of the pool.
            history.count(roots)?;
        }
        Ok(history)
    }

    /// Checks one version against its parent.
    fn check_place(&self, id: VersionId, version: &StoredVersion) -> Result<()> {
        let low = match version.parent {
            None => Marks::default(),
            Some(parent) => {
                let parent =
                    self.versions.get(&parent).ok_or_else(|| fault(id, "has a parent that is gone"))?;
                parent.mark.ok_or_else(|| fault(id, "descends from a head"))?
            }
        };
        let high = version.mark.unwrap_or(Marks([LogAddress(u64::MAX); 3]));
        if Stream::ALL.into_iter().any(|stream| high.of(stream) < low.of(stream)) {
            return Err(fault(id, "was taken before its parent"));
        }
        let sets = &version.sets;
        if sets.owned.is_from(&low) && sets.owned.is_below(&high) && sets.dead.is_below(&low) {
            Ok(())
        } else {
            Err(fault(id, "has blocks outside its marks"))
        }
    }
}

fn fault(version: VersionId, detail: &str) -> Error {
    damaged(&format!("version {version} {detail}"))
}

impl History {
    /// Counts what each version reaches from how much it owns, and how much is dead in it.
    fn count(&mut self, roots: Vec<VersionId>) -> Result<()> {
        let mut open: Vec<(VersionId, u64)> = roots.into_iter().map(|root| (root, 0)).collect();
        let mut visited = 0;
        while let Some((id, above)) = open.pop() {
            visited += 1;
            let node = self.versions.get_mut(&id).expect("roots and children exist");
            let left = above.checked_sub(node.dead.len().0);
            let left = left.ok_or_else(|| fault(id, "lost blocks that its parent does not reach"))?;
            node.referenced = left.saturating_add(node.owned.len().0);
            for stream in Stream::ALL {
                let live = &mut self.live[stream as usize];
                *live = live.saturating_add(node.owned.of(stream).len().0);
            }
            open.extend(node.children.iter().map(|child| (*child, node.referenced)));
        }
        if visited != self.versions.len() {
            return Err(damaged("versions descend from each other in a ring"));
        }
        Ok(())
    }

    /// Checks every rule of the algebra on the history as it is, for scrub and for tests.
    pub fn check(&self) -> Result<()> {
        let mut versions = BTreeMap::new();
        for node in self.versions() {
            let mut sets = super::stored::StoredSets::default();
            for stream in Stream::ALL {
                sets.owned.of_mut(stream).unite(self.owned_of(node.id, stream)?.into_owned());
                sets.dead.of_mut(stream).unite(self.dead_of(node.id, stream)?.into_owned());
            }
            versions.insert(node.id, StoredVersion { parent: node.parent, mark: node.mark, sets });
        }
        let fresh = StoredHistory { versions, next: self.next }.verify()?;
        if fresh.live != self.live {
            return Err(damaged("the count of live blocks is off"));
        }
        for (node, counted) in self.versions.values().zip(fresh.versions.values()) {
            if node.referenced != counted.referenced {
                return Err(fault(node.id, "counts wrongly what it reaches"));
            }
            let (mut mine, mut theirs) = (node.children.to_vec(), counted.children.to_vec());
            mine.sort_unstable();
            theirs.sort_unstable();
            if mine != theirs {
                return Err(fault(node.id, "does not know its children"));
            }
        }
        Ok(())
    }
}

/// A walk down and up every branch, with the set of blocks that the version at hand reaches.
#[derive(Default)]
struct Walk {
    reached: [BlockSet; 3],
    /// Owned by any version met so far.
    alive: [BlockSet; 3],
    visited: usize,
}

enum Step {
    Down(VersionId),
    Up(VersionId),
}

impl Walk {
    fn over(history: &mut History, roots: Vec<VersionId>) -> Result<()> {
        let mut walk = Self::default();
        let mut steps: Vec<Step> = roots.into_iter().map(Step::Down).collect();
        while let Some(step) = steps.pop() {
            match step {
                Step::Down(id) => {
                    let node = history.versions.get_mut(&id).expect("roots and children exist");
                    walk.enter(node)?;
                    steps.push(Step::Up(id));
                    steps.extend(node.children.iter().copied().map(Step::Down));
                }
                Step::Up(id) => walk.leave(&history.versions[&id]),
            }
        }
        if walk.visited != history.versions.len() {
            return Err(damaged("versions descend from each other in a ring"));
        }
        history.live = walk.alive.each_ref().map(|set| set.len().0);
        Ok(())
    }

    fn enter(&mut self, node: &mut VersionNode) -> Result<()> {
        self.visited += 1;
        for stream in Stream::ALL {
            let (owned, dead) = (node.owned.of(stream).at_hand(), node.dead.of(stream).at_hand());
            if self.reached[stream as usize].subtract(dead) != dead.len() {
                return Err(fault(node.id, "lost blocks that its parent does not reach"));
            }
            self.reached[stream as usize].unite(owned.clone());
            if self.alive[stream as usize].unite(owned.clone()) != owned.len() {
                return Err(fault(node.id, "owns blocks that another version owns"));
            }
        }
        node.referenced = self.reached.iter().map(|set| set.len().0).sum();
        Ok(())
    }

    fn leave(&mut self, node: &VersionNode) {
        for stream in Stream::ALL {
            let (owned, dead) = (node.owned.of(stream).at_hand(), node.dead.of(stream).at_hand());
            let left = self.reached[stream as usize].subtract(owned);
            assert_eq!(left, owned.len(), "owned blocks are reached once only");
            self.reached[stream as usize].unite(dead.clone());
        }
    }
}
