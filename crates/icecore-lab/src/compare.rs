//! Two results of one experiment: what changed, and how sure that is.

use crate::charts::{is_rate, is_time, server};
use crate::error::{Error, Result};
use crate::options::LoadTool;
use crate::page::is_time_check;
use crate::policies::CLASSIC_CHUNK_BYTES;
use crate::report::{Check, Parameter, Report, System};
use crate::statistics::{Estimate, median, unpaired_ratio};
use crate::targets::Direction;
use serde::Serialize;
use std::path::Path;

/// What changed from one result to another.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Comparison {
    /// The experiment of both.
    pub experiment: String,
    /// What differs between the runs beside the numbers, such as the machine.
    pub notes: Vec<String>,
    /// Every system that was measured in both.
    pub systems: Vec<Change>,
    /// Every check that both have.
    pub checks: Vec<Change>,
    /// Systems and checks that one of them lacks, with the name of the result that has them.
    pub only_in: Vec<(String, String)>,
}

/// One value in both results.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Change {
    /// The system or check.
    pub name: String,
    /// What is counted; empty for a check.
    pub unit: String,
    /// The value before.
    pub before: f64,
    /// The value after.
    pub after: f64,
    /// The second over the first; absent where the first is 0.
    pub ratio: Option<f64>,
    /// Lower bound of the ratio.
    pub low: Option<f64>,
    /// Upper bound of the ratio.
    pub high: Option<f64>,
    /// What the interval says.
    pub verdict: Verdict,
}

/// What the interval of a change says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval lies on the good side of 1.
    Better,
    /// The whole interval lies on the bad side of 1.
    Worse,
    /// The interval holds 1, or there is none.
    Unclear,
    /// One of the results has one run alone, which has no interval.
    OneRun,
    /// The value is a time or a rate of an emulated machine, and means nothing.
    NotJudged,
}

impl Verdict {
    fn of(ratio: Option<Estimate>, more_is_better: bool, known: bool) -> Self {
        match ratio {
            Some(Estimate { low, high, .. }) if low > 1.0 || high < 1.0 => match known {
                false => Self::OneRun,
                true if (low > 1.0) == more_is_better => Self::Better,
                true => Self::Worse,
            },
            _ => Self::Unclear,
        }
    }

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Unclear => "no clear change",
            Self::OneRun => "one run: not judged",
            Self::NotJudged => "not judged",
        }
    }
}

/// Compares two results, each with its name for errors and notes.
///
/// # Errors
/// [`Error::Incomparable`] if they are of different experiments, or were not measured in the same way: one is
/// of a quick run, an emulated machine, another accelerator of it, another simulated disk, another database
/// server, another program that drives the study, another trace, chunk or schedule of `model`, another size,
/// other iterations, another rate, or a debug build, and the other is not.
pub fn compare(before: (&str, &Report), after: (&str, &Report)) -> Result<Comparison> {
    let ((before_name, first), (after_name, second)) = (before, after);
    let refuse = |reason: String| {
        Err(Error::Incomparable { before: before_name.to_owned(), after: after_name.to_owned(), reason })
    };
    if first.experiment != second.experiment {
        return refuse(format!(
            "the first is of {:?} and the second of {:?}: compare results of one experiment",
            first.experiment, second.experiment
        ));
    }
    if first.quick != second.quick {
        return refuse(
            "one is of a quick run, which has other sizes: run both with --quick or both without".to_owned(),
        );
    }
    if let Some(reason) = difference(first, second) {
        return refuse(reason);
    }
    let mut only_in = Vec::new();
    let systems = paired(
        &mut only_in,
        (before_name, first.systems.iter().map(|(name, system)| (name.as_str(), system)).collect()),
        (after_name, second.systems.iter().map(|(name, system)| (name.as_str(), system)).collect()),
    );
    let checks = paired(
        &mut only_in,
        (before_name, first.checks.iter().map(|check| (check.name.as_str(), check)).collect()),
        (after_name, second.checks.iter().map(|check| (check.name.as_str(), check)).collect()),
    );
    // What is computed comes out the same each time: one run says all.
    let is_exact = first.experiment == "model";
    let mut comparison = Comparison {
        experiment: first.experiment.clone(),
        notes: notes(first, second),
        systems: systems.into_iter().filter_map(|(name, pair)| of_systems(name, pair, is_exact)).collect(),
        checks: checks.into_iter().map(|(name, pair)| of_checks(name, pair, is_exact)).collect(),
        only_in,
    };
    if first.is_emulated() {
        comparison.leave_times_unjudged();
    }
    Ok(comparison)
}

