//! What of other datasets hangs on a snapshot: clones; and, where promotions and rollbacks went back and forth, snapshots.

use crate::state::State;
use crate::units::{DatasetId, VersionId};
use std::collections::BTreeSet;

/// Something that has to go, or to be promoted, before a snapshot of another dataset can be destroyed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Branch {
    /// A dataset that is a clone of the snapshot.
    Clone(String),
    /// A snapshot of a dataset that is none: what a rollback kept, as a rule; or the dataset, with something destroyed in between.
    Other(String),
    /// What is left of a dataset that was destroyed, and cannot be read.
    Remains,
}

impl Branch {
    /// Its name.
    pub(super) fn into_name(self) -> Option<String> {
        match self {
            Self::Clone(name) | Self::Other(name) => Some(name),
            Self::Remains => None,
        }
    }

    /// Why the snapshot `of` cannot be destroyed, and what helps.
    pub(super) fn blocks(&self, of: &str) -> String {
        match self {
            Self::Clone(name) => format!("{name} is a clone of {of} (destroy or promote it first)"),
            Self::Other(name) => format!("{name} hangs on {of} (destroy it first)"),
            Self::Remains => format!("what is left of a destroyed dataset hangs on {of}"),
        }
    }
}

/// What hangs right below a snapshot and is of no dataset that is its own. `vanishing`: see [`State::below`].
pub(super) fn of_others(
    state: &State,
    version: VersionId,
    is_own: impl Fn(DatasetId) -> bool,
    vanishing: &BTreeSet<VersionId>,
) -> Vec<Branch> {
    let Some(row) = state.catalogue.snapshot(version) else { return Vec::new() };
    if let [child] = state.children(version)
        && state.catalogue.snapshot(*child).is_some_and(|below| below.dataset == row.dataset && !below.hidden)
        && is_own(row.dataset)
    {
        // As it is in long rows of snapshots.
        return Vec::new();
    }
    let is_foreign = |child: &VersionId| state.catalogue.label(*child).is_some_and(|label| !is_own(label));
    let mut found = BTreeSet::new();
    for child in state.below(version, vanishing).into_iter().filter(is_foreign) {
        let visible: Vec<VersionId> = visible(state, child).into_iter().filter(is_foreign).collect();
        if visible.is_empty() {
            found.insert(Branch::Remains);
        }
        found.extend(visible.into_iter().map(|one| branch(state, version, one)));
    }
    found.into_iter().collect()
}

/// A version; or, if nobody sees it any more, those right below that are seen.
fn visible(state: &State, version: VersionId) -> Vec<VersionId> {
    let mut found = Vec::new();
    let mut open = vec![version];
    while let Some(version) = open.pop() {
        if state.catalogue.snapshot(version).is_some_and(|row| row.hidden) {
            open.extend(state.children(version));
        } else if state.catalogue.label(version).is_some() {
            found.push(version);
        }
    }
    found
}

fn branch(state: &State, version: VersionId, below: VersionId) -> Branch {
    let dataset = state.catalogue.label(below).expect("it was looked for");
    let is_clone = state.origin(dataset) == Some(version);
    match state.catalogue.dataset(dataset).filter(|_| is_clone) {
        Some(row) => Branch::Clone(row.name.clone()),
        None => Branch::Other(state.catalogue.full_name(below)),
    }
}
