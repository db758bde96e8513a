//! What deleting versions would free, without doing it: what they own, and no other version reaches.
//!
//! A version that stays, and lies right below some that go, reaches what these reach and is not dead on the
//! way down to it. So what is asked is always what is dead on every such way. Where there is one way, that is
//! a sum of counts; where ways part, sets are intersected, piece by piece.

use super::blocks::{BlockSet, Span};
use super::fault::HistoryFault;
use super::part::Look;
use super::versions::{History, VersionNode};
use crate::units::{BlockCount, LogAddress, Marks, Stream, VersionId};
use std::collections::{HashMap, HashSet};

const END: Marks = Marks([LogAddress(u64::MAX); 3]);

/// Versions that leave, and how to come by the parts of sets.
pub(super) struct Leaving<'a> {
    history: &'a History,
    leaving: HashSet<VersionId>,
    parts: Look<'a>,
}

/// What was met on the ways down: in which dead sets blocks are, and which versions that leave reach them.
#[derive(Default)]
pub(super) struct Trace {
    pub(super) died: Vec<(VersionId, BlockSet)>,
    pub(super) reached: Vec<(VersionId, BlockSet)>,
}

impl History {
    /// What only these versions reach, in whatever order they are named. It comes back if no reader reads
    /// them any more, whether they can be deleted or only thinned. Of versions with one way down ranges are
    /// counted, and nothing is copied.
    pub fn freed_by_deleting_set(&self, versions: &[VersionId]) -> Result<BlockCount, HistoryFault> {
        Leaving::of(self, versions, self.parts.patient())?.count()
    }
}

impl History {
    /// What comes back if a head has no use any more for what was born before it, in this span. The head
    /// reaches all of that. It is what destroyed versions own, and no other version reaches, by the version
    /// that owns it.
    pub(crate) fn freed_above(
        &self,
        head: VersionId,
        stream: Stream,
        span: &Span,
    ) -> Result<Vec<(VersionId, BlockCount)>, HistoryFault> {
        let mut found = Vec::new();
        let mut node = self.version(head)?;
        // One that is not destroyed reaches all that was born before it.
        while let Some(owner) = node.parent().filter(|above| self.is_doomed(*above)) {
            node = self.version(owner)?;
            let (low, high) = (self.low_mark(node).of(stream), node.mark().unwrap_or_default().of(stream));
            let owned = span.start.max(low)..span.end.min(high);
            if owned.start < owned.end {
                let mut blocks = BlockSet::new();
                blocks.insert(owned);
                let leaving = Leaving::of(self, &self.going(&[head]), self.parts.patient())?;
                found.push((owner, leaving.unreached(owner, stream, blocks, None)?.len()));
            }
            if low <= span.start {
                break;
            }
        }
        Ok(found)
    }
}

impl<'a> Leaving<'a> {
    pub(super) fn of(
        history: &'a History,
        versions: &[VersionId],
        parts: Look<'a>,
    ) -> Result<Self, HistoryFault> {
        versions.iter().try_for_each(|version| history.version(*version).map(drop))?;
        Ok(Self { history, leaving: versions.iter().copied().collect(), parts })
    }