impl Comparison {
    /// For two results of an emulated machine.
    fn leave_times_unjudged(&mut self) {
        let mut has_times = false;
        let systems = self.systems.iter_mut().filter(|change| is_time(&change.unit));
        let checks = self.checks.iter_mut().filter(|change| is_time_check(&change.name));
        for change in systems.chain(checks) {
            change.verdict = Verdict::NotJudged;
            has_times = true;
        }
        if has_times {
            let words = "both are of an emulated machine: changes of its times and rates are not judged";
            self.notes.push(words.to_owned());
        }
    }
}

/// What runs an emulated machine, where the result says so.
fn accelerator(report: &Report) -> Option<&str> {
    match report.parameters.get("accelerator") {
        Some(Parameter::Text(name)) => Some(name.as_str()),
        _ => report.machine.cpu.contains("TCG").then_some("tcg"),
    }
}

/// What makes all times differ, whatever the systems do, and what to do.
fn difference(first: &Report, second: &Report) -> Option<String> {
    if first.is_emulated() != second.is_emulated() {
        let reason =
            "one is of an emulated machine, whose times mean nothing: run both with --guest or both without";
        return Some(reason.to_owned());
    }
    let accelerators = accelerator(first).zip(accelerator(second));
    if let Some((one, other)) = accelerators.filter(|(one, other)| one != other) {
        return Some(format!(
            "{} runs the guest of the first and {} that of the second: run both with KVM or both \
             without",
            one.to_uppercase(),
            other.to_uppercase()
        ));
    }
    if let Some(reason) = choice(first, second) {
        return Some(reason);
    }
    let (first, second) = (&first.versions.profile, &second.versions.profile);
    (first != second).then(|| {
        format!("the first is of a {first} build and the second of a {second} build: use release builds")
    })
}

/// What was chosen for one in another way than for the other, and what to do.
fn choice(first: &Report, second: &Report) -> Option<String> {
    let disks = [first, second].map(|report| report.simulated_disk().unwrap_or("no simulated one"));
    if disks[0] != disks[1] {
        return Some(format!(
            "the disk of the first is {:?} and that of the second {:?}: run both with the same --disk and \
             --time-scale",
            disks[0], disks[1]
        ));
    }
    let servers = [first, second].map(server);
    if servers[0] != servers[1] {
        return Some(format!(
            "the first is of {} and the second of {}: run both with the same --server",
            servers[0], servers[1]
        ));
    }
    let tools = [first, second].map(tool);
    if tools[0] != tools[1] {
        return Some(format!(
            "{} drove the first and {} the second: run both with the same --tool, or both without",
            tools[0], tools[1]
        ));
    }
    let chosen = match first.experiment.as_str() {
        "model" => return model_choice(first, second),
        "backup" => ("sysbench_rows", "--size"),
        "fragment" => ("file_bytes", "--size"),
        "placement" => ("warehouses", "--size"),
        "shock" => ("rate_per_s", "--rate"),
        "valuation" => ("iterations", "--iterations"),
        _ => return None,
    };
    another(first, second, &[chosen], shown)
}

/// The first of these parameters that one result has in another way, and its option.
fn another(
    first: &Report,
    second: &Report,
    parameters: &[(&str, &str)],
    made: impl Fn(&Report, &str) -> String,
) -> Option<String> {
    parameters
        .iter()
        .map(|(name, option)| (name, option, made(first, name), made(second, name)))
        .find(|(_, _, one, other)| one != other)
        .map(|(name, option, one, other)| {
            format!("{name} is {one} in the first and {other} in the second: run both with the same {option}")
        })
}

/// The same for the options of `model`.
fn model_choice(first: &Report, second: &Report) -> Option<String> {
    let made = |report: &Report, name: &str| match report.parameters.get(name) {
        // From before there was a choice.
        None if name == "chunk_bytes" => CLASSIC_CHUNK_BYTES.to_string(),
        // The same file may have been named by another path.
        Some(Parameter::Text(path)) if name == "trace" => {
            Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned()
        }
        _ => shown(report, name),
    };
    // Another trace may have the same name.
    let parameters =
        [("trace", "--trace"), ("writes", "--trace"), ("chunk_bytes", "--chunk"), ("every", "--every")];
    another(first, second, &parameters, made)
}

