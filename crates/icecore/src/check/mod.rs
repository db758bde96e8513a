//! Check: whether the books of a closed pool agree with what is on disk, and what can be done where they do
//! not.
//!
//! Nothing is changed by it. Where the pool was not closed cleanly, it is recovered in memory, over what is
//! on disk.

mod aside;
#[cfg(test)]
mod blob_tests;
mod chunks;
mod copies;
#[cfg(test)]
mod counts_tests;
mod cut;
#[cfg(test)]
mod cut_tests;
mod gone;
#[cfg(test)]
mod headers_tests;
mod mend;
#[cfg(test)]
mod outlived_tests;
mod places;
#[cfg(test)]
mod tests;
mod trees;
#[cfg(test)]
mod uses_tests;

pub use mend::{RepairOptions, RepairReport, repair, repair_directory};

use crate::admin::from_idle_owner;
use crate::engine::{self, Engine};
use crate::error::{Error, Result};
use crate::files::require_readable;
use crate::format::superblock::{NAMES, Superblock};
use crate::options::OpenOptions;
use crate::pool::{Pool, ScrubProgress};
use crate::storage::{Overlay, Storage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Problems that are reported one by one.
const PROBLEMS_MAX: usize = 1000;

/// How thorough a check is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CheckOptions {
    /// Whether to read all data and compare it with its checksums, as a scrub does.
    pub data: bool,
}

/// What a problem is about.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Area {
    /// One of the two superblocks.
    Superblock,
    /// Opening: the ledger, or the log since.
    Opening,
    /// Names of datasets and snapshots, and what they stand for.
    Catalogue,
    /// Owned and dead sets.
    Sets,
    /// Nodes of trees, and the files and directories in them.
    Trees,
    /// Second copies, or what they are of.
    Copies,
    /// Where blocks lie, and how many live in each segment.
    Places,
    /// Figures that are shown, and what quotas count.
    Figures,
    /// Bytes that do not match their checksums.
    Data,
}

impl Area {
    /// What it is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Opening => "opening",
            Self::Catalogue => "catalogue",
            Self::Sets => "sets",
            Self::Trees => "trees",
            Self::Copies => "copies",
            Self::Places => "places",
            Self::Figures => "figures",
            Self::Data => "data",
        }
    }
}

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// What it is about.
    pub area: Area,
    /// What does not fit, and where.
    pub what: String,
    /// Versions that see it, where that is known, as in [`crate::Finding::versions`].
    pub versions: Vec<String>,
    /// Nothing is lost by it: what was there is on disk a second time, or follows from something else.
    pub harmless: bool,
}

impl Problem {
    fn of(area: Area, what: String) -> Self {
        Self { area, what, versions: Vec::new(), harmless: false }
    }

    fn seen_by(mut self, name: &str) -> Self {
        self.versions.push(name.to_owned());
        self
    }

    fn harmless(mut self) -> Self {
        self.harmless = true;
        self
    }
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// What is wrong: a thousand at most, those among them of which something is lost before others.
    pub problems: Vec<Problem>,
    /// How many there are.
    pub count: u64,
    /// Whether the pool could be opened, and everything was compared.
    pub opened: bool,
    /// Whether the pool had been closed cleanly. If not, what was checked is what the next opening will
    /// recover.
    pub was_clean: bool,
    /// Versions compared.
    pub versions: u64,
    /// Blocks that versions reach.
    pub blocks: u64,
    /// Bytes compared with their checksums.
    pub verified: u64,
}

impl CheckReport {
    /// Whether nothing is lost, or will be.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.problems.iter().all(|problem| problem.harmless)
    }

    fn add(&mut self, problem: Problem) {
        self.count += 1;
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(problem);
        } else if !problem.harmless
            && let Some(other) = self.problems.iter_mut().rev().find(|other| other.harmless)
        {
            // A problem that costs something takes the place of a harmless one.
            *other = problem;
        }
    }
}

/// How far a check is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CheckProgress {
    /// Versions compared, of so many.
    Versions(u64, u64),
    /// Bytes compared with their checksums.
    Data(ScrubProgress),
}

