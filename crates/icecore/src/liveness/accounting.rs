//! What versions hold: counts that are exact and cheap, and walks over what is alive.

use super::blocks::{BlockSet, Runs, Span};
use super::cold::Cold;
use super::fault::HistoryFault;
use super::forecast::Leaving;
use super::part::{HeldPart, Look, PartRow};
use super::streams::StreamSets;
use super::versions::{History, VersionNode};
use crate::units::{BlockCount, LogAddress, Run, Stream, VersionId};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

impl History {
    /// USED: blocks that this version alone reaches, as far as others are not doomed: what dooming it would
    /// free.
    pub fn used(&self, version: VersionId) -> Result<BlockCount, HistoryFault> {
        self.used_with(version, self.parts.patient())
    }

    fn used_with(&self, version: VersionId, parts: Look<'_>) -> Result<BlockCount, HistoryFault> {
        let node = self.version(version)?;
        if self.is_next_to_doomed(node) {
            if let Some(used) = self.doomed.cached_used(version) {
                return Ok(BlockCount(used));
            }
            let used = Leaving::of(self, &self.going(&[version]), parts)?.count()?;
            self.doomed.cache_used(version, used.0);
            return Ok(used);
        }
        if let Some(used) = node.cached_used() {
            return Ok(BlockCount(used));
        }
        let used = self.count_used(node, parts)?;
        node.cache_used(used.0);
        Ok(used)
    }

    /// Versions of which it is not known what they alone reach, and for which that may take reading.
    pub(crate) fn unlearned(&self) -> Vec<VersionId> {
        let on_disk = |child: &VersionId| self.versions[child].dead.all().any(|set| !set.rows().is_empty());
        let may_take_reading = |node: &VersionNode| {
            if self.is_next_to_doomed(node) {
                return self.doomed.cached_used(node.id).is_none() && !self.is_doomed(node.id);
            }
            node.cached_used().is_none() && node.children.iter().any(on_disk)
        };
        self.versions().filter(|node| may_take_reading(node)).map(VersionNode::id).collect()
    }

    /// The same without reading: [`HistoryFault::Absent`] names a part that is neither in memory nor held.
    pub(crate) fn used_among(
        &self,
        version: VersionId,
        held: &[HeldPart],
    ) -> Result<BlockCount, HistoryFault> {
        self.used_with(version, self.parts.among(held))
    }

    fn count_used(&self, node: &VersionNode, parts: Look<'_>) -> Result<BlockCount, HistoryFault> {
        let (low, high) = (self.low_mark(node), node.mark.unwrap_or_default());
        match &node.children[..] {
            [] => Ok(node.owned.len()),
            [child] => self.versions[child].dead.count_between(&low, &high, parts),
            _ => Leaving::of(self, &[node.id], parts)?.count(),
        }
    }

    /// REFER: blocks that the version reaches.
    pub fn referenced(&self, version: VersionId) -> Result<BlockCount, HistoryFault> {
        Ok(BlockCount(self.version(version)?.referenced))
    }

    /// WRITTEN: blocks that the version reaches and that were born since its parent in the tree.
    pub fn written(&self, version: VersionId) -> Result<BlockCount, HistoryFault> {
        Ok(self.version(version)?.owned.len())
    }

    /// Live blocks of all streams.
    pub fn live_in_all(&self) -> BlockCount {
        BlockCount(self.live.iter().sum())
    }

    /// All versions, each with everything below it directly behind it, and the index of the first that is not
    /// below it.
    pub fn lineage(&self) -> Vec<(VersionId, u32)> {
        enum Step {
            In(VersionId),
            Out(usize),
        }
        let roots = self.versions.values().filter(|node| node.parent.is_none());
        let mut steps: Vec<Step> = roots.map(|node| Step::In(node.id)).collect();
        let mut order: Vec<(VersionId, u32)> = Vec::with_capacity(self.versions.len());
        while let Some(step) = steps.pop() {
            match step {
                Step::In(version) => {
                    steps.push(Step::Out(order.len()));
                    order.push((version, 0));
                    steps.extend(self.versions[&version].children.iter().copied().map(Step::In));
                }
                Step::Out(index) => order[index].1 = order.len() as u32,
            }
        }
        order
    }

    /// Which of these blocks a version owns (it reaches them, and so does everything below it where they are
    /// not dead), and which are dead in it, and so in everything below it. Of what cannot be read, none.
    pub fn owned_and_dead_among(
        &self,
        version: VersionId,
        stream: Stream,
        blocks: &BlockSet,
    ) -> [BlockSet; 2] {
        let Ok(node) = self.version(version) else { return Default::default() };
        let among = |sets: &StreamSets| sets.of(stream).common(blocks, self.parts.patient());
        [&node.owned, &node.dead].map(|sets| among(sets).unwrap_or_default())
    }

