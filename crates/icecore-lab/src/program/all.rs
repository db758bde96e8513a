//! `icecore lab run all`

use super::check::{WITHOUT_SYSTEMS, systems};
use super::{RunArguments, options, stopped};
use crate::exit;
use crate::output::{Output, say};
use icecore_lab::all::{self, Event};
use icecore_lab::experiments::Experiment;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// The name that stands for every study.
pub const ALL: &str = "all";

/// Runs them, with options that [`check`] let through.
pub fn run(arguments: &RunArguments) -> anyhow::Result<()> {
    let studies = chosen(arguments);
    if studies.is_empty() {
        anyhow::bail!("this build has no studies: `icecore lab list` shows what there is");
    }
    let folder = arguments.output.clone().unwrap_or_else(folder_of_today);
    let options = options(arguments)?;
    let outcome = all::run(&studies, &options, &folder, &mut |event| tell(&event));
    let outcome = outcome.map_err(|error| {
        if matches!(error, icecore_lab::Error::Stopped) {
            line(&format!("stopped: results of the studies before are in {}", folder.display()));
        }
        stopped(error)
    })?;
    let mut output = Output::new();
    for document in &outcome.documents {
        output.line(document.report.summary().trim_end())?;
    }
    output.finish()?;
    say(format!("The report: {}", outcome.report.display()))?;
    if outcome.missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = outcome.missing.iter().map(|one| one.experiment.as_str()).collect();
    anyhow::bail!(
        "{} of {} studies have no result ({}): the report says why",
        names.len(),
        names.len() + outcome.documents.len(),
        names.join(", ")
    )
}

/// The studies to run. Where the user chose systems, those that compare none are left out, and a line says
/// so.
fn chosen(arguments: &RunArguments) -> Vec<&'static Experiment> {
    let mut studies = all::studies();
    if !arguments.systems.is_empty() {
        for (name, why) in WITHOUT_SYSTEMS {
            line(&format!("{name} is left out, as --systems chooses systems: it {why}"));
            studies.retain(|study| study.name != name);
        }
    }
    studies
}

/// Refuses options that such a run would ignore.
pub fn check(arguments: &RunArguments) -> anyhow::Result<()> {
    for (given, option) in [
        (arguments.json, "--json"),
        (arguments.minutes.is_some(), "--minutes"),
        (arguments.only.is_some(), "--only"),
        (arguments.rate.is_some(), "--rate"),
        (arguments.tool.is_some(), "--tool"),
        (arguments.server.is_some(), "--server"),
        (arguments.size.is_some(), "--size"),
    ] {
        if given {
            let message = format!(
                "`lab run all` writes documents and a report into a folder: {option} goes with one experiment"
            );
            return Err(exit::usage(message));
        }
    }
    arguments.traces.check(ALL, arguments)?;
    systems(arguments)
}

fn folder_of_today() -> PathBuf {
    format!("icecore-lab-{}", jiff::Zoned::now().date()).into()
}

fn tell(event: &Event<'_>) {
    match event {
        Event::Begins { number, count, experiment, name, expected, left } => line(&format!(
            "study {number} of {count}: {name}, {}; about {}, {} for all that is left",
            experiment.about,
            minutes(*expected),
            minutes(*left)
        )),
        Event::Ended { name, took, error: None } => {
            line(&format!("{name} took {}", minutes(*took)));
        }
        Event::Ended { name, took, error: Some(error) } => {
            line(&format!("{name} failed after {}: {error}", minutes(*took)));
        }
    }
}

pub(super) fn line(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

pub(super) fn minutes(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..100 => format!("{seconds} s"),
        seconds => format!("{} min", (seconds + 30) / 60),
    }
}