/// Checks the pool in a storage. It must not be open for writing anywhere, and stays as it is.
///
/// # Errors
/// [`Error::NotAPool`], [`Error::NewerFormat`]; [`Error::PoolInUse`], also where a process opens the pool for
/// writing meanwhile: it need not wait. [`Error::Io`] if the medium is gone. What is damaged is in the
/// report.
pub fn check(
    storage: Arc<dyn Storage>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    find_pool(&*storage)?;
    require_readable(&*storage)?;
    // Others may read meanwhile, and the medium need not be writable.
    let lock = engine::lock(&*storage, false)?;
    let generation = || engine::find_superblock(&*storage).map(|superblock| superblock.generation).ok();
    let before = generation();
    // A program that starts does not wait for the check. It writes the superblock before anything else.
    drop(lock);
    let report = look(&storage, options, progress);
    if generation() == before {
        return report;
    }
    Err(Error::PoolInUse {
        path: storage.describe(),
        owner: "a process that opened it during the check".to_owned(),
        way_out: "check it again when that has ended".to_owned(),
    })
}

/// [`check`] of the pool in a directory.
///
/// # Errors
/// As there.
pub fn check_directory(
    path: &std::path::Path,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    from_idle_owner(path, || check(crate::pool::real(path)?, options, progress))
}

/// How a pool is opened to be looked at: nothing happens by itself, and memory holds little that was not read
/// from disk.
fn quiet() -> OpenOptions {
    OpenOptions { background: false, control_socket: false, ..OpenOptions::default() }
}

/// Refuses what is no pool, or one of a newer program. A directory that is no pool must not get a lock file.
fn find_pool(storage: &dyn Storage) -> Result<()> {
    match engine::find_superblock(storage) {
        Err(error @ (Error::NotAPool { .. } | Error::NewerFormat { .. })) => Err(error),
        _ => Ok(()),
    }
}

