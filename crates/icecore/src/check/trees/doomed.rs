//! Versions that are destroyed and still in the tree of versions. No reader reads their trees of files, which
//! lead to what is free (see `liveness/thinning.rs`). What they reach is what those below them reach that
//! were not destroyed.

use super::{Blocks, Difference, LookedAt, less, unite};
use crate::liveness::{BlockSet, Span};
use crate::state::State;
use crate::units::{LogAddress, Stream, VersionId};
use std::collections::BTreeMap;

/// A doomed version, the doomed ones that hang together below it, and all those right below these. `look`
/// compares the tree of a version with that of the version above all of them, whose blocks are in `reached`.
pub(super) fn look(
    state: &State,
    top: VersionId,
    reached: &Blocks,
    look: &mut dyn FnMut(VersionId, Option<VersionId>) -> (Difference, bool),
) -> LookedAt {
    let base = state.parent(top);
    let doomed = hanging_together(state, top);
    let mut readable = true;
    // Against the version above all of them; for doomed ones, what all below them have in common in this.
    let mut against_base: BTreeMap<VersionId, Difference> = BTreeMap::new();
    for version in doomed.iter().rev() {
        for child in state.children(*version) {
            if !state.history.is_doomed(*child) {
                let (difference, is_whole) = look(*child, base);
                readable &= is_whole;
                against_base.insert(*child, difference);
            }
        }
        let below = state.children(*version).iter().map(|child| &against_base[child]);
        let together = together(below, reached);
        against_base.insert(*version, together);
    }
    // What a doomed version that was looked at reaches, against the same.
    let mut doomed_reach: BTreeMap<VersionId, Difference> = BTreeMap::new();
    let mut found = LookedAt::new();
    for version in doomed {
        let above = state.parent(version).and_then(|parent| doomed_reach.get(&parent));
        let difference = of_doomed(state, version, &against_base[&version], above);
        let reach = onwards(above, &difference, reached);
        for child in state.children(version).iter().filter(|child| !state.history.is_doomed(**child)) {
            found.insert(*child, (between(&reach, &against_base[child]), readable));
        }
        doomed_reach.insert(version, reach);
        found.insert(version, (difference, readable));
    }
    found
}

/// Each behind the one above it.
fn hanging_together(state: &State, top: VersionId) -> Vec<VersionId> {
    let mut found = vec![top];
    let mut index = 0;
    while let Some(version) = found.get(index) {
        let children = state.children(*version).iter().copied();
        found.extend(children.filter(|child| state.history.is_doomed(*child)));
        index += 1;
    }
    found
}

/// What any of these has beside a version that has `reached`, and what none of them has of that.
fn together<'a>(mut all: impl Iterator<Item = &'a Difference>, reached: &Blocks) -> Difference {
    let Some(first) = all.next() else {
        return Difference { born: Blocks::default(), gone: reached.clone() };
    };
    let mut together = Difference { born: first.born.clone(), gone: first.gone.clone() };
    for one in all {
        unite(&mut together.born, &one.born);
        for (gone, also) in together.gone.iter_mut().zip(&one.gone) {
            gone.intersect(also);
        }
    }
    together
}

/// How a doomed version differs from its parent. It owns what is reached below it and was born since the
/// parent. Some blocks the parent reaches and no version below it does. Of these, some are dead in it and
/// some further down: the sets say which.
fn of_doomed(
    state: &State,
    version: VersionId,
    below: &Difference,
    above: Option<&Difference>,
) -> Difference {
    let mark = |version: Option<VersionId>| {
        version.and_then(|version| state.history.version(version).ok()).and_then(|node| node.mark())
    };
    let (low, high) = (mark(state.parent(version)).unwrap_or_default(), mark(Some(version)));
    let mut found = Difference::default();
    for stream in Stream::ALL {
        let index = stream as usize;
        let end = high.map_or(LogAddress(u64::MAX), |high| high.of(stream));
        let span: Span = low.of(stream)..end;
        found.born[index] = below.born[index].part(&span);
        let mut lacking = below.gone[index].clone();
        if let Some(above) = above {
            lacking.subtract(&above.gone[index]);
            lacking.unite(less(&above.born[index], &below.born[index]));
        }
        if let Ok(dead) = state.history.dead_of(version, stream) {
            lacking.intersect(&dead);
        }
        found.gone[index] = lacking;
    }
    found
}

/// What a version reaches that differs so from one which differs as `above` from one that has `reached`.
fn onwards(above: Option<&Difference>, difference: &Difference, reached: &Blocks) -> Difference {
    let nothing = Difference::default();
    let above = above.unwrap_or(&nothing);
    let mut found = Difference::default();
    for (index, reached) in reached.iter().enumerate() {
        let mut gone: BlockSet = difference.gone[index].clone();
        gone.intersect(reached);
        gone.unite(above.gone[index].clone());
        found.gone[index] = gone;
        found.born[index] = less(&above.born[index], &difference.gone[index]);
        found.born[index].unite(difference.born[index].clone());
    }
    found
}

/// How one version differs from another, where both are compared with a third.
fn between(from: &Difference, to: &Difference) -> Difference {
    let mut found = Difference::default();
    for index in 0..found.born.len() {
        found.born[index] = less(&to.born[index], &from.born[index]);
        found.born[index].unite(less(&from.gone[index], &to.gone[index]));
        found.gone[index] = less(&to.gone[index], &from.gone[index]);
        found.gone[index].unite(less(&from.born[index], &to.born[index]));
    }
    found
}
