//! Thinning: what a destroyed version owns and no version below it reaches is freed, before it can be
//! deleted.
//!
//! A doomed version below which several branches hang has to stay in the tree, as they share what it owns.
//! But no reader reads it any more. So no version reaches what is dead on every way down from it, as far as
//! doomed versions lie there. Thinning takes that out of the owned set, and on each of the ways out of the
//! dead set that has it. It goes piece by piece, like a deletion. Every rule of the algebra holds in between.
//!
//! What has been looked at is not looked at again. Afterwards only what dies below can make a difference, and
//! that is noted when it dies. When a branch goes, or becomes another, everything is looked at.

use super::blocks::{BlockSet, Span};
use super::deletion::Pace;
use super::fault::HistoryFault;
use super::forecast::{Leaving, Trace};
use super::streams::FreedSink;
use super::versions::History;
use crate::units::{LogAddress, Stream, VersionId};

/// Deaths that are noted one by one; after so many it takes less to look everywhere.
const NOTED_MAX: u32 = 1 << 16;
/// Parts that one piece needs at most, of all sets together, as long as there are not more sets than that.
const PARTS_TOGETHER: usize = 32;

const END: LogAddress = LogAddress(u64::MAX);

/// Where a doomed version may own what no version below it reaches.
#[derive(Debug)]
pub(super) struct Suspects {
    /// From here on, of each stream, nothing was looked at yet.
    from: [LogAddress; 3],
    /// What died below since it was looked at.
    died: [BlockSet; 3],
    noted: u32,
}

/// What to look at next.
struct Next {
    span: Span,
    /// Only what died there since. Else everything.
    died: Option<BlockSet>,
}

impl Suspects {
    /// Anywhere.
    pub(super) fn all() -> Self {
        Self { from: [LogAddress(0); 3], ..Self::none() }
    }

    /// Nowhere.
    pub(super) fn none() -> Self {
        Self { from: [END; 3], died: Default::default(), noted: 0 }
    }

    /// These blocks died below.
    pub(super) fn note(&mut self, stream: Stream, span: &Span) {
        let seen = span.start..span.end.min(self.from[stream as usize]);
        if seen.is_empty() {
            return;
        }
        self.noted += 1;
        if self.noted > NOTED_MAX {
            *self = Self::all();
        } else {
            self.died[stream as usize].insert(seen);
        }
    }

    /// What is in `next` was looked at.
    fn seen(&mut self, stream: Stream, next: &Next) {
        if next.died.is_some() {
            self.died[stream as usize].remove(&next.span);
        } else {
            self.from[stream as usize] = next.span.end;
        }
    }
}

impl History {
    /// Thins a doomed version until it is enough: whether it is thin. What no version reaches any more goes
    /// to `freed`. Where it fails, what was freed so far stays freed.
    pub fn thin_some(
        &mut self,
        version: VersionId,
        freed: &mut FreedSink,
        pace: &mut Pace<'_>,
    ) -> Result<bool, HistoryFault> {
        self.version(version)?;
        let below = self.doomed_from(version);
        for stream in Stream::ALL {
            while self.thin_piece(version, &below, stream, freed, pace)? {
                if (pace.enough)() {
                    return Ok(false);
                }
            }
        }
        self.doomed.thinned(version);
        Ok(true)
    }

    /// Whether a version cannot be deleted for now, and may own what no version below it reaches.
    pub fn is_thinnable(&self, version: VersionId) -> bool {
        self.doomed.suspects(version).is_some()
    }

    /// What thinning a version would free. Takes time with what has not been looked at.
    pub(super) fn freed_by_thinning(&self, version: VersionId) -> Result<u64, HistoryFault> {
        let Some(suspects) = self.doomed.suspects(version) else { return Ok(0) };
        let leaving = Leaving::of(self, &self.doomed_from(version), self.parts.patient())?;
        let mut count = 0;
        for stream in Stream::ALL {
            let died = &suspects.died[stream as usize];
            let died = leaving.dead_on_one_way(version, stream, &(LogAddress(0)..END), Some(died))?;
            count += leaving.unreached(version, stream, died, None)?.len().0;
            count += leaving.count_unreached(version, stream, &self.not_looked_at(version, stream)?)?;
        }
        Ok(count)
    }

