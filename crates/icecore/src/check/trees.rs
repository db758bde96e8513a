//! Every tree against the sets: what a version reaches beyond its parent is what it owns, and what its parent
//! reaches and it does not is what is dead in it.
//!
//! Nodes never change, so a node that the parent reaches too need not be entered: the cost is that of what
//! differs between versions, however many there are.

mod doomed;

use super::{Area, Problem};
use crate::engine::Engine;
use crate::error::Error;
use crate::liveness::BlockSet;
use crate::namespace;
use crate::pool::Damage;
use crate::state::State;
use crate::tree::{Item, Tree};
use crate::units::{BlockCount, LogAddress, Run, Stream, VersionId};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// A set of blocks of each stream.
pub(super) type Blocks = [BlockSet; 3];

/// What a version was found to add to its parent, and to lack of it.
#[derive(Default)]
pub(super) struct Difference {
    pub born: Blocks,
    pub gone: Blocks,
}

/// What the walk over all versions found.
#[derive(Default)]
pub(super) struct Walked {
    pub problems: Vec<Problem>,
    /// Differences as the trees have them; only where all nodes could be read.
    pub differences: BTreeMap<VersionId, Difference>,
    /// Nodes that could not be read, each with the first version that was met to need it.
    pub lost: BTreeMap<LogAddress, (Damage, String)>,
    /// Whether some node could not be read.
    pub has_gaps: bool,
    /// Blocks reached by any version.
    pub blocks: u64,
    pub nodes: u64,
}

/// How versions differ from those above them, and whether all that says so could be read.
type LookedAt = BTreeMap<VersionId, (Difference, bool)>;

enum Step {
    Down(VersionId),
    Up(VersionId),
}

/// Walks the trees of all versions, each below its parent.
pub(super) fn walk(engine: &Engine, state: &State, names: bool, tell: &mut dyn FnMut(u64)) -> Walked {
    let mut found = Walked::default();
    let mut everything = Blocks::default();
    let mut reached = Blocks::default();
    let mut looked_at = LookedAt::new();
    let known = |version: &VersionId| state.trees.contains_key(version);
    let roots = state.history.versions().filter(|node| node.parent().is_none()).map(|node| node.id());
    let mut steps: Vec<Step> = roots.filter(known).map(Step::Down).collect();
    while let Some(step) = steps.pop() {
        match step {
            Step::Down(version) => {
                let mut look =
                    |version, base| descend(engine, state, version, base, &reached, &mut found, names);
                let (difference, readable) = match looked_at.remove(&version) {
                    Some(known) => known,
                    None if state.history.is_doomed(version) => {
                        looked_at.extend(doomed::look(state, version, &reached, &mut look));
                        looked_at.remove(&version).expect("looked at just now")
                    }
                    None => look(version, state.parent(version)),
                };
                if readable {
                    compare(state, version, &difference, &mut found.problems);
                }
                apply(&mut reached, &difference.gone, &difference.born);
                unite(&mut everything, &difference.born);
                found.differences.insert(version, difference);
                tell(found.differences.len() as u64);
                steps.push(Step::Up(version));
                steps.extend(state.children(version).iter().copied().filter(known).map(Step::Down));
            }
            Step::Up(version) => {
                let difference = &found.differences[&version];
                apply(&mut reached, &difference.born, &difference.gone);
            }
        }
    }
    found.blocks = everything.iter().map(|set| set.len().0).sum();
    if !found.has_gaps {
        partition(state, &everything, &mut found.problems);
    }
    found
}

fn apply(set: &mut Blocks, without: &Blocks, with: &Blocks) {
    for stream in 0..3 {
        set[stream].subtract(&without[stream]);
        set[stream].unite(with[stream].clone());
    }
}

fn unite(set: &mut Blocks, with: &Blocks) {
    for stream in 0..3 {
        set[stream].unite(with[stream].clone());
    }
}

/// Compares the tree of one version with that of another, all of whose blocks are in `reached`: how they
/// differ, and whether all of them could be read.
fn descend(
    engine: &Engine,
    state: &State,
    version: VersionId,
    base: Option<VersionId>,
    reached: &Blocks,
    found: &mut Walked,
    names: bool,
) -> (Difference, bool) {
    let name = state.catalogue.full_name(version);
    let tree = &state.trees[&version];
    let mut mine = Part::new(Some(reached));
    mine.walk(engine, tree);
    let mut parents = Part::new(None);
    if let Some(parent) = base.and_then(|base| state.trees.get(&base)) {
        parents.stop = std::mem::take(&mut mine.shared);
        parents.walk(engine, parent);
    }
    found.nodes += mine.met[Stream::Node as usize].len().0;
    for detail in &mine.twice {
        found.problems.push(Problem::of(Area::Trees, format!("{name} {detail}")).seen_by(&name));
    }
    for (address, error) in &mine.lost {
        let block = Run { stream: Stream::Node, start: *address, length: BlockCount(1) };
        let lost = || (Damage::of(engine, block, error), name.clone());
        found.lost.entry(*address).or_insert_with(lost);
    }
    let readable = mine.lost.is_empty() && parents.lost.is_empty();
    found.has_gaps |= !readable;
    let mut difference = Difference { born: mine.met, gone: parents.met };
    for stream in 0..3 {
        let kept = difference.born[stream].clone();
        difference.born[stream].subtract(&difference.gone[stream]);
        difference.gone[stream].subtract(&kept);
    }
    if readable && names {
        let reader = namespace::TreeReader::new(tree, &*engine.nodes);
        if let Err(error) = tree.check(&*engine.nodes).and_then(|()| namespace::check(&reader)) {
            let problem = Problem::of(Area::Trees, format!("{name}: {error}"));
            found.problems.push(problem.seen_by(&name));
        }
    }
    (difference, readable)
}

