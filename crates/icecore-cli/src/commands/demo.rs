//! `icecore demo`

use crate::output::Output;
use crate::progress::Progress;
use anyhow::Context as _;
use clap::Args;
use icecore_lab::{DemoOptions, DemoProgress, DemoReport, DemoStep};
use serde_json::json;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = "\
Makes a pool in a temporary folder and grows a SQLite database in it through
95 transactions, with a snapshot after each. Then proves every snapshot:
integrity check, number of rows, and a checksum of the rows against what was
noted when it was taken. Beside it, the same work on the plain filesystem
without snapshots.

Examples:
  icecore demo
  icecore demo --keep --dir /srv")]
pub struct Arguments {
    /// Folder in which the temporary folder is made
    #[arg(long, value_name = "FOLDER", env = "ICECORE_DIR")]
    dir: Option<PathBuf>,

    /// Leave the pool behind, to play with
    #[arg(long)]
    keep: bool,

    /// Number of transactions, each followed by a snapshot
    #[arg(long, value_name = "N", default_value_t = DemoOptions::default().iterations)]
    iterations: u32,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let options = DemoOptions {
        directory: arguments.dir.clone(),
        keep: arguments.keep,
        iterations: arguments.iterations,
        ..DemoOptions::default()
    };
    let report = with_progress(&options)?;
    let mut output = Output::new();
    if arguments.json {
        let folder = report.kept.clone().unwrap_or_default();
        let succeeded = report.succeeded();
        output.document("demo", &folder, json!({ "succeeded": succeeded, "report": report }))?;
    } else {
        output.line(report.table())?;
    }
    output.finish()?;
    anyhow::ensure!(report.succeeded(), "a snapshot does not hold what it held when it was taken");
    Ok(())
}

fn with_progress(options: &DemoOptions) -> anyhow::Result<DemoReport> {
    let mut current: Option<(DemoStep, Progress)> = None;
    let report = icecore_lab::demo(options, &mut |now: DemoProgress| {
        if current.as_ref().is_none_or(|(step, _)| *step != now.step) {
            let what = match now.step {
                DemoStep::Plain => "plain filesystem",
                DemoStep::Stored => "pool, a snapshot each",
                DemoStep::Proof => "proving snapshots",
            };
            current = Some((now.step, Progress::steps(what, u64::from(now.of))));
        }
        if let Some((_, progress)) = &current {
            progress.set(u64::from(now.done));
        }
    });
    report.context("the demonstration failed")
}
