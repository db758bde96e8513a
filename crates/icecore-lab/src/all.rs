//! Every study, one after the other, into a folder: a document each, and the report of all.

use crate::error::{Doing, Error, Result};
use crate::experiments::{EXPERIMENTS, Experiment, Group};
use crate::guest;
use crate::options::Options;
use crate::page::{self, Document, Missing};
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
        /// How long it should take.
        expected: Duration,
        /// How long it and all that follow should take.
        left: Duration,
    },
    /// A study ended, with a result or an error.
    Ended {
        /// The study.
        experiment: &'a Experiment,
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

/// Seconds that a study takes on two cores and a virtual SSD: quick, full.
const EXPECTED_S: [(&str, u64, u64); 9] = [
    ("shock", 240, 4500),
    ("valuation", 120, 3000),
    ("fragment", 120, 330),
    ("blog", 150, 5400),
    ("backup", 120, 1100),
    ("placement", 180, 21_000),
    ("full", 90, 360),
    ("many", 150, 3600),
    ("model", 1, 1),
];

/// How many times longer a study takes in the guest where KVM does not run it. It was measured with `shock`,
/// quick, when its curves were shorter and it had no warm-up: 150 s outside, and 439 s inside.
const EMULATION_FACTOR: u32 = 3;

/// The studies in the order in which they run.
#[must_use]
pub fn studies() -> Vec<&'static Experiment> {
    EXPERIMENTS.iter().filter(|experiment| experiment.group == Group::Study).collect()
}

/// How long a study should take on this machine, or in the guest of the options. `None` for an experiment
/// that is no study.
#[must_use]
pub fn expected_with(name: &str, options: &Options) -> Option<Duration> {
    let is_study = studies().iter().any(|study| study.name == name);
    is_study.then(|| expected(name, options.quick) * factor(options, guest::is_emulated))
}

/// `is_emulated` takes its time, so it is asked only about a run in a guest.
fn factor(options: &Options, is_emulated: impl FnOnce() -> bool) -> u32 {
    if options.guest.is_some() && is_emulated() { EMULATION_FACTOR } else { 1 }
}

/// How long a study should take outside the guest.
#[must_use]
pub fn expected(name: &str, quick: bool) -> Duration {
    let known = EXPECTED_S.iter().find(|(study, ..)| *study == name);
    let (quick_s, full_s) = known.map_or((120, 1800), |(_, quick_s, full_s)| (*quick_s, *full_s));
    Duration::from_secs(if quick { quick_s } else { full_s })
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
    prepare(folder)?;
    let (mut documents, mut missing) = (Vec::new(), Vec::new());
    let factor = factor(options, guest::is_emulated);
    let time = |study: &Experiment| expected(study.name, options.quick) * factor;
    for (place, experiment) in studies.iter().enumerate() {
        let (expected, left) = (time(experiment), studies[place..].iter().map(|study| time(study)).sum());
        tell(Event::Begins { number: place + 1, count: studies.len(), experiment, expected, left });
        let begin = Instant::now();
        let outcome = crate::experiments::run(experiment.name, options);
        if matches!(outcome, Err(Error::Stopped)) {
            return Err(Error::Stopped);
        }
        tell(Event::Ended { experiment, took: begin.elapsed(), error: outcome.as_ref().err() });
        match outcome {
            Ok(report) => {
                let path = folder.join(format!("{}.json", experiment.name));
                fs::write(&path, report.to_json()).doing(|| format!("write {}", path.display()))?;
                documents.push(Document { name: experiment.name.to_owned(), report });
            }
            Err(error) => {
                missing.push(Missing { experiment: experiment.name.to_owned(), reason: error.to_string() });
            }
        }
    }
    let report = folder.join("report.html");
    let page = page::render(&documents, &missing)?;
    fs::write(&report, page).doing(|| format!("write {}", report.display()))?;
    Ok(Outcome { report, documents, missing })
}

/// Makes the folder. Older results in it must not be mixed with new ones.
fn prepare(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).doing(|| format!("make the folder {}", folder.display()))?;
    let mut entries = fs::read_dir(folder).doing(|| format!("list {}", folder.display()))?;
    if entries.next().is_none() {
        return Ok(());
    }
    let source = std::io::Error::new(
        std::io::ErrorKind::DirectoryNotEmpty,
        "it has files already: name another folder with --output",
    );
    Err(Error::Io { action: format!("write results into {}", folder.display()), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quick_run_of_all_takes_less_than_half_an_hour() {
        let names = EXPECTED_S.iter().map(|(name, ..)| expected(name, true));
        assert!(names.sum::<Duration>() < Duration::from_secs(1800));
        let known = |study: &&Experiment| EXPECTED_S.iter().any(|(name, ..)| *name == study.name);
        assert!(studies().iter().all(known), "every study has a time");
    }

    #[test]
    fn a_study_in_an_emulated_guest_takes_three_times_as_long() {
        let mut options = Options::new(".");
        options.quick = true;
        assert_eq!(factor(&options, || panic!("no guest is asked for")), 1);
        assert_eq!(expected_with("shock", &options), Some(Duration::from_secs(240)));
        assert_eq!(expected_with("commits", &options), None);
        options.guest = Some(guest::Guest { cache: ".".into(), zfs: false });
        assert_eq!(factor(&options, || false), 1);
        assert_eq!(expected("shock", true) * factor(&options, || true), Duration::from_secs(720));
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
