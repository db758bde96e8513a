//! `icecore rename`

use super::{request_once, take};
use crate::exit;
use crate::pool::{Context, open_to_write};
use clap::Args;
use icecore::admin::{Request, Response};
use std::ffi::OsString;

#[derive(Args, Debug)]
#[command(after_help = "\
Example:
  icecore rename db@monday @before-upgrade
  icecore rename try-it team/db2")]
pub struct Arguments {
    /// A dataset or snapshot
    #[arg(value_name = "OLD")]
    from: OsString,

    /// Its new name; for snapshots @NAME is enough
    #[arg(value_name = "NEW")]
    to: OsString,

    /// Rename snapshots of that name in all datasets below as well
    #[arg(short, long)]
    recursive: bool,
}

pub fn run(context: &Context, arguments: &Arguments) -> anyhow::Result<()> {
    let (pool, from) = context.name(&arguments.from)?;
    let to = match (arguments.to.to_str(), from.split_once('@')) {
        (Some(short), Some((dataset, _))) if short.starts_with('@') => format!("{dataset}{short}"),
        (Some(short), None) if short.starts_with('@') => {
            return Err(exit::usage(format!(
                "{from} is a dataset, and {short} the short name of a snapshot"
            )));
        }
        _ => {
            let (other, to) = context.name(&arguments.to)?;
            if other != pool {
                return Err(exit::usage(format!("{} and {} are two pools", pool.display(), other.display())));
            }
            to
        }
    };
    let request = Request::Rename { from, to, recursive: arguments.recursive };
    take!(request_once(open_to_write(&pool)?, request)?, Response::Done => Ok(()))
}
