//! What a prune comes to: every snapshot with what becomes of it.

use super::super::{list_entries, take};
use super::choose::{Candidate, Protection, Reason, choose};
use icecore::admin::{Access, Request, Response};
use icecore::retention::{PROPERTY_PREFIX, Policy, is_of_rollback};
use icecore::units::{ByteLength, Timestamp};
use icecore::{EntryKind, Hold, ListEntry, ListFilter};

/// What the command line says about datasets.
pub struct Chosen<'a> {
    /// None for all that have rules.
    pub names: &'a [String],
    pub recursive: bool,
    /// Counts instead of the properties of a dataset.
    pub policy: Option<&'a Policy>,
    pub prefix: Option<&'a str>,
    pub for_space: bool,
}

/// One snapshot.
pub struct Row {
    pub entry: ListEntry,
    /// Why it stays; none if it goes.
    pub reasons: Vec<Reason>,
}

/// Everything that was judged.
#[derive(Default)]
pub struct Plan {
    pub rows: Vec<Row>,
    /// Holds that have expired, with their snapshots.
    pub releases: Vec<(String, Hold)>,
    /// Datasets that could not be judged, and why.
    pub problems: Vec<(String, String)>,
    /// What comes back.
    pub frees: ByteLength,
    /// What the pool has, where space was asked for.
    pub space: Option<super::goal::Space>,
}

impl Plan {
    pub fn going(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.reasons.is_empty())
    }

    /// Why snapshots that were to go are still there.
    pub fn in_use(&self) -> Vec<&str> {
        let reasons = self.rows.iter().flat_map(|row| &row.reasons);
        let in_use = reasons.filter_map(|reason| match reason {
            Reason::InUse(what) => Some(what.as_str()),
            _ => None,
        });
        in_use.collect()
    }
}

pub fn make(access: &mut Access, chosen: &Chosen<'_>) -> anyhow::Result<Plan> {
    let now = Timestamp::now();
    let mut plan = Plan::default();
    let mut entries = Vec::new();
    let filter = |root, depth| ListFilter { root, depth, datasets: true, snapshots: true };
    if chosen.names.is_empty() {
        entries = list_entries(access, filter(None, None))?;
    }
    for name in chosen.names {
        if name.contains('@') {
            return Err(crate::exit::usage(format!("{name} is a snapshot: name the dataset")));
        }
        let depth = (!chosen.recursive).then_some(0);
        entries.extend(list_entries(access, filter(Some(name.clone()), depth))?);
    }
    // A dataset may be named twice, or be below another that is named.
    let mut seen = std::collections::HashSet::new();
    entries.retain(|entry| seen.insert(entry.name.clone()));
    // A dataset is followed by its snapshots.
    for of_dataset in entries.chunk_by(|_, next| next.kind == EntryKind::Snapshot) {
        let Some((dataset, snapshots)) = of_dataset.split_first() else { continue };
        judge(access, chosen, &dataset.name, snapshots, now, &mut plan)?;
    }
    Ok(plan)
}

fn judge(
    access: &mut Access,
    chosen: &Chosen<'_>,
    dataset: &str,
    snapshots: &[ListEntry],
    now: Timestamp,
    plan: &mut Plan,
) -> anyhow::Result<()> {
    let policy = match policy_of(access, chosen, dataset)? {
        Ok(policy) => policy,
        Err(problem) => {
            plan.problems.push((dataset.to_owned(), problem));
            return Ok(());
        }
    };
    let mut candidates = Vec::with_capacity(snapshots.len());
    for entry in snapshots {
        let protection = protection(access, entry, now, plan)?;
        let name = entry.name.split_once('@').map_or("", |(_, short)| short).to_owned();
        candidates.push(Candidate { name, created: entry.created, protection });
    }
    // No argument names it: without rules it is left alone.
    let for_space = chosen.for_space && !chosen.names.is_empty();
    let rows = snapshots.iter().zip(choose(&policy, &candidates, for_space));
    plan.rows.extend(rows.map(|(entry, reasons)| Row { entry: entry.clone(), reasons }));
    Ok(())
}

fn policy_of(
    access: &mut Access,
    chosen: &Chosen<'_>,
    dataset: &str,
) -> anyhow::Result<Result<Policy, String>> {
    let response = access.call(Request::Properties { name: dataset.to_owned() })?;
    let properties = take!(response, Response::Properties(properties) => properties);
    let mut pairs = properties.iter().map(|one| (one.name.as_str(), one.value.as_str()));
    let mut policy = match chosen.policy {
        // Rules of the options take the place of rules only: what the properties leave alone stays alone.
        Some(rules) => {
            let prefix = pairs.find(|(name, _)| name.strip_prefix(PROPERTY_PREFIX) == Some("prefix"));
            let prefix = prefix.map_or("", |(_, prefix)| prefix).to_owned();
            Ok(Policy { prefix, ..rules.clone() })
        }
        None => Policy::of_properties(pairs).map_err(|error| error.to_string()),
    };
    if let (Ok(policy), Some(prefix)) = (&mut policy, chosen.prefix) {
        prefix.clone_into(&mut policy.prefix);
    }
    Ok(policy)
}

/// What keeps a snapshot whatever the rules say. Expired holds do not; they are noted.
fn protection(
    access: &mut Access,
    entry: &ListEntry,
    now: Timestamp,
    plan: &mut Plan,
) -> anyhow::Result<Option<Protection>> {
    if entry.holds > 0 {
        let response = access.call(Request::Holds { snapshot: entry.name.clone() })?;
        let holds = take!(response, Response::Holds(holds) => holds);
        let (expired, standing): (Vec<Hold>, Vec<Hold>) =
            holds.into_iter().partition(|hold| hold.expires.is_some_and(|expires| expires <= now));
        plan.releases.extend(expired.into_iter().map(|hold| (entry.name.clone(), hold)));
        if !standing.is_empty() {
            return Ok(Some(Protection::Held(standing.into_iter().map(|hold| hold.tag).collect())));
        }
    }
    if !entry.clones.is_empty() {
        return Ok(Some(Protection::Cloned(entry.clones.clone())));
    }
    let short = entry.name.split_once('@').map_or("", |(_, short)| short);
    Ok(is_of_rollback(short).then_some(Protection::Rollback))
}
