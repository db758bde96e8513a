//! Giving up the end of a log that is damaged before it: the last thing that a repair can do, and only if it is told to.

use super::mend::{RepairReport, opens};
use super::{aside, gone, quiet};
use crate::engine::{self, Cut, Engine, Forsaken};
use crate::error::{Error, Result};
use crate::namespace::TreeReader;
use crate::operation::Operation;
use crate::pool::{shown, walk_paths};
use crate::storage::{Overlay, Storage};
use crate::units::{DatasetId, InodeNumber};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Files of one dataset that are named, at most.
const FILES_MAX: usize = 100;

/// Has the log end where it is damaged, if the pool can be opened then; or says what that would give up.
pub(super) fn cut(above: &Arc<dyn Storage>, does: bool, report: &mut RepairReport) -> Result<()> {
    let trial = Overlay::over(Arc::clone(above));
    let mut outcome = cut_at_damage(&(trial.clone() as Arc<dyn Storage>), false);
    let mut trial = trial;
    let is_short = outcome.as_ref().is_err_and(|error| is_damage(error, engine::LEFT_BEHIND));
    if is_short || outcome.as_ref().is_err_and(|error| is_damage(error, engine::REUSED)) {
        // Blocks themselves have to say where they lie: the map no longer does where segments that the last checkpoint needs found another
        // use since, or where that part of the log is gone which says that what it left behind is dead.
        let other = Overlay::over(Arc::clone(above));
        let storage: Arc<dyn Storage> = other.clone();
        let restored = engine::find_superblock(&*storage)
            .and_then(|superblock| engine::restore_map(&storage, &superblock, Forsaken::Wanted))
            .and_then(|_| cut_at_damage(&storage, is_short));
        if restored.is_ok() {
            (outcome, trial) = (restored, other);
        }
    }
    let cut = match outcome {
        Ok(Some(cut)) => cut,
        Ok(None) => return Ok(()),
        Err(error) => {
            report.refused.push(format!("the log cannot be cut where it is damaged: {error}"));
            return Ok(());
        }
    };
    if !opens(&(Overlay::over(trial.clone() as Arc<dyn Storage>) as Arc<dyn Storage>)) {
        report.refused.push("the log cannot be cut where it is damaged".to_owned());
        return Ok(());
    }
    let what = match &cut.at {
        Some((record, why)) => format!("cut before record {record}: {why}"),
        None => "replayed without what it changes in files that are gone".to_owned(),
    };
    if !does {
        let list = cut.given_up.join("; ");
        report.refused.push(format!("the log could be {what}: --cut-log does that, and gives up: {list}"));
        return Ok(());
    }
    aside::apply(&**above, &trial)?;
    report.refused.clear();
    report.steps.push(format!("the log is {what}"));
    report.given_up = cut.given_up;
    Ok(())
}

/// Whether it is this that is damaged.
pub(super) fn is_damage(error: &Error, of: &str) -> bool {
    matches!(error, Error::Damaged { place, .. } if place == of)
}

/// A log that was cut, or of which something was left out, and what that costs.
struct Told {
    /// The first record that counts no more, and why.
    at: Option<(u64, String)>,
    given_up: Vec<String>,
}

/// `is_short`: there was more of the log, wherever it seems to end.
fn cut_at_damage(storage: &Arc<dyn Storage>, is_short: bool) -> Result<Option<Told>> {
    let (engine, cut) = engine::open_cut(storage, &quiet(), is_short)?;
    let mut given_up = gone::lost_in_replay(&engine);
    if cut.is_none() && given_up.is_empty() {
        return Ok(None);
    }
    given_up.extend(cut.iter().flat_map(|cut| after(&engine, cut)));
    engine.checkpoint_in_full()?;
    engine.close()?;
    Ok(Some(Told { at: cut.map(|cut| (cut.record.0, cut.why.to_string())), given_up }))
}

/// What records of the log say that they did.
#[derive(Default)]
struct Deeds {
    written: BTreeMap<DatasetId, BTreeSet<InodeNumber>>,
    renamed: BTreeSet<DatasetId>,
    others: Vec<String>,
}

