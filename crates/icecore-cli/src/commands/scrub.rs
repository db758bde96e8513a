//! `icecore scrub`

use super::{finish, take};
use crate::exit;
use crate::format;
use crate::interrupt;
use crate::output::Output;
use crate::pool::{Context, open_to_tend};
use crate::progress::Progress;
use clap::Args;
use icecore::admin::{ErrorCode, Failure, Request, Response};
use icecore::units::ByteLength;
use icecore::{Finding, ScrubOptions, ScrubReport};
use serde_json::json;
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
Reads everything that any version reaches, and everything that vouches for it
(headers, checksum tables, ledger, superblocks), and compares it with its
checksums. What is damaged and has a second copy is written again from it, and
copies that are missing are made; nothing else is changed. Each stretch that is
damaged is printed, with its file, the bytes in it and every version that sees
it, and the exit code is 5. `db@one%nine` are the snapshots from one to the
other, as `icecore destroy` takes them.
Places of which nothing is lost (a superblock whose twin is whole, what was
healed) are printed, too, and are no failure.

It makes room for whoever uses the pool, unless --full-speed is given. One that
was cut off, by the program that has the pool open or by Ctrl-C, goes on where
it was, unless --restart is given. `icecore status` shows how far it is.

If nobody has the pool open, the scrub opens it, and other commands work on it
meanwhile; a program that opens it by itself is refused until it ends. What
opening it mended is told, too. Run it as the user that owns the pool's files.
Where it may not write it only reads, and says so.

Example:
  icecore scrub --rate 100M /srv/pool")]
pub struct Arguments {
    /// The pool, if -P does not name it
    #[arg(value_name = "FOLDER")]
    folder: Option<OsString>,

    /// Most bytes to read in a second
    #[arg(long, value_name = "SIZE")]
    rate: Option<String>,

    /// Do not pause for others that use the pool
    #[arg(long)]
    full_speed: bool,

    /// Begin anew, although one was cut off
    #[arg(long)]
    restart: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let pool = context.pool_or(arguments.folder.as_deref())?;
    let rate = arguments.rate.as_deref().map(format::parse_size).transpose();
    let rate = rate.map_err(|why| exit::usage(format!("--rate: {why}")))?;
    if rate == Some(ByteLength(0)) {
        return Err(exit::usage("--rate: with 0 bytes a second it would never end"));
    }
    let mut options = ScrubOptions {
        bytes_per_second: rate.map(ByteLength::get),
        yields: !arguments.full_speed,
        keeps_position: true,
        restarts: arguments.restart,
        tells_opening: false,
    };
    let (mut access, reads_only) = open_to_tend(&pool)?;
    if let Some(why) = reads_only {
        exit::tell(&anyhow::anyhow!("the pool is only read, and nothing is healed: {why}"));
    }
    if !access.is_remote() {
        options.tells_opening = true;
        // The owner of the pool has to close it, and to keep where it was.
        interrupt::defer();
    }
    let progress = Progress::new("scrubbing", 0);
    let response = access.call_while(Request::Scrub(options), &mut |now| {
        progress.set_total(now.total);
        progress.set(now.done);
        interrupt::caught().is_none()
    });
    drop(progress);
    let report = take!(finish(access, response)?, Response::Scrubbed(report) => report);
    if arguments.json {
        let findings: Vec<_> = report.findings.iter().map(document).collect();
        let body = json!({
            "verified_bytes": report.verified,
            "damaged_blocks": report.damaged,
            "harmless_places": report.spare,
            "began": report.resumed.map(|began| began.to_rfc3339()),
            "findings": findings,
            "unlisted_blocks": report.unlisted(),
            "complete": report.complete,
        });
        let mut output = Output::new();
        output.document("scrub", &pool, body)?;
        output.finish()?;
    } else {
        print(&report)?;
    }
    if let Some(signal) = interrupt::caught().filter(|_| !report.complete) {
        exit::tell(&anyhow::anyhow!("the scrub was cut off: the next one goes on from here"));
        return Err(exit::Silent(interrupt::end(signal)).into());
    }
    verdict(&report)
}

fn document(finding: &Finding) -> serde_json::Value {
    json!({
        "damage": finding.damage,
        "versions": finding.versions,
        "inode": finding.file.map(|(inode, _)| inode),
        "offset": finding.file.map(|(_, offset)| offset),
        "length": finding.file.map(|_| finding.length),
        "blocks": finding.blocks,
        "version_count": finding.version_count,
        "path": finding.path.as_ref().map(|path| format::escaped(path).to_string()),
        "hides": finding.hides,
        "harmless": finding.spare,
    })
}

fn print(report: &ScrubReport) -> anyhow::Result<()> {
    let mut output = Output::new();
    if let Some(began) = report.resumed {
        output.line(format!("goes on with the scrub that began {}", began.to_rfc3339()))?;
    }
    for finding in &report.findings {
        print_finding(finding, &mut output)?;
    }
    let untold = report.unlisted();
    if untold > 0 {
        let told = report.findings.len();
        output.line(format!(
            "{untold} more blocks or places are not listed: only the first {told} stretches are"
        ))?;
    }
    let verdict = match report.damaged {
        0 => "no damage".to_owned(),
        1 => "1 block is damaged".to_owned(),
        count => format!("{count} blocks are damaged"),
    };
    if report.spare > 0 {
        let places = if report.spare == 1 { "1 place is" } else { &format!("{} places are", report.spare) };
        output.line(format!("{places} hurt, and nothing is lost by that"))?;
    }
    output.line(format!("verified {}: {verdict}", format::size(ByteLength(report.verified))))?;
    output.finish()
}

fn print_finding(finding: &Finding, output: &mut Output) -> anyhow::Result<()> {
    let Finding { file, length, path, hides, versions, version_count, .. } = finding;
    output.line(finding.sentence())?;
    match (path, file) {
        (Some(path), Some((inode, offset))) => {
            let path = format::escaped(path);
            output.line(format!("  in {path} (inode {inode}): {length} bytes at offset {offset}"))?;
        }
        (None, Some((inode, offset))) => {
            output.line(format!("  in the file with inode {inode}: {length} bytes at offset {offset}"))?;
        }
        _ => {}
    }
    if let Some(hidden) = hides {
        output.line(format!("  hides {hidden}"))?;
    }
    for version in versions {
        output.line(format!("  seen by {version}"))?;
    }
    if *version_count > versions.len() as u64 {
        output.line(format!("  {version_count} versions in all"))?;
    }
    Ok(())
}

fn verdict(report: &ScrubReport) -> anyhow::Result<()> {
    if report.damaged > 0 {
        let blocks =
            if report.damaged == 1 { "1 block is" } else { &format!("{} blocks are", report.damaged) };
        let message = format!("{blocks} damaged: restore what sees them from a copy, or destroy it");
        return Err(Failure::new(ErrorCode::Damaged, message).into());
    }
    let cut_off = "the scrub was cut off: the owner of the pool closes it; the next one goes on from here";
    anyhow::ensure!(report.complete, cut_off);
    Ok(())
}
