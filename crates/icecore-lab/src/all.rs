//! Every study, one after the other, into a folder: a document each, and the report of all.

use crate::charts::device;
use crate::error::{Doing, Error, Result};
use crate::expected::{self, LONG_VALUATION};
use crate::experiments::{DiskUse, EXPERIMENTS, Experiment, Group};
use crate::guest;
use crate::options::Options;
use crate::page::{self, Document, Missing};
use rustix::fs::FlockOperation;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What goes on in a run of all studies.
pub enum Event<'a> {
    /// A study begins.
    Begins {
        /// Which of them, from 1 on.
        number: usize,
        /// How many there are.
        count: usize,
        /// The study.
        experiment: &'a Experiment,
        /// What its document is called.
        name: &'a str,
        /// How long it should take.
        expected: Duration,
        /// How long it and all that follow should take.
        left: Duration,
    },
    /// A study ended, with a result or an error.
    Ended {
        /// What its document is called.
        name: &'a str,
        /// How long it took.
        took: Duration,
        /// Why there is no result.
        error: Option<&'a Error>,
    },
}

/// What a run of all studies leaves behind.
#[derive(Debug)]
pub struct Outcome {
    /// The report.
    pub report: PathBuf,
    /// The results.
    pub documents: Vec<Document>,
    /// Studies that failed, with the reason.
    pub missing: Vec<Missing>,
}

/// The studies in the order in which they run.
#[must_use]
pub fn studies() -> Vec<&'static Experiment> {
    EXPERIMENTS.iter().filter(|experiment| experiment.group == Group::Study).collect()
}

/// A study to run, and how.
struct Planned<'a> {
    experiment: &'a Experiment,
    /// What its document is called.
    name: &'static str,
    iterations: Option<u32>,
}

fn plan<'a>(studies: &[&'a Experiment], options: &Options) -> Vec<Planned<'a>> {
    let mut planned = Vec::new();
    for &experiment in studies {
        planned.push(Planned { experiment, name: experiment.name, iterations: options.iterations });
        if experiment.name == "valuation" && !options.quick && options.iterations.is_none() {
            let (name, iterations) = LONG_VALUATION;
            planned.push(Planned { experiment, name, iterations: Some(iterations) });
        }
    }
    planned
}

/// The options for one of the studies. One that computes gets no disk and no guest, as it would not use them;
/// `counted` is the result of `shock`, if it has one.
fn of_one(one: &Planned<'_>, options: &Options, counted: Option<&Path>) -> Options {
    let mut options = Options { iterations: one.iterations, ..options.clone() };
    if one.experiment.disk == DiskUse::None {
        let is_as_counted = options.trace.is_none() && options.chunk.is_none() && options.every.is_none();
        let own = counted.filter(|_| is_as_counted).map(Path::to_owned);
        let against = options.against.take().or(own);
        options = Options { device: None, disk: None, guest: None, against, ..options };
    }
    options
}

/// Runs all of `studies` and writes their results, and the report, into `folder`. A study that fails does
/// not keep the others from running; the report says why it is missing. Documents stay where they are when
/// a later study is stopped.
///
/// # Errors
/// The folder has files or cannot be written; or the run is [to stop](Options::stop).
pub fn run(
    studies: &[&Experiment],
    options: &Options,
    folder: &Path,
    tell: &mut dyn FnMut(Event<'_>),
) -> Result<Outcome> {
    let _alone = prepare(folder)?;
    let (mut documents, mut missing, mut counted) = (Vec::new(), Vec::new(), None);
    let is_emulated = guest::is_emulated(options);
    let planned = plan(studies, options);
    let time = |one: &Planned<'_>| {
        expected::time(one.experiment.name, &of_one(one, options, None), is_emulated).unwrap_or_default()
    };
    for (place, one) in planned.iter().enumerate() {
        let &Planned { experiment, name, .. } = one;
        let (expected, left) = (time(one), planned[place..].iter().map(time).sum());
        tell(Event::Begins { number: place + 1, count: planned.len(), experiment, name, expected, left });
        let begin = Instant::now();
        let outcome = crate::experiments::run(experiment.name, &of_one(one, options, counted.as_deref()));
        if matches!(outcome, Err(Error::Stopped)) {
            return Err(Error::Stopped);
        }
        tell(Event::Ended { name, took: begin.elapsed(), error: outcome.as_ref().err() });
        match outcome {
            Ok(report) => {
                let path = folder.join(format!("{name}.json"));
                fs::write(&path, report.to_json()).doing(|| format!("write {}", path.display()))?;
                if device::has_durable_writes(&report) {
                    counted = Some(path);
                }
                documents.push(Document { name: name.to_owned(), report });
            }
            Err(error) => {
                missing.push(Missing { experiment: name.to_owned(), reason: error.to_string() });
            }
        }
    }
    let report = folder.join("report.html");
    let page = page::render(&documents, &missing)?;
    fs::write(&report, page).doing(|| format!("write {}", report.display()))?;
    Ok(Outcome { report, documents, missing })
}

/// Makes the folder. Older results in it must not be mixed with new ones, nor those of two runs. No other run
/// writes there as long as the answer lives.
fn prepare(folder: &Path) -> Result<fs::File> {
    fs::create_dir_all(folder).doing(|| format!("make the folder {}", folder.display()))?;
    let refused = |kind, why| {
        let source = std::io::Error::new(kind, format!("{why}: name another folder with --output"));
        Error::Io { action: format!("write results into {}", folder.display()), source }
    };
    let opened = fs::File::open(folder).doing(|| format!("open {}", folder.display()))?;
    if rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Err(refused(std::io::ErrorKind::ResourceBusy, "another run does so"));
    }
    let mut entries = fs::read_dir(folder).doing(|| format!("list {}", folder.display()))?;
    match entries.next() {
        None => Ok(opened),
        Some(_) => Err(refused(std::io::ErrorKind::DirectoryNotEmpty, "it has files already")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_run_of_all_has_the_long_valuation_too() {
        let mut options = Options::new(".");
        let names =
            |options: &Options| plan(&studies(), options).iter().map(|one| one.name).collect::<Vec<_>>();
        assert_eq!(names(&options)[..3], ["shock", "valuation", "valuation-850"]);
        let long = |options: &Options| plan(&studies(), options)[2].iterations;
        assert_eq!(long(&options), Some(850));
        options.iterations = Some(200);
        assert!(!names(&options).contains(&"valuation-850"), "the caller has chosen");
        options = Options { quick: true, iterations: None, ..options };
        assert_eq!(names(&options).len(), studies().len());
    }

    #[test]
    fn a_study_that_computes_gets_no_disk_and_no_guest() {
        let options = Options {
            guest: Some(guest::Guest { cache: ".".into(), zfs: false }),
            device: Some("/dev/sdb".into()),
            ..Options::new(".")
        };
        let studies = studies();
        for one in &plan(&studies, &options) {
            let inner = of_one(one, &options, Some(Path::new("shock.json")));
            let computes = one.name == "model";
            assert_eq!((inner.guest.is_none(), inner.device.is_none()), (computes, computes), "{}", one.name);
            assert_eq!(inner.against.is_some(), computes, "{}", one.name);
            let other = Options { trace: Some("day.log".into()), ..options.clone() };
            assert_eq!(of_one(one, &other, Some(Path::new("shock.json"))).against, None);
        }
    }

    #[test]
    fn a_folder_with_files_is_left_alone() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("shock.json"), "old").expect("written");
        let options = Options::new(folder.path());
        let error = run(&[], &options, folder.path(), &mut |_| ()).expect_err("refused").to_string();
        assert!(error.contains("--output"), "{error}");
    }
}
