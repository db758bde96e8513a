//! The one document that a run leaves behind. `docs/lab-schema.json` describes it for other programs.

use crate::error::{Doing, Error, Result};
use crate::machine::Machine;
use crate::statistics::{Estimate, median, quantile};
use crate::targets::{self, Direction};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The version of the document that this program writes and reads.
pub const REPORT_VERSION: u32 = 1;

/// Everything one run of one experiment found out.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// Name of the experiment.
    pub experiment: String,
    /// When it began (RFC 3339, UTC).
    pub started: String,
    /// How long it took in all, in seconds.
    pub duration_s: f64,
    /// True for small runs that exercise the harness: not for quoting.
    pub quick: bool,
    /// Where it ran.
    pub machine: Machine,
    /// What ran.
    pub versions: Versions,
    /// What it was asked to do.
    pub parameters: BTreeMap<String, Parameter>,
    /// Raw samples, by system.
    pub systems: BTreeMap<String, System>,
    /// Conclusions.
    pub checks: Vec<Check>,
}

/// Versions of everything measured.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Versions {
    /// The store.
    pub icecore: String,
    /// The SQLite that all sides use.
    pub sqlite: String,
    /// The compiler.
    pub rustc: String,
    /// The compiler's profile: `release` is what counts.
    pub profile: String,
}

/// The value of a parameter.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Parameter {
    /// Yes or no.
    Switch(bool),
    /// A number of something.
    Count(u64),
    /// A number with a fraction.
    Number(f64),
    /// Words.
    Text(String),
}

/// One measured system.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct System {
    /// What a sample counts, such as `s` or `writes/s`.
    pub unit: String,
    /// Why this machine cannot run the system. It then has no samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// One value per run, in the order of the rounds.
    pub samples: Vec<f64>,
    /// Finer measurements within the runs, one list per run, by name (unit at the end of the name).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<Vec<f64>>>,
    /// The store's own counters over all runs, by name (unit at the end of the name).
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, f64>,
}

/// One conclusion, held against its target.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Check {
    /// Its name in the table of targets.
    pub name: String,
    /// The estimate.
    pub value: f64,
    /// Lower bound of its 95 % confidence interval.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
    /// What is to be reached.
    pub target: f64,
    /// From which side.
    pub direction: Direction,
    /// Whether the *whole* interval reaches the target: anything less has not been shown.
    pub met: bool,
}

impl Check {
    /// Holds an estimate against the target of that name.
    ///
    /// # Panics
    /// If there is no such target: names are written down in one table.
    #[must_use]
    pub fn new(name: &str, estimate: Estimate) -> Self {
        let Some(target) = targets::find(name) else { panic!("{name} is not in the table of targets") };
        let Estimate { value, low, high } = estimate;
        let direction = target.direction;
        let met = [value, low, high].into_iter().all(|bound| direction.met(bound, target.target));
        Self { name: name.to_owned(), value, low, high, target: target.target, direction, met }
    }
}

impl System {
    /// A system with one sample per run.
    #[must_use]
    pub fn new(unit: &str, samples: Vec<f64>) -> Self {
        Self { unit: unit.to_owned(), samples, ..Self::default() }
    }

    /// A system that this machine cannot run, and why.
    #[must_use]
    pub fn unavailable(unit: &str, reason: &str) -> Self {
        Self { unavailable: Some(reason.to_owned()), ..Self::new(unit, Vec::new()) }
    }

    /// Adds finer measurements.
    #[must_use]
    pub fn with_series(mut self, name: &str, series: Vec<Vec<f64>>) -> Self {
        self.series.insert(name.to_owned(), series);
        self
    }

    /// Adds counters of the store.
    #[must_use]
    pub fn with_counters(mut self, counters: BTreeMap<String, f64>) -> Self {
        self.counters = counters;
        self
    }
}

impl From<bool> for Parameter {
    fn from(value: bool) -> Self {
        Self::Switch(value)
    }
}

impl From<u64> for Parameter {
    fn from(value: u64) -> Self {
        Self::Count(value)
    }
}

impl From<usize> for Parameter {
    fn from(value: usize) -> Self {
        Self::Count(value as u64)
    }
}

