//! `icecore copies`

use super::{finish, take};
use crate::exit;
use crate::output::Output;
use crate::pool::{Context, open_to_read, open_to_write};
use clap::Args;
use icecore::admin::{ErrorCode, Failure, Request, Response};
use icecore::{CopiesReport, CopyMode};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = "\
What is damaged and has a second copy is read from that, and written again.
Without an option, says what is copied, where to, and whether everything has
its copy.

  none      nothing is copied
  metadata  what files are found by: tree nodes and the ledger (the default)
  all       everything: twice the space, and twice the writing

Copies lie in the folder of the pool, or with --mirror in another one, which is
best on another disk; --here takes them back. When that folder is gone, full or
fails, the pool goes on without, and says so in status and monitor. Then, and
when it is back, --restore makes the copies that are missing; so does a scrub.

Example:
  icecore copies /srv/pool
  icecore copies --set all --mirror /mnt/other/copies /srv/pool
  icecore copies --restore /srv/pool")]
pub struct Arguments {
    /// The pool, if -P does not name it
    #[arg(value_name = "FOLDER")]
    folder: Option<OsString>,

    /// Change what is written twice: none, metadata or all
    #[arg(long, value_name = "WHAT", value_parser = parse_mode)]
    set: Option<CopyMode>,

    /// Change the folder of the copies: made if it does not exist
    #[arg(long, value_name = "FOLDER", conflicts_with = "here")]
    mirror: Option<PathBuf>,

    /// Have the copies in the folder of the pool
    #[arg(long)]
    here: bool,

    /// Make the copies that are missing
    #[arg(long)]
    restore: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

/// What is to be copied.
pub fn parse_mode(text: &str) -> Result<CopyMode, String> {
    CopyMode::from_name(text).ok_or_else(|| "none, metadata or all".to_owned())
}

/// The path of a folder that exists, as the pool remembers it.
pub fn absolute(folder: &Path) -> anyhow::Result<String> {
    let path = folder.canonicalize().map_err(|error| {
        Failure::new(ErrorCode::Invalid, format!("the folder for copies, {}: {error}", folder.display()))
    })?;
    let text = path.into_os_string().into_string();
    text.map_err(|_| exit::usage("the path of the folder for copies has to be UTF-8"))
}

/// As [`absolute`], of one that is made if it does not exist.
pub fn made(folder: &Path) -> anyhow::Result<String> {
    match std::fs::create_dir(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            let message = format!("cannot make the folder for copies, {}: {error}", folder.display());
            Err(Failure::new(ErrorCode::Invalid, message).into())
        }
        _ => absolute(folder),
    }
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let pool = context.pool_or(arguments.folder.as_deref())?;
    let changes = arguments.set.is_some() || arguments.mirror.is_some() || arguments.here;
    let mut access = if changes || arguments.restore { open_to_write(&pool)? } else { open_to_read(&pool)? };
    let outcome = (|| {
        let mut report = take!(access.call(Request::Copies)?, Response::Copies(report) => report);
        if changes {
            let present = CopyMode::from_name(&report.mode).unwrap_or_default();
            // A folder for copies is a wish for some.
            let implied = if present == CopyMode::None { CopyMode::Metadata } else { present };
            let mode = arguments.set.unwrap_or(implied);
            let folder = match &arguments.mirror {
                Some(folder) => Some(made(folder)?),
                None if arguments.here || mode == CopyMode::None => None,
                None => report.folder.clone(),
            };
            let request = Request::SetCopies { mode, folder };
            report = take!(access.call(request)?, Response::Copies(report) => report);
        }
        if arguments.restore {
            report = take!(access.call(Request::RestoreCopies)?, Response::Copies(report) => report);
        }
        Ok(report)
    })();
    let report = finish(access, outcome)?;
    let mut output = Output::new();
    if arguments.json {
        let body = json!({
            "mode": report.mode,
            "folder": report.folder,
            "whole": report.is_whole(),
            "degraded_since": report.degraded_since.map(|since| since.to_rfc3339()),
            "why": report.why,
            "missing_segments": report.missing,
            "behind": report.behind,
        });
        output.document("copies", &pool, body)?;
    } else {
        output.line(sentence(&report))?;
    }
    output.finish()
}

/// How copies stand, in a line.
pub fn sentence(report: &CopiesReport) -> String {
    if report.mode == CopyMode::None.name() {
        return "none".to_owned();
    }
    let folder = report.folder.as_ref().map_or_else(String::new, |folder| format!(" in {folder}"));
    let stand = match report.degraded_since {
        None => "everything has its copy".to_owned(),
        Some(since) => {
            let what = match report.missing {
                _ if report.behind => ", no copy counts".to_owned(),
                0 => String::new(),
                1 => ", 1 segment has no copy".to_owned(),
                missing => format!(", {missing} segments have no copy"),
            };
            let why = report.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            format!("DEGRADED since {}{what}{why}", since.to_rfc3339())
        }
    };
    format!("{}{folder}: {stand}", report.mode)
}