/// What came after a cut, a line each: as far as it can still be read.
fn after(engine: &Engine, cut: &Cut) -> Vec<String> {
    let mut deeds = Deeds::default();
    let state = engine.state();
    let name = |dataset: &DatasetId| {
        let row = state.catalogue.names().find(|(_, id)| id == dataset);
        row.map_or_else(
            || format!("a dataset made since (number {})", dataset.0),
            |(name, _)| name.to_owned(),
        )
    };
    for operation in cut.after.iter().flat_map(|after| &after.operations) {
        deeds.add(operation, &name);
    }
    let last = cut.after.last().map_or(cut.record, |after| after.record);
    let all = last.0 - cut.record.0 + 1;
    let mut lines = vec![match cut.after.len() as u64 {
        0 => "records of which none can be read any more".to_owned(),
        count if count < all => {
            format!(
                "the {all} records up to record {}, and what came after; {count} of them can still be read",
                last.0
            )
        }
        _ => format!("the {all} records up to record {}, which can all be read, and what came after", last.0),
    }];
    for (dataset, inodes) in &deeds.written {
        let mut paths = BTreeMap::new();
        if let Ok(head) = state.head(*dataset)
            && let Some(tree) = state.trees.get(&head)
        {
            // Files that are not found have numbers.
            let _ = walk_paths(&TreeReader::new(tree, &*engine.nodes), &mut |inode, path| {
                if inodes.contains(&inode) {
                    paths.entry(inode).or_insert(path);
                }
                paths.len() < inodes.len()
            });
        }
        let file = |inode: &InodeNumber| match paths.get(inode) {
            Some(path) => shown(path),
            None => format!("a file made since (inode {})", inode.0),
        };
        let mut files: Vec<String> = inodes.iter().take(FILES_MAX).map(file).collect();
        if inodes.len() > FILES_MAX {
            files.push(format!("{} more", inodes.len() - FILES_MAX));
        }
        lines.push(format!("writes to {} in {}", files.join(", "), name(dataset)));
    }
    for dataset in &deeds.renamed {
        lines.push(format!("files made, renamed or removed in {}", name(dataset)));
    }
    lines.extend(deeds.others);
    lines
}

impl Deeds {
    fn add(&mut self, operation: &Operation, name: &dyn Fn(&DatasetId) -> String) {
        let written = match operation {
            Operation::Write(write) | Operation::MapStaged { write, .. } => {
                Some((write.dataset, write.inode))
            }
            Operation::WriteScattered(scatter) | Operation::MapScattered { scatter, .. } => {
                Some((scatter.dataset, scatter.inode))
            }
            Operation::Patch(patch) => Some((patch.dataset, patch.inode)),
            Operation::WriteInline { dataset, inode, .. }
            | Operation::Truncate { dataset, inode, .. }
            | Operation::PunchHole { dataset, inode, .. } => Some((*dataset, *inode)),
            _ => None,
        };
        if let Some((dataset, inode)) = written {
            self.written.entry(dataset).or_default().insert(inode);
            return;
        }
        match operation {
            Operation::Namespace { dataset, .. } => drop(self.renamed.insert(*dataset)),
            Operation::Mark | Operation::Switch { .. } | Operation::ReleaseOrphan { .. } => {}
            Operation::CreateDataset { name, .. } | Operation::Clone { name, .. } => {
                self.others.push(format!("the dataset {name}"));
            }
            Operation::Snapshot { snapshots, .. } => {
                let full =
                    |(dataset, snapshot): &(DatasetId, String)| format!("{}@{snapshot}", name(dataset));
                let all: Vec<String> = snapshots.iter().map(full).collect();
                let noun = if all.len() == 1 { "the snapshot" } else { "the snapshots" };
                self.others.push(format!("{noun} {}", all.join(", ")));
            }
            Operation::DestroySnapshots { versions } => {
                self.others.push(format!("that {} snapshots were destroyed", versions.len()));
            }
            Operation::DestroyDatasets { datasets } => {
                let all: Vec<String> = datasets.iter().map(name).collect();
                self.others.push(format!("that {} was destroyed", all.join(", ")));
            }
            Operation::Rollback { dataset, .. } => {
                self.others.push(format!("a rollback of {}", name(dataset)));
            }
            Operation::Promote { dataset } => {
                self.others.push(format!("that {} was promoted", name(dataset)));
            }
            _ => self.others.push("a name, hold or property that was changed".to_owned()),
        }
    }
}