/// The program that drove a study, where there is a choice. A `shock` that does not say is from before there
/// was one.
fn tool(report: &Report) -> &str {
    match report.parameters.get("tool") {
        Some(Parameter::Text(tool)) => tool,
        _ if report.experiment == LoadTool::Fio.study() => LoadTool::Fio.name(),
        _ => "the lab itself",
    }
}

/// A parameter as the result has it.
fn shown(report: &Report, name: &str) -> String {
    match report.parameters.get(name) {
        Some(value) => serde_json::to_string(value).unwrap_or_default(),
        None => "none".to_owned(),
    }
}

type Named<'report, T> = (&'report str, Vec<(&'report str, &'report T)>);

/// What both have; the rest goes to `only_in`.
fn paired<'report, T>(
    only_in: &mut Vec<(String, String)>,
    (before_name, before): Named<'report, T>,
    (after_name, after): Named<'report, T>,
) -> Vec<(&'report str, (&'report T, &'report T))> {
    let find = |all: &[(&str, &'report T)], wanted: &str| {
        all.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value)
    };
    for (document, these, those) in [(before_name, &before, &after), (after_name, &after, &before)] {
        let alone = these.iter().filter(|(name, _)| find(those, name).is_none());
        only_in.extend(alone.map(|(name, _)| ((*name).to_owned(), document.to_owned())));
    }
    let both = |(name, value): &(&'report str, &'report T)| Some((*name, (*value, find(&after, name)?)));
    before.iter().filter_map(both).collect()
}

/// What may explain a change that the program does not.
fn notes(before: &Report, after: &Report) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note = |what: &str, before: String, after: String| {
        if before != after {
            notes.push(format!("{what}: {before} before, {after} after"));
        }
    };
    // The time of a flush is measured, so it always differs.
    let machine = |report: &Report| {
        let machine = &report.machine;
        format!("{} cores of {}, {}, {}", machine.cores, machine.cpu, machine.kernel, machine.filesystem)
    };
    note("machine", machine(before), machine(after));
    note("icecore", before.versions.icecore.clone(), after.versions.icecore.clone());
    let names: std::collections::BTreeSet<_> =
        before.parameters.keys().chain(after.parameters.keys()).collect();
    for name in names {
        note(&format!("parameter {name}"), shown(before, name), shown(after, name));
    }
    notes
}

fn of_systems(name: &str, (before, after): (&System, &System), is_exact: bool) -> Option<Change> {
    let (first, second) = (&before.samples, &after.samples);
    if first.is_empty() || second.is_empty() || before.unit != after.unit {
        return None;
    }
    let seed = crate::options::SEED;
    let ratio = Some(unpaired_ratio(second, first, seed)).filter(is_finite);
    let known = is_exact || first.len().min(second.len()) > 1;
    let verdict = Verdict::of(ratio, is_rate(&before.unit), known);
    Some(change(name, &before.unit, (median(first), median(second)), ratio, verdict))
}

/// Only the bounds of a check are known, not its samples: the interval of the ratio spans all that both
/// intervals allow.
fn of_checks(name: &str, (before, after): (&Check, &Check), is_exact: bool) -> Change {
    let ratio = Estimate {
        value: after.value / before.value,
        low: after.low / before.high,
        high: after.high / before.low,
    };
    let ratio = Some(ratio).filter(|ratio| before.low > 0.0 && is_finite(ratio));
    let known = is_exact || before.low < before.high && after.low < after.high;
    let verdict = Verdict::of(ratio, before.direction == Direction::AtLeast, known);
    change(name, "", (before.value, after.value), ratio, verdict)
}

/// Whether the samples allow a ratio, and an interval of it: some may be 0.
fn is_finite(ratio: &Estimate) -> bool {
    [ratio.value, ratio.low, ratio.high].into_iter().all(f64::is_finite)
}

fn change(
    name: &str,
    unit: &str,
    (before, after): (f64, f64),
    ratio: Option<Estimate>,
    verdict: Verdict,
) -> Change {
    Change {
        name: name.to_owned(),
        unit: unit.to_owned(),
        before,
        after,
        ratio: ratio.map(|ratio| ratio.value),
        low: ratio.map(|ratio| ratio.low),
        high: ratio.map(|ratio| ratio.high),
        verdict,
    }
}
