//! The command line of the lab: the experiments that hold the store's promises against measurements.

mod all;
mod check;
mod compare;
mod demo;
mod doctor;
mod guest;
mod report;
mod size;
mod traces;

use crate::format::parse_size;
use crate::output::{Align, Output, Table};
use crate::{exit, interrupt};
use clap::{Args, Command, CommandFactory as _, Parser, Subcommand};
use icecore::admin::Failure;
use icecore_lab::chart::Chart;
use icecore_lab::disks::model::{self, HardDisk};
use icecore_lab::disks::real::EmptyDisk;
use icecore_lab::experiments::Group;
use icecore_lab::{DatabaseServer, EXPERIMENTS, LoadTool, Options, Report, charts, child, figure, page};
use icecore_terminal::environment::{with_environment, with_variable};
use icecore_terminal::generate::{self, CompletionsArguments, ManArguments};
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};
use std::time::Duration;

/// Studies of snapshots under databases, measured on this machine
#[derive(Parser, Debug)]
#[command(
    name = "icecore-lab",
    bin_name = "icecore lab",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    subcommand_required = true
)]
#[command(after_help = "\
Example:
  icecore lab doctor
  icecore lab run all --quick
  icecore lab run commits --json > commits.json")]
pub struct Cli {
    #[command(subcommand)]
    command: LabCommand,
}

/// The command with a variable for each option: those of `icecore demo` begin as if it were no part of the
/// lab.
pub fn command() -> Command {
    let command = with_environment(Cli::command(), "ICECORE_LAB");
    command.mut_subcommand("demo", |demo| demo.mut_args(|option| with_variable(option, "ICECORE_DEMO")))
}

#[derive(Subcommand, Debug)]
enum LabCommand {
    /// List the experiments
    List(ListArguments),
    /// Run an experiment, or `all` studies with a report
    Run(Box<RunArguments>),
    /// Make one page of results, with charts
    Report(report::Arguments),
    /// Show what changed from one result to another
    Compare(compare::Arguments),
    /// Say how large the copy area of an LVM snapshot has to be
    Size(size::Arguments),
    /// Say what this machine can measure, and what to install
    Doctor(doctor::Arguments),
    /// Build the machine in which --guest runs studies
    Guest(guest::BuildArguments),
    /// Draw a chart of a result as SVG
    Figure(FigureArguments),
    /// Watch 95 versions of a database being kept and proved
    Demo(demo::Arguments),
    /// Print the completions for a shell
    Completions(CompletionsArguments),
    /// Print a manual page, or write all of them into a folder
    Man(ManArguments),
    /// Part of an experiment that needs a process of its own
    #[command(hide = true)]
    Child,
}

#[derive(Args, Debug)]
#[command(after_help = "Example:\n  icecore lab list -H")]
struct ListArguments {
    /// For scripts: no headers, tabs between columns
    #[arg(short = 'H', long)]
    no_header: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
What is compared runs in turn, in alternating order, on the filesystem of one
folder. The document has every sample; docs/lab-schema.json describes it.
`all` runs the studies one after the other, and writes a document for each and
report.html into the folder that --output names. With --guest a study runs in
a small machine of QEMU whose kernel has LVM: its counts and ratios hold, and
its times do not.

Example:
  icecore lab run shock --guest --systems plain,lvm,icecore-mount
  icecore lab run all --quick --output results
  icecore lab run valuation-store --directory /srv --json > valuation.json")]
struct RunArguments {
    /// The experiment, or `all` for every study
    #[arg(value_name = "EXPERIMENT")]
    name: String,

    /// Where `all` writes its results (icecore-lab-DATE unless said otherwise)
    #[arg(short, long, value_name = "FOLDER")]
    output: Option<PathBuf>,

    /// A folder on the filesystem to measure
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    directory: PathBuf,

    /// Rounds of interleaved runs
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pairs: Option<u16>,

    /// How long to go on, for `soak` (10 unless said otherwise)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: Option<u64>,

    /// Run one check alone, for `mount`
    #[arg(long, value_name = "CHECK")]
    only: Option<String>,

