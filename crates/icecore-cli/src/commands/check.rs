//! `icecore check`

use crate::exit;
use crate::format;
use crate::output::Output;
use crate::owner::waited_for_command;
use crate::pool::Context;
use crate::progress::Progress;
use clap::Args;
use icecore::Error;
use icecore::admin::{ErrorCode, Failure};
use icecore::check::{self, CheckOptions, CheckProgress, CheckReport, RepairOptions, RepairReport};
use icecore::units::ByteLength;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Args, Debug)]
#[command(after_help = "\
Walks the tree of every version and compares it with everything that is kept
as a set, a map or a count: what versions own, where blocks lie, how much
lives in each segment, names, quotas. With --data, reads all data as well. The
pool must not be open anywhere, and stays as it is: where it was not closed
cleanly, the recovery happens in memory. A program may open it meanwhile: then
the check ends with exit code 4, and has nothing to report.

The exit code is 5 if anything is lost, or would be. What is harmless (a
superblock whose twin is whole, a node whose copy is) is listed, too.

--repair makes again what follows from something else: a superblock from its
twin, what has a second copy from that, the last checkpoint from the one before
it, or an earlier one, and the log, the location map from what segments say of
themselves, the sets of versions from their trees. Everything is done and
checked in memory first. What is overwritten is kept in a file before-repair.0
of the pool's folder. What it lists afterwards is gone. Have a copy of
the folder nevertheless.

A pool that was not closed and whose log since the last checkpoint is damaged,
or partly missing, is not opened: what was committed after the damage could be
lost without a word. Have the file back, if there is a copy of it somewhere. If
there is none, --repair says what is at stake, and --repair --cut-log has the
log end before the damage.

Examples:
  icecore check --data /srv/pool
  icecore check --repair --dry-run /srv/pool")]
pub struct Arguments {
    /// The pool, if -P does not name it
    #[arg(value_name = "FOLDER")]
    folder: Option<OsString>,

    /// Read all data, and compare it with its checksums
    #[arg(long)]
    data: bool,

    /// Make again what can be made again
    #[arg(long)]
    repair: bool,

    /// With --repair: only say what would be done
    #[arg(short = 'n', long, requires = "repair")]
    dry_run: bool,

    /// With --repair: where the log is damaged and the pool cannot be opened otherwise, give up what came
    /// after that
    #[arg(long, requires = "repair")]
    cut_log: bool,

    /// With --repair: the folder with the copies of the pool, where both superblocks are lost
    #[arg(long, value_name = "FOLDER", requires = "repair")]
    mirror: Option<PathBuf>,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let folder = arguments.folder.as_deref();
    let pool = if arguments.repair { context.lost_pool_or(folder)? } else { context.pool_or(folder)? };
    if arguments.dry_run && !arguments.repair {
        return Err(exit::usage("--dry-run needs --repair"));
    }
    let progress = Progress::new("checking", 0);
    let mut tell = |now: CheckProgress| match now {
        CheckProgress::Versions(..) => {}
        CheckProgress::Data(now) => {
            progress.set_total(now.total);
            progress.set(now.done);
        }
    };
    if arguments.repair {
        let mirror = arguments.mirror.as_deref().map(super::copies::absolute).transpose()?;
        let Arguments { dry_run, data, cut_log, .. } = *arguments;
        let options = RepairOptions { dry_run, data, cut_log, mirror };
        let report = alone(&pool, || check::repair_directory(&pool, &options, &mut tell))?;
        drop(progress);
        return repaired(&pool, arguments, &report);
    }
    let options = CheckOptions { data: arguments.data };
    let report = alone(&pool, || check::check_directory(&pool, &options, &mut tell))?;
    drop(progress);
    let mut output = Output::new();
    if arguments.json {
        output.document("check", &pool, document(&report))?;
    } else {
        problems(&report, &mut output)?;
        output.line(summary(&report))?;
    }
    output.finish()?;
    verdict(&report)
}

