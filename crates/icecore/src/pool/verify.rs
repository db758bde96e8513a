//! Verifying the books: every set, map and count is computed again by walking every tree, and compared.

use super::Pool;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::format::segment::{SegmentKind, file_name};
use crate::liveness::BlockSet;
use crate::namespace::{self, TreeReader, data_runs};
use crate::state::State;
use crate::units::{BlockCount, Run, SegmentId, Slot, Stream, VersionId};
use std::collections::{BTreeMap, BTreeSet};

/// A set of blocks of each stream.
type Blocks = [BlockSet; 3];

impl Pool {
    /// Walks every tree, and verifies that namespaces, sets, location map, live counts and figures agree with
    /// what was met. Reads all tree nodes and no file data (that is what [`Pool::scrub`] is for).
    ///
    /// Holds up writers while it lasts, and takes memory for the set of blocks of each version.
    ///
    /// # Errors
    /// [`Error::Damaged`] naming what does not agree; [`Error::Io`].
    #[doc(hidden)]
    pub fn verify(&self) -> Result<()> {
        self.engine().check_open()?;
        self.engine().verify()
    }
}

fn wrong(place: impl Into<String>, detail: impl Into<String>) -> Error {
    Error::damaged(place, detail)
}

impl Engine {
    fn verify(&self) -> Result<()> {
        let _files = self.hold_files();
        self.finish_freeing()?;
        self.with_books(|state, ledger| {
            // The tree of a version that is deleted in part has more than is there: it is compared with
            // nothing.
            if let Some(version) = state.history.next_stuck() {
                state.history.freed_by_deleting_set(&[version])?;
            }
            state.history.check()?;
            state.catalogue.check()?;
            check_labels(state)?;
            state.check_usage()?;
            let mut walked = BTreeMap::new();
            // A snapshot has a higher number than those above it.
            for (version, tree) in &state.trees {
                if state.history.is_doomed(*version) {
                    let reached = of_sets(state, *version, &walked)?;
                    walked.insert(*version, reached);
                    continue;
                }
                let named = |error| in_version(error, &state.catalogue.full_name(*version));
                tree.check(&*self.nodes).map_err(named)?;
                namespace::check(&TreeReader::new(tree, &*self.nodes)).map_err(named)?;
                walked.insert(*version, self.walk(state, *version)?);
            }
            check_sets(state, &walked)?;
            check_figures(state, &walked)?;
            self.check_places(state, ledger)
        })?;
        self.check_cuts()
    }

    /// Nothing that is needed is gone with the end of a segment.
    fn check_cuts(&self) -> Result<()> {
        let segments = self.state().segments.all();
        for segment in segments {
            if self.blocks.files().cut(segment).is_some() && self.harmless_cut(segment).is_none() {
                self.blocks.files().get(segment)?;
            }
        }
        Ok(())
    }

    /// Everything that a version reaches, by walking its tree. It reaches nothing twice.
    fn walk(&self, state: &State, version: VersionId) -> Result<Blocks> {
        let tree = &state.trees[&version];
        let mut met = Blocks::default();
        let mut meet = |run: Run| {
            let added = met[run.stream as usize].insert(run.start..run.end());
            if added == run.length {
                return Ok(());
            }
            Err(wrong(state.catalogue.full_name(version), format!("it refers twice to part of {run:?}")))
        };
        tree.nodes(&*self.nodes, &mut |address, _| {
            meet(Run { stream: Stream::Node, start: address, length: BlockCount(1) })
        })?;
        data_runs(tree, &*self.nodes, &mut |_, _, run| meet(run))?;
        Ok(met)
    }

    /// Datasets and snapshots stand for versions that exist, each for one, and all versions are stood for.
    pub(crate) fn check_labels(&self, state: &State) -> Result<()> {
        check_labels(state)
    }