    /// The systems that a study compares, such as `xfs-reflink,btrfs,icecore-mount`
    #[arg(long, value_name = "SYSTEMS", value_delimiter = ',')]
    systems: Vec<String>,

    /// Iterations, for `valuation` (95 unless said otherwise; 850 shows a long history)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    iterations: Option<u32>,

    /// Size of the file, for `fragment`, such as `2G`; of the database, for
    /// `backup` and `placement` (whose cache, disks and runs follow it); or of
    /// the device, for `--tool blogbench`, which removes nothing that it wrote
    /// (28G unless said otherwise)
    #[arg(long, value_name = "SIZE", value_parser = parse_file_size)]
    size: Option<u64>,

    /// The program that drives the study: for `shock` `fio` (unless said
    /// otherwise), `sysbench` as in the study, or `bonnie++`; for `blog`
    /// `blogbench` in place of the lab's own mix
    #[arg(long, value_name = "TOOL", value_parser = tool)]
    tool: Option<LoadTool>,

    /// The database server, for `placement`: `mariadb` (unless said otherwise)
    /// or `postgres`
    #[arg(long, value_name = "SERVER", value_parser = server)]
    server: Option<DatabaseServer>,

    /// Make so many writes a second around the snapshot, for `shock`: the
    /// latency of each counts from when it was due (an open loop)
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rate: Option<u32>,

    /// How long one program of a system may take: a rival that hangs is left
    /// out, and the study goes on. With --guest at most 675, or 5400 in a
    /// full run
    #[arg(long, value_name = "SECONDS", default_value_t = 7200,
          value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    time_limit: u64,

    #[command(flatten)]
    traces: traces::TraceArguments,

    /// Run a study on a simulated hard disk of 7,200 rpm: `hdd` has its write
    /// cache off, `hdd-cache` on, and `hdd-battery` on with a battery
    #[arg(long, value_name = "DISK", value_parser = disk)]
    disk: Option<HardDisk>,

    /// Measure a whole disk, which has to be empty and is empty again at the
    /// end. It gets an ext4 that all systems lie on
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["guest", "disk", "directory"])]
    device: Option<PathBuf>,

    /// Do not ask before a file system is made on the disk
    #[arg(long, requires = "device")]
    yes: bool,

    /// Multiply all times of the simulated disk
    #[arg(long, value_name = "NUMBER", requires = "disk", value_parser = time_scale)]
    time_scale: Option<f64>,

    #[command(flatten)]
    guest: guest::Arguments,

    /// Small sizes and few rounds: shows that it works, and means nothing
    #[arg(long)]
    quick: bool,

    /// Seed of the workload
    #[arg(long)]
    seed: Option<u64>,

    /// Print the whole result as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Without --chart: the time for each iteration of `valuation-store`.

Example:
  icecore lab figure valuation-store.json > valuation.svg
  icecore lab figure shock.json --chart factor > shock.svg")]
struct FigureArguments {
    /// What `icecore lab run NAME --json` printed
    #[arg(value_name = "FILE")]
    result: PathBuf,

    /// The chart to draw; a wrong name lists those that there are
    #[arg(long, value_name = "NAME")]
    chart: Option<String>,
}

pub fn run(arguments: &Cli) -> anyhow::Result<()> {
    match &arguments.command {
        LabCommand::List(arguments) => list(arguments),
        LabCommand::Run(arguments) => run_experiment(arguments),
        LabCommand::Report(arguments) => report::run(arguments),
        LabCommand::Compare(arguments) => compare::run(arguments),
        LabCommand::Size(arguments) => size::run(arguments),
        LabCommand::Doctor(arguments) => doctor::run(arguments),
        LabCommand::Guest(arguments) => guest::build(arguments),
        LabCommand::Figure(arguments) => draw(arguments),
        LabCommand::Demo(arguments) => demo::run(arguments),
        LabCommand::Completions(arguments) => generate::completions(arguments, command()),
        LabCommand::Man(arguments) => generate::man(arguments, command()),
        LabCommand::Child => child::serve().map_err(with_exit_code),
    }
}

