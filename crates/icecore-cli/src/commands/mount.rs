//! `icecore mount`

use crate::exit;
use crate::pool::{Context, Location};
use crate::{daemon, interrupt};
use anyhow::Context as _;
use clap::Args;
use icecore::admin::Failure;
use icecore_fuse::{MountError, MountOptions};
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = "\
Every program can use the files of a mount, databases as well. Snapshots are
in .icecore/snapshots/NAME of each dataset. While it is mounted, all other
commands work: they are sent to the process of the mount.

A dataset is mounted for reading and writing, a snapshot (db@monday) for
reading, and a pool with all its datasets as folders. Datasets below a dataset
are folders in it.

Example:
  icecore mount db /mnt/db
  icecore mount -o ro,foreground db@monday /mnt/monday")]
pub struct Arguments {
    /// The dataset, snapshot or pool
    #[arg(value_name = "DATASET|SNAPSHOT|POOL")]
    what: OsString,

    /// An empty folder
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,

    /// Change nothing, and let others read the pool, too
    #[arg(short, long)]
    read_only: bool,

    /// Stay in the foreground, until Ctrl-C
    #[arg(short, long)]
    foreground: bool,

    /// Options as in /etc/fstab: ro, allow_other, noallow_other, foreground, log=FILE, suid, dev, noexec, noxattr
    #[arg(short = 'o', long, value_name = "OPTIONS")]
    options: Vec<String>,

    /// Where the mount in the background writes what goes wrong
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Set by the command itself for its process in the background
    #[arg(long, hide = true)]
    background_process: bool,
}

pub fn run(context: &Context, arguments: Arguments) -> anyhow::Result<()> {
    let options = options(context, &arguments)?;
    if arguments.background_process {
        return daemon::run(options.log.as_deref(), |ready| serve(&options, ready));
    }
    if options.foreground {
        return serve(&options, || ());
    }
    daemon::start()
}

fn options(context: &Context, arguments: &Arguments) -> anyhow::Result<MountOptions> {
    let Location { pool, rest } = locate(context, &arguments.what)?;
    let pool = std::fs::canonicalize(&pool).with_context(|| format!("cannot find {}", pool.display()))?;
    let version = if rest.is_empty() { None } else { Some(Location { pool: pool.clone(), rest }.name()?) };
    let point = std::path::absolute(&arguments.folder).context("cannot find the working folder")?;
    let mut options = MountOptions::new(pool, version, point);
    for text in &arguments.options {
        options.apply(text).map_err(exit::usage)?;
    }
    options.read_only |= arguments.read_only;
    options.foreground |= arguments.foreground;
    let log = arguments.log.clone().or(options.log.take());
    options.log = log.map(std::path::absolute).transpose().context("cannot find the working folder")?;
    Ok(options)
}

/// As for every command; a pool that is given by -P alone is meant by its own folder, too.
fn locate(context: &Context, what: &OsString) -> anyhow::Result<Location> {
    match &context.pool {
        Some(pool) if pool.as_os_str() == what => Ok(Location { pool: pool.clone(), rest: Vec::new() }),
        _ => context.locate(what),
    }
}

fn serve(options: &MountOptions, ready: impl FnOnce()) -> anyhow::Result<()> {
    interrupt::defer();
    icecore_fuse::serve(options, ready, || interrupt::caught().is_some()).map_err(|error| match error {
        MountError::Pool(error) => Failure::from(error).into(),
        other => other.into(),
    })
}
