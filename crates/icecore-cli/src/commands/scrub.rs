//! `icecore scrub`

use super::{finish, take};
use crate::format;
use crate::output::Output;
use crate::pool::{Context, open_to_read};
use crate::progress::Progress;
use clap::Args;
use icecore::admin::{ErrorCode, Failure, Request, Response};
use icecore::units::ByteLength;
use icecore::{Finding, ScrubReport};
use serde_json::json;
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
Reads everything that any version reaches and compares it with its checksums.
Nothing is changed. Each place that is damaged is printed, and the exit code
is 5.

Example:
  icecore scrub /srv/pool")]
pub struct Arguments {
    /// The pool, if -P does not name it
    #[arg(value_name = "FOLDER")]
    folder: Option<OsString>,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let pool = context.pool_or(arguments.folder.as_deref())?;
    let mut access = open_to_read(&pool)?;
    let progress = Progress::new("scrubbing", 0);
    let response = access.call_with(Request::Scrub, &mut |now| {
        progress.set_total(now.total);
        progress.set(now.done);
    });
    drop(progress);
    let report = take!(finish(access, response)?, Response::Scrubbed(report) => report);
    if arguments.json {
        let findings: Vec<_> = report.findings.iter().map(document).collect();
        let body = json!({
            "verified_bytes": report.verified,
            "damaged_blocks": report.damaged,
            "findings": findings,
            "complete": report.complete,
        });
        let mut output = Output::new();
        output.document("scrub", &pool, body)?;
        output.finish()?;
    } else {
        print(&report)?;
    }
    verdict(&report)
}

fn document(finding: &Finding) -> serde_json::Value {
    json!({
        "damage": finding.damage,
        "versions": finding.versions,
        "inode": finding.file.map(|(inode, _)| inode),
        "offset": finding.file.map(|(_, offset)| offset),
    })
}

fn print(report: &ScrubReport) -> anyhow::Result<()> {
    let mut output = Output::new();
    for finding in &report.findings {
        output.line(&finding.damage)?;
        if let Some((inode, offset)) = finding.file {
            output.line(format!("  in the file with inode {inode}, at offset {offset}"))?;
        }
        for version in &finding.versions {
            output.line(format!("  seen by {version}"))?;
        }
    }
    let verdict = match report.damaged {
        0 => "no damage".to_owned(),
        1 => "1 block is damaged".to_owned(),
        count => format!("{count} blocks are damaged"),
    };
    output.line(format!("verified {}: {verdict}", format::size(ByteLength(report.verified))))?;
    output.finish()
}

fn verdict(report: &ScrubReport) -> anyhow::Result<()> {
    if report.damaged > 0 {
        let blocks =
            if report.damaged == 1 { "1 block is" } else { &format!("{} blocks are", report.damaged) };
        let message = format!("{blocks} damaged: restore what sees them from a copy, or destroy it");
        return Err(Failure::new(ErrorCode::Damaged, message).into());
    }
    anyhow::ensure!(report.complete, "the scrub was cut off: the owner of the pool closes it");
    Ok(())
}