/// Works on a pool that no other process has open. A command that has it for a moment is waited for. That the
/// owner could be asked is no help here.
fn alone<T>(pool: &Path, mut work: impl FnMut() -> icecore::Result<T>) -> Result<T, Failure> {
    let begin = Instant::now();
    loop {
        return match work() {
            Err(Error::PoolInUse { .. }) if waited_for_command(pool, begin) => continue,
            Err(Error::PoolInUse { path, owner, .. }) => {
                let way_out =
                    "a check needs a pool that no process has open: end that process first".to_owned();
                Err(Error::PoolInUse { path, owner, way_out }.into())
            }
            outcome => outcome.map_err(Failure::from),
        };
    }
}

fn repaired(pool: &Path, arguments: &Arguments, report: &RepairReport) -> anyhow::Result<()> {
    let mut output = Output::new();
    if arguments.json {
        let body = json!({
            "before": document(&report.before),
            "steps": report.steps,
            "refused": report.refused,
            "given_up": report.given_up,
            "after": document(&report.after),
            "changed_blocks": report.changed_blocks,
            "kept_aside": report.kept_aside,
            "dry_run": arguments.dry_run,
        });
        output.document("check", pool, body)?;
    } else {
        problems(&report.before, &mut output)?;
        for step in &report.steps {
            let verb = if arguments.dry_run { "would be mended" } else { "mended" };
            output.line(format!("{verb}: {step}"))?;
        }
        for line in &report.given_up {
            let verb = if arguments.dry_run { "would be given up" } else { "given up" };
            output.line(format!("{verb}: {line}"))?;
        }
        for refused in &report.refused {
            output.line(format!("not mended: {refused}"))?;
        }
        if let Some(name) = &report.kept_aside {
            let written = match report.changed_blocks {
                1 => "1 block was written; what it held".to_owned(),
                count => format!("{count} blocks were written; what they held"),
            };
            output.line(format!("{written} is in {name}"))?;
        }
        if !report.steps.is_empty() && report.after.count > 0 {
            output.line("left afterwards:")?;
            problems(&report.after, &mut output)?;
        }
        output.line(summary(&report.after))?;
    }
    output.finish()?;
    if !report.given_up.is_empty() && report.after.is_sound() {
        let message = "the pool is sound, without what its log lost";
        return Err(Failure::new(ErrorCode::Damaged, message).into());
    }
    verdict(&report.after)
}

fn problems(report: &CheckReport, output: &mut Output) -> anyhow::Result<()> {
    for problem in &report.problems {
        let harmless = if problem.harmless { " (harmless)" } else { "" };
        output.line(format!("{}: {}{harmless}", problem.area.name(), problem.what))?;
        for version in &problem.versions {
            output.line(format!("  seen by {version}"))?;
        }
    }
    Ok(())
}

fn summary(report: &CheckReport) -> String {
    if !report.opened {
        return "the pool cannot be opened".to_owned();
    }
    let verdict = match report.count {
        0 => "nothing is wrong".to_owned(),
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    let verified = match report.verified {
        0 => String::new(),
        bytes => format!(", {} of data", format::size(ByteLength(bytes))),
    };
    format!("checked {} versions, {} blocks{verified}: {verdict}", report.versions, report.blocks)
}

fn document(report: &CheckReport) -> Value {
    let problems: Vec<Value> = report
        .problems
        .iter()
        .map(|problem| {
            json!({
                "area": problem.area.name(),
                "what": problem.what,
                "versions": problem.versions,
                "harmless": problem.harmless,
            })
        })
        .collect();
    json!({
        "opened": report.opened,
        "was_clean": report.was_clean,
        "sound": report.is_sound(),
        "versions": report.versions,
        "blocks": report.blocks,
        "verified_bytes": report.verified,
        "problem_count": report.count,
        "problems": problems,
    })
}

fn verdict(report: &CheckReport) -> anyhow::Result<()> {
    if report.is_sound() {
        return Ok(());
    }
    let message = "the pool is damaged: see docs/guide/failing-disk.md for what to do";
    Err(Failure::new(ErrorCode::Damaged, message).into())
}
