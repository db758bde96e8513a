//! `icecore lab compare`

use super::{read, with_exit_code};
use crate::output::{Align, Output, Table};
use clap::Args;
use icecore_lab::compare::{Change, Comparison, compare};
use icecore_lab::figure::short;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = "\
The change of a system is the median of the second result over that of the
first, with a 95 % interval. That of a check spans all that its two intervals
allow. A change counts as clear when its interval does not hold 1.

Example:
  icecore lab compare before.json after.json")]
pub struct Arguments {
    /// The result to compare with
    #[arg(value_name = "FILE")]
    before: PathBuf,

    /// The result that may differ
    #[arg(value_name = "FILE")]
    after: PathBuf,

    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let (before, after) = (read(&arguments.before)?, read(&arguments.after)?);
    let names = [&arguments.before, &arguments.after].map(|path| path.display().to_string());
    let comparison = compare((&names[0], &before), (&names[1], &after)).map_err(with_exit_code)?;
    let mut output = Output::new();
    if arguments.json {
        output.line(serde_json::to_string_pretty(&comparison)?)?;
    } else {
        print(&mut output, &comparison)?;
    }
    output.finish()
}

fn print(output: &mut Output, comparison: &Comparison) -> anyhow::Result<()> {
    for note in &comparison.notes {
        output.line(note)?;
    }
    let columns = [
        ("NAME", Align::Left),
        ("BEFORE", Align::Right),
        ("AFTER", Align::Right),
        ("UNIT", Align::Left),
        ("CHANGE", Align::Right),
        ("INTERVAL", Align::Left),
        ("", Align::Left),
    ];
    let mut table = Table::new(columns.map(|(header, align)| (header.to_owned(), align)));
    for change in comparison.systems.iter().chain(&comparison.checks) {
        table.row(row(change));
    }
    table.print(output, false)?;
    for (name, document) in &comparison.only_in {
        output.line(format!("{name} is in {document} alone"))?;
    }
    Ok(())
}

fn row(change: &Change) -> Vec<String> {
    let times = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}x"));
    let interval = match (change.low, change.high) {
        (Some(low), Some(high)) => format!("[{low:.3}, {high:.3}]"),
        _ => "-".to_owned(),
    };
    vec![
        change.name.clone(),
        short(change.before),
        short(change.after),
        change.unit.clone(),
        times(change.ratio),
        interval,
        change.verdict.words().to_owned(),
    ]
}
