//! `icecore demo`

mod mounted;

use super::with_exit_code;
use crate::output::{Output, print_document};
use crate::progress::Progress;
use clap::Args;
use icecore_lab::{DemoOptions, DemoProgress, DemoReport, DemoStep};
use serde_json::Value;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = "\
Keeps 95 versions of a growing SQLite database, proves every one of them, and
compares the time with the plain filesystem. Ends with a file on a mount, where
the system has FUSE. Takes less than a minute and leaves nothing behind.

Example:
  icecore demo
  icecore demo --keep --directory /srv")]
pub struct Arguments {
    /// Where to make a temporary folder
    #[arg(long, value_name = "FOLDER")]
    directory: Option<PathBuf>,

    /// Leave the temporary folder behind, to play with
    #[arg(long)]
    keep: bool,

    /// Iterations, each followed by a snapshot
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(2..=10_000))]
    iterations: Option<u32>,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let usual = DemoOptions::default();
    let options = DemoOptions {
        directory: arguments.directory.clone(),
        keep: arguments.keep,
        iterations: arguments.iterations.unwrap_or(usual.iterations),
        ..usual
    };
    let mut bar: Option<(DemoStep, Progress)> = None;
    let report = icecore_lab::demo(&options, &mut |now| show(&mut bar, now)).map_err(with_exit_code)?;
    drop(bar);
    tell(&report, arguments.json)?;
    anyhow::ensure!(report.succeeded(), "a snapshot does not hold what was recorded when it was taken");
    if arguments.json {
        return Ok(());
    }
    let act = mounted::run(&options.directory.unwrap_or_else(std::env::temp_dir))?;
    let mut output = Output::new();
    output.line(act)?;
    output.finish()
}

/// One bar after the other, one for each step.
fn show(bar: &mut Option<(DemoStep, Progress)>, now: DemoProgress) {
    if bar.as_ref().is_none_or(|(step, _)| *step != now.step) {
        let what = match now.step {
            DemoStep::Plain => "the plain filesystem",
            DemoStep::Stored => "icecore, a snapshot each",
            DemoStep::Proof => "proving every snapshot",
        };
        *bar = None;
        *bar = Some((now.step, Progress::counting(what, now.of.into())));
    }
    if let Some((_, bar)) = bar {
        bar.set(now.done.into());
    }
}

fn tell(report: &DemoReport, json: bool) -> anyhow::Result<()> {
    if json {
        let folder = report.kept.as_deref().unwrap_or(Path::new(""));
        let mut body = serde_json::to_value(report)?;
        if let Value::Object(fields) = &mut body {
            fields.remove("pool").map(|figures| fields.insert("figures".into(), figures));
        }
        return print_document("demo", folder, body);
    }
    let mut output = Output::new();
    output.line(report.table().trim_end())?;
    if let Some(folder) = &report.kept {
        output.line(format!("kept in {}", folder.display()))?;
    }
    output.finish()
}
