//! Repair: what follows from something else is made again. Everything is done in memory first and checked
//! there; what would be overwritten is kept aside; only then is anything written.

use super::trees::{self, Walked};
use super::{Area, CheckOptions, CheckProgress, CheckReport, aside, cut, look, quiet};
use crate::admin::from_idle_owner;
use crate::copies::{MendCounts, Mended};
use crate::engine::{self, Engine, Forsaken, Restored};
use crate::error::{Error, Result};
use crate::format::superblock::{Former, NAMES, Superblock};
use crate::storage::{Overlay, Storage};
use std::sync::Arc;

/// How a repair goes about it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RepairOptions {
    /// Only say what would be done.
    pub dry_run: bool,
    /// Whether to read all data before and after.
    pub data: bool,
    /// Whether to give up what came after a place in the log that is damaged, if the pool cannot be opened
    /// otherwise. What is committed there is lost, and reported.
    pub cut_log: bool,
    /// The folder with the copies of the pool, an absolute path: asked where both superblocks are lost. As
    /// long as one is there, the pool knows itself.
    pub mirror: Option<String>,
}

/// What a repair did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RepairReport {
    /// What was wrong.
    pub before: CheckReport,
    /// What was made again, and from what.
    pub steps: Vec<String>,
    /// What cannot be made again, and why.
    pub refused: Vec<String>,
    /// What was committed and is given up, with the end of the log that had it.
    pub given_up: Vec<String>,
    /// What is wrong, or would be, afterwards: what is gone.
    pub after: CheckReport,
    /// Blocks that differ.
    pub changed_blocks: u64,
    /// The file in the pool's folder that has what was overwritten; none if nothing was written.
    pub kept_aside: Option<String>,
}