    fn node(&self, version: VersionId) -> &'a VersionNode {
        &self.history.versions[&version]
    }

    fn leaves(&self, version: VersionId) -> bool {
        self.leaving.contains(&version)
    }

    /// What all of them would free.
    pub(super) fn count(&self) -> Result<BlockCount, HistoryFault> {
        let is_top =
            |version: &VersionId| self.node(*version).parent().is_none_or(|above| !self.leaves(above));
        // In an order that does not depend on how they are hashed: reading parts of sets repeats itself.
        let mut tops: Vec<VersionId> = self.leaving.iter().copied().filter(is_top).collect();
        tops.sort_unstable();
        let mut freed = 0;
        for top in tops {
            freed += self.count_below(top)?;
        }
        Ok(BlockCount(freed))
    }

    /// The part of [`Leaving::count`] that hangs together below `top`.
    ///
    /// Where no way leads to one that stays, everything owned goes. Along a single way, what was born since
    /// `low` and dies on some step of it. Where ways part, what was born since `low` and is dead on all of
    /// them; for what was born later, each of them is one by itself.
    fn count_below(&self, top: VersionId) -> Result<u64, HistoryFault> {
        let downwards = self.downwards(top);
        let ways = self.ways(&downwards);
        let mut lows = HashMap::from([(top, self.history.low_mark(self.node(top)))]);
        let mut freed = 0;
        for version in downwards {
            let (node, low) = (self.node(version), lows.remove(&version).unwrap_or_default());
            let parts_here = ways[&version].len() > 1;
            let below = if parts_here { node.mark().unwrap_or_default() } else { low };
            lows.extend(
                node.children().iter().filter(|child| self.leaves(**child)).map(|child| (*child, below)),
            );
            freed += match ways[&version][..] {
                [] => node.owned().len().0,
                [next] => self.node(next).dead().count_between(&low, &END, self.parts)?.0,
                _ => self.count_dead_on_all_ways(version, &low, &ways)?,
            };
        }
        Ok(freed)
    }

    /// A version that leaves and all those below it, each behind the one above.
    fn downwards(&self, top: VersionId) -> Vec<VersionId> {
        let mut downwards = vec![top];
        let mut index = 0;
        while let Some(version) = downwards.get(index) {
            let children = self.node(*version).children().iter().copied();
            downwards.extend(children.filter(|child| self.leaves(*child)));
            index += 1;
        }
        downwards
    }

    /// For each the children through which one is reached that stays.
    fn ways(&self, downwards: &[VersionId]) -> HashMap<VersionId, Vec<VersionId>> {
        let mut ways: HashMap<VersionId, Vec<VersionId>> = HashMap::with_capacity(downwards.len());
        for version in downwards.iter().rev() {
            let children = self.node(*version).children().iter().copied();
            let leads_on = |child: &VersionId| ways.get(child).is_none_or(|further| !further.is_empty());
            let further = children.filter(leads_on).collect();
            ways.insert(*version, further);
        }
        ways
    }

    fn count_dead_on_all_ways(
        &self,
        version: VersionId,
        low: &Marks,
        ways: &HashMap<VersionId, Vec<VersionId>>,
    ) -> Result<u64, HistoryFault> {
        let high = self.node(version).mark().unwrap_or_default();
        let way = self.one_way_of(version, |version| ways.get(&version).map_or(&[], Vec::as_slice));
        let mut count = 0;
        for stream in Stream::ALL {
            count += self.count_along(&way, version, stream, &(low.of(stream)..high.of(stream)))?;
        }
        Ok(count)
    }

    /// How many blocks of a span, which a version reaches, no version reaches that lies below it and stays.
    pub(super) fn count_unreached(
        &self,
        version: VersionId,
        stream: Stream,
        span: &Span,
    ) -> Result<u64, HistoryFault> {
        self.count_along(&self.one_way(version), version, stream, span)
    }

    /// The same: what is dead on every way is dead on this one.
    fn count_along(
        &self,
        way: &[VersionId],
        version: VersionId,
        stream: Stream,
        span: &Span,
    ) -> Result<u64, HistoryFault> {
        let mut count = 0;
        for next in way {
            self.node(*next).dead().of(stream).pieces(span, self.parts, &mut |piece| {
                count += self.unreached(version, stream, piece.clone(), None)?.len().0;
                Ok(())
            })?;
        }
        Ok(count)
    }

    /// The steps of one way down to a version that stays: one on which little is dead.
    pub(super) fn one_way(&self, version: VersionId) -> Vec<VersionId> {
        self.one_way_of(version, |version| self.node(version).children())
    }

    fn one_way_of<'b>(
        &self,
        version: VersionId,
        children: impl Fn(VersionId) -> &'b [VersionId],
    ) -> Vec<VersionId> {
        let mut way = Vec::new();
        let mut at = version;
        let cost = |child: &VersionId| (self.leaves(*child), self.node(*child).dead().len());
        while let Some(next) = children(at).iter().copied().min_by_key(cost) {
            way.push(next);
            if !self.leaves(next) {
                break;
            }
            at = next;
        }
        way
    }

    /// What within a span, and of certain blocks if there are any, is dead on the steps of
    /// [`Leaving::one_way`].
    pub(super) fn dead_on_one_way(
        &self,
        version: VersionId,
        stream: Stream,
        span: &Span,
        among: Option<&BlockSet>,
    ) -> Result<BlockSet, HistoryFault> {
        let mut found = BlockSet::new();
        for next in self.one_way(version) {
            let dead = self.node(next).dead().of(stream);
            if let Some(among) = among {
                found.unite(dead.common(among, self.parts)?);
                continue;
            }
            dead.pieces(span, self.parts, &mut |piece| {
                found.unite(piece.clone());
                Ok(())
            })?;
        }
        Ok(found)
    }

    /// Those that lie below a version with nothing but such in between that leave.
    pub(super) fn below(&self, version: VersionId) -> Vec<VersionId> {
        let downwards = self.downwards(version);
        downwards.iter().flat_map(|version| self.node(*version).children().iter().copied()).collect()
    }

    /// Of blocks that a version reaches those that no version reaches which lies below it and stays.
    pub(super) fn unreached(
        &self,
        version: VersionId,
        stream: Stream,
        blocks: BlockSet,
        mut trace: Option<&mut Trace>,
    ) -> Result<BlockSet, HistoryFault> {
        let mut left = blocks.clone();
        let mut open = vec![(version, blocks)];
        while let Some((at, mut reached)) = open.pop() {
            let mut children = self.node(at).children().to_vec();
            // Those that stay first: what they reach need not be looked for any further.
            children.sort_by_key(|child| self.leaves(*child));
            for child in children {
                reached.intersect(&left);
                if reached.is_empty() {
                    break;
                }
                let dead = self.node(child).dead().of(stream).common(&reached, self.parts)?;
                let mut still = reached.clone();
                still.subtract(&dead);
                if let Some(trace) = &mut trace {
                    trace.died.push((child, dead));
                }
                if !self.leaves(child) {
                    left.subtract(&still);
                } else if !still.is_empty() {
                    open.push((child, still));
                }
            }
            if let Some(trace) = &mut trace {
                trace.reached.push((at, reached));
            }
        }
        Ok(left)
    }
}
