//! Giving up the end of a log that is damaged before it: the last thing that a repair can do, and only if the
//! caller asks for it.

use super::mend::{RepairReport, opens, write_superblocks};
use super::{aside, gone, quiet};
use crate::engine::{self, Cut, Engine, Forsaken};
use crate::error::{Error, Result};
use crate::format::superblock::Superblock;
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
    let (trial, outcome) = tried(above);
    let cut = match outcome {
        Ok(Some(cut)) => cut,
        Ok(None) => return Ok(()),
        Err(why) => {
            report.refused.push(format!("the log cannot be cut where it is damaged: {why}"));
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

/// The log cut in an overlay, or why that is not possible.
fn tried(above: &Arc<dyn Storage>) -> (Arc<Overlay>, std::result::Result<Option<Costs>, String>) {
    let trial = Overlay::over(Arc::clone(above));
    let outcome = cut_at_damage(&(trial.clone() as Arc<dyn Storage>), false);
    let Err(mut error) = outcome else { return (trial, outcome.map_err(|error| error.to_string())) };
    let mut whys = vec![error.to_string()];
    for way in WAYS {
        if !is_damage(&error, way.of) {
            continue;
        }
        let trial = Overlay::over(Arc::clone(above));
        let storage: Arc<dyn Storage> = trial.clone();
        let prepared = engine::find_superblock(&*storage)
            .and_then(|superblock| (way.prepare)(&storage, &superblock))
            .and_then(|()| cut_at_damage(&storage, way.of == engine::LEFT_BEHIND));
        match prepared {
            Ok(costs) => return (trial, Ok(costs)),
            // What is in the way after that may have a way around it too.
            Err(other) => {
                whys.push(format!("{}: {other}", way.name));
                if is_damage(&other, engine::LEFT_BEHIND) {
                    error = other;
                }
            }
        }
    }
    (trial, Err(whys.join("; ")))
}

/// What may help where the log cannot be cut.
struct Way {
    /// What is damaged then.
    of: &'static str,
    /// What is done.
    name: &'static str,
    prepare: fn(&Arc<dyn Storage>, &Superblock) -> Result<()>,
}

/// In their order: the last costs most, and may lose what nothing but the location map knows.
const WAYS: [Way; 3] = [
    // Segments that the last checkpoint needs found another use since: blocks themselves have to say where
    // they lie.
    Way {
        of: engine::REUSED,
        name: "with the location map made again",
        prepare: |storage, superblock| engine::restore_map(storage, superblock, Forsaken::Left).map(drop),
    },
    // What the last checkpoint left behind was there as of the one before.
    Way { of: engine::LEFT_BEHIND, name: "from the checkpoint before", prepare: before },
    Way {
        of: engine::LEFT_BEHIND,
        name: "with the location map made again, and what was left behind looked for",
        prepare: |storage, superblock| engine::restore_map(storage, superblock, Forsaken::Wanted).map(drop),
    },
];

fn before(storage: &Arc<dyn Storage>, superblock: &Superblock) -> Result<()> {
    let none = || Error::damaged("the superblock", "it names no checkpoint before the last");
    let former = superblock.former.as_ref().ok_or_else(none)?;
    let back = engine::former_superblock(storage, superblock, former)?;
    write_superblocks(&**storage, &back)
}

/// Whether it is this that is damaged.
pub(super) fn is_damage(error: &Error, of: &str) -> bool {
    matches!(error, Error::Damaged { place, .. } if place == of)
}

/// A log that was cut, or of which something was left out, and what that costs.
struct Costs {
    /// The first record that counts no more, and why.
    at: Option<(u64, String)>,
    given_up: Vec<String>,
}

/// `is_short`: there was more of the log, wherever it seems to end.
fn cut_at_damage(storage: &Arc<dyn Storage>, is_short: bool) -> Result<Option<Costs>> {
    let (engine, cut) = engine::open_cut(storage, &quiet(), is_short)?;
    let mut given_up = gone::lost_in_replay(&engine);
    if cut.is_none() && given_up.is_empty() {
        return Ok(None);
    }
    given_up.extend(cut.iter().flat_map(|cut| after(&engine, cut)));
    if is_short {
        given_up.extend(gone::placeless(&engine).into_iter().map(|problem| problem.what));
    }
    engine::guarded(|| engine.checkpoint_in_full())?;
    engine.close()?;
    Ok(Some(Costs { at: cut.map(|cut| (cut.record.0, cut.why.to_string())), given_up }))
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
            Operation::Write(write) => Some((write.dataset, write.inode)),
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
