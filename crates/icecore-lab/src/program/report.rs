//! `icecore lab report`

use super::{read, with_exit_code};
use crate::output::say;
use anyhow::Context as _;
use clap::Args;
use icecore_lab::page::{self, Document};
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = "\
The page holds everything: it needs no network and no other file. Names of
files become names of results.

Example:
  icecore lab report shock.json blog.json -o report.html")]
pub struct Arguments {
    /// What `icecore lab run NAME --json` printed
    #[arg(value_name = "FILE", required = true)]
    results: Vec<PathBuf>,

    /// Where to write the page
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: PathBuf,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let document = |path: &PathBuf| {
        let report = read(path)?;
        let name = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        Ok(Document { name, report })
    };
    let documents: Vec<Document> = arguments.results.iter().map(document).collect::<anyhow::Result<_>>()?;
    let page = page::render(&documents, &[]).map_err(with_exit_code)?;
    let output = arguments.output.display();
    std::fs::write(&arguments.output, page).with_context(|| format!("cannot write {output}"))?;
    let count = documents.len();
    say(format!("{output}: {count} result{}", if count == 1 { "" } else { "s" }))
}