    /// Live and dying blocks have a place that suits them, and segments count them right.
    pub(crate) fn check_places(&self, state: &State, ledger: &[(SegmentId, u32)]) -> Result<()> {
        let mut live: BTreeMap<SegmentId, u64> = BTreeMap::new();
        for (segment, blocks) in ledger {
            *live.entry(*segment).or_default() += u64::from(*blocks);
            check_kind(state, *segment, &[SegmentKind::Ledger])?;
        }
        let unwritten: BTreeSet<u64> =
            state.trees.values().flat_map(|tree| tree.dirty()).map(|slot| slot.address().0).collect();
        let spans = |run: Run| run.start..run.end();
        let mut alive = Blocks::default();
        for stream in Stream::ALL {
            for run in state.history.live_runs(stream) {
                let run = run?;
                alive[stream as usize].insert(spans(run));
                self.count_places(state, run, &mut live, |address| match stream {
                    Stream::Data => false,
                    Stream::Merged => self.blocks.pending().get(crate::units::LogAddress(address)).is_some(),
                    Stream::Node => unwritten.contains(&address),
                })?;
            }
        }
        for run in state.graveyard.runs() {
            if alive[run.stream as usize].count(&spans(run)).0 > 0 {
                return Err(wrong(format!("{run:?}"), "it is dead, and some version owns it"));
            }
            // What was born and died between two checkpoints never had a place.
            self.count_places(state, run, &mut live, |_| run.stream != Stream::Data)?;
        }
        for segment in state.segments.all() {
            let (found, counted) = (live.remove(&segment).unwrap_or(0), state.segments.live(segment));
            if found != counted {
                let detail = format!("{found} live blocks lie in it, and {counted} are counted");
                return Err(wrong(file_name(segment), detail));
            }
            if found > 0 && state.segments.kind(segment).is_none() {
                return Err(wrong(file_name(segment), "it is free, and live blocks lie in it"));
            }
            // The caller judges what is cut short, and can say what it costs.
            if self.blocks.files().cut(segment).is_none() {
                self.blocks.files().get(segment)?;
            }
        }
        match live.first_key_value() {
            Some((segment, _)) => Err(wrong(file_name(*segment), "blocks lie in it, and it does not exist")),
            None => Ok(()),
        }
    }

    /// Counts the blocks of a run by segment. `may_lack`: whether the block at an address may have no place.
    fn count_places(
        &self,
        state: &State,
        run: Run,
        live: &mut BTreeMap<SegmentId, u64>,
        may_lack: impl Fn(u64) -> bool,
    ) -> Result<()> {
        let kinds: &[SegmentKind] = match run.stream {
            // A restart takes segments with data in them for stretches of the log, staged runs or not.
            Stream::Data | Stream::Merged => &[SegmentKind::Log, SegmentKind::Run],
            Stream::Node => &[SegmentKind::Node],
        };
        for span in state.parts_counted(&run) {
            self.count_part(state, Run::of(run.stream, &span), kinds, live, &may_lack)?;
        }
        Ok(())
    }

    fn count_part(
        &self,
        state: &State,
        run: Run,
        kinds: &[SegmentKind],
        live: &mut BTreeMap<SegmentId, u64>,
        may_lack: impl Fn(u64) -> bool,
    ) -> Result<()> {
        let mut at = run.start;
        while at < run.end() {
            let Some((segment, slot, together)) = self.blocks.lookup(run.stream, at)? else {
                if !may_lack(at.0) {
                    return Err(wrong(format!("{:?} address {at}", run.stream), "no place is known for it"));
                }
                at = at.plus(BlockCount(1));
                continue;
            };
            let count = together.0.min(run.end().0 - at.0);
            let kind = check_kind(state, segment, kinds)
                .map_err(|error| in_version(error, &format!("{run:?} from {at} on")))?;
            let end = self.geometry.end(kind);
            if slot == Slot(0) || u64::from(slot.0) + count > u64::from(end.0) {
                return Err(wrong(file_name(segment), format!("{run:?} lies outside of its slots")));
            }
            *live.entry(segment).or_default() += count;
            at = at.plus(BlockCount(count));
        }
        Ok(())
    }
}

/// What a doomed version reaches: what its sets say. Its tree has more, which is not read.
fn of_sets(state: &State, version: VersionId, walked: &BTreeMap<VersionId, Blocks>) -> Result<Blocks> {
    let parent = state.history.version(version)?.parent();
    let mut reached = parent.and_then(|parent| walked.get(&parent).cloned()).unwrap_or_default();
    for stream in Stream::ALL {
        reached[stream as usize].subtract(&*state.history.dead_of(version, stream)?);
        reached[stream as usize].unite(state.history.owned_of(version, stream)?.into_owned());
    }
    Ok(reached)
}

fn in_version(error: Error, name: &str) -> Error {
    match error {
        Error::Damaged { place, detail } => Error::Damaged { place: format!("{name}: {place}"), detail },
        other => other,
    }
}

fn check_kind(state: &State, segment: SegmentId, kinds: &[SegmentKind]) -> Result<SegmentKind> {
    let kind = state.segments.kind(segment);
    kind.filter(|kind| kinds.contains(kind)).ok_or_else(|| {
        wrong(file_name(segment), format!("it is used as {kind:?}, and blocks for {kinds:?} lie in it"))
    })
}

/// Every version has exactly one label and one tree.
fn check_labels(state: &State) -> Result<()> {
    let mut labelled: BTreeSet<VersionId> = BTreeSet::new();
    let snapshots = state.catalogue.snapshots().map(|(version, row)| (version, &row.name, false));
    let heads = state.catalogue.datasets().map(|(_, row)| (row.head, &row.name, true));
    for (version, name, is_head) in snapshots.chain(heads) {
        let node = state.history.version(version)?;
        if !labelled.insert(version) || node.is_head() != is_head {
            return Err(wrong(name, format!("version {version} is not what its label says")));
        }
    }
    // A head whose dataset was destroyed has no label while it waits to be deleted, or for readers.
    labelled.extend(state.history.doomed().chain(state.history.read()));
    let known: BTreeSet<VersionId> = state.history.versions().map(|node| node.id()).collect();
    let rooted: BTreeSet<VersionId> = state.trees.keys().copied().collect();
    if labelled != known || rooted != known {
        return Err(wrong("the catalogue", "labels, trees and the history are not of the same versions"));
    }
    Ok(())
}

