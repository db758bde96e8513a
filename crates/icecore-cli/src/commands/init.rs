//! `icecore init`

use crate::exit;
use crate::format::parse_size;
use crate::pool::Context;
use clap::Args;
use icecore::admin::Failure;
use icecore::units::ByteLength;
use icecore::{CopyMode, InitOptions, Pool};
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  icecore init /srv/pool
  icecore init --size-limit 20G /srv/pool
  icecore init --copies all --mirror /mnt/other/copies /srv/pool")]
pub struct Arguments {
    /// The folder: it is made if it does not exist, and must be empty if it does
    #[arg(value_name = "FOLDER")]
    folder: Option<PathBuf>,

    /// Size of the files that the pool is made of: a power of two from 2M to 1G
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value = "64M")]
    segment_size: ByteLength,

    /// Most that the files of the pool may take up together
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size_limit: Option<ByteLength>,

    /// What is written twice: `metadata`, what files are found by; `all`; `none`
    #[arg(long, value_name = "WHAT", value_parser = super::copies::parse_mode, default_value = "metadata")]
    copies: CopyMode,

    /// The folder for the copies, on another disk: made if it does not exist. Else they lie in the pool
    #[arg(long, value_name = "FOLDER")]
    mirror: Option<PathBuf>,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let folder = arguments.folder.as_ref().or(context.pool.as_ref());
    let folder = folder.ok_or_else(|| exit::usage("name the folder: icecore init FOLDER"))?;
    let options = InitOptions {
        segment_bytes: arguments.segment_size.get(),
        size_limit: arguments.size_limit,
        copies: arguments.copies,
        mirror: arguments.mirror.as_deref().map(super::copies::made).transpose()?,
    };
    Ok(Pool::init_directory(folder, &options).map_err(Failure::from)?)
}