    /// What a version owns, of one stream.
    pub fn owned_of(&self, version: VersionId, stream: Stream) -> Result<Cow<'_, BlockSet>, HistoryFault> {
        self.version(version)?.owned.of(stream).whole(self.parts.patient())
    }

    /// What is dead in a version, of one stream.
    pub fn dead_of(&self, version: VersionId, stream: Stream) -> Result<Cow<'_, BlockSet>, HistoryFault> {
        self.version(version)?.dead.of(stream).whole(self.parts.patient())
    }

    /// Whether some version owns a block.
    pub fn lives(&self, stream: Stream, address: LogAddress) -> Result<bool, HistoryFault> {
        for node in self.versions.values() {
            if node.owned.of(stream).contains(address, self.parts.patient())? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Which of these blocks are alive.
    pub fn living(&self, stream: Stream, blocks: &BlockSet) -> Result<BlockSet, HistoryFault> {
        let mut living = BlockSet::new();
        let (Some(first), Some(last)) = (blocks.first(), blocks.last()) else { return Ok(living) };
        for node in self.versions.values() {
            let owned = node.owned.of(stream);
            let apart =
                owned.last().is_none_or(|end| end < first) || owned.first().is_none_or(|begin| begin > last);
            if !apart {
                living.unite(owned.common(blocks, self.parts.patient())?);
            }
        }
        Ok(living)
    }

    /// All live blocks of one stream as maximal runs, ascending. Owned sets of different branches lie
    /// interleaved; they are merged on the fly, and of those that lie on disk a part of each is in memory at
    /// a time.
    pub fn live_runs(&self, stream: Stream) -> LiveRuns<'_> {
        let mut runs = LiveRuns {
            stream,
            parts: self.parts.patient(),
            sources: Vec::new(),
            heads: BinaryHeap::new(),
            unread: None,
        };
        for node in self.versions.values() {
            let owned = node.owned.of(stream);
            runs.add(Source::AtHand(Box::new(owned.at_hand().runs())));
            let nothing = const { &BlockSet::new() };
            let removed = owned.cold().map_or(nothing, Cold::removed);
            for row in owned.rows() {
                runs.heads.push(Reverse((row.span.start, row.span.start, runs.sources.len())));
                runs.sources.push(Source::Closed(row, removed));
            }
        }
        runs
    }
}

/// Where live runs come from.
enum Source<'a> {
    AtHand(Box<Runs<'a>>),
    /// A part on disk, and what is not in the set any more.
    Closed(&'a PartRow, &'a BlockSet),
    Open(std::vec::IntoIter<Span>),
}

/// Iterates over all live blocks of one stream. After an error (a part that cannot be read) it goes on
/// without that part.
pub struct LiveRuns<'a> {
    stream: Stream,
    parts: Look<'a>,
    sources: Vec<Source<'a>>,
    /// The next run of each source: start, end, and the index of the source. One that is empty stands for a
    /// part that is not open yet.
    heads: BinaryHeap<Reverse<(LogAddress, LogAddress, usize)>>,
    /// A part that cannot be read, met behind the run that was returned last.
    unread: Option<Box<UnreadPart>>,
}

impl<'a> LiveRuns<'a> {
    fn add(&mut self, mut source: Source<'a>) {
        if let Some(span) = source.next() {
            self.heads.push(Reverse((span.start, span.end, self.sources.len())));
            self.sources.push(source);
        }
    }

    /// The next run of one set; none for a part that had to be opened.
    fn next_of_one_set(&mut self) -> Option<Result<Option<Span>, Box<UnreadPart>>> {
        let Reverse((start, end, index)) = self.heads.pop()?;
        let source = &mut self.sources[index];
        let found = match source {
            Source::Closed(row, removed) => {
                let part = match self.parts.get(row) {
                    Ok(part) => part,
                    Err(fault) => {
                        return Some(Err(Box::new(UnreadPart {
                            stream: self.stream,
                            row: row.clone(),
                            fault,
                        })));
                    }
                };
                let mut content = BlockSet::clone(&part);
                content.subtract(removed);
                *source = Source::Open(content.runs().collect::<Vec<_>>().into_iter());
                None
            }
            _ => Some(start..end),
        };
        match source.next() {
            Some(span) => self.heads.push(Reverse((span.start, span.end, index))),
            // Nothing comes any more: its memory goes.
            None => *source = Source::Open(Vec::new().into_iter()),
        }
        Some(Ok(found))
    }

    /// Whether what comes next may go on with a run that ends here.
    fn goes_on(&self, end: LogAddress) -> bool {
        self.heads.peek().is_some_and(|Reverse((start, ..))| *start <= end)
    }
}

impl Source<'_> {
    fn next(&mut self) -> Option<Span> {
        match self {
            Self::AtHand(runs) => runs.next(),
            Self::Open(spans) => spans.next(),
            Self::Closed(..) => None,
        }
    }
}

/// A part that cannot be read, of what lives.
#[derive(Clone, Debug)]
pub struct UnreadPart {
    /// Its stream.
    pub stream: Stream,
    /// What is known of it.
    pub row: PartRow,
    /// Why.
    pub fault: HistoryFault,
}

impl From<Box<UnreadPart>> for crate::Error {
    fn from(unread: Box<UnreadPart>) -> Self {
        unread.fault.into()
    }
}

impl Iterator for LiveRuns<'_> {
    type Item = Result<Run, Box<UnreadPart>>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(unread) = self.unread.take() {
            return Some(Err(unread));
        }
        let mut run = loop {
            match self.next_of_one_set()? {
                Ok(Some(run)) => break run,
                Ok(None) => {}
                Err(unread) => return Some(Err(unread)),
            }
        };
        while self.goes_on(run.end) {
            match self.next_of_one_set().expect("something goes on") {
                Ok(Some(next)) => {
                    let (start, stream) = (next.start, self.stream);
                    assert!(start >= run.end, "two versions own block {start} of stream {stream:?}");
                    run.end = next.end;
                }
                Ok(None) => {}
                // What is open so far is a run.
                Err(unread) => {
                    self.unread = Some(unread);
                    break;
                }
            }
        }
        Some(Ok(Run::of(self.stream, &run)))
    }
}