/// What the walks met is what the sets say: version by version, and the owned sets partition all of it.
fn check_sets(state: &State, walked: &BTreeMap<VersionId, Blocks>) -> Result<()> {
    let mut everything = Blocks::default();
    let mut owned = Blocks::default();
    for node in state.history.versions() {
        for stream in Stream::ALL {
            let index = stream as usize;
            let above = node.parent().map(|parent| walked[&parent][index].clone());
            let mut reached = above.unwrap_or_default();
            reached.subtract(&*state.history.dead_of(node.id(), stream)?);
            let own = state.history.owned_of(node.id(), stream)?.into_owned();
            reached.unite(own.clone());
            let met = &walked[&node.id()][index];
            if reached.runs().ne(met.runs()) {
                let name = state.catalogue.full_name(node.id());
                return Err(wrong(name, format!("its sets of {stream:?} blocks are not what its tree has")));
            }
            // What a doomed version has, another version reaches, unless there is something to be freed of it
            // since a moment ago.
            if state.history.doomed_count() > 0 || !state.history.is_doomed(node.id()) {
                everything[index].unite(met.clone());
            }
            let count = own.len();
            if owned[index].unite(own) != count {
                return Err(wrong(state.catalogue.full_name(node.id()), "it owns what another version owns"));
            }
        }
    }
    if (0..3).any(|index| everything[index].runs().ne(owned[index].runs())) {
        return Err(wrong("the history", "what is owned is not what is reached"));
    }
    Ok(())
}

/// Figures that are shown to users, against counting.
fn check_figures(state: &State, walked: &BTreeMap<VersionId, Blocks>) -> Result<()> {
    let read = |version: &VersionId| !state.history.is_doomed(*version);
    let alone = reached_once(walked.iter().filter(|(version, _)| read(version)).map(|(_, met)| met));
    for (version, met) in walked {
        let name = || state.catalogue.full_name(*version);
        let referenced: u64 = met.iter().map(|set| set.len().0).sum();
        if state.history.referenced(*version)?.0 != referenced {
            return Err(wrong(name(), format!("REFER is not the {referenced} blocks that it reaches")));
        }
        if !read(version) || state.history.doomed_count() > 0 {
            continue;
        }
        let used: u64 = met.iter().zip(&alone).map(|(met, alone)| common(met, alone)).sum();
        if state.history.used(*version)?.0 != used {
            return Err(wrong(name(), format!("USED is not the {used} blocks that it alone reaches")));
        }
    }
    if state.history.doomed_count() > 0 {
        return Ok(());
    }
    for (id, row) in state.catalogue.datasets() {
        let snapshots: Vec<VersionId> =
            state.catalogue.snapshots_of(id).map(|(version, _)| version).collect();
        let doomed: BTreeSet<VersionId> = snapshots.iter().copied().chain([row.head]).collect();
        for candidates in [snapshots, doomed.into_iter().collect()] {
            let planned = state.history.freed_by_deleting_set(&state.history.going(&candidates))?;
            let counted = only_in(&candidates.into_iter().chain(state.history.doomed()).collect(), walked);
            if planned.0 != counted {
                let detail = format!("destroying versions of it frees {counted} blocks, and not {planned}");
                return Err(wrong(&row.name, detail));
            }
        }
    }
    Ok(())
}

/// Blocks that exactly one version reaches.
fn reached_once<'a>(walked: impl Iterator<Item = &'a Blocks>) -> Blocks {
    let (mut once, mut again) = (Blocks::default(), Blocks::default());
    for met in walked {
        for (index, met) in met.iter().enumerate() {
            let mut twice = met.clone();
            twice.intersect(&once[index]);
            again[index].unite(twice);
            once[index].unite(met.clone());
        }
    }
    for (once, again) in once.iter_mut().zip(&again) {
        once.subtract(again);
    }
    once
}

/// How many blocks two sets have in common.
fn common(one: &BlockSet, other: &BlockSet) -> u64 {
    let mut both = one.clone();
    both.intersect(other);
    both.len().0
}

/// Blocks that are reached by these versions and by no other.
fn only_in(versions: &BTreeSet<VersionId>, walked: &BTreeMap<VersionId, Blocks>) -> u64 {
    let mut count = 0;
    for index in 0..3 {
        let mut set = BlockSet::new();
        for version in versions {
            set.unite(walked[version][index].clone());
        }
        for (_, met) in walked.iter().filter(|(version, _)| !versions.contains(version)) {
            set.subtract(&met[index]);
        }
        count += set.len().0;
    }
    count
}
