//! `icecore lab doctor`

use super::with_exit_code;
use crate::interrupt;
use crate::output::{Align, Output, Table};
use clap::Args;
use icecore_lab::doctor::{self, Finding};
use serde_json::json;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  icecore lab doctor
  sudo icecore lab doctor --install")]
pub struct Arguments {
    /// A folder on the filesystem to measure
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    directory: PathBuf,

    /// Install the packages that lack, with apt-get (needs root)
    #[arg(long)]
    install: bool,

    /// Print what was found as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut findings = doctor::examine(&arguments.directory).map_err(with_exit_code)?;
    if arguments.install && !doctor::packages(&findings).is_empty() {
        // apt-get ends on Ctrl-C by itself; this program then has to clean up after it.
        interrupt::defer();
        doctor::install(&doctor::packages(&findings)).map_err(with_exit_code)?;
        findings = doctor::examine(&arguments.directory).map_err(with_exit_code)?;
    }
    let mut output = Output::new();
    if arguments.json {
        let body = json!({ "findings": findings, "packages": doctor::packages(&findings) });
        output.document("lab doctor", Path::new(""), body)?;
    } else {
        print(&mut output, &findings)?;
    }
    output.finish()
}

fn print(output: &mut Output, findings: &[Finding]) -> anyhow::Result<()> {
    let columns = ["NAME", "", "USED BY", "DETAIL"].map(|header| (header.to_owned(), Align::Left));
    let mut table = Table::new(columns);
    for finding in findings {
        let there = if finding.available { "yes" } else { "no" };
        table.row(vec![
            finding.name.clone(),
            there.to_owned(),
            finding.used_for.clone(),
            finding.detail.clone(),
        ]);
    }
    table.print(output, false)?;
    let packages = doctor::packages(findings);
    if !packages.is_empty() {
        output.line(format!("\nTo install what lacks: apt-get install {}", packages.join(" ")))?;
        output.line("or, as root: icecore lab doctor --install")?;
    }
    Ok(())
}
