//! `icecore init`

use super::resize::{SizeLimit, parse_limit};
use crate::exit;
use crate::format::{escaped, parse_size};
use crate::pool::Context;
use clap::Args;
use icecore::admin::Failure;
use icecore::admin::locate::{is_pool, was_pool};
use icecore::units::ByteLength;
use icecore::{CopyMode, InitOptions, Pool};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

#[derive(Args, Debug)]
#[command(after_help = "\
A pool is made of segments: files of one size, which stays as it is made. Some
are kept free, and some are being filled: a pool with a small database has six
files of this size, second copies included. --segment-size sets it. Without it,
the filesystem decides: 8M below 1T, 16M below 2T, and so on up to 64M. With
--size-limit there is room for 256 of them: 4M for 1G, and never less than 2M.
`icecore resize` changes the limit.

Example:
  icecore init /srv/pool
  icecore init --size-limit 20G /srv/pool
  icecore init --copies all --mirror /mnt/other/copies /srv/pool")]
pub struct Arguments {
    /// The folder: it is made if it does not exist, and must be empty if it does
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,

    /// Make the pool among the files of a folder that is not empty; one with a pool, or a part of one, is refused still
    #[arg(short, long)]
    force: bool,

    /// Size of the files that the pool is made of: a power of two from 2M to 1G; chosen by the size limit and
    /// the filesystem if not given
    #[arg(long, value_name = "SIZE", value_parser = parse_segment_size)]
    segment_size: Option<ByteLength>,

    /// Most that the files of the pool may take up together; `none` for no limit, as if not given
    #[arg(long, value_name = "SIZE", value_parser = parse_limit)]
    size_limit: Option<SizeLimit>,

    /// What is written twice: `metadata`, what files are found by; `all`; `none`
    #[arg(long, value_name = "WHAT", value_parser = super::copies::parse_mode, default_value = "metadata")]
    copies: CopyMode,

    /// The folder for the copies, on another disk: made if it does not exist. Else they lie in the pool
    #[arg(long, value_name = "FOLDER")]
    mirror: Option<PathBuf>,
}

/// Whether segments may have this size is for the store to say, but 0 means something else there.
fn parse_segment_size(text: &str) -> Result<ByteLength, String> {
    match parse_size(text)? {
        ByteLength(0) => Err("a power of two from 2M to 1G".to_owned()),
        size => Ok(size),
    }
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let folder = arguments.folder.as_ref().or(context.pool.as_ref());
    let folder = folder.ok_or_else(|| exit::usage("name the folder: icecore init FOLDER"))?;
    if !arguments.force {
        refuse_full(folder)?;
    }
    super::copies::refuse_mirror_of_nothing(arguments.copies, arguments.mirror.as_deref())?;
    let mirror = arguments.mirror.as_deref().map(super::copies::Made::make).transpose()?;
    let options = InitOptions {
        segment_bytes: arguments.segment_size.map_or(InitOptions::SEGMENT_BYTES_SUITABLE, ByteLength::get),
        size_limit: arguments.size_limit.and_then(|limit| limit.0),
        copies: arguments.copies,
        mirror: mirror.as_ref().map(|mirror| mirror.path.clone()),
    };
    Pool::init_directory(folder, &options).map_err(|error| {
        if let Some(mirror) = mirror {
            mirror.take_back();
        }
        Failure::from(error).into()
    })
}

/// A home is a bad place for a pool. What a fresh file system has in it does not count, and a pool is for the
/// store to find.
fn refuse_full(folder: &Path) -> anyhow::Result<()> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Ok(()) };
    let mut names = entries.flatten().map(|entry| entry.file_name()).filter(|name| name != "lost+found");
    let Some(name) = names.next() else { return Ok(()) };
    if matches!(is_pool(folder), Ok(true)) || was_pool(folder) {
        return Ok(());
    }
    let (shown, name) = (escaped(folder.as_os_str().as_bytes()), escaped(name.as_bytes()));
    Err(exit::usage(format!(
        "{shown} is not empty ({name} is in it): name a new folder, {shown}/pool for instance, or use --force"
    )))
}