/// What a walk of one tree met, without what it did not have to enter.
struct Part<'a> {
    /// Nodes of these need not be entered: blocks that the parent reaches.
    known: Option<&'a Blocks>,
    /// Nodes at which to stop.
    stop: BTreeSet<LogAddress>,
    /// Nodes at which the walk stopped because they are known.
    shared: BTreeSet<LogAddress>,
    met: Blocks,
    twice: Vec<String>,
    lost: Vec<(LogAddress, Error)>,
}

impl<'a> Part<'a> {
    fn new(known: Option<&'a Blocks>) -> Self {
        let (stop, shared) = (BTreeSet::new(), BTreeSet::new());
        Self { known, stop, shared, met: Blocks::default(), twice: Vec::new(), lost: Vec::new() }
    }

    fn walk(&mut self, engine: &Engine, tree: &Tree) {
        let mut lost = Vec::new();
        tree.salvage(
            &*engine.nodes,
            &mut |address, node, _| {
                if self.stop.contains(&address) {
                    return false;
                }
                if self.known.is_some_and(|known| known[Stream::Node as usize].contains(address)) {
                    if !self.shared.insert(address) {
                        self.twice.push(format!("refers twice to node {address}"));
                    }
                    return false;
                }
                self.meet(Run { stream: Stream::Node, start: address, length: BlockCount(1) });
                for (_, item) in node.items() {
                    if let Item::Extent(extent) = item.to_item() {
                        self.meet(extent.run);
                    }
                }
                true
            },
            &mut |gone| lost.push((gone.address, gone.error)),
        );
        self.lost.extend(lost);
    }

    fn meet(&mut self, run: Run) {
        if self.met[run.stream as usize].insert(run.start..run.end()) != run.length {
            self.twice.push(format!("refers twice to {}", words(run.stream, run.start, run.length.0)));
        }
    }
}

/// A number of blocks from an address on, in words.
pub(super) fn words(stream: Stream, first: LogAddress, blocks: u64) -> String {
    let what = match stream {
        Stream::Data => "data",
        Stream::Merged => "merged",
        Stream::Node => "node",
    };
    format!("{blocks} {what} block{} (the first at address {first})", if blocks == 1 { "" } else { "s" })
}

fn less(one: &BlockSet, other: &BlockSet) -> BlockSet {
    let mut rest = one.clone();
    rest.subtract(other);
    rest
}

/// The sets of one version against what its tree says.
fn compare(state: &State, version: VersionId, difference: &Difference, problems: &mut Vec<Problem>) {
    let name = &state.catalogue.full_name(version);
    // Where something could not be freed that is free, sets of doomed versions have more than others reach.
    let is_settled = !state.history.is_doomed(version) || state.history.doomed_count() == 0;
    for stream in Stream::ALL {
        let sets = state.history.owned_of(version, stream).and_then(|owned| {
            let dead = state.history.dead_of(version, stream)?;
            Ok((owned, dead))
        });
        let (owned, dead) = match sets {
            Ok((owned, dead)) => (owned, dead),
            Err(fault) => {
                problems.push(Problem::of(Area::Sets, format!("{name}: {fault}")).seen_by(name));
                continue;
            }
        };
        if !is_settled {
            continue;
        }
        let (owned, dead) = (&*owned, &*dead);
        let (born, gone) = (&difference.born[stream as usize], &difference.gone[stream as usize]);
        for (set, what) in [
            (less(born, owned), "its tree reaches, its parent does not, and it does not own"),
            (less(owned, born), "it owns, and its tree does not reach"),
            (less(gone, dead), "its parent reaches, its tree does not, and are not dead in it"),
            (less(dead, gone), "are dead in it, and its tree reaches"),
        ] {
            if let Some(first) = set.first() {
                let blocks = words(stream, first, set.len().0);
                let problem = Problem::of(Area::Sets, format!("{name}: {blocks}, which {what}"));
                problems.push(problem.seen_by(name));
            }
        }
    }
}

/// Every reachable block is owned, once, and nothing else is.
fn partition(state: &State, everything: &Blocks, problems: &mut Vec<Problem>) {
    for stream in Stream::ALL {
        let mut owned = BlockSet::new();
        for node in state.history.versions() {
            // One that cannot be read was reported before.
            let Ok(own) = state.history.owned_of(node.id(), stream).map(Cow::into_owned) else { continue };
            let name = || state.catalogue.full_name(node.id());
            let twice = own.len().0 - owned.unite(own.clone()).0;
            if twice > 0 {
                let text = format!("{} owns {twice} blocks that another version owns", name());
                problems.push(Problem::of(Area::Sets, text).seen_by(&name()));
            }
        }
        let met = &everything[stream as usize];
        for (set, what) in [
            (less(met, &owned), "reached, and owned by no version: they would be overwritten"),
            (less(&owned, met), "owned, and reached by no version: they are never freed"),
        ] {
            if let Some(first) = set.first() {
                let blocks = words(stream, first, set.len().0);
                problems.push(Problem::of(Area::Sets, format!("{blocks} are {what}")));
            }
        }
    }
}