/// An error of the store keeps its exit code.
pub fn with_exit_code(error: icecore_lab::Error) -> anyhow::Error {
    match error {
        icecore_lab::Error::Store(error) => Failure::from(error).into(),
        icecore_lab::Error::Side { side, source, detail } => match *source {
            icecore_lab::Error::Store(error) => {
                let Failure { code, message } = Failure::from(error);
                Failure::new(code, format!("{side} failed: {message}{detail}")).into()
            }
            source => icecore_lab::Error::Side { side, source: Box::new(source), detail }.into(),
        },
        other => other.into(),
    }
}

fn list(arguments: &ListArguments) -> anyhow::Result<()> {
    let mut output = Output::new();
    let groups = [
        (Group::Study, "study", "Studies: `icecore lab run all` runs them all"),
        (Group::Store, "store", "Of the store itself"),
    ];
    for (place, (group, word, title)) in groups.into_iter().enumerate() {
        // For people the group stands above the table.
        let columns = if arguments.no_header { &["NAME", "ABOUT", "GROUP"][..] } else { &["NAME", "ABOUT"] };
        let mut table = Table::new(columns.iter().map(|header| ((*header).to_owned(), Align::Left)));
        for experiment in EXPERIMENTS.iter().filter(|experiment| experiment.group == group) {
            let cells = [experiment.name, experiment.about, word];
            table.row(cells[..columns.len()].iter().map(|cell| (*cell).to_owned()).collect());
        }
        if !arguments.no_header {
            output.line(format!("{}{title}:", if place > 0 { "\n" } else { "" }))?;
        }
        table.print(&mut output, arguments.no_header)?;
    }
    output.finish()
}

/// How the command line wants experiments to run. Signals are held back from now on.
fn options(arguments: &RunArguments) -> anyhow::Result<Options> {
    let mut options = Options::new(&arguments.directory);
    options.pairs = arguments.pairs.map(usize::from);
    options.duration = arguments.minutes.map(|minutes| Duration::from_secs(minutes * 60));
    options.only.clone_from(&arguments.only);
    options.systems.clone_from(&arguments.systems);
    options.iterations = arguments.iterations;
    options.size = arguments.size;
    options.tool = arguments.tool.unwrap_or_default();
    options.server = arguments.server.unwrap_or_default();
    options.rate = arguments.rate;
    options.time_limit = Duration::from_secs(arguments.time_limit);
    arguments.traces.apply(&mut options);
    let time_scale = arguments.time_scale.unwrap_or(1.0);
    options.disk = arguments.disk.map(|disk| HardDisk { time_scale, ..disk });
    options.guest = arguments.guest.chosen()?;
    options.device.clone_from(&arguments.device);
    options.quick = arguments.quick;
    options.seed = arguments.seed.unwrap_or(options.seed);
    supervise(&mut options);
    Ok(options)
}

/// What a run says at the first signal. Removing takes seconds: a user who sees nothing sends another one.
const STOPPING: &str = "stopping: this run removes its mounts, servers and files; another signal ends it at \
                        once, and leaves them";

/// Shows steps on standard error, so that a run of hours can be followed in a log, too. Signals are held back
/// from now on.
fn supervise(options: &mut Options) {
    options.progress = Arc::new(|line| {
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    });
    interrupt::defer();
    let said = Once::new();
    options.stop = Arc::new(move || {
        let is_caught = interrupt::caught().is_some();
        if is_caught {
            said.call_once(|| all::line(STOPPING));
        }
        is_caught
    });
}

/// A run that a signal stopped ends the program by that signal.
fn stopped(error: icecore_lab::Error) -> anyhow::Error {
    match interrupt::caught() {
        Some(signal) if matches!(error, icecore_lab::Error::Stopped) => {
            exit::Silent(interrupt::end(signal)).into()
        }
        _ => with_exit_code(error),
    }
}

