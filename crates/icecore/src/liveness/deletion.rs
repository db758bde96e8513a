//! Taking versions out of the tree, a piece at a time.
//!
//! What goes is freed run by run, out of the sets of the version and of the one below it. In between every
//! rule of the algebra holds but one: the tree of files of the version has more than its sets. No reader may
//! look for it any more. When nothing of that sort is left, the rest of its sets goes to the version below
//! it, in one step.

use super::blocks::Span;
use super::fault::HistoryFault;
use super::part::HeldPart;
use super::streams::FreedSink;
use super::versions::{History, VersionNode};
use crate::units::{LogAddress, Marks, Stream, VersionId};

/// How far a deletion goes before it looks whether that is enough.
pub struct Pace<'a> {
    /// Runs that are freed together, at most.
    pub runs: usize,
    /// Parts of sets that were read already; of others, which are not in memory, the answer is
    /// [`HistoryFault::Absent`]. `None`: all are read that are needed.
    pub held: Option<&'a [HeldPart]>,
    /// Whether that is enough for now.
    pub enough: &'a mut dyn FnMut() -> bool,
}

/// Where the blocks lie that go with a version.
struct Going {
    /// The version into which the rest is merged; none below a leaf.
    child: Option<VersionId>,
    /// What was born from here on was born since the parent: no version above reaches it.
    low: Marks,
    high: Marks,
}

impl History {
    /// Deletes a version until it is enough: whether the version is gone. What that frees goes to `freed`. If
    /// the version is not gone, part of what it alone holds is freed, and it can only be deleted: its tree
    /// may lead to what is not there any more.
    ///
    /// A leaf frees what it owns. A snapshot with one version below it frees what died on the way there and
    /// was born since its own parent; the rest of its sets goes to that version.
    /// Nothing has changed where the version does not exist, or several branches hang below it. At any other
    /// error what was freed so far stays freed.
    pub fn delete_some(
        &mut self,
        version: VersionId,
        freed: &mut FreedSink,
        pace: &mut Pace<'_>,
    ) -> Result<bool, HistoryFault> {
        let going = self.going_with(version)?;
        for stream in Stream::ALL {
            let span = going.low.of(stream)..going.high.of(stream);
            while self.free_piece(version, &going, stream, &span, freed, pace)? {
                if (pace.enough)() {
                    return Ok(false);
                }
            }
        }
        self.take_out(version, going.child);
        Ok(true)
    }

    /// Takes a version out, and lets go of its sets without a look at them.
    pub(super) fn forget(&mut self, version: VersionId) {
        let node = self.node_mut(version);
        (node.owned, node.dead) = Default::default();
        let child = node.children.first().copied();
        self.take_out(version, child);
    }

    fn going_with(&self, version: VersionId) -> Result<Going, HistoryFault> {
        let node = self.version(version)?;
        let child = match node.children[..] {
            [] => None,
            [child] => Some(child),
            _ => return Err(HistoryFault::HasBranches { version, children: node.children.to_vec() }),
        };
        let end = Marks([LogAddress(u64::MAX); 3]);
        // All that a leaf owns goes, wherever it was born.
        let high =
            if child.is_some() { node.mark.expect("only a snapshot has anything below it") } else { end };
        Ok(Going { child, low: self.low_mark(node), high })
    }

    /// Frees some of what only the version reaches: whether there was any.
    fn free_piece(
        &mut self,
        version: VersionId,
        going: &Going,
        stream: Stream,
        span: &Span,
        freed: &mut FreedSink,
        pace: &Pace<'_>,
    ) -> Result<bool, HistoryFault> {
        let source = self.parts.clone();
        let parts = pace.held.map_or_else(|| source.patient(), |held| source.among(held));
        let piece = match going.child {
            None => self.node_mut(version).owned.of_mut(stream).take_piece(span, pace.runs, parts)?,
            Some(child) => self.node_mut(child).dead.of_mut(stream).take_piece(span, pace.runs, parts)?,
        };
        let Some(piece) = piece else { return Ok(false) };
        let count = piece.len();
        if let Some(child) = going.child {
            self.changed.insert(child);
            let left = self.node_mut(version).owned.of_mut(stream).subtract(&piece);
            if left != count {
                return Err(HistoryFault::NeverHad { version, child });
            }
        }
        let node = self.node_mut(version);
        node.referenced = node.referenced.saturating_sub(count.0);
        node.forget_used();
        self.changed.insert(version);
        self.live[stream as usize] = self.live[stream as usize].saturating_sub(count.0);
        self.doomed.freed(version, count.0);
        freed.absorb(stream, piece);
        Ok(true)
    }

    /// Takes a version out of which everything was freed that goes with it.
    fn take_out(&mut self, version: VersionId, child: Option<VersionId>) {
        let node = self.versions.remove(&version).expect("found above");
        self.changed.remove(&version);
        if node.stored {
            self.removed.push(version);
        }
        match child {
            None => self.take_out_leaf(&node),
            Some(child) => self.merge_into_child(*node, child),
        }
        self.doomed.deleted(version);
    }

    fn take_out_leaf(&mut self, node: &VersionNode) {
        self.heavy -= node.heavy;
        let Some(parent) = node.parent else { return };
        let above = self.node_mut(parent);
        above.children.retain(|child| *child != node.id);
        above.forget_used();
        self.review(parent);
    }

    fn merge_into_child(&mut self, gone: VersionNode, child: VersionId) {
        let parent = gone.parent;
        let node = self.node_mut(child);
        // What is left of the child's dead lies below the mark of the new parent, which reaches it.
        node.owned.absorb(gone.owned);
        node.dead.absorb(gone.dead);
        node.parent = parent;
        node.heavy += gone.heavy;
        // Their order means nothing: the shorter list is copied.
        let mut sources = gone.sources;
        if node.sources.len() < sources.len() {
            std::mem::swap(&mut node.sources, &mut sources);
        }
        node.sources.append(&mut sources);
        node.forget_used();
        self.changed.insert(child);
        self.replace_child(parent, gone.id, child);
        // What it owns now that was born above may be what no version below it reaches.
        self.review(child);
        let Some(parent) = parent else { return };
        self.node_mut(parent).forget_used();
        self.review(parent);
    }
}
