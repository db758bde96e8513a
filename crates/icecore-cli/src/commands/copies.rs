//! `icecore copies`

use super::{finish, take};
use crate::exit;
use crate::output::Output;
use crate::pool::{Context, open_to_read, open_to_write};
use anyhow::Context as _;
use clap::Args;
use icecore::admin::{ErrorCode, Failure, Request, Response};
use icecore::{CopiesReport, CopyMode};
use icecore_fuse::mounting::{FILESYSTEM_TYPE, mounted_at};
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = "\
What is damaged and has a second copy is read from that, and written again.
Without an option, says what is copied, where to, and whether everything has
its copy.

  none      nothing is copied, and the folder of --mirror is forgotten
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

/// A folder for copies, which was made if it did not exist.
pub struct Made {
    /// As [`absolute`].
    pub path: String,
    is_new: bool,
}

impl Made {
    pub fn make(folder: &Path) -> anyhow::Result<Self> {
        let made = std::fs::create_dir(folder);
        if let Err(error) = &made
            && error.kind() != std::io::ErrorKind::AlreadyExists
        {
            let message = format!("cannot make the folder for copies, {}: {error}", folder.display());
            return Err(Failure::new(ErrorCode::Invalid, message).into());
        }
        Ok(Self { path: absolute(folder)?, is_new: made.is_ok() })
    }

    /// Refuses one on a mount of the pool: what is written to it would need copies of its own.
    fn refuse_mount_of(&self, pool: &Path) -> anyhow::Result<()> {
        let pool = pool.canonicalize().with_context(|| format!("cannot find {}", pool.display()))?;
        let mut mounts = Path::new(&self.path).ancestors().filter_map(|point| mounted_at(point).transpose());
        let nearest = mounts.next().transpose()?;
        if nearest.is_some_and(|mount| mount.kind == FILESYSTEM_TYPE && mount.source.starts_with(&pool)) {
            let message = format!(
                "the folder for copies, {}, is on a mount of the pool itself: choose one on another disk",
                self.path
            );
            return Err(Failure::new(ErrorCode::Invalid, message).into());
        }
        Ok(())
    }

    /// Removes it if it is new and nothing is in it, for what it was made for has failed.
    pub fn take_back(self) {
        if self.is_new {
            let _ = std::fs::remove_dir(self.path);
        }
    }
}

/// A folder for copies where nothing is to be copied is a mistake.
pub fn refuse_mirror_of_nothing(mode: CopyMode, mirror: Option<&Path>) -> anyhow::Result<()> {
    if mode == CopyMode::None && mirror.is_some() {
        return Err(exit::usage(
            "--mirror names a folder for copies, and there are to be none: choose one of the two",
        ));
    }
    Ok(())
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let pool = context.pool_or(arguments.folder.as_deref())?;
    if let Some(mode) = arguments.set {
        refuse_mirror_of_nothing(mode, arguments.mirror.as_deref())?;
    }
    let changes = arguments.set.is_some() || arguments.mirror.is_some() || arguments.here;
    let mut access = if changes || arguments.restore { open_to_write(&pool)? } else { open_to_read(&pool)? };
    let outcome = (|| {
        let mut report = take!(access.call(Request::Copies)?, Response::Copies(report) => report);
        if changes {
            let present = CopyMode::from_name(&report.mode).unwrap_or_default();
            // A folder for copies is a wish for some.
            let implied = if present == CopyMode::None { CopyMode::Metadata } else { present };
            let mode = arguments.set.unwrap_or(implied);
            let made = arguments.mirror.as_deref().map(Made::make).transpose()?;
            let folder = match &made {
                Some(made) => Some(made.path.clone()),
                None if arguments.here || mode == CopyMode::None => None,
                None => report.folder.clone(),
            };
            let allowed = made.as_ref().map_or(Ok(()), |made| made.refuse_mount_of(&pool));
            let changed = allowed.and_then(|()| Ok(access.call(Request::SetCopies { mode, folder })?));
            if let (Err(_), Some(made)) = (&changed, made) {
                made.take_back();
            }
            report = take!(changed?, Response::Copies(report) => report);
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