/// Looks at the pool in `storage`, which stays as it is.
fn look(
    storage: &Arc<dyn Storage>,
    options: &CheckOptions,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport> {
    let mut report = CheckReport::default();
    superblocks(&**storage, &mut report);
    let overlay: Arc<dyn Storage> = Overlay::over(Arc::clone(storage));
    let engine = match opened(&overlay) {
        Ok(engine) => engine,
        Err(error) => {
            report.add(Problem::of(Area::Opening, format!("the pool cannot be opened: {error}")));
            return Ok(report);
        }
    };
    report.opened = true;
    let compared = engine::unless_asserted(|| compare(&engine, options, &mut report, progress));
    match compared {
        Some(compared) => compared?,
        None => {
            let what = "parts of the pool contradict each other, although their checksums match";
            report.add(Problem::of(Area::Sets, what.to_owned()));
        }
    }
    Ok(report)
}

/// Compares the books of an open pool with what is on disk.
fn compare(
    engine: &Arc<Engine>,
    options: &CheckOptions,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<()> {
    books(engine, report, progress);
    gone::absent(engine, options.data).into_iter().for_each(|problem| report.add(problem));
    if options.data {
        // What is mended from here on is reported as it is found.
        copies::mended(engine, report);
        data(engine, report, progress)?;
    } else {
        gone::placeless(engine).into_iter().for_each(|problem| report.add(problem));
        copies::compare(engine);
        places::vouched(engine).into_iter().for_each(|problem| report.add(problem));
        copies::mended(engine, report);
    }
    copies::lacking(engine, report);
    Ok(())
}

/// Opens a pool as far as everything is in memory as it should be, without going on from there.
fn opened(storage: &Arc<dyn Storage>) -> Result<Arc<Engine>> {
    engine::open_to_look(storage, &quiet())
}

/// Both superblocks: whether each is whole, and says the same.
fn superblocks(storage: &dyn Storage, report: &mut CheckReport) {
    let path = storage.describe();
    let found: Vec<Result<Superblock>> =
        NAMES.iter().map(|name| engine::read_superblock(storage, name, &path)).collect();
    let newest = engine::find_superblock(storage).ok();
    report.was_clean = newest.as_ref().is_some_and(|newest| newest.clean);
    for (name, outcome) in NAMES.iter().zip(&found) {
        let what = match (outcome, &newest) {
            (Ok(superblock), Some(newest)) if superblock == newest => continue,
            (Ok(superblock), Some(newest)) if superblock.pool != newest.pool => {
                format!("{name} is of another pool, {}", superblock.pool)
            }
            // A crash between the two leaves them so.
            (Ok(_), _) => format!("{name} is older than its twin"),
            (Err(error), _) => format!("{name}: {error}"),
        };
        let problem = Problem::of(Area::Superblock, what);
        report.add(if newest.is_some() { problem.harmless() } else { problem });
    }
}

/// Everything that is kept as a set, a map or a count, against what the trees say.
fn books(engine: &Engine, report: &mut CheckReport, progress: &mut dyn FnMut(CheckProgress)) {
    // Of one that is being deleted the tree has more than is there.
    if let Err(error) = engine.finish_freeing() {
        report.add(Problem::of(Area::Sets, error.to_string()));
    }
    let mut lost = BTreeMap::new();
    let outcome = engine.with_books(|state, ledger| {
        let total = state.trees.len() as u64;
        let mut tell = |done: u64| progress(CheckProgress::Versions(done, total));
        let mut walked = trees::walk(engine, state, true, &mut tell);
        lost = std::mem::take(&mut walked.lost);
        report.versions = total;
        report.blocks = walked.blocks;
        let checks = [
            (Area::Catalogue, state.catalogue.check()),
            (Area::Catalogue, engine.check_labels(state)),
            (Area::Sets, state.history.check()),
            (Area::Figures, state.check_usage()),
            (Area::Places, engine.check_places(state, ledger)),
        ];
        for (area, outcome) in checks {
            if let Err(error) = outcome {
                report.add(Problem::of(area, error.to_string()));
            }
        }
        let misplaced = places::compare(engine, state);
        let chunks = chunks::compare(engine, state);
        walked.problems.into_iter().chain(chunks).chain(misplaced).for_each(|problem| report.add(problem));
        Ok(())
    });
    if let Err(error) = outcome {
        report.add(Problem::of(Area::Opening, error.to_string()));
    }
    gone::nodes(engine, lost).into_iter().for_each(|problem| report.add(problem));
}

/// All data, and everything that vouches for it.
fn data(
    engine: &Arc<Engine>,
    report: &mut CheckReport,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<()> {
    let mut tell = |now: ScrubProgress| {
        progress(CheckProgress::Data(now));
        true
    };
    let found = Pool::scrub_as_it_is(engine, &mut tell)?;
    report.verified = found.verified;
    let unlisted = found.unlisted();
    found.findings.into_iter().for_each(|finding| report.add(gone::problem(Area::Data, finding)));
    if unlisted > 0 {
        let what = format!("{unlisted} more damaged blocks are not listed");
        // What is listed first is what costs something.
        let problem = Problem::of(Area::Data, what);
        report.add(if found.damaged == 0 { problem.harmless() } else { problem });
    }
    Ok(())
}

#[cfg(test)]
mod report_tests {
    use super::*;

    #[test]
    fn what_costs_something_is_among_what_is_listed_however_much_does_not() {
        let mut report = CheckReport::default();
        let problem = |number: usize| Problem::of(Area::Copies, number.to_string());
        (0..PROBLEMS_MAX + 10).for_each(|number| report.add(problem(number).harmless()));
        assert!(report.is_sound());
        (0..5).for_each(|number| report.add(problem(number)));
        let costly = report.problems.iter().filter(|problem| !problem.harmless).count();
        assert_eq!(
            (report.problems.len(), costly, report.count),
            (PROBLEMS_MAX, 5, PROBLEMS_MAX as u64 + 15)
        );
        assert!(!report.is_sound());
    }
}