impl From<f64> for Parameter {
    fn from(value: f64) -> Self {
        Self::Number(value)
    }
}

impl From<&str> for Parameter {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl Report {
    /// The document as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        // Strings, finite numbers and maps with string keys always have a JSON form.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }

    /// Reads the document in a file.
    ///
    /// # Errors
    /// As for [`Report::from_json`]; or the file cannot be read.
    pub fn read(path: &Path) -> Result<Self> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).doing(|| format!("read {name}"))?;
        Self::from_json(&name, &text)
    }

    /// Reads a document; `what` names it in errors.
    pub fn from_json(what: &str, text: &str) -> Result<Self> {
        let refuse = |reason: String| Error::NotAResult { what: what.to_owned(), reason };
        let report: Self = serde_json::from_str(text).map_err(|error| {
            let cut = error.is_eof() && !text.trim().is_empty();
            refuse(if cut {
                format!("it is cut short ({error}): run the experiment again")
            } else {
                error.to_string()
            })
        })?;
        if report.version != REPORT_VERSION {
            return Err(refuse(format!(
                "it has version {}, and this program reads {REPORT_VERSION}",
                report.version
            )));
        }
        let odd = report.numbers().find(|number| !is_measurable(*number));
        match odd {
            Some(number) => Err(refuse(format!("nothing that was measured is {number:e}"))),
            None => Ok(report),
        }
    }

    /// Every number that was measured, or follows from what was.
    fn numbers(&self) -> impl Iterator<Item = f64> {
        let of_system = |system: &System| {
            let series = system.series.values().flatten().flatten();
            system.samples.iter().chain(series).chain(system.counters.values()).copied().collect::<Vec<_>>()
        };
        let of_checks = self.checks.iter().flat_map(|check| [check.value, check.low, check.high]);
        self.systems.values().flat_map(of_system).chain(of_checks)
    }

    /// The parameter of that name, where it is a number without a fraction.
    #[must_use]
    pub fn count(&self, name: &str) -> Option<u64> {
        match self.parameters.get(name) {
            Some(Parameter::Count(count)) => Some(*count),
            _ => None,
        }
    }

    /// What a reader has to know before any number: that the run was small, the build slow, the machine
    /// emulated or the disk simulated. Every table, page and picture has these.
    #[must_use]
    pub fn labels(&self) -> Vec<String> {
        let mut labels = Vec::new();
        if self.quick {
            labels.push("quick run: not for quoting".to_owned());
        }
        if self.versions.profile != "release" {
            labels.push(format!("{} build", self.versions.profile));
        }
        if self.is_emulated() {
            labels.push("emulated machine: counts and ratios only".to_owned());
        }
        if let Some(disk) = self.simulated_disk() {
            labels.push(format!("simulated disk: {disk}"));
        }
        labels
    }

    /// Whether the machine is an emulated one, whose times mean nothing.
    pub(crate) fn is_emulated(&self) -> bool {
        let emulated = matches!(self.parameters.get("emulated"), Some(Parameter::Switch(true)));
        emulated || self.machine.cpu.contains("TCG")
    }

    /// The simulated disk, in words.
    pub(crate) fn simulated_disk(&self) -> Option<&str> {
        match self.parameters.get("disk") {
            Some(Parameter::Text(disk)) if disk != "native" => Some(disk.as_str()),
            _ => None,
        }
    }

    /// A few lines for people.
    #[must_use]
    pub fn summary(&self) -> String {
        let mut text = format!("{} on {}\n", self.experiment, self.machine);
        for (name, system) in &self.systems {
            if let Some(reason) = &system.unavailable {
                let _ = writeln!(text, "  {name:<28} not measured: {reason}");
                continue;
            }
            let System { unit, samples, .. } = system;
            let count = samples.len();
            // One run alone has no range.
            let range = match count {
                0 | 1 => String::new(),
                _ => format!(", {} to {}", digits(quantile(samples, 0.0)), digits(quantile(samples, 1.0))),
            };
            let middle = digits(median(samples));
            let _ = writeln!(text, "  {name:<28} {middle:>12} {unit} (median of {count}{range})");
        }
        for check in &self.checks {
            let Check { name, value, low, high, target, .. } = check;
            let sign = match check.direction {
                Direction::AtMost => "<=",
                Direction::AtLeast => ">=",
            };
            let verdict = if check.met { "met" } else { "not met" };
            let _ =
                writeln!(text, "  {name:<28} {value:>12.4} [{low:.4}, {high:.4}] {sign} {target} {verdict}");
        }
        for label in self.labels() {
            let _ = writeln!(text, "  ({label})");
        }
        text
    }
}