/// Repairs the pool in a storage. It must not be open anywhere. Without anything wrong that can be mended,
/// nothing is written. After a crash in the middle, the pool is as damaged as it was, or mended.
///
/// # Errors
/// As for [`super::check`]; [`Error::Io`] if writing failed.
pub fn repair(
    storage: Arc<dyn Storage>,
    options: &RepairOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<RepairReport> {
    // What is no pool any more may be made one again by what another folder has.
    if options.mirror.is_none() {
        super::find_pool(&*storage)?;
    }
    let _lock = engine::lock(&*storage, true)?;
    let (mut report, overlay) = engine::guarded(|| in_memory(&storage, options, progress))?;
    let changes = overlay.changes();
    if !options.dry_run && !changes.is_empty() {
        report.kept_aside = Some(aside::keep(&*storage, &changes)?);
        aside::apply(&*storage, &overlay)?;
    }
    Ok(report)
}

/// Everything that a repair does, over what is on disk, which stays as it is.
fn in_memory(
    storage: &Arc<dyn Storage>,
    options: &RepairOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<(RepairReport, Arc<Overlay>)> {
    let look_options = CheckOptions { data: options.data };
    let overlay = Overlay::over(Arc::clone(storage));
    let above: Arc<dyn Storage> = overlay.clone();
    let before = look(storage, &look_options, progress)?;
    let mut report = RepairReport { before, ..RepairReport::default() };
    superblocks(&above, options.mirror.as_ref(), &mut report)?;
    if !report.before.opened && !opens(&above) {
        // A map that cannot be read keeps a log from being replayed.
        let refused = report.refused.len();
        places(&above, &mut report);
        if let Err(error) = try_open(&above) {
            report.refused.truncate(refused);
            // It is not the checkpoint that is lost then: without it, nothing would show that the log is.
            if cut::is_damage(&error, engine::OUTLIVED) {
                go_on_from_log(&above, &mut report)?;
            } else if !cut::is_damage(&error, engine::LEFT_BEHIND) {
                go_back(&above, &mut report)?;
            }
        }
        if !opens(&above) {
            cut::cut(&above, options.cut_log, &mut report)?;
        }
    }
    heal(&above, options.data, &mut report, progress);
    places(&above, &mut report);
    let mut after = look(&above, &CheckOptions::default(), progress)?;
    if after.problems.iter().any(|problem| matches!(problem.area, Area::Sets | Area::Figures)) {
        sets(&above, &mut report, progress);
    }
    let changes = overlay.changes();
    if !changes.is_empty() || options.data {
        after = look(&above, &look_options, progress)?;
    }
    report.changed_blocks = changes.len() as u64;
    report.after = after;
    Ok((report, overlay))
}

/// [`repair`] of the pool in a directory.
///
/// # Errors
/// As there.
pub fn repair_directory(
    path: &std::path::Path,
    options: &RepairOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<RepairReport> {
    from_idle_owner(path, || repair(crate::pool::real(path)?, options, progress))
}

/// A superblock that is not what it should be follows from its twin.
fn superblocks(above: &Arc<dyn Storage>, mirror: Option<&String>, report: &mut RepairReport) -> Result<()> {
    let path = above.describe();
    let Ok(newest) = engine::find_superblock(&**above) else {
        let Some(mirror) = mirror else {
            let refusal = "both superblocks are lost: nothing here says where the last checkpoint lies";
            report.refused.push(refusal.to_owned());
            return Ok(());
        };
        match engine::copied_superblock(above, mirror) {
            Ok(found) => {
                write_superblocks(&**above, &found)?;
                report.steps.push(format!("both superblocks are made again from {mirror}"));
            }
            Err(error) => report.refused.push(format!(
                "the superblocks in {mirror} are of no use here: {error}. Where everything has a copy, that \
                 folder is the pool under other names: copy it, and rename copy.superblock.* to superblock.* \
                 and copy.* to segment.*"
            )),
        }
        return Ok(());
    };
    for name in NAMES {
        if engine::read_superblock(&**above, name, &path).is_ok_and(|found| found == newest) {
            continue;
        }
        write_superblock(&**above, name, &newest)?;
        report.steps.push(format!("{name} is made again from its twin"));
    }
    Ok(())
}

pub(super) fn write_superblocks(above: &dyn Storage, superblock: &Superblock) -> Result<()> {
    NAMES.iter().try_for_each(|name| write_superblock(above, name, superblock))
}

fn write_superblock(above: &dyn Storage, name: &str, superblock: &Superblock) -> Result<()> {
    // What cannot be opened for whatever reason is made again.
    engine::write_superblock(above, name, superblock, |_| true)
}

/// Whether the pool can be opened as it is now.
pub(super) fn opens(above: &Arc<dyn Storage>) -> bool {
    try_open(above).is_ok()
}

fn try_open(above: &Arc<dyn Storage>) -> Result<()> {
    let trial: Arc<dyn Storage> = Overlay::over(Arc::clone(above));
    super::opened(&trial).map(drop)
}

/// The last checkpoint is lost: the one before it, or another whose ledger is still there, and the log since.
/// Or the last one without its location map.
fn go_back(above: &Arc<dyn Storage>, report: &mut RepairReport) -> Result<()> {
    let Ok(superblock) = engine::find_superblock(&**above) else { return Ok(()) };
    let mut refused = "the superblock names no checkpoint before it".to_owned();
    if let Some(former) = &superblock.former {
        match back_to(above, &superblock, former)? {
            Ok(()) => {
                let step = "the last checkpoint is made again from the one before it and the log since: nothing is lost by that";
                report.steps.push(step.to_owned());
                return Ok(());
            }
            Err(error) => refused = error.to_string(),
        }
    }
    for former in engine::older_checkpoints(above, &superblock) {
        if Some(former) != superblock.former && back_to(above, &superblock, &former)?.is_ok() {
            let step = "the last checkpoints are made again from an earlier one, whose ledger was still there, and the log since: nothing is lost by that";
            report.steps.push(step.to_owned());
            return Ok(());
        }
    }
    report.refused.push(format!("the last checkpoint cannot be made again from the log: {refused}"));
    map(above, &superblock, report)
}

/// The superblocks are old, and the log since is there: what later ones said follows from it.
fn go_on_from_log(above: &Arc<dyn Storage>, report: &mut RepairReport) -> Result<()> {
    let Ok(superblock) = engine::find_superblock(&**above) else { return Ok(()) };
    let present = Former { ledger: superblock.ledger, taken: superblock.taken };
    match back_to(above, &superblock, &present)? {
        Ok(()) => {
            let step = "the superblocks were not those that were written last: what came later is there again, from the log";
            report.steps.push(step.to_owned());
        }
        Err(error) => report.refused.push(format!(
            "the superblocks are not those that were written last, and what came later cannot be made again from the log: {error}"
        )),
    }
    Ok(())
}

/// Goes back to a checkpoint, if what follows from it is all there is; else answers why not.
fn back_to(above: &Arc<dyn Storage>, superblock: &Superblock, former: &Former) -> Result<Result<()>> {
    let back = match engine::former_superblock(above, superblock, former) {
        Ok(back) => back,
        Err(error) => return Ok(Err(error)),
    };
    // Whether what follows from it is whole is known only when all of it was replayed.
    let trial: Arc<dyn Storage> = Overlay::over(Arc::clone(above));
    write_superblocks(&*trial, &back)?;
    let end = match super::opened(&trial) {
        Ok(engine) => engine.state().tail.position().sequence,
        Err(error) => return Ok(Err(error)),
    };
    // The present life began there at the latest.
    if superblock.lives.last().is_some_and(|life| end < life.first) {
        return Ok(Err(Error::damaged(
            "the log",
            "what came after that checkpoint is not all there any more",
        )));
    }
    write_superblocks(&**above, &back)?;
    Ok(Ok(()))
}

/// The ledger without its location map, which follows from what segments say of themselves.
fn map(above: &Arc<dyn Storage>, superblock: &Superblock, report: &mut RepairReport) -> Result<()> {
    let trial = Overlay::over(Arc::clone(above));
    let storage: Arc<dyn Storage> = trial.clone();
    // Else it is not the map that keeps the pool from being opened, and what it says is not given up.
    if engine::ledger_is_whole(&storage, superblock) {
        return Ok(());
    }
    let trial_of_trial = || -> Arc<dyn Storage> { Overlay::over(Arc::clone(&storage)) };
    let outcome = engine::restore_map(&storage, superblock, Forsaken::Left)
        .and_then(|restored| super::opened(&trial_of_trial()).map(|_| restored));
    let refuse =
        |why: String| format!("the last checkpoint cannot be made again from its ledger either: {why}");
    let Restored { found, lost, .. } = match outcome {
        Ok(restored) => restored,
        Err(error) => {
            report.refused.push(refuse(error.to_string()));
            return Ok(());
        }
    };
    aside::apply(&**above, &trial)?;
    report.refused.clear();
    if lost > 0 {
        let why = "of the location map all but that is made again";
        report.refused.push(format!("{lost} blocks that live are in no header that is left: {why}"));
    }
    let step = format!(
        "the ledger of the last checkpoint is damaged where the location map was: that is made again from the headers of segments, {found} blocks were found"
    );
    report.steps.push(step);
    Ok(())
}

/// Writes again what is damaged and has a copy that is whole, and copies likewise.
fn heal(
    above: &Arc<dyn Storage>,
    data: bool,
    report: &mut RepairReport,
    progress: &mut dyn FnMut(CheckProgress),
) {
    let trial = Overlay::over(Arc::clone(above));
    let storage: Arc<dyn Storage> = trial.clone();
    let Ok(engine) = super::opened(&storage) else { return };
    let read = if data {
        super::data(&engine, &mut CheckReport::default(), progress)
    } else {
        super::copies::compare(&engine);
        Ok(())
    };
    // Superblocks were the first to be made whole.
    let mends = engine.blocks.files().copies().mends_since(MendCounts::default()).without(Mended::Twin);
    // Only then is the pool closed, which writes to it: a repair of what is whole writes nothing.
    if mends.is_empty() || read.and_then(|()| engine.close()).is_err() {
        return;
    }
    if !is_taken_over(above, &trial, report) {
        return;
    }
    let (healed, of_copies) = (mends.counts.of(Mended::Original), mends.counts.of(Mended::Copy));
    if healed + of_copies > 0 {
        let step =
            format!("{healed} places are healed from their copies, and {of_copies} copies are written anew");
        report.steps.push(step);
    }
    report
        .steps
        .extend(mends.listed.into_iter().filter(|mend| mend.of == Mended::Header).map(|mend| mend.what));
}

/// Where blocks lie follows from what segments say of themselves.
fn places(above: &Arc<dyn Storage>, report: &mut RepairReport) {
    let Ok(superblock) = engine::find_superblock(&**above) else { return };
    let trial = Overlay::over(Arc::clone(above));
    let storage: Arc<dyn Storage> = trial.clone();
    // Where the ledger itself cannot be read it has been said.
    let Ok(Some(restored)) = engine::restore_chunks(&storage, &superblock) else { return };
    let chunks = format!("{} damaged chunks of the location map", restored.chunks);
    let refuse = |why: String| format!("where the blocks of {chunks} lie cannot be found again: {why}");
    if let Err(error) = super::opened(&(Overlay::over(Arc::clone(&storage)) as Arc<dyn Storage>)) {
        report.refused.push(refuse(error.to_string()));
        return;
    }
    let Restored { found, lost, .. } = restored;
    if lost > 0 {
        report.refused.push(refuse(format!("{lost} blocks that live are in no header that is left")));
    }
    if (found > 0 || lost == 0) && is_taken_over(above, &trial, report) {
        let step = format!("{chunks} are made again from the headers of segments: {found} blocks were found");
        report.steps.push(step);
    }
}

/// Owned and dead sets follow from the trees.
fn sets(above: &Arc<dyn Storage>, report: &mut RepairReport, progress: &mut dyn FnMut(CheckProgress)) {
    let trial = Overlay::over(Arc::clone(above));
    let storage: Arc<dyn Storage> = trial.clone();
    match rebuild(&storage, progress) {
        Ok(versions) if is_taken_over(above, &trial, report) => {
            report.steps.push(format!("the sets of {versions} versions are made again from their trees"));
        }
        Ok(_) => {}
        Err(error) => report.refused.push(format!("the sets cannot be made again from the trees: {error}")),
    }
}

/// Takes the changes of a trial over. They all are in memory, but what a name leads to on the disk may be no
/// file: then what was to be mended stays as it is, for superblocks would come last.
fn is_taken_over(above: &Arc<dyn Storage>, trial: &Overlay, report: &mut RepairReport) -> bool {
    let outcome = aside::apply(&**above, trial);
    if let Err(error) = &outcome {
        report
            .refused
            .push(format!("what is damaged cannot be replaced: {error}; move it away, and repair again"));
    }
    outcome.is_ok()
}

fn rebuild(storage: &Arc<dyn Storage>, progress: &mut dyn FnMut(CheckProgress)) -> Result<usize> {
    let engine = engine::open_to_look(storage, &quiet())?;
    let walked: Walked = {
        let mut state = engine.state();
        // Of one that is being deleted the tree has more than is there.
        state.forget_doomed();
        let total = state.trees.len() as u64;
        trees::walk(&engine, &state, false, &mut |done| progress(CheckProgress::Versions(done, total)))
    };
    if walked.has_gaps {
        return Err(Error::damaged("the trees", "not all of their nodes can be read"));
    }
    let mut differences = walked.differences;
    let versions = differences.len();
    engine.replace_sets(|version| {
        let found = differences.remove(&version).unwrap_or_default();
        (found.born, found.gone)
    })?;
    close(&engine)?;
    Ok(versions)
}

/// Writes a checkpoint with everything in it.
fn close(engine: &Engine) -> Result<()> {
    engine.checkpoint_in_full()?;
    engine.close()
}
