//! `icecore scrub`

use super::{finish, take};
use crate::exit;
use crate::format;
use crate::interrupt;
use crate::output::Output;
use crate::pool::{Context, open_to_read, open_to_tend};
use crate::progress::Progress;
use clap::Args;
use icecore::admin::{Access, ErrorCode, Failure, Request, Response};
use icecore::units::ByteLength;
use icecore::{Finding, ScrubOptions, ScrubReport};
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::thread;
use std::time::Duration;

/// How long a program that wants the pool has to open it.
const HANDOVER: Duration = Duration::from_secs(1);

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

It pauses for others that use the pool, unless --full-speed is given. One that
was cut off, by Ctrl-C or by a program that closed the pool, goes on where it
was, unless --restart is given. `icecore status` shows how far it is.

Where the pool is not open, the scrub opens it, and other commands work on it
meanwhile. A program that opens the pool itself, such as a database, gets it at
once, and the scrub goes on through that program. What opening the pool mended
is reported, too. Run it as the user that owns the pool's files. Where it may
not write it only reads, and says so.

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
    let options = ScrubOptions {
        bytes_per_second: rate.map(ByteLength::get),
        yields: !arguments.full_speed,
        keeps_position: true,
        restarts: arguments.restart,
        tells_opening: false,
    };
    let report = scrub(&pool, options)?;
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

/// Scrubs, and makes way for a program that opens the pool meanwhile: the scrub goes on through that program.
fn scrub(pool: &Path, mut options: ScrubOptions) -> anyhow::Result<ScrubReport> {
    let (access, reads_only) = open_to_tend(pool)?;
    if let Some(why) = reads_only {
        exit::tell(&anyhow::anyhow!("the pool is only read, and nothing is healed: {why}"));
    }
    let Some(opened) = access.pool().cloned() else {
        return ask(access, options, &|| true);
    };
    // The owner of the pool has to close it, and to keep where it was.
    interrupt::defer();
    options.tells_opening = true;
    let (is_wanted, begun) = (Arc::new(AtomicBool::new(false)), Once::new());
    let report = ask(access, options, &|| {
        // Before it reports progress it would not close the pool soon: the other program asks again.
        begun.call_once(|| {
            let is_wanted = Arc::clone(&is_wanted);
            opened.set_idle(Some(Arc::new(move || {
                is_wanted.store(true, Ordering::Relaxed);
                true
            })));
        });
        interrupt::caught().is_none() && !is_wanted.load(Ordering::Relaxed)
    })?;
    if report.complete || !is_wanted.load(Ordering::Relaxed) {
        return Ok(report);
    }
    exit::tell(&anyhow::anyhow!("another program opens the pool: the scrub goes on through it"));
    thread::sleep(HANDOVER);
    let options = ScrubOptions { restarts: false, tells_opening: false, ..options };
    match through_owner(pool, options) {
        Ok(Some(rest)) => Ok(joined(report, rest)),
        Ok(None) => Ok(report),
        Err(error) => {
            exit::tell(&error);
            Ok(report)
        }
    }
}

/// Goes on through the process that has the pool open; `None` if there is none that can be asked.
fn through_owner(pool: &Path, options: ScrubOptions) -> anyhow::Result<Option<ScrubReport>> {
    if interrupt::caught().is_some() {
        return Ok(None);
    }
    let access = open_to_read(pool)?;
    if !access.is_remote() {
        access.close()?;
        return Ok(None);
    }
    let report = ask(access, options, &|| {
        if let Some(signal) = interrupt::caught() {
            // Nothing is to be put in order here.
            interrupt::end(signal);
        }
        true
    })?;
    Ok(Some(report))
}

fn ask(mut access: Access, options: ScrubOptions, goes_on: &dyn Fn() -> bool) -> anyhow::Result<ScrubReport> {
    let progress = Progress::new("scrubbing", 0);
    let response = access.call_while(Request::Scrub(options), &mut |now| {
        progress.set_total(now.total);
        progress.set(now.done);
        goes_on()
    });
    drop(progress);
    Ok(take!(finish(access, response)?, Response::Scrubbed(report) => report))
}

/// Of both parts. The second one finds damage again, and nothing that the first one healed.
fn joined(first: ScrubReport, mut rest: ScrubReport) -> ScrubReport {
    let is_new = |finding: &Finding| !rest.findings.iter().any(|known| known.damage == finding.damage);
    let healed: Vec<_> =
        first.findings.into_iter().filter(|finding| finding.spare && is_new(finding)).collect();
    rest.spare += healed.iter().map(|finding| finding.blocks).sum::<u64>();
    rest.findings.extend(healed);
    rest
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
    let unlisted = report.unlisted();
    if unlisted > 0 {
        let listed = report.findings.len();
        output.line(format!(
            "{unlisted} more blocks or places are not listed: only the first {listed} stretches are"
        ))?;
    }
    let verdict = match report.damaged {
        0 => "no damage".to_owned(),
        1 => "1 block is damaged".to_owned(),
        count => format!("{count} blocks are damaged"),
    };
    if report.spare > 0 {
        let places = if report.spare == 1 { "1 place is" } else { &format!("{} places are", report.spare) };
        output.line(format!("{places} damaged, and nothing is lost by that"))?;
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
    anyhow::ensure!(report.complete, "the scrub was cut off: the next one goes on from here");
    Ok(())
}