/// Sizes beyond these are no measurement. Axes of pictures and sums have room for what lies between.
const MEASURABLE: std::ops::RangeInclusive<f64> = 1e-18..=1e18;

fn is_measurable(number: f64) -> bool {
    number == 0.0 || MEASURABLE.contains(&number.abs())
}

/// Four places behind the point, and more for what would be next to nothing then.
fn digits(value: f64) -> String {
    let places = match value.abs() {
        size if size > 0.0 && size < 0.01 => (2.0 - size.log10().floor()) as usize,
        _ => 4,
    };
    format!("{value:.places$}")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A result with nothing in it.
    pub(crate) fn empty() -> Report {
        let machine = Machine {
            cpu: "a processor".to_owned(),
            cores: 1,
            memory_bytes: 0,
            kernel: "Linux".to_owned(),
            filesystem: "ext4".to_owned(),
            device: "/dev/vda".to_owned(),
            flush_us: 1.0,
        };
        Report {
            version: REPORT_VERSION,
            experiment: "shock".to_owned(),
            started: "2026-11-24T09:00:00Z".to_owned(),
            duration_s: 1.0,
            quick: false,
            machine,
            versions: crate::experiments::versions(),
            parameters: BTreeMap::new(),
            systems: BTreeMap::new(),
            checks: Vec::new(),
        }
    }

    #[test]
    fn the_table_of_a_run_has_medians_with_their_range() {
        let system = |name: &str, samples| (name.to_owned(), System::new("writes/s", samples));
        let systems = [system("three", vec![30.0, 10.0, 20.5]), system("one", vec![7.0])];
        let report = Report { systems: systems.into(), ..empty() };
        let text = report.summary();
        assert!(text.contains(" 20.5000 writes/s (median of 3, 10.0000 to 30.0000)\n"), "{text}");
        assert!(text.contains(" 7.0000 writes/s (median of 1)\n"), "{text}");
    }

    #[test]
    fn small_times_keep_three_digits() {
        assert_eq!(["0.0000160", "0.00417", "0.0100", "3.0000", "0.0000"].map(str::to_owned), {
            [16e-6, 0.004_17, 0.01, 3.0, 0.0].map(digits)
        });
    }

    #[test]
    fn a_number_that_no_machine_has_is_refused() {
        let with = |sample: f64| {
            let system = System::new("s", vec![1.0]).with_series("latency_us", vec![vec![sample]]);
            let report = Report { systems: [("lvm".to_owned(), system)].into(), ..empty() };
            Report::from_json("odd.json", &report.to_json()).map(drop)
        };
        for number in [1e308, -1e19, 5e-324] {
            let error = with(number).expect_err("refused").to_string();
            assert!(error.contains("nothing that was measured is"), "{error}");
        }
        assert!([0.0, -1.0, 1e18, 1e-9].map(with).iter().all(Result::is_ok));
    }

    #[test]
    fn the_table_of_a_run_has_the_labels_of_its_machine_and_disk() {
        let parameters =
            [("emulated".to_owned(), true.into()), ("disk".to_owned(), "hdd, no write cache".into())];
        let text = Report { parameters: parameters.into(), ..empty() }.summary();
        assert!(text.contains("(emulated machine: counts and ratios only)"), "{text}");
        assert!(text.contains("(simulated disk: hdd, no write cache)"), "{text}");
    }

    #[test]
    fn a_check_is_met_only_by_its_whole_interval() {
        let check = |value, low, high| Check::new("commits.vs_wal", Estimate { value, low, high }).met;
        assert!(check(1.2, 1.0, 1.4));
        assert!(!check(1.2, 0.99, 1.4));
        assert!(!check(0.9, 0.8, 1.1));
    }
}