    /// What of a version, where it owns anything, was not looked at.
    fn not_looked_at(&self, version: VersionId, stream: Stream) -> Result<Span, HistoryFault> {
        let node = self.version(version)?;
        let from = self.doomed.suspects(version).map_or(END, |suspects| suspects.from[stream as usize]);
        let high = node.mark().map_or(END, |mark| mark.of(stream));
        Ok(self.low_mark(node).of(stream).max(from).min(high)..high)
    }

    /// A version, and all doomed ones below it with nothing but doomed ones in between.
    fn doomed_from(&self, version: VersionId) -> Vec<VersionId> {
        let mut found = vec![version];
        let mut index = 0;
        while let Some(version) = found.get(index) {
            let children = self.versions[version].children().iter().copied();
            found.extend(children.filter(|child| self.doomed.contains(*child)));
            index += 1;
        }
        found
    }

    /// Looks at some of the blocks that perhaps no version reaches: whether there were any.
    fn thin_piece(
        &mut self,
        version: VersionId,
        below: &[VersionId],
        stream: Stream,
        freed: &mut FreedSink,
        pace: &Pace<'_>,
    ) -> Result<bool, HistoryFault> {
        let source = self.parts.clone();
        let parts = pace.held.map_or_else(|| source.patient(), |held| source.among(held));
        let leaving = Leaving::of(self, below, parts)?;
        let Some(next) = self.next_suspects(version, &leaving, stream, pace.runs)? else { return Ok(false) };
        let candidates = leaving.dead_on_one_way(version, stream, &next.span, next.died.as_ref())?;
        let mut trace = Trace::default();
        let lost = leaving.unreached(version, stream, candidates, Some(&mut trace))?;
        if !lost.is_empty() {
            self.rid_of(version, stream, lost, &trace, freed)?;
        }
        if let Some(suspects) = self.doomed.suspects_mut(version) {
            suspects.seen(stream, &next);
        }
        self.doomed.freed(version, 0);
        Ok(true)
    }

    /// Where to look next: so many runs at most, in few parts of each set.
    fn next_suspects(
        &self,
        version: VersionId,
        leaving: &Leaving<'_>,
        stream: Stream,
        runs: usize,
    ) -> Result<Option<Next>, HistoryFault> {
        let Some(suspects) = self.doomed.suspects(version) else { return Ok(None) };
        let died = &suspects.died[stream as usize];
        let (mut span, died) = if let Some(first) = died.first() {
            let last = died.runs().take(runs).last().map_or(END, |run| run.end);
            (first..last, Some(died))
        } else {
            let rest = self.not_looked_at(version, stream)?;
            // What is dead on every way is dead on this one.
            let way = leaving.one_way(version).into_iter();
            let ends = way.filter_map(|child| self.versions[&child].dead.of(stream).stretch(&rest, runs));
            let Some(end) = ends.min() else { return Ok(None) };
            (rest.start..end, None)
        };
        let sets = leaving.below(version);
        let parts = (PARTS_TOGETHER / sets.len().max(1)).max(1);
        for child in sets {
            span = self.versions[&child].dead.of(stream).within_parts(span, parts);
        }
        let died = died.map(|died| died.part(&span));
        Ok(Some(Next { span, died }))
    }

    /// Takes out of all sets what a version owns and no version below it reaches.
    fn rid_of(
        &mut self,
        version: VersionId,
        stream: Stream,
        lost: BlockSet,
        trace: &Trace,
        freed: &mut FreedSink,
    ) -> Result<(), HistoryFault> {
        let common = |met: &BlockSet| {
            let mut met = met.clone();
            met.intersect(&lost);
            met
        };
        self.changed.insert(version);
        if self.node_mut(version).owned.of_mut(stream).subtract(&lost) != lost.len() {
            let child = trace.died.first().map_or(version, |(child, _)| *child);
            return Err(HistoryFault::NeverHad { version, child });
        }
        for (child, dead) in &trace.died {
            let dead = common(dead);
            if !dead.is_empty() {
                self.node_mut(*child).dead.of_mut(stream).subtract(&dead);
                self.changed.insert(*child);
            }
        }
        for (reaching, blocks) in &trace.reached {
            let node = self.node_mut(*reaching);
            node.referenced = node.referenced.saturating_sub(common(blocks).len().0);
            node.forget_used();
        }
        let count = lost.len().0;
        self.live[stream as usize] = self.live[stream as usize].saturating_sub(count);
        self.doomed.freed(version, count);
        freed.absorb(stream, lost);
        Ok(())
    }
}
