//! `icecore lab`

use crate::exit;
use anyhow::Context as _;
use clap::{Args, Subcommand};
use icecore_lab::targets::Direction;
use icecore_lab::{EXPERIMENTS, Options, Report};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

#[derive(Args, Debug)]
pub struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Run an experiment and print what it found
    Run(RunArguments),
    /// List the experiments
    List,
    /// Draw time per iteration from a result of the experiment valuation
    Figure(FigureArguments),
    /// What the lab starts itself for
    #[command(hide = true)]
    Child,
}

#[derive(Args, Debug)]
#[command(after_help = "\
Runs Icecore and the plain filesystem side by side, in interleaved pairs, and
says of each figure what it is, how sure that is (95 %), what it should be, and
whether it is. Everything is made in a temporary folder of --dir.

Examples:
  icecore lab run commits --dir /srv
  icecore lab run valuation --dir /srv --json > valuation.json")]
struct RunArguments {
    /// The experiment: `icecore lab list` shows them
    #[arg(value_name = "NAME")]
    name: String,

    /// Folder on the filesystem to measure
    #[arg(long, value_name = "FOLDER", env = "ICECORE_DIR", default_value = ".")]
    dir: PathBuf,

    /// Rounds of interleaved runs
    #[arg(long, value_name = "N", env = "ICECORE_PAIRS")]
    pairs: Option<usize>,

    /// Small and short: tries the experiment out, its figures mean nothing
    #[arg(long, env = "ICECORE_QUICK")]
    quick: bool,

    /// Seed of workloads and intervals
    #[arg(long, value_name = "N", env = "ICECORE_SEED")]
    seed: Option<u64>,

    /// Print the JSON document that docs/lab-schema.json describes
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
struct FigureArguments {
    /// A document that `lab run valuation --json` printed
    #[arg(value_name = "RESULT.json")]
    result: PathBuf,

    /// The picture to write
    #[arg(value_name = "OUT.svg")]
    picture: PathBuf,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.action {
        Action::Run(arguments) => experiment(arguments),
        Action::List => list(),
        Action::Figure(arguments) => figure(arguments),
        Action::Child => Ok(icecore_lab::child::serve()?),
    }
}

fn experiment(arguments: &RunArguments) -> anyhow::Result<()> {
    let known = EXPERIMENTS.iter().any(|experiment| experiment.name == arguments.name);
    if !known {
        let message = format!("there is no experiment {:?} (`icecore lab list` shows them)", arguments.name);
        return Err(exit::usage(message));
    }
    let mut options = Options::new(&arguments.dir);
    options.pairs = arguments.pairs;
    options.quick = arguments.quick;
    if let Some(seed) = arguments.seed {
        options.seed = seed;
    }
    options.progress = Arc::new(|line| {
        let _ = writeln!(std::io::stderr().lock(), "{line}");
    });
    let report = icecore_lab::run(&arguments.name, &options)?;
    let mut out = std::io::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut out, &report)?;
        writeln!(out)?;
    } else {
        print(&report, &mut out)?;
    }
    Ok(())
}

fn print(report: &Report, out: &mut impl std::io::Write) -> anyhow::Result<()> {
    writeln!(out, "{:28} {:>10} {:>21}  {:>10}", "CHECK", "VALUE", "95 % INTERVAL", "TARGET")?;
    for check in &report.checks {
        let bound = match check.direction {
            Direction::AtMost => "<=",
            Direction::AtLeast => ">=",
        };
        let verdict = if check.met { "met" } else { "NOT MET" };
        let interval = format!("{:.3} to {:.3}", check.low, check.high);
        let target = format!("{bound} {}", check.target);
        writeln!(out, "{:28} {:>10.3} {interval:>21}  {target:>10}  {verdict}", check.name, check.value)?;
    }
    Ok(())
}

fn list() -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for experiment in EXPERIMENTS {
        writeln!(out, "{:20} {}", experiment.name, experiment.about)?;
    }
    Ok(())
}

fn figure(arguments: &FigureArguments) -> anyhow::Result<()> {
    let path = &arguments.result;
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let report: Report = serde_json::from_str(&text)
        .with_context(|| format!("{} is not a result of the lab", path.display()))?;
    let picture = icecore_lab::figure::time_per_iteration(&report)?;
    let out = &arguments.picture;
    std::fs::write(out, picture).with_context(|| format!("cannot write {}", out.display()))
}