fn run_experiment(arguments: &RunArguments) -> anyhow::Result<()> {
    if arguments.name == all::ALL {
        all::check(arguments)?;
        confirm_device(arguments)?;
        return all::run(arguments);
    }
    check::arguments(arguments)?;
    confirm_device(arguments)?;
    let options = options(arguments)?;
    if let Some(time) = icecore_lab::expected::of(&arguments.name, &options) {
        let (name, time) = (&arguments.name, all::minutes(time));
        all::line(&format!("{name} takes about {time} with all systems at their usual sizes"));
    }
    let report = icecore_lab::run(&arguments.name, &options).map_err(stopped)?;
    let mut output = Output::new();
    if arguments.json {
        output.line(report.to_json().trim_end())?;
    } else {
        output.line(report.summary().trim_end())?;
        for sentence in page::sentences(&report) {
            output.line(sentence)?;
        }
    }
    output.finish()
}

/// Less than this leaves nothing to update.
const FILE_BYTES_MIN: u64 = 8 << 20;

/// Has a person agree to the use of a disk.
fn confirm_device(arguments: &RunArguments) -> anyhow::Result<()> {
    let Some(path) = &arguments.device else { return Ok(()) };
    let disk = EmptyDisk::examine(path)?;
    if arguments.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(exit::usage(format!(
            "{disk} would get a file system: --yes agrees to that without a terminal"
        )));
    }
    let mut stderr = std::io::stderr().lock();
    write!(
        stderr,
        "{disk} gets a file system, and what is on it is lost.\nType {} to go on: ",
        path.display()
    )?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    anyhow::ensure!(answer.trim() == path.to_string_lossy(), "nothing was done to {disk}");
    Ok(())
}

fn tool(text: &str) -> Result<LoadTool, String> {
    LoadTool::named(text)
        .ok_or_else(|| format!("choose from {}", LoadTool::ALL.map(LoadTool::name).join(", ")))
}

fn server(text: &str) -> Result<DatabaseServer, String> {
    DatabaseServer::named(text)
        .ok_or_else(|| format!("choose from {}", DatabaseServer::ALL.map(DatabaseServer::name).join(", ")))
}

fn disk(text: &str) -> Result<HardDisk, String> {
    HardDisk::named(text).ok_or_else(|| format!("choose one of {}", model::NAMES.join(", ")))
}

fn time_scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale) if (0.001..=100.0).contains(&scale) => Ok(scale),
        _ => Err("write a number from 0.001 to 100".to_owned()),
    }
}

fn parse_file_size(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text)?.get();
    if bytes < FILE_BYTES_MIN {
        Err("a file of less than 8M shows nothing: choose more".to_owned())
    } else {
        Ok(bytes)
    }
}

/// The experiment whose picture needs no `--chart`.
const DRAWN_WITHOUT_CHART: &str = "valuation-store";

fn names(charts: &[Chart]) -> String {
    charts.iter().map(|chart| chart.id.as_str()).collect::<Vec<_>>().join(", ")
}

fn draw(arguments: &FigureArguments) -> anyhow::Result<()> {
    let report = read(&arguments.result)?;
    let svg = match &arguments.chart {
        None if report.experiment == DRAWN_WITHOUT_CHART => {
            figure::time_per_iteration(&report).map_err(with_exit_code)?
        }
        None => {
            let (name, charts) = (&report.experiment, charts::of(&report));
            return Err(exit::usage(format!("{name} needs --chart: choose one of {}", names(&charts))));
        }
        Some(wanted) => {
            let charts = charts::of(&report);
            let found = charts.iter().find(|chart| chart.id == *wanted);
            let missing =
                || exit::usage(format!("there is no chart {wanted:?}: choose one of {}", names(&charts)));
            figure::svg(found.ok_or_else(missing)?)
        }
    };
    let mut output = Output::new();
    output.line(svg.trim_end())?;
    output.finish()
}

/// The result in a file.
fn read(path: &Path) -> anyhow::Result<Report> {
    Report::read(path).map_err(with_exit_code)
}

#[cfg(test)]
mod documents_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn options_of_the_demonstration_have_descriptions_and_variables() {
        let whole = command();
        let demo = whole.find_subcommand("demo").unwrap();
        for arg in demo.get_arguments().filter(|arg| arg.get_long().is_some_and(|long| long != "help")) {
            let variable = arg.get_env().and_then(|name| name.to_str()).unwrap_or_default();
            assert!(arg.get_help().is_some() && variable.starts_with("ICECORE_DEMO_"), "{arg:?}");
        }
    }
}
